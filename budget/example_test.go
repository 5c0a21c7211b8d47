package budget_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// The instants of these examples.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A call reserves an estimate and settles to what the answer reports. What it
// did not use is there for others at once.
func ExampleTokenBudget() {
	b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 30_000}) // tokens per minute
	if err != nil {
		fmt.Println(err)
		return
	}
	hold := b.Take(noon, 28_000)
	ok, at := b.Fits(noon, 5_000)
	fmt.Println("5,000 more fit:", ok, "but in", at.Sub(noon))

	b.Settle(noon, hold, 24_000)
	ok, _ = b.Fits(noon, 5_000)
	fmt.Println("5,000 more fit:", ok, "of", b.Level(noon))
	// Output:
	// 5,000 more fit: false but in 6s
	// 5,000 more fit: true of 6000
}

// A provider may count a call much later than it was sent. The hold counts until
// that is over, and for a window from then on.
func ExampleWindowBudget() {
	w, err := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: 1000, Cell: time.Second}) // requests per minute
	if err != nil {
		fmt.Println(err)
		return
	}
	hold := w.Take(noon, 1000)
	ok, at := w.Fits(noon, 1)
	fmt.Println("sent:", ok, "and time alone does not help:", at.IsZero())

	answer := noon.Add(20 * time.Second) // the first item of the answer
	hold = w.Counted(answer, hold)
	ok, at = w.Fits(answer, 1)
	fmt.Println("counted:", ok, "but in", at.Sub(answer))

	w.Settle(answer, hold, 1000)
	fmt.Println("a minute and a cell later:", w.Level(at))
	// Output:
	// sent: false and time alone does not help: true
	// counted: false but in 1m1s
	// a minute and a cell later: 1000
}

func ExampleDeniedError() {
	err := fmt.Errorf("reviewing: %w", &budget.DeniedError{
		Budget: "team blue", Unit: "tokens", Limit: 50_000, Used: 48_000, Requested: 6_000,
		RetryAfter: 12 * time.Second,
	})
	fmt.Println(err)
	if denied, ok := errors.AsType[*budget.DeniedError](err); ok {
		fmt.Println("try again in", denied.RetryAfter)
	}
	// Output:
	// reviewing: budget "team blue" denied 6000 tokens: 48000 of 50000 used, retry after 12s
	// try again in 12s
}
