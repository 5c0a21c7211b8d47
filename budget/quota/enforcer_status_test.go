package quota_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

func TestAChangeOfPlanInTheMiddleOfAWindowKeepsSpendAndCountsNoRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		week := func(n int64) quota.LimitsConfig {
			return limitsOf(quota.Limit{Name: "week", Scope: quota.User, Window: quota.Week, Max: quota.Max{quota.Tokens: n}})
		}
		w := newWorld(t, week(200))
		change := func(n int64) {
			t.Helper()
			limits, err := quota.NewLimits(week(n))
			if err == nil {
				err = w.Reload(limits)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		left := func(want int64) {
			t.Helper()
			if st := w.standing(as("ann"), "week", quota.Tokens); st.Left != want {
				t.Errorf("%d are left, want %d", st.Left, want)
			}
		}
		w.call(as("ann"), tokens(150))
		flying := w.reserve(as("ann"), tokens(30))
		change(50)
		left(0) // and not −130
		d := w.denied(as("ann"), tokens(1))
		if d.Left() != 0 || d.ResetsAt.Weekday() != time.Monday {
			t.Errorf("after the downgrade: %v", d)
		}
		w.settle(flying, tokens(30))
		change(200)
		left(20)
		change(500)
		left(320)

		change(10_000)
		w = newWorld(t, week(10))
		passed := 0
		for range 50 {
			if r, err := w.try(as("ann"), tokens(1)); err == nil {
				w.settle(r, tokens(1))
				passed++
			}
		}
		change(20)
		for range 12 {
			if r, err := w.try(as("ann"), tokens(1)); err == nil {
				w.settle(r, tokens(1))
				passed++
			}
		}
		if passed != 20 {
			t.Errorf("%d passed, want 10 and 10 more", passed)
		}
	})
}

func TestReloadRefusesWhatCannotBeEnforced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("tokens", quota.User, quota.Tokens, 10)), func(c *quota.Config) { c.Catalog = nil })
		money, err := quota.NewLimits(limitsOf(daily("money", quota.User, quota.Money, 10)))
		if err != nil {
			t.Fatal(err)
		}
		other, err := quota.NewHierarchy(quota.ScopeSpec{Scope: quota.User})
		if err != nil {
			t.Fatal(err)
		}
		elsewhere, err := quota.NewLimits(quota.LimitsConfig{Hierarchy: other})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*quota.Limits{nil, money, elsewhere} {
			if err := w.Reload(l); err == nil {
				t.Errorf("%v was taken", l)
			}
		}
		if d := w.denied(as("ann"), tokens(11)); d.Limit != "tokens" {
			t.Errorf("the limits that there were: %v", d)
		}
	})
}

func TestOtherWeightsOfCreditsHoldForCallsThatBeginLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Credits, 20_000)))
		call := usage.Usage{Input: 1_000, Output: 500}
		before := w.reserve(as("ann"), call)
		w.stands(as("ann"), "day", quota.Credits, 0, 3_000)

		twice := usage.Credits{Version: "twice", Input: usage.Thousandths(2000), Output: usage.Thousandths(8000)}
		if err := w.ReloadCredits(twice); err != nil {
			t.Fatal(err)
		}
		w.settle(before, call)
		w.stands(as("ann"), "day", quota.Credits, 3_000, 0)
		w.call(as("ann"), call)
		w.stands(as("ann"), "day", quota.Credits, 9_000, 0)

		if err := w.ReloadCredits(usage.Credits{Version: "half", Input: usage.Thousandths(500)}); err == nil || !strings.Contains(err.Error(), "weight of output") {
			t.Errorf("weights without that of output: %v", err)
		}
		w.call(as("ann"), call)
		w.stands(as("ann"), "day", quota.Credits, 15_000, 0)
	})
}

func TestLimitsOfCreditsCanBeNewWithTheirWeights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limitsOf(daily("tokens", quota.User, quota.Tokens, 10)), func(c *quota.Config) { c.Credits = usage.Credits{} })
	credits, err := quota.NewLimits(limitsOf(daily("day", quota.User, quota.Credits, 100)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Reload(credits); err == nil || !strings.Contains(err.Error(), `limit "day" has credits`) {
		t.Errorf("without weights: %v", err)
	}
	if err := errors.Join(w.ReloadCredits(fourToOne), w.Reload(credits)); err != nil {
		t.Fatal(err)
	}
	if d := w.denied(as("ann"), usage.Usage{Input: 1, Output: 25}); d.Limit != "day" || d.Requested != 101 {
		t.Errorf("a call of 101 credits: %v", d)
	}
}

func TestSpendCanBeGivenBackAndForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(
			quota.Limit{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000, quota.Calls: 10}},
			quota.Limit{Name: "rate", Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Tokens: 6_000}},
			daily("tenant", quota.Tenant, quota.Tokens, 5_000),
		))
		ctx := context.Background()
		ann, _ := quota.SubjectFrom(as("ann"))
		w.call(as("ann"), tokens(800))
		w.reserve(as("ann"), tokens(100))
		st, err := w.TopUp(ctx, ann, quota.User, quota.Tokens, 300)
		if err != nil || len(st) != 2 || st[0].Committed != 500 || st[0].Left != 400 || st[1].Left != 5_400 {
			t.Errorf("topped up: %+v, %v", st, err)
		}
		w.stands(as("ann"), "day", quota.Calls, 1, 1)
		w.stands(as("ann"), "tenant", quota.Tokens, 800, 100)
		if st, err := w.Reset(ctx, ann, quota.User); err != nil || len(st) != 3 {
			t.Errorf("reset: %+v, %v", st, err)
		}
		w.stands(as("ann"), "day", quota.Tokens, 0, 100)
		w.stands(as("ann"), "day", quota.Calls, 0, 1)
		w.stands(as("ann"), "tenant", quota.Tokens, 800, 100)

		if err := w.Erase(ctx, ann, quota.Tenant); err != nil {
			t.Error(err)
		}
		w.stands(as("ann"), "tenant", quota.Tokens, 0, 0)
		for what, err := range map[string]error{
			"a negative amount":  second(w.TopUp(ctx, ann, quota.User, quota.Tokens, -1)),
			"a unit of no limit": second(w.TopUp(ctx, ann, quota.User, quota.Money, 1)),
			"a scope of none":    second(w.Reset(ctx, ann, quota.Team)),
			"nobody":             w.Erase(ctx, quota.Subject{}, quota.User),
			"everybody":          w.Erase(ctx, ann, quota.Global),
		} {
			if err == nil {
				t.Errorf("%s was taken", what)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestDaysAreThoseOfTheTenantsZone(t *testing.T) {
	t.Parallel()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := daily("day", quota.User, quota.Tokens, 100)
		l.Window = quota.Day.InTenantZone()
		w := newWorld(t, limitsOf(l), func(c *quota.Config) {
			c.Zone = func(s quota.Subject) *time.Location {
				if s.Tenant == "acme" {
					return tokyo
				}
				return nil
			}
		})
		w.call(as("ann"), tokens(100))
		d := w.denied(as("ann"), tokens(1)) // it is 09:00 in Tokyo
		if d.RetryAfter != 15*time.Hour {
			t.Errorf("resets in %v, want 15h", d.RetryAfter)
		}
		time.Sleep(15*time.Hour - 1)
		w.denied(as("ann"), tokens(1))
		time.Sleep(time.Nanosecond)
		w.call(as("ann"), tokens(1))
		elsewhere := quota.WithSubject(context.Background(), quota.Subject{Tenant: "other", User: "ann"})
		if st := w.standing(elsewhere, "day", quota.Tokens); !st.ResetsAt.Equal(time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("elsewhere it resets at %v", st.ResetsAt)
		}
	})
}

func TestConfigNamesEveryFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	limits, err := quota.NewLimits(limitsOf(daily("money", quota.User, quota.Money, 1), daily("credits", quota.Team, quota.Credits, 1)))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	good := func() quota.Config {
		return quota.Config{Ledger: memory, Limits: limits, Catalog: catalog(t), Credits: fourToOne}
	}
	if _, err := quota.New(good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field string
		spoil func(*quota.Config)
	}{
		{"Config.Ledger is not set", func(c *quota.Config) { c.Ledger = nil }},
		{"Config.Limits is not set", func(c *quota.Config) { c.Limits = nil }},
		{"Config.Limits is not set", func(c *quota.Config) { c.Limits = (*quota.Limits)(nil) }},
		{`Config.Catalog is not set, but limit "money" has money`, func(c *quota.Config) { c.Catalog = nil }},
		{`Config.Credits is not set, but limit "credits" has credits`, func(c *quota.Config) { c.Credits = usage.Credits{} }},
		{"Config.Credits: ", func(c *quota.Config) { c.Credits.Version = "" }},
		{"Config.LedgerTimeout is -1ns", func(c *quota.Config) { c.LedgerTimeout = -1 }},
		{"Config.MaxTurn is -1ns", func(c *quota.Config) { c.MaxTurn = -1 }},
		{"Config.TTL is 1ms", func(c *quota.Config) { c.TTL = time.Millisecond }},
		{"Config.FinalOutput is -1", func(c *quota.Config) { c.FinalOutput = -1 }},
		{"Config.Mode is mode(9)", func(c *quota.Config) { c.Mode = 9 }},
		{"Config.Variant: ", func(c *quota.Config) { c.Variant = "night" }},
		{"Config.Turn: ", func(c *quota.Config) { c.Turn.Calls = -5 }},
		{"Config.Turn.Cost is $1.00", func(c *quota.Config) { c.Turn.Cost, c.Catalog = 1_000_000, nil }},
	} {
		cfg := good()
		c.spoil(&cfg)
		if _, err := quota.New(cfg); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("got %v, want %q", err, c.field)
		}
	}
}

func TestZonesThatAreMadeForEachCallAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := daily("day", quota.User, quota.Tokens, quota.MaxAmount)
		limit.Window = quota.Day.InTenantZone()
		w := newWorld(t, limitsOf(limit), noHooks, func(c *quota.Config) {
			c.Zone = func(quota.Subject) *time.Location { return time.FixedZone("UTC+1", 3600) }
		})
		for range quota.MaxKindsOfWindows + 100 {
			w.call(as("ann"), tokens(1))
		}
		if n := quota.KindsOfWindows(w.Enforcer); n > quota.MaxKindsOfWindows {
			t.Errorf("%d windows are kept", n)
		}
		if st := w.standing(as("ann"), "day", quota.Tokens); st.Committed != quota.MaxKindsOfWindows+100 || st.ResetsAt.Hour() != 23 {
			t.Errorf("it stands at %+v", st)
		}
	})
}

// erasingSlowly is a store that has much to forget.
type erasingSlowly struct{ quota.Ledger }

func (s erasingSlowly) Erase(ctx context.Context, tree, key string) error {
	for range 10 { // steps, each of which is fast enough
		select {
		case <-time.After(quota.DefaultLedgerTimeout / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Ledger.Erase(ctx, tree, key)
}

func TestErasingMayTakeLongerThanOtherOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1000)), func(cfg *quota.Config) { cfg.Ledger = erasingSlowly{cfg.Ledger} })
		ann := quota.Subject{Tenant: "acme", User: "ann"}
		w.call(as("ann"), tokens(100))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Erase(short, ann, quota.User); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a second: %v", err)
		}
		if err := w.Erase(t.Context(), ann, quota.User); err != nil {
			t.Errorf("without a deadline: %v", err)
		}
		w.stands(as("ann"), "day", quota.Tokens, 0, 0)
	})
}
