package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

func TestNothingStartsUnderAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	why := errors.New("the user went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	shared, err := fanout.WithWidth(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{ctx, shared} {
		for _, f := range forms() {
			outcomes, err := f.run(ctx, 3, 5, func(context.Context, int) (int, error) {
				t.Errorf("%s: a branch started", f.name)
				return 0, nil
			})
			if f.first {
				if branchOf(err) != 0 || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
					t.Errorf("%s: %v, want that branch 0 was not started and why", f.name, err)
				}
				continue
			}
			if err != nil || len(outcomes) != 5 {
				t.Errorf("%s: %d outcomes, error %v", f.name, len(outcomes), err)
			}
			for i, o := range outcomes {
				if branchOf(o.Err) != i || !errors.Is(o.Err, context.Canceled) || !errors.Is(o.Err, why) || !strings.Contains(o.Err.Error(), "not started") {
					t.Errorf("%s: outcome %d is %v, want that it was not started and why", f.name, i, o.Err)
				}
			}
		}
	}
}

func TestTheFirstItemIsTheOneThatWasNotStarted(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5000 { // goroutines that overtake each other are rare
		if err := fanout.ForEach(ended, 16, numbers(16), func(context.Context, int) error { return nil }); branchOf(err) != 0 {
			t.Fatalf("%v, want that branch 0 was not started", err)
		}
	}
}

func TestAPlaceThatComesTogetherWithACancelIsHandedOn(t *testing.T) {
	t.Parallel()
	for range 100 { // which of the two the waiting goroutine sees first varies
		synctest.Test(t, func(t *testing.T) {
			shared, err := fanout.WithWidth(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(shared)
			defer cancel()
			ends := make(chan error)
			go func() {
				ends <- fanout.ForEach(shared, 1, numbers(1), func(context.Context, int) error {
					time.Sleep(time.Second)
					cancel()
					return nil // and the place is handed over
				})
			}()
			synctest.Wait()
			if err := fanout.ForEach(ctx, 1, numbers(1), func(context.Context, int) error {
				t.Error("a branch started under a context that had ended")
				return nil
			}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := <-ends; err != nil {
				t.Error(err)
			}
			if err := fanout.ForEach(shared, 1, numbers(1), func(context.Context, int) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cancel at each instant of a fan-out, between branches and in the middle of
// them: what ran is told, what had ended keeps its value, the rest never starts.
func TestACancelAtAnyPointEndsTheFanOutAndLosesNothingThatWasDone(t *testing.T) {
	t.Parallel()
	const width, n, each = 3, 10, 2 * time.Second
	for _, f := range forms() {
		for at := time.Duration(0); at <= 9*time.Second; at += 500 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), at+time.Millisecond)
				defer cancel()
				start := time.Now()
				var g gauge
				outcomes, err := f.run(ctx, width, n, func(ctx context.Context, i int) (int, error) {
					return i * i, g.work(ctx, each)
				})
				full := 4 * each
				if took, want := time.Since(start), min(at+time.Millisecond, full); took != want {
					t.Errorf("%s cancelled after %v took %v, want %v", f.name, at, took, want)
				}
				if g.now.Load() != 0 {
					t.Errorf("%s cancelled after %v: %d branches run on", f.name, at, g.now.Load())
				}
				if f.first {
					if early := at < full; errors.Is(err, context.DeadlineExceeded) != early {
						t.Errorf("%s cancelled after %v: %v", f.name, at, err)
					}
					return
				}
				done := min(width*int(at/each), n)
				for i, o := range outcomes {
					if i < done && (o.Err != nil || o.Value != i*i) {
						t.Errorf("%s cancelled after %v: outcome %d is %+v, but it had ended", f.name, at, i, o)
					}
					if i >= done && !errors.Is(o.Err, context.DeadlineExceeded) {
						t.Errorf("%s cancelled after %v: outcome %d is %+v, want the deadline", f.name, at, i, o)
					}
				}
				if err != nil || len(outcomes) != n {
					t.Errorf("%s cancelled after %v: %d outcomes, error %v", f.name, at, len(outcomes), err)
				}
			})
		}
	}
}

func TestABranchThatIgnoresItsContextIsWaitedForAndHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			var stubborn, others atomic.Int64
			_, _ = f.run(ctx, 2, 50, func(ctx context.Context, i int) (int, error) {
				if i == 0 {
					time.Sleep(time.Minute)
					stubborn.Store(int64(time.Since(start)))
					return 0, nil
				}
				others.Add(1)
				return 0, sleep(ctx, time.Hour)
			})
			if took := time.Since(start); took != time.Minute || stubborn.Load() != int64(time.Minute) {
				t.Errorf("%s returned after %v, want %v, when the branch had returned", f.name, took, time.Minute)
			}
			if others.Load() != 1 {
				t.Errorf("%s started %d other branches, want the one that ran before the context ended", f.name, others.Load())
			}
		})
	}
}

func TestWaitingForTheSharedWidthEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		synctest.Test(t, func(t *testing.T) {
			ctx, err := fanout.WithWidth(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			busy := make(chan error)
			go func() {
				busy <- fanout.ForEach(ctx, 1, numbers(1), func(context.Context, int) error {
					time.Sleep(time.Hour)
					return nil
				})
			}()
			synctest.Wait()
			start := time.Now()
			waiting, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err = f.run(waiting, 4, 4, func(context.Context, int) (int, error) {
				t.Errorf("%s: a branch started", f.name)
				return 0, nil
			})
			if took := time.Since(start); took != time.Second {
				t.Errorf("%s waited for %v, want 1s; error %v", f.name, took, err)
			}
			if err := <-busy; err != nil {
				t.Error(err)
			}
			// The line has forgotten who gave up: the place is free at once.
			var g gauge
			start = time.Now()
			if err := fanout.ForEach(ctx, 3, numbers(2), func(ctx context.Context, _ int) error {
				return g.work(ctx, time.Second)
			}); err != nil || g.peak.Load() != 1 || time.Since(start) != 2*time.Second {
				t.Errorf("%s: afterwards the shared width let %d run at a time, for %v; error %v",
					f.name, g.peak.Load(), time.Since(start), err)
			}
		})
	}
}

func TestErrorsNameTheBranchAndStayReadable(t *testing.T) {
	t.Parallel()
	nested := func(ctx context.Context, i int) error {
		return fanout.ForEach(ctx, 1, numbers(2), func(_ context.Context, j int) error {
			if i == 0 && j == 1 {
				return fmt.Errorf("call: %w", errBranch)
			}
			return nil
		})
	}
	err := fanout.ForEach(t.Context(), 1, numbers(2), nested)
	if got, want := err.Error(), "fanout: branch 0: branch 1: call: the branch failed"; got != want || !errors.Is(err, errBranch) {
		t.Errorf("%q, want %q", got, want)
	}
	err = fanout.ForEachAll(t.Context(), 2, numbers(5), func(context.Context, int) error { return errBranch })
	want := "fanout: 5 failed: branch 0: the branch failed; branch 1: the branch failed; branch 2: the branch failed; and 2 more"
	if err == nil || err.Error() != want || !errors.Is(err, errBranch) {
		t.Errorf("%q, want %q", err, want)
	}
	var failed fanout.Errors
	if !errors.As(err, &failed) || len(failed) != 5 || failed[4].Index != 4 {
		t.Errorf("%v are not the errors of five branches in order", failed)
	}
	if err := fanout.ForEachAll(t.Context(), 2, numbers(5), func(context.Context, int) error { return nil }); err != nil {
		t.Errorf("no failure, but %v", err)
	}
}
