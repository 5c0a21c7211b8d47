package openaimodel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	double "github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// However a call ends, its slot and its reservation are back at once, and once,
// and the server's handler is told that its client is gone.
func TestEverythingIsBackHoweverACallEnds(t *testing.T) {
	t.Parallel()
	type use func(t *testing.T, call call, stream bool)
	for name, end := range map[string]struct {
		fault    string
		streamed bool // the end needs a stream
		use      use
	}{
		"completed": {"", false, func(t *testing.T, call call, stream bool) {
			if got := collect(call(t.Context(), stream)); got.errs != nil {
				t.Error(got.errs)
			}
		}},
		"the consumer breaks after the first item": {"", true, func(t *testing.T, call call, stream bool) {
			for range call(t.Context(), stream) {
				break
			}
		}},
		"the context is cancelled before the answer": {"hang", false, func(t *testing.T, call call, stream bool) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if got := collect(call(ctx, stream)); len(got.errs) != 1 || !errors.Is(got.errs[0], context.DeadlineExceeded) {
				t.Errorf("errors %v, want the deadline", got.errs)
			}
		}},
		"the context is cancelled after the first item": {"", true, func(t *testing.T, call call, stream bool) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, err := range call(ctx, stream) {
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		}},
		"the consumer pulls an item and forgets the rest": {"", true, func(t *testing.T, call call, stream bool) {
			ctx, cancel := context.WithCancel(t.Context())
			next, stop := iter.Pull2(call(ctx, stream))
			next()
			cancel()
			synctest.Wait()
			stop() // for the leak test; everything is back before it
		}},
		"the consumer panics": {"", true, func(t *testing.T, call call, stream bool) {
			defer func() {
				if recover() != "mine" {
					t.Error("the consumer's panic did not pass")
				}
			}()
			for range call(t.Context(), stream) {
				panic("mine")
			}
		}},
		"the connection breaks":              {"drop", false, failing},
		"the stream ends early":              {"cut", true, failing},
		"the stream reports an error":        {"stream-error", true, failing},
		"a server error":                     {"500", false, failing},
		"a proxy's page":                     {"502", false, failing},
		"refused until the attempts run out": {"429", false, failing},
		"a quota that is used up":            {"429-quota", false, failing},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				if end.streamed && !stream {
					t.Skip("there is one item only")
				}
				synctest.Test(t, func(t *testing.T) {
					cfg := double.Config{Latency: 40 * time.Millisecond, TTFTShare: 0.2}
					if end.fault != "" {
						cfg.Faults = []string{end.fault}
					}
					d := newDouble(t, cfg)
					srv := memhttp.New(d)
					defer srv.Close()
					gate := newGate(t, ratelimited.Config{Slots: 1})
					l := &ledger{}
					call := a.gated(t, newClient(srv), gate, ratelimited.WithBudgets(l))
					for range 10 {
						end.use(t, call, stream)
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						p, err := gate.Acquire(ctx, ratelimited.Call{})
						cancel()
						if err != nil {
							t.Fatalf("the next call was not admitted: %v", err)
						}
						p.Release()
					}
					if l.open != 0 || len(l.closed) != 10 {
						t.Errorf("%d reservations are open, %d closed; want 0 and 10", l.open, len(l.closed))
					}
					idle(t, gate)
					synctest.Wait()
					if s := d.Stats(); s.InFlight != 0 {
						t.Errorf("%d calls are still in flight at the server", s.InFlight)
					}
				})
			})
		})
	}
}

// failing makes a call that fails.
func failing(t *testing.T, call call, stream bool) {
	if got := collect(call(t.Context(), stream)); len(got.errs) != 1 {
		t.Errorf("errors %v, want one", got.errs)
	}
}

// What a call costs whose end the provider did not report.
func TestACallThatBreaksOffCostsItsInputAndWhatWasSeen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			d := newDouble(t, double.Config{OutputTokens: 64, Faults: []string{"drop@after=3"}})
			srv := memhttp.New(d)
			defer srv.Close()
			l := &ledger{}
			got := collect(a.gated(t, newClient(srv), newGate(t, ratelimited.Config{Slots: 1}), ratelimited.WithBudgets(l))(t.Context(), stream))
			if len(got.errs) != 1 {
				t.Fatalf("errors %v, want one", got.errs)
			}
			spent := l.spent(t)
			seen := usage.OpenAI.Text(got.text)
			if spent.Input <= 0 || !spent.Has(usage.Estimated) || spent.Output < seen || spent.Output > seen+5 || stream != (seen > 0) {
				t.Errorf("charged %v for an output of %d tokens", spent, seen)
			}
		})
	})
}

// Neither prompts nor answers reach a log, a metric or an error of ours, not even
// where the server quotes them in its errors.
func TestPromptsNeverReachLogsMetricsOrErrors(t *testing.T) {
	t.Parallel()
	const marker = "CONFIDENTIAL"
	for name, c := range map[string]struct {
		status int
		body   func(a api) string
	}{
		"served": {200, func(a api) string { return "" }},
		"refused": {400, func(api) string {
			return `{"error":{"message":"bad prompt ` + marker + `","code":"bad ` + marker + `"}}`
		}},
		"throttled": {429, func(api) string {
			return `{"error":{"message":"` + marker + `","type":"tokens","code":"rate_limit_exceeded"}}`
		}},
		"failed":    {500, func(api) string { return `{"error":{"message":"` + marker + `"}}` }},
		"a page":    {502, func(api) string { return `<html>` + marker + `</html>` }},
		"no answer": {200, func(api) string { return `{"` + marker }},
		"an error within": {200, func(a api) string {
			first, _, _ := strings.Cut(a.events(marker), "\n\n")
			return first + "\n\n" + data(`{"error":{"message":"`+marker+`","code":"server_error"}}`)
		}},
		"cut off": {200, func(a api) string { return strings.Split(a.events(marker), "\n\n")[0] + "\n\n" }},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						body := c.body(a)
						if body == "" {
							a.reply(marker)(w, r)
							return
						}
						w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[stream])
						w.Header().Set("X-Request-Id", marker+" "+marker)
						w.WriteHeader(c.status)
						io.WriteString(w, body)
					}))
					defer srv.Close()
					var log bytes.Buffer
					reg := prometheus.NewRegistry()
					gate, err := ratelimited.NewGate(ratelimited.Config{
						Slots: 1, Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
					})
					if err != nil {
						t.Fatal(err)
					}
					got := collect(a.gated(t, newClient(srv), gate)(t.Context(), stream, func(k *knobs) { k.prompt = "Keep this " + marker }))
					for _, err := range got.errs {
						for _, s := range []string{err.Error(), fmt.Sprintf("%v", err), fmt.Sprintf("%s", err), fmt.Sprintf("%q", err)} {
							if strings.Contains(s, marker) {
								t.Errorf("an error quotes: %s", s)
							}
						}
					}
					families, err := reg.Gather()
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(log.String(), marker) || strings.Contains(fmt.Sprint(families), marker) {
						t.Errorf("a log or a metric quotes:\n%s\n%v", &log, families)
					}
					if name == "served" != (got.errs == nil) {
						t.Errorf("errors %v", got.errs)
					}
				})
			})
		})
	}
}
