package blocks

import (
	"container/heap"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// state is what became of a reservation.
type state uint8

const (
	open state = iota
	settled
	released
	expired
)

// record is a reservation that is served from blocks, and the results that were
// given for it.
type record struct {
	id      string
	held    []held // its entries, and after these what Settle brought with it
	entries int    // how many of held are its entries
	below   bool   // a part of it is a reservation of the ledger underneath, with the same id
	at      []int  // the indices of entries that are not leased; they stay as they are
	state   state
	expires int64
	ended   int64
	place   int     // in tree.open
	next    *record // in tree.ended
	seq     int64   // of the last settlement

	// What a repeat of Reserve is told.
	saidAt  time.Time
	wait    time.Duration
	over    []int
	crossed []quota.Crossing
	// What a repeat of Settle is told.
	above, late bool
	told        []quota.Crossing
}

// newRecord makes a record of so many entries, in one piece if there are few.
func newRecord(entries int) *record {
	if entries <= 3 {
		r := new(struct {
			record
			room [3]held
		})
		r.held = r.room[:entries]
		r.entries = entries
		return &r.record
	}
	return &record{held: make([]held, entries), entries: entries}
}

// held is an entry of a reservation.
type held struct {
	pool       *pool // nil if the ledger underneath has it, or if it was erased
	below      bool
	passed     bool // nothing is taken
	kind       quota.Kind
	unit       quota.Unit
	limit      int64
	burst      int64
	rolling    bool
	thresholds []int

	amount int64 // what was taken
	used   int64 // what it was settled to
	kept   int64 // the part of used that no reset has cleared since

	first, last standing // after Reserve, and after Settle

	parts []part // of a rolling counter: what was taken, and from which blocks
}

// settles reports whether the i-th of what r holds is settled.
func (h *held) settles(i int, r *record) bool { return h.kind == quota.Hold || i >= r.entries }

// status fills in the status of what is held, as it stood then.
func (h *held) status(to *quota.Status, st standing) {
	if h.pool == nil {
		*to = quota.Status{Limit: -1}
		return
	}
	e := quota.Entry{Limit: h.limit, Burst: h.burst, Rolling: h.rolling}
	h.pool.status(to, &e, st)
}

// over reports whether a counter is above its limit.
func (h *held) over(st standing) bool {
	switch {
	case h.limit < 0:
		return false
	case h.rolling:
		return st.committed > h.burst
	default:
		return st.used() > h.limit
	}
}

// keep makes a record an open one.
func (t *tree) keep(r *record) {
	t.records[r.id] = r
	heap.Push(&t.open, r)
}

// finish makes an open record an ended one, which is remembered for a while.
func (t *tree) finish(r *record, to state, now int64) {
	heap.Remove(&t.open, r.place)
	r.state, r.ended = to, now
	if t.last == nil {
		t.first = r
	} else {
		t.last.next = r
	}
	t.last = r
	t.l.remembered.Add(1)
	t.forget(now, t.l.cfg.Remember, 2) // so that an end costs the same always
}

// forget forgets records that have ended, at most so many: those that are old, and as
// long as there are too many the others, too.
func (t *tree) forget(now int64, old time.Duration, most int) {
	for ; most > 0 && t.first != nil; most-- {
		r := t.first
		if now-r.ended < int64(old) && t.l.remembered.Load() <= int64(t.l.cfg.MaxRemembered) {
			return
		}
		if t.first = r.next; t.first == nil {
			t.last = nil
		}
		r.next = nil
		delete(t.records, r.id)
		t.l.remembered.Add(-1)
	}
}

// expire ends every reservation whose time is up, and reports whether there was any.
func (t *tree) expire(now int64) (any bool) {
	for len(t.open) > 0 && t.open[0].expires <= now {
		t.undo(t.open[0], expired, now)
		any = true
	}
	return any
}

// undo gives back all that an open record holds.
func (t *tree) undo(r *record, to state, now int64) {
	t.giveBack(r)
	t.finish(r, to, now)
}

// giveBack gives back what a record holds. What was counted at once stays counted.
func (t *tree) giveBack(r *record) {
	for i := range r.held {
		if h := &r.held[i]; h.pool != nil && h.kind == quota.Hold && i < r.entries {
			h.pool.giveBack(h)
		}
	}
}

// current sees to it that what is held is in a pool that there is.
func (t *tree) current(h *held) {
	old := h.pool
	if old == nil || !old.gone {
		return
	}
	c := t.counters[old.c.key]
	if c == nil {
		c = old.c
		t.counters[c.key] = c
	}
	if p := c.find(old.span); p != nil {
		p.past = append(old.past, p.past...)
		p.past = p.past[max(len(p.past)-maxPast, 0):]
		h.pool, old.past = p, nil
		return
	}
	old.gone, old.c = false, c
	c.pools = append(c.pools, old)
}

// expiring is a heap of open records by when they expire.
type expiring []*record

func (x expiring) Len() int           { return len(x) }
func (x expiring) Less(i, j int) bool { return x[i].expires < x[j].expires }
func (x expiring) Swap(i, j int) {
	x[i], x[j] = x[j], x[i]
	x[i].place, x[j].place = i, j
}

func (x *expiring) Push(r any) {
	r.(*record).place = len(*x)
	*x = append(*x, r.(*record))
}

func (x *expiring) Pop() any {
	last := len(*x) - 1
	r := (*x)[last]
	(*x)[last] = nil
	*x = (*x)[:last]
	return r
}
