package blocks

import (
	"context"
	"sync/atomic"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/unasked"
)

// stats are what is counted. trips are those for blocks.
type stats struct {
	local, waited, denied, deniedBusy                  atomic.Int64
	trips, passed, leased, refused, renewals, failures atomic.Int64
	lapsed, late, lost                                 atomic.Int64
	taken, returned                                    [quota.Units]atomic.Int64
}

// pass counts an operation that is for no block, unless the ledger underneath must not be
// asked.
func (s *stats) pass(ctx context.Context) {
	if unasked.Barred(ctx) == nil {
		s.passed.Add(1)
	}
}

// Stats says what is leased, and how often the ledger underneath was asked. Numbers
// without another word are totals since the ledger was made.
type Stats struct {
	// Blocks are leased now. Leased, Held, Spent and Idle are what is in them, by
	// unit: what calls hold, what they have spent and no block was settled for yet,
	// and the rest, which other replicas cannot use meanwhile.
	Blocks                    int
	Leased, Held, Spent, Idle quota.Amounts
	// Unanswered is what was spent of blocks whose settlement the ledger underneath has
	// not answered, by unit. They are not among the others.
	Unanswered quota.Amounts

	// Local reservations were decided here, and Waited ones after a word from the
	// ledger underneath.
	Local, Waited int64
	// Denied reservations were denied by what is leased, or after it was taken;
	// DeniedBusy are entries that were denied while something was reserved elsewhere,
	// by calls or idle blocks of other replicas.
	Denied, DeniedBusy int64

	// RoundTrips are all operations of the ledger underneath. Passed are those of them
	// that were for no block: what is not leased, and what was asked and changed from
	// outside, such as a Status. BlocksLeased, BlocksRefused and Renewals are some of
	// the others, and Failures those of the others that failed.
	RoundTrips, Passed, BlocksLeased, BlocksRefused, Renewals, Failures int64
	// Taken is what all blocks had in them, by unit, and Returned what of that was given
	// back to the ledger underneath unspent. Where a part of a block is leased anew, to
	// have the rest settled, it counts in both.
	Taken, Returned quota.Amounts
	// Lapsed blocks had ended in the ledger underneath while they were in use, and
	// Late ones were settled after that. Lost are blocks whose spend could not be
	// booked.
	Lapsed, Late, Lost int64
}

// Stats returns how things stand.
func (l *Ledger) Stats() Stats {
	c := &l.stats
	s := Stats{
		Local: c.local.Load(), Waited: c.waited.Load(), Denied: c.denied.Load(), DeniedBusy: c.deniedBusy.Load(),
		RoundTrips: c.trips.Load(), Passed: c.passed.Load(), BlocksLeased: c.leased.Load(), BlocksRefused: c.refused.Load(),
		Renewals: c.renewals.Load(), Failures: c.failures.Load(),
		Lapsed: c.lapsed.Load(), Late: c.late.Load(), Lost: c.lost.Load(),
	}
	s.RoundTrips += s.Passed
	for u := range s.Taken {
		s.Taken[u], s.Returned[u] = c.taken[u].Load(), c.returned[u].Load()
	}
	add := func(to *int64, n int64) { *to = sum(*to, max(n, 0)) }
	for _, t := range l.all() {
		t.mu.Lock()
		for _, c := range t.counters {
			u := c.key.Unit
			for _, p := range c.pools {
				s.Blocks += len(p.blocks)
				add(&s.Leased[u], p.leased)
				add(&s.Held[u], p.held)
				add(&s.Spent[u], p.spent)
				add(&s.Idle[u], p.idle())
				for _, b := range p.ended {
					add(&s.Unanswered[u], b.used)
				}
			}
		}
		t.mu.Unlock()
	}
	return s
}
