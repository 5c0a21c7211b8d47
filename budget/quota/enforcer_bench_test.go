package quota_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// roomyLimits are five limits over three scopes, none of which binds.
func roomyLimits() quota.LimitsConfig {
	const many = quota.MaxAmount
	return limitsOf(
		quota.Limit{Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Tokens: many}},
		quota.Limit{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: many}},
		quota.Limit{Scope: quota.Team, Window: quota.Month, Max: quota.Max{quota.Tokens: many}},
		quota.Limit{Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Money: many}},
		quota.Limit{Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Calls: many}},
	)
}

func noHooks(c *quota.Config) { c.Hooks = quota.Hooks{} }

func BenchmarkMeteredCall(b *testing.B) {
	w := newWorld(b, roomyLimits(), noHooks)
	turn := w.admit(quota.WithTurnLimits(as("ann"), quota.TurnLimits{Calls: quota.NoCap}))
	defer turn.End()
	ctx, limiter := turn.Context(), w.Budget()
	estimate, actual := usage.Usage{Input: 3_000, Output: 1_024}, usage.Usage{Input: 3_000, Output: 400}
	b.ReportAllocs()
	for b.Loop() {
		r, err := limiter.Reserve(ctx, budget.Call{ID: "call", Model: "m-1", Usage: estimate})
		if err == nil {
			err = r.Settle(ctx, actual)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	five := roomyLimits().Limits
	turns := quota.Limit{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 1}}
	for _, c := range []struct {
		name  string
		taken bool
	}{{"admitted", false}, {"denied", true}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, limitsOf(append([]quota.Limit{turns}, five...)...), noHooks)
			ctx, cancel := context.WithCancel(as("ann"))
			defer cancel()
			if c.taken {
				defer w.admit(ctx).End()
			}
			b.ReportAllocs()
			for b.Loop() {
				turn, err := w.Admit(ctx)
				if err != nil || (turn.Denied() != nil) != c.taken {
					b.Fatal(turn.Denied(), err)
				}
				turn.End()
			}
		})
	}
}
