package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// fiveLimits are the limits of a call over three scopes: a day's credits of the
// user, a month's of the team and the tenant, and the tokens a minute of the user
// and the tenant.
func fiveLimits(tenant, user string) []quota.Entry {
	const limit = 1 << 52
	now := time.Now()
	calendar := func(key string, w quota.Window) quota.Entry {
		return quota.Entry{
			Counter: quota.Counter{Key: key, Window: w.ID(), Unit: quota.Credits}, Amount: 4600,
			Limit: limit, Ceiling: -1, Spans: w.Spans(now), Thresholds: []int{80, 100},
		}
	}
	rolling := func(key string) quota.Entry {
		return quota.Entry{
			Counter: quota.Counter{Key: key, Window: "rolling-1m", Unit: quota.Tokens}, Amount: 3400,
			Limit: limit, Ceiling: -1, Rolling: true, Per: time.Minute, Burst: limit, MaxWait: 2 * time.Second,
		}
	}
	return []quota.Entry{
		calendar(user, quota.Day), rolling(user), calendar(tenant+"/team=support", quota.Month),
		calendar(tenant, quota.Month), rolling(tenant),
	}
}

// bench is what a database is for a benchmark.
type bench struct {
	// open opens it, for the ledger and for the opponent.
	open func(b testing.TB) (ours, theirs *sql.DB)
	make string
}

var benches = map[string]bench{
	"sqlite": {
		open: func(b testing.TB) (ours, theirs *sql.DB) {
			ours = newSQLite(b).open(b)
			theirs = database{"sqlite", "file:" + filepath.Join(b.TempDir(), "bare.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"}.open(b)
			theirs.SetMaxOpenConns(1) // more would only wait for each other, and sleep meanwhile
			return ours, theirs
		},
		make: "CREATE TABLE bare (id integer PRIMARY KEY, committed integer NOT NULL, reserved integer NOT NULL)",
	},
	"postgres": {
		open: func(b testing.TB) (ours, theirs *sql.DB) {
			dsn := servers.StartPostgres(b, servers.PostgresOptions{FSync: true}).DSN()
			ours = database{"pgx", dsn}.open(b)
			// Rows are updated in the order of an index, so that there are no deadlocks.
			theirs = database{"pgx", dsn + "&enable_seqscan=off&enable_bitmapscan=off"}.open(b)
			theirs.SetMaxIdleConns(64)
			return ours, theirs
		},
		make: "CREATE TABLE bare (id integer PRIMARY KEY, committed bigint NOT NULL, reserved bigint NOT NULL) WITH (fillfactor = 50)",
	},
}

// What a durable reserve and settle over five limits costs, against a loop of two bare
// UPDATE … RETURNING of as many rows, both by as many callers, in turns.
func BenchmarkPairs(b *testing.B) {
	for _, dialect := range []string{"sqlite", "postgres"} {
		for _, tenants := range []string{"one", "each"} {
			for _, callers := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("%s/tenants=%s/callers=%d", dialect, tenants, callers), func(b *testing.B) {
					benchmarkPairs(b, benches[dialect], tenants == "one", callers)
				})
			}
		}
	}
}

func benchmarkPairs(b *testing.B, x bench, oneTenant bool, callers int) {
	own, db := x.open(b)
	l := newLedger(b, sqlledger.Config{DB: own})
	if _, err := db.Exec(x.make); err != nil {
		b.Fatal(err)
	}
	type caller struct {
		tree    string
		entries []quota.Entry
		rows    string
	}
	all := make([]caller, callers)
	rows := map[string]int{}
	for i := range all {
		tenant := "tenant=acme"
		if !oneTenant {
			tenant = "tenant=" + strconv.Itoa(i)
		}
		c := &all[i]
		c.tree, c.entries = tenant, fiveLimits(tenant, tenant+"/user="+strconv.Itoa(i))
		var ids []string
		for _, e := range c.entries {
			key := e.Key + e.Window
			if _, is := rows[key]; !is {
				rows[key] = len(rows)
				if _, err := db.Exec(fmt.Sprintf("INSERT INTO bare VALUES (%d, 0, 0)", rows[key])); err != nil {
					b.Fatal(err)
				}
			}
			ids = append(ids, strconv.Itoa(rows[key]))
		}
		slices.Sort(ids)
		c.rows = strings.Join(ids, ",")
	}
	ctx := context.Background()
	ours := func(c *caller) error {
		r := quota.Reserve{ID: budget.NewID(), Tree: c.tree, Entries: c.entries}
		if res, err := l.Reserve(ctx, r); err != nil || res.Denied >= 0 {
			return fmt.Errorf("Reserve = %+v, %w", res, err)
		}
		_, err := l.Settle(ctx, quota.Settle{ID: r.ID, Tree: c.tree, Actual: quota.Amounts{quota.Tokens: 3000, quota.Credits: 4000}})
		return err
	}
	theirs := func(c *caller) error {
		for _, set := range []string{"reserved = reserved + 4600", "reserved = reserved - 4600, committed = committed + 4000"} {
			if err := update(ctx, db, "UPDATE bare SET "+set+" WHERE id IN ("+c.rows+") RETURNING committed, reserved"); err != nil {
				return err
			}
		}
		return nil
	}
	turn := func(n int, f func(*caller) error) float64 {
		begun := time.Now()
		var left atomic.Int64
		left.Store(int64(n))
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := f(&all[i]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(n) / time.Since(begun).Seconds()
	}
	each := 10 * callers
	turn(each, ours)
	turn(each, theirs)
	b.ResetTimer()
	var a, o []float64
	for done := 0; done < b.N || len(a) < 3; done += each {
		a = append(a, turn(each, ours))
		o = append(o, turn(each, theirs))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(a), "pairs/s")
	b.ReportMetric(median(o), "bare/s")
	b.ReportMetric(median(a)/median(o), "ratio")
}

// update runs a bare statement.
func update(ctx context.Context, db *sql.DB, query string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
