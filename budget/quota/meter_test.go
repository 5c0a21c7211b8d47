package quota_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// daily is a limit of one unit per day.
func daily(name string, scope quota.Scope, unit quota.Unit, amount int64) quota.Limit {
	return quota.Limit{Name: name, Scope: scope, Window: quota.Day, Max: quota.Max{unit: amount}}
}

func limitsOf(limits ...quota.Limit) quota.LimitsConfig { return quota.LimitsConfig{Limits: limits} }

func TestParallelCallsNeverOverspend(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"ann", "never seen before"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, limitsOf(daily("session", quota.Session, quota.Tokens, 300)))
			var all sync.WaitGroup
			results := make(chan error, 10)
			for range 10 {
				all.Go(func() {
					_, err := w.try(as(user), tokens(100))
					results <- err
				})
			}
			all.Wait()
			close(results)
			passed := 0
			for err := range results {
				if err == nil {
					passed++
				} else if d := asDenial(t, nil, err); d.Reason != quota.ReasonBusy || d.RetryAfter <= 0 {
					t.Errorf("what is only reserved may come back: %v", d)
				}
			}
			if passed != 3 {
				t.Errorf("%d calls passed, want 3", passed)
			}
		})
	}
}

func TestADeniedCallIsChargedNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(
			daily("tenant", quota.Tenant, quota.Tokens, 1_000),
			daily("user", quota.User, quota.Tokens, 50),
			daily("session", quota.Session, quota.Tokens, 500),
			daily("global", quota.Global, quota.Tokens, 120),
		))
		w.call(as("ann"), tokens(50))
		if d := w.denied(as("ann"), tokens(100)); d.Limit != "user" {
			t.Errorf("denied by %q, want the user's", d.Limit)
		}
		w.call(as("bob"), tokens(50))
		if d := w.denied(as("eve"), tokens(40)); d.Limit != "global" || d.Used != 100 {
			t.Errorf("denied by %v, want the global limit", d)
		}
		for _, user := range []string{"ann", "bob", "eve"} {
			spent := int64(50)
			if user == "eve" {
				spent = 0
			}
			w.stands(as(user), "tenant", quota.Tokens, 100, 0)
			w.stands(as(user), "user", quota.Tokens, spent, 0)
			w.stands(as(user), "session", quota.Tokens, spent, 0)
			w.stands(as(user), "global", quota.Tokens, 100, 0)
		}
	})
}

func TestACallAboveAWholeLimitNeverFits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []quota.Limit{
			{Name: "rolling", Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Tokens: 100}, MaxWait: wait(0)},
			daily("calendar", quota.User, quota.Tokens, 100),
		} {
			w := newWorld(t, limitsOf(limit))
			d := w.denied(as("ann"), tokens(200)) // without a deadline
			if d.Reason != quota.ReasonNeverFits || !d.NeverFits() || d.RetryAfter != 0 {
				t.Errorf("%s: %v", limit.Name, d)
			}
			w.call(as("ann"), tokens(10))
			w.call(as("ann"), tokens(90)) // exactly 100
		}
	})
}

func TestUnsetIsNoLimitAndZeroLetsNothingPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, scope := range []quota.Scope{quota.User, quota.Team, quota.Tenant, quota.Session, quota.Global} {
			for unit := quota.Turns; int(unit) < quota.Units; unit++ {
				for _, window := range []quota.Window{aMinute, quota.Day} {
					limit := quota.Limit{Name: "zero", Scope: scope, Window: window, Max: quota.Max{unit: 0}}
					if unit == quota.ConcurrentTurns {
						limit.Window = quota.Window{}
					}
					w := newWorld(t, limitsOf(limit))
					d := w.refused(as("ann"))
					if unit > quota.ConcurrentTurns {
						d = w.denied(as("ann"), tokens(1))
					} else {
						w.call(as("ann"), tokens(1_000_000))
					}
					if d.Limit != "zero" || d.Reason == quota.ReasonUnavailable || d.RetryAfter != 0 || !d.Never {
						t.Errorf("%v of %v per %v: %v", unit, scope, window, d)
					}
				}
			}
		}
		w := newWorld(t, limitsOf())
		w.admit(as("ann")).End()
		w.call(as("ann"), tokens(1_000_000_000))
	})
}

// Who is shut out in an incident is no load on the store, and is not let in, nor told of
// an outage, while it cannot be reached.
func TestWhatLetsNothingPassIsDeniedWithoutTheLedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shut := func(max quota.Max, change func(*quota.Limit)) quota.LimitsConfig {
			l := quota.Limit{Name: "shut", Scope: quota.User, Window: quota.Day, Max: max, Failure: quota.Open}
			if change != nil {
				change(&l)
			}
			return quota.LimitsConfig{
				Limits:    []quota.Limit{{Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}, Failure: quota.Open}},
				Overrides: []quota.Override{{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "mallory"}, Limits: []quota.Limit{l}}},
			}
		}
		broken := func(c *quota.Config) { c.Ledger = deaf{c.Ledger} }
		for _, stage := range []string{"admission", "mid_turn"} {
			unit := map[string]quota.Unit{"admission": quota.Turns, "mid_turn": quota.Tokens}[stage]
			ask := func(w *world, user string) *quota.Denial {
				if stage == "admission" {
					return w.refused(as(user))
				}
				return w.denied(as(user), tokens(5))
			}
			w := newWorld(t, shut(quota.Max{unit: 0}, nil), broken)
			d := ask(w, "mallory")
			if got := d.Problem(time.Now()); d.Reason != quota.ReasonExhausted || d.Limit != "shut" || d.Unit != unit || !d.Never || d.Stage.String() != stage ||
				got.Status != 429 || got.RetryAfter != 0 {
				t.Errorf("%s: %+v", stage, d)
			}
			for name, change := range map[string]func(*quota.Limit){
				"it only observes":        func(l *quota.Limit) { l.Mode = quota.Observe },
				"a soft one has no end":   func(l *quota.Limit) { l.Soft = true },
				"it is of something else": func(l *quota.Limit) { l.Max = quota.Max{quota.Calls: 9} },
			} {
				w := newWorld(t, shut(quota.Max{unit: 0}, change), broken)
				turn, err := w.Admit(as("mallory"))
				if err != nil || turn.Denied() != nil {
					t.Errorf("%s, %s: %v, %v", stage, name, turn.Denied(), err)
				}
				turn.End()
			}
		}
		w := newWorld(t, shut(quota.Max{quota.Tokens: 0}, nil))
		if _, err := w.Meter(as("mallory"), quota.Cost{Tool: "clock"}); err != nil {
			t.Errorf("a tool that costs nothing: %v", err)
		}
		if _, err := w.Meter(as("mallory"), quota.Cost{Tool: "search", Tokens: 1}); err == nil {
			t.Error("a tool that costs something was let through")
		}
	})
}

func TestACallOfUnknownSizeDoesNotFitWhereNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for unit := quota.Calls; int(unit) < quota.Units; unit++ {
			w := newWorld(t, limitsOf(daily("none", quota.User, unit, 0)))
			w.denied(as("ann"), usage.Usage{})
			w = newWorld(t, limitsOf(daily("day", quota.User, unit, 1)))
			turn := w.admit(quota.WithTurnLimits(as("ann"), quota.TurnLimits{Cost: 1}))
			w.settle(w.reserve(turn.Context(), usage.Usage{}), usage.Usage{Input: 1})
			w.denied(turn.Context(), usage.Usage{})
			if _, cost := turn.Used(); cost != 1 {
				t.Errorf("%v: the turn has cost %v", unit, cost)
			}
		}
	})
}

func TestUnknownModelsAreRefusedWhereMoneyIsLimitedAndCountedWhereTokensAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("money", quota.User, quota.Money, 1_000_000)))
		reserve := func(model string) (budget.Reservation, error) {
			return w.Budget().Reserve(as("ann"), budget.Call{ID: budget.NewID(), Model: model, Usage: tokens(1_000)})
		}
		r, err := reserve("m.1")
		d := asDenial(t, r, err)
		if d.Reason != quota.ReasonUnpriced || d.Limit != "money" || !errors.Is(err, usage.ErrUnknownModel) {
			t.Errorf("a typo: %v", err)
		}
		if r, err = reserve("m-free"); err != nil {
			t.Errorf("what is known to be free: %v", err)
		} else {
			w.settle(r, tokens(1_000))
		}
		w.stands(as("ann"), "money", quota.Money, 0, 0)
		if r, err = reserve("models/M-1"); err != nil {
			t.Errorf("another way to write it: %v", err)
		} else {
			w.settle(r, tokens(1_000))
		}
		w.stands(as("ann"), "money", quota.Money, 4_000, 0)

		w = newWorld(t, limitsOf(daily("tokens", quota.User, quota.Tokens, 1_000)), func(c *quota.Config) { c.Catalog = nil })
		if _, err := reserve("m.1"); err != nil {
			t.Errorf("with tokens only: %v", err)
		}
		w.stands(as("ann"), "tokens", quota.Tokens, 0, 1_000)
		if _, err := reserve("m.1"); !errors.Is(err, budget.ErrDenied) {
			t.Errorf("with tokens only, beyond the limit: %v", err)
		}

		w = newWorld(t, limitsOf(daily("money", quota.User, quota.Money, 1), daily("tokens", quota.Tenant, quota.Tokens, 9_000)),
			func(c *quota.Config) { c.Mode = quota.Observe })
		if _, err := reserve("m.1"); err != nil {
			t.Errorf("where nothing is enforced: %v", err)
		}
		w.stands(as("ann"), "tokens", quota.Tokens, 0, 1_000)
		w.decisionsAre(t, "observed", "allowed")
	})
}

func TestEachEndOfACallIsChargedOnce(t *testing.T) {
	t.Parallel()
	const limit = 1_000
	ctx := context.Background()
	settle := func(u usage.Usage) func(budget.Reservation) error {
		return func(r budget.Reservation) error { return r.Settle(ctx, u) }
	}
	release := func(r budget.Reservation) error { return r.Release(ctx) }
	adjust := func(u usage.Usage) func(budget.Reservation) error {
		return func(r budget.Reservation) error { return r.(budget.Adjuster).Adjust(ctx, u) }
	}
	for _, c := range []struct {
		name    string
		ends    []func(budget.Reservation) error
		charged int64
		guessed bool
	}{
		{"less than was held", []func(budget.Reservation) error{settle(usage.Usage{Input: 100, Output: 20})}, 120, false},
		{"more than was held is spent already", []func(budget.Reservation) error{settle(usage.Usage{Input: 100, Output: 400})}, 500, false},
		{"refused by the provider", []func(budget.Reservation) error{release}, 0, false},
		{"nothing was reported", []func(budget.Reservation) error{settle(usage.Usage{})}, 300, true},
		{"broken off: an estimate", []func(budget.Reservation) error{settle(usage.Usage{Input: 100, Output: 30, Flags: usage.Estimated})}, 130, true},
		{"a total only", []func(budget.Reservation) error{settle(usage.Usage{Output: 170, Flags: usage.TotalOnly})}, 170, true},
		{"a broken report never credits", []func(budget.Reservation) error{settle(usage.Usage{Input: -5, Output: 10})}, 10, false},
		{"settled twice", []func(budget.Reservation) error{settle(tokens(10)), settle(tokens(99)), release}, 10, true},
		{"released first", []func(budget.Reservation) error{release, settle(tokens(99)), adjust(tokens(99))}, 0, false},
		{"reported after the last item", []func(budget.Reservation) error{settle(tokens(10)), adjust(usage.Usage{Output: 250}), adjust(usage.Usage{Output: 40})}, 40, true},
		{"adjusted only", []func(budget.Reservation) error{adjust(usage.Usage{Output: 40})}, 40, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, limit)))
				r := w.reserve(as("ann"), usage.Usage{Input: 100, Output: 200, Flags: usage.Estimated})
				if !r.(budget.Local).Local() {
					t.Error("its end waits for nothing, and it does not say so")
				}
				w.stands(as("ann"), "day", quota.Tokens, 0, 300)
				for i, end := range c.ends {
					if err := end(r); err != nil {
						t.Errorf("end %d: %v", i, err)
					}
				}
				w.stands(as("ann"), "day", quota.Tokens, c.charged, 0)
				was := quota.Amounts{}
				for i, b := range w.bookings {
					if b.Corrected != (i > 0) || b.Before != was {
						t.Errorf("booking %d: %+v", i, b)
					}
					was = b.Charged
				}
				if len(w.bookings) == 0 || was[quota.Tokens] != c.charged || w.bookings[0].Guessed != c.guessed || w.bookings[0].Released != (len(c.ends) > 0 && w.bookings[0].Charged == quota.Amounts{}) {
					t.Errorf("told of %+v", w.bookings)
				}
			})
		})
	}
}

func TestACallIDThatIsUsedAgainIsNoFreeCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000)))
		again := budget.Call{ID: budget.NewID(), Model: "m-1", Usage: tokens(100)}
		for _, end := range []func(budget.Reservation) error{
			func(r budget.Reservation) error { return r.Release(context.Background()) },
			func(r budget.Reservation) error { return r.Settle(context.Background(), tokens(100)) },
			func(r budget.Reservation) error { return r.Settle(context.Background(), tokens(100)) },
		} {
			r, err := w.Budget().Reserve(as("ann"), again)
			if err == nil {
				err = end(r)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.stands(as("ann"), "day", quota.Tokens, 200, 0)
	})
}

func TestTheEndOfAWaitTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, supportPlan(time.Minute))
		bucketWith(w, 0)
		ctx, cancel := context.WithCancel(as("ann"))
		time.AfterFunc(3*time.Second, cancel)
		if _, err := w.try(ctx, tokens(6_000)); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in its wait: %v", err)
		}
		w.stands(as("ann"), "rate", quota.Tokens, 57_000, 0) // 3,000 have come back meanwhile

		ctx, cancel = context.WithTimeout(as("ann"), 2*time.Second)
		defer cancel()
		begin := time.Now()
		r, err := w.try(ctx, tokens(6_000))
		if d := asDenial(t, r, err); d.Reason != quota.ReasonRate || time.Since(begin) != 0 {
			t.Errorf("what cannot pass before the deadline is denied at once: %v after %v", d, time.Since(begin))
		}
	})
}

func TestTheWaitIsThatOfTheSlowestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate := func(name string, scope quota.Scope, n int64) quota.Limit {
			return quota.Limit{Name: name, Scope: scope, Window: aMinute, Max: quota.Max{quota.Tokens: n}, MaxWait: wait(time.Minute)}
		}
		w := newWorld(t, limitsOf(rate("user", quota.User, 600), rate("global", quota.Global, 300), rate("tenant", quota.Tenant, 900)))
		w.call(as("ann"), tokens(300))
		begin := time.Now()
		w.call(as("ann"), tokens(50)) // the user's and the tenant's have room
		if waited := time.Since(begin); waited != 10*time.Second {
			t.Errorf("waited %v, want 10s", waited)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if d := w.decisions[1]; d.Outcome != quota.OutcomeWaited || d.Limit != "global" || d.Wait != 10*time.Second {
			t.Errorf("told of %+v", d)
		}
	})
}

func TestHoldsFollowTheirPolicyAndWhatWasLearned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		history, err := usage.NewHistory(usage.HistoryConfig{})
		if err != nil {
			t.Fatal(err)
		}
		limit := func(name string, scope quota.Scope, p quota.HoldPolicy) quota.Limit {
			l := daily(name, scope, quota.Tokens, 100_000_000)
			l.Hold = p
			return l
		}
		w := newWorld(t, limitsOf(
			limit("p95", quota.User, quota.P95), limit("mean", quota.Team, quota.Mean), limit("worst", quota.Tenant, quota.Worst),
		), func(c *quota.Config) { c.History = history })
		estimate := usage.Usage{Input: 1_000, Output: 1_024, Flags: usage.Estimated}
		for i := range 400 { // one of ten answers is long
			output := int64(200)
			if i%10 == 0 {
				output = 1_000
			}
			w.settle(w.reserve(as("ann"), estimate), usage.Usage{Input: 1_000, Output: output})
		}
		turn := w.admit(quota.WithTurnLimits(as("bob"), quota.TurnLimits{MaxOutput: 2_048}))
		defer turn.End()
		before := w.standing(as("bob"), "mean", quota.Tokens)
		w.reserve(turn.Context(), estimate)
		holds := map[string]int64{}
		for _, name := range []string{"p95", "mean", "worst"} {
			holds[name] = w.standing(as("bob"), name, quota.Tokens).Reserved
		}
		near := func(name string, want int64) {
			if got := holds[name]; got < want*85/100 || got > want*115/100 {
				t.Errorf("%s holds %d, want about %d", name, got, want)
			}
		}
		near("p95", 1_000+1_000)
		near("mean", 1_000+280)
		near("worst", 1_000+2_048)
		if before.Reserved != 0 {
			t.Error("earlier calls still hold")
		}
	})
}

func TestSoftLimitsPassUpToTheirCeiling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := daily("day", quota.User, quota.Tokens, 1_000)
		l.Soft, l.Ceiling = true, quota.Max{quota.Tokens: 1_200}
		w := newWorld(t, limitsOf(l))
		w.call(as("ann"), tokens(900))
		w.call(as("ann"), tokens(250))
		if d := w.denied(as("ann"), tokens(51)); d.Max != 1_200 || d.Used != 1_150 {
			t.Errorf("above the ceiling: %v", d)
		}
		w.admit(as("ann")).End()
	})
}

func TestPaidToolsAreMeteredLikeCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limitsOf(
			quota.Limit{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 10_000, quota.Calls: 1, quota.Credits: 500}},
		))
		ctx := context.Background()
		search := func(m usage.Micros) (*quota.Metered, error) {
			return w.Meter(as("ann"), quota.Cost{Tool: "search", Money: m, Credits: 100})
		}
		one, err := search(5_000)
		if err != nil {
			t.Fatal(err)
		}
		w.stands(as("ann"), "day", quota.Money, 0, 5_000)
		if _, err := search(5_001); !errors.Is(err, budget.ErrDenied) {
			t.Errorf("above the limit: %v", err)
		}
		if err := errors.Join(one.Settle(ctx, quota.Cost{Money: 6_000}), one.Settle(ctx, quota.Cost{Money: 9_000}), one.Release(ctx)); err != nil {
			t.Error(err)
		}
		two, err := search(4_000)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(two.Release(ctx), two.Settle(ctx, quota.Cost{Money: 1})); err != nil {
			t.Error(err)
		}
		w.stands(as("ann"), "day", quota.Money, 6_000, 0)
		w.stands(as("ann"), "day", quota.Credits, 0, 0)
		three, err := w.Meter(as("ann"), quota.Cost{Tool: "search", Money: 1_000})
		if err != nil {
			t.Fatal(err)
		}
		if err := three.Settle(ctx, quota.Cost{Money: 1_000, Credits: 40}); err != nil {
			t.Error(err)
		}
		w.stands(as("ann"), "day", quota.Credits, 40, 0) // nobody had thought of them
		w.stands(as("ann"), "day", quota.Calls, 0, 0)    // no model was called
		for field, cost := range map[string]quota.Cost{
			"Money": {Money: -1}, "Tokens": {Tokens: -1}, "Credits": {Credits: quota.MaxAmount + 1},
		} {
			if _, err := w.Meter(as("ann"), cost); err == nil || errors.Is(err, budget.ErrDenied) {
				t.Errorf("a cost with a bad %s: %v", field, err)
			}
			if err := one.Settle(ctx, cost); err == nil {
				t.Errorf("settled a cost with a bad %s", field)
			}
		}
	})
}
