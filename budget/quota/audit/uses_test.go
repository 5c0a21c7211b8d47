package audit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"github.com/headgate-go/headgate/usage"
)

// all is a sequence of records.
func all(records ...audit.Record) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// audited is an enforcer whose events are kept.
type audited struct {
	*quota.Enforcer
	ledger *quota.Memory
	bus    *quota.Bus
	sink   *audit.Sink
	dir    string
}

func newAudited(t *testing.T, limits ...quota.Limit) *audited {
	t.Helper()
	a := &audited{dir: t.TempDir()}
	a.sink = open(t, audit.Config{Dir: a.dir})
	a.bus = quota.NewBus(quota.BusConfig{Listeners: []quota.Listener{a.sink.Listen}, Logger: silent})
	set, err := quota.NewLimits(quota.LimitsConfig{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	if a.ledger, err = quota.NewMemory(quota.MemoryConfig{}); err != nil {
		t.Fatal(err)
	}
	if a.Enforcer, err = quota.New(quota.Config{Limits: set, Ledger: a.ledger, Bus: a.bus, Logger: silent}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(context.Background()) })
	return a
}

// call makes a call, and reports whether it was let through.
func (a *audited) call(t *testing.T, s quota.Subject, id string, tokens int64) bool {
	t.Helper()
	ctx := quota.WithSubject(t.Context(), s)
	r, err := a.Budget().Reserve(ctx, budget.Call{ID: id, Model: "m-1", Usage: usage.Usage{Output: tokens}})
	if errors.Is(err, budget.ErrDenied) {
		return false
	}
	if err == nil {
		err = r.Settle(ctx, usage.Usage{Output: tokens})
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// read is everything that was told so far.
func (a *audited) read(t *testing.T) iter.Seq2[audit.Record, error] {
	t.Helper()
	if err := errors.Join(a.bus.Flush(t.Context()), a.sink.Flush()); err != nil {
		t.Fatal(err)
	}
	return audit.Read(a.dir, time.Time{}, time.Time{})
}

// A customer disputes a block: which counter was used up, by which calls, and when?
func TestTheAuditSaysWhichCallsUsedUpACounterAndWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t,
			quota.Limit{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}},
			quota.Limit{Name: "ours", Scope: quota.Team, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}},
			quota.Limit{Name: "rate", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Tokens: 5000}},
		)
		alice := quota.Subject{Tenant: "acme", Team: "support", User: "alice"}
		bob := alice
		bob.User = "bob"
		time.Sleep(13 * time.Hour)
		first := time.Now()
		a.call(t, alice, "a1", 60)
		time.Sleep(time.Hour)
		a.call(t, bob, "b1", 70)
		a.call(t, alice, "a2", 40)
		if a.call(t, alice, "a3", 1) {
			t.Fatal("alice had nothing left")
		}
		time.Sleep(24 * time.Hour) // another window
		a.call(t, alice, "a4", 5)

		ask := func(q audit.Question) string {
			var got []string
			for u, err := range audit.Uses(a.read(t), q) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s %s +%v %d→%d", u.Record.Call, u.Limit, u.Record.At.Sub(first), u.Amount, u.Total))
			}
			return strings.Join(got, ", ")
		}
		for _, c := range []struct {
			name string
			q    audit.Question
			want string
		}{
			{"the day", audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Tokens, Window: quota.Day, At: first}, "a1 mine +0s 60→60, a2 mine +1h0m0s 40→100"},
			{"with denials", audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Tokens, Window: quota.Day, At: first, Denials: true}, "a1 mine +0s 60→60, a2 mine +1h0m0s 40→100, a3 mine +1h0m0s 0→100"},
			{"the next day", audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Tokens, Window: quota.Day, At: time.Now(), Denials: true}, "a4 mine +25h0m0s 5→5"},
			{"all days", audit.Question{Scope: quota.User, Subject: bob, Unit: quota.Tokens, Window: quota.Day}, "b1 mine +1h0m0s 70→70"},
			{"the team", audit.Question{Scope: quota.Team, Subject: alice, Unit: quota.Tokens, Window: quota.Day, At: first}, "a1 ours +0s 60→60, b1 ours +1h0m0s 70→130, a2 ours +1h0m0s 40→170"},
			{"the team, whose limit has denied nothing", audit.Question{Scope: quota.Team, Subject: alice, Unit: quota.Tokens, Window: quota.Day, At: first, Denials: true}, "a1 ours +0s 60→60, b1 ours +1h0m0s 70→130, a2 ours +1h0m0s 40→170"},
			{"rolling", audit.Question{Scope: quota.User, Subject: bob, Unit: quota.Tokens, Window: quota.Rolling(time.Minute), At: first, Denials: true}, "b1 rate +1h0m0s 70→70"},
			{"another unit", audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Money, Window: quota.Day}, ""},
			{"somebody else", audit.Question{Scope: quota.User, Subject: quota.Subject{User: "alice"}, Unit: quota.Tokens, Window: quota.Day}, ""},
		} {
			if got := ask(c.q); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
	})
}

func TestAQuestionThatCannotBeAnsweredSaysWhy(t *testing.T) {
	t.Parallel()
	alice := quota.Subject{User: "alice"}
	for _, c := range []struct {
		q    audit.Question
		want string
	}{
		{audit.Question{Scope: quota.Tenant, Subject: alice, Unit: quota.Tokens, Window: quota.Day}, `Question.Subject has no id in the scope "tenant"`},
		{audit.Question{Scope: quota.User, Subject: alice, Unit: quota.ConcurrentTurns, Window: quota.Day}, "Question.Unit is concurrent_turns"},
		{audit.Question{Scope: quota.User, Subject: alice, Unit: 99, Window: quota.Day}, "Question.Unit is unit(99)"},
		{audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Tokens}, "Question.Window"},
		{audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Tokens, Window: quota.Day.InTenantZone()}, "Question.Window is day@tenant, must name the tenant's zone"},
	} {
		n := 0
		for _, err := range audit.Uses(all(at(0, "a")), c.q) {
			if n++; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %s", err, c.want)
			}
		}
		if n != 1 {
			t.Errorf("%d answers, want one error: %s", n, c.want)
		}
	}
}

func TestADenialByARateIsNoneOfADay(t *testing.T) {
	t.Parallel()
	denial := at(0, "a")
	denial.Kind, denial.Unit, denial.Scope, denial.Limit = quota.KindDenial, "tokens", quota.User, "rate"
	denial.Subject = quota.Subject{User: "alice"}
	day := denial
	day.Limit, day.ResetsAt = "day", noon.Add(12*time.Hour)
	for _, c := range []struct {
		window quota.Window
		want   string
	}{{quota.Day, "day"}, {quota.Rolling(time.Minute), "rate"}} {
		q := audit.Question{Scope: quota.User, Subject: denial.Subject, Unit: quota.Tokens, Window: c.window, Denials: true}
		var got []string
		for use, err := range audit.Uses(all(denial, day), q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, use.Limit)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: denials are by %v, want %s", c.window, got, c.want)
		}
	}
}

// Somebody who may begin three turns a day is told which three these were.
func TestTheAuditSaysWhichTurnsUsedUpACounterAndWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t,
			quota.Limit{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 3}},
			quota.Limit{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 9}},
			quota.Limit{Name: "all", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Turns: 9}},
		)
		alice := quota.Subject{Tenant: "acme", User: "alice"}
		var ids []string
		for range 4 {
			turn, err := a.Admit(quota.WithSubject(t.Context(), alice))
			if err != nil {
				t.Fatal(err)
			}
			if turn.Denied() == nil {
				ids = append(ids, turn.ID())
			}
			turn.End()
			time.Sleep(time.Hour)
		}
		for _, scope := range []quota.Scope{quota.User, quota.Global} {
			q := audit.Question{Scope: scope, Subject: alice, Unit: quota.Turns, Window: quota.Day, At: time.Now(), Denials: true}
			var got, want []string
			for u, err := range audit.Uses(a.read(t), q) {
				if err != nil {
					t.Fatal(err)
				}
				if u.Record.Kind == quota.KindDenial {
					got = append(got, fmt.Sprintf("denied at %d", u.Total))
				} else {
					got = append(got, fmt.Sprintf("%s at %d o'clock, %d", u.Record.Turn, u.Record.At.Hour(), u.Total))
				}
			}
			for i, id := range ids {
				want = append(want, fmt.Sprintf("%s at %d o'clock, %d", id, i, i+1))
			}
			if scope == quota.User {
				want = append(want, "denied at 3")
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", scope, got, want)
			}
		}
		time.Sleep(24 * time.Hour)
		mine, err := a.ledger.History(t.Context(), "tenant=acme", quota.Counter{Key: "tenant=acme/user=alice", Window: quota.Day.ID(), Unit: quota.Turns}, 10)
		if err != nil || len(mine) != 1 {
			t.Fatalf("%+v, %v", mine, err)
		}
		if drifts, err := audit.Drifts(a.read(t), mine); err != nil || len(drifts) != 0 {
			t.Errorf("ledger and audit differ: %+v, %v", drifts, err)
		}
	})
}

func TestACorrectionCountsByWhatItChanges(t *testing.T) {
	t.Parallel()
	alice := quota.Subject{Tenant: "acme", User: "alice"}
	first := of("acme", "alice", 0)
	first.Counted[0].Window = quota.Day.ID()
	corrected := of("acme", "alice", 1)
	corrected.Counted[0].Window, corrected.Counted[0].Amount = quota.Day.ID(), 7
	corrected.Corrects, corrected.Before, corrected.Charged.Tokens = true, audit.Amounts{Tokens: 10}, 7
	last := int64(0)
	for u, err := range audit.Uses(all(first, corrected), audit.Question{Scope: quota.User, Subject: alice, Unit: quota.Tokens, Window: quota.Day}) {
		if err != nil {
			t.Fatal(err)
		}
		last = u.Total
	}
	if last != 7 {
		t.Errorf("a call of 10 that was corrected to 7 counts as %d", last)
	}
}

func TestTheAuditAgreesWithTheLedgerUntilSomethingIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t,
			quota.Limit{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 500, quota.Calls: 20}},
			quota.Limit{Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Tokens: 3000}},
		)
		random := rand.New(rand.NewPCG(1, 2))
		passed, denied := 0, 0
		for i := range 300 {
			s := quota.Subject{Tenant: "acme", User: fmt.Sprint("u", random.IntN(4))}
			if a.call(t, s, fmt.Sprint(i), 1+random.Int64N(60)) {
				passed++
			} else {
				denied++
			}
			time.Sleep(15 * time.Minute)
		}
		if passed < 50 || denied < 5 {
			t.Fatalf("%d passed and %d were denied: it shows nothing", passed, denied)
		}
		var statuses []quota.Status
		for _, c := range []quota.Counter{
			{Key: "tenant=acme", Window: quota.Day.ID(), Unit: quota.Tokens},
			{Key: "tenant=acme/user=u0", Window: quota.Day.ID(), Unit: quota.Tokens},
			{Key: "tenant=acme/user=u1", Window: quota.Day.ID(), Unit: quota.Calls},
		} {
			past, err := a.ledger.History(t.Context(), "tenant=acme", c, 10)
			if err != nil || len(past) < 2 {
				t.Fatalf("%d past windows, %v", len(past), err)
			}
			statuses = append(statuses, past...)
		}
		drifts, err := audit.Drifts(a.read(t), statuses)
		if err != nil || len(drifts) != 0 {
			t.Errorf("they differ: %+v, %v", drifts, err)
		}
		var some []audit.Record
		skipped := int64(0)
		for r, err := range a.read(t) {
			if err != nil {
				t.Fatal(err)
			}
			if skipped == 0 && r.Kind == quota.KindCall {
				skipped = r.Charged.Tokens
				continue
			}
			some = append(some, r)
		}
		drifts, err = audit.Drifts(all(some...), statuses)
		if err != nil || len(drifts) == 0 || drifts[0].Counter.Key != "tenant=acme" || drifts[0].Ledger-drifts[0].Audit != skipped {
			t.Errorf("a call of %d tokens is missing, and the drifts are %+v, %v", skipped, drifts, err)
		}
	})
}
