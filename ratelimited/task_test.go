package ratelimited_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

// awaitPosted waits until so many tasks are left to whoever has the gate's lock.
// Virtual time cannot help here: who holds a lock is not idle.
func awaitPosted(t *testing.T, g *ratelimited.Gate, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); g.Posted() != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d tasks are posted, want %d", g.Posted(), n)
		}
	}
}

// acquired is what became of an Acquire.
type acquired struct {
	permit ratelimited.Permit
	err    error
}

// acquireBehind starts an Acquire that finds the lock taken, as the n-th one.
func acquireBehind(t *testing.T, g *ratelimited.Gate, n int, ctx context.Context, call ratelimited.Call) <-chan acquired {
	t.Helper()
	done := make(chan acquired, 1)
	go func() {
		p, err := g.Acquire(ctx, call)
		done <- acquired{p, err}
	}()
	awaitPosted(t, g, n)
	return done
}

// Whoever ends a call never waits for the gate's lock, and what it gave back is
// back before anything else is done with the gate.
func TestEndDoesNotWaitForTheLock(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 3, Headroom: 1, Profile: window(1000)})
	var permits []ratelimited.Permit
	for range 3 {
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(100)})
		if err != nil {
			t.Fatal(err)
		}
		permits = append(permits, p)
	}
	release := g.Hold()
	permits[0].End(input(40))
	permits[1].Release()
	permits[2].End(input(300))
	permits[2].End(input(500)) // a second end does nothing
	permits[0].Release()
	awaitPosted(t, g, 5)
	release()
	if n := g.Posted(); n != 0 {
		t.Errorf("%d tasks are left undone by who had the lock", n)
	}
	if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 {
		t.Errorf("%d slots in use, %d calls run", s.SlotsInUse, s.Running)
	}
	if n := booked(t, g, "tokens"); n != 340 {
		t.Errorf("%d tokens on the books, want 340", n)
	}
	mustHoldNothing(t, g)
}

// Calls that find the lock taken get in line in the order in which they came.
func TestCallsBehindTheLockKeepTheirOrder(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Order: ratelimited.FIFO})
	first, err := g.Acquire(t.Context(), ratelimited.Call{})
	if err != nil {
		t.Fatal(err)
	}
	release := g.Hold()
	admitted := make(chan int)
	var wg sync.WaitGroup
	for i := range 6 {
		done := acquireBehind(t, g, i+1, t.Context(), ratelimited.Call{})
		wg.Go(func() {
			a := <-done
			admitted <- i
			a.permit.End(input(1))
		})
	}
	first.End(input(1)) // it came after them, and serves the first of them
	awaitPosted(t, g, 7)
	release()
	for want := range 6 {
		if got := <-admitted; got != want {
			t.Fatalf("call %d is admitted, want call %d", got, want)
		}
	}
	wg.Wait()
	mustHoldNothing(t, g)
}

// What becomes of a call is the same, whether it finds the lock taken or not.
func TestCallsBehindTheLockAreAdmittedOrRefusedAlike(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(context.Background())
	end()
	for _, test := range []struct {
		name   string
		slots  int64
		cfg    ratelimited.Config
		call   ratelimited.Call
		ends   bool // its context ends before it is taken in
		closed bool // the gate was closed before it came
		want   error
	}{
		{name: "admitted at once", slots: 2},
		{name: "its context ends before it is admitted at once", slots: 2, ends: true, want: context.Canceled},
		{name: "its context ends before it is in line", slots: 1, ends: true, want: context.Canceled},
		{name: "the line is full", slots: 1, cfg: ratelimited.Config{MaxWaiting: 1}, want: ratelimited.ErrLineFull},
		{name: "the line is full and its context ends", slots: 1, cfg: ratelimited.Config{MaxWaiting: 1}, ends: true, want: ratelimited.ErrLineFull},
		{name: "it never fits", slots: 2, call: ratelimited.Call{Usage: input(1001)}, want: ratelimited.ErrNeverFits},
		{name: "the gate is closed", slots: 2, closed: true, want: ratelimited.ErrClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := test.cfg
			cfg.Slots, cfg.Headroom, cfg.Profile = test.slots, 1, window(1000)
			g := newGate(t, cfg)
			first, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(1)})
			if err != nil {
				t.Fatal(err)
			}
			if cfg.MaxWaiting > 0 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiter := make(chan struct{})
				go func() {
					defer close(waiter)
					_, _ = g.Acquire(ctx, ratelimited.Call{Usage: input(1)})
				}()
				for g.Stats().Waiting == 0 {
					runtime.Gosched()
				}
				defer func() { cancel(); <-waiter }()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.closed {
				_ = g.Close(ended) // the first call runs
			}
			release := g.Hold()
			done := acquireBehind(t, g, 1, ctx, test.call)
			if test.ends {
				cancel()
			}
			release()
			a := <-done
			if !errors.Is(a.err, test.want) {
				t.Errorf("%v, want %v", a.err, test.want)
			}
			a.permit.Release()
			first.End(input(1))
			if cfg.MaxWaiting > 0 {
				return // somebody still waits
			}
			if n := booked(t, g, "tokens"); n != 1 {
				t.Errorf("%d tokens on the books, want those of the first call", n)
			}
			mustHoldNothing(t, g)
		})
	}
}

// Where a call can pass those that wait, one that was posted may be granted while
// it gets in line.
func TestAPostedCallMayBeGrantedWhereItGetsInLine(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 9, PerFlow: ratelimited.Ceiling{Slots: 1}})
	for range 50 {
		release := g.Hold()
		done := acquireBehind(t, g, 1, t.Context(), ratelimited.Call{Flow: "a"})
		runtime.Gosched()
		release()
		a := <-done
		if a.err != nil {
			t.Fatal(a.err)
		}
		a.permit.End(input(1))
		mustHoldNothing(t, g)
	}
}

// A gate's channels stay in its own bubble of virtual time: programs test with
// several, one after the other.
func TestBubblesShareNothing(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1})
			p, err := g.Acquire(t.Context(), ratelimited.Call{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 600 { // enough to get in line aside
				wg.Go(func() { _, _ = g.Acquire(ctx, ratelimited.Call{}) })
			}
			synctest.Wait()
			cancel()
			wg.Wait()
			p.Release()
			mustBeIdle(t, g)
		})
	}
}
