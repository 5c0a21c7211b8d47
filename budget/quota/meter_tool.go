package quota

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// Cost is what something that is no model call costs: a paid search, a page that is
// rendered.
type Cost struct {
	// Tool names what costs, from a fixed set, for events and metrics.
	Tool string
	// Tokens, Credits and Money count under the limits of these units. Money is in
	// micro-dollars, and counts for the cost of the turn, too.
	Tokens, Credits int64
	Money           usage.Micros
}

// Validate returns an error that names each field with a value that it cannot have.
func (c Cost) Validate() error {
	var errs []error
	check := func(field string, n int64) {
		if n < 0 || n > MaxAmount {
			errs = append(errs, fmt.Errorf("quota: Cost.%s is %d, must be from 0 to %d", field, n, int64(MaxAmount)))
		}
	}
	check("Tokens", c.Tokens)
	check("Credits", c.Credits)
	check("Money", int64(c.Money))
	return errors.Join(errs...)
}

// amount is the cost in a unit.
func (c *Cost) amount(u Unit) int64 {
	switch u {
	case Tokens:
		return c.Tokens
	case Credits:
		return c.Credits
	case Money:
		return int64(c.Money)
	}
	return 0
}

// amounts is the cost by unit.
func (c *Cost) amounts() (n Amounts) {
	for u := range Unit(Units) {
		n[u] = c.amount(u)
	}
	return n
}

// Metered is the cost of something that is reserved, until it is settled or
// released. Of Settle and Release the first one counts; later ones change nothing
// and return nil. It is safe for concurrent use.
type Metered struct{ m *metered }

// Meter reserves the cost of something that is no model call, as [Enforcer.Budget]
// does for model calls: under all limits or none, with a wait for rolling ones, and a
// [*Denial] as the error. Whoever gets a Metered must settle or release it.
func (e *Enforcer) Meter(ctx context.Context, cost Cost) (*Metered, error) {
	if err := cost.Validate(); err != nil {
		return nil, err
	}
	m := &metered{e: e, call: budget.Call{ID: budget.NewID(), Agent: cost.Tool}, tool: &cost}
	if err := m.reserve(ctx); err != nil {
		return nil, err
	}
	return &Metered{m}, nil
}

// Settle charges what it really cost; more than was reserved is accepted.
func (t *Metered) Settle(ctx context.Context, actual Cost) error {
	if err := actual.Validate(); err != nil {
		return err
	}
	if !t.m.end(true) {
		return nil
	}
	n := actual.amounts()
	for u := range n { // what it cost that nobody thought of counts, too
		t.m.counted[u] = t.m.counted[u] || n[u] > 0
	}
	return t.m.book(ctx, usage.Usage{}, n, 0)
}

// Release charges nothing.
func (t *Metered) Release(ctx context.Context) error { return t.m.Release(ctx) }
