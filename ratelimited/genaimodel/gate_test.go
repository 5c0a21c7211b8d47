package genaimodel_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

// gated is a model behind a gate.
type gated = ratelimited.RateLimitedModel[*genaimodel.Request, *genai.GenerateContentResponse]

func newGated(t *testing.T, client *genai.Client, cfg ratelimited.Config) *gated {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	gate, err := ratelimited.NewGate(cfg)
	if err != nil {
		t.Fatalf("NewGate: %v", err)
	}
	m, err := ratelimited.New(newModel(t, client), gate)
	if err != nil {
		t.Fatalf("ratelimited.New: %v", err)
	}
	return m
}

// withTransport sends through a retry.Transport, as the package advises.
func withTransport(c *genai.ClientConfig) {
	c.HTTPClient = &http.Client{Transport: &retry.Transport{Base: c.HTTPClient.Transport}}
}

func newDouble(t *testing.T, cfg gemini.Config) *gemini.Server {
	t.Helper()
	double, err := gemini.New(cfg)
	if err != nil {
		t.Fatalf("gemini.New: %v", err)
	}
	return double
}

// idle fails unless the gate holds nothing.
func idle(t *testing.T, g *ratelimited.Gate) {
	t.Helper()
	if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
		t.Errorf("the gate still has %d slots in use, %d calls running, %d waiting", s.SlotsInUse, s.Running, s.Waiting)
	}
}

// outcomes reads how many attempts ended in which way.
func outcomes(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("Gather: %v", err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "headgate_attempts_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					counts[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

func TestAStreamThatIsCutCountsAsBrokenAndIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   string
		end     func(error) bool
		outcome string
	}{
		{"cut@n=1,after=1", is(genaimodel.ErrIncomplete), "broken"},
		{"cut-json@n=1,after=1", is(genaimodel.ErrUnreadable), "broken"},
		{"stream-error@n=1,after=1,code=500", isAPIError(500), "broken"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				double := newDouble(t, gemini.Config{Faults: []string{c.fault}, Latency: 8 * time.Second})
				srv := memhttp.New(double)
				defer srv.Close()
				reg := prometheus.NewRegistry()
				m := newGated(t, newClient(t, srv, withTransport), ratelimited.Config{
					Slots: 1, Registerer: reg, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 10}),
				})
				got := collect(m.GenerateContent(t.Context(), hello(), true))
				if len(got.items) != 1 || len(got.errs) != 1 || !c.end(got.errs[0]) {
					t.Errorf("got %d items and errors %v", len(got.items), got.errs)
				}
				if n := double.Stats().Requests; n != 1 {
					t.Errorf("%d requests, want 1: an item was delivered", n)
				}
				if o := outcomes(t, reg); len(o) != 1 || o[c.outcome] != 1 {
					t.Errorf("attempts by outcome %v, want one %s", o, c.outcome)
				}
				idle(t, m.Gate())
			})
		})
	}
}

// A Retry-After header is all that this 429 says, and the SDK drops it.
func TestARetryAfterHeaderIsWaitedForThroughTheTransport(t *testing.T) {
	t.Parallel()
	const advised = 20 * time.Second
	both(t, func(t *testing.T, stream bool) {
		wait := func(t *testing.T, edit ...func(*genai.ClientConfig)) (wait time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				double := newDouble(t, gemini.Config{CallLog: 10, Faults: []string{fmt.Sprintf("429-header@n=1,retry=%v", advised)}})
				srv := memhttp.New(double)
				defer srv.Close()
				m := newGated(t, newClient(t, srv, edit...), ratelimited.Config{
					Slots: 4, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000}),
				})
				if got := collect(m.GenerateContent(t.Context(), hello(), stream)); got.errs != nil || got.text == "" {
					t.Fatalf("got %q, %v", got.text, got.errs)
				}
				calls := double.Calls()
				if len(calls) != 2 || calls[0].Outcome != gemini.Refused || calls[1].Outcome != gemini.Completed {
					t.Fatalf("the double saw %+v, want a refusal and an answer", calls)
				}
				wait = calls[1].Arrived.Sub(calls[0].Ended)
				idle(t, m.Gate())
			})
			return wait
		}
		// The gate spreads returns over a tenth of the hint, and so does the policy.
		if got := wait(t, withTransport); got < advised || got > advised*13/10 {
			t.Errorf("came back after %v, want %v and a little", got, advised)
		}
		if got := wait(t); got >= advised {
			t.Errorf("came back after %v without the transport: this test proves nothing", got)
		}
	})
}

// With the transport a call's quota is dated a second after its request was
// written, not when the answer begins.
func TestTheTransportTellsTheGateWhenARequestWasWritten(t *testing.T) {
	t.Parallel()
	const window, latency, cell = time.Minute, 20 * time.Second, time.Second
	both(t, func(t *testing.T, stream bool) {
		// second is when the second of two calls may be sent, with a quota of one.
		second := func(t *testing.T, edit ...func(*genai.ClientConfig)) (at time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				var arrivals []time.Duration
				srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					arrivals = append(arrivals, time.Since(start))
					mu.Unlock()
					io.Copy(io.Discard, r.Body)
					time.Sleep(latency)
					reply(chunk("hi", "STOP"))(w, r)
				}))
				defer srv.Close()
				m := newGated(t, newClient(t, srv, edit...), ratelimited.Config{
					Headroom: 1, Slots: 4, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1}),
				})
				if got := newModel(t, newClient(t, srv, edit...)).UsesTransport(); got != (len(edit) > 0) {
					t.Errorf("UsesTransport() = %v with %d edits", got, len(edit))
				}
				var calls sync.WaitGroup
				for range 2 {
					calls.Go(func() {
						if got := collect(m.GenerateContent(t.Context(), hello(), stream)); got.errs != nil {
							t.Errorf("errors %v", got.errs)
						}
					})
				}
				calls.Wait()
				if len(arrivals) != 2 {
					t.Fatalf("%d requests, want 2", len(arrivals))
				}
				at = arrivals[1]
				idle(t, m.Gate())
			})
			return at
		}
		dated := func(got, counted time.Duration) bool {
			return got >= counted+window && got <= counted+window+cell
		}
		if got := second(t, withTransport); !dated(got, time.Second) {
			t.Errorf("with the transport the second call was sent after %v, want one window after 1s", got)
		}
		if got := second(t); !dated(got, latency) {
			t.Errorf("without it the second call was sent after %v, want one window after %v", got, latency)
		}
	})
}

func TestABurstThroughTheGateIsNeverThrottled(t *testing.T) {
	t.Parallel()
	const calls = 50
	for _, c := range []struct {
		name   string
		double gemini.Config
		quota  ratelimited.Quota
		vertex bool
	}{
		{"by requests", gemini.Config{RPM: 20}, ratelimited.Quota{RequestsPerMinute: 20}, false},
		{"by tokens", gemini.Config{TPM: 4000}, ratelimited.Quota{InputTokensPerMinute: 4000}, false},
		{"by both, fixed windows", gemini.Config{RPM: 20, TPM: 6000, Window: gemini.Fixed, WindowOffset: 17 * time.Second}, ratelimited.Quota{RequestsPerMinute: 20, InputTokensPerMinute: 6000}, false},
		{"late arrivals", gemini.Config{RPM: 20, ArrivalJitter: 900 * time.Millisecond}, ratelimited.Quota{RequestsPerMinute: 20}, false},
		{"Vertex AI", gemini.Config{TPM: 4000}, ratelimited.Quota{InputTokensPerMinute: 4000}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					cfg := c.double
					cfg.Latency, cfg.TTFTShare, cfg.LatencySigma, cfg.Seed = 8*time.Second, 0.2, 0.3, 1
					double := newDouble(t, cfg)
					srv := memhttp.New(double)
					defer srv.Close()
					edits := []func(*genai.ClientConfig){withTransport}
					profile := ratelimited.GeminiAPI(c.quota)
					if c.vertex {
						edits = append(edits, func(c *genai.ClientConfig) {
							c.APIKey, c.Backend, c.Project, c.Location = "", genai.BackendVertexAI, "p", "global"
						})
						profile = ratelimited.Vertex(c.quota)
					}
					m := newGated(t, newClient(t, srv, edits...), ratelimited.Config{Slots: 30, Profile: profile})
					var burst sync.WaitGroup
					for i := range calls {
						burst.Go(func() {
							prompt := fmt.Sprintf("%d: %s", i, strings.Repeat("Every field takes its share of the river. ", 20))
							ctx := ratelimited.WithFlow(t.Context(), fmt.Sprint("user ", i%10))
							got := collect(m.GenerateContent(ctx, &genaimodel.Request{Contents: genai.Text(prompt)}, stream))
							if got.errs != nil || got.text == "" {
								t.Errorf("call %d: got %d characters, errors %v", i, len(got.text), got.errs)
							}
						})
					}
					burst.Wait()
					s := double.Stats()
					if s.Requests != calls || s.Completed != calls || s.Refused != 0 {
						t.Errorf("%d requests, %d completed, %d refused; want %d, all completed", s.Requests, s.Completed, s.Refused, calls)
					}
					for _, w := range s.Windows {
						if w.Share > 1 {
							t.Errorf("%d of %d %s were used in one window", w.Largest, w.Limit, w.Name)
						}
					}
					if s.Elapsed < time.Minute {
						t.Errorf("the burst took %v: the quota did not bind, and this test proves nothing", s.Elapsed)
					}
					idle(t, m.Gate())
				})
			})
		})
	}
}

// An agent framework asks the wrapped model which API it speaks to.
func TestTheGatePassesTheVariantOn(t *testing.T) {
	t.Parallel()
	client := newClient(t, serve(t, reply(chunk("hi", "STOP"))), func(c *genai.ClientConfig) {
		c.APIKey, c.Backend, c.Project, c.Location = "", genai.BackendVertexAI, "p", "global"
	})
	m := newGated(t, client, ratelimited.Config{Slots: 1})
	if v := m.GetGoogleLLMVariant(); v != genai.BackendVertexAI || m.Name() != modelName {
		t.Errorf("variant %v, name %q; want %v, %q", v, m.Name(), genai.BackendVertexAI, modelName)
	}
}

// A refusal of our own comes before anything is sent.
func TestACallThatNeverFitsIsNotSent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
		m := newGated(t, newClient(t, srv), ratelimited.Config{
			Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 100}),
		})
		got := collect(m.GenerateContent(t.Context(), &genaimodel.Request{Contents: genai.Text(strings.Repeat("word ", 1000))}, stream))
		if len(got.errs) != 1 || !errors.Is(got.errs[0], ratelimited.ErrNeverFits) {
			t.Errorf("errors %v, want ErrNeverFits", got.errs)
		}
	})
}
