package fanout_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/fanout"
)

// A branch comes back from a first nested fan-out while a stranger has the only
// place, for ten seconds. Before the branch has it again, something happens that
// makes the place useless to who waits for it.
func TestABranchThatComesBackHandsOnAPlaceThatItNoLongerNeeds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// meanwhile runs in the branch, on another goroutine, from the 5th second.
		meanwhile func(t *testing.T, ctx context.Context, g *gauge)
		leaves    bool          // the branch returns in the meantime
		want      time.Duration // until all is over
	}{
		{"it fans out again", func(t *testing.T, ctx context.Context, g *gauge) {
			if err := fanout.ForEach(ctx, 2, numbers(2), func(ctx context.Context, _ int) error {
				return g.work(ctx, time.Second)
			}); err != nil {
				t.Error(err)
			}
		}, false, 14 * time.Second}, // 1 child, 10 stranger, 2 children, 1 own work
		{"it fans out again in vain", func(t *testing.T, ctx context.Context, g *gauge) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := fanout.ForEach(ctx, 2, numbers(2), func(ctx context.Context, _ int) error {
				return g.work(ctx, time.Second)
			}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want the deadline", err)
			}
			g.enter() // its own work, for which it needs the place
			time.Sleep(time.Second)
			g.leave()
		}, false, 13 * time.Second},
		{"it returns", func(*testing.T, context.Context, *gauge) {}, true, 12 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			request := sharing(t, t.Context(), 1)
			start := time.Now()
			var g gauge
			var strangers, left sync.WaitGroup
			if err := fanout.ForEach(request, 1, numbers(1), func(ctx context.Context, _ int) error {
				var own sync.WaitGroup
				first := func() {
					if err := fanout.ForEach(context.WithoutCancel(ctx), 1, numbers(1), func(ctx context.Context, _ int) error {
						return g.work(ctx, time.Second)
					}); err != nil {
						t.Error(err)
					}
				}
				if tc.leaves {
					left.Go(first)
				} else {
					own.Go(first)
				}
				synctest.Wait()
				strangers.Go(func() {
					if err := fanout.ForEach(request, 1, numbers(1), func(ctx context.Context, _ int) error {
						return g.work(ctx, 10*time.Second)
					}); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(5 * time.Second)
				tc.meanwhile(t, ctx, &g)
				own.Wait()
				if !tc.leaves {
					return g.work(ctx, time.Second)
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			strangers.Wait()
			left.Wait()
			if err := fanout.ForEach(request, 2, numbers(1), func(ctx context.Context, _ int) error {
				if tc.leaves {
					return g.work(ctx, time.Second)
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			if took := time.Since(start); took != tc.want || g.peak.Load() != 1 {
				t.Errorf("%s: took %v with %d at a time, want %v and 1", tc.name, took, g.peak.Load(), tc.want)
			}
		})
	}
}

func TestABranchThatIsCancelledBetweenTwoWidthsGivesTheInnerPlaceBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer := sharing(t, t.Context(), 1)
		inner := sharing(t, outer, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := fanout.ForEach(outer, 1, numbers(1), func(ctx context.Context, _ int) error {
				return sleep(ctx, 10*time.Second)
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(inner, time.Second)
		defer cancel()
		if err := fanout.ForEach(ctx, 1, numbers(1), func(context.Context, int) error {
			return nil
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
		if err := fanout.ForEach(inner, 1, numbers(1), func(context.Context, int) error { return nil }); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}
