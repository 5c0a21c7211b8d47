package quota_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// supportPlan is the plan of a support agent: 20 turns per minute with a burst of 5,
// 60,000 tokens per minute, 2 turns at a time.
func supportPlan(maxWait time.Duration) quota.LimitsConfig {
	return quota.LimitsConfig{Limits: []quota.Limit{
		{
			Name: "rate", Scope: quota.User, Window: aMinute, MaxWait: wait(maxWait),
			Max: quota.Max{quota.Turns: 20, quota.Tokens: 60_000}, Burst: quota.Max{quota.Turns: 5},
		},
		{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
	}}
}

func TestABurstOfTurnsPassesAndTheOthersAreToldExactlyWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(2*time.Second))
		begin := time.Now()
		for i := range 10 { // one each 100 ms
			time.Sleep(time.Until(begin.Add(time.Duration(i) * 100 * time.Millisecond)))
			if i < 5 {
				w.admit(as("ann")).End()
				continue
			}
			// A turn comes back each 3 s. The burst was never full again after the first
			// turn, so that the sixth is there 3 s after it.
			d := w.refused(as("ann"))
			want := 3*time.Second - time.Since(begin)
			if d.Reason != quota.ReasonRate || d.Limit != "rate" || d.Unit != quota.Turns || d.RetryAfter != want {
				t.Errorf("turn %d: %v, want to be told to come back after %v", i+1, d, want)
			}
		}
		time.Sleep(3*time.Second - time.Since(begin) - 1)
		if d := w.refused(as("ann")); d.RetryAfter != 1 {
			t.Errorf("1 ns too early: %v", d)
		}
		time.Sleep(time.Nanosecond)
		w.admit(as("ann")).End()
		w.admit(as("bob")).End() // somebody else is not concerned
	})
}

func TestATurnMoreThanMayBeUnderWayIsRefusedUntilOneEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(2*time.Second))
		first, second := w.admit(as("ann")), w.admit(as("ann"))
		d := w.refused(as("ann"))
		if d.Reason != quota.ReasonConcurrency || d.Limit != "at-once" || d.Used != 2 || d.Max != 2 {
			t.Errorf("the third tab: %v", d)
		}
		first.End()
		first.End() // a second end gives back nothing of somebody else's
		third := w.admit(as("ann"))
		if d := w.refused(as("ann")); d.Reason != quota.ReasonConcurrency {
			t.Errorf("the fourth tab: %v", d)
		}
		second.End()
		third.End()
		w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 0)
	})
}

func TestADayOfCreditsHoldsFourteenMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Credits: 400_000}},
		}})
		typical := usage.Usage{Input: 3_000, Output: 400}
		messages, calls := 0, 0
		for ; ; messages++ {
			turn := w.admit(as("ann"))
			for range 6 { // a router, three specialists, two summaries
				r, err := w.try(turn.Context(), typical)
				if err != nil {
					d := asDenial(t, r, err)
					if got, want := told(d), "mid_turn exhausted day: 395600 of 400000 used, 4600 asked"; got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
					if midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC); !d.ResetsAt.Equal(midnight) || d.RetryAfter != time.Until(midnight) {
						t.Errorf("resets at %v, in %v", d.ResetsAt, d.RetryAfter)
					}
					turn.End()
					if messages != 14 || calls != 86 {
						t.Errorf("%d whole messages and %d calls passed, want 14 and 86", messages, calls)
					}
					time.Sleep(d.RetryAfter)
					w.call(as("ann"), typical)
					return
				}
				w.settle(r, typical)
				calls++
			}
			turn.End()
		}
	})
}

func TestTheTeamsLimitBindsBeforeItsUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "user", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Credits: 400_000}},
			{Name: "team", Scope: quota.Team, Window: quota.Month, Max: quota.Max{quota.Credits: 20_000_000}},
			{Name: "tenant", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Credits: 50_000_000}},
		}})
		// Sixty users at their full daily limit would come to 24 million on the first day.
		for i := range 60 {
			ctx := as(fmt.Sprint("user-", i))
			if i < 50 {
				w.call(ctx, tokens(100_000)) // 400,000 credits
				continue
			}
			d := w.denied(ctx, tokens(1))
			if got, want := told(d), "mid_turn exhausted team: 20000000 of 20000000 used, 4 asked"; got != want {
				t.Fatalf("user %d: got %s, want %s", i, got, want)
			}
			w.stands(ctx, "user", quota.Credits, 0, 0)
			w.stands(ctx, "tenant", quota.Credits, 20_000_000, 0)
		}
		if d := w.refused(as("user-59")); d.Limit != "team" || d.Stage != quota.Admission {
			t.Errorf("the next turn: %v", d)
		}
	})
}

// bucketWith leaves a bucket of 60,000 tokens per minute with so much.
func bucketWith(w *world, left int64) {
	w.call(as("ann"), tokens(60_000-left))
}

func TestACallMayGoIntoDebtAndWaitsUntilItIsRepaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(4*time.Second))
		bucketWith(w, 2_000)
		begin := time.Now()
		w.reserve(as("ann"), tokens(6_000)) // 4,000 tokens come back in 4 s
		if waited := time.Since(begin); waited != 4*time.Second {
			t.Errorf("waited %v, want 4s", waited)
		}
		w.stands(as("ann"), "rate", quota.Tokens, 60_000, 6_000)
	})
}

func TestBeyondTheLongestWaitNothingIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(4*time.Second-1))
		bucketWith(w, 2_000)
		d := w.denied(as("ann"), tokens(6_000))
		if d.Reason != quota.ReasonRate || d.Used != 58_000 || d.RetryAfter != 1 {
			t.Errorf("got %v, want to come back after 1 ns", d)
		}
		w.stands(as("ann"), "rate", quota.Tokens, 58_000, 0)
		w.reserve(as("ann"), tokens(2_000))
	})
}

func TestAnEmptyBucketRefusesOrDelaysByItsLongestWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		maxWait, retry time.Duration
	}{{2 * time.Second, 4 * time.Second}, {6 * time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, supportPlan(c.maxWait))
			bucketWith(w, 0)
			begin := time.Now()
			r, err := w.try(as("ann"), tokens(6_000))
			if c.retry == 0 {
				if err != nil || time.Since(begin) != 6*time.Second {
					t.Errorf("with %v: %v after %v, want a wait of 6s", c.maxWait, err, time.Since(begin))
				}
				return
			}
			if d := asDenial(t, r, err); d.RetryAfter != c.retry || d.Stage != quota.MidTurn || time.Since(begin) != 0 {
				t.Errorf("with %v: %v", c.maxWait, d)
			}
		})
	}
}

func TestATurnCanDemandRoomForAllOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(2*time.Second))
		whole := func(user string) *quota.Turn {
			ctx := quota.WithTurnLimits(as(user), quota.TurnLimits{Room: quota.Max{quota.Tokens: 18_000}})
			turn, err := w.Admit(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return turn
		}
		for i := range 3 { // three calls of 6,000 tokens each, three times
			turn := whole("ann")
			if d := turn.Denied(); d != nil {
				t.Fatalf("turn %d: %v", i, d)
			}
			for range 3 {
				w.call(turn.Context(), tokens(6_000))
			}
			turn.End()
		}
		d := whole("ann").Denied()
		if d == nil || d.Reason != quota.ReasonRate || d.Unit != quota.Tokens || d.RetryAfter != 12*time.Second {
			t.Fatalf("with 6,000 left: %v, want to come back when 18,000 are there", d)
		}
		w.admit(as("ann")).End() // without the demand, something left is enough
		time.Sleep(12 * time.Second)
		turn := whole("ann")
		if turn.Denied() != nil {
			t.Error(turn.Denied())
		}
		turn.End()
	})
}

func TestALimitBelowTheRoomThatIsDemandedSufficesWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(2*time.Second))
		ctx := quota.WithTurnLimits(as("ann"), quota.TurnLimits{Room: quota.Max{quota.Tokens: 100_000}})
		w.admit(ctx).End()
		w.call(ctx, tokens(1))
		if d := w.refused(ctx); d.Unit != quota.Tokens || d.Never {
			t.Errorf("with a token less: %v", d)
		}
	})
}

func TestAnUpgradeKeepsWhatWasSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{
			Limits: []quota.Limit{
				{Name: "user-day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 1_000_000}},
				{Name: "global-month", Scope: quota.Global, Window: quota.Month, Max: quota.Max{quota.Money: 200_000_000}},
			},
			Plans: []quota.Plan{{Name: "pro", Limits: []quota.Limit{
				{Name: "user-day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 10_000_000}},
				{Scope: quota.User, Window: quota.Minute, Max: quota.Max{quota.Tokens: 20_000_000}},
			}}},
		})
		w.call(as("alice"), tokens(200_000)) // $0.80
		if left := w.standing(as("alice"), "user-day", quota.Money).Left; left != 200_000 {
			t.Errorf("%d micro-dollars are left, want 0.20 dollars", left)
		}
		pro := w.standing(onPlan("alice", "pro"), "user-day", quota.Money)
		if pro.Left != 9_200_000 || pro.Max != 10_000_000 {
			t.Errorf("on pro %d of %d micro-dollars are left, want 9.20 dollars of 10", pro.Left, pro.Max)
		}
		w.stands(as("bob"), "global-month", quota.Money, 800_000, 0)
	})
}

func TestADenialSaysWhenWhateverElseDenies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(
			quota.Limit{Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Turns: 20}, Burst: quota.Max{quota.Turns: 2}},
			quota.Limit{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
		))
		one, _ := w.admit(as("alice")), w.admit(as("alice"))
		d := w.refused(as("alice"))
		if d.Reason != quota.ReasonRate || d.RetryAfter != 3*time.Second {
			t.Errorf("got %v, want to be told to come back in 3s", d)
		}
		one.End()
		time.Sleep(d.RetryAfter - time.Nanosecond)
		w.refused(as("alice"))
		time.Sleep(time.Nanosecond)
		w.admit(as("alice"))
	})
}

func TestWhatNeverFitsSaysSoWhateverElseDenies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(
			daily("mine", quota.User, quota.Tokens, 100),
			daily("ours", quota.Tenant, quota.Tokens, 90),
		))
		w.call(as("alice"), tokens(10))
		if d := w.denied(as("alice"), tokens(95)); told(d) != "mid_turn never_fits ours: 10 of 90 used, 95 asked" || !d.Never || d.RetryAfter != 0 {
			t.Errorf("got %v", d)
		}
	})
}

func TestACallerInAHurryIsNotToldNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(quota.Limit{
			Name: "fast", Scope: quota.User, Window: aMinute,
			Max: quota.Max{quota.Tokens: 60_000}, Burst: quota.Max{quota.Tokens: 1000}, MaxWait: wait(2 * time.Second),
		}))
		ctx, cancel := context.WithTimeout(as("alice"), 500*time.Millisecond)
		defer cancel()
		if d := w.denied(ctx, tokens(2000)); d.Never || d.Reason != quota.ReasonRate || d.RetryAfter != time.Second {
			t.Errorf("got %v, want a rate that passes with a second of time", d)
		}
		w.stands(as("alice"), "fast", quota.Tokens, 0, 0)
		w.reserve(as("alice"), tokens(2000))
		if d := w.denied(as("bob"), tokens(3001)); !d.Never {
			t.Errorf("got %v, which never passes", d)
		}
	})
}
