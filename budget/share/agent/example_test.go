package agent_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
)

// Four replicas share a quota without a store: each has a quarter of it, and of the slots.
// When there are other replicas, each is told.
func Example_static() {
	sharing, err := agent.New(agent.Config{Mode: share.Static, Replicas: 4})
	if err != nil {
		log.Fatal(err)
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots:    200, // of all replicas together, as are the limits
		Headroom: 1,
		Profile:  ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000}),
		Share:    sharing,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close(context.Background())
	fmt.Println("of four:", gate.Stats().Dimensions[0].Level)
	if err := sharing.SetReplicas(5); err != nil {
		log.Fatal(err)
	}
	fmt.Println("of five:", gate.Stats().Dimensions[0].Level)
	// Output:
	// of four: 250
	// of five: 200
}
