package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/audit"
	"github.com/headgate-go/headgate/usage"
)

// A customer wants to know what used up their budget.
func ExampleUses() {
	dir, err := os.MkdirTemp("", "audit")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	sink, err := audit.Open(audit.Config{Dir: dir, Keep: 90 * 24 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	bus := quota.NewBus(quota.BusConfig{Listeners: []quota.Listener{sink.Listen}, Logger: slog.Default()})

	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "daily", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 10_000}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	enforcer, err := quota.New(quota.Config{Limits: limits, Ledger: ledger, Bus: bus})
	if err != nil {
		fmt.Println(err)
		return
	}
	alice := quota.Subject{Tenant: "acme", User: "alice"}
	ctx := quota.WithSubject(context.Background(), alice)
	for _, agent := range []string{"planner", "writer", "critic"} {
		call := budget.Call{ID: budget.NewID(), Model: "gemini-2.5-flash", Agent: agent, Usage: usage.Usage{Output: 5000}}
		r, err := enforcer.Budget().Reserve(ctx, call)
		if err != nil {
			continue
		}
		if err := r.Settle(ctx, usage.Usage{Input: 2000, Output: 3000}); err != nil {
			fmt.Println(err)
		}
	}
	// In this order: nothing is lost.
	_ = enforcer.Close(ctx)
	_ = bus.Close(ctx)
	_ = sink.Close()

	question := audit.Question{
		Scope: quota.User, Subject: alice, Unit: quota.Tokens, Window: quota.Day, At: time.Now(), Denials: true,
	}
	for use, err := range audit.Uses(audit.Read(dir, time.Time{}, time.Time{}), question) {
		switch {
		case err != nil:
			fmt.Println(err)
		case use.Record.Kind == quota.KindDenial:
			fmt.Printf("denied by %s, with %d used\n", use.Limit, use.Total)
		default:
			fmt.Printf("%s used %d, %d in all\n", use.Record.Agent, use.Amount, use.Total)
		}
	}
	// Output:
	// planner used 5000, 5000 in all
	// writer used 5000, 10000 in all
	// denied by daily, with 10000 used
}

// Once a month, what we counted is compared with the provider's bill.
func ExampleReconcile() {
	ours := map[audit.Day]audit.Sum{
		{Date: "2026-11-23", Model: "gpt-5"}: {Calls: 10, Input: 20_000, Output: 5000, Nanos: 75_000_000},
	}
	export := `date,model,input_tokens,output_tokens,cost
2026-11-23,gpt-5,20000,5000,0.075
2026-11-23,gpt-5-mini,900000,120000,0.465
`
	theirs, err := audit.ReadExport(strings.NewReader(export), audit.Columns{
		Date: "date", Model: "model", Input: []string{"input_tokens"}, Output: []string{"output_tokens"}, Cost: []string{"cost"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := audit.Reconcile(ours, theirs, audit.Tolerance{Share: 0.01})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range report.Differences {
		if d.OnlyTheirs {
			fmt.Printf("%s: %s went past the enforcer: %d tokens, %s\n",
				d.Date, d.Model, d.Theirs.Input+d.Theirs.Output, usage.Micros(d.Theirs.Nanos/1000))
		}
	}
	// Output:
	// 2026-11-23: gpt-5-mini went past the enforcer: 1020000 tokens, $0.465
}
