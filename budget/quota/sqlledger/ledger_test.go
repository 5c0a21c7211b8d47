package sqlledger_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/headgate-go/headgate/budget/quota/ledgertest"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// openSQLite opens a file of its own for the test.
func openSQLite(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
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

// openPostgres opens a database of the shared server.
func openPostgres(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
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

func storeOf(l *sqlledger.Ledger) ledgertest.Store {
	return ledgertest.Store{
		Ledger:  l,
		Now:     func() time.Time { return time.Now().Add(sqlledger.Skew(l)) },
		Pass:    func(d time.Duration) { sqlledger.Pass(l, d) },
		SetBack: func(d time.Duration) { sqlledger.Pass(l, -d) },
	}
}

func TestSQLiteIsALedger(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		l := newLedger(t, sqlledger.Config{DB: openSQLite(t, filepath.Join(t.TempDir(), "quota.db"))})
		return storeOf(l)
	}, ledgertest.Options{Slack: 20 * time.Second})
}

func TestPostgresIsALedger(t *testing.T) {
	t.Parallel()
	db := openPostgres(t, servers.SharedPostgres(t).NewDatabase(t))
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		return storeOf(newLedger(t, sqlledger.Config{DB: db}))
	}, ledgertest.Options{Slack: 20 * time.Second, Resolution: time.Microsecond})
}
