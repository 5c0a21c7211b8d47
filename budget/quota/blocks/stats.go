package blocks

import (
	"sync/atomic"

	"github.com/headgate-go/headgate/budget/quota"
)

// stats are what is counted.
type stats struct {
	local, waited, denied, deniedBusy          atomic.Int64
	trips, leased, refused, renewals, failures atomic.Int64
	lapsed, late, lost                         atomic.Int64
}

// Stats says what is leased, and how often the ledger underneath was asked. Numbers
// without another word are totals since the ledger was made.
type Stats struct {
	// Blocks are leased now. Leased, Held, Spent and Idle are what is in them, by
	// unit: what calls hold, what they have spent and no block was settled for yet,
	// and the rest, which other replicas cannot use meanwhile.
	Blocks                    int
	Leased, Held, Spent, Idle quota.Amounts

	// Local reservations were decided here, and Waited ones after a word from the
	// ledger underneath.
	Local, Waited int64
	// Denied reservations were denied by what is leased, or after it was taken;
	// DeniedBusy are entries that were denied while something was reserved elsewhere,
	// by calls or idle blocks of other replicas.
	Denied, DeniedBusy int64

	// RoundTrips are all operations of the ledger underneath; BlocksLeased,
	// BlocksRefused and Renewals are some of them, and Failures those that failed.
	RoundTrips, BlocksLeased, BlocksRefused, Renewals, Failures int64
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
		RoundTrips: c.trips.Load(), BlocksLeased: c.leased.Load(), BlocksRefused: c.refused.Load(),
		Renewals: c.renewals.Load(), Failures: c.failures.Load(),
		Lapsed: c.lapsed.Load(), Late: c.late.Load(), Lost: c.lost.Load(),
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
			}
		}
		t.mu.Unlock()
	}
	return s
}
