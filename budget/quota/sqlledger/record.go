package sqlledger

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// state is what became of a reservation. The numbers are in the database.
type state int64

const (
	open state = iota
	settled
	released
	expired
)

// record is a reservation, and the results that were given for it.
type record struct {
	ref       ref
	page      *page
	call      int64 // of the audit
	state     state
	exclusive ref // zero for none
	expires   int64
	ended     int64
	seq       int64  // of the last settlement
	entries   int    // how many of held are its entries
	held      []held // these, and after them what Settle brought with it
	given     givenResult
	settled   settledResult
	weight    int  // on its page
	exists    bool // it has a row
	dirty     bool // it is to be written
}

// held is an entry of a reservation: what it holds, and in which counter. Names are
// not in it, so that who is erased from the counters is gone from here, too.
type held struct {
	counter *counter // nil if it was erased

	id         int64 // of the counter
	kind       quota.Kind
	unit       quota.Unit
	rolling    bool
	passed     bool // nothing is taken: it is a Check, or has no limit, or is only observed
	limit      int64
	thresholds []int
	amount     int64 // what was taken
	used       int64 // what it was settled to
	kept       int64 // the part of used that no reset has cleared since
	resets     int64
	start, end int64    // of a calendar's window
	burst      int64    // of a bucket
	mark       int64    // of its charge
	first      standing // after Reserve
	last       standing // after Settle
}

// standing is what a status says besides what the entry says.
type standing struct {
	committed, reserved int64
	full                int64 // 0 for none
}

// givenResult is what a repeat of Reserve is told, besides Status.
type givenResult struct {
	now     int64
	wait    time.Duration
	over    []int
	crossed []crossing
}

// settledResult is what a repeat of Settle is told, besides Status.
type settledResult struct {
	over, late bool
	crossed    []crossing
}

// crossing is a threshold that the counter of one of what is held has
// crossed.
type crossing struct {
	held, percent int
	committed     int64
}

// status is the status of what is held, as it stood then.
func (h *held) status(st standing) quota.Status {
	if h.counter == nil {
		return quota.Status{Limit: -1}
	}
	to := quota.Status{Counter: h.counter.Counter, Limit: h.limit, Committed: st.committed, Reserved: st.reserved}
	if h.rolling {
		to.Rolling, to.Burst = true, h.burst
	} else {
		to.Span = spanOf(h.start, h.end)
	}
	if st.full != 0 {
		to.FullAt = instant(st.full)
	}
	return to
}

// repeat is the first result of a Reserve.
func (r *record) repeat() quota.Reserved {
	res := quota.Reserved{
		Denied: -1, Wait: r.given.wait, Now: instant(r.given.now), Repeated: true,
		Over: slices.Clone(r.given.over), Crossed: r.crossings(r.given.crossed),
	}
	for i := range r.held[:r.entries] {
		res.Status = append(res.Status, r.held[i].status(r.held[i].first))
	}
	return res
}

// result is that of the last Settle that took effect.
func (r *record) result() quota.Settled {
	res := quota.Settled{Over: r.settled.over, Late: r.settled.late, Crossed: r.crossings(r.settled.crossed)}
	for i := range r.held {
		if h := &r.held[i]; h.settles(i, r) {
			res.Status = append(res.Status, h.status(h.last))
		}
	}
	return res
}

// settles reports whether the i-th of what r holds is settled.
func (h *held) settles(i int, r *record) bool { return h.kind == quota.Hold || i >= r.entries }

// crossings are what callers are told about crossings. What was erased is left out.
func (r *record) crossings(all []crossing) (told []quota.Crossing) {
	for _, x := range all {
		h := &r.held[x.held]
		if h.counter == nil {
			continue
		}
		told = append(told, quota.Crossing{
			Counter: h.counter.Counter, Span: spanOf(h.start, h.end),
			Percent: x.percent, Committed: x.committed, Limit: h.limit,
		})
	}
	return told
}
