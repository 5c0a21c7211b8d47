package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// errNothing is the error for a booking of nothing.
var errNothing = errors.New("nothing is to be booked")

// booking is how something is booked anew: as a reservation that nothing denies.
type booking struct {
	ttl     time.Duration
	note    quota.Note
	entries []quota.Entry // as they were recorded
	counts  bool          // those that count for good are surely not counted
}

// reserve has what was held be taken as nothing, since it is settled at once and nobody
// knows whether there is room; the settlement of more than was held is always taken.
func (b *booking) reserve(tree, id string) quota.Reserve {
	r := quota.Reserve{ID: id, Tree: tree, TTL: b.ttl, Note: b.note}
	for _, e := range b.entries {
		switch {
		case e.Kind == quota.Hold:
			e.Amount = 0
		case !b.counts:
			continue
		}
		r.Entries = append(r.Entries, e)
	}
	return r
}

// book books a settlement of a reservation that the ledger does not know: it makes the
// reservation, with the same id, and settles it. Two that do so at the same time do it
// once.
func (l *Ledger) book(ctx context.Context, b *booking, s *quota.Settle) (quota.Settled, error) {
	r := b.reserve(s.Tree, s.ID)
	calendar := false
	for i := range s.More {
		calendar = calendar || !s.More[i].Rolling
	}
	if len(r.Entries) == 0 && !calendar {
		return quota.Settled{}, errNothing
	}
	if _, err := l.take(ctx, r); err != nil {
		return quota.Settled{}, err
	}
	return l.ledger.Settle(ctx, *s)
}

// take reserves what is spent already, and reports whether the ledger knew it.
func (l *Ledger) take(ctx context.Context, r quota.Reserve) (known bool, err error) {
	res, err := l.ledger.Reserve(ctx, r)
	switch {
	case err != nil:
		return false, err
	case res.Denied >= 0 || res.Held: // as counters end somewhere
		return false, fmt.Errorf("journal: %w: it has no room for what is spent", quota.ErrUnavailable)
	}
	return res.Repeated, nil
}

// Book records, and books, what was used without a reservation, as the ledger could not
// be reached: r says where, and its entries of kind Hold and Count count as spent, those
// that hold with what s says. Nothing denies them. They belong to the windows in the
// middle of their Spans. r and s have the same id, which was never used, and the same
// tree. It is Settle in all else: an error means that the ledger is told later.
func (l *Ledger) Book(ctx context.Context, r quota.Reserve, s quota.Settle) (quota.Settled, error) {
	if err := errors.Join(r.Validate(), s.Validate()); err != nil {
		return quota.Settled{}, err
	}
	if r.ID != s.ID || r.Tree != s.Tree {
		return quota.Settled{}, fmt.Errorf("journal: Book: the reservation is %q of %q and the settlement %q of %q, must be the same", r.ID, r.Tree, s.ID, s.Tree)
	}
	if err := ctx.Err(); err != nil {
		return quota.Settled{}, err
	}
	middle := quota.Reserved{Status: make([]quota.Status, len(r.Entries))}
	for i := range r.Entries {
		middle.Status[i].Span = r.Entries[i].Spans[1]
	}
	x, _, _ := newReservation(&r, &middle, time.Now())
	x.unmade = true
	k := key{r.Tree, r.ID}
	l.open.put(k, x)
	return l.settle(ctx, k, &s)
}
