package quota_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// oneTurn lets one turn of a user be under way.
var oneTurn = quota.LimitsConfig{Limits: []quota.Limit{
	{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 1}},
}}

func TestATurnEndsOnceWhoeverEndsItAndHoweverOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneTurn)
		turn := w.admit(as("ann"))
		var all sync.WaitGroup
		for range 8 {
			all.Go(turn.End)
		}
		all.Wait()
		next := w.admit(as("ann"))
		turn.End() // a late one gives back nothing of the next turn's
		if d := w.refused(as("ann")); d.Reason != quota.ReasonConcurrency {
			t.Error(d)
		}
		next.End()
	})
}

func TestTheLedgerIsToldOfTheEndOfATurnOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, oneTurn, s.over(nil))
		ctx, cancel := context.WithCancel(as("ann"))
		turn := w.admit(ctx)
		turn.End()
		turn.End()
		cancel()
		time.Sleep(2 * time.Hour)
		if n := s.called("release"); n != 1 {
			t.Errorf("it was told %d times", n)
		}
		if n := s.called("renew"); n != 0 {
			t.Errorf("what had ended was renewed %d times", n)
		}
	})
}

func TestOneRequestIsOneTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 1}},
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 2}},
		}})
		outer := w.admit(as("ann"))
		inner := w.admit(outer.Context())
		if inner.ID() != outer.ID() {
			t.Error("a second turn began within the first")
		}
		inner.End()
		w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 1) // it is still under way
		w.stands(as("ann"), "day", quota.Turns, 1, 0)
		if found, ok := w.TurnFrom(inner.Context()); !ok || found.ID() != outer.ID() {
			t.Error("the turn is not found in its context")
		}
		outer.End()
		next := w.admit(outer.Context()) // a turn that has ended is not gone on with
		if next.ID() == outer.ID() {
			t.Error("a turn that has ended goes on")
		}
		next.End()
		w.stands(as("ann"), "day", quota.Turns, 2, 0)
	})
}

func TestADeniedTurnDeniesWhatIsDoneInItAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "turns", Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Turns: 5}},
			{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 1}},
			{Name: "everybody", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Turns: 1}},
		}})
		w.admit(as("ann")).End()
		turn, err := w.Admit(as("bob"))
		if err != nil || turn.Denied() == nil || turn.Denied().Limit != "everybody" {
			t.Fatal(turn.Denied(), err)
		}
		// The ledger's places are asked one after the other; what the first had taken is
		// given back.
		w.stands(as("bob"), "turns", quota.Turns, 1, 0)
		w.stands(as("bob"), "at-once", quota.ConcurrentTurns, 0, 0)

		again, err := w.Admit(turn.Context())
		if err != nil || again.Denied() != turn.Denied() {
			t.Errorf("asked again in its context: %v, %v", again.Denied(), err)
		}
		if d := w.denied(turn.Context(), tokens(1)); d != turn.Denied() || d.Stage != quota.Admission {
			t.Errorf("a call in its context: %v", d)
		}
		turn.End()
	})
}

func TestTurnsOverSeveralPlacesOfTheLedgerCountOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "turns", Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Turns: 5}},
			{Name: "leases", Scope: quota.Tenant, Max: quota.Max{quota.ConcurrentTurns: 5}},
			{Name: "everybody", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Turns: 9, quota.Tokens: 1000}},
			{Name: "all-leases", Scope: quota.Global, Max: quota.Max{quota.ConcurrentTurns: 5}},
		}})
		one, two := w.admit(as("ann")), w.admit(as("bob"))
		one.End()
		w.stands(as("ann"), "turns", quota.Turns, 1, 1) // of who is under way it is held until the end
		w.stands(as("ann"), "leases", quota.ConcurrentTurns, 0, 1)
		w.stands(as("ann"), "everybody", quota.Turns, 2, 0)
		w.stands(as("ann"), "all-leases", quota.ConcurrentTurns, 0, 1)
		two.End()
		w.stands(as("ann"), "turns", quota.Turns, 2, 0)
		w.stands(as("ann"), "leases", quota.ConcurrentTurns, 0, 0)
		w.stands(as("ann"), "all-leases", quota.ConcurrentTurns, 0, 0)
	})
}

func TestATurnEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneTurn)
		ctx, cancel := context.WithCancel(as("ann"))
		turn := w.admit(ctx)
		cancel()
		synctest.Wait()
		w.admit(as("ann")).End()
		turn.End()
		if _, err := w.Admit(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a turn in a context that has ended: %v", err)
		}
	})
}

func TestLeasesAndHoldsLiveAsLongAsTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: append([]quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000}},
		}, oneTurn.Limits...)}, func(c *quota.Config) { c.TTL, c.MaxTurn = time.Minute, 24*time.Hour })
		turn := w.admit(as("ann"))
		r := w.reserve(turn.Context(), tokens(400))
		for range 20 {
			time.Sleep(time.Minute)
			w.stands(as("ann"), "day", quota.Tokens, 0, 400)
			w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 1)
		}
		w.settle(r, tokens(300))
		turn.End()
		w.stands(as("ann"), "day", quota.Tokens, 300, 0)
		w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 0)
	})
}

func TestWhatADeadProcessHeldExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead := newWorld(t, oneTurn)
		dead.admit(as("ann"))
		if err := dead.Close(context.Background()); err != nil { // nobody renews any more
			t.Fatal(err)
		}
		w := newWorld(t, oneTurn, func(c *quota.Config) { c.Ledger = dead.ledger })
		w.refused(as("ann"))
		time.Sleep(quota.DefaultTTL)
		w.admit(as("ann")).End()
	})
}

func TestACallThatIsNeverSettledExpiresWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000}},
		}})
		ctx, cancel := context.WithCancel(as("ann"))
		w.reserve(ctx, tokens(400))
		cancel()
		time.Sleep(quota.DefaultTTL + time.Second)
		w.stands(as("ann"), "day", quota.Tokens, 0, 0)
	})
}

func TestTheLongestTurnEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneTurn, func(c *quota.Config) { c.MaxTurn = 17 * time.Minute })
		turn := w.admit(as("ann"))
		time.Sleep(17*time.Minute - time.Second)
		w.refused(as("ann"))
		time.Sleep(2 * time.Second)
		next := w.admit(turn.Context()) // it is not gone on with either
		if next.ID() == turn.ID() {
			t.Error("a turn that is too old goes on")
		}
		next.End()
		turn.End()
	})
}

func TestATurnThatHoldsNothingEndsByItsAgeToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) { c.MaxTurn = time.Minute })
		turn := w.admit(as("ann"))
		time.Sleep(time.Minute - time.Nanosecond)
		if w.admit(turn.Context()).ID() != turn.ID() {
			t.Error("it ended too early")
		}
		time.Sleep(time.Nanosecond)
		if w.admit(turn.Context()).ID() == turn.ID() {
			t.Error("it goes on")
		}
	})
}

func TestATurnThatHoldsNothingEndsWithItsContextToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, limits := range []quota.LimitsConfig{{}, oneTurn} {
			w := newWorld(t, limits)
			ctx, cancel := context.WithCancel(as("ann"))
			one := w.admit(ctx)
			cancel()
			synctest.Wait()
			two := w.admit(context.WithoutCancel(one.Context()))
			if two.ID() == one.ID() {
				t.Error("the turn goes on")
			}
			two.End()
		}
	})
}

func TestAHookThatPanicsKeepsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := false
		w := newWorld(t, limitsOf(
			quota.Limit{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
			daily("day", quota.User, quota.Tokens, 10),
		), func(c *quota.Config) {
			c.Turn.Calls = 1
			c.Hooks.Decided = func(quota.Decision) {
				if broken {
					panic("a hook")
				}
			}
		})
		turn := w.admit(as("ann"))
		panics := func(f func()) {
			defer func() { _ = recover() }()
			f()
			t.Error("it does not panic")
		}
		broken = true
		panics(func() { _, _ = w.Admit(as("ann")) })
		panics(func() { _, _ = w.try(turn.Context(), tokens(10)) })
		broken = false
		w.stands(as("ann"), "at-once", quota.ConcurrentTurns, 0, 1)
		w.stands(as("ann"), "day", quota.Tokens, 0, 0)
		w.call(turn.Context(), tokens(10))
	})
}

func TestLeasesThatHaveLapsedInTheLedgerAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lapsed atomic.Int64
		s := newStore(t)
		w := newWorld(t, oneTurn, s.over(nil), func(c *quota.Config) {
			c.Hooks.Lapsed = func(n int) { lapsed.Add(int64(n)) }
		})
		turn := w.admit(as("ann"))
		s.set(down)
		time.Sleep(12 * time.Minute)
		s.set(nil)
		time.Sleep(12 * time.Minute)
		if n := lapsed.Load(); n != 1 {
			t.Errorf("told of %d, want 1", n)
		}
		turn.End()
	})
}

func TestWhoIsNotKnownIsDeniedOrLeftOutAsTheLimitSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := func(m quota.Missing, mode quota.Mode) quota.LimitsConfig {
			return quota.LimitsConfig{Mode: mode, Limits: []quota.Limit{
				{Name: "user", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100, quota.Turns: 5}, Missing: m},
				{Name: "global", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}},
			}}
		}
		nobody := context.Background()
		w := newWorld(t, limits(quota.Deny, quota.Enforce))
		if d := w.refused(nobody); d.Reason != quota.ReasonNoSubject || d.Limit != "user" || d.Scope != quota.User {
			t.Errorf("a turn of nobody: %v", d)
		}
		if d := w.denied(nobody, tokens(1)); d.Reason != quota.ReasonNoSubject {
			t.Errorf("a call of nobody: %v", d)
		}
		w.stands(nobody, "global", quota.Tokens, 0, 0)

		w = newWorld(t, limits(quota.Skip, quota.Enforce))
		w.admit(nobody).End()
		w.call(nobody, tokens(100))
		if d := w.denied(nobody, tokens(1)); d.Limit != "global" {
			t.Errorf("what is left out of a limit counts under the others: %v", d)
		}
		w = newWorld(t, limits(quota.Deny, quota.Observe))
		w.admit(nobody).End()
		w.decisionsAre(t, "observed", "allowed")
	})
}

func TestSubjectsThatCannotBeAreErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneTurn)
		ctx := quota.WithSubject(context.Background(), quota.Subject{User: "a\nb"})
		if _, err := w.Admit(ctx); err == nil || !strings.Contains(err.Error(), "user") {
			t.Errorf("a turn: %v", err)
		}
		if _, err := w.try(ctx, tokens(1)); err == nil || !strings.Contains(err.Error(), "user") {
			t.Errorf("a call: %v", err)
		}
	})
}

func TestNothingIsDeniedInObserveModeAndEverythingIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "at-once", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 1}},
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}},
		}}
		w := newWorld(t, limits, func(c *quota.Config) { c.Mode, c.Turn.Calls = quota.Observe, 2 })
		one, two := w.admit(as("ann")), w.admit(as("ann"))
		for range 3 {
			w.call(two.Context(), tokens(60))
		}
		one.End()
		two.End()
		w.decisionsAre(t, "allowed", "observed", "allowed", "allowed", "observed", "allowed", "observed", "observed", "allowed")
		w.stands(as("ann"), "day", quota.Tokens, 180, 0)
		w.mu.Lock()
		defer w.mu.Unlock()
		last := w.decisions[len(w.decisions)-3:]
		if last[0].Reason != quota.ReasonTurnCalls || last[1].Limit != "day" {
			t.Errorf("the last call: %+v", last)
		}
	})
}

func TestNothingIsCountedInOffMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneTurn, func(c *quota.Config) { c.Mode = quota.Off })
		one, two := w.admit(as("ann")), w.admit(as("ann"))
		w.call(two.Context(), tokens(1_000_000_000))
		one.End()
		two.End()
		long := quota.WithSubject(context.Background(), quota.Subject{User: strings.Repeat("x", 5000)})
		odd := w.admit(long) // an id that cannot be counted refuses nobody
		w.call(odd.Context(), tokens(1))
		odd.End()
		if st, err := w.Status(context.Background(), one.Subject()); err != nil || len(st) != 0 {
			t.Errorf("counted %v, %v", st, err)
		}
	})
}
