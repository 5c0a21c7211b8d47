package main

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// newBooks are books with the example's prices.
func newBooks(t *testing.T) *books {
	t.Helper()
	catalog, err := (&options{}).catalog()
	if err != nil {
		t.Fatal(err)
	}
	return &books{catalog: catalog}
}

func TestACallIsBookedOnceAtWhatItWasLastSaidToUse(t *testing.T) {
	t.Parallel()
	first := usage.Usage{Input: 1000, Output: 10, Flags: usage.Estimated}
	second := usage.Usage{Input: 2000, CachedInput: 1000, CacheWrite: 400, Output: 100}
	for _, c := range []struct {
		name string
		do   func(r budget.Reservation) error
		want entry
	}{
		{"nothing yet", func(budget.Reservation) error { return nil }, entry{}},
		{"settled", func(r budget.Reservation) error { return r.Settle(t.Context(), first) },
			entry{input: 1000, output: 10, estimated: 1, cost: 3000 + 150}},
		{"settled twice", func(r budget.Reservation) error {
			return errors.Join(r.Settle(t.Context(), second), r.Settle(t.Context(), first))
		}, entry{input: 2000, cached: 1000, written: 400, output: 100, cost: 1800 + 300 + 1500 + 1500}},
		{"settled and adjusted", func(r budget.Reservation) error {
			return errors.Join(r.Settle(t.Context(), first), r.(budget.Adjuster).Adjust(t.Context(), second))
		}, entry{input: 2000, cached: 1000, written: 400, output: 100, cost: 1800 + 300 + 1500 + 1500}},
		{"released", func(r budget.Reservation) error {
			return errors.Join(r.Release(t.Context()), r.Settle(t.Context(), first))
		}, entry{}},
		{"settled and released", func(r budget.Reservation) error {
			return errors.Join(r.Settle(t.Context(), first), r.Release(t.Context()))
		}, entry{input: 1000, output: 10, estimated: 1, cost: 3000 + 150}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			other, err := b.Reserve(t.Context(), budget.Call{Model: "gemini-2.5-flash"})
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Settle(t.Context(), usage.Usage{Input: 10}); err != nil {
				t.Fatal(err)
			}
			r, err := b.Reserve(t.Context(), budget.Call{Model: "claude-sonnet-4-5-20250929"})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.do(r); err != nil {
				t.Fatal(err)
			}
			c.want.add(entry{input: 10, cost: 3}, 1)
			calls, total, err := b.closed()
			if calls != 2 || total != c.want || err != nil {
				t.Errorf("%d calls, %+v, %v; want %+v", calls, total, err, c.want)
			}
		})
	}
}

func TestACallThatCannotBePricedIsRefusedOrTold(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	if _, err := b.Reserve(context.Background(), budget.Call{Model: "unknown"}); !errors.Is(err, usage.ErrUnknownModel) {
		t.Errorf("reserved for an unknown model: %v", err)
	}
	r, err := b.Reserve(context.Background(), budget.Call{Model: "gpt-5-mini"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(context.Background(), usage.Usage{Input: 1 << 62, Output: 1 << 62}); !errors.Is(err, usage.ErrOverflow) {
		t.Errorf("settled: %v", err)
	}
	dear := &reservation{books: b, price: usage.Price{Rates: usage.Rates{Input: usage.PerMillion(1 << 62), Output: usage.PerMillion(1 << 62)}}}
	for range 2 { // each by itself can be told in micro-dollars, the sum cannot
		if err := dear.Adjust(context.Background(), usage.Usage{Input: 1_200_000}); err != nil {
			t.Errorf("booked: %v", err)
		}
	}
	other := &reservation{books: b, price: dear.price}
	if err := other.Settle(context.Background(), usage.Usage{Input: 1_200_000}); !errors.Is(err, usage.ErrOverflow) {
		t.Errorf("the sum: %v", err)
	}
	if err := dear.Adjust(context.Background(), usage.Usage{}); err != nil {
		t.Errorf("booked: %v", err)
	}
	if calls, total, err := b.closed(); calls != 1 || total != (entry{}) || !errors.Is(err, usage.ErrOverflow) {
		t.Errorf("the books say %d calls, %+v, %v", calls, total, err)
	}
}
