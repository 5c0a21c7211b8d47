package quota_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// account spends a subject's tokens against whatever limits are in force, in one
// ledger.
type account struct {
	t      *testing.T
	ledger *quota.Memory
	limits *quota.Limits
	who    quota.Subject
	calls  int
}

func newAccount(t *testing.T, who quota.Subject, l *quota.Limits) *account {
	t.Helper()
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ledger.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return &account{t: t, ledger: ledger, limits: l, who: who}
}

func (a *account) tree() string { return a.limits.Hierarchy().Tree(a.who) }

// entries are what a call of so many tokens takes.
func (a *account) entries(tokens int64) (out []quota.Entry) {
	a.t.Helper()
	for _, l := range a.limits.For(a.who) {
		key, ok := a.limits.Hierarchy().Key(a.who, l.Scope)
		if !ok {
			a.t.Fatalf("%v has no key for %v", a.who, l.Scope)
		}
		out = append(out, quota.Entry{
			Counter: quota.Counter{Key: key, Window: l.Window.ID(), Unit: quota.Tokens},
			Amount:  tokens, Limit: l.Max[quota.Tokens], Ceiling: -1, Spans: l.Window.Spans(time.Now()),
		})
	}
	return out
}

// reserve reserves tokens, and returns what ends the reservation.
func (a *account) reserve(tokens int64) (settle func(actual int64), denied bool) {
	a.t.Helper()
	a.calls++
	id := fmt.Sprintf("call-%d", a.calls)
	r, err := a.ledger.Reserve(a.t.Context(), quota.Reserve{ID: id, Tree: a.tree(), TTL: time.Minute, Entries: a.entries(tokens)})
	if err != nil {
		a.t.Fatal(err)
	}
	return func(actual int64) {
		a.t.Helper()
		var used quota.Amounts
		used[quota.Tokens] = actual
		if _, err := a.ledger.Settle(a.t.Context(), quota.Settle{ID: id, Tree: a.tree(), Actual: used}); err != nil {
			a.t.Fatal(err)
		}
	}, r.Denied >= 0
}

// spend reserves and settles tokens; it reports whether it could.
func (a *account) spend(tokens int64) bool {
	a.t.Helper()
	settle, denied := a.reserve(tokens)
	if !denied {
		settle(tokens)
	}
	return !denied
}

// status is how the subject's first limit stands.
func (a *account) status() quota.Status {
	a.t.Helper()
	s, err := a.ledger.Status(a.t.Context(), a.tree(), a.entries(0)[0])
	if err != nil {
		a.t.Fatal(err)
	}
	return s[0]
}

// weekly are limits of 200 tokens a week, and of others on plans.
func weekly(t *testing.T) *quota.Limits {
	week := func(tokens int64) []quota.Limit {
		return []quota.Limit{{Scope: quota.User, Window: quota.Week, Max: quota.Max{quota.Tokens: tokens}}}
	}
	return mustLimits(t, quota.LimitsConfig{Limits: week(200), Plans: []quota.Plan{
		{Name: "small", Limits: week(50)}, {Name: "large", Limits: week(500)},
	}})
}

// Usage and limit have lives of their own: a smaller plan finds the allowance used
// up, and says 0 and not less; the old one finds what was left; a larger one has
// its room at once.
func TestPlanChangeInTheMiddleOfAWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, quota.Subject{Tenant: "acme", User: "alice"}, weekly(t))
		if !a.spend(150) {
			t.Fatal("150 of 200 were denied")
		}
		settle, denied := a.reserve(30) // under way while the plan changes
		if denied {
			t.Fatal("30 more were denied")
		}
		end := quota.Week.Span(time.Now()).End
		on := func(plan string, left int64) {
			t.Helper()
			a.who.Plan = plan
			if s := a.status(); s.Left() != left || s.Committed+s.Reserved != 180 || !s.Span.End.Equal(end) {
				t.Errorf("on plan %q %d are left, %d are used, until %v; want %d, 180, %v",
					plan, s.Left(), s.Committed+s.Reserved, s.Span.End, left, end)
			}
		}
		on("small", 0)
		if a.spend(1) {
			t.Error("on the smaller plan 1 more passed")
		}
		settle(30)
		on("small", 0)
		on("", 20)
		on("large", 320)
		if !a.spend(320) || a.spend(1) {
			t.Error("on the larger plan not exactly 320 passed")
		}
	})
}

// Calls that were denied are not counted: a limit that is raised has all of its
// new room.
func TestRaisedLimitHasAllItsRoomAfterDenials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := func(tokens int64) *quota.Limits {
			return mustLimits(t, quota.LimitsConfig{Limits: []quota.Limit{
				{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: tokens}},
			}})
		}
		a := newAccount(t, quota.Subject{User: "alice"}, limit(10))
		passed := func(tries int) (n int) {
			for range tries {
				if a.spend(1) {
					n++
				}
			}
			return n
		}
		if n := passed(50); n != 10 {
			t.Errorf("%d of 50 passed a limit of 10", n)
		}
		a.limits = limit(20) // reloaded
		if n := passed(12); n != 10 {
			t.Errorf("%d of 12 passed after the limit was raised by 10", n)
		}
	})
}

// A limit of 0 is a denial like any other.
func TestZeroDeniesTheFirstCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, quota.Subject{User: "alice"}, mustLimits(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 0}},
		}}))
		if a.spend(1) {
			t.Error("a token passed a limit of 0")
		}
		if s := a.status(); s.Left() != 0 || s.Committed != 0 || s.Reserved != 0 {
			t.Errorf("the denial left a trace: %+v", s)
		}
	})
}
