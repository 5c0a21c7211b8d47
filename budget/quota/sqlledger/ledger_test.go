package sqlledger_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/ledgertest"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// database is one that is empty at first.
type database struct{ driver, dsn string }

func newSQLite(t testing.TB) database {
	return database{"sqlite", filepath.Join(t.TempDir(), "quota.db")}
}

func newPostgres(t testing.TB) database {
	return database{"pgx", servers.SharedPostgres(t).NewDatabase(t)}
}

// inEach runs a test in both kinds of databases.
func inEach(t *testing.T, f func(t *testing.T, d database)) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB) database{"sqlite": newSQLite, "postgres": newPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, make(t))
		})
	}
}

// open opens it once more, as another process does.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// ledger opens the database once more, with a ledger of its own.
func (d database) ledger(t testing.TB) *sqlledger.Ledger {
	t.Helper()
	return newLedger(t, sqlledger.Config{DB: d.open(t)})
}

// newLedger makes a ledger that sweeps only when it is told to.
func newLedger(t testing.TB, cfg sqlledger.Config) *sqlledger.Ledger {
	t.Helper()
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = -1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second // the machine may be slow, and nothing here is about that
	}
	l, err := sqlledger.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// reproduced fails the test unless the audit reproduces every counter.
func reproduced(t testing.TB, l *sqlledger.Ledger) {
	t.Helper()
	all, err := l.Verify(context.Background())
	if err != nil {
		t.Errorf("Verify: %v", err)
	}
	for _, d := range all {
		t.Errorf("Verify: %v", d)
	}
}

func storeOf(l *sqlledger.Ledger) ledgertest.Store {
	return ledgertest.Store{
		Ledger:  l,
		Now:     func() time.Time { return time.Now().Add(sqlledger.Skew(l)) },
		Pass:    func(d time.Duration) { sqlledger.Pass(l, d) },
		SetBack: func(d time.Duration) { sqlledger.Pass(l, -d) },
	}
}

// Each test of the suite ends with a look at whether the audit reproduces what it has done.

func TestSQLiteIsALedger(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		l := newSQLite(t).ledger(t)
		t.Cleanup(func() { reproduced(t, l) })
		return storeOf(l)
	}, ledgertest.Options{Slack: 20 * time.Second})
}

func TestPostgresIsALedger(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	db := d.open(t)
	all := newLedger(t, sqlledger.Config{DB: db})
	t.Cleanup(func() { reproduced(t, all) })
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		return storeOf(newLedger(t, sqlledger.Config{DB: db}))
	}, ledgertest.Options{Slack: 20 * time.Second, Resolution: time.Microsecond})
}

// In memory there is one database for each connection, and so only one may be used.
func TestSQLiteInMemoryIsALedgerOfItsOwn(t *testing.T) {
	t.Parallel()
	l := database{"sqlite", ":memory:"}.ledger(t)
	spend(t, l, "acme", 40, held("acme", 100, -1))
	stands(t, l, "acme", held("acme", 0, -1), 40, 0)
	reproduced(t, l)
}

func TestWhatIsWrongInAConfigIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  sqlledger.Config
		want string
	}{
		{sqlledger.Config{}, "Config.DB"},
		{sqlledger.Config{Dialect: 9}, "Config.Dialect"},
		{sqlledger.Config{AuditRetention: -1}, "Config.AuditRetention"},
		{sqlledger.Config{HistoryRetention: -1}, "Config.HistoryRetention"},
		{sqlledger.Config{Remember: -1}, "Config.Remember"},
		{sqlledger.Config{Remember: time.Hour - 1}, "Config.Remember"},
		{sqlledger.Config{Remember: 48 * time.Hour, HistoryRetention: 47 * time.Hour}, "Config.HistoryRetention"},
		{sqlledger.Config{Timeout: -1}, "Config.Timeout"},
		{sqlledger.Config{KeepWindows: -1}, "Config.KeepWindows"},
		{sqlledger.Config{Transactions: -1}, "Config.Transactions"},
		{sqlledger.Config{Prefix: "a-b"}, "Config.Prefix"},
		{sqlledger.Config{Prefix: "Quota_"}, "Config.Prefix"},
		{sqlledger.Config{Schema: `x"; DROP`}, "Config.Schema"},
		{sqlledger.Config{Schema: "quota", Dialect: sqlledger.SQLite}, "Config.Schema"},
	} {
		_, err := sqlledger.New(t.Context(), tt.cfg)
		if err == nil || !strings.Contains(err.Error(), tt.want+" is") || errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("New(%+v): %v, want an error about %s", tt.cfg, err, tt.want)
		}
	}
}

func TestLedgersOfOtherPrefixesAndSchemasHaveNothingToDoWithEachOther(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		all := []sqlledger.Config{{DB: db}, {DB: db, Prefix: "other_"}}
		if d.driver == "pgx" {
			all = append(all, sqlledger.Config{DB: db, Schema: "elsewhere"})
		} else {
			for i := range all { // a second file is a second ledger's
				all[i].DB = d.open(t)
			}
		}
		for i, cfg := range all {
			l := newLedger(t, cfg)
			stands(t, l, "acme", held("acme", 0, -1), 0, 0)
			spend(t, l, "acme", int64(i+1), held("acme", 10, -1))
			stands(t, l, "acme", held("acme", 0, -1), int64(i+1), 0)
		}
	})
}

func TestAClosedLedgerIsUnavailable(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		l := d.ledger(t)
		if err := l.Healthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Healthy(t.Context()); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("Healthy after Close: %v, want %v", err, quota.ErrUnavailable)
		}
	})
}

func TestADatabaseThatCanOnlyBeReadIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, reading := range map[string]func(testing.TB) (make, read database){
		"sqlite": func(t testing.TB) (database, database) {
			d := newSQLite(t)
			return d, database{d.driver, "file:" + d.dsn + "?mode=ro"}
		},
		"postgres": func(t testing.TB) (database, database) {
			d := newPostgres(t)
			dsn, err := url.Parse(d.dsn)
			if err != nil {
				t.Fatal(err)
			}
			query := dsn.Query()
			query.Set("default_transaction_read_only", "on")
			dsn.RawQuery = query.Encode()
			return d, database{d.driver, dsn.String()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			make, read := reading(t)
			says := map[string]string{"sqlite": "readonly", "postgres": "default_transaction_read_only"}[name]
			l := make.ledger(t)
			if err := l.Healthy(t.Context()); err != nil {
				t.Errorf("Healthy: %v", err)
			}
			reg := prometheus.NewRegistry()
			l, err := sqlledger.New(t.Context(), sqlledger.Config{DB: read.open(t), SweepEvery: -1, Registerer: reg})
			if !errors.Is(err, quota.ErrUnavailable) || !strings.Contains(err.Error(), says) || l != nil {
				t.Errorf("New: %v, want an error that says %q", err, says)
			}
			if err := sqlledger.Migrate(t.Context(), sqlledger.Config{DB: read.open(t)}); name == "postgres" && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("Migrate: %v, want an error that says %q", err, says)
			}
			if left, err := reg.Gather(); err != nil || len(left) > 0 {
				t.Errorf("metrics are left of a ledger that was not made: %v, %v", left, err)
			}
		})
	}
}
