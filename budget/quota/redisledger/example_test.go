package redisledger_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
)

// Replicas that share a Redis share the limits of their users.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{
		Addr:                  "localhost:6379",
		ContextTimeoutEnabled: true, // so that a server that hangs is given up in time
	})
	defer client.Close()
	ledger, err := redisledger.New(ctx, redisledger.Config{Client: client})
	if err != nil {
		fmt.Println(err) // it cannot be reached, is too old, or refuses scripts
		return
	}
	defer ledger.Close(ctx)

	// An Enforcer does this for every model call.
	day := quota.Day
	result, err := ledger.Reserve(ctx, quota.Reserve{ID: "call-1", Tree: "tenant=acme", Entries: []quota.Entry{{
		Counter: quota.Counter{Key: "tenant=acme/user=alice", Window: day.ID(), Unit: quota.Tokens},
		Amount:  1200, Limit: 100_000, Spans: day.Spans(time.Now()),
	}}})
	if err != nil || result.Denied >= 0 {
		fmt.Println("not now:", result.RetryAfter, err)
		return
	}
	_, err = ledger.Settle(ctx, quota.Settle{ID: "call-1", Tree: "tenant=acme", Actual: quota.Amounts{quota.Tokens: 950}})
	fmt.Println(err)
}
