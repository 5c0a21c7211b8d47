package fanout_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

// streamOf is a Stream whose arguments are known to be right.
func streamOf(t *testing.T, ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) iter.Seq2[int, fanout.Outcome[int]] {
	t.Helper()
	seq, err := fanout.Stream(ctx, width, numbers(n), fn)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func TestAStreamYieldsOutcomesAsBranchesFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var order []int
		for i, o := range streamOf(t, t.Context(), 4, 4, func(ctx context.Context, i int) (int, error) {
			return i * i, sleep(ctx, time.Duration(4-i)*time.Second)
		}) {
			if took := time.Since(start); o.Err != nil || o.Value != i*i || took != time.Duration(4-i)*time.Second {
				t.Errorf("outcome %d is %+v after %v", i, o, took)
			}
			order = append(order, i)
		}
		if !slices.Equal(order, []int{3, 2, 1, 0}) {
			t.Errorf("order %v, want the fastest first", order)
		}
	})
}

func TestAStreamIsColdAndEachRangeIsARunOfItsOwn(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	seq := streamOf(t, t.Context(), 2, 5, func(ctx context.Context, i int) (int, error) {
		calls.Add(1)
		return square(ctx, i)
	})
	if calls.Load() != 0 {
		t.Errorf("%d calls before the first range", calls.Load())
	}
	for run := int64(1); run <= 2; run++ {
		seen := 0
		for range seq {
			seen++
		}
		if seen != 5 || calls.Load() != 5*run {
			t.Errorf("run %d: %d outcomes, %d calls in all", run, seen, calls.Load())
		}
	}
}

func TestASlowLoopHoldsTheBranchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const width, n = 3, 20
		started, seen := 0, 0
		var mu sync.Mutex
		for _, o := range streamOf(t, t.Context(), width, n, func(ctx context.Context, i int) (int, error) {
			mu.Lock()
			started++
			mu.Unlock()
			return square(ctx, i)
		}) {
			if o.Err != nil {
				t.Error(o.Err)
			}
			time.Sleep(time.Minute) // all that can run has run by now
			seen++
			mu.Lock()
			if started > seen+width {
				t.Errorf("%d branches have started when %d outcomes are seen, width %d", started, seen, width)
			}
			mu.Unlock()
		}
		if seen != n {
			t.Errorf("%d outcomes seen, want %d", seen, n)
		}
	})
}

func TestALoopThatStopsCancelsTheBranchesAndWaitsForThem(t *testing.T) {
	t.Parallel()
	const n, width = 100, 4
	stops := map[string]func(seq iter.Seq2[int, fanout.Outcome[int]], seen func()){
		"break": func(seq iter.Seq2[int, fanout.Outcome[int]], seen func()) {
			for range seq {
				seen()
				break
			}
		},
		"panic": func(seq iter.Seq2[int, fanout.Outcome[int]], seen func()) {
			defer func() {
				if recover() != "the loop's body" {
					panic("the panic of the loop's body was lost")
				}
			}()
			for range seq {
				seen()
				panic("the loop's body")
			}
		},
		"Goexit": func(seq iter.Seq2[int, fanout.Outcome[int]], seen func()) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for range seq {
					seen()
					runtime.Goexit()
				}
			}()
			<-ended
		},
		"pull and stop": func(seq iter.Seq2[int, fanout.Outcome[int]], seen func()) {
			next, stop := iter.Pull2(seq)
			if _, _, ok := next(); ok {
				seen()
			}
			stop()
		},
	}
	for name, stop := range stops {
		// The branches that run when the loop stops: still at work, or done and
		// waiting to be seen.
		for _, others := range []time.Duration{time.Hour, 0} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var g gauge
				var started atomic.Int64
				seen := 0
				stop(streamOf(t, t.Context(), width, n, func(ctx context.Context, i int) (int, error) {
					started.Add(1)
					if i == 0 {
						return 0, g.work(ctx, time.Second)
					}
					err := g.work(ctx, others+time.Second)
					if err != nil {
						g.enter() // a cancelled branch takes its time
						time.Sleep(time.Second)
						g.leave()
					}
					return 0, err
				}), func() { seen++ })
				if g.now.Load() != 0 {
					t.Errorf("%s: %d branches run on", name, g.now.Load())
				}
				// A cancelled branch takes a second more. Where the others were done,
				// one may have been started just before the loop stopped.
				least, most := time.Second, 2*time.Second
				if others > 0 {
					least = most
				}
				if took := time.Since(start); took < least || took > most || seen != 1 {
					t.Errorf("%s: ended after %v with %d seen, want %v to %v and 1", name, took, seen, least, most)
				}
				// Whoever finished the seen one may start another before the loop stops.
				if most := int64(2 * width); started.Load() > most || others > 0 && started.Load() > width+1 {
					t.Errorf("%s: %d branches started", name, started.Load())
				}
			})
		}
	}
}

func TestALoopThatReturnsAtTheFirstErrorIsAFanOutThatStopsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := func() error {
			for _, o := range streamOf(t, t.Context(), 3, 30, func(ctx context.Context, i int) (int, error) {
				if i == 2 {
					return 0, errBranch
				}
				return 0, sleep(ctx, time.Hour)
			}) {
				if o.Err != nil {
					return o.Err
				}
			}
			return nil
		}()
		if branchOf(err) != 2 || !errors.Is(err, errBranch) || time.Since(start) != 0 {
			t.Errorf("%v after %v, want the error of branch 2 at once", err, time.Since(start))
		}
	})
}
