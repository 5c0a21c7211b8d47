package ratelimited_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// A consumer that pulls an item and forgets to stop holds a slot only as long
// as its context lives. What it used by then is charged.
func TestForgottenPullEndsWithItsContext(t *testing.T) {
	for kind := range ledgers("", 0, 0) {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
				l := ledgers("", 0, 0)[kind]
				item := part("a")
				item.UsageMetadata = used(25, 8)
				llm := wrap(t, answers(0, item, final(25, 15)), g, ratelimited.WithBudgets(l))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				next, stop := iter.Pull2(llm.GenerateContent(ctx, hello(), true))
				defer stop() // so that the test leaves no goroutine; too late for the call
				if got, err, ok := next(); got != item || err != nil || !ok {
					t.Fatalf("pulled %v, %v, %v", got, err, ok)
				}
				if s := g.Stats(); s.SlotsInUse != 1 {
					t.Fatalf("%d slots in use, want 1", s.SlotsInUse)
				}
				waited := time.Now()
				p, err := g.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(waited); d < 900*time.Millisecond || d > 1100*time.Millisecond {
					t.Errorf("the slot came back after %v, want 1s: with the context", d)
				}
				p.Release()
				mustBeIdle(t, g)
				time.Sleep(time.Second)
				l.expect(t, 0, 33)
				if n := booked(t, g, "tokens"); n != 25 {
					t.Errorf("the gate counts %d tokens, want 25", n)
				}
				if err := g.Close(t.Context()); err != nil {
					t.Errorf("Close waits for a forgotten call: %v", err)
				}
			})
		})
	}
}

// A pull whose first item never comes: the context ends it in line and in
// backoff as well.
func TestPullEndsWithItsContextWhileItWaits(t *testing.T) {
	for name, err := range map[string]error{"in line": nil, "in backoff": throttled(retryInfo("30s"))} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
				l := &ledger{}
				if err == nil {
					p, err := g.Acquire(t.Context(), ratelimited.Call{})
					if err != nil {
						t.Fatal(err)
					}
					defer p.Release()
				}
				ctx, cancel := context.WithCancel(t.Context())
				next, _ := iter.Pull2(wrap(t, refusesFirst(9, err), g, ratelimited.WithBudgets(l)).GenerateContent(ctx, hello(), true))
				start := time.Now()
				time.AfterFunc(time.Second, cancel)
				if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
					t.Errorf("pulled %v, %v; want the cancellation", err, ok)
				}
				if d := time.Since(start); d != time.Second {
					t.Errorf("pulled for %v, want 1s", d)
				}
				l.expect(t, 0, 0)
				if s := g.Stats(); s.Waiting != 0 {
					t.Errorf("%d calls wait, want none", s.Waiting)
				}
				next() // lets the sequence come to its end
			})
		})
	}
}

// Items that a model yields although the context has ended are passed on, and
// what they report is booked: the larger reading, once.
func TestUsageReportedAfterTheContextEndedIsBooked(t *testing.T) {
	for name, test := range map[string]struct {
		first  *LLMResponse
		gate   int64
		ledger int64
	}{
		"nothing was known":   {part("a"), 60, 75},
		"some was known":      {&LLMResponse{Partial: true, UsageMetadata: used(25, 8)}, 60, 75},
		"it was complete":     {final(25, 8), 60, 75},
		"more was known then": {final(80, 20), 80, 100},
	} {
		for kind := range ledgers("", 0, 0) {
			t.Run(name+" "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
					l := ledgers("", 0, 0)[kind]
					last := final(60, 15)
					llm := wrap(t, answers(0, test.first, last), g, ratelimited.WithBudgets(l))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var items []*LLMResponse
					for item, err := range llm.GenerateContent(ctx, hello(), true) {
						if err != nil {
							t.Error(err)
						}
						items = append(items, item)
						cancel()
						synctest.Wait() // the context's end has ended the call by now
						if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 {
							t.Errorf("after the context ended: %d slots in use", s.SlotsInUse)
						}
					}
					if len(items) != 2 || items[1] != last {
						t.Errorf("%d items passed, want both", len(items))
					}
					time.Sleep(time.Second)
					l.expect(t, 0, test.ledger)
					if n := booked(t, g, "tokens"); n != test.gate {
						t.Errorf("the gate counts %d tokens, want %d", n, test.gate)
					}
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// slowLocal is a ledger whose reservations say that they only touch memory, and
// take their time all the same.
type slowLocal struct{ *ledger }

type slowEntry struct{ *entry }

func (s slowLocal) Reserve(ctx context.Context, call budget.Call) (budget.Reservation, error) {
	r, err := s.ledger.Reserve(ctx, call)
	if err != nil {
		return nil, err
	}
	return slowEntry{r.(*entry)}, nil
}

func (s slowEntry) Settle(ctx context.Context, u usage.Usage) error {
	time.Sleep(time.Second)
	return s.entry.Settle(ctx, u)
}

// While the context's end is still ending the call, its consumer may come to the
// end of the sequence: the one waits for the other, and nothing is booked out of
// order.
func TestEndOfContextAndEndOfSequenceDoNotCross(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000), Logger: quiet()})
		l := &ledger{}
		llm := wrap(t, answers(0, part("a"), final(60, 15)), g, ratelimited.WithBudgets(slowLocal{l}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range llm.GenerateContent(ctx, hello(), true) {
			cancel()
			synctest.Wait() // the settlement has begun
		}
		if n := booked(t, g, "tokens"); n != 60 {
			t.Errorf("the gate counts %d tokens, want 60", n)
		}
		l.expect(t, 0, 75)
		mustBeIdle(t, g)
	})
}

// A pull that is forgotten at the item that completes the answer holds nothing
// any more, with or without its usage, with or without a budget: nobody waits
// for it, Close neither.
func TestPullForgottenAtItsLastItemHoldsNothing(t *testing.T) {
	done := &LLMResponse{Content: genai.NewContentFromText("end", genai.RoleModel)}
	for name, item := range map[string]*LLMResponse{"with usage": final(25, 15), "without": done} {
		for kind := range ledgers("", 0, 0) {
			t.Run(name+" "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1})
					l := ledgers("", 0, 0)[kind]
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					for _, opts := range [][]ratelimited.Option{nil, {ratelimited.WithBudgets(l)}} {
						next, stop := iter.Pull2(wrap(t, answers(0, item), g, opts...).GenerateContent(ctx, hello(), true))
						defer stop() // too late for the call
						if _, err, ok := next(); err != nil || !ok {
							t.Fatal(err, ok)
						}
						if s := g.Stats(); s.SlotsInUse != 0 {
							t.Errorf("%d slots in use at the last item", s.SlotsInUse)
						}
					}
					cancel()
					synctest.Wait()
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					if err := g.Close(ctx); err != nil {
						t.Errorf("Close waits for forgotten calls: %v", err)
					}
					l.mu.Lock()
					if l.held != 0 || l.spent == 0 {
						t.Errorf("held %d, spent %d; want nothing held", l.held, l.spent)
					}
					l.mu.Unlock()
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// watched is a context that counts who waits for its end.
type watched struct {
	context.Context
	now, ever atomic.Int64
}

// Value hides that a context of the standard library is inside: package context
// then asks AfterFunc.
func (w *watched) Value(any) any { return nil }

func (w *watched) AfterFunc(f func()) (stop func() bool) {
	w.now.Add(1)
	w.ever.Add(1)
	inner := context.AfterFunc(w.Context, f)
	return func() bool {
		if !inner() {
			return false
		}
		w.now.Add(-1)
		return true
	}
}

// A context that outlives many calls, a session's say, does not collect them.
func TestNothingStaysWithTheCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		base, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx := &watched{Context: base}
		llm := wrap(t, answers(0, part("a"), part("b"), final(1, 1)), g)
		for i := range 50 {
			n := 0
			for range llm.GenerateContent(ctx, hello(), true) {
				if n++; n > i%4 {
					break
				}
			}
		}
		if ctx.now.Load() != 0 || ctx.ever.Load() == 0 {
			t.Errorf("%d of %d calls still wait for the context's end, want none of some", ctx.now.Load(), ctx.ever.Load())
		}
		mustBeIdle(t, g)
	})
}

// The end of a context ends a call that its consumer has forgotten, on a
// goroutine where nobody could meet a panic of the profile's functions.
func TestAPanicWhileAForgottenCallIsEndedIsLoggedAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		profile := window(1000)
		boom := false
		profile.Dimensions[0].Settle = func(u usage.Usage) int64 {
			if boom {
				panic("settle")
			}
			return u.Input
		}
		var log bytes.Buffer
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: profile, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		llm := wrap(t, answers(0, part("a"), final(3, 3)), g)
		ctx, cancel := context.WithCancel(t.Context())
		next, stop := iter.Pull2(llm.GenerateContent(ctx, hello(), true))
		next()
		boom = true
		cancel()
		synctest.Wait()
		if !strings.Contains(log.String(), "panicked") {
			t.Errorf("nothing was logged: %q", log.String())
		}
		boom = false
		stop()
		mustBeIdle(t, g)
	})
}
