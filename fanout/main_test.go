package fanout_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/fanout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBranch = errors.New("the branch failed")

// gauge counts what runs at a time, and remembers the most and the sum.
type gauge struct{ now, peak, entered atomic.Int64 }

func (g *gauge) enter() {
	g.entered.Add(1)
	now := g.now.Add(1)
	for peak := g.peak.Load(); now > peak && !g.peak.CompareAndSwap(peak, now); peak = g.peak.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// work is a branch's own work: it counts while it lasts.
func (g *gauge) work(ctx context.Context, d time.Duration) error {
	g.enter()
	defer g.leave()
	return sleep(ctx, d)
}

// sleep sleeps, in virtual time, until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// numbers are 0 … n−1.
func numbers(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

// branchOf is the index that err names, or −1.
func branchOf(err error) int {
	var branch *fanout.Error
	if errors.As(err, &branch) {
		return branch.Index
	}
	return -1
}

// form is one of the functions that run branches over numbers, with outcomes
// where it has them. first says that the first error ends it.
type form struct {
	name  string
	first bool
	run   func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error)
}

// forms are all of them, for what holds for each.
func forms() []form {
	drop := func(fn func(context.Context, int) (int, error)) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			_, err := fn(ctx, i)
			return err
		}
	}
	return []form{
		{"ForEach", true, func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error) {
			return nil, fanout.ForEach(ctx, width, numbers(n), drop(fn))
		}},
		{"Map", true, func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error) {
			values, err := fanout.Map(ctx, width, numbers(n), fn)
			if err != nil && values != nil {
				return nil, errors.New("Map returned values and an error")
			}
			var outcomes []fanout.Outcome[int]
			for _, v := range values {
				outcomes = append(outcomes, fanout.Outcome[int]{Value: v})
			}
			return outcomes, err
		}},
		{"ForEachAll", false, func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error) {
			err := fanout.ForEachAll(ctx, width, numbers(n), drop(fn))
			var failed fanout.Errors
			if err != nil && !errors.As(err, &failed) {
				return nil, err
			}
			outcomes := make([]fanout.Outcome[int], n)
			for i := range outcomes {
				outcomes[i].Value = i * i
			}
			for _, e := range failed {
				outcomes[e.Index] = fanout.Outcome[int]{Err: e}
			}
			return outcomes, nil
		}},
		{"MapAll", false, func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error) {
			return fanout.MapAll(ctx, width, numbers(n), fn)
		}},
		{"Stream", false, func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error) {
			seq, err := fanout.Stream(ctx, width, numbers(n), fn)
			if err != nil {
				return nil, err
			}
			outcomes, seen := make([]fanout.Outcome[int], n), make(map[int]bool)
			for i, o := range seq {
				if seen[i] {
					return nil, errors.New("an item was seen twice")
				}
				outcomes[i], seen[i] = o, true
			}
			if len(seen) != n {
				return nil, errors.New("not every item was seen")
			}
			return outcomes, nil
		}},
		{"Quorum of all", false, func(ctx context.Context, width, n int, fn func(context.Context, int) (int, error)) ([]fanout.Outcome[int], error) {
			outcomes, err := fanout.Quorum(ctx, width, max(n, 1), numbers(n), fn)
			var short *fanout.QuorumError
			if err != nil && !errors.As(err, &short) {
				return nil, err
			}
			return outcomes, nil
		}},
	}
}

// square is a branch that succeeds.
func square(_ context.Context, i int) (int, error) { return i * i, nil }
