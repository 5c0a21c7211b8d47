package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// A call that takes more than there ever is runs when everything is there, though its
// gate has held a part of that when it came.
func TestACallLargerThanTheWholeGetsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		bucket   bool
		headroom float64
		small    ratelimited.Call
		large    ratelimited.Call
	}{
		{"slots", true, 1, ratelimited.Call{Usage: usage.Usage{Input: 1}}, ratelimited.Call{Slots: 12, Usage: usage.Usage{Input: 1}}},
		{"bucket", true, 1, call(20), call(2500)},
		{"window", false, 0.5, call(20), call(700)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := open(share.CoordinatorConfig{})
				cfg := ratelimited.Config{Slots: 8, Profile: tokens(1000, c.bucket), Headroom: c.headroom}
				g, other := join(t, agent.Config{Open: store.Open}, cfg), join(t, agent.Config{Open: store.Open}, cfg)
				defer end(t, g)
				defer end(t, other)
				one := func(call ratelimited.Call) {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					permit, err := g.Acquire(ctx, call)
					if err != nil {
						t.Errorf("%d units and %d slots: %v", call.Usage.Input, call.Slots, err)
						return
					}
					permit.Counted()
					time.Sleep(20 * time.Millisecond)
					permit.End(call.Usage)
				}
				for range 20 { // there is a stock
					one(c.small)
				}
				one(c.large)
			})
		})
	}
}
