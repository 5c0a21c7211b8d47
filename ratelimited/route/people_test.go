package route_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
	"github.com/headgate-go/headgate/usage"
)

// people is an enforcer of limits, with a large model that costs ten times what the
// small one does: $10 and $1 per million tokens of each kind.
func people(t *testing.T, limits ...quota.Limit) *quota.Enforcer {
	t.Helper()
	l, err := quota.NewLimits(quota.LimitsConfig{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	price := func(model, perMillion string) usage.Model {
		rate, err := usage.ParseRate(perMillion)
		if err != nil {
			t.Fatal(err)
		}
		return usage.Model{Name: model, Prices: []usage.Price{{Rates: usage.Rates{Input: rate, Output: rate}}}}
	}
	catalog, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{{
		AsOf: time.Now(), Models: []usage.Model{price("large", "10"), price("small", "1")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := quota.New(quota.Config{Ledger: ledger, Limits: l, Catalog: catalog, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// stands is what is spent and reserved of a day's limit.
func stands(t *testing.T, e *quota.Enforcer, ctx context.Context, u quota.Unit) (spent, reserved int64) {
	t.Helper()
	s, _ := quota.SubjectFrom(ctx)
	all, err := e.Status(context.WithoutCancel(ctx), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		if st.Unit == u {
			return st.Committed, st.Reserved
		}
	}
	t.Fatalf("%v is not limited", u)
	return 0, 0
}

func ann(t *testing.T) context.Context {
	return quota.WithSubject(t.Context(), quota.Subject{Tenant: "acme", User: "ann"})
}

// pair is a large and a small model with the budgets of the same people.
func pair(t *testing.T, e *quota.Enforcer, large, small *fakeLLM) *pool {
	t.Helper()
	large.name, small.name = "large", "small"
	to := via(t, "small", small, ratelimited.WithBudgets(e.Budget()))
	to.Tier = 1
	to.Rewrite = func(r *LLMRequest) *LLMRequest { c := *r; c.Model = "small"; return &c }
	return newPool(t, route.Config{}, via(t, "large", large, ratelimited.WithBudgets(e.Budget())), to)
}

func aDay(max quota.Max) quota.Limit {
	return quota.Limit{Name: "day", Scope: quota.User, Window: quota.Day, Max: max}
}

// What a call has reserved at a route that does not serve it is released there, and
// it is charged once, at the price of the model that does.
func TestAPersonIsChargedOnceByTheRouteThatServes(t *testing.T) {
	for reason, refusal := range refusals {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := people(t, aDay(quota.Max{quota.Calls: 100, quota.Tokens: 1_000_000, quota.Money: 1_000_000}))
				ctx := ann(t)
				large := refuses(refusal(), 0, nil)
				small := &fakeLLM{}
				small.play = func(_ context.Context, _ int, yield yields) {
					if _, held := stands(t, e, ctx, quota.Calls); held != 1 {
						t.Errorf("%d calls are reserved while one is served", held)
					}
					yield(final(300, 200), nil)
				}
				p := pair(t, e, large, small)
				if err := call(ctx, p); err != nil {
					t.Fatal(err)
				}
				for u, want := range map[quota.Unit]int64{quota.Calls: 1, quota.Tokens: 500, quota.Money: 500} {
					if spent, held := stands(t, e, ctx, u); spent != want || held != 0 {
						t.Errorf("%v: %d spent and %d reserved, want %d and none", u, spent, held, want)
					}
				}
				mustBeIdle(t, p)
			})
		})
	}
}

func TestAPersonWhoIsServedByTheFirstRoutePaysItsPrice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, aDay(quota.Max{quota.Money: 1_000_000}))
		ctx := ann(t)
		if err := call(ctx, pair(t, e, answers(0), answers(0))); err != nil {
			t.Fatal(err)
		}
		if spent, _ := stands(t, e, ctx, quota.Money); spent != 100 {
			t.Errorf("10 tokens of the large model cost %d micro-dollars, want 100", spent)
		}
	})
}

// Who has used up a budget is denied: another route would be the same person's
// money, though a smaller model might still fit.
func TestADenialGoesToNoOtherRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, aDay(quota.Max{quota.Calls: 1}))
		ctx := ann(t)
		large, small := answers(0), answers(0)
		p := pair(t, e, large, small)
		if err := call(ctx, p); err != nil {
			t.Fatal(err)
		}
		err := call(ctx, p)
		var denial *quota.Denial
		if !errors.As(err, &denial) || !errors.Is(err, budget.ErrDenied) || large.count() != 1 || small.count() != 0 {
			t.Errorf("got %v after %d and %d calls, want a denial after 1 and none", err, large.count(), small.count())
		}
		if !p.Stats()[0].Up {
			t.Error("a person's denial has left a route out")
		}
		mustBeIdle(t, p)
	})
}

// A call that leaves the line of one route for another is charged there only.
func TestACallThatLeavesALineIsChargedWhereItIsServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, aDay(quota.Max{quota.Calls: 100, quota.Money: 1_000_000}))
		ctx := ann(t)
		large, small := &fakeLLM{name: "large"}, answers(0)
		large.play = func(ctx context.Context, _ int, yield yields) { // the one slot is taken for 2s
			_ = wait(ctx, 2*time.Second)
			yield(nil, perDay())
		}
		small.name = "small"
		budgets := ratelimited.WithBudgets(e.Budget())
		gate := newGate(t, ratelimited.Config{Name: "large", Slots: 1, Profile: perMinute})
		to := via(t, "small", small, budgets)
		to.Tier, to.Rewrite = 1, func(r *LLMRequest) *LLMRequest { return r }
		p := newPool(t, route.Config{Spill: time.Hour}, way{Name: "large", Model: wrap(t, large, gate, budgets)}, to)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := call(ctx, p); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		if s := gate.Stats(); s.Running != 1 || s.Waiting != 2 {
			t.Fatalf("%d calls run and %d wait, want 1 and 2", s.Running, s.Waiting)
		}
		if _, held := stands(t, e, ctx, quota.Calls); held != 3 {
			t.Fatalf("%d calls are reserved, want 3", held)
		}
		all.Wait()
		if large.count() != 1 || small.count() != 3 {
			t.Errorf("large had %d calls and small %d, want 1 and 3", large.count(), small.count())
		}
		for u, want := range map[quota.Unit]int64{quota.Calls: 3, quota.Money: 30} {
			if spent, held := stands(t, e, ctx, u); spent != want || held != 0 {
				t.Errorf("%v: %d spent and %d reserved, want %d and none", u, spent, held, want)
			}
		}
		mustBeIdle(t, p)
	})
}

// In a turn every attempt counts as a model call, as those that fail always do.
func TestEveryAttemptCountsAsACallOfItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, aDay(quota.Max{quota.Calls: 100}))
		ctx := quota.WithTurnLimits(ann(t), quota.TurnLimits{Calls: 3})
		turn, err := e.Admit(ctx)
		if err != nil || turn.Denied() != nil {
			t.Fatal(err, turn.Denied())
		}
		defer turn.End()
		p := pair(t, e, refuses(overloaded(), 0, nil), answers(0))
		if err := call(turn.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := call(turn.Context(), p); !errors.Is(err, budget.ErrDenied) {
			t.Errorf("a fourth attempt of three: %v", err)
		}
		if spent, held := stands(t, e, ctx, quota.Calls); spent != 1 || held != 0 {
			t.Errorf("%d calls spent and %d reserved, want the one that was served", spent, held)
		}
	})
}
