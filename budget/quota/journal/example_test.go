package journal_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// A store fails over, and has lost what it had acknowledged. The process that has spent it
// tells it again.
func ExampleLedger_Replay() {
	dir, err := os.MkdirTemp("", "journal") // on a disk that outlives the process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(dir, journal.Config{SyncTimeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer j.Close()
	store := &failingOver{} // in a program: a Redis, say
	if store.Ledger, err = quota.NewMemory(quota.MemoryConfig{}); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	ledger, err := journal.New(store, j)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ledger.Close(ctx)

	// What an Enforcer does for each call.
	begun := time.Now()
	total := quota.Entry{
		Counter: quota.Counter{Key: "user", Window: "total", Unit: quota.Tokens},
		Kind:    quota.Hold, Amount: 1000, Limit: 10_000, Ceiling: -1,
	}
	for _, id := range []string{"call-1", "call-2"} {
		if _, err := ledger.Reserve(ctx, quota.Reserve{ID: id, Tree: "acme", Entries: []quota.Entry{total}}); err != nil {
			fmt.Println(err)
			return
		}
		if _, err := ledger.Settle(ctx, quota.Settle{ID: id, Tree: "acme", Actual: quota.Amounts{quota.Tokens: 700}}); err != nil {
			fmt.Println(err)
			return
		}
	}
	print := func(when string) {
		status, err := ledger.Status(ctx, "acme", total)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %d used\n", when, status[0].Committed)
	}
	print("before")

	if store.Ledger, err = quota.NewMemory(quota.MemoryConfig{}); err != nil {
		fmt.Println(err)
		return
	}
	print("after the failover")

	for range 2 { // once is enough, and more often does no harm
		report, err := ledger.Replay(ctx, begun)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d booked anew, %d known\n", report.Booked, report.Known)
	}
	print("after the replay")
	// Output:
	// before: 1400 used
	// after the failover: 0 used
	// 2 booked anew, 0 known
	// 0 booked anew, 2 known
	// after the replay: 1400 used
}

// failingOver is a ledger in the place of which another one comes.
type failingOver struct{ quota.Ledger }
