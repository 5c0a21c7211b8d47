package sqlledger_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// connector keeps the connections that it makes, so that a test can say how large the file may
// become for one that the ledger has.
type connector struct {
	driver driver.Driver
	dsn    string

	mu  sync.Mutex
	all []driver.Conn // mu guards it
}

func (c *connector) Driver() driver.Driver { return c.driver }

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, conn)
	return conn, err
}

// limit has a full disk begin at so many pages. Nobody may use the connections meanwhile.
func (c *connector) limit(t testing.TB, pages int64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		rows, err := conn.(driver.QueryerContext).QueryContext(context.Background(), fmt.Sprint("PRAGMA max_page_count = ", pages), nil)
		if err == nil {
			err = rows.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// SQLite says the same to a file that may not become larger as to a disk that is full.
func TestAFullDiskLeavesNothingHalfWritten(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	reader := d.open(t)
	conns := &connector{driver: reader.Driver(), dsn: d.dsn}
	db := sql.OpenDB(conns)
	defer db.Close()
	l := newLedger(t, sqlledger.Config{DB: db})
	spend(t, l, "acme", 0, held("acme", 5, -1))

	var committed, reserved int64
	reserve := func(id string) error {
		res, err := l.Reserve(t.Context(), quota.Reserve{ID: id, Tree: "acme", Entries: []quota.Entry{held("acme", 5, -1), held("acme/user=1", 5, -1)}})
		if err == nil && !res.Repeated {
			reserved += 5
		}
		return err
	}
	settle := func(id string) error {
		res, err := l.Settle(t.Context(), quota.Settle{ID: id, Tree: "acme", Actual: tokens(3)})
		if err == nil && !res.Repeated {
			committed += 3
			reserved -= 5
		}
		return err
	}
	n := 0
	for round := range 3 {
		conns.limit(t, number(t, reader, "PRAGMA page_count")+4)
		failed := 0
		var unsettled []string
		for first := n; failed < 5; n++ {
			if n > first+5000 {
				t.Fatal("the disk is never full")
			}
			id := fmt.Sprint("call-", n)
			for _, f := range []func(string) error{reserve, settle} {
				err := f(id)
				if err != nil && !errors.Is(err, quota.ErrUnavailable) && !errors.Is(err, quota.ErrUnknownReservation) {
					t.Fatalf("on a full disk: %v, want %v", err, quota.ErrUnavailable)
				}
				if err != nil {
					failed++
					unsettled = append(unsettled, id)
				}
			}
		}
		if round == 0 { // many at once fail each for itself
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					e := held("acme/large", 1, -1)
					_, err := l.Reserve(context.Background(), quota.Reserve{ID: fmt.Sprint("large-", i), Tree: "acme", Entries: []quota.Entry{e},
						Note: quota.Note{Turn: string(make([]byte, 20000))}})
					if !errors.Is(err, quota.ErrUnavailable) {
						t.Errorf("on a full disk: %v, want %v", err, quota.ErrUnavailable)
					}
				})
			}
			wg.Wait()
			stands(t, l, "acme", held("acme/large", 0, -1), 0, 0)
		}
		stands(t, l, "acme", held("acme", 0, -1), committed, reserved)
		reproduced(t, l)

		conns.limit(t, 1<<30)
		for _, id := range unsettled {
			if err := errors.Join(reserve(id), settle(id)); err != nil {
				t.Errorf("with room again: %v", err)
			}
		}
		stands(t, l, "acme", held("acme", 0, -1), committed, reserved)
		if reserved != 0 {
			t.Errorf("%d are reserved after all was settled", reserved)
		}
		reproduced(t, l)
	}
}
