package sqlledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/promtest"
	"github.com/headgate-go/headgate/internal/servers"
)

// series are the values of all series, by name and labels but that of the ledger.
func series(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	return promtest.Series(t, reg, "headgate_", "ledger")
}

// hasSeries waits until series have values: transactions are counted a moment after callers
// were answered.
func hasSeries(t testing.TB, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		got, wrong := series(t, reg), ""
		for at, v := range want {
			if have := got[at]; have != v {
				wrong += fmt.Sprintf("%s is %v, want %v\n", at, have, v)
			}
		}
		if wrong == "" {
			return
		}
		if time.Since(begun) > 5*time.Second {
			t.Errorf("%sthere is %v", wrong, got)
			return
		}
	}
}

// rename gives a table another name.
func rename(t testing.TB, db *sql.DB, from, to string) {
	t.Helper()
	if _, err := db.Exec("ALTER TABLE headgate_" + from + " RENAME TO headgate_" + to); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsTellWhatCameOfOperations(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		reg := prometheus.NewPedanticRegistry()
		l := newLedger(t, sqlledger.Config{DB: d.open(t), Registerer: reg})
		ctx, e := t.Context(), held("u", 10, 100)
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		id, other := take(t, l, "t", e), take(t, l, "t", e)
		spend(t, l, "t", 7, e)
		if res, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: "t", Entries: []quota.Entry{held("u", 100, 100)}}); err != nil || res.Denied != 0 {
			t.Fatal(res, err) // a denial is an answer
		}
		ok(l.Release(ctx, "t", other))
		_, err := l.Renew(ctx, "t", time.Minute, id)
		ok(err)
		_, err = l.TopUp(ctx, "t", e, 2)
		ok(err)
		stands(t, l, "t", e, 5, 10)
		_, err = l.History(ctx, "t", e.Counter, 3)
		ok(err)
		ok(l.Healthy(ctx))
		if err := l.Release(ctx, "t", "nobody's"); !errors.Is(err, quota.ErrUnknownReservation) {
			t.Errorf("got %v", err)
		}
		const made = 11 // up to here, each in a transaction of its own; that of Healthy is left out
		hasSeries(t, reg, map[string]float64{
			"store_operations_total{operation=reserve,outcome=ok}":      4,
			"store_operations_total{operation=settle,outcome=ok}":       1,
			"store_operations_total{operation=release,outcome=ok}":      1,
			"store_operations_total{operation=release,outcome=unknown}": 1,
			"store_operations_total{operation=renew,outcome=ok}":        1,
			"store_operations_total{operation=status,outcome=ok}":       2, // and a top-up
			"store_operations_total{operation=history,outcome=ok}":      1,
			"store_operations_total{operation=health,outcome=ok}":       1,
			"store_operation_seconds_count{operation=reserve}":          4,
			"sqlledger_transaction_operations_sum{}":                    made,
			"sqlledger_transaction_seconds_count{}":                     made,
			"sqlledger_waiting_operations{}":                            0,
			"sqlledger_transaction_failures_total{kind=disconnected}":   0,
			"sqlledger_swept_rows_total{table=audit}":                   0,
			"sqlledger_expired_reservations_total{}":                    0,
		})
		ok(l.Erase(ctx, "t", "u")) // two steps, and no ordinary transactions
		hasSeries(t, reg, map[string]float64{
			"store_operations_total{operation=erase,outcome=ok}": 2, "sqlledger_transaction_seconds_count{}": made,
		})
		ok(l.Close(ctx))
		if err := l.Release(ctx, "t", id); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		hasSeries(t, reg, map[string]float64{"store_operations_total{operation=release,outcome=closed}": 1})
	})
}

func TestMetricsTellHowManyOperationsShareATransaction(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		reg := prometheus.NewPedanticRegistry()
		l := newLedger(t, sqlledger.Config{DB: d.open(t), Registerer: reg})
		var calls, scrapes sync.WaitGroup
		done := make(chan struct{})
		scrapes.Go(func() {
			for {
				series(t, reg)
				select {
				case <-done:
					return
				default:
				}
			}
		})
		const callers, each = 32, 5
		for range callers {
			calls.Go(func() {
				for range each {
					spend(t, l, "acme", 2, held("acme", 5, -1))
				}
			})
		}
		calls.Wait()
		close(done)
		scrapes.Wait()
		hasSeries(t, reg, map[string]float64{
			"store_operations_total{operation=reserve,outcome=ok}": callers * each, "store_operations_total{operation=settle,outcome=ok}": callers * each,
			"sqlledger_transaction_operations_sum{}": 2 * callers * each, "sqlledger_waiting_operations{}": 0,
		})
		if n := series(t, reg)["sqlledger_transaction_operations_count{}"]; n == 0 || n >= 2*callers*each {
			t.Errorf("%d operations made %v transactions", 2*callers*each, n)
		}
	})
}

// What others have changed since it was read is a failure that is tried again, and nobody
// notices but by the metrics.
func TestMetricsTellOfTransactionsThatMeet(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		if d.driver == "sqlite" {
			return // it waits for the lock of the whole database
		}
		reg := prometheus.NewPedanticRegistry()
		l, other := newLedger(t, sqlledger.Config{DB: d.open(t), Registerer: reg}), d.ledger(t)
		for range 3 {
			spend(t, l, "acme", 2, held("acme", 5, -1))
			spend(t, other, "acme", 2, held("acme", 5, -1))
		}
		hasSeries(t, reg, map[string]float64{
			"store_operations_total{operation=reserve,outcome=ok}": 3, "sqlledger_transaction_failures_total{kind=failed}": 0, "sqlledger_transaction_operations_sum{}": 6,
		})
		if n := series(t, reg)["sqlledger_transaction_failures_total{kind=stale}"]; n == 0 || n > 6 {
			t.Errorf("6 operations after those of another ledger have met %v times what that has changed", n)
		}
	})
}

func TestMetricsTellWhatSweepsRemove(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		reg := prometheus.NewPedanticRegistry()
		db := d.open(t)
		l := newLedger(t, sqlledger.Config{
			DB: d.open(t), Remember: time.Hour, AuditRetention: 48 * time.Hour, HistoryRetention: 30 * 24 * time.Hour, KeepWindows: 3, Registerer: reg,
		})
		for i := range 5 {
			spend(t, l, "acme", 2, hourly(l, fmt.Sprint("acme/user=", i), 5))
		}
		take(t, l, "acme", held("acme", 1, -1))
		sweep(t, l) // nothing is old
		hasSeries(t, reg, map[string]float64{"sqlledger_sweeps_total{outcome=ok}": 1, "sqlledger_expired_reservations_total{}": 0, "sqlledger_swept_rows_total{table=reservations}": 0})

		sqlledger.Pass(l, 2*time.Hour)
		sweep(t, l)
		hasSeries(t, reg, map[string]float64{
			"sqlledger_sweeps_total{outcome=ok}": 2, "sqlledger_expired_reservations_total{}": 1, "sqlledger_swept_rows_total{table=reservations}": 5,
		})
		audited, calls := rows(t, db, "audit"), rows(t, db, "calls")
		sqlledger.Pass(l, 35*24*time.Hour)
		sweep(t, l)
		s := series(t, reg)
		if s["sqlledger_swept_rows_total{table=audit}"] != float64(audited) || s["sqlledger_swept_rows_total{table=calls}"] != float64(calls) ||
			s["sqlledger_swept_rows_total{table=counters}"] < 5 || s["sqlledger_sweeps_total{outcome=failed}"] != 0 {
			t.Errorf("there were %d rows of the audit and %d calls, and there is %v", audited, calls, s)
		}

		rename(t, db, "writers", "hidden")
		if err := l.Sweep(t.Context()); err == nil {
			t.Error("a table is gone, and a sweep does not notice")
		}
		hasSeries(t, reg, map[string]float64{"sqlledger_sweeps_total{outcome=failed}": 1})
		rename(t, db, "hidden", "writers")
	})
}

func TestMetricsTellApartHowAStoreFails(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, servers.PostgresOptions{})
	d := database{"pgx", server.NewDatabase(t)}
	reg := prometheus.NewPedanticRegistry()
	l := newLedger(t, sqlledger.Config{DB: d.open(t), Registerer: reg, Timeout: 300 * time.Millisecond})
	reserve := func(ctx context.Context) error {
		_, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: "acme", Entries: []quota.Entry{held("acme", 1, -1)}})
		return err
	}
	repeat(t, func() error { return reserve(t.Context()) })
	server.Pause()
	if err := reserve(t.Context()); !errors.Is(err, quota.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, leave)
	if err := reserve(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	server.Resume()
	s := series(t, reg)
	if s["store_operations_total{operation=reserve,outcome=timeout}"] == 0 || s["store_operations_total{operation=reserve,outcome=cancelled}"] != 1 {
		t.Errorf("a server that hangs is counted as %v", s)
	}
	repeat(t, func() error { return reserve(t.Context()) })

	db := d.open(t)
	rename(t, db, "windows", "hidden")
	if err := reserve(t.Context()); !errors.Is(err, quota.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	rename(t, db, "hidden", "windows")
	repeat(t, func() error { return reserve(t.Context()) })
	hasSeries(t, reg, map[string]float64{"store_operations_total{operation=reserve,outcome=refused}": 1})

	server.Kill()
	repeat(t, func() error {
		if err := reserve(t.Context()); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if s := series(t, reg); s["store_operations_total{operation=reserve,outcome=unreachable}"] == 0 || s["sqlledger_transaction_failures_total{kind=disconnected}"] == 0 {
			return fmt.Errorf("%w: a server that is dead is counted as %v", quota.ErrUnavailable, s)
		}
		return nil
	})
	server.Restart()
}

// Two ledgers of one name cannot share a registry, which stays as it was; nor does it forget
// one that was closed. Those of two kinds of databases have two names.
func TestLedgersShareARegistryByName(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	lite := newSQLite(t)
	l := newLedger(t, sqlledger.Config{DB: lite.open(t), Registerer: reg})
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(series(t, reg))
	db := lite.open(t)
	_, err := sqlledger.New(t.Context(), sqlledger.Config{DB: db, Registerer: reg})
	if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) || !strings.Contains(err.Error(), `sqlledger: Config.Registerer: ledger "sqlite"`) {
		t.Errorf("got %v, want an error of Config.Registerer", err)
	}
	if after := len(series(t, reg)); after != before || before == 0 {
		t.Errorf("there were %d series and there are %d after a ledger that was refused", before, after)
	}
	newLedger(t, sqlledger.Config{DB: db, Registerer: reg, Name: "other"}) // its connection was given back
	newLedger(t, sqlledger.Config{DB: lite.open(t), Registerer: (*prometheus.Registry)(nil)})
	newLedger(t, sqlledger.Config{DB: newPostgres(t).open(t), Registerer: reg})
}
