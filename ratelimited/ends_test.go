package ratelimited_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"google.golang.org/genai"
)

// However a call ends, its slot is back at once, and once: the next call is
// admitted, and no slot is minted. A width of 1 shows either.
func TestSlotComesBackOnceHoweverACallEnds(t *testing.T) {
	stream := func(ctx context.Context, n int, yield yields) {
		for _, item := range []*LLMResponse{part("a"), part("b"), final(5, 3)} {
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				yield(nil, err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
	failing := func(ctx context.Context, n int, yield yields) {
		if yield(part("a"), nil) {
			yield(nil, errBroken)
		}
	}
	ends := map[string]struct {
		play func(context.Context, int, yields)
		use  func(t *testing.T, llm LLM)
	}{
		"consumer breaks after the first item": {stream, func(t *testing.T, llm LLM) {
			for range llm.GenerateContent(t.Context(), hello(), true) {
				break
			}
		}},
		"context is cancelled after the first item": {stream, func(t *testing.T, llm LLM) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, err := range llm.GenerateContent(ctx, hello(), true) {
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		}},
		"model fails at the second item": {failing, func(t *testing.T, llm LLM) {
			if err := call(t.Context(), llm, hello()); !errors.Is(err, errBroken) {
				t.Errorf("got %v, want the model's error", err)
			}
		}},
		"consumer panics": {stream, func(t *testing.T, llm LLM) {
			defer func() {
				if recover() != "mine" {
					t.Error("the consumer's panic did not pass")
				}
			}()
			for range llm.GenerateContent(t.Context(), hello(), true) {
				panic("mine")
			}
		}},
		"normal end and cancel together": {stream, func(t *testing.T, llm LLM) {
			ctx, cancel := context.WithCancel(t.Context())
			for range llm.GenerateContent(ctx, hello(), true) {
			}
			cancel()
		}},
		"cancel inside the last item": {stream, func(t *testing.T, llm LLM) {
			ctx, cancel := context.WithCancel(t.Context())
			for item := range llm.GenerateContent(ctx, hello(), true) {
				if item != nil && !item.Partial {
					cancel()
				}
			}
			cancel()
		}},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				f := &fakeLLM{play: end.play}
				llm := wrap(t, f, g)
				for range 100 {
					end.use(t, llm)
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					p, err := g.Acquire(ctx, ratelimited.Call{})
					if err != nil {
						t.Fatalf("the next call was not admitted: %v", err)
					}
					p.Release()
					cancel()
				}
				mustBeIdle(t, g)

				f.play = stream
				f.resetPeak()
				for range 2 {
					go call(t.Context(), llm, hello())
				}
				synctest.Wait()
				if s := g.Stats(); s.SlotsInUse != 1 || s.Waiting != 1 {
					t.Errorf("two calls at width 1: %d slots in use, %d waiting; want 1 and 1", s.SlotsInUse, s.Waiting)
				}
				time.Sleep(time.Second)
				if n := f.peakCount(); n != 1 {
					t.Errorf("%d calls were in flight together, want 1", n)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// A reservation on a customer budget never outlives its call: nothing is held
// and nothing was spent by calls that the provider did not serve.
func TestReservationIsBackAtOnceHoweverACallEnds(t *testing.T) {
	for kind := range ledgers("user", 1000, 100) {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := ledgers("user", 1000, 100)[kind]
				g := newGate(t, ratelimited.Config{Slots: 1})
				f := &fakeLLM{}
				llm := wrap(t, f, g, ratelimited.WithBudgets(l))
				fail := func(err error) func(context.Context, int, yields) {
					return func(_ context.Context, _ int, yield yields) { yield(nil, err) }
				}
				ends := []func(){
					func() { // its context expires while it waits for a slot
						p, err := g.Acquire(t.Context(), ratelimited.Call{})
						if err != nil {
							t.Fatal(err)
						}
						defer p.Release()
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
						defer cancel()
						if err := call(ctx, llm, hello()); !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("queued: got %v, want the deadline", err)
						}
					},
					func() { // the model refuses the request before any item
						f.play = fail(badRequest())
						if err := call(t.Context(), llm, hello()); err == nil {
							t.Error("a bad request did not fail")
						}
					},
					func() { // the model was never reached
						f.play = fail(notSent())
						if err := call(t.Context(), llm, hello()); err == nil {
							t.Error("an unreachable model did not fail")
						}
					},
					func() { // throttled until the attempts run out
						f.play = fail(throttled())
						before := f.count()
						if err := call(t.Context(), llm, hello()); !errors.As(err, new(genai.APIError)) {
							t.Errorf("throttled: got %v, want the provider's error", err)
						}
						if n := f.count() - before; n != 3 {
							t.Errorf("throttled: %d attempts, want 3", n)
						}
					},
					func() { // cancelled during backoff
						f.play = fail(throttled(retryInfo("20s")))
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						time.AfterFunc(2*time.Second, cancel)
						if err := call(ctx, llm, hello()); !errors.Is(err, context.Canceled) {
							t.Errorf("backoff: got %v, want the cancellation", err)
						}
					},
				}
				for i := range 20 {
					ends[i%len(ends)]()
				}
				time.Sleep(time.Second) // a store far away takes a moment
				l.expect(t, 0, 0)
				mustBeIdle(t, g)

				f.play = answers(0, final(300, 600)).play
				l.hold = 900
				if err := call(t.Context(), llm, hello()); err != nil {
					t.Errorf("a call for 900 of 1,000 unspent tokens: %v", err)
				}
				time.Sleep(time.Second)
				l.expect(t, 0, 900)
			})
		})
	}
}

// A panic of anybody's code passes on to the consumer, and everything is back.
func TestEverythingIsBackAfterAPanic(t *testing.T) {
	for name, test := range map[string]struct {
		panics string // of the budget
		meter  string
		play   func(context.Context, int, yields)
		passes any // what the consumer sees; nil if nothing
		spent  int64
	}{
		"model before the first item": {
			play:   func(context.Context, int, yields) { panic("model") },
			passes: "model", spent: 4, // the request may have been sent: its input
		},
		"model after an item": {
			play:   func(_ context.Context, _ int, yield yields) { yield(part("12345678"), nil); panic("model") },
			passes: "model", spent: 4 + 2,
		},
		"meter at the estimate": {play: answers(0, final(3, 4)).play, meter: "estimate", passes: "meter"},
		"meter at an item":      {play: answers(0, final(3, 4)).play, meter: "observe", passes: "meter", spent: 4},
		"budget at reserve":     {play: answers(0, final(3, 4)).play, panics: "reserve", passes: "ledger: reserve"},
		"budget at settle":      {play: answers(0, final(3, 4)).play, panics: "settle", spent: 7},
		"budget at release":     {play: func(_ context.Context, _ int, y yields) { y(nil, badRequest()) }, panics: "release"},
	} {
		for _, far := range []time.Duration{0, time.Millisecond} {
			t.Run(name+" "+far.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1, Logger: quiet(), Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})})
					first, last := &ledger{name: "first", delay: far}, &ledger{name: "last", delay: far}
					bad := &ledger{name: "bad", delay: far, panics: test.panics}
					llm, err := ratelimited.NewMetered(&fakeLLM{play: test.play}, g, &countingMeter{panics: test.meter}, ratelimited.WithBudgets(first, bad, last))
					if err != nil {
						t.Fatal(err)
					}
					passed := func() (p any) {
						defer func() { p = recover() }()
						for range llm.GenerateContent(t.Context(), hello(), true) {
						}
						return nil
					}()
					if passed != test.passes {
						t.Errorf("the consumer saw the panic %v, want %v", passed, test.passes)
					}
					if err := g.Close(t.Context()); err != nil {
						t.Error(err)
					}
					mustBeIdle(t, g)
					first.expect(t, 0, test.spent)
					last.expect(t, 0, test.spent)
				})
			})
		}
	}
}
