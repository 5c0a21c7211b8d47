package blocks_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/usage"
)

func TestConfigErrorsNameEveryField(t *testing.T) {
	t.Parallel()
	_, err := blocks.New((*quota.Memory)(nil), blocks.Config{ // no more than nil is
		Ahead: -1, Idle: -2, Margin: -3, Max: quota.Amounts{quota.Tokens: -4, quota.Money: 5}, MaxRemembered: -5,
		Min: quota.Amounts{quota.Calls: -6, quota.Money: 6}, Recheck: -7, Remember: -8, Share: math.NaN(), Timeout: -9, TTL: -10,
	})
	for _, want := range []string{
		"blocks: ledger is nil", "Config.Ahead is -1ns", "Config.Idle is -2ns", "Config.Margin is -3ns", "Config.Max[tokens] is -4",
		"Config.MaxRemembered is -5", "Config.Min[calls] is -6", "Config.Min[money] is 6, above Max[money] of 5",
		"Config.Recheck is -7ns", "Config.Remember is -8ns", "Config.Share is NaN", "Config.Timeout is -9ns", "Config.TTL is -10ns",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
	if _, err := blocks.New(nil, blocks.Config{}); err == nil || !strings.Contains(err.Error(), "blocks: ledger is nil") {
		t.Errorf("without a ledger: %v", err)
	}
	for want, cfg := range map[string]blocks.Config{
		"Config.Margin is 6s": {Margin: 6 * time.Second, TTL: 10 * time.Second},
		"Config.TTL is 1µs":   {TTL: time.Microsecond},
		"Config.Share is 1.5": {Share: 1.5},
	} {
		if _, err := blocks.New(newMemory(t), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

// By default everybody's limits are leased, and nobody's own.
func TestOnlyTheTreeOfGlobalIsLeasedUnlessConfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		own := w.hold(10, 1000)
		own.Key = "tenant=acme"
		for i := range 3 {
			r := quota.Reserve{ID: fmt.Sprint(i), Tree: "tenant=acme", Entries: []quota.Entry{own}}
			if res, err := w.replicas[0].Reserve(t.Context(), r); err != nil || res.Denied >= 0 {
				t.Fatal(res, err)
			}
			w.take(w.replicas[0], w.hold(10, 1000))
		}
		all, err := w.ledger.Status(t.Context(), "tenant=acme", own)
		if err != nil || all[0].Reserved != 30 {
			t.Errorf("the tenant's stands at %+v, %v", all, err)
		}
		if s := w.replicas[0].Stats(); s.Leased[quota.Tokens] < 500 || s.Held[quota.Tokens] != 30 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStatsTellWhatIsLeasedAndWhatItCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		l := w.replicas[0]
		w.settle(l, w.take(l, w.hold(10, 1000)), 10) // waits, and leases what it needs
		w.take(l, w.hold(30, 1000))                  // waits, and leases 500
		w.settle(l, w.take(l, w.hold(100, 1000)), 60)
		w.refuse(l, w.hold(1001, 1000))
		w.refuse(l, w.hold(901, 1000)) // waits for the word of the ledger
		synctest.Wait()
		s := l.Stats()
		if s.Blocks != 1 || s.Leased[quota.Tokens] != 500 || s.Held[quota.Tokens] != 30 || s.Spent[quota.Tokens] != 60 || s.Idle[quota.Tokens] != 410 {
			t.Errorf("leased: %+v", s)
		}
		if s.Local != 2 || s.Waited != 3 || s.Denied != 2 || s.DeniedBusy != 0 {
			t.Errorf("decided: %+v", s)
		}
		if s.BlocksLeased != 2 || s.BlocksRefused == 0 || s.RoundTrips != int64(w.links[0].all()) || s.Failures != 0 || s.Lapsed+s.Late+s.Lost != 0 {
			t.Errorf("asked for, with %d round trips: %+v", w.links[0].all(), s)
		}
		w.links[0].set(func(k *link) { k.cut = true })
		pass(10 * time.Second)
		if s := l.Stats(); s.Failures == 0 || s.Renewals == 0 {
			t.Errorf("while the ledger is away: %+v", s)
		}
		w.links[0].set(func(k *link) { k.cut = false })
	})
}

// What is not used any more is not remembered for ever.
func TestWhatIsNotUsedIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{
			Leased: func(string, quota.Counter) bool { return true }, MaxRemembered: 500, Remember: time.Hour,
		})
		l := w.replicas[0]
		for i := range 1000 {
			tree := fmt.Sprint("tenant-", i%100)
			e := w.hold(10, 1e9)
			e.Key = fmt.Sprint(tree, "/user-", i)
			r := quota.Reserve{ID: budget.NewID(), Tree: tree, Entries: []quota.Entry{e}}
			if res, err := l.Reserve(t.Context(), r); err != nil || res.Denied >= 0 {
				t.Fatal(res, err)
			}
			if _, err := l.Settle(t.Context(), quota.Settle{ID: r.ID, Tree: tree, Actual: quota.Amounts{quota.Tokens: 10}}); err != nil {
				t.Fatal(err)
			}
		}
		pass(5 * time.Second)
		if _, counters, records := blocks.Size(l); counters < 1000 || records > 600 {
			t.Errorf("%d counters and %d records at first", counters, records)
		}
		pass(3 * time.Minute)
		if _, counters, records := blocks.Size(l); counters != 0 || records > 500 {
			t.Errorf("%d counters and %d records after 3 minutes", counters, records)
		}
		pass(26 * time.Hour)
		if trees, counters, records := blocks.Size(l); trees+counters+records != 0 {
			t.Errorf("%d trees, %d counters and %d records after a day", trees, counters, records)
		}
	})
}

// An Enforcer on top of blocks denies what all replicas have used together, and knows
// nothing of blocks.
func TestEnforcersOfManyReplicasShareTheLimitOfEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, blocks.Config{})
		limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "everybody", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Tokens: 100_000}},
			{Name: "one", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 50_000}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var budgets []budget.Budget
		for _, l := range w.replicas {
			e, err := quota.New(quota.Config{Ledger: l, Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			budgets = append(budgets, e.Budget())
		}
		used := int64(0)
		for i := range 300 {
			ctx := quota.WithSubject(context.Background(), quota.Subject{User: fmt.Sprint("user-", i%7)})
			call := budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 300, Output: 200}}
			r, err := budgets[i%3].Reserve(ctx, call)
			if err != nil {
				if used < 99_400 {
					t.Fatalf("denied after %d were used: %v", used, err)
				}
				continue
			}
			if err := r.Settle(ctx, usage.Usage{Input: 300, Output: 100}); err != nil {
				t.Fatal(err)
			}
			used += 400
			pass(50 * time.Millisecond)
		}
		if used < 99_600 || used > 100_000 {
			t.Errorf("%d of 100000 were used", used)
		}
	})
}
