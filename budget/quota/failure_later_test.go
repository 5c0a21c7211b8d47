package quota_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// of is a context of a user of a tenant.
func of(tenant, user string) context.Context {
	return quota.WithSubject(context.Background(), quota.Subject{Tenant: tenant, User: user})
}

// A correction that comes while the settlement before it is told again, in vain, is told
// after it all the same.
func TestWhatIsAddedWhileTheLedgerIsToldIsToldInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000)), s.over(nil))
		r := w.reserve(as("ann"), tokens(100))
		s.set(down)
		w.settle(r, tokens(70))
		s.set(nil)
		hanging(s, time.Hour)
		time.Sleep(1200 * time.Millisecond) // it is being told again
		if err := r.(budget.Adjuster).Adjust(context.Background(), usage.Usage{Output: 80}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // in vain
		hanging(s, 0)
		time.Sleep(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		var got []string
		for _, st := range s.told[len(s.told)-2:] {
			got = append(got, fmt.Sprint(st.Actual[quota.Tokens], st.Adjust))
		}
		if want := "[70 false 80 true]"; fmt.Sprint(got) != want {
			t.Errorf("it was told %v in the end, want %v", got, want)
		}
	})
}

// gone has a part of the store be gone.
func gone(tree string) func(op, of string) error {
	return func(_, of string) error {
		if of == tree {
			return errStoreDown
		}
		return nil
	}
}

// What waits for a part of the store that is gone does not keep the rest waiting.
func TestWhatWaitsForAPartOfTheStoreDelaysNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000_000)), s.over(nil))
		var calls []budget.Reservation
		for range 50 {
			calls = append(calls, w.reserve(of("acme", "ann"), tokens(100)))
		}
		calls = append(calls, w.reserve(of("globex", "bob"), tokens(100)))
		s.set(down)
		for _, r := range calls {
			w.settle(r, tokens(70))
		}
		s.set(gone("tenant=acme"))
		time.Sleep(time.Minute)
		w.stands(of("globex", "bob"), "day", quota.Tokens, 70, 0)
		s.set(nil)
		time.Sleep(2 * time.Minute)
		w.stands(of("acme", "ann"), "day", quota.Tokens, 50*70, 0)
	})
}

// However many parts are gone: those that were not tried come first the next time.
func TestWhatWasNotToldForWantOfTimeIsToldFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000_000)), s.over(nil))
		var calls []budget.Reservation
		for i := range 20 {
			calls = append(calls, w.reserve(of(fmt.Sprint("acme-", i), "ann"), tokens(100)))
		}
		calls = append(calls, w.reserve(of("globex", "bob"), tokens(100)))
		s.set(down)
		for _, r := range calls {
			w.settle(r, tokens(70))
		}
		s.set(func(_, tree string) error {
			if tree != "tenant=globex" {
				return errStoreDown
			}
			return nil
		})
		time.Sleep(time.Minute)
		w.stands(of("globex", "bob"), "day", quota.Tokens, 70, 0)
	})
}

// And telling it has nobody be refused whose part is there.
func TestTellingAPartOfTheStoreThatIsGoneRefusesNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000_000)), s.over(nil))
		var calls []budget.Reservation
		for i := range 50 {
			calls = append(calls, w.reserve(of(fmt.Sprint("acme-", i%25), "ann"), tokens(100)))
		}
		s.set(func(_, tree string) error {
			if tree != "tenant=globex" {
				return errStoreDown
			}
			return nil
		})
		for _, r := range calls {
			w.settle(r, tokens(70))
			w.call(of("globex", "bob"), tokens(1))
		}
		refused := 0
		for range 600 {
			if _, err := w.try(of("globex", "bob"), tokens(1)); errors.Is(err, quota.ErrUnavailable) {
				refused++
			}
			time.Sleep(200 * time.Millisecond)
		}
		if refused > 0 {
			t.Errorf("%d of 600 calls were refused", refused)
		}
	})
}

// Where nobody asks any more, whoever probes finds that an outage is over.
func TestAnOutageEndsWhereOnlyProbesFindThatItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var outages []bool
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000)), s.over(nil), func(c *quota.Config) {
			c.Hooks.Outage = func(began bool) { mu.Lock(); outages = append(outages, began); mu.Unlock() }
		})
		s.set(down)
		if _, err := w.try(as("ann"), tokens(1)); err == nil {
			t.Fatal("it passed")
		}
		s.set(nil)
		for range 60 {
			time.Sleep(10 * time.Second)
			if err := w.Healthy(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(outages); got != "[true false]" {
			t.Errorf("told %s, want a beginning and an end", got)
		}
	})
}

// Each outage begins with whole buckets: what passed during the last one was booked since.
func TestEachOutageHasItsOwnBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := daily("day", quota.User, quota.Tokens, 10_000)
		day.Failure = quota.Open
		s := newStore(t)
		w := newWorld(t, limitsOf(day), s.over(nil))
		for range 2 {
			s.set(down)
			w.call(as("ann"), tokens(1_000)) // a tenth
			w.denied(as("ann"), tokens(1_000))
			s.set(nil)
			time.Sleep(10 * time.Second)
			w.call(as("ann"), tokens(1))
		}
		w.stands(as("ann"), "day", quota.Tokens, 2_002, 0)
	})
}

// A turn whose reservation was made, and only the reply was lost, is counted once.
func TestATurnWhoseReplyIsLostIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(quota.Limit{
			Name: "turns", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 100}, Failure: quota.Open,
		}), s.over(nil))
		s.mu.Lock()
		s.lose = true
		s.mu.Unlock()
		s.set(down)
		w.admit(as("ann")).End()
		s.mu.Lock()
		s.lose = false
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		s.set(nil)
		time.Sleep(time.Minute)
		w.stands(as("ann"), "turns", quota.Turns, 1, 0)
	})
}
