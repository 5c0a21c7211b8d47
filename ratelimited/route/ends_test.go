package route_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// sides runs a test against one wrapped model, and against a pool that has that
// model and another one which must not be needed. Both gates have one slot, and
// nobody waits.
func sides(t *testing.T, model func() *fakeLLM, test func(t *testing.T, llm LLM, f *fakeLLM, idle func())) {
	t.Helper()
	cfg := ratelimited.Config{Slots: 1, MaxWait: ptr(time.Duration(0)), Profile: perMinute}
	t.Run("wrapped model", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f, g := model(), newGate(t, cfg)
			test(t, wrap(t, f, g), f, func() {
				t.Helper()
				synctest.Wait()
				if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
					t.Errorf("%d slots in use, %d running, %d waiting; want none", s.SlotsInUse, s.Running, s.Waiting)
				}
			})
		})
	})
	t.Run("pool", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f, other := model(), answers(0)
			p := newPool(t, route.Config{},
				way{Name: "a", Model: wrap(t, f, newGate(t, cfg))}, way{Name: "b", Model: wrap(t, other, newGate(t, cfg)), Tier: 1})
			test(t, p, f, func() {
				t.Helper()
				mustBeIdle(t, p)
				if other.count() != 0 {
					t.Errorf("%d calls went to another route", other.count())
				}
			})
		})
	})
}

// Agent frameworks run tools and sub-agents inside the yield of a call's last item,
// and these call the same model: at a limit of 1 as well.
func TestCallsInsideTheLastItem(t *testing.T) {
	sides(t, func() *fakeLLM { return answers(0) }, func(t *testing.T, llm LLM, f *fakeLLM, idle func()) {
		var depth func(n int)
		depth = func(n int) {
			for item, err := range llm.GenerateContent(t.Context(), hello(), true) {
				if err != nil {
					t.Errorf("level %d: %v", n, err)
				}
				if n > 1 && !item.Partial {
					depth(n - 1)
				}
			}
		}
		depth(4)
		if f.count() != 4 {
			t.Errorf("%d calls reached the model, want 4", f.count())
		}
		idle()
	})
}

func TestNothingHappensUntilASequenceIsRanged(t *testing.T) {
	sides(t, func() *fakeLLM { return answers(0) }, func(t *testing.T, llm LLM, f *fakeLLM, idle func()) {
		seq := llm.GenerateContent(t.Context(), hello(), true)
		synctest.Wait()
		if idle(); f.count() != 0 {
			t.Fatal("it was sent")
		}
		for n := range 2 {
			if items, err := collect(seq); err != nil || len(items) != 2 || f.count() != n+1 {
				t.Errorf("range %d: %d items, %v; %d calls", n, len(items), err, f.count())
			}
		}
		idle()
	})
}

func TestTheConsumersBreakEndsTheCall(t *testing.T) {
	for at := range 2 {
		// The model ignores that nobody wants more.
		model := func() *fakeLLM {
			return &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
				yield(part("a"), nil)
				yield(final(1, 1), nil)
				yield(nil, throttled())
				yield(nil, errBroken)
			}}
		}
		t.Run(fmt.Sprint("at item ", at), func(t *testing.T) {
			sides(t, model, func(t *testing.T, llm LLM, f *fakeLLM, idle func()) {
				n := 0
				for range llm.GenerateContent(t.Context(), hello(), true) {
					if n == at {
						break
					}
					n++
				}
				if n != at || f.count() != 1 {
					t.Errorf("%d items after the break, %d calls", n-at, f.count())
				}
				idle()
			})
		})
	}
}

func TestAPanicIsTheCallersAndLeavesNothingBehind(t *testing.T) {
	for name, model := range map[string]func() *fakeLLM{
		"in the model": func() *fakeLLM {
			return &fakeLLM{play: func(context.Context, int, yields) { panic(errBroken) }}
		},
		"in the model, after an item": func() *fakeLLM {
			return &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(part("a"), nil); panic(errBroken) }}
		},
		"in the consumer": func() *fakeLLM { return answers(0) },
	} {
		t.Run(name, func(t *testing.T) {
			sides(t, model, func(t *testing.T, llm LLM, _ *fakeLLM, idle func()) {
				func() {
					defer func() {
						if p := recover(); p != errBroken {
							t.Errorf("recovered %v", p)
						}
					}()
					for range llm.GenerateContent(t.Context(), hello(), true) {
						if name == "in the consumer" {
							panic(errBroken)
						}
					}
				}()
				idle()
			})
		})
	}
}

// frail is a model whose forecast panics.
type frail struct {
	LLM
	panics bool
}

func (f *frail) ExpectedWait(context.Context, *LLMRequest) time.Duration {
	if f.panics {
		panic(errBroken)
	}
	return 0
}

func TestAForecastThatPanicsLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, refused := range []bool{false, true} {
			a := &fakeLLM{}
			inner := via(t, "b", answers(0))
			b := &frail{LLM: inner.Model, panics: !refused}
			a.play = func(_ context.Context, n int, yield yields) {
				if b.panics = refused && n == 1; b.panics {
					yield(nil, overloaded())
					return
				}
				yield(final(1, 1), nil)
			}
			p := newPool(t, route.Config{}, via(t, "a", a), way{Name: "b", Model: b, Gate: gateOf(inner)})
			ga := p.Gates()[0]
			if !refused { // so that both are asked
				release := occupy(t, ga)
				time.AfterFunc(time.Second, release)
			}
			func() {
				defer func() {
					if got := recover(); got != errBroken {
						t.Errorf("recovered %v", got)
					}
				}()
				_ = call(t.Context(), p)
			}()
			time.Sleep(2 * time.Second)
			mustBeIdle(t, p)
			b.panics = false
			if err := call(t.Context(), p); err != nil {
				t.Errorf("the next call: %v", err)
			}
		}
	})
}

// asked is a model that tells when its forecast is asked for.
type asked struct {
	LLM
	tell func()
}

func (a *asked) ExpectedWait(context.Context, *LLMRequest) time.Duration {
	a.tell()
	return 0
}

// A call that chose a route to try it, and finds that another one tries it by now, takes
// the next.
func TestACallThatComesTooLateToTryARouteTakesAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			if n == 1 {
				yield(nil, perDay())
				return
			}
			_ = wait(ctx, 20*time.Second)
			yield(final(1, 1), nil)
		}}
		b := answers(0)
		inner := via(t, "a", a)
		first := &asked{LLM: inner.Model, tell: func() {}}
		p := newPool(t, route.Config{}, way{Name: "a", Model: first, Gate: gateOf(inner)}, at(1, via(t, "b", b)))
		if err := call(t.Context(), p); err != nil { // a is left out by that
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		var other sync.WaitGroup
		first.tell = func() {
			first.tell = func() {}
			other.Go(func() {
				if err := call(t.Context(), p); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		items, err := collect(p.GenerateContent(t.Context(), hello(), true))
		if err != nil || len(items) == 0 || a.count() != 2 || b.count() != 2 {
			t.Errorf("%d items, %v; a had %d calls and b %d, want two each", len(items), err, a.count(), b.count())
		}
		other.Wait()
		mustBeIdle(t, p)
	})
}

func TestACancelledContextEndsTheCallAndSendsItNowhereElse(t *testing.T) {
	why := errors.New("the user went away")
	slow := func() *fakeLLM { return answers(time.Minute) }
	t.Run("before", func(t *testing.T) {
		sides(t, slow, func(t *testing.T, llm LLM, f *fakeLLM, idle func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			if err := call(ctx, llm); !errors.Is(err, context.Canceled) || !errors.Is(err, why) || f.count() != 0 {
				t.Errorf("got %v after %d calls, want the cancellation and its cause, and none", err, f.count())
			}
			idle()
		})
	})
	t.Run("while it is served", func(t *testing.T) {
		sides(t, slow, func(t *testing.T, llm LLM, f *fakeLLM, idle func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(why) })
			start := time.Now()
			if err := call(ctx, llm); !errors.Is(err, context.Canceled) || time.Since(start) != time.Second || f.count() != 1 {
				t.Errorf("got %v after %v and %d calls", err, time.Since(start), f.count())
			}
			idle()
		})
	})
	t.Run("with a cause that says throttled", func(t *testing.T) {
		model := func() *fakeLLM { // it gives the cause, as an HTTP client does
			return &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
				_ = wait(ctx, time.Minute)
				yield(nil, context.Cause(ctx))
			}}
		}
		sides(t, model, func(t *testing.T, llm LLM, f *fakeLLM, idle func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(throttled()) })
			if err := call(ctx, llm); err == nil || f.count() != 1 {
				t.Errorf("got %v after %d calls", err, f.count())
			}
			idle()
		})
	})
}

func TestAForgottenPullEndsWithItsContext(t *testing.T) {
	sides(t, func() *fakeLLM { return answers(0) }, func(t *testing.T, llm LLM, _ *fakeLLM, idle func()) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		next, stop := iter.Pull2(llm.GenerateContent(ctx, hello(), true))
		defer stop() // so that the test leaves no goroutine; too late for the call
		if item, err, ok := next(); item == nil || err != nil || !ok {
			t.Fatalf("pulled %v, %v, %v", item, err, ok)
		}
		if err := call(t.Context(), llm); err == nil {
			if _, single := llm.(*wrapped); single {
				t.Error("the only slot was given twice")
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := call(t.Context(), llm); err != nil {
			t.Errorf("after the context's end: %v", err)
		}
		if _, single := llm.(*wrapped); single {
			idle()
		}
	})
}

// A model that goes on yielding after it was told that its refusal sends the call
// elsewhere is not heard, neither then nor later; nor is one that goes on when the
// consumer has stopped. Here no gate stands between it and the pool.
func TestARouteThatWasLeftIsNotHeardAnyMore(t *testing.T) {
	bare := func(t *testing.T, name string, tier int, f *fakeLLM) way {
		return way{Name: name, Model: f, Gate: newGate(t, ratelimited.Config{Name: name, Slots: 1}), Tier: tier}
	}
	bubble(t, func(t *testing.T) {
		var kept yields
		a := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			kept = yield
			if yield(nil, overloaded()) || yield(part("late"), nil) || yield(nil, errBroken) {
				t.Error("it was told to go on")
			}
		}}
		b := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			if kept(part("later"), nil) {
				t.Error("it was told to go on while another route serves the call")
			}
			yield(final(1, 1), nil)
		}}
		p := newPool(t, route.Config{}, bare(t, "a", 0, a), bare(t, "b", 1, b))
		items, err := collect(p.GenerateContent(t.Context(), hello(), true))
		if err != nil || len(items) != 1 || items[0].Partial {
			t.Errorf("got %d items and %v, want b's only", len(items), err)
		}
		if kept(part("latest"), nil) {
			t.Error("it was told to go on after the call was over")
		}

		deaf := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			kept = yield
			if yield(part("a"), nil) || yield(final(1, 1), nil) {
				t.Error("it was told to go on after the consumer has stopped")
			}
		}}
		for range newPool(t, route.Config{}, bare(t, "c", 0, deaf)).GenerateContent(t.Context(), hello(), true) {
			break
		}
		if kept(part("latest"), nil) {
			t.Error("it was told to go on after the call was over")
		}
		fails := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { kept = yield }}
		for range newPool(t, route.Config{}, bare(t, "d", 0, fails)).GenerateContent(t.Context(), hello(), true) {
		}
		if kept(part("latest"), nil) {
			t.Error("a call that ended with nothing goes on after its end")
		}
	})
}

// hasty is a model that has another call made and does not wait for it.
type hasty struct {
	*wrapped
	ended chan error
}

func (h *hasty) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		go func() {
			_, err := collect(h.wrapped.GenerateContent(ctx, req, stream))
			h.ended <- err
		}()
		synctest.Wait()
		yield(nil, overloaded())
	}
}

// What a model has left behind in line when its call goes on leaves as well.
func TestWhatACallLeavesBehindInLineLeavesToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := via(t, "a", answers(0))
		h := &hasty{inner.Model.(*wrapped), make(chan error, 1)}
		// The other route's quota is used up: it is left out, and lines are told of that.
		b := refuses(perDay(), 0, nil)
		gb := newGate(t, ratelimited.Config{Name: "b", Slots: 1})
		p := newPool(t, route.Config{Spill: time.Hour}, way{Name: "a", Model: h}, way{Name: "b", Model: wrap(t, b, gb), Tier: 1})
		release := occupy(t, h.Gate())
		if err := call(t.Context(), p); err == nil {
			t.Error("an answer, though no route serves")
		}
		if err := <-h.ended; !errors.Is(err, ratelimited.ErrDiverted) {
			t.Errorf("what was left behind got %v, want to go elsewhere", err)
		}
		release()
		mustBeIdle(t, p)
	})
}

// However many routes a call goes to, it has at most two turns at each.
func TestACallDoesNotGoRoundForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var models []*fakeLLM
		var ways []way
		for i := range 5 {
			f := refuses(throttled(retryInfo(time.Duration(i+1)*time.Second)), 0, nil)
			models = append(models, f)
			ways = append(ways, via(t, fmt.Sprint(i), f))
		}
		p := newPool(t, route.Config{}, ways...)
		if err := call(t.Context(), p); err == nil {
			t.Fatal("an answer, though all refuse")
		}
		for i, f := range models {
			if n := f.count(); n < 1 || n > 6 { // three attempts of its gate, twice
				t.Errorf("route %d was asked %d times", i, n)
			}
		}
		mustBeIdle(t, p)
	})
}
