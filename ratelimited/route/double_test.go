package route_test

import (
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/ratelimited/route"
	"github.com/headgate-go/headgate/retry"
)

// region is a double of the Gemini API, its client, and a gate that believes in a
// quota of so many requests a minute.
func region(t *testing.T, name string, cfg gemini.Config, believed int64) (*gemini.Server, route.Route[*genaimodel.Request, *genai.GenerateContentResponse]) {
	t.Helper()
	double, err := gemini.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := memhttp.New(double)
	t.Cleanup(srv.Close)
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI,
		HTTPClient:  &http.Client{Transport: &retry.Transport{Base: srv.Client().Transport}},
		HTTPOptions: genai.HTTPOptions{BaseURL: srv.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	model, err := genaimodel.New(client, "gemini-2.5-flash")
	if err != nil {
		t.Fatal(err)
	}
	gate := newGate(t, ratelimited.Config{
		Name: name, Slots: 30, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: believed}),
	})
	llm, err := ratelimited.New(model, gate)
	if err != nil {
		t.Fatal(err)
	}
	return double, route.Route[*genaimodel.Request, *genai.GenerateContentResponse]{Name: name, Model: llm}
}

// Two regions, of which one has much less left than its gate believes, because
// others use it, too. Its refusals cost nobody an answer, nor time: the calls go
// on to the other one, and to the first again when the provider has said it may.
func TestARegionThatThrottlesSpillsOverToTheOther(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(map[bool]string{false: "unary", true: "stream"}[stream], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const calls, latency = 120, 4 * time.Second
				eu, viaEU := region(t, "eu", gemini.Config{RPM: 10, Latency: latency}, 1000)
				us, viaUS := region(t, "us", gemini.Config{RPM: 1000, Latency: latency}, 1000)
				p, err := route.New(route.Config{Logger: slog.New(slog.DiscardHandler)}, []route.Route[*genaimodel.Request, *genai.GenerateContentResponse]{viaEU, viaUS})
				if err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for range calls {
					all.Go(func() {
						start := time.Now()
						whole, err := finished(p.GenerateContent(t.Context(), &genaimodel.Request{Contents: genai.Text("hello")}, stream))
						if err != nil || !whole {
							t.Errorf("not answered: %v", err)
						}
						if d := time.Since(start); d > latency+time.Second {
							t.Errorf("a call took %v, want the %v of an answer: it waited for a refusal", d, latency)
						}
					})
					time.Sleep(time.Second)
				}
				all.Wait()
				a, b := eu.Stats(), us.Stats()
				if a.Completed+b.Completed != calls {
					t.Errorf("the regions have answered %d and %d calls, want %d together: each once", a.Completed, b.Completed, calls)
				}
				// Two minutes of 10 each, refusals, and the calls that then found out.
				if a.Completed < 20 || a.Completed > 30 || a.Refused == 0 || a.Refused > 10 || b.Refused != 0 {
					t.Errorf("eu answered %d and refused %d, us refused %d; want all that eu has, and a few refusals", a.Completed, a.Refused, b.Refused)
				}
				synctest.Wait()
				for _, g := range p.Gates() {
					if s := g.Stats(); s.SlotsInUse != 0 || s.Waiting != 0 {
						t.Errorf("gate %q: %d slots in use, %d waiting", g.Name(), s.SlotsInUse, s.Waiting)
					}
				}
			})
		})
	}
}

// finished ranges a call and tells whether its answer was whole.
func finished(seq iter.Seq2[*genai.GenerateContentResponse, error]) (whole bool, err error) {
	for resp, e := range seq {
		if e != nil {
			return whole, e
		}
		whole = len(resp.Candidates) > 0 && resp.Candidates[0].FinishReason == genai.FinishReasonStop
	}
	return whole, nil
}
