package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// tokens is a profile with one bucket of so many input tokens a minute.
func tokens(limit int64) ratelimited.Profile {
	return ratelimited.Profile{Name: "test", Dimensions: []ratelimited.Dimension{{
		Name: "tokens", Limit: limit, Shape: ratelimited.Bucket, Count: ratelimited.InputTokens,
	}}}
}

// window is a profile with a sliding window of so many input tokens a minute.
func window(limit int64) ratelimited.Profile {
	return ratelimited.Profile{Name: "test", Dimensions: []ratelimited.Dimension{{
		Name: "tokens", Limit: limit, Count: ratelimited.InputTokens,
	}}}
}

func input(n int64) usage.Usage { return usage.Usage{Input: n} }

// When the large call at the head of the line gives up, the small one behind it
// starts, without any other event.
func TestCancelledHeadLetsTheNextInAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: tokens(10)})
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(5)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Acquire(ctx, ratelimited.Call{Usage: input(8)}); !errors.Is(err, context.Canceled) {
				t.Errorf("the head got %v, want the cancellation", err)
			}
		})
		synctest.Wait()
		start := time.Now()
		wg.Go(func() {
			p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(3)})
			if err != nil {
				t.Error(err)
			}
			p.Release()
		})
		synctest.Wait()
		if n := g.Stats().Waiting; n != 2 {
			t.Fatalf("%d calls wait, want 2: the small one must not pass the head's claim", n)
		}
		cancel()
		wg.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("the small call waited %v, want nothing", d)
		}
		p.Release()
		mustBeIdle(t, g)
	})
}

// A context that has ended is never admitted, however much is free: the model
// is not called and nothing is reserved.
func TestDeadContextIsNeverAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Profile: tokens(100)})
		l := &ledger{}
		f := answers(0, final(1, 1))
		llm := wrap(t, f, g, ratelimited.WithBudgets(l))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the user went away")
		cancel(why)
		for _, err := range []error{
			call(ctx, llm, hello()),
			func() error { _, err := g.Acquire(ctx, ratelimited.Call{}); return err }(),
		} {
			if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || !errors.Is(err, ratelimited.ErrWait) {
				t.Errorf("got %v, want ErrWait with the cancellation and its cause", err)
			}
		}
		if f.count() != 0 || len(l.reserved) != 0 || level(t, g, "tokens") != 90 {
			t.Errorf("%d calls, %d reservations, %d tokens left; want 0, 0 and 90", f.count(), len(l.reserved), level(t, g, "tokens"))
		}
		mustBeIdle(t, g)
	})
}

// Waiters that time out just as the holder releases hand the grant on: free
// capacity never shrinks.
func TestGrantThatMeetsATimeoutIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1_000_000)})
		var used atomic.Int64
		for i := range 200 {
			holder, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(1)})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					if p, err := g.Acquire(ctx, ratelimited.Call{Usage: input(1)}); err == nil {
						used.Add(1)
						p.End(input(1))
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want the deadline", err)
					}
				})
			}
			// From 3 ms before the timeout to 3 ms after it, and often at it.
			time.Sleep(50*time.Millisecond + time.Duration(i%7-3)*time.Millisecond*time.Duration(i%3))
			holder.End(input(1))
			wg.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			fresh, err := g.Acquire(ctx, ratelimited.Call{Usage: input(1)})
			cancel()
			if err != nil {
				t.Fatalf("round %d: a fresh call at an empty gate: %v", i, err)
			}
			fresh.End(input(1))
			used.Add(2)
		}
		mustBeIdle(t, g)
		if n := booked(t, g, "tokens"); n != used.Load() {
			t.Errorf("%d tokens on the books, %d used: a grant that was handed on was charged", n, used.Load())
		}
	})
}

// A permit ends once. Ending it again, in whatever way and from a copy, changes
// nothing, not even for the call that uses its record afterwards.
func TestPermitEndsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 2, Headroom: 1, Profile: tokens(100)})
		first, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(40)})
		if err != nil {
			t.Fatal(err)
		}
		again := first
		first.End(input(30))
		second, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(10)})
		if err != nil {
			t.Fatal(err)
		}
		again.End(input(90))
		again.Release()
		again.FreeSlot()
		again.Counted()
		if s := g.Stats(); s.SlotsInUse != 1 || s.Dimensions[0].Level != 60 {
			t.Errorf("%d slots in use and %d tokens left, want 1 and 60", s.SlotsInUse, s.Dimensions[0].Level)
		}
		second.FreeSlot()
		second.FreeSlot()
		if s := g.Stats(); s.SlotsInUse != 0 || s.Dimensions[0].Level != 60 {
			t.Errorf("a freed slot leaves %d in use and %d tokens, want 0 and 60", s.SlotsInUse, s.Dimensions[0].Level)
		}
		second.Release()
		if n := level(t, g, "tokens"); n != 70 {
			t.Errorf("a release leaves %d tokens, want 70", n)
		}
		third, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(10)})
		if err != nil {
			t.Fatal(err)
		}
		third.End(usage.Usage{})
		if n := level(t, g, "tokens"); n != 60 {
			t.Errorf("an end without usage leaves %d tokens, want 60: the estimate stands", n)
		}
		var none ratelimited.Permit
		none.End(input(1))
		none.Release()
		none.FreeSlot()
		none.Counted()
		mustBeIdle(t, g)
	})
}

// Fan-out within fan-out: the slot stands for a request in flight and not for
// an agent, so parents do not starve their children, at no width.
func TestNestedFanOutFinishesAtAnyWidth(t *testing.T) {
	for _, width := range []int64{1, 2} {
		bubbleRun(t, "width", width, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: width})
			f := answers(100*time.Millisecond, part("a"), final(10, 5))
			llm := wrap(t, f, g)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var done atomic.Int64
			one := func() {
				if err := call(ctx, llm, hello()); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}
			var parents sync.WaitGroup
			for range 3 {
				parents.Go(func() {
					one()
					var children sync.WaitGroup
					for range 2 {
						children.Go(one)
					}
					children.Wait()
				})
			}
			parents.Wait()
			if done.Load() != 9 || f.count() != 9 {
				t.Errorf("%d calls finished and %d reached the model, want 9", done.Load(), f.count())
			}
			if n := f.peakCount(); n != int(width) {
				t.Errorf("%d calls were in flight together, want %d", n, width)
			}
			mustBeIdle(t, g)
		})
	}
}

// A function of the configuration that asks somebody else takes the time of its
// own call only.
func TestSlowFunctionOfTheConfigDelaysNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, FlowWeight: func(_, flow string) float64 {
			if flow == "slow" {
				time.Sleep(2 * time.Second)
			}
			return 1
		}})
		p, err := g.Acquire(t.Context(), ratelimited.Call{})
		if err != nil {
			t.Fatal(err)
		}
		waits := func(flow string, most, want time.Duration) {
			start := time.Now()
			_, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), most), ratelimited.Call{Flow: flow})
			if d := time.Since(start); d != want || !errors.Is(err, ratelimited.ErrWait) {
				t.Errorf("flow %s, which waits for %v, failed after %v with %v", flow, most, d, err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { waits("slow", 10*time.Second, 12*time.Second) })
		time.Sleep(1999 * time.Millisecond)
		g.Stats()
		time.Sleep(501 * time.Millisecond)
		wg.Go(func() { waits("b", 8*time.Second, 8*time.Second) })
		wg.Wait()
		p.Release()
		mustBeIdle(t, g)
	})
}
