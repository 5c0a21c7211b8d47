package journal_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/usage"
)

// Where blocks are leased from a ledger with a journal before it, what passed without the
// ledger survives the process all the same.
func TestWhatPassedInAnOutageSurvivesACrashBelowBlocks(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "all", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000_000}, Failure: quota.Open},
		}})
		if err != nil {
			t.Fatal(err)
		}
		begin := func() (*quota.Enforcer, *blocks.Ledger) {
			l, err := blocks.New(w.l, blocks.Config{Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			e, err := quota.New(quota.Config{Ledger: l, Limits: limits, Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			return e, l
		}
		end := func(e *quota.Enforcer, l *blocks.Ledger) { // there is no time for anything
			dead, die := context.WithCancel(context.Background())
			die()
			_ = e.Close(dead)
			_ = l.Close(dead)
		}
		ann := quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", User: "ann"})
		e, l := begin()
		w.store.set(down)
		r, err := e.Budget().Reserve(ann, budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 1000, Output: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Settle(ann, usage.Usage{Input: 500, Output: 100}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		end(e, l)
		w.restart()
		w.store.set(fine)
		e, l = begin()
		defer end(e, l)
		time.Sleep(time.Minute)
		all, err := e.Status(ann, quota.Subject{Tenant: "acme", User: "ann"})
		if err != nil || len(all) != 1 || all[0].Committed != 600 {
			t.Errorf("it stands at %+v, %v, want 600", all, err)
		}
	})
}
