package openai_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/bench/openai"
)

func TestWhatTheAPIWouldNotTakeIsRefusedAndNamed(t *testing.T) {
	t.Parallel()
	user := `"messages":[{"role":"user","content":"SECRET"}]`
	for _, c := range []struct{ path, body, want string }{
		{chatPath, `{`, "could not parse the JSON body"},
		{chatPath, `[]`, "could not parse the JSON body"},
		{chatPath, `null`, "could not parse the JSON body"},
		{chatPath, `{` + user + `}`, "you must provide a model parameter"},
		{chatPath, `{"model":5,` + user + `}`, `"param":"model"`},
		{chatPath, `{"model":"m"}`, "Missing required parameter: 'messages'."},
		{chatPath, `{"model":"m","messages":[]}`, "empty array"},
		{chatPath, `{"model":"m","messages":"SECRET"}`, "Invalid type for 'messages'"},
		{chatPath, `{"model":"m","messages":[{"role":"boss","content":"SECRET"}]}`, "messages[0].role"},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":5}]}`, "messages[0].content"},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"smell"}]}]}`, "messages[0].content[0].type"},
		{chatPath, `{"model":"m",` + user + `,"n":0}`, "Invalid 'n': integer below minimum value"},
		{chatPath, `{"model":"m",` + user + `,"n":129}`, "Expected a value <= 128"},
		{chatPath, `{"model":"m",` + user + `,"max_tokens":1.5}`, "Invalid type for 'max_tokens'"},
		{chatPath, `{"model":"m",` + user + `,"max_tokens":5,"max_completion_tokens":5}`, "at the same time is not supported"},
		{chatPath, `{"model":"m",` + user + `,"stream_options":{"include_usage":true}}`, "only allowed when 'stream' is enabled"},
		{chatPath, `{"model":"m",` + user + `,"tools":[{"function":{"name":"f"}}]}`, "Missing required parameter: 'tools[0].type'."},
		{chatPath, `{"model":"m",` + user + `,"tools":[{"type":"function","function":{}}]}`, "Missing required parameter: 'tools[0].name'."},
		{responsesPath, `{"model":"m"}`, "Missing required parameter: 'input'."},
		{responsesPath, `{"model":"m","input":5}`, "Invalid type for 'input'"},
		{responsesPath, `{"model":"m","input":["SECRET"]}`, "input[0]"},
		{responsesPath, `{"model":"m","input":"SECRET","max_output_tokens":15}`, "Expected a value >= 16"},
		{"/v1/embeddings", `{"model":"m"}`, "Missing required parameter: 'input'."},
		{"/v1/embeddings", `{"model":"m","input":[]}`, "Invalid 'input': empty array."},
		{"/v1/embeddings", `{"model":"m","input":{"a":1}}`, "Invalid type for 'input'"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, openai.Config{})
				got := r.post(c.path, c.body)
				var body struct {
					Error struct{ Type string }
				}
				if err := json.Unmarshal([]byte(got.body), &body); err != nil || body.Error.Type != "invalid_request_error" {
					t.Errorf("body %s", got.body)
				}
				if got.status != 400 || !strings.Contains(got.body, c.want) || strings.Contains(got.body, "SECRET") {
					t.Errorf("%s: %d %s", c.body, got.status, got.body)
				}
				if s := r.double.Stats(); s.Requests != 0 || s.Other["invalid"] != 1 {
					t.Errorf("books: %+v", s)
				}
			})
		})
	}
}

func TestWhatIsNotServedIsNotFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{})
		for _, c := range []struct {
			method, path string
			status       int
		}{
			{http.MethodGet, "/", 404},
			{http.MethodPost, "/stats", 404},
			{http.MethodPost, "/v1/images/generations", 404},
			{http.MethodPost, "/chat/completions", 404},
			{http.MethodPost, "/openai/deployments//chat/completions", 404},
			{http.MethodGet, chatPath, 405},
		} {
			got := r.do(c.method, c.path, hello)
			if got.status != c.status || !strings.Contains(got.body, `"invalid_request_error"`) {
				t.Errorf("%s %s: %d %s, want %d", c.method, c.path, got.status, got.body, c.status)
			}
		}
	})
}

func TestAzuresPathsNameTheModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{CallLog: 2})
		r.post("/openai/deployments/mine/chat/completions?api-version=2024-10-21", `{"messages":[{"role":"user","content":"hello"}]}`)
		r.post("/openai/v1/chat/completions", hello)
		var names []string
		for _, c := range r.double.Calls() {
			names = append(names, c.Name)
		}
		if !reflect.DeepEqual(names, []string{"mine", "gpt-5-mini"}) {
			t.Errorf("models %v", names)
		}
	})
}

func TestAPromptIsCountedOverItsTextsToolsAndMedia(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, body string
		want       int64
	}{
		"texts of all messages": {chatPath, `{"model":"m","messages":[{"role":"system","content":"1234"},{"role":"user","content":[{"type":"text","text":"äöüß"},{"type":"text","text":"12345"}]}]}`, 4},
		"a picture":             {chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`, openai.TokensPerMedia},
		"tools, however they are indented": {
			chatPath, `{"model":"m","messages":[{"role":"user","content":""}],"tools":[ {"type":"function", "function":{"name":"f"}} ]}`,
			(int64(len(`[{"type":"function","function":{"name":"f"}}]`)) + 3) / 4,
		},
		"instructions and items": {responsesPath, `{"model":"m","instructions":"1234","input":[{"role":"user","content":"1234"}]}`, 2},
		"tokens to embed":        {"/v1/embeddings", `{"model":"m","input":[[1,2,3],[4]]}`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, openai.Config{})
				if got := r.post(c.path, c.body); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				if got := r.double.Stats().InputTokens; got != c.want {
					t.Errorf("%d tokens, want %d", got, c.want)
				}
			})
		})
	}
}

func TestCountersAndLogAreServedAsJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{RPM: 1, CallLog: 10})
		r.post(chatPath, hello)
		r.post(chatPath, hello)
		var stats openai.Stats
		if err := json.Unmarshal([]byte(r.do(http.MethodGet, "/stats", "").body), &stats); err != nil {
			t.Fatal(err)
		}
		if want := r.double.Stats(); !reflect.DeepEqual(stats, want) || stats.RefusedBy["rpm"] != 1 {
			t.Errorf("GET /stats: %+v\nStats(): %+v", stats, want)
		}
		var calls []openai.Call
		if err := json.Unmarshal([]byte(r.do(http.MethodGet, "/calls", "").body), &calls); err != nil {
			t.Fatal(err)
		}
		if len(calls) != 2 || calls[0].Outcome != openai.Completed || calls[1].Outcome != openai.Refused {
			t.Errorf("GET /calls: %+v", calls)
		}
		if got := r.post("/reset", ""); got.status != 200 || r.double.Stats().Requests != 0 {
			t.Errorf("POST /reset: %d", got.status)
		}
		if got := r.post(chatPath, hello); got.status != 200 {
			t.Errorf("the window was not reset: %d", got.status)
		}
		r.double.Close()
		if got := r.post(chatPath, hello); got.status != 503 {
			t.Errorf("after Close: %d, want 503", got.status)
		}
	})
}

func TestAConfigurationThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]openai.Config{
		"ChunkTokens -1":                {ChunkTokens: -1},
		"OutputTokens 1048577":          {OutputTokens: 1<<20 + 1},
		"FunctionCalls 129":             {FunctionCalls: 129},
		"Reasoning -5":                  {Reasoning: -5},
		"OutputSigma 4":                 {OutputSigma: 4},
		"CachedShare 1.5":               {CachedShare: 1.5},
		`RefusalForm "loud"`:            {RefusalForm: "loud"},
		`CountTokens "twice"`:           {CountTokens: "twice"},
		`Window "daily"`:                {Window: "daily"},
		"limit tpm: amount -1":          {TPM: -1},
		`unknown kind "earthquake"`:     {Faults: []string{"earthquake"}},
		"concurrency -1":                {Concurrency: -1},
		"speed -1":                      {Speed: -1},
		"give the total or its parts":   {Latency: 1, TTFT: 1},
		`"after=1": 500 takes no after`: {Faults: []string{"500@after=1"}},
	} {
		if _, err := openai.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want an error with %q", cfg, err, want)
		}
	}
}

// Whatever a body holds, it is answered, and not with a failure of the double.
func FuzzAnyBodyIsAnswered(f *testing.F) {
	for _, body := range []string{
		hello, `{`, `null`, `{"model":"m","input":"x"}`, `{"model":"m","input":[{"type":"message","content":[{"type":"input_text","text":"a"}]}]}`,
		`{"model":"m","input":[1,2]}`, `{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"n":3,"max_tokens":2}`,
		`{"model":"m","messages":[{"role":"tool","content":null}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":["object"]}}}]}`,
		`{"model":"m","input":"x","stream":true,"tools":[{"type":"function","name":"f","parameters":{"required":[5]}}]}`,
	} {
		for _, path := range []string{chatPath, responsesPath, "/v1/embeddings"} {
			f.Add(path, body)
		}
	}
	double, err := openai.New(openai.Config{OutputTokens: 20, FunctionCalls: 2, TPM: 1000, Speed: 1e6})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		req := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(body))
		req.URL.Path = path
		w := httptest.NewRecorder()
		double.ServeHTTP(w, req)
		switch w.Code {
		case 200, 400, 404, 429:
		default:
			t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
		}
		if kind := w.Header().Get("Content-Type"); w.Code == 200 && strings.HasPrefix(kind, "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: the answer is not JSON: %s", body, w.Body)
		}
	})
}
