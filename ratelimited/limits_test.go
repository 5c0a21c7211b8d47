package ratelimited_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

// line starts n calls that hold their slots until release, one after another so
// that their order is known, and returns how many were admitted so far.
func line(t *testing.T, ctx context.Context, g *ratelimited.Gate, n int, call ratelimited.Call) (admitted func() int, release func(n int), errs chan error) {
	var mu sync.Mutex
	in := 0
	out := make(chan struct{})
	errs = make(chan error, n)
	for range n {
		go func() {
			p, err := g.Acquire(ctx, call)
			if err != nil {
				errs <- err
				return
			}
			mu.Lock()
			in++
			mu.Unlock()
			<-out
			p.End(call.Usage)
			errs <- nil
		}()
		synctest.Wait()
	}
	return func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return in
		}, func(n int) {
			for range n {
				out <- struct{}{}
			}
		}, errs
}

func TestSlotsChangeWhileCallsWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 2})
		admitted, release, errs := line(t, t.Context(), g, 10, ratelimited.Call{})
		expect := func(want int) {
			t.Helper()
			if n := admitted(); n != want {
				t.Fatalf("%d calls were admitted, want %d", n, want)
			}
		}
		set := func(n int64) {
			t.Helper()
			if err := g.SetSlots(n); err != nil {
				t.Fatal(err)
			}
		}
		expect(2)
		set(5)
		expect(5)
		set(1)
		release(4) // below what is in use: nobody is cut, and nobody new comes in
		expect(5)
		release(1)
		expect(6)
		set(10)
		expect(10)
		release(5)
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		mustBeIdle(t, g)
	})
}

// A call that is wider than the slots, also after they were lowered, runs alone
// and starves nobody.
func TestCallWiderThanTheGateRunsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 8})
		small, releaseSmall, smallErrs := line(t, t.Context(), g, 8, ratelimited.Call{})
		wide, releaseWide, wideErrs := line(t, t.Context(), g, 1, ratelimited.Call{Slots: 6})
		last, releaseLast, lastErrs := line(t, t.Context(), g, 1, ratelimited.Call{})
		if err := g.SetSlots(4); err != nil {
			t.Fatal(err)
		}
		releaseSmall(7)
		if n := small() + wide() + last(); n != 8 {
			t.Errorf("%d calls were admitted, want the first 8: one of them still runs", n)
		}
		releaseSmall(1)
		if wide() != 1 || last() != 0 || g.Stats().SlotsInUse != 6 {
			t.Errorf("%d wide and %d small calls, %d slots; want the wide one alone with 6", wide(), last(), g.Stats().SlotsInUse)
		}
		releaseWide(1)
		if last() != 1 {
			t.Error("the call behind the wide one was not admitted")
		}
		releaseLast(1)
		for range 8 {
			<-smallErrs
		}
		<-wideErrs
		<-lastErrs
		mustBeIdle(t, g)
	})
}

func TestLimitChangesWhileCallsWait(t *testing.T) {
	start := func(t *testing.T) (g *ratelimited.Gate, errs chan error) {
		g = newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: window(100)})
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
		if err != nil {
			t.Fatal(err)
		}
		p.End(input(100))
		errs = make(chan error, 1)
		go func() {
			p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(60)})
			p.Release()
			errs <- err
		}()
		synctest.Wait()
		return g, errs
	}
	set := func(t *testing.T, g *ratelimited.Gate, limit int64) {
		t.Helper()
		if err := g.SetLimit("tokens", limit); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("up: it starts at once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g, errs := start(t)
			set(t, g, 159)
			synctest.Wait()
			if g.Stats().Waiting != 1 {
				t.Error("one unit too few, and the call was admitted")
			}
			before := time.Now()
			set(t, g, 160)
			if err := <-errs; err != nil || time.Since(before) != 0 {
				t.Errorf("admitted after %v (%v), want at once", time.Since(before), err)
			}
			mustBeIdle(t, g)
		})
	})
	t.Run("down, and it still fits: it waits for the window", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g, errs := start(t)
			before := time.Now()
			set(t, g, 60)
			if err := <-errs; err != nil || time.Since(before) != empties {
				t.Errorf("admitted after %v (%v), want %v", time.Since(before), err, empties)
			}
			mustBeIdle(t, g)
		})
	})
	t.Run("down, and it can never fit: it fails at once", func(t *testing.T) {
		for _, limit := range []int64{59, 0} {
			bubbleRun(t, "limit", limit, func(t *testing.T) {
				g, errs := start(t)
				before := time.Now()
				set(t, g, limit)
				mustNeverFit(t, <-errs, "tokens", 60, limit)
				if d := time.Since(before); d != 0 {
					t.Errorf("failed after %v, want at once", d)
				}
				mustBeIdle(t, g)
				_, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(60)})
				mustNeverFit(t, err, "tokens", 60, limit)
				p, err := g.Acquire(t.Context(), ratelimited.Call{}) // takes nothing of it
				if err != nil {
					t.Errorf("a call that needs nothing of the limit: %v", err)
				}
				p.Release()
			})
		}
	})
}

// Where the provider checks a limit in short bursts besides its window, no burst
// holds more than its part, from the first one on, and little of it is lost.
func TestBurstBindsBesidesTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1000, Headroom: 1, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{
			{Name: "requests", Limit: 600, Burst: time.Second, Count: ratelimited.OneRequest},
		}}})
		const calls = 120
		start := time.Now()
		granted := make(chan time.Duration, calls)
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				p, err := g.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Error(err)
				}
				granted <- time.Since(start)
				p.End(input(1))
			})
		}
		wg.Wait()
		close(granted)
		times := slices.Sorted(func(yield func(time.Duration) bool) {
			for d := range granted {
				if !yield(d) {
					return
				}
			}
		})
		for i := 10; i < calls; i++ {
			if in := times[i] - times[i-10]; in < time.Second {
				t.Fatalf("11 calls within %v, from %v on", in, times[i-10])
			}
		}
		if last := times[calls-1]; last > calls*100*time.Millisecond*100/96 {
			t.Errorf("the last of %d calls started after %v; at 96 %% of the rate it is %v", calls, last, calls*100*time.Millisecond*100/96)
		}
		mustBeIdle(t, g)
	})
}
