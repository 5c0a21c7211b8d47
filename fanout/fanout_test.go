package fanout_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

func TestEveryItemIsDoneOnceAndItsResultStandsInItsPlace(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		for _, tc := range []struct{ width, n int }{{1, 1}, {1, 7}, {2, 7}, {7, 7}, {1000, 7}, {3, 1000}} {
			var calls atomic.Int64
			outcomes, err := f.run(t.Context(), tc.width, tc.n, func(ctx context.Context, i int) (int, error) {
				calls.Add(1)
				if i%3 == 0 {
					runtime.Gosched() // let others overtake
				}
				return square(ctx, i)
			})
			if err != nil || calls.Load() != int64(tc.n) {
				t.Errorf("%s, width %d, %d items: %d calls, error %v", f.name, tc.width, tc.n, calls.Load(), err)
			}
			for i, o := range outcomes {
				if o.Err != nil || o.Value != i*i {
					t.Errorf("%s, width %d, %d items: outcome %d is %+v", f.name, tc.width, tc.n, i, o)
				}
			}
		}
	}
}

func TestWidthBoundsBranchesAndIsUsedInFull(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		for _, width := range []int{1, 2, 5, 12, 100} {
			synctest.Test(t, func(t *testing.T) {
				const n, each = 12, time.Second
				var g gauge
				start := time.Now()
				_, err := f.run(t.Context(), width, n, func(ctx context.Context, i int) (int, error) {
					return i * i, g.work(ctx, each)
				})
				rounds := (n + width - 1) / width
				if took := time.Since(start); err != nil || took != time.Duration(rounds)*each {
					t.Errorf("%s, width %d: took %v, want %d rounds of %v; error %v", f.name, width, took, rounds, each, err)
				}
				if got, want := g.peak.Load(), int64(min(width, n)); got != want {
					t.Errorf("%s, width %d: at most %d branches at a time, want %d", f.name, width, got, want)
				}
			})
		}
	}
}

func TestGoroutinesAreBoundedByTheWidthAndNotByTheItems(t *testing.T) {
	// Not parallel: it counts the goroutines of the process.
	const width, n = 8, 10_000
	shared := sharing(t, t.Context(), width)
	for _, f := range forms() {
		for _, tc := range []struct {
			ctx context.Context
			own int
		}{{t.Context(), width}, {shared, n}} {
			before := int64(runtime.NumGoroutine())
			var most atomic.Int64
			_, err := f.run(tc.ctx, tc.own, n, func(_ context.Context, i int) (int, error) {
				if i%100 == 0 {
					most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
				}
				return i * i, nil
			})
			if extra := most.Load() - before; err != nil || extra > width+1 {
				t.Errorf("%s: %d goroutines more than before, width %d, error %v", f.name, extra, width, err)
			}
		}
	}
}

func TestBranchesStartInTheOrderOfTheirItems(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		last := -1
		if _, err := f.run(t.Context(), 1, 100, func(_ context.Context, i int) (int, error) {
			if i != last+1 {
				t.Errorf("%s: item %d started after item %d", f.name, i, last)
			}
			last = i
			return 0, nil
		}); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

func TestNoItemsAreDoneAtOnce(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		for _, f := range forms() {
			if f.name == "Quorum of all" {
				continue // a quorum of none is refused, see TestQuorumNamesTheNeedThatItCannotUse
			}
			outcomes, err := f.run(ctx, 1, 0, square)
			if err != nil || len(outcomes) != 0 {
				t.Errorf("%s: %v, %v", f.name, outcomes, err)
			}
		}
	}
}

func TestArgumentsThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		ctx   context.Context
		width int
		fn    func(context.Context, int) (int, error)
		want  string
	}{
		{"width zero", t.Context(), 0, square, "width is 0, must be at least 1"},
		{"negative width", t.Context(), -1, square, "width is -1, must be at least 1"},
		{"no context", nil, 1, square, "ctx is nil"},
		{"no function", t.Context(), 1, nil, "fn is nil"},
	} {
		for _, f := range forms() {
			fn := tc.fn
			if fn == nil && strings.HasPrefix(f.name, "ForEach") {
				continue // the form wraps it; see below
			}
			called := false
			if fn != nil {
				fn = func(ctx context.Context, i int) (int, error) {
					called = true
					return tc.fn(ctx, i)
				}
			}
			outcomes, err := f.run(tc.ctx, tc.width, 3, fn)
			if err == nil || !strings.Contains(err.Error(), tc.want) || called || outcomes != nil {
				t.Errorf("%s, %s: error %v, want %q; called: %v", f.name, tc.name, err, tc.want, called)
			}
		}
	}
	if err := fanout.ForEach[int](t.Context(), 1, nil, nil); err == nil || !strings.Contains(err.Error(), "fn is nil") {
		t.Errorf("ForEach without a function: %v", err)
	}
	if err := fanout.ForEachAll[int](t.Context(), 1, nil, nil); err == nil || !strings.Contains(err.Error(), "fn is nil") {
		t.Errorf("ForEachAll without a function: %v", err)
	}
}

func TestTheFirstErrorCancelsSiblingsAndNoFurtherBranchStarts(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		if !f.first {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var started atomic.Int64
			var causes [3]error
			_, err := f.run(t.Context(), 3, 100, func(ctx context.Context, i int) (int, error) {
				started.Add(1)
				if i == 1 {
					time.Sleep(time.Second)
					return 0, errBranch
				}
				err := sleep(ctx, time.Hour)
				causes[i] = context.Cause(ctx)
				return 0, err
			})
			if !errors.Is(err, errBranch) || branchOf(err) != 1 {
				t.Errorf("%s: %v, want the error of branch 1", f.name, err)
			}
			if took := time.Since(start); took != time.Second || started.Load() != 3 {
				t.Errorf("%s: took %v and started %d branches, want 1s and 3", f.name, took, started.Load())
			}
			for _, i := range []int{0, 2} {
				if branchOf(causes[i]) != 1 || !errors.Is(causes[i], errBranch) {
					t.Errorf("%s: branch %d was cancelled because of %v, want the error of branch 1", f.name, i, causes[i])
				}
			}
		})
	}
}

func TestACollectedFailureCancelsNobody(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		if f.first || f.name == "Quorum of all" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			outcomes, err := f.run(t.Context(), 4, 40, func(ctx context.Context, i int) (int, error) {
				if err := sleep(ctx, time.Second); err != nil {
					return 0, err
				}
				switch i % 4 {
				case 1:
					return i * i, errBranch // the value beside an error is dropped
				case 2:
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					return 0, sleep(ctx, time.Hour)
				}
				return i * i, nil
			})
			if err != nil || len(outcomes) != 40 {
				t.Fatalf("%s: %d outcomes, error %v", f.name, len(outcomes), err)
			}
			want := []error{nil, errBranch, context.DeadlineExceeded, nil}
			for i, o := range outcomes {
				switch want := want[i%4]; {
				case want == nil && (o.Err != nil || o.Value != i*i):
					t.Errorf("%s: outcome %d is %+v, want the value %d", f.name, i, o, i*i)
				case want != nil && (!errors.Is(o.Err, want) || branchOf(o.Err) != i || o.Value != 0):
					t.Errorf("%s: outcome %d is %+v, want no value and %v", f.name, i, o, want)
				}
			}
		})
	}
}
