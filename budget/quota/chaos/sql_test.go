package chaos_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota/sqlledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// What Postgres has committed is there after kill -9 of it, and of whoever asked for it; and
// its audit says the same as its counters.
func TestPostgresKeepsWhatItHasAcknowledged(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, servers.PostgresOptions{FSync: true})
	net := servers.NewProxy(t, server.Addr())
	dsn := server.NewDatabase(t)
	s := newStack(t, storeAt{"postgres", strings.Replace(dsn, server.Addr(), net.Addr(), 1)}, storeAt{"postgres", dsn}, false)
	faults := append(s.serverFaults(server, net), s.killCaller(), s.pauseCaller(), fault{"replies to commits are lost", func() {
		net.DropRepliesTo(1+s.chance.IntN(5), "commit")
	}})
	s.havoc(havocFor(t, 4*time.Second), faults...)
	s.settle(func() { postgresIsQuiet(t, dsn) })
	s.verify()
}

// postgresIsQuiet waits until nobody is at work for connections that are gone.
func postgresIsQuiet(t *testing.T, dsn string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'`).Scan(&n)
		switch {
		case err != nil:
			t.Fatal(err)
		case n == 0:
			return
		case time.Since(begun) > 20*time.Second:
			t.Fatalf("%d connections are still at work for callers that are gone", n)
		}
	}
}

// Processes that share a file of SQLite are killed, and stand still, also in the middle of
// a transaction, which keeps all others out: they get an answer all the same.
func TestSQLiteKeepsWhatItHasAcknowledged(t *testing.T) {
	t.Parallel()
	at := storeAt{"sqlite", filepath.Join(t.TempDir(), "quota.db")}
	s := newStack(t, at, at, false)
	s.havoc(havocFor(t, 4*time.Second), s.killCaller(), s.killCaller(), s.pauseCaller())
	s.settle(nil)
	s.verify()
}

// verify compares counters with the audit of the store.
func (s *stack) verify() {
	s.Helper()
	verify(s.T, s.ledger.(*sqlledger.Ledger))
}

func verify(t *testing.T, ledger *sqlledger.Ledger) {
	t.Helper()
	differences, err := ledger.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		t.Error(d)
	}
}
