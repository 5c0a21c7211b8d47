package sqlledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// hourly is an entry of a limit for each hour.
func hourly(l *sqlledger.Ledger, key string, amount int64) quota.Entry {
	start := time.Now().Add(sqlledger.Skew(l)).UTC().Truncate(time.Hour)
	e := quota.Entry{
		Counter: quota.Counter{Key: key, Window: quota.Hour.ID(), Unit: quota.Tokens}, Amount: amount, Limit: 1 << 30, Ceiling: -1,
	}
	for i := range e.Spans {
		from := start.Add(time.Duration(i-1) * time.Hour)
		e.Spans[i] = quota.Span{Start: from, End: from.Add(time.Hour)}
	}
	return e
}

// sweep sweeps until all is done: on a machine that has much else to do, a transaction of
// it may run out of time beside those of others, and the next sweep goes on from there.
func sweep(t testing.TB, l *sqlledger.Ledger) {
	t.Helper()
	for begun := time.Now(); ; {
		err := l.Sweep(context.Background())
		if err == nil {
			return
		}
		if !errors.Is(err, quota.ErrUnavailable) || time.Since(begun) > 2*time.Minute {
			t.Errorf("Sweep: %v", err)
			return
		}
	}
}

// rows is how many rows a table has.
func rows(t testing.TB, db *sql.DB, table string) int64 {
	t.Helper()
	return number(t, db, "SELECT count(*) FROM headgate_"+table)
}

// A sweep has more to remove than one transaction of it does, and others work meanwhile.
func TestWhatIsOldGoesAndTheAuditReproducesTheRest(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		l := newLedger(t, sqlledger.Config{
			DB: d.open(t), Remember: time.Hour, AuditRetention: 48 * time.Hour, HistoryRetention: 30 * 24 * time.Hour, KeepWindows: 3,
		})
		const calls = 350 // two rows of the audit for each entry
		var wg sync.WaitGroup
		for i := range 7 {
			wg.Go(func() {
				for range calls / 7 {
					spend(t, l, "acme", 2, hourly(l, fmt.Sprint("acme/user=", i), 5), held("acme", 5, -1))
				}
			})
		}
		wg.Wait()
		open := take(t, l, "acme", quota.Entry{Counter: quota.Counter{Key: "acme", Unit: quota.ConcurrentTurns}, Kind: quota.Lease, Amount: 1, Limit: 9})
		sweep(t, l) // nothing is old
		if a, c, r := rows(t, db, "audit"), rows(t, db, "calls"), rows(t, db, "reservations"); a != 4*calls+1 || c != calls+1 || r != calls+1 {
			t.Fatalf("%d rows of the audit, %d calls and %d reservations are left, want all", a, c, r)
		}

		sqlledger.Pass(l, 2*time.Hour)
		sweep(t, l)
		if a, r := rows(t, db, "audit"), rows(t, db, "reservations"); a != 4*calls+2 || r != 1 {
			t.Errorf("%d rows of the audit and %d reservations after an hour, want all and the one that has just expired", a, r)
		}
		if lost, err := l.Renew(t.Context(), "acme", time.Hour, open); err != nil || len(lost) != 1 {
			t.Errorf("Renew = %v, %v, want what has expired", lost, err)
		}
		stands(t, l, "acme", quota.Entry{Counter: quota.Counter{Key: "acme", Unit: quota.ConcurrentTurns}, Limit: 9}, 0, 0)

		sqlledger.Pass(l, 47*time.Hour)
		for i := range 5 { // windows of one counter
			spend(t, l, "acme", int64(i), hourly(l, "acme/user=0", 5))
			sqlledger.Pass(l, time.Hour)
		}
		before := rows(t, db, "audit")
		other := d.ledger(t)
		sqlledger.Pass(other, sqlledger.Skew(l)) // or what it holds would have expired long ago, and be forgotten
		for i := range 3 {
			wg.Go(func() {
				if err := wander(context.Background(), other, rand.New(rand.NewPCG(uint64(i), 7)), 40); err != nil {
					t.Error(err)
				}
			})
		}
		sweep(t, l)
		wg.Wait()
		reproduced(t, l)
		const old = "SELECT count(*) FROM headgate_audit_log WHERE key LIKE 'acme%' AND what NOT IN ('carried', 'forgotten')"
		if n := number(t, db, old); n != 2*5 {
			t.Errorf("%d rows of the audit are left of %d, want those of the last 5 calls", n, before)
		}
		stands(t, l, "acme", held("acme", 0, -1), 2*calls, 0)
		past, err := l.History(t.Context(), "acme", hourly(l, "acme/user=0", 0).Counter, 99)
		if err != nil || len(past) != 3 || past[0].Committed != 4 || past[2].Committed != 2 {
			t.Errorf("History = %+v, %v, want the last 3 windows", past, err)
		}

		sqlledger.Pass(l, 33*24*time.Hour)
		sweep(t, l)
		sweep(t, l) // what was forgotten is in the audit of now
		reproduced(t, l)
		if n := number(t, db, "SELECT count(*) FROM headgate_windows WHERE ends < 9223372036854775807"); n != 0 {
			t.Errorf("%d windows of long ago are left", n)
		}
		sqlledger.Pass(l, 33*24*time.Hour) // since what was held has expired
		sweep(t, l)
		sweep(t, l)
		reproduced(t, l)
		if n := rows(t, db, "buckets"); n != 0 {
			t.Errorf("%d rolling counters are left that have been full for long", n)
		}
		if n := number(t, db, "SELECT count(*) FROM headgate_counters WHERE key LIKE 'acme/%'"); n != 0 {
			t.Errorf("%d counters are left of which nothing is", n)
		}
		stands(t, l, "acme", held("acme", 0, -1), 2*calls, 0) // of all time
	})
}

// A ledger that sweeps by itself ends what has expired in trees that nobody uses.
func TestALedgerSweepsByItself(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		l := newLedger(t, sqlledger.Config{DB: d.open(t), SweepEvery: 20 * time.Millisecond})
		res, err := l.Reserve(t.Context(), quota.Reserve{ID: budget.NewID(), Tree: "acme", Entries: []quota.Entry{held("acme", 5, -1)}, TTL: time.Millisecond})
		if err != nil || res.Denied >= 0 {
			t.Fatal(res, err)
		}
		for begun := time.Now(); number(t, db, "SELECT reserved FROM headgate_windows") != 0; time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > 20*time.Second {
				t.Fatal("what has expired is never given back")
			}
		}
		reproduced(t, l)
	})
}
