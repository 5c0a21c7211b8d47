package ratelimited_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"google.golang.org/genai"
)

// After an item was delivered nothing is sent again: it would be delivered
// twice. The consumer sees the error, and what was used is charged.
func TestNothingIsRetriedAfterAnItem(t *testing.T) {
	tool := &LLMResponse{Partial: true, Content: &genai.Content{Parts: []*genai.Part{{FunctionCall: &genai.FunctionCall{Name: "book"}}}}}
	for name, first := range map[string]*LLMResponse{"text": part("ab"), "tool call": tool} {
		for reason, end := range map[string]error{
			"throttled": throttled(retryInfo("1s")), "overloaded": overloaded(), "not sent": notSent(), "broken": errBroken,
		} {
			t.Run(name+" "+reason, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
					l := &ledger{}
					f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
						if n > 1 {
							yield(part("abcdef"), nil)
							return
						}
						second := part("cd")
						second.UsageMetadata = used(20, 2)
						_ = yield(first, nil) && yield(second, nil) && yield(nil, end)
					}}
					start := time.Now()
					items, err := collect(wrap(t, f, g, ratelimited.WithBudgets(l)).GenerateContent(t.Context(), hello(), true))
					if len(items) != 2 || items[0] != first {
						t.Errorf("got %d items, want the two of the first attempt", len(items))
					}
					if fmt.Sprint(err) != fmt.Sprint(end) {
						t.Errorf("got %v, want %v", err, end)
					}
					if f.count() != 1 || time.Since(start) != 0 {
						t.Errorf("%d calls in %v, want 1 without a wait", f.count(), time.Since(start))
					}
					l.expect(t, 0, 22)
					if n := booked(t, g, "tokens"); n != 20 {
						t.Errorf("the gate counts %d tokens, want 20", n)
					}
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// After the consumer stopped nothing is yielded any more, not even by a model
// that ignores it or after a settlement that failed, which is counted.
func TestNothingIsYieldedAfterTheConsumerStopped(t *testing.T) {
	stubborn := func(_ context.Context, _ int, yield yields) {
		yield(part("a"), nil)
		yield(part("b"), nil)
		yield(final(1, 2), nil)
		yield(nil, errBroken)
	}
	for name, stopAt := range map[string]int{"first item": 1, "last item": 3, "error": 4} {
		for kind := range ledgers("", 0, 0) {
			t.Run(name+" "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var log bytes.Buffer
					g := newGate(t, ratelimited.Config{Slots: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
					l := ledgers("", 0, 0)[kind]
					l.settleErr = errStore
					f := &fakeLLM{play: stubborn}
					n := 0
					// Called and not ranged: range would panic at one more.
					wrap(t, f, g, ratelimited.WithBudgets(l)).GenerateContent(t.Context(), hello(), true)(func(*LLMResponse, error) bool {
						n++
						return n < stopAt
					})
					if n != stopAt {
						t.Errorf("yielded %d times, want %d", n, stopAt)
					}
					if err := g.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					if l.count("settle") != 1 || !strings.Contains(log.String(), errStore.Error()) {
						t.Errorf("settled %d times and logged %q, want one attempt and its error", l.count("settle"), &log)
					}
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// Items pass through as they are and as they come: the same pointers, each
// before the next one is made, and never an item that is nothing.
func TestItemsPassUntouchedAndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := []*LLMResponse{part("a"), part("b"), final(1, 2), {UsageMetadata: used(1, 2)}}
		var order []string
		f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			for i, item := range want {
				order = append(order, fmt.Sprint("make ", i))
				if !yield(nil, nil) || !yield(item, nil) {
					return
				}
			}
		}}
		g := newGate(t, ratelimited.Config{Slots: 1})
		i := 0
		for item, err := range wrap(t, f, g).GenerateContent(t.Context(), hello(), true) {
			if err != nil || item != want[i] {
				t.Fatalf("item %d is %p (%v), want %p", i, item, err, want[i])
			}
			order = append(order, fmt.Sprint("take ", i))
			i++
		}
		if got, want := strings.Join(order, ", "), "make 0, take 0, make 1, take 1, make 2, take 2, make 3, take 3"; got != want {
			t.Errorf("items were made and taken in the order %s, want %s", got, want)
		}
	})
}

// A sequence is cold: unranged it holds nothing, and each range is one call with
// a state of its own, even at the same time.
func TestSequenceIsColdAndEachRangeIsACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 2, Headroom: 1, Profile: window(1000)})
		f := answers(time.Second, part("a"), final(10, 5))
		l := &ledger{}
		seq := wrap(t, f, g, ratelimited.WithBudgets(l)).GenerateContent(t.Context(), hello(), true)
		time.Sleep(time.Second)
		if s := g.Stats(); f.count() != 0 || s.Running != 0 || len(l.reserved) != 0 || g.Alive() != 0 {
			t.Fatal("a sequence that was not ranged has made a call or holds something")
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if items, err := collect(seq); err != nil || len(items) != 2 {
					t.Errorf("got %d items and %v, want 2", len(items), err)
				}
			})
		}
		wg.Wait()
		if f.count() != 2 || f.peakCount() != 2 || len(l.ids) != 2 {
			t.Errorf("%d calls, %d at once, %d ids; want 2 of each", f.count(), f.peakCount(), len(l.ids))
		}
		l.expect(t, 0, 30)
		if n := booked(t, g, "tokens"); n != 20 {
			t.Errorf("the gate counts %d tokens, want 20", n)
		}
		if _, err := collect(seq); err != nil || f.count() != 3 {
			t.Errorf("a third range: %v, %d calls; want 3", err, f.count())
		}
		mustBeIdle(t, g)
	})
}

// A retry asks the model for a new sequence with the same request, in the same
// mode, and never ranges the old one again (the fake panics if it is).
func TestRetryAsksForANewSequence(t *testing.T) {
	for _, stream := range []bool{true, false} {
		bubbleRun(t, "stream", stream, func(t *testing.T) {
			f := refusesFirst(2, throttled())
			var streams []bool
			g := newGate(t, ratelimited.Config{Slots: 1})
			req := hello()
			llm := wrap(t, modeNoter{f, &streams}, g)
			items, err := collect(llm.GenerateContent(t.Context(), req, stream))
			if err != nil || len(items) != 1 {
				t.Fatalf("got %d items and %v, want one", len(items), err)
			}
			if f.count() != 3 {
				t.Fatalf("%d calls, want 3", f.count())
			}
			for i, r := range f.requests {
				if r != req || streams[i] != stream {
					t.Errorf("attempt %d was made with another request or mode", i+1)
				}
			}
		})
	}
}

// modeNoter notes the mode of every call.
type modeNoter struct {
	*fakeLLM
	streams *[]bool
}

func (m modeNoter) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	*m.streams = append(*m.streams, stream)
	return m.fakeLLM.GenerateContent(ctx, req, stream)
}

// Whatever the model yields as an error before the first item reaches the
// consumer as it is once it is not worth another attempt.
func TestErrorsPassUntouched(t *testing.T) {
	for _, want := range []error{
		badRequest(), errBroken, fmt.Errorf("failed to call model: %w", badRequest()),
		genai.APIError{Code: 500}, genai.APIError{Code: 402}, &genai.APIError{Code: 404},
	} {
		bubbleRun(t, "error", want, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Retry: retry.Policy{MaxAttempts: 1}})
			item := &LLMResponse{ErrorMessage: "beside the error"}
			f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(item, want) }}
			for got, err := range wrap(t, f, g).GenerateContent(t.Context(), hello(), false) {
				if got != item || fmt.Sprintf("%#v", err) != fmt.Sprintf("%#v", want) {
					t.Errorf("got %v and %#v, want %v and %#v", got, err, item, want)
				}
			}
			mustBeIdle(t, g)
		})
	}
}

// A model that keeps what it was to yield to, and calls it when the call is over,
// is told to stop, and does nothing to the calls after it.
func TestYieldingIntoACallThatIsOverDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
		var kept yields
		llm := wrap(t, &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			if kept != nil && kept(final(900, 900), nil) {
				t.Error("a call that is over took an item")
			}
			yield(final(3, 4), nil)
			kept = yield
		}}, g)
		for i := range 10 {
			items, err := collect(llm.GenerateContent(t.Context(), hello(), true))
			if err != nil || len(items) != 1 {
				t.Fatalf("call %d: %d items, %v", i, len(items), err)
			}
		}
		if kept(final(900, 900), nil) {
			t.Error("a call that is over took an item")
		}
		if n := booked(t, g, "tokens"); n != 30 {
			t.Errorf("%d tokens on the books, want 3 for each call", n)
		}
		mustBeIdle(t, g)
	})
}
