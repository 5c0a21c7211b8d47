package ratelimited_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// crossing is a diversion that writes down what it is asked.
type crossing struct {
	leaves func(asked int) bool // nil stays

	mu      sync.Mutex
	changed chan struct{}
	errs    []error
	waits   []time.Duration
}

func newCrossing(leaves func(asked int) bool) *crossing {
	return &crossing{leaves: leaves, changed: make(chan struct{})}
}

func (c *crossing) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *crossing) Leaves(err error, wait time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs, c.waits = append(c.errs, err), append(c.waits, wait)
	return c.leaves != nil && c.leaves(len(c.errs))
}

// change has calls in line ask.
func (c *crossing) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *crossing) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.errs)
}

func always(int) bool      { return true }
func onlyTwice(n int) bool { return n == 2 }

// A refused call that leaves is over, as one that is never retried.
func TestARefusedCallMayGoElsewhereInsteadOfWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		refusal  error
		leaves   func(int) bool
		attempts int
		atLeast  time.Duration // the wait that it is told
	}{
		"throttled, leaves at once":       {throttled(retryInfo("20s")), always, 1, 20 * time.Second},
		"throttled, leaves later":         {throttled(retryInfo("20s")), onlyTwice, 2, 20 * time.Second},
		"overloaded, leaves at once":      {overloaded(), always, 1, 0},
		"not sent, leaves at once":        {notSent(), always, 1, 0},
		"throttled without a hint, stays": {throttled(), nil, 3, 0},
	} {
		bubbleRun(t, "case", name, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
			f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(nil, c.refusal) }}
			l := &ledger{}
			d := newCrossing(c.leaves)
			err := call(ratelimited.WithDiversion(t.Context(), d), wrap(t, f, g, ratelimited.WithBudgets(l)), hello())
			if err == nil || errors.Is(err, ratelimited.ErrWait) || err.Error() != c.refusal.Error() {
				t.Errorf("got %v, want the provider's refusal", err)
			}
			if f.count() != c.attempts {
				t.Errorf("sent %d times, want %d", f.count(), c.attempts)
			}
			want := min(c.attempts, 2) // after the last attempt there is nothing to decide
			if d.asked() != want {
				t.Errorf("asked %d times, want %d", d.asked(), want)
			}
			for i, err := range d.errs {
				if err == nil || d.waits[i] < c.atLeast || d.waits[i] > c.atLeast+c.atLeast/4+time.Second {
					t.Errorf("asked with %v and a wait of %v, want the refusal and about %v", err, d.waits[i], c.atLeast)
				}
			}
			l.expect(t, 0, 0)
			mustBeIdle(t, g)
		})
	}
}

// To leave takes nothing of what retries of the others are allowed.
func TestACallThatLeavesIsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 4})
		f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(nil, notSent()) }}
		llm := wrap(t, f, g)
		ctx := ratelimited.WithDiversion(t.Context(), newCrossing(always))
		for range 100 {
			_ = call(ctx, llm, hello())
		}
		if f.count() != 100 {
			t.Fatalf("sent %d times, want 100: each leaves at once", f.count())
		}
		_ = call(t.Context(), llm, hello())
		if f.count() != 103 {
			t.Errorf("a call that stays is sent %d times, want 3", f.count()-100)
		}
		mustBeIdle(t, g)
	})
}

// A call in line that leaves gives its place to the next one, and everything back.
func TestACallMayLeaveTheLine(t *testing.T) {
	for _, crowd := range []bool{false, true} { // others keep the gate's lock, so that arrivals are posted
		bubbleRun(t, "crowd", crowd, func(t *testing.T) {
			r := prometheus.NewRegistry()
			g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: tokens(1000), Registerer: r})
			holder, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(1)})
			if err != nil {
				t.Fatal(err)
			}
			f := answers(0, final(1, 1))
			l := &ledger{}
			d := newCrossing(onlyTwice)
			done := make(chan error, 1)
			release, llm := func() {}, wrap(t, f, g, ratelimited.WithBudgets(l))
			if crowd {
				release, llm = g.Hold(), wrap(t, f, g) // to reserve takes the lock
			}
			go func() { done <- call(ratelimited.WithDiversion(t.Context(), d), llm, hello()) }()
			synctest.Wait()
			release()
			for i := range 2 {
				select {
				case err := <-done:
					t.Fatalf("it was over before it left: %v", err)
				default:
				}
				if d.asked() != i {
					t.Fatalf("asked %d times after %d changes", d.asked(), i)
				}
				time.Sleep(time.Second)
				d.change()
				synctest.Wait()
			}
			err = <-done
			w, ok := errors.AsType[*ratelimited.WaitError](err)
			if !ok || !errors.Is(err, ratelimited.ErrDiverted) || !errors.Is(err, ratelimited.ErrWait) || w.Waited != 2*time.Second {
				t.Errorf("got %v, want ErrDiverted after 2s", err)
			}
			if d.errs[0] != nil || d.waits[0] != 0 {
				t.Errorf("asked with %v and a wait of %v; nothing is refused or shut", d.errs[0], d.waits[0])
			}
			if f.count() != 0 {
				t.Error("it was sent")
			}
			if n := gather(t, r)["refusals_total{class=normal,reason=diverted}"]; n != 1 {
				t.Errorf("counted %v times as diverted, want once", n)
			}
			l.expect(t, 0, 0)
			holder.Release()
			mustBeIdle(t, g)
		})
	}
}

func TestACallInLineIsToldHowLongAllAreShutOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 4, Profile: gemini})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			if n == 1 {
				yield(nil, throttled(retryInfo("30s"), quotaFailure(inputPerMinute)))
				return
			}
			yield(final(1, 1), nil)
		}}
		llm := wrap(t, f, g)
		var all sync.WaitGroup
		all.Go(func() { _ = call(t.Context(), llm, hello()) })
		synctest.Wait()
		d := newCrossing(nil)
		all.Go(func() {
			if err := call(ratelimited.WithDiversion(t.Context(), d), llm, hello()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Second)
		d.change()
		all.Wait()
		if len(d.waits) != 1 || d.waits[0] < 20*time.Second || d.waits[0] > 23*time.Second {
			t.Errorf("told of %v, want the 20s that are left of a hint of 30s", d.waits)
		}
		mustBeIdle(t, g)
	})
}

// What panics in deciding is the caller's to meet, and leaves nothing in line.
func TestADiversionThatPanicsLeavesNothingBehind(t *testing.T) {
	for _, refused := range []bool{false, true} {
		bubbleRun(t, "refused", refused, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(nil, throttled()) }}
			l := &ledger{}
			llm := wrap(t, f, g, ratelimited.WithBudgets(l))
			d := newCrossing(func(int) bool { panic("mine") })
			release := func() {}
			if !refused {
				p, err := g.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				release = p.Release
			}
			met := make(chan any, 1)
			go func() {
				defer func() { met <- recover() }()
				_ = call(ratelimited.WithDiversion(t.Context(), d), llm, hello())
			}()
			synctest.Wait()
			if !refused {
				d.change()
			}
			if got := <-met; got != "mine" {
				t.Errorf("recovered %v", got)
			}
			release()
			l.expect(t, 0, 0)
			mustBeIdle(t, g)
		})
	}
}

// A call that is granted while it decides to leave is sent, or its grant is handed
// on: it never does both, and no slot is lost.
func TestLeavingNeverLosesAGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1_000_000)})
		f := answers(0, final(1, 1))
		llm := wrap(t, f, g)
		served := 0
		for i := range 200 {
			holder, err := g.Acquire(t.Context(), ratelimited.Call{})
			if err != nil {
				t.Fatal(err)
			}
			d := newCrossing(always)
			var mu sync.Mutex
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					err := call(ratelimited.WithDiversion(t.Context(), d), llm, hello())
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						served++
					case !errors.Is(err, ratelimited.ErrDiverted):
						t.Errorf("round %d: %v", i, err)
					}
				})
			}
			synctest.Wait()
			all.Go(holder.Release)
			all.Go(d.change)
			all.Wait()
			mustBeIdle(t, g)
		}
		if f.count() != served {
			t.Errorf("%d calls were sent, %d served", f.count(), served)
		}
	})
}

// The wait that a model forecasts is the one that a call is denied with.
func TestAModelForecastsTheWaitOfItsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: tokens(600)})
		f := answers(0, final(300, 1)) // uses three times the estimate
		metered := func(in int64) *ratelimited.RateLimitedModel[*LLMRequest, *LLMResponse] {
			llm, err := ratelimited.NewMetered(f, g, fixedMeter{in, 0})
			if err != nil {
				t.Fatal(err)
			}
			return llm
		}
		llm := metered(100)
		if w := llm.ExpectedWait(t.Context(), hello()); w != 0 {
			t.Errorf("an empty gate would have a call wait %v", w)
		}
		ctx := ratelimited.WithAgent(t.Context(), "writer")
		if err := call(ctx, llm, hello()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(300)}); err != nil {
			t.Fatal(err)
		}
		// The bucket of 600, at 10 a second, is empty. A call of this agent takes 300.
		for _, c := range []struct {
			ctx  context.Context
			want time.Duration
		}{{t.Context(), 10 * time.Second}, {ctx, 30 * time.Second}} {
			w := llm.ExpectedWait(c.ctx, hello())
			err := call(ratelimited.WithMaxWait(c.ctx, 0), llm, hello())
			denied, ok := errors.AsType[*ratelimited.WaitError](err)
			if w != c.want || !ok || denied.Expected != w {
				t.Errorf("forecast %v, denied with %v; want %v", w, err, c.want)
			}
		}
		if n := level(t, g, "tokens"); n != 0 {
			t.Errorf("forecasts have changed the level to %d", n)
		}
	})
}

// What can never fit is not waited for; but what was learned is a forecast, and
// refuses nobody.
func TestAModelForecastsThatACallNeverFits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: window(600)})
		f := answers(0, final(300, 1))
		for _, c := range []struct {
			estimate int64
			want     time.Duration
		}{{100, 0}, {600, 0}, {601, math.MaxInt64}, {250, 0}} { // three times 250 is more than 600
			llm, err := ratelimited.NewMetered(f, g, fixedMeter{c.estimate, 0})
			if err != nil {
				t.Fatal(err)
			}
			if w := llm.ExpectedWait(t.Context(), hello()); w != c.want {
				t.Errorf("a call of %d in 600 would wait %v, want %v", c.estimate, w, c.want)
			}
			if c.estimate == 100 { // it uses three times that
				if err := call(t.Context(), llm, hello()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
			}
		}
		mustBeIdle(t, g)
	})
}

func TestAClosedGateForecastsThatACallNeverStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		llm, err := ratelimited.New(answers(0, final(1, 1)), g)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := llm.ExpectedWait(t.Context(), hello()); w != math.MaxInt64 {
			t.Errorf("a call would wait %v at a closed gate", w)
		}
	})
}

func TestAForecastAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g := newGate(t, ratelimited.Config{Slots: 2, Profile: gemini})
	llm, err := ratelimited.New(answers(0, final(1, 1)), g)
	if err != nil {
		t.Fatal(err)
	}
	ctx, req := ratelimited.WithAgent(t.Context(), "writer"), hello()
	for name, forecast := range map[string]func() time.Duration{
		"of a model": func() time.Duration { return llm.ExpectedWait(ctx, req) },
		"of a gate":  func() time.Duration { return g.ExpectedWait(ratelimited.Call{Usage: usage.Usage{Input: 5}}) },
	} {
		if n := testing.AllocsPerRun(100, func() { _ = forecast() }); n != 0 {
			t.Errorf("a forecast %s allocates %v times", name, n)
		}
	}
}

func TestTheBoundOnWaitsCanBeAskedFor(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1, MaxWait: ptr(time.Duration(0))})
	if d, ok := g.MaxWait(); d != 0 || !ok {
		t.Errorf("the gate's bound is %v, %v; want 0", d, ok)
	}
	if d, ok := newGate(t, ratelimited.Config{Slots: 1}).MaxWait(); ok {
		t.Errorf("a gate without a bound says %v", d)
	}
	if d, ok := ratelimited.MaxWait(ratelimited.WithMaxWait(t.Context(), time.Second)); d != time.Second || !ok {
		t.Errorf("the call's bound is %v, %v; want 1s", d, ok)
	}
	if d, ok := ratelimited.MaxWait(t.Context()); ok {
		t.Errorf("a call without a bound says %v", d)
	}
}

// Whoever chooses among wrapped models is known by its gates: none of them is put
// around it again, and retries are left to them.
func TestWrappersKnowEachOtherByTheirGates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner, outer := newGate(t, ratelimited.Config{Slots: 4}), newGate(t, ratelimited.Config{Slots: 4, Name: "outer"})
		f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(nil, throttled()) }}
		between := &chooser{wrap(t, f, inner), []*ratelimited.Gate{inner}}
		if _, err := ratelimited.New[*LLMRequest, *LLMResponse](between, inner); err == nil {
			t.Error("a gate is put around a model that goes through it")
		}
		llm, err := ratelimited.New[*LLMRequest, *LLMResponse](between, outer)
		if err != nil {
			t.Fatal(err)
		}
		if all := llm.Gates(); len(all) != 2 || all[0] != outer || all[1] != inner {
			t.Errorf("%d gates, want the outer and the inner one", len(all))
		}
		_ = call(t.Context(), llm, hello())
		if f.count() != 3 {
			t.Errorf("sent %d times, want the 3 of one layer", f.count())
		}
	})
}

// chooser stands for a model that sends its calls through gates by itself.
type chooser struct {
	LLM
	gates []*ratelimited.Gate
}

func (c *chooser) Gates() []*ratelimited.Gate { return c.gates }
