package quota_test

import (
	"context"
	"fmt"
	"iter"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// exampleEnforcer lets a user have two turns under way and 1,000 tokens a month.
func exampleEnforcer() (*quota.Enforcer, error) {
	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
		{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
		{Scope: quota.User, Window: quota.Month, Max: quota.Max{quota.Tokens: 1_000}},
	}})
	if err != nil {
		return nil, err
	}
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		return nil, err
	}
	return quota.New(quota.Config{Ledger: ledger, Limits: limits})
}

func ExampleEnforcer() {
	enforcer, err := exampleEnforcer()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", User: "ann"})
	defer enforcer.Close(ctx)

	turn, err := enforcer.Admit(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer turn.End()
	if denial := turn.Denied(); denial != nil {
		fmt.Println(denial)
		return
	}
	// A rate-limited model does this for each call.
	for range 2 {
		call := budget.Call{ID: budget.NewID(), Model: "gemini-2.5-flash", Usage: usage.Usage{Input: 100, Output: 500}}
		reservation, err := enforcer.Budget().Reserve(turn.Context(), call)
		if err != nil {
			denial := err.(*quota.Denial)
			fmt.Printf("%s, %s: %d of %d %v used\n", denial.Stage, denial.Reason, denial.Used, denial.Max, denial.Unit)
			return
		}
		if err := reservation.Settle(ctx, usage.Usage{Input: 100, Output: 350}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// mid_turn, exhausted: 450 of 1000 tokens used
}

func ExampleRun() {
	enforcer, err := exampleEnforcer()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", User: "ann"})
	defer enforcer.Close(ctx)

	// An agent framework's runner returns such a sequence.
	agent := func(ctx context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) { yield("The answer is 42.", nil) }
	}
	sorry := func(d *quota.Denial) (string, error) {
		if d.Stage == quota.MidTurn {
			return "I had to stop early: this is not complete.", nil
		}
		return "Too many chats are open. Please close one.", nil
	}
	ask := func() {
		for event, err := range quota.Answer(quota.Run(ctx, enforcer, agent), sorry) {
			fmt.Println(event, err)
		}
	}
	ask()
	for range 2 { // two other chats
		if turn, err := enforcer.Admit(ctx); err == nil {
			defer turn.End()
		}
	}
	ask()
	// Output:
	// The answer is 42. <nil>
	// Too many chats are open. Please close one. <nil>
}
