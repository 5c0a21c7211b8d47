package redisbudget_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/ratelimited"
)

// Each replica of a program makes the same gate. The limits and the slots are those of all
// of them together.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "redis:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	sharing, err := redisbudget.New(ctx, redisbudget.Config{Client: client, Name: "gemini-2.5-flash"})
	if err != nil {
		log.Fatal(err)
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots:   200,
		Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 10_000, InputTokensPerMinute: 8_000_000}),
		Share:   sharing,
	})
	if err != nil {
		log.Fatal(err)
	}
	// What is left goes to the other replicas at once.
	defer func() {
		if err := gate.Close(ctx); err != nil {
			log.Print(err)
		}
	}()
}
