package journal_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/usage"
)

// agent is a program that makes calls for ann, who may use tokens.
type agent struct {
	*world
	e   *quota.Enforcer
	ctx context.Context
}

func newAgent(w *world) *agent {
	w.Helper()
	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
		{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000_000, quota.Turns: 100}},
		{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
	}})
	if err != nil {
		w.Fatal(err)
	}
	e, err := quota.New(quota.Config{Ledger: w.l, Limits: limits, Logger: w.cfg.Logger})
	if err != nil {
		w.Fatal(err)
	}
	return &agent{w, e, quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", User: "ann"})}
}

func (a *agent) call(ctx context.Context) budget.Reservation {
	a.Helper()
	r, err := a.e.Budget().Reserve(ctx, budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 1000, Output: 1000}})
	if err != nil {
		a.Fatal(err)
	}
	return r
}

// spent checks what ann has used and holds.
func (a *agent) spent(tokens, held, turns int64) {
	a.Helper()
	status, err := a.e.Status(a.ctx, quota.Subject{Tenant: "acme", User: "ann"})
	if err != nil {
		a.Fatal(err)
	}
	for _, s := range status {
		want := map[quota.Unit][2]int64{quota.Tokens: {tokens, held}, quota.Turns: {turns, 0}}
		if w, ok := want[s.Unit]; ok && (s.Committed != w[0] || s.Reserved != w[1]) {
			a.Errorf("%v: %d used and %d reserved, want %d and %d", s.Unit, s.Committed, s.Reserved, w[0], w[1])
		}
	}
}

// What waits in an Enforcer for its ledger survives the process.
func TestWhatAnEnforcerCouldNotTellSurvivesACrash(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		a := newAgent(w)
		turn, err := a.e.Admit(a.ctx)
		if err != nil || turn.Denied() != nil {
			t.Fatal(err, turn.Denied())
		}
		first, second, third := a.call(turn.Context()), a.call(turn.Context()), a.call(turn.Context())
		if err := first.Settle(a.ctx, usage.Usage{Input: 500, Output: 100}); err != nil {
			t.Fatal(err)
		}
		w.store.set(down)
		if err := second.Settle(a.ctx, usage.Usage{Input: 500, Output: 20}); err != nil {
			t.Errorf("an outage costs the caller its answer: %v", err)
		}
		time.Sleep(5 * time.Second)
		w.unanswered(1)

		// The process dies, and the third call with it.
		dead, die := context.WithCancel(a.ctx)
		die()
		if err := a.e.Close(dead); err == nil {
			t.Error("nothing waited for the ledger")
		}
		_ = third
		w.restart()
		a = newAgent(w)
		w.store.set(fine)
		w.recovered(journal.Report{Settled: 1})
		a.spent(1120, 2000, 1)
		time.Sleep(quota.DefaultTTL)
		a.spent(1120, 0, 1)
	})
}

// The Enforcer tells its ledger by itself when that is back: the journal stays out of it.
func TestAnEnforcerThatLivesTellsTheLedgerItself(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		a := newAgent(w)
		r := a.call(a.ctx)
		w.store.set(lost)
		if err := r.Settle(a.ctx, usage.Usage{Input: 500, Output: 100}); err != nil {
			t.Fatal(err)
		}
		if adjust, ok := r.(budget.Adjuster); !ok || adjust.Adjust(a.ctx, usage.Usage{Input: 500, Output: 150}) != nil {
			t.Fatal("it cannot be corrected")
		}
		time.Sleep(time.Second)
		w.store.set(fine)
		time.Sleep(time.Minute)
		a.spent(650, 0, 0)
		w.unanswered(0)
		if st := w.j.Stats(); st.Told != (journal.Report{}) || st.Records != 2 {
			t.Errorf("stats are %+v", st)
		}
		if err := a.e.Close(a.ctx); err != nil {
			t.Error(err)
		}
	})
}
