package quota_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

func TestARunawayLoopIsStoppedAtTheTurnsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{})
		turn := w.admit(as("ann"))
		defer turn.End()
		for range quota.DefaultTurnCalls {
			w.call(turn.Context(), tokens(1))
		}
		d := w.denied(turn.Context(), tokens(1))
		if got := told(d); got != "mid_turn turn_calls : 500 of 500 used, 1 asked" {
			t.Error(got)
		}
		if turn.Stopped() != d {
			t.Errorf("the turn was stopped by %v", turn.Stopped())
		}
		other := w.admit(as("ann"))
		defer other.End()
		w.call(other.Context(), tokens(1))
		if other.Stopped() != nil {
			t.Error("a turn was stopped by the calls of another one")
		}
	})
}

func TestTheTurnsBoundsHoldOverAllThatWorksInIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{})
		endpoint := quota.WithTurnLimits(as("ann"), quota.TurnLimits{Calls: 5})
		turn := w.admit(endpoint)
		defer turn.End()
		agent := quota.WithTurnLimits(turn.Context(), quota.TurnLimits{Calls: 2}) // a sub-agent's own
		w.call(agent, tokens(1))
		nested := w.admit(quota.WithTurnLimits(agent, quota.TurnLimits{Calls: quota.NoCap})) // an agent as its tool
		w.call(nested.Context(), tokens(1))
		if d := w.denied(nested.Context(), tokens(1)); d.Max != 2 {
			t.Errorf("the agent's third call: %v", d)
		}
		for range 3 {
			w.call(turn.Context(), tokens(1))
		}
		if d := w.denied(turn.Context(), tokens(1)); d.Max != 5 || d.Used != 5 {
			t.Errorf("the turn's sixth call: %v", d)
		}
		if calls, _ := turn.Used(); calls != 5 {
			t.Errorf("%d calls were counted, want 5", calls)
		}
	})
}

func TestWhatIsNotSetComesFromTheCommonBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) {
			c.Turn = quota.TurnLimits{Calls: 3, Cost: 1_000_000}
		})
		ctx := quota.WithTurnLimits(as("ann"), quota.TurnLimits{Cost: 500_000})
		ctx = quota.WithTurnLimits(ctx, quota.TurnLimits{MaxOutput: 100})
		turn := w.admit(ctx)
		defer turn.End()
		w.call(turn.Context(), tokens(100_000)) // $0.40
		if d := w.denied(turn.Context(), tokens(50_000)); d.Reason != quota.ReasonTurnCost || d.Max != 500_000 {
			t.Errorf("above the endpoint's cost: %v", d)
		}
		w.call(turn.Context(), tokens(1))
		w.call(turn.Context(), tokens(1))
		if d := w.denied(turn.Context(), tokens(1)); d.Reason != quota.ReasonTurnCalls || d.Max != 3 {
			t.Errorf("above the common number of calls: %v", d)
		}
	})
}

func TestTheTurnsCostIsWhatIsSpentAndWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) { c.Turn.Cost = 1_000_000 })
		turn := w.admit(as("ann"))
		defer turn.End()
		spends := func(want usage.Micros) {
			t.Helper()
			if _, cost := turn.Used(); cost != want {
				t.Errorf("the turn costs %v, want %v", cost, want)
			}
		}
		first := w.reserve(turn.Context(), tokens(150_000)) // $0.60
		if d := w.denied(turn.Context(), tokens(150_000)); told(d) != "mid_turn turn_cost : 600000 of 1000000 used, 600000 asked" {
			t.Error(told(d))
		}
		spends(600_000)
		w.settle(first, tokens(50_000)) // $0.20
		spends(200_000)
		second := w.reserve(turn.Context(), tokens(150_000))
		if err := second.Release(context.Background()); err != nil {
			t.Error(err)
		}
		spends(200_000)
		paid, err := w.Meter(turn.Context(), quota.Cost{Tool: "search", Money: 700_000})
		if err != nil {
			t.Fatal(err)
		}
		spends(900_000)
		if err := paid.Settle(context.Background(), quota.Cost{Money: 750_000}); err != nil {
			t.Error(err)
		}
		spends(950_000)
		if _, err := w.Meter(turn.Context(), quota.Cost{Tool: "search", Money: 60_000}); err == nil {
			t.Error("a tool was let through above the turn's cost")
		}
	})
}

func TestWhatIsFreePassesHoweverMuchTheTurnHasCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{})
		turn := w.admit(as("ann"))
		defer turn.End()
		free := budget.Call{ID: budget.NewID(), Model: "m-free", Usage: tokens(100)}
		for _, actual := range []usage.Micros{900_000, 1_000_000, 1_100_000} { // less, all, and more
			ctx := quota.WithTurnLimits(turn.Context(), quota.TurnLimits{Cost: 1_000_000})
			paid, err := w.Meter(ctx, quota.Cost{Tool: "search"})
			if err != nil {
				t.Fatal(err)
			}
			if err := paid.Settle(ctx, quota.Cost{Tool: "search", Money: actual}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Meter(ctx, quota.Cost{Tool: "clock"}); err != nil {
				t.Errorf("after %v a tool that costs nothing: %v", actual, err)
			}
			if _, err := w.Budget().Reserve(ctx, free); err != nil {
				t.Errorf("after %v a model that costs nothing: %v", actual, err)
			}
			if _, err := w.Meter(ctx, quota.Cost{Tool: "search", Money: 100_001}); err == nil {
				t.Errorf("after %v a tool that costs too much was let through", actual)
			}
		}
	})
}

func TestParallelBranchesDoNotOverspendTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) { c.Turn = quota.TurnLimits{Calls: 10} })
		turn := w.admit(as("ann"))
		defer turn.End()
		var all sync.WaitGroup
		var mu sync.Mutex
		passed := 0
		for range 40 {
			all.Go(func() {
				if _, err := w.try(turn.Context(), tokens(1)); err == nil {
					mu.Lock()
					passed++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if passed != 10 {
			t.Errorf("%d calls passed, want 10", passed)
		}
	})
}

func TestACallThatALimitDeniesIsNotOneOfTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}},
		}}, func(c *quota.Config) { c.Turn = quota.TurnLimits{Calls: 2, Cost: 1_000_000} })
		turn := w.admit(as("ann"))
		defer turn.End()
		for range 5 {
			w.denied(turn.Context(), tokens(101))
		}
		w.call(turn.Context(), tokens(10))
		if calls, cost := turn.Used(); calls != 1 || cost != 40 {
			t.Errorf("counted %d calls for %v", calls, cost)
		}
	})
}

func TestACallThatAnOuterBoundDeniesCountsUnderNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) { c.Turn.Cost = 100 })
		turn := w.admit(as("ann"))
		defer turn.End()
		agent := quota.WithTurnLimits(turn.Context(), quota.TurnLimits{Calls: 2})
		for range 5 {
			if d := w.denied(agent, tokens(26)); d.Reason != quota.ReasonTurnCost {
				t.Errorf("above the turn's cost: %v", d)
			}
		}
		w.call(agent, tokens(1))
		w.call(agent, tokens(1))
	})
}

func TestBoundsHoldForTheNextTurnOfTheirContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{})
		ctx := quota.WithTurnLimits(as("ann"), quota.TurnLimits{Calls: 1})
		for _, calls := range []int{1, 1, 2} {
			if calls == 2 {
				ctx = quota.WithTurnLimits(ctx, quota.TurnLimits{Calls: 2})
			}
			turn := w.admit(ctx)
			ctx = turn.Context()
			for range calls {
				w.call(ctx, tokens(1))
			}
			if d := w.denied(ctx, tokens(1)); d.Reason != quota.ReasonTurnCalls {
				t.Errorf("got %v", d)
			}
			turn.End()
		}
		if _, err := w.Admit(quota.WithTurnLimits(ctx, quota.TurnLimits{Calls: -2})); err == nil {
			t.Error("a turn begins with limits that are not valid")
		}
	})
}

func TestTurnsOfSeveralEnforcersHaveTheirBoundsEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, other := newWorld(t, quota.LimitsConfig{}), newWorld(t, quota.LimitsConfig{})
		turn := one.admit(quota.WithTurnLimits(as("ann"), quota.TurnLimits{Calls: 3}))
		agent := quota.WithTurnLimits(turn.Context(), quota.TurnLimits{Calls: 1})
		both := other.admit(agent).Context()
		for _, w := range []*world{one, other} {
			w.call(both, tokens(1))
			if d := w.denied(both, tokens(1)); d.Reason != quota.ReasonTurnCalls || d.Max != 1 {
				t.Errorf("got %v", d)
			}
		}
		one.call(turn.Context(), tokens(1))
		one.call(turn.Context(), tokens(1))
		if d := one.denied(turn.Context(), tokens(1)); d.Reason != quota.ReasonTurnCalls || d.Max != 3 {
			t.Errorf("got %v", d)
		}
	})
}

func TestACallWhoseWaitEndsIsNotOneOfTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := quota.Limit{Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Tokens: 60}, MaxWait: wait(time.Minute)}
		w := newWorld(t, limitsOf(limit))
		turn := w.admit(quota.WithTurnLimits(as("ann"), quota.TurnLimits{Calls: 2, Cost: 1000}))
		w.call(turn.Context(), tokens(60))
		ctx, cancel := context.WithCancel(turn.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := w.try(ctx, tokens(30)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if calls, cost := turn.Used(); calls != 1 || cost != 240 {
			t.Errorf("the turn has made %d calls for %v", calls, cost)
		}
		w.call(turn.Context(), tokens(30))
	})
}

func TestLimitsAroundInvalidOnesStayInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quota.LimitsConfig{})
	ctx := quota.WithTurnLimits(quota.WithTurnLimits(as("ann"), quota.TurnLimits{Calls: -2}), quota.TurnLimits{Calls: 2})
	if _, err := w.Admit(ctx); err == nil {
		t.Error("a turn begins")
	}
	if _, err := w.try(ctx, tokens(1)); err == nil {
		t.Error("a call is made")
	}
}

func TestTheOutputLimitOfATurnHoldsWithinItsAgentsToo(t *testing.T) {
	t.Parallel()
	limit := daily("day", quota.User, quota.Tokens, 10_000)
	limit.Hold = quota.Worst
	w := newWorld(t, limitsOf(limit))
	turn := w.admit(quota.WithTurnLimits(as("ann"), quota.TurnLimits{MaxOutput: 2000}))
	defer turn.End()
	w.reserve(quota.WithTurnLimits(turn.Context(), quota.TurnLimits{Calls: 3}), tokens(10))
	w.stands(as("ann"), "day", quota.Tokens, 0, 2000)
}

func TestInvalidTurnLimitsNameTheField(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{})
		turn := w.admit(as("ann"))
		defer turn.End()
		for _, c := range []struct {
			limits quota.TurnLimits
			want   string
		}{
			{quota.TurnLimits{Calls: -2}, "TurnLimits.Calls is -2"},
			{quota.TurnLimits{Cost: -2}, "TurnLimits.Cost is -2"},
			{quota.TurnLimits{MaxOutput: -1}, "TurnLimits.MaxOutput is -1"},
			{quota.TurnLimits{Room: quota.Max{quota.Tokens: -1}}, "TurnLimits.Room[tokens] is -1"},
			{quota.TurnLimits{Room: quota.Max{quota.Turns: 1}}, "TurnLimits.Room has turns"},
			{quota.TurnLimits{Room: quota.Max{quota.Unit(99): 1}}, "TurnLimits.Room has unit(99)"},
		} {
			_, atAdmission := w.Admit(quota.WithTurnLimits(as("ann"), c.limits))
			_, midTurn := w.try(quota.WithTurnLimits(turn.Context(), c.limits), tokens(1))
			for stage, err := range map[string]error{"admission": atAdmission, "mid-turn": midTurn, "validate": c.limits.Validate()} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want %q", stage, err, c.want)
				}
			}
		}
	})
}
