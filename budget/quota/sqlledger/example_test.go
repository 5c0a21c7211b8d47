package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the program brings the driver

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/sqlledger"
)

// A program keeps what people have spent in a file, and goes on with it when it runs again. For
// Postgres it imports github.com/jackc/pgx/v5/stdlib and opens "pgx"; nothing else is different.
func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "quota")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	open := func() (*sqlledger.Ledger, *sql.DB, error) {
		db, err := sql.Open("sqlite", filepath.Join(dir, "quota.db"))
		if err != nil {
			return nil, nil, err
		}
		ledger, err := sqlledger.New(ctx, sqlledger.Config{DB: db})
		return ledger, db, err
	}
	month := quota.Entry{
		Counter: quota.Counter{Key: "tenant=acme", Window: quota.Month.ID(), Unit: quota.Credits},
		Amount:  4_600, Limit: 5_000, Ceiling: -1, Spans: quota.Month.Spans(time.Now()),
	}

	ledger, db, err := open()
	if err != nil {
		fmt.Println(err)
		return
	}
	call := quota.Reserve{
		ID: budget.NewID(), Tree: "tenant=acme", Entries: []quota.Entry{month},
		Note: quota.Note{Subject: "tenant=acme/user=alice", Model: "gemini-2.5-pro"},
	}
	reserved, err := ledger.Reserve(ctx, call)
	fmt.Println("denied:", reserved.Denied >= 0, err)
	_, err = ledger.Settle(ctx, quota.Settle{ID: call.ID, Tree: call.Tree, Actual: quota.Amounts{quota.Credits: 3_100}})
	fmt.Println("settled:", err)
	fmt.Println("closed:", ledger.Close(ctx), db.Close())

	ledger, db, err = open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	defer ledger.Close(ctx)
	status, err := ledger.Status(ctx, "tenant=acme", month)
	fmt.Println("left:", status[0].Left(), err)
	for change, err := range ledger.Changes(ctx, "tenant=acme", month.Counter, 0) {
		fmt.Println(change.What, change.Amount, "for", change.Note.Subject, err)
	}
	differences, err := ledger.Verify(ctx)
	fmt.Println("differences:", len(differences), err)
	// Output:
	// denied: false <nil>
	// settled: <nil>
	// closed: <nil> <nil>
	// left: 1900 <nil>
	// hold 4600 for tenant=acme/user=alice <nil>
	// settle 3100 for tenant=acme/user=alice <nil>
	// differences: 0 <nil>
}
