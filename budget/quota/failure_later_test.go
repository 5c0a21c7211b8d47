package quota_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// of is a context of a user of a tenant.
func of(tenant, user string) context.Context {
	return quota.WithSubject(context.Background(), quota.Subject{Tenant: tenant, User: user})
}

// What is told again to a part of the store that is gone has nobody be refused whose part
// is there.
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
