package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

// sharing is a context with a shared width.
func sharing(t *testing.T, ctx context.Context, n int) context.Context {
	t.Helper()
	ctx, err := fanout.WithWidth(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestASharedWidthThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, -1} {
		ctx, err := fanout.WithWidth(t.Context(), n)
		if err == nil || ctx != nil || !strings.Contains(err.Error(), fmt.Sprintf("shared width is %d, must be at least 1", n)) {
			t.Errorf("shared width %d: %v", n, err)
		}
	}
	var none context.Context
	if _, err := fanout.WithWidth(none, 1); err == nil || !strings.Contains(err.Error(), "ctx is nil") {
		t.Errorf("no context: %v", err)
	}
}

// Three parents run together; each works, starts two children that work once
// each, waits for them, and works again.
func TestParentsAndChildrenAllFinishWithinOneWidth(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		width int
		most  time.Duration // for 12 pieces of work of 100 ms, in the worst order
	}{{1, 1200 * time.Millisecond}, {2, 800 * time.Millisecond}, {3, 600 * time.Millisecond}, {100, 300 * time.Millisecond}} {
		for _, f := range forms() {
			synctest.Test(t, func(t *testing.T) {
				const each = 100 * time.Millisecond
				var g gauge
				start := time.Now()
				_, err := f.run(sharing(t, t.Context(), tc.width), 3, 3, func(ctx context.Context, i int) (int, error) {
					if err := g.work(ctx, each); err != nil {
						return 0, err
					}
					if _, err := f.run(ctx, 2, 2, func(ctx context.Context, j int) (int, error) {
						return j * j, g.work(ctx, each)
					}); err != nil {
						return 0, err
					}
					return i * i, g.work(ctx, each)
				})
				if err != nil || g.entered.Load() != 12 {
					t.Errorf("%s, width %d: %d pieces of work, want 12; error %v", f.name, tc.width, g.entered.Load(), err)
				}
				if g.peak.Load() > int64(tc.width) {
					t.Errorf("%s, width %d: %d at a time", f.name, tc.width, g.peak.Load())
				}
				if took := time.Since(start); took > tc.most {
					t.Errorf("%s, width %d: took %v, want at most %v", f.name, tc.width, took, tc.most)
				}
			})
		}
	}
}

func TestAWidthOfOneIsEnoughForAnyDepth(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		synctest.Test(t, func(t *testing.T) {
			const depth = 4 // the root's branches and three levels below
			var g gauge
			var branch func(level int) func(context.Context, int) (int, error)
			branch = func(level int) func(context.Context, int) (int, error) {
				return func(ctx context.Context, i int) (int, error) {
					if err := g.work(ctx, time.Second); err != nil {
						return 0, err
					}
					if level < depth {
						if _, err := f.run(ctx, 3, 3, branch(level+1)); err != nil {
							return 0, err
						}
					}
					return i * i, g.work(ctx, time.Second)
				}
			}
			if _, err := f.run(sharing(t, t.Context(), 1), 3, 3, branch(1)); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
			if want := int64(2 * (3 + 9 + 27 + 81)); g.entered.Load() != want || g.peak.Load() != 1 {
				t.Errorf("%s: %d pieces of work, %d at a time; want %d, one at a time", f.name, g.entered.Load(), g.peak.Load(), want)
			}
		})
	}
}

func TestFanOutsSideBySideDrawFromOneWidthAndNeitherStarves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := sharing(t, t.Context(), 2)
		var g gauge
		var wg sync.WaitGroup
		start := time.Now()
		took := make([]time.Duration, 2)
		for i, n := range []int{100, 4} {
			wg.Go(func() {
				if err := fanout.ForEach(ctx, 8, numbers(n), func(ctx context.Context, _ int) error {
					return g.work(ctx, time.Second)
				}); err != nil {
					t.Error(err)
				}
				took[i] = time.Since(start)
			})
		}
		wg.Wait()
		if g.peak.Load() != 2 || took[0] != 52*time.Second {
			t.Errorf("%d at a time, all done after %v; want 2 and 52s", g.peak.Load(), took[0])
		}
		if took[1] > 5*time.Second {
			t.Errorf("four branches beside a hundred took %v", took[1])
		}
	})
}

func TestANarrowerWidthInsideAnotherHoldsBesideIt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ outer, inner, peak int }{{3, 1, 1}, {3, 2, 2}, {2, 5, 2}, {1, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var whole, part gauge
			outer := sharing(t, t.Context(), tc.outer)
			inner := sharing(t, outer, tc.inner)
			branch := func(g *gauge) func(context.Context, int) error {
				return func(ctx context.Context, _ int) error {
					g.enter()
					err := whole.work(ctx, time.Second)
					g.leave()
					if err != nil {
						return err
					}
					return fanout.ForEach(ctx, 4, numbers(3), func(ctx context.Context, _ int) error {
						g.enter()
						defer g.leave()
						return whole.work(ctx, time.Second)
					})
				}
			}
			var other gauge
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := fanout.ForEach(inner, 4, numbers(4), branch(&part)); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if err := fanout.ForEach(outer, 4, numbers(4), branch(&other)); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if whole.entered.Load() != 32 || whole.peak.Load() != int64(tc.outer) || part.peak.Load() > int64(tc.peak) {
				t.Errorf("widths %d and %d: %d branches, %d at a time, of which inside %d",
					tc.outer, tc.inner, whole.entered.Load(), whole.peak.Load(), part.peak.Load())
			}
		})
	}
}

// A branch may start nested fan-outs at once, on goroutines of its own: it has
// one place to lend, not two, and has it again when all have ended.
func TestABranchThatStartsTwoNestedFanOutsAtOnceLendsOnePlace(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 2} {
		for _, gap := range []time.Duration{0, 500 * time.Millisecond, 10 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				var g gauge
				err := fanout.ForEach(sharing(t, t.Context(), width), 3, numbers(3), func(ctx context.Context, _ int) error {
					if err := g.work(ctx, time.Second); err != nil {
						return err
					}
					var wg sync.WaitGroup
					for i := range 3 {
						wg.Go(func() {
							time.Sleep(time.Duration(i) * gap)
							if err := fanout.ForEach(ctx, 2, numbers(2), func(ctx context.Context, _ int) error {
								return g.work(ctx, time.Second)
							}); err != nil {
								t.Error(err)
							}
						})
					}
					wg.Wait()
					return g.work(ctx, time.Second)
				})
				if err != nil || g.entered.Load() != 3*(2+6) || g.peak.Load() > int64(width) {
					t.Errorf("width %d, gap %v: %d pieces of work, %d at a time; error %v",
						width, gap, g.entered.Load(), g.peak.Load(), err)
				}
			})
		}
	}
}

func TestABranchThatComesBackGoesBeforeThoseThatHaveNotStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := sharing(t, t.Context(), 1)
		var order []string
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := fanout.ForEach(ctx, 1, numbers(1), func(ctx context.Context, _ int) error {
				order = append(order, "parent")
				err := fanout.ForEach(ctx, 1, numbers(1), func(ctx context.Context, _ int) error {
					order = append(order, "child")
					return sleep(ctx, time.Second)
				})
				order = append(order, "parent again")
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the child sleeps
		for range 2 {
			wg.Go(func() {
				if err := fanout.ForEach(ctx, 1, numbers(1), func(ctx context.Context, _ int) error {
					order = append(order, "stranger")
					return sleep(ctx, time.Second)
				}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// When the child ends its parent does not know it yet, so the first
		// stranger has the place; then the parent, who came last.
		if got, want := fmt.Sprint(order), "[parent child stranger parent again stranger]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

func TestACancelledParentKeepsTheWidthOnItsWayOut(t *testing.T) {
	t.Parallel()
	for _, f := range forms() {
		synctest.Test(t, func(t *testing.T) {
			var g gauge
			ctx := sharing(t, t.Context(), 1)
			failed, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = f.run(failed, 2, 2, func(ctx context.Context, _ int) (int, error) {
					_, err := f.run(ctx, 2, 8, func(ctx context.Context, _ int) (int, error) {
						return 0, g.work(ctx, time.Second)
					})
					g.enter() // cleans up, with or without its context
					time.Sleep(time.Second)
					g.leave()
					return 0, err
				})
			})
			wg.Go(func() {
				if err := fanout.ForEach(ctx, 3, numbers(5), func(ctx context.Context, _ int) error {
					return g.work(ctx, time.Second)
				}); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if g.peak.Load() != 1 {
				t.Errorf("%s: %d at a time, want 1", f.name, g.peak.Load())
			}
		})
	}
}

// The body of a loop over a stream is the branch's own work: it holds the
// branch's place, and lends it when it fans out itself.
func TestTheBodyOfANestedLoopHasThePlaceOfItsBranch(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var g gauge
			err := fanout.ForEach(sharing(t, t.Context(), width), 2, numbers(2), func(ctx context.Context, _ int) error {
				seen := 0
				for _, o := range streamOf(t, ctx, 3, 5, func(ctx context.Context, i int) (int, error) {
					return i, g.work(ctx, time.Second)
				}) {
					if o.Err != nil {
						return o.Err
					}
					if err := g.work(ctx, 3*time.Second); err != nil {
						return err
					}
					if err := fanout.ForEach(ctx, 2, numbers(2), func(ctx context.Context, _ int) error {
						return g.work(ctx, time.Second)
					}); err != nil {
						return err
					}
					if seen++; seen == 4 {
						break
					}
				}
				return g.work(ctx, time.Second)
			})
			if err != nil || g.peak.Load() > int64(width) {
				t.Errorf("width %d: %d at a time, error %v", width, g.peak.Load(), err)
			}
		})
	}
}

func TestAnOutcomeThatWaitsToBeSeenHoldsNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := sharing(t, t.Context(), 1)
		for range streamOf(t, ctx, 1, 3, square) {
			synctest.Wait() // the next outcome waits to be seen
			start := time.Now()
			if err := fanout.ForEach(ctx, 1, numbers(1), func(ctx context.Context, _ int) error {
				return sleep(ctx, time.Second)
			}); err != nil || time.Since(start) != time.Second {
				t.Errorf("another fan-out took %v, error %v", time.Since(start), err)
			}
		}
	})
}

// A goroutine that a branch leaves behind has no place any more, and neither
// keeps one nor makes one.
func TestANestedFanOutThatOutlivesItsBranchKeepsTheWidth(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"return", "panic", "Goexit"} {
		synctest.Test(t, func(t *testing.T) {
			ctx := sharing(t, t.Context(), 1)
			var g gauge
			var left sync.WaitGroup
			_ = fanout.ForEachAll(ctx, 2, numbers(2), func(branch context.Context, _ int) error {
				branch = context.WithoutCancel(branch)
				left.Go(func() {
					for range 2 {
						if err := fanout.ForEach(branch, 2, numbers(2), func(ctx context.Context, _ int) error {
							return g.work(ctx, time.Second)
						}); err != nil {
							t.Error(err)
						}
					}
				})
				if err := sleep(branch, time.Millisecond); err != nil {
					return err
				}
				switch end {
				case "panic":
					panic(end)
				case "Goexit":
					runtime.Goexit()
				}
				return nil
			})
			left.Wait()
			if g.entered.Load() != 8 || g.peak.Load() != 1 {
				t.Errorf("%s: %d branches, %d at a time; want 8, 1", end, g.entered.Load(), g.peak.Load())
			}
			g = gauge{}
			if err := fanout.ForEach(ctx, 4, numbers(4), func(ctx context.Context, _ int) error {
				return g.work(ctx, time.Second)
			}); err != nil || g.peak.Load() != 1 {
				t.Errorf("%s: afterwards %d at a time, error %v", end, g.peak.Load(), err)
			}
		})
	}
}

func TestAPanicInANestedFanOutGivesEveryPlaceBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := sharing(t, t.Context(), 1)
		for range 3 {
			err := fanout.ForEach(ctx, 2, numbers(2), func(ctx context.Context, _ int) error {
				if err := fanout.ForEach(ctx, 2, numbers(2), func(context.Context, int) error { panic(errBranch) }); err != nil {
					panic(err)
				}
				return nil
			})
			if !errors.Is(err, errBranch) {
				t.Error(err)
			}
		}
	})
}
