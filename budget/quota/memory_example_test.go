package quota_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// A call reserves an estimate on every limit that it counts against, and is settled
// to what it has used.
func ExampleMemory() {
	ctx := context.Background()
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ledger.Close(ctx)

	now := time.Now()
	entry := func(key string, limit int64) quota.Entry {
		return quota.Entry{
			Counter: quota.Counter{Key: key, Window: quota.Month.ID(), Unit: quota.Credits},
			Amount:  4_600, Limit: limit, Ceiling: -1, Spans: quota.Month.Spans(now),
		}
	}
	call := quota.Reserve{
		ID: budget.NewID(), Tree: "tenant=acme",
		Entries: []quota.Entry{entry("tenant=acme/user=alice", 400_000), entry("tenant=acme", 5_000)},
	}
	reserved, err := ledger.Reserve(ctx, call)
	fmt.Println("denied:", reserved.Denied >= 0, err)

	second := call
	second.ID = budget.NewID()
	reserved, err = ledger.Reserve(ctx, second)
	fmt.Println("denied by:", reserved.Status[reserved.Denied].Counter.Key, err)

	settled, err := ledger.Settle(ctx, quota.Settle{
		ID: call.ID, Tree: call.Tree, Actual: quota.Amounts{quota.Credits: 3_100},
	})
	for _, st := range settled.Status {
		fmt.Println(st.Counter.Key, "has used", st.Committed, "and has left", st.Left())
	}
	fmt.Println(err)
	// Output:
	// denied: false <nil>
	// denied by: tenant=acme <nil>
	// tenant=acme/user=alice has used 3100 and has left 396900
	// tenant=acme has used 3100 and has left 1900
	// <nil>
}

// What a process knows survives its clean restart.
func ExampleMemory_Snapshot() {
	ctx := context.Background()
	before, _ := quota.NewMemory(quota.MemoryConfig{})
	turns := quota.Entry{
		Counter: quota.Counter{Key: "user=alice", Window: quota.Day.ID(), Unit: quota.Turns},
		Kind:    quota.Count, Amount: 1, Limit: 14, Ceiling: -1, Spans: quota.Day.Spans(time.Now()),
	}
	_, err := before.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: "user=alice", Entries: []quota.Entry{turns}})
	fmt.Println(err)

	var file bytes.Buffer
	fmt.Println(before.Close(ctx), before.Snapshot(&file))

	after, _ := quota.NewMemory(quota.MemoryConfig{})
	fmt.Println(after.Restore(&file))
	status, _ := after.Status(ctx, "user=alice", turns)
	fmt.Println("turns left today:", status[0].Left())
	// Output:
	// <nil>
	// <nil> <nil>
	// <nil>
	// turns left today: 13
}
