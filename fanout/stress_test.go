package fanout_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/fanout"
)

func TestTenThousandBranchesAtWidthEight(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		for _, f := range forms() {
			ctx := t.Context()
			if shared {
				ctx = sharing(t, ctx, 8)
			}
			var g gauge
			outcomes, err := f.run(ctx, 8, 10_000, func(ctx context.Context, i int) (int, error) {
				g.enter()
				defer g.leave()
				runtime.Gosched()
				return square(ctx, i)
			})
			if err != nil || g.entered.Load() != 10_000 || g.peak.Load() > 8 {
				t.Errorf("%s, shared %v: %d branches, %d at a time, error %v", f.name, shared, g.entered.Load(), g.peak.Load(), err)
			}
			for i, o := range outcomes {
				if o.Err != nil || o.Value != i*i {
					t.Fatalf("%s, shared %v: outcome %d is %+v", f.name, shared, i, o)
				}
			}
		}
	}
}

// Cancels from outside race with places that change hands: afterwards none is
// missing and none has been made.
func TestCancelsThatRaceWithPlacesNeitherLoseNorMakeOne(t *testing.T) {
	t.Parallel()
	const width = 3
	ctx := sharing(t, t.Context(), width)
	var g gauge
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 200 {
				ctx, cancel := context.WithCancel(ctx)
				var calls atomic.Int64
				_ = fanout.ForEachAll(ctx, 4, numbers(6), func(ctx context.Context, i int) error {
					if calls.Add(1) == int64(1+(round+worker)%6) {
						cancel()
					}
					g.enter()
					runtime.Gosched()
					g.leave()
					return fanout.ForEach(ctx, 2, numbers(2), func(context.Context, int) error {
						g.enter()
						defer g.leave()
						runtime.Gosched()
						return nil
					})
				})
				cancel()
			}
		})
	}
	wg.Wait()
	if g.peak.Load() > width {
		t.Errorf("%d at a time, width %d", g.peak.Load(), width)
	}
	all := make(chan struct{})
	var at atomic.Int64
	if err := fanout.ForEach(ctx, 8, numbers(width), func(context.Context, int) error {
		if at.Add(1) == width {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-time.After(10 * time.Second):
			return fmt.Errorf("only %d of %d places are left", at.Load(), width)
		}
	}); err != nil {
		t.Error(err)
	}
}

// node is a branch of a random tree: it works, fans out over its children in
// one of the forms, as often as it has sets of them, one after another or at
// once, works again, and ends.
type node struct {
	before, after time.Duration
	end           int // 0, 1, 2: returns; 3: fails; 4: panics; 5: ends its goroutine
	form          int
	width, narrow int // narrow > 0: a shared width of its own for its children
	timeout       time.Duration
	atOnce        bool
	sets          [][]*node
}

// drawNode draws a tree of at most depth levels.
func drawNode(t *rapid.T, depth int) *node {
	ms := func(label string) time.Duration {
		return time.Duration(rapid.IntRange(0, 5).Draw(t, label)) * time.Millisecond
	}
	n := &node{before: ms("before"), after: ms("after"), end: rapid.IntRange(0, 5).Draw(t, "end")}
	if depth == 0 {
		return n
	}
	n.form = rapid.IntRange(0, len(forms())-1).Draw(t, "form")
	n.width = rapid.IntRange(1, 4).Draw(t, "width")
	n.narrow = max(0, rapid.IntRange(-4, 2).Draw(t, "narrow"))
	n.timeout = time.Hour
	if rapid.IntRange(0, 4).Draw(t, "cancelled") == 0 {
		n.timeout = ms("timeout")
	}
	n.atOnce = rapid.Bool().Draw(t, "at once")
	for range rapid.IntRange(0, 2).Draw(t, "sets") {
		var set []*node
		for range rapid.IntRange(1, 3).Draw(t, "children") {
			set = append(set, drawNode(t, depth-1))
		}
		n.sets = append(n.sets, set)
	}
	return n
}

// run is the branch.
func (n *node) run(ctx context.Context, g *gauge) error {
	busy := func(d time.Duration) { // heeds no context: a branch may ignore it
		g.enter()
		time.Sleep(d)
		g.leave()
	}
	busy(n.before)
	under, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	if n.narrow > 0 {
		var err error
		if under, err = fanout.WithWidth(under, n.narrow); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for _, set := range n.sets {
		nested := func() {
			_, _ = forms()[n.form].run(under, n.width, len(set), func(ctx context.Context, i int) (int, error) {
				return 0, set[i].run(ctx, g)
			})
		}
		if n.atOnce {
			wg.Go(nested)
		} else {
			nested()
			busy(time.Millisecond)
		}
	}
	wg.Wait()
	busy(n.after)
	switch n.end {
	case 3:
		return errBranch
	case 4:
		panic(errBranch)
	case 5:
		runtime.Goexit()
	}
	return nil
}

// Virtual time makes a deadlock a failure at once, not a test that hangs.
func TestNoTreeOfFanOutsExceedsItsWidthOrWaitsForItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(1, 3).Draw(rt, "shared width")
		root := drawNode(rt, 3)
		var g gauge
		var places int64
		synctest.Test(t, func(t *testing.T) {
			ctx := sharing(t, t.Context(), width)
			_ = fanout.ForEachAll(ctx, 2, []*node{root, root}, func(ctx context.Context, n *node) error {
				return n.run(ctx, &g)
			})
			var after gauge
			_ = fanout.ForEachAll(ctx, width+1, numbers(width+1), func(ctx context.Context, _ int) error {
				return after.work(ctx, time.Second)
			})
			places = after.peak.Load()
		})
		if g.peak.Load() > int64(width) || g.now.Load() != 0 {
			rt.Fatalf("shared width %d: %d at a time, %d run on", width, g.peak.Load(), g.now.Load())
		}
		if places != int64(width) {
			rt.Fatalf("shared width %d: %d places afterwards", width, places)
		}
	})
}
