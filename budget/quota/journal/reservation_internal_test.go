package journal

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// What is kept in memory is bounded, and what the ledger has forgotten goes.
func TestReservationsAreForgottenWithTheLedgerAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r reservations
		r.init(&Config{MaxOpen: 5000, Remember: time.Hour})
		put := func(from, to int, ttl time.Duration) {
			for i := from; i < to; i++ {
				x, _, _ := newReservation(&quota.Reserve{TTL: ttl}, &quota.Reserved{}, time.Now())
				r.put(key{"t", fmt.Sprint(i)}, x)
			}
		}
		check := func(open int, forgotten int64) {
			t.Helper()
			if n, f := r.count(); n != open || f != forgotten {
				t.Fatalf("%d are open and %d forgotten, want %d and %d", n, f, open, forgotten)
			}
		}
		put(0, 6000, time.Minute)
		check(5000, 1000)
		r.renewed("t", time.Hour, []string{"7", "8", "9", "no"}, []string{"8"})
		time.Sleep(62 * time.Minute)
		put(6000, 6001, 0)
		check(3, 1000) // it, and two that were renewed
		if r.get(key{"t", "7"}) == nil || r.get(key{"t", "8"}) != nil || r.get(key{"t", "9"}) == nil {
			t.Error("the wrong ones are there")
		}
		time.Sleep(quota.DefaultTTL)
		put(6001, 9000, time.Minute)
		check(3002, 1000)
		first := r.get(key{"t", "8998"})
		put(8998, 8999, 0) // a repeat
		if r.get(key{"t", "8998"}) != first {
			t.Error("a repeat took the place of the first")
		}
		r.drop(key{"t", "8999"})
		check(3001, 1000)
	})
}
