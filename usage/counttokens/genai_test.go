package counttokens_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/counttokens"
	"google.golang.org/genai"
)

// connect is the real SDK before a handler. It is made inside a bubble.
func connect(t *testing.T, backend genai.Backend, handler http.Handler) *genai.Client {
	t.Helper()
	srv := memhttp.New(handler)
	t.Cleanup(srv.Close)
	cfg := &genai.ClientConfig{Backend: backend, HTTPClient: srv.Client(), HTTPOptions: genai.HTTPOptions{BaseURL: srv.URL}}
	if backend == genai.BackendVertexAI {
		cfg.Project, cfg.Location = "p", "global"
	} else {
		cfg.APIKey = "any"
	}
	client, err := genai.NewClient(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func double(t *testing.T) *gemini.Server {
	t.Helper()
	d, err := gemini.New(gemini.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func genaiCounter(t *testing.T, client *genai.Client) *counttokens.Counter[counttokens.Request] {
	t.Helper()
	c, err := counttokens.New(counttokens.GenAI(client, usage.Estimator{}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request has a text of 40 characters, which the double counts as 10, and a
// system instruction of 20.
func request() counttokens.Request {
	return counttokens.Request{
		Model:    "gemini-2.5-flash",
		Contents: genai.Text("Where is the gate, and who may open it? "),
		Config:   &genai.GenerateContentConfig{SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: "Answer in one word. "}}}},
	}
}

func withTool(req counttokens.Request) counttokens.Request {
	req.Config.Tools = []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "open_gate"}}}}
	return req
}

func TestTheSDKCountsContentsSystemInstructionAndTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := double(t)
		tool := usage.Estimator{Model: "gemini-2.5-flash"}.GenAI(nil, &genai.GenerateContentConfig{Tools: withTool(request()).Config.Tools}).Input
		for _, c := range []struct {
			name    string
			backend genai.Backend
			req     counttokens.Request
			want    int64
		}{
			{"contents", genai.BackendGeminiAPI, counttokens.Request{Model: "gemini-2.5-flash", Contents: request().Contents}, 10},
			{"with a system instruction", genai.BackendGeminiAPI, request(), 15},
			{"tools are estimated", genai.BackendGeminiAPI, withTool(request()), 15 + tool},
			{"Vertex AI", genai.BackendVertexAI, request(), 15},
			// The compact JSON of the tool has 50 characters.
			{"Vertex AI counts tools", genai.BackendVertexAI, withTool(request()), 28},
		} {
			before, err := json.Marshal(c.req)
			if err != nil {
				t.Fatal(err)
			}
			u, exact := genaiCounter(t, connect(t, c.backend, d)).Estimate(t.Context(), c.req)
			if u.Input != c.want || !exact || u.Output != usage.DefaultTypicalOutput || !u.Has(usage.Estimated) {
				t.Errorf("%s: %v, exact %v, want an input of %d", c.name, u, exact, c.want)
			}
			if after, err := json.Marshal(c.req); err != nil || string(after) != string(before) {
				t.Errorf("%s: the request was changed to %s", c.name, after)
			}
		}
	})
}

func TestOneRequestMayBeCountedByManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, genai.BackendVertexAI, double(t))
		req := withTool(request())
		var wg sync.WaitGroup
		for range 20 {
			c := genaiCounter(t, client) // so that each of them asks
			wg.Go(func() {
				if _, exact := c.Estimate(t.Context(), req); !exact {
					t.Error("no count")
				}
			})
		}
		wg.Wait()
	})
}

func TestAnEstimateNeedsNoEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		want := usage.Estimator{Model: "gemini-2.5-flash"}.GenAI(request().Contents, request().Config)
		for name, answer := range map[string]http.HandlerFunc{
			"unavailable":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
			"no JSON":      func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") },
			"null":         func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "null") },
			"a wrong type": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"totalTokens":{}}`) },
			"no count":     func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") },
			"never": func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // else the server does not see the client go
				<-r.Context().Done()
			},
			"bad request":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadRequest) },
			"broken early": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		} {
			c := genaiCounter(t, connect(t, genai.BackendGeminiAPI, answer))
			start := time.Now()
			if u, exact := c.Estimate(t.Context(), request()); u != want || exact {
				t.Errorf("%s: %v, exact %v, want %v", name, u, exact, want)
			}
			if d := time.Since(start); d > counttokens.DefaultTimeout {
				t.Errorf("%s: took %v", name, d)
			}
			time.Sleep(time.Second) // until what is under way has ended
		}
		if u, exact := genaiCounter(t, nil).Estimate(t.Context(), request()); u != want || exact {
			t.Errorf("without a client: %v, exact %v", u, exact)
		}
		empty := counttokens.Request{Model: "gemini-2.5-flash"}
		if _, exact := genaiCounter(t, connect(t, genai.BackendGeminiAPI, double(t))).Estimate(t.Context(), empty); exact {
			t.Error("a request without contents has a count")
		}
	})
}

func TestWhichStatusesPauseTheEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			code  int
			pause bool
		}{
			{400, false}, {413, false}, {422, false},
			{401, true}, {403, true}, {404, true}, {408, true}, {429, true}, {500, true}, {503, true},
		} {
			cfg := counttokens.GenAI(connect(t, genai.BackendGeminiAPI, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.code)
				fmt.Fprintf(w, `{"error":{"code":%d,"message":"no","status":"NO"}}`, c.code)
			})), usage.Estimator{})
			cfg.Failures = 1
			counter, err := counttokens.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			counter.Estimate(t.Context(), request())
			if got := counter.Stats(); got.Paused != c.pause || got.Failed != 1 {
				t.Errorf("%d: %+v, want a pause: %v", c.code, got, c.pause)
			}
		}
	})
}

// Anything that counts can be put in. The requests here hold strings, which nobody
// can change, so they need no Clone.
func ExampleNew() {
	type request struct{ Model, Text string }
	counter, err := counttokens.New(counttokens.Config[request]{
		Count: func(ctx context.Context, req request) (int64, error) {
			return int64(len(req.Text)) / 4, nil // a call of the provider
		},
		Estimate: func(req request) usage.Usage {
			return usage.Usage{Input: usage.Anthropic.Text(req.Text), Output: 200, Flags: usage.Estimated}
		},
		Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(counter.Estimate(context.Background(), request{"claude-opus-4-7", "Where is the gate?"}))
	// Output: input=4 output=200 total=204 estimated true
}
