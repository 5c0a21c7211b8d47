package quota_test

import (
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// finalWorld lets calls pass that get the last of a limit.
func finalWorld(t *testing.T, limits ...quota.Limit) *world {
	return newWorld(t, limitsOf(limits...), func(c *quota.Config) { c.FinalOutput = 50 })
}

type clamped interface {
	MaxOutput() (tokens int64, ok bool)
}

func TestTheLastOfABudgetIsForOneShorterCallAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := finalWorld(t, daily("day", quota.User, quota.Tokens, 1_000), daily("team", quota.Team, quota.Tokens, 1_000_000))
		r := w.reserve(as("ann"), usage.Usage{Input: 100, Output: 500})
		if _, ok := r.(clamped).MaxOutput(); ok {
			t.Error("a call with room is shortened")
		}
		w.settle(r, usage.Usage{Input: 100, Output: 500})

		last := w.reserve(as("ann"), usage.Usage{Input: 100, Output: 500})
		if most, ok := last.(clamped).MaxOutput(); !ok || most != 300 {
			t.Errorf("the last call has room for %d, %v, want 300", most, ok)
		}
		w.stands(as("ann"), "day", quota.Tokens, 600, 400)
		w.stands(as("ann"), "team", quota.Tokens, 600, 400)

		d := w.denied(as("ann"), usage.Usage{Input: 10, Output: 100})
		if d.Reason != quota.ReasonBusy || d.RetryAfter <= 0 {
			t.Errorf("a call beside it: %v", d)
		}
		w.call(as("bob"), tokens(1)) // other users are not concerned

		w.settle(last, usage.Usage{Input: 100, Output: 120})
		last = w.reserve(as("ann"), usage.Usage{Input: 100, Output: 500})
		if most, _ := last.(clamped).MaxOutput(); most != 80 {
			t.Errorf("then there is room for %d, want 80", most)
		}
		w.settle(last, usage.Usage{Input: 100, Output: 80})
		if d := w.denied(as("ann"), usage.Usage{Input: 1, Output: 500}); d.Reason != quota.ReasonExhausted {
			t.Errorf("with nothing left: %v", d)
		}
	})
}

func TestALastCallIsNotShorterThanIsWorthIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := finalWorld(t, daily("day", quota.User, quota.Tokens, 1_000))
		w.call(as("ann"), tokens(851))
		d := w.denied(as("ann"), usage.Usage{Input: 100, Output: 500}) // room for 49
		if d.Reason != quota.ReasonExhausted || d.Left() != 149 {
			t.Error(d)
		}
		r := w.reserve(as("ann"), usage.Usage{Input: 99, Output: 500})
		if most, ok := r.(clamped).MaxOutput(); most != 50 || !ok {
			t.Errorf("room for %d", most)
		}
	})
}

func TestTheLastCallFitsUnderAllLimitsInTheirUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := finalWorld(t,
			daily("tokens", quota.User, quota.Tokens, 700),
			daily("credits", quota.Tenant, quota.Credits, 1_700),
			daily("money", quota.Global, quota.Money, 1_300),
		)
		r := w.reserve(as("ann"), usage.Usage{Input: 100, Output: 900})
		if most, ok := r.(clamped).MaxOutput(); !ok || most != 300 { // 100 + 4 × 300 micro-dollars
			t.Errorf("room for %d, %v, want 300", most, ok)
		}
		w.stands(as("ann"), "tokens", quota.Tokens, 0, 400)
		w.stands(as("ann"), "credits", quota.Credits, 0, 1_300)
		w.stands(as("ann"), "money", quota.Money, 0, 1_300)
	})
}

func TestCallsAreOnlyShortenedForWhoAskedForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000)))
		w.call(as("ann"), tokens(600))
		if d := w.denied(as("ann"), tokens(500)); d.Reason != quota.ReasonExhausted {
			t.Error(d)
		}
	})
}

func TestCallsThatGetTheLastOfASharedLimitGoOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := finalWorld(t, daily("tenant", quota.Tenant, quota.Tokens, 1_000), daily("user", quota.User, quota.Tokens, 300))
		w.call(as("joe"), tokens(300))
		w.call(as("eve"), tokens(200))
		w.call(as("ann"), tokens(100))
		// 400 are left of the tenant's and 200 of ann's. Her last call takes these.
		last := w.reserve(as("ann"), tokens(500))
		w.stands(as("ann"), "tenant", quota.Tokens, 600, 200)
		if d := w.denied(as("bob"), tokens(280)); d.Reason != quota.ReasonBusy || d.Limit != "tenant" || d.RetryAfter <= 0 {
			t.Errorf("bob's call would have to be shortened, too: %v", d)
		}
		w.call(as("bob"), tokens(50)) // and one that fits as it is need not wait
		w.settle(last, tokens(100))
		w.reserve(as("bob"), tokens(280))
	})
}
