package ratelimited_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// A limit that was searched for and is told after all is kept in every window, of
// the shape that the profile says, and nearly all of it is used.
func TestALimitThatIsToldAfterAllIsKept(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{10, 60, 6000} {
		for shape, most := range map[ratelimited.Window]int64{ratelimited.Sliding: limit, ratelimited.Bucket: 2 * limit} {
			synctest.Test(t, func(t *testing.T) {
				g, err := ratelimited.NewGate(ratelimited.Config{
					Slots: 100, Headroom: 1,
					Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{{
						Name: "requests", Limit: ratelimited.Unknown, Count: ratelimited.OneRequest, Shape: shape,
					}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close(context.Background())
				if err := g.SetLimit("requests", limit); err != nil {
					t.Fatal(err)
				}
				var at []time.Time // of the calls in the last window
				worst := 0
				for _, quiet := range []time.Duration{0, 10 * time.Minute} {
					time.Sleep(quiet)
					n := int64(0)
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					for {
						permit, err := g.Acquire(ctx, ratelimited.Call{Usage: usage.Usage{Input: 1}})
						if err != nil {
							break
						}
						permit.Counted()
						permit.End(usage.Usage{Input: 1})
						n++
						at = append(at, time.Now())
						for time.Since(at[0]) >= time.Minute {
							at = at[1:]
						}
						worst = max(worst, len(at))
					}
					cancel()
					if n < 5*limit*9/10 {
						t.Errorf("%d a minute, shape %d: %d calls in five minutes", limit, shape, n)
					}
				}
				if int64(worst) > most {
					t.Errorf("%d a minute, shape %d: %d calls in one minute, want at most %d", limit, shape, worst, most)
				}
			})
		}
	}
}
