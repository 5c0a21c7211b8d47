package quota_test

import (
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// A call that tells the limit of its output is held at it where a limit holds the
// worst, whatever its turn says.
func TestTheWorstIsTheLimitThatACallTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		worst := daily("worst", quota.User, quota.Tokens, 100_000)
		worst.Hold = quota.Worst
		w := newWorld(t, limitsOf(worst))
		turn := w.admit(quota.WithTurnLimits(as("ann"), quota.TurnLimits{MaxOutput: 2_000}))
		defer turn.End()
		for _, c := range []struct{ tells, want int64 }{{0, 100 + 2_000}, {5_000, 100 + 5_000}, {700, 100 + 700}, {-1, 100 + 2_000}} {
			r, err := w.Budget().Reserve(turn.Context(), budget.Call{
				ID: budget.NewID(), Model: "m-1", MaxOutput: c.tells, Usage: usage.Usage{Input: 100, Output: 500, Flags: usage.Estimated},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := w.standing(as("ann"), "worst", quota.Tokens).Reserved; got != c.want {
				t.Errorf("a call that tells %d holds %d, want %d", c.tells, got, c.want)
			}
			if err := r.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
