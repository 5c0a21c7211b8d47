package blocks_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// Two replicas share what everybody may use in a day. Each leases a block of it and
// serves calls from that; when one has enough and the other needs more, it comes back.
func Example() {
	ctx := context.Background()
	store, _ := quota.NewMemory(quota.MemoryConfig{}) // in production: one that replicas can share
	a, _ := blocks.New(store, blocks.Config{Min: quota.Amounts{quota.Tokens: 50_000}, Share: 0.5})
	b, _ := blocks.New(store, blocks.Config{})

	call := func(l *blocks.Ledger, tokens int64) {
		r := quota.Reserve{ID: budget.NewID(), Tree: string(quota.Global), Entries: []quota.Entry{{
			Counter: quota.Counter{Key: "global", Window: quota.Day.ID(), Unit: quota.Tokens},
			Amount:  tokens, Limit: 100_000, Ceiling: -1, Spans: quota.Day.Spans(time.Now()),
		}}}
		res, err := l.Reserve(ctx, r)
		if err != nil || res.Denied >= 0 {
			fmt.Println(tokens, "are denied", err)
			return
		}
		if _, err := l.Settle(ctx, quota.Settle{ID: r.ID, Tree: r.Tree, Actual: quota.Amounts{quota.Tokens: tokens}}); err != nil {
			fmt.Println(err)
		}
	}
	for range 40 {
		call(a, 1000)
	}
	s := a.Stats()
	fmt.Println("40 calls, fewer than 10 round trips:", s.RoundTrips < 10)
	call(b, 55_000) // as long as a may need what it has leased

	if err := a.Flush(ctx); err != nil { // or a moment passes
		fmt.Println(err)
	}
	call(b, 55_000)
	for _, l := range []*blocks.Ledger{a, b} {
		if err := l.Close(ctx); err != nil {
			fmt.Println(err)
		}
	}
	all, _ := store.Status(ctx, string(quota.Global), quota.Entry{
		Counter: quota.Counter{Key: "global", Window: quota.Day.ID(), Unit: quota.Tokens},
		Limit:   100_000, Spans: quota.Day.Spans(time.Now()),
	})
	fmt.Println(all[0].Committed, "used,", all[0].Left(), "left")
	// Output:
	// 40 calls, fewer than 10 round trips: true
	// 55000 are denied <nil>
	// 95000 used, 5000 left
}
