package blocks

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// pool is what is leased of a counter in one window: a number of blocks. What calls
// hold, and what they have spent and the ledger was not told yet, is covered by the
// blocks; the rest is free.
//
// Of a calendar limit it does not matter which block a call takes from. So a block is
// settled as soon as as much was spent as there is in it, however long some calls
// last. Of a rolling one it does matter; see roll.
type pool struct {
	c    *counter
	span quota.Span
	gone bool // it was given up, and there may be another one by now

	blocks []*block // the oldest first
	ended  []*block // that the ledger was told the end of, and has not answered yet
	past   []*block // that were settled lately, the oldest first
	fixed  *block   // of these, the one with a correction that was not answered yet
	leased int64    // sum of blocks
	dies   int64    // when the first of them ends
	hard   int64    // the highest limit under which any was leased

	held  int64 // by calls
	spent int64 // by calls, and no block was settled for it yet
	back  int64 // what blocks were settled for too much
	fresh int64 // of a rolling counter: what was never taken
	over  int64 // of a rolling counter: the part of spent that is above what is leased

	usedAt     int64
	tookAt     int64 // when something was taken last
	reportedAt int64 // when something was settled last, or tried to
	swapAt     int64 // no part of a block is leased anew before
	stuck      bool  // a part of a block cannot be leased anew

	// What the ledger said last.
	known               bool
	sawAt               int64
	committed, reserved int64
	full                int64 // of a rolling counter: when nothing is missing
	limit, burst        int64 // the same: as it was asked then
	crossed             int   // the highest threshold that need not be asked about
}

// block is a reservation of the ledger underneath.
type block struct {
	id      string
	size    int64
	leased  int64 // when the request was sent that leased it
	renewed int64 // when the request was sent by which it lives
	until   int64 // when spending from it ends, unless it is renewed
	lapsed  bool  // the ledger does not hold it any more
	out     bool  // it is not leased any more
	used    int64 // what it is settled to
	seq     int64 // of the last correction
	less    int64 // by how much the one that was not answered lowers it

	signed signature // of what the ledger is told

	roll // of a rolling counter
}

// maxPast is how many settled blocks of a window are remembered, for corrections
// downwards.
const maxPast = 64

// is reports whether the pool is that of a window.
func (p *pool) is(span quota.Span) bool {
	return p.span.Start.Equal(span.Start) && p.span.End.Equal(span.End)
}

// recount adds up what is leased.
func (p *pool) recount() {
	p.leased, p.dies = 0, math.MaxInt64
	if len(p.blocks) == 0 {
		p.hard = 0
	}
	for _, b := range p.blocks {
		p.leased = sum(p.leased, b.size)
		if b.lapsed {
			p.dies = 0
		}
		p.dies = min(p.dies, b.until)
	}
}

// rolls reports whether the counter is a rolling one.
func (p *pool) rolls() bool { return p.c.key.per > 0 }

// alive reports whether a block can still be spent from.
func (b *block) alive(now int64) bool { return !b.lapsed && now < b.until }

// rest is what is leased and neither held nor spent, alive or not. It is below 0
// where more was spent than leased.
func (p *pool) rest() int64 { return p.leased - sum(p.held, p.spent) }

// idle is what is leased and lies idle, and what calls have given back to it.
func (p *pool) idle() (n int64) {
	if !p.rolls() {
		return max(p.rest(), 0)
	}
	for _, b := range p.blocks {
		n = sum(n, max(b.size-b.held-b.spent, 0))
	}
	return n
}

// free is what can be taken now; below 0 it is what was spent above what is leased.
func (p *pool) free(now int64) int64 {
	if p.rolls() {
		return p.freeRolling(now)
	}
	free := p.rest()
	if now >= p.dies {
		alive := int64(0)
		for _, b := range p.blocks {
			if b.alive(now) {
				alive = sum(alive, b.size)
			}
		}
		free = min(free, alive)
	}
	return max(free, -1<<62) // so that a little can be subtracted
}

// take takes what an entry asks for.
func (p *pool) take(h *held, now int64) {
	if h.passed || h.amount == 0 {
		return
	}
	p.tookAt = now
	switch {
	case p.rolls():
		p.takeRolling(h, now)
	case h.kind == quota.Count:
		p.spent = sum(p.spent, h.amount)
	default:
		p.held = sum(p.held, h.amount)
	}
}

// giveBack gives back what an entry holds.
func (p *pool) giveBack(h *held) {
	if h.passed || h.amount == 0 {
		return
	}
	p.held -= h.amount
	h.release()
}

// spend notes that so much was spent that was not held.
func (p *pool) spend(n int64) {
	p.spent = sum(p.spent, n)
	if p.rolls() {
		p.owe(n)
	}
}

// unspend notes that so much was not spent after all.
func (p *pool) unspend(n int64) {
	less := min(n, p.spent)
	p.spent -= less
	p.back = sum(p.back, n-less)
}

// empty reports whether nothing is to be done about the pool any more.
func (p *pool) empty() bool {
	return len(p.blocks)+len(p.ended) == 0 && p.held|p.spent|p.back == 0
}

// saw notes what the ledger says about the pool's counter.
func (p *pool) saw(st *quota.Status, now int64) {
	p.known, p.sawAt = true, now
	p.committed, p.reserved = st.Committed, st.Reserved
	if st.Rolling {
		p.limit, p.burst, p.full = st.Limit, st.Burst, now
		switch {
		case !st.FullAt.IsZero():
			p.full = sum(now, max(int64(st.FullAt.Sub(p.c.t.ledgerNow(now))), 0))
		case st.Committed > 0:
			p.full = math.MaxInt64
		}
	}
}

// standing is how a counter stands: what is committed, what is reserved, and for a
// rolling one when it is full, as Unix nanoseconds, or 0.
type standing struct{ committed, reserved, full int64 }

func (s standing) used() int64 { return sum(s.committed, s.reserved) }

// view is how the counter stands as far as is known: as the ledger said last, with
// what is held and spent here in the place of the blocks.
func (p *pool) view(now int64) standing {
	leased, settled := p.leased, p.committed
	for _, b := range p.ended {
		leased, settled = sum(leased, b.size), sum(settled, b.used)
	}
	st := standing{committed: sum(max(settled-p.back, 0), p.spent), reserved: sum(max(p.reserved-leased, 0), p.held)}
	if p.rolls() {
		p.viewRolling(&st, now)
	}
	return st
}

// viewRolling fills in what is missing from the bucket: what was leased and never
// taken is there, and what was spent above all that is leased is not.
func (p *pool) viewRolling(st *standing, now int64) {
	e := quota.Entry{Rolling: true, Per: p.c.key.per, Limit: p.limit, Burst: p.burst}
	idle := p.fresh - p.over
	d := p.full - now
	st.committed = p.committed
	if now != p.sawAt && p.full < math.MaxInt64 {
		st.committed = 0
		if d > 0 {
			st.committed = min(refilled(d-1, &e)+1, p.committed)
		}
	}
	if st.committed = max(less(st.committed, idle), 0); st.committed == 0 || p.full == math.MaxInt64 {
		return
	}
	if d = max(d, 0) + refillTime(less(0, idle), &e); d > 0 {
		st.full = p.c.t.ledgerNow(now).Add(time.Duration(d)).UnixNano()
	}
}

// status fills in how an entry's counter stands.
func (p *pool) status(to *quota.Status, e *quota.Entry, st standing) {
	*to = quota.Status{
		Counter: p.c.key.Counter, Span: p.span, Limit: e.Limit,
		Committed: st.committed, Reserved: st.reserved,
	}
	if e.Rolling {
		to.Rolling, to.Burst = true, e.Burst
	}
	if st.full != 0 {
		to.FullAt = time.Unix(0, st.full).UTC()
	}
}
