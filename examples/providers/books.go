package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// variant is the way of processing for which calls are priced.
const variant = usage.Standard

// books are a budget that lets every call pass whose model has a price, and notes
// what it was settled at. One that meters a customer would look alike, and compare
// with a limit in Reserve.
type books struct {
	catalog *usage.Catalog

	mu sync.Mutex
	// mu guards all that follows.
	calls int // that were reserved
	total entry
	err   error // the first that a call could not be priced for
}

// entry is what calls used.
type entry struct {
	input, cached, written, output int64 // tokens; cached and written are inside input
	estimated                      int   // calls of which the provider did not report all
	cost                           usage.Micros
}

// Reserve implements budget.Budget.
func (b *books) Reserve(_ context.Context, call budget.Call) (budget.Reservation, error) {
	price, err := b.catalog.Price(call.Model, time.Now(), variant)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return &reservation{books: b, price: price}, nil
}

// reservation is a call in the books. It is priced by one list, whatever becomes
// of the catalogue meanwhile.
type reservation struct {
	books *books
	price usage.Price

	// books.mu guards all that follows.
	closed bool
	booked entry
}

var (
	_ budget.Adjuster = (*reservation)(nil)
	_ budget.Local    = (*reservation)(nil)
)

// Local implements budget.Local: nothing here waits, so the books are complete as
// soon as the last call has ended.
func (r *reservation) Local() bool { return true }

// Settle implements budget.Reservation.
func (r *reservation) Settle(_ context.Context, actual usage.Usage) error {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.book(actual)
}

// Release implements budget.Reservation: the call cost nothing.
func (r *reservation) Release(context.Context) error {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	r.closed = true
	return nil
}

// Adjust implements budget.Adjuster: it books the call anew. OpenAI reports the
// usage of a streamed completion after its last text.
func (r *reservation) Adjust(_ context.Context, actual usage.Usage) error {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	return r.book(actual)
}

// book replaces what the call is booked at. books.mu is held.
func (r *reservation) book(u usage.Usage) error {
	cost, err := r.price.Cost(u)
	if err == nil {
		_, err = r.books.total.cost.Add(cost - r.booked.cost) // nothing wraps around
	}
	if err != nil {
		if r.books.err == nil {
			r.books.err = fmt.Errorf("the books: %w", err)
		}
		return err
	}
	e := entry{input: u.Input, cached: u.CachedInput, written: u.CacheWrite, output: u.Output, cost: cost}
	if u.Has(usage.Estimated) {
		e.estimated = 1
	}
	r.books.total.add(r.booked, -1)
	r.books.total.add(e, 1)
	r.booked = e
	return nil
}

// add adds another entry, or with sign -1 takes it away.
func (e *entry) add(other entry, sign int64) {
	e.input += sign * other.input
	e.cached += sign * other.cached
	e.written += sign * other.written
	e.output += sign * other.output
	e.estimated += int(sign) * other.estimated
	e.cost += usage.Micros(sign) * other.cost
}

// closed are the totals when all calls have ended.
func (b *books) closed() (calls int, total entry, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls, b.total, b.err
}
