package ratelimited_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// roundTripper lets a test tell when a request was written.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// overHTTP sends a request through a retry.Transport, which calls send with a
// function that tells that the request was written.
func overHTTP(ctx context.Context, send func(written func())) {
	transport := &retry.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(r.Context())
		send(func() {
			if trace != nil && trace.WroteRequest != nil {
				trace.WroteRequest(httptrace.WroteRequestInfo{})
			}
		})
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://model.invalid", nil)
	_, _ = transport.RoundTrip(req)
}

// freesAfter is when a window of 100 tokens that one call has filled is empty
// again, from its start on.
func freesAfter(t *testing.T, g *ratelimited.Gate, start time.Time) time.Duration {
	t.Helper()
	p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	return time.Since(start)
}

// The provider has counted a call by its first item. Where the HTTP client says
// when the request was written, it is known a second after that, and the quota
// comes back so much earlier.
func TestQuotaComesBackFromWhenTheCallIsKnownToBeCounted(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []ratelimited.Option
		written time.Duration // after the start of the attempt; never if negative
		frees   time.Duration
	}{
		// In the cell of the first item, at 30s, and a window of 60s after it.
		"first item":                         {nil, 0, 30*time.Second + empties},
		"written at once":                    {[]ratelimited.Option{ratelimited.WithTransport()}, 0, time.Second + empties},
		"written after 5s":                   {[]ratelimited.Option{ratelimited.WithTransport()}, 5 * time.Second, 6*time.Second + empties},
		"written shortly before an item":     {[]ratelimited.Option{ratelimited.WithTransport()}, 29500 * time.Millisecond, 30*time.Second + empties},
		"never told, though it was promised": {[]ratelimited.Option{ratelimited.WithTransport()}, -1, 30*time.Second + empties},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 2, Headroom: 1, Profile: window(100)})
				f := &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
					overHTTP(ctx, func(written func()) {
						start := time.Now()
						if test.written >= 0 {
							time.Sleep(test.written)
							written()
						}
						time.Sleep(30*time.Second - time.Since(start))
						_ = yield(part("a"), nil)
						time.Sleep(20 * time.Second)
						_ = yield(final(100, 1), nil)
					})
				}}
				llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 1}, test.opts...)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				go call(t.Context(), llm, hello())
				time.Sleep(time.Millisecond)
				if d := freesAfter(t, g, start); d != test.frees {
					t.Errorf("the window was empty after %v, want %v", d, test.frees)
				}
			})
		})
	}
}

// What an earlier attempt's connection tells late says nothing about the
// attempt that runs now: neither that its request was written, nor that this was
// a second ago.
func TestLateNewsOfAnEarlierAttemptIsIgnored(t *testing.T) {
	for name, inTime := range map[string]bool{"written late": false, "written in time, but the second is not over": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 2, Headroom: 1, Profile: window(100)})
				var first func()
				f := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
					overHTTP(ctx, func(written func()) {
						if n == 1 {
							first = written
							if inTime {
								written()
							}
							yield(nil, throttled(retryInfo("0.1s")))
							return
						}
						if !inTime {
							first()
						}
						time.Sleep(30 * time.Second)
						_ = yield(final(100, 1), nil)
					})
				}}
				llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 1}, ratelimited.WithTransport())
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				go call(t.Context(), llm, hello())
				time.Sleep(900 * time.Millisecond)
				second := f.startedAfter(start, 2)
				want := (second + 30*time.Second).Truncate(time.Second) + empties
				if d := freesAfter(t, g, start); d != want {
					t.Errorf("the window was empty after %v, want %v: a window after the item of the second attempt", d, want)
				}
			})
		})
	}
}

// The context that the model gets for that hides what the framework's own would
// answer; its identities are pinned, so that a model that calls models does not
// lose them.
func TestIdentitiesSurviveTheDerivedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen string
		inner := newGate(t, ratelimited.Config{Slots: 1, FlowWeight: func(_, flow string) float64 { seen = flow; return 1 }})
		llm := wrap(t, wrap(t, answers(0, final(1, 1)), inner), newGate(t, ratelimited.Config{Slots: 1}), ratelimited.WithTransport())
		if err := call(framework{t.Context(), "ada", "writer", "click"}, llm, hello()); err != nil {
			t.Fatal(err)
		}
		if seen != "ada" {
			t.Errorf("the inner gate sees the flow %q, want ada", seen)
		}
	})
}

// Direct users of a gate tell it themselves.
func TestPermitCountedDatesTheHold(t *testing.T) {
	for counted, frees := range map[time.Duration]time.Duration{0: empties, 7 * time.Second: 7*time.Second + empties, -1: 40*time.Second + empties} {
		bubbleRun(t, "counted", fmt.Sprint(counted), func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 2, Headroom: 1, Profile: window(100)})
			start := time.Now()
			p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(40*time.Second, func() { p.End(input(100)) })
			if counted >= 0 {
				time.AfterFunc(counted, func() { p.Counted(); p.Counted() })
				time.AfterFunc(counted+5*time.Second, p.Counted)
			}
			if d := freesAfter(t, g, start); d != frees {
				t.Errorf("the window was empty after %v, want %v", d, frees)
			}
		})
	}
}
