package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// A process that cannot write any more, and can again, and is killed before or after: what was
// acknowledged is there, and what was not is not half there.
func TestSQLiteKeepsWhatItHasAcknowledgedWhenWritesFail(t *testing.T) {
	t.Parallel()
	if !canFill {
		t.Skip("only on Linux can writes of a process be made to fail here")
	}
	at := storeAt{"sqlite", filepath.Join(t.TempDir(), "quota.db")}
	s := &stack{T: t, at: at, direct: at, change: func(c *caller) { c.Fills = true }}
	s.begin()
	s.havoc(havocFor(t, 3*time.Second), s.killCaller())
	s.settle(nil)
	s.verify()
	if s.books.failures("disk") == 0 {
		t.Error("no write has failed: nothing was tested")
	}
}

// A file that may not grow is an outage to callers, who get an answer at once, and over when
// there is room again.
func TestSQLiteKeepsWhatItHasAcknowledgedOnAFullDisk(t *testing.T) {
	t.Parallel()
	const pages, spare = 400, 16
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(400)&_pragma=max_page_count(%d)",
		filepath.Join(t.TempDir(), "quota.db"), pages))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ledger, err := sqlledger.New(t.Context(), sqlledger.Config{DB: db, Timeout: timeout, KeepWindows: keepWindows, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ledger.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	exec := func(query string, args ...any) {
		t.Helper()
		if err := again(func() error {
			_, err := db.ExecContext(t.Context(), query, args...)
			if err != nil && strings.Contains(err.Error(), "locked") {
				err = errors.Join(quota.ErrUnavailable, err)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	var used int
	if err := db.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&used); err != nil {
		t.Fatal(err)
	}
	exec("CREATE TABLE others (what blob)") // who need the room, too
	exec("INSERT INTO others VALUES (zeroblob(?))", (pages-used-spare)*4096)

	books, ctx := newBooks(), context.Background()
	working, stop := context.WithCancel(ctx)
	c := caller{Trees: trees, Seed: chance(t).Uint64(), Workers: workers}
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	begun := time.Now()
	all.Go(func() {
		c.work(working, ledger, answerWithin, func(format string, args ...any) { books.note(fmt.Sprintf(format, args...)) })
	})
	for books.failures("full") == 0 {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the disk does not get full")
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	_, _, before, _ := books.count()
	exec("DROP TABLE others")
	for freed := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, _, settled, _ := books.count(); settled >= before+10 {
			break
		}
		if time.Since(freed) > 20*time.Second {
			t.Fatal("there is room again, and callers do not go on")
		}
	}
	stop()
	all.Wait()
	books.complaints(t)
	lapse(t, ledger, trees)
	least, most := books.acknowledged()
	books.standing(t, ledger).within(t, "after the disk was full", least, most)
	doubtful := books.resolve(t, ledger, nil)
	least, most = books.acknowledged()
	books.standing(t, ledger).within(t, "when all calls have ended", least, most)
	books.bounds(t, time.Since(begun), nil)
	verify(t, ledger)
	n, denied, settled, late := books.count()
	t.Logf("%d calls, %d denied, %d settled, %d of them late, %d that nobody was told of", n, denied, settled, late, doubtful)
}
