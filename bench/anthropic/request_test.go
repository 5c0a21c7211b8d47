package anthropic_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/bench/anthropic"
)

func TestMalformedRequestsAreRefusedByFieldAndWithoutThePrompt(t *testing.T) {
	t.Parallel()
	msg := func(messages string) string { return `{"model":"m","max_tokens":9,"messages":[` + messages + `]}` }
	with := func(field string) string {
		return strings.Replace(hello, `{"model"`, `{`+field+`,"model"`, 1)
	}
	const call = `{"role":"user","content":"SECRET"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{}}]}`
	for _, c := range []struct{ want, body string }{
		{"not valid JSON", `{"model":"SECRET`},
		{"not valid JSON", `[]`},
		{"not valid JSON", `null`},
		{"model: Field required", `{"max_tokens":9,"messages":[]}`},
		{"model: Input should be a valid string", `{"model":7,"max_tokens":9}`},
		{"max_tokens: Field required", `{"model":"m","messages":[{"role":"user","content":"SECRET"}]}`},
		{"max_tokens: -1", `{"model":"m","max_tokens":-1}`},
		{"max_tokens: Input should be a valid integer", `{"model":"m","max_tokens":1.5}`},
		{"messages: Field required", `{"model":"m","max_tokens":9}`},
		{"messages: at least one", msg(``)},
		{"messages: Input should be a valid list", `{"model":"m","max_tokens":9,"messages":"SECRET"}`},
		{"n: Extra inputs", with(`"n":1`)},
		{"stream: Input should be a valid boolean", with(`"stream":"yes"`)},
		{"messages.0.role: Field required", msg(`{"content":"SECRET"}`)},
		{"messages.0.role: Input should be", msg(`{"role":"model","content":"SECRET"}`)},
		{`messages: first message`, msg(`{"role":"assistant","content":"SECRET"}`)},
		{"messages.0.name: Extra inputs", msg(`{"role":"user","content":"SECRET","name":"x"}`)},
		{"messages.0.content: Field required", msg(`{"role":"user"}`)},
		{"messages.0.content: Input should be", msg(`{"role":"user","content":7}`)},
		{"messages.0.content: messages must have", msg(`{"role":"user","content":[]}`)},
		{"messages.0.content.0: text content blocks must be non-empty", msg(`{"role":"user","content":""}`)},
		{"messages.0.content.0.type: Field required", msg(`{"role":"user","content":[{"text":"SECRET"}]}`)},
		{"messages.0.content.0: Input tag", msg(`{"role":"user","content":[{"type":"video"}]}`)},
		{"messages.0.content.0.image.source: Field required", msg(`{"role":"user","content":[{"type":"image"}]}`)},
		{"messages.0.content.0.text.text: Input should be a valid string", msg(`{"role":"user","content":[{"type":"text","text":{"a":1}}]}`)},
		{"messages.0.content.0: unexpected `tool_use_id`", msg(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]}`)},
		{"messages.0.content.0: `tool_use` blocks can only", msg(`{"role":"user","content":[{"type":"tool_use","id":"t1","name":"f","input":{}}]}`)},
		{"messages.1: `tool_use` ids", msg(call)},
		{"messages.2.content: `tool_use` ids", msg(call + `,{"role":"user","content":"SECRET"}`)},
		{"messages.0.content.0.cache_control.type: Input", msg(`{"role":"user","content":[{"type":"text","text":"SECRET","cache_control":{"type":"forever"}}]}`)},
		{"messages.0.content.0.cache_control.ttl: Input", msg(`{"role":"user","content":[{"type":"text","text":"SECRET","cache_control":{"type":"ephemeral","ttl":"1y"}}]}`)},
		{"system.0.type: Input should be 'text'", with(`"system":[{"type":"image","source":{}}]`)},
		{"system: Input should be", with(`"system":7`)},
		{"tools.0.name: Field required", with(`"tools":[{"input_schema":{}}]`)},
		{"tools.0.custom.input_schema: Field required", with(`"tools":[{"name":"f"}]`)},
		{"tool_choice: Input tag", with(`"tool_choice":{"type":"some"}`)},
		{"thinking.type: Field required", with(`"thinking":{}`)},
		{"thinking: Input tag", with(`"thinking":{"type":"deep"}`)},
		{"thinking.enabled.budget_tokens: Field required", with(`"thinking":{"type":"enabled"}`)},
		{"thinking.enabled.budget_tokens: Input should be greater", with(`"thinking":{"type":"enabled","budget_tokens":1000}`)},
		{"max_tokens must be greater than thinking.budget_tokens", with(`"thinking":{"type":"enabled","budget_tokens":1024}`)},
		{"cache_control: a maximum of 4 blocks", with(`"system":[` + strings.Repeat(`{"type":"text","text":"SECRET","cache_control":{"type":"ephemeral"}},`, 4) +
			`{"type":"text","text":"SECRET","cache_control":{"type":"ephemeral"}}]`)},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, anthropic.Config{})
				got := r.post(path, c.body)
				if got.status != 400 || !strings.Contains(got.body, `"invalid_request_error"`) || !strings.Contains(decoded(got.body), c.want) {
					t.Errorf("%d %s, want 400 with %q", got.status, got.body, c.want)
				}
				if strings.Contains(got.body, "SECRET") {
					t.Errorf("the error quotes the prompt: %s", got.body)
				}
				if s := r.double.Stats(); s.Requests != 0 || s.Other["invalid"] != 1 {
					t.Errorf("books: %+v", s)
				}
			})
		})
	}
}

// decoded is the message of an error's body.
func decoded(body string) string {
	var e struct{ Error struct{ Message string } }
	if json.Unmarshal([]byte(body), &e) != nil {
		return ""
	}
	return e.Error.Message
}

func TestAKeyAndAVersionAreNeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{})
		for _, c := range []struct {
			status  int
			headers []string
		}{
			{401, []string{"X-Api-Key", ""}},
			{200, []string{"X-Api-Key", "", "Authorization", "Bearer any"}},
			{400, []string{"Anthropic-Version", ""}},
			{200, nil},
		} {
			if got := r.post(path, hello, c.headers...); got.status != c.status {
				t.Errorf("%v: %d %s, want %d", c.headers, got.status, got.body, c.status)
			}
		}
	})
}

func TestHeadersOverruleTheConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{OutputTokens: 10, OutputSigma: 1, TTFT: time.Minute, Speed: 2})
		start := time.Now()
		got := r.post(path, hello, anthropic.HeaderOutput, "300", anthropic.HeaderThoughts, "200", anthropic.HeaderLatency, "8s")
		if !strings.Contains(got.body, `"output_tokens":500,"output_tokens_details":{"thinking_tokens":200}`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("took %v, want 8s at double speed", took)
		}
		for header, value := range map[string]string{
			anthropic.HeaderOutput: "lots", anthropic.HeaderThoughts: "-1", anthropic.HeaderLatency: "soon",
			anthropic.HeaderCalls: "3", anthropic.HeaderFault: "teapot",
		} {
			got := r.post(path, hello, header, value)
			if got.status != 400 || !strings.Contains(got.body, header) || !strings.Contains(got.body, value) {
				t.Errorf("%s %s: %d %s, want 400 that names both", header, value, got.status, got.body)
			}
		}
	})
}

func TestAHookMayChangeAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen anthropic.Request
		r := newRig(t, anthropic.Config{Answer: func(req anthropic.Request, a *anthropic.Answer) {
			seen = req
			a.Text, a.Output = "Es grünt so grün.", 4
		}})
		_, m, err := collect(t, r.client(), says("hello"))
		if err != nil || m.Content[0].Text != "Es grünt so grün." || m.Usage.OutputTokens != 4 {
			t.Errorf("%v, %s", err, m.RawJSON())
		}
		if seen.Model != model || seen.MaxTokens != 1000 || !seen.Stream || seen.PromptTokens != 2 || seen.Thinking || !json.Valid(seen.Body) {
			t.Errorf("the hook saw %+v", seen)
		}
	})
}

func TestAHookThatPanicsLeavesNoCallInFlight(t *testing.T) {
	t.Parallel()
	double, err := anthropic.New(anthropic.Config{Answer: func(anthropic.Request, *anthropic.Answer) { panic("oops") }})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		double.ServeHTTP(httptest.NewRecorder(), request(hello))
	}()
	if s := double.Stats(); s.InFlight != 0 || s.Cancelled != 1 {
		t.Errorf("books: %+v", s)
	}
}

func request(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("X-Api-Key", "any")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	return r
}

func TestCountersAndLogAreServedAsJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{RPM: 1, CallLog: 10})
		if got := r.get("/calls"); got.body != "[]\n" {
			t.Errorf("an empty log: %s, want []", got.body)
		}
		r.post(path, hello)
		r.post(path, hello)
		r.post(path, "{")
		if got := r.post("/v1/complete", hello); got.status != 404 {
			t.Errorf("what is not served: %d, want 404", got.status)
		}
		var stats anthropic.Stats
		if err := json.Unmarshal([]byte(r.get("/stats").body), &stats); err != nil {
			t.Fatal(err)
		}
		want := r.double.Stats()
		if !reflect.DeepEqual(stats, want) || want.Admitted != 1 || want.RefusedBy["rpm"] != 1 || want.Other["invalid"] != 2 {
			t.Errorf("GET /stats: %+v\nStats(): %+v", stats, want)
		}
		var calls []anthropic.Call
		if err := json.Unmarshal([]byte(r.get("/calls").body), &calls); err != nil {
			t.Fatal(err)
		}
		if len(calls) != 2 || calls[0].Outcome != anthropic.Completed || calls[1].Outcome != anthropic.Refused {
			t.Errorf("GET /calls: %+v", calls)
		}
		if got := r.post("/reset", ""); got.status != 200 || r.double.Stats().Requests != 0 {
			t.Errorf("POST /reset: %d, then %+v", got.status, r.double.Stats())
		}
		if got := r.post(path, hello); got.status != 200 {
			t.Errorf("the quota was not reset: %d", got.status)
		}
	})
}

func TestAnImpossibleConfigurationIsRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]anthropic.Config{
		"ChunkTokens -1":              {ChunkTokens: -1},
		"OutputTokens -1":             {OutputTokens: -1},
		"Thoughts 2000000":            {Thoughts: 2_000_000},
		"ToolCalls 129":               {ToolCalls: 129},
		"OutputSigma 4":               {OutputSigma: 4},
		"RequestBurst -1s":            {RequestBurst: -time.Second},
		"rpm: amount -1":              {RPM: -1},
		"itpm: amount -1":             {InputTPM: -1},
		"otpm: amount -1":             {OutputTPM: -1},
		"concurrency -1":              {Concurrency: -1},
		"arrival jitter -1s":          {ArrivalJitter: -time.Second},
		"speed -1":                    {Speed: -1},
		`fault "529@p=2"`:             {Faults: []string{"529", "529@p=2"}},
		"give the total or its parts": {Latency: time.Second, TTFT: time.Second},
	} {
		if _, err := anthropic.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

// Whatever comes, it is answered, in JSON or events, and leaves nothing behind.
func FuzzAnyRequestIsAnswered(f *testing.F) {
	for _, body := range []string{
		hello, helloLive, `{}`, `null`, `{"model":"m","max_tokens":9,"messages":[null]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[null]}]}`,
		`{"model":"m","max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024},"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":{"enum":[1]}}}},null],"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","max_tokens":9,"cache_control":{"type":"ephemeral"},"system":[{"type":"text","text":"x","cache_control":null}],"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"hi"}}]}]}`,
	} {
		f.Add([]byte(body), "1")
	}
	f.Fuzz(func(t *testing.T, body []byte, calls string) {
		double, err := anthropic.New(anthropic.Config{Thoughts: 20, ToolCalls: 1, InputTPM: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		r := request(string(body))
		r.Header.Set(anthropic.HeaderCalls, calls)
		w := httptest.NewRecorder()
		double.ServeHTTP(w, r)
		switch kind := w.Header().Get("Content-Type"); {
		case w.Code != 200 && w.Code != 400 && w.Code != 429:
			t.Fatalf("%d %s", w.Code, w.Body)
		case strings.HasPrefix(kind, "text/event-stream"):
			if !strings.HasSuffix(w.Body.String(), "data: {\"type\":\"message_stop\"}\n\n") {
				t.Fatalf("a stream without an end: %s", w.Body)
			}
		case !json.Valid(w.Body.Bytes()):
			t.Fatalf("no JSON: %s", w.Body)
		}
		if s := double.Stats(); s.InFlight != 0 || s.Failed != 0 || s.Cancelled != 0 {
			t.Fatalf("books: %+v", s)
		}
	})
}
