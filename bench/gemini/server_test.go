package gemini_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
)

func TestCountersAndLogAreServedAsJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{RPM: 1, CallLog: 10})
		if got := r.get("/calls"); got.body != "[]\n" {
			t.Errorf("an empty log: %s, want []", got.body)
		}
		r.post(unaryPath, hello)
		r.post(unaryPath, hello)
		r.post(unaryPath, "{")
		r.post("/v1beta/models/m:embedContent", hello)
		r.post("/v1/models/m:countTokens", hello)

		var stats gemini.Stats
		var calls []gemini.Call
		if err := json.Unmarshal([]byte(r.get("/stats").body), &stats); err != nil {
			t.Fatal(err)
		}
		want := r.double.Stats()
		if !reflect.DeepEqual(stats, want) {
			t.Errorf("GET /stats: %+v\nStats(): %+v", stats, want)
		}
		if want.Admitted != 1 || want.RefusedBy["rpm"] != 1 || want.Other["invalid"] != 2 || want.Other["count_tokens"] != 1 {
			t.Errorf("books: %+v", want)
		}
		if err := json.Unmarshal([]byte(r.get("/calls").body), &calls); err != nil {
			t.Fatal(err)
		}
		if len(calls) != 2 || calls[0].Outcome != gemini.Completed || calls[1].Outcome != gemini.Refused || calls[1].Refused[0] != "rpm" {
			t.Errorf("GET /calls: %+v", calls)
		}
		if got := r.post("/reset", ""); got.status != 200 {
			t.Errorf("POST /reset: %d", got.status)
		}
		if s := r.double.Stats(); s.Requests != 0 || len(r.double.Calls()) != 0 {
			t.Errorf("after the reset: %+v", s)
		}
		if got := r.post(unaryPath, hello); got.status != 200 {
			t.Errorf("the window was not reset: %d", got.status)
		}
	})
}

func TestWhatIsNotServedIsNotFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{})
		for _, tt := range []struct{ method, path string }{
			{http.MethodGet, "/"},
			{http.MethodGet, unaryPath},
			{http.MethodPost, "/stats"},
			{http.MethodGet, "/reset"},
			{http.MethodPost, "/v1beta/models/m:predict"},
			{http.MethodPost, "/v1beta/models/m"},
		} {
			got := r.do(tt.method, tt.path, hello)
			if got.status != 404 || !strings.Contains(got.body, `"NOT_FOUND"`) {
				t.Errorf("%s %s: %d %s", tt.method, tt.path, got.status, got.body)
			}
		}
	})
}

func TestAWrongHeaderIsAnInvalidArgument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{})
		_, err := r.client().Models.GenerateContent(t.Context(), flash, genai.Text("hello"), with(gemini.HeaderOutput, "lots"))
		var e genai.APIError
		if !errors.As(err, &e) || e.Code != 400 || e.Status != "INVALID_ARGUMENT" ||
			!strings.Contains(e.Message, gemini.HeaderOutput) || !strings.Contains(e.Message, "lots") {
			t.Errorf("error %v", err)
		}
		if s := r.double.Stats(); s.Requests != 0 || s.Other["invalid"] != 1 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestABodyBeyondTheBoundIsRefused(t *testing.T) {
	t.Parallel()
	double, err := gemini.New(gemini.Config{})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, unaryPath, strings.NewReader(hello))
	req.ContentLength = 33 << 20
	w := httptest.NewRecorder()
	double.ServeHTTP(w, req)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "34603008 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestHeadersOverruleTheConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{OutputTokens: 10, OutputSigma: 1, Thoughts: 10, TTFT: time.Minute, Speed: 2})
		start := time.Now()
		cfg := with(gemini.HeaderOutput, "800", gemini.HeaderThoughts, "1200", gemini.HeaderLatency, "8s", gemini.HeaderRise, "3")
		cfg.ThinkingConfig = &genai.ThinkingConfig{ThinkingBudget: genai.Ptr[int32](5)} // a demand is a demand
		got, err := r.client().Models.GenerateContent(t.Context(), flash, genai.Text("hello"), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if u := got.UsageMetadata; u.CandidatesTokenCount != 800 || u.ThoughtsTokenCount != 1200 || u.PromptTokenCount != 5 {
			t.Errorf("usage %+v", u)
		}
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("took %v, want 8s at double speed", took)
		}
	})
}

func TestAThinkingBudgetBoundsThoughts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{Thoughts: 100})
		for budget, want := range map[int32]int32{0: 0, 30: 30, 200: 100, -1: 100} {
			cfg := &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{ThinkingBudget: &budget}}
			got, err := r.client().Models.GenerateContent(t.Context(), flash, genai.Text("hello"), cfg)
			if err != nil || got.UsageMetadata.ThoughtsTokenCount != want {
				t.Errorf("budget %d: %v, %v; want %d thoughts", budget, got, err, want)
			}
		}
	})
}

func TestAHookMayChangeAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen gemini.Request
		r := newRig(t, gemini.Config{ChunkTokens: 10, Answer: func(req gemini.Request, a *gemini.Answer) {
			seen = req
			a.Text, a.Output, a.Latency = "Es grünt so grün, wenn Spaniens Blüten blühen.", 30, new(3*time.Second)
		}})
		start, text := time.Now(), ""
		chunks, errs := collect(t, r.client(), &genai.GenerateContentConfig{MaxOutputTokens: 500})
		for _, c := range chunks {
			text += c.Text()
		}
		if len(errs) > 0 || len(chunks) != 3 || text != "Es grünt so grün, wenn Spaniens Blüten blühen." {
			t.Errorf("%d chunks, %q, %v", len(chunks), text, errs)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v, want 3s", took)
		}
		if seen.Model != flash || seen.MaxOutputTokens != 500 || !seen.Stream || seen.PromptTokens != 2 || seen.Vertex || !json.Valid(seen.Body) {
			t.Errorf("the hook saw %+v", seen)
		}
	})
}

func TestAHookThatPanicsLeavesNoCallInFlight(t *testing.T) {
	t.Parallel()
	double, err := gemini.New(gemini.Config{Answer: func(gemini.Request, *gemini.Answer) { panic("oops") }})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		double.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, unaryPath, strings.NewReader(hello)))
	}()
	if s := double.Stats(); s.InFlight != 0 || s.Cancelled != 1 {
		t.Errorf("books: %+v", s)
	}
}

func TestArgumentsOfAHookThatAreNotJSONBecomeEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{Answer: func(_ gemini.Request, a *gemini.Answer) {
			a.Calls = []gemini.FunctionCall{{Name: "f", Args: json.RawMessage("{")}}
		}})
		got, err := r.client().Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil)
		if err != nil || len(got.FunctionCalls()) != 1 || len(got.FunctionCalls()[0].Args) != 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestAnImpossibleConfigurationIsRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]gemini.Config{
		"ChunkTokens -1":              {ChunkTokens: -1},
		"FunctionCalls -1":            {FunctionCalls: -1},
		"OutputTokens -1":             {OutputTokens: -1},
		"RisingPrompt -1":             {RisingPrompt: -1},
		"Thoughts 2000000":            {Thoughts: 2_000_000},
		"OutputSigma 4":               {OutputSigma: 4},
		`RefusalForm "polite"`:        {RefusalForm: "polite"},
		"Window daily":                {Window: 3},
		"rpm: amount -1":              {RPM: -1},
		"tpm: amount -1":              {TPM: -1},
		"rpd: amount -1":              {RPD: -1},
		"concurrency -1":              {Concurrency: -1},
		"window length -1s":           {WindowLength: -time.Second},
		"window offset -1s":           {WindowOffset: -time.Second},
		"arrival jitter -1s":          {ArrivalJitter: -time.Second},
		"latency -1s":                 {Latency: -time.Second},
		"first token -1s":             {TTFT: -time.Second},
		"latency sigma -1":            {LatencySigma: -1},
		"first token 2":               {TTFTShare: 2},
		"tokens per second -1":        {TokensPerSecond: -1},
		"speed -1":                    {Speed: -1},
		"call log -1":                 {CallLog: -1},
		"counting instant 7":          {CountAt: 7},
		`fault "503@p=2"`:             {Faults: []string{"503", "503@p=2"}},
		"give the total or its parts": {Latency: time.Second, TTFT: time.Second},
	} {
		if _, err := gemini.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func TestTheHelpOnFaultsListsKindsThatWork(t *testing.T) {
	t.Parallel()
	_, list, _ := strings.Cut(gemini.FaultHelp(), "Kinds:\n")
	kinds := 0
	for line := range strings.Lines(list) {
		kind := strings.Fields(line)[0]
		if _, err := gemini.New(gemini.Config{Faults: []string{kind + "@p=0.5"}}); err != nil {
			t.Errorf("the help lists %s: %v", kind, err)
		}
		kinds++
	}
	_, err := gemini.New(gemini.Config{Faults: []string{"none"}})
	if n := strings.Count(fmt.Sprint(err), ","); n+1 != kinds {
		t.Errorf("the help lists %d kinds, the error of an unknown one %d: %v", kinds, n+1, err)
	}
}
