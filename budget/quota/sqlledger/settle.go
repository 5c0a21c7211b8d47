package sqlledger

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// settling is a Settle.
type settling struct {
	quota.Settle
	tree   int64
	self   ref
	writer ref // of Writer

	page  *page
	found []found // of More
	res   quota.Settled
}

func newSettling(s quota.Settle) *settling {
	s.More, s.Room = cloneEntries(s.More), nil
	op := &settling{Settle: s, tree: treeOf(s.Tree), self: refToReservation(s.Tree, s.ID)}
	if s.Writer != "" {
		op.writer = refToWriter(s.Tree, s.Writer)
	}
	return op
}

func (op *settling) need(b *book) {
	op.page = b.byTree[op.tree]
	b.wantRecord(op.page, op.self)
	if op.Writer != "" && op.page.records[op.self] == nil {
		b.want.writers = append(b.want.writers, op.writer)
	}
	op.found = make([]found, len(op.More))
	for i := range op.More {
		op.found[i] = b.of(op.page, op.Tree, &op.More[i])
	}
}

func (op *settling) do(b *book) error {
	rec := op.page.records[op.self]
	if rec == nil {
		if op.Writer != "" && op.WriterSeq <= max(b.mark[op.writer], b.raised[op.writer]) {
			op.res = quota.Settled{Repeated: true}
			return nil
		}
		return unknown(op.ID)
	}
	if op.Writer != "" && op.WriterSeq > b.raised[op.writer] {
		if b.raised == nil {
			b.raised = make(map[ref]int64)
		}
		b.raised[op.writer] = op.WriterSeq
	}
	switch {
	case rec.state == released:
		op.res = quota.Settled{Repeated: true}
		return nil
	case rec.state == settled && (!op.Adjust || op.Seq <= rec.seq):
		op.res = rec.result()
		op.res.Repeated = true
		return nil
	}
	op.settle(b, rec)
	op.res = rec.result()
	return nil
}

func unknown(id string) error { return fmt.Errorf("%w: %q", quota.ErrUnknownReservation, id) }

// settle books what was used. The reservation may be open, expired, or settled
// before.
func (op *settling) settle(b *book, rec *record) {
	wasOpen := rec.state == open
	what := changeSettle
	if rec.state == settled {
		what = changeAdjust
	}
	if wasOpen {
		rec.ended = b.now
		rec.page.ended(rec)
	}
	late := rec.state == expired || rec.settled.late
	rec.state, rec.seq = settled, op.Seq
	b.touchRecord(rec)
	rec.settled = settledResult{late: late}

	for i := range op.More {
		b.more(rec, &op.More[i], &op.found[i])
	}
	for i := range rec.held {
		h := &rec.held[i]
		if h.counter == nil {
			continue
		}
		used := h.used // of what More has brought, it is booked already
		if i < rec.entries {
			switch {
			case h.kind == quota.Hold:
				used = op.Actual[h.unit]
				b.book(h, used, wasOpen)
			case h.kind == quota.Lease && wasOpen:
				b.giveBack(h)
				b.noteHeld(h, changeRelease, rec, h.amount, 0, 0)
			}
			if h.kind != quota.Hold {
				continue
			}
		}
		percent := b.cross(rec, &rec.settled.crossed, i)
		h.last = b.stand(h)
		over := h.over(h.last)
		rec.settled.over = rec.settled.over || over
		if !h.rolling || !h.passed {
			if h.rolling { // what was refilled is noted, and so it is written
				b.touchBucket(h.counter, h.limit)
			}
			b.noteHeld(h, what, rec, used, percent, flagsOf(late, over))
		}
	}
}

// book replaces what is held, if it still is, or what was booked before, by what
// was used.
func (b *book) book(h *held, used int64, isHeld bool) {
	switch {
	case h.rolling && h.passed: // it takes nothing from its bucket
	case h.rolling:
		c := h.counter
		x := b.refill(c, h.limit)
		before := h.used
		if isHeld {
			before = h.amount
		}
		if used < before {
			x.Refund(before-used, h.mark, c.per)
		}
		if isHeld {
			x.End(h.amount, h.mark, c.per, &b.pool)
		}
		if used > before {
			mark := b.nextMark(c)
			x.Take(used-before, mark, false, c.per, &b.pool)
			if before == 0 {
				h.mark = mark
			}
		}
		b.touchBucket(c, h.limit)
	default:
		p := h.period()
		b.touchPeriod(h.counter, p)
		if isHeld {
			p.reserved -= h.amount
		}
		if h.resets != p.resets { // what was booked before was cleared by a reset
			h.kept, h.resets = 0, p.resets
		}
		if more := used - h.used; more >= 0 {
			p.committed = sum(p.committed, more)
			h.kept += more
		} else {
			less := min(-more, h.kept)
			p.committed = max(p.committed-less, 0)
			h.kept -= less
		}
	}
	h.used = used
}

// more books a counter that the call turned out to count against.
func (b *book) more(rec *record, e *quota.Entry, f *found) {
	for i := range rec.held {
		if h := &rec.held[i]; h.counter == f.counter && h.settles(i, rec) {
			if i >= rec.entries {
				b.book(h, e.Amount, false)
			}
			return
		}
	}
	h := held{
		counter: f.counter, kind: quota.Count, unit: e.Unit, rolling: e.Rolling,
		passed: e.Kind == quota.Check || e.Rolling && e.Limit < 0, limit: e.Limit, burst: e.Burst,
	}
	if !e.Rolling {
		h.start, h.end = bounds(f.span)
		h.thresholds = e.Thresholds
		f.period.limit, h.resets = e.Limit, f.period.resets
	}
	b.book(&h, e.Amount, false)
	rec.held = append(rec.held, h)
}

// giveBack gives back what an entry holds.
func (b *book) giveBack(h *held) {
	switch {
	case h.counter == nil || h.passed || h.kind != quota.Hold && h.kind != quota.Lease:
	case h.rolling:
		c := h.counter
		x := b.refill(c, h.limit)
		x.Refund(h.amount, h.mark, c.per)
		x.End(h.amount, h.mark, c.per, &b.pool)
		b.touchBucket(c, h.limit)
	default:
		p := h.period()
		b.touchPeriod(h.counter, p)
		p.reserved -= h.amount
	}
}

// stand says how the counter of what is held stands now.
func (b *book) stand(h *held) standing {
	if h.rolling {
		return b.standOf(h.counter, h.limit)
	}
	p := h.period()
	return standing{committed: p.committed, reserved: p.reserved}
}

// standOf says how a rolling counter stands now.
func (b *book) standOf(c *counter, limit int64) (st standing) {
	if limit < 0 {
		return st
	}
	x := b.refill(c, limit)
	st.committed, st.reserved = x.Missing.Ceil(), x.Reserved
	if !x.Missing.Zero() {
		if full := sum(b.now, x.Missing.Time(limit, c.per)); full < maxInstant {
			st.full = full
		}
	}
	return st
}

// over reports whether a counter is above its limit.
func (h *held) over(st standing) bool {
	switch {
	case h.limit < 0:
		return false
	case h.rolling:
		return st.committed > h.burst
	default:
		return sum(st.committed, st.reserved) > h.limit
	}
}

// releasing is a Release. What has expired can be released, too, and not be settled
// any more.
type releasing struct {
	tree int64
	id   string
	self ref
	page *page
}

func (op *releasing) need(b *book) {
	op.page = b.byTree[op.tree]
	b.wantRecord(op.page, op.self)
}

func (op *releasing) do(b *book) error {
	rec := op.page.records[op.self]
	switch {
	case rec == nil:
		return unknown(op.id)
	case rec.state == open:
		b.undo(rec, released, changeRelease)
	case rec.state == expired:
		rec.state = released
		b.touchRecord(rec)
	}
	return nil
}

// undo gives back all that an open reservation holds.
func (b *book) undo(rec *record, to state, what change) {
	for i := range rec.held {
		h := &rec.held[i]
		if h.counter == nil || h.passed || h.kind != quota.Hold && h.kind != quota.Lease {
			continue
		}
		b.giveBack(h)
		b.noteHeld(h, what, rec, h.amount, 0, 0)
	}
	rec.state, rec.ended = to, b.now
	rec.page.ended(rec)
	b.touchRecord(rec)
}

// expire ends every reservation whose time is up, and returns how many.
func (b *book) expire() (n int) {
	for _, p := range b.due {
		for _, rec := range p.records {
			if rec.state == open && rec.expires <= b.now {
				b.undo(rec, expired, changeExpire)
				n++
			}
		}
	}
	return n
}

// renewing is a Renew.
type renewing struct {
	tree int64
	ids  []string
	refs []ref
	ttl  time.Duration
	page *page
	lost []string
}

func (op *renewing) need(b *book) {
	op.page = b.byTree[op.tree]
	for _, r := range op.refs {
		b.wantRecord(op.page, r)
	}
}

func (op *renewing) do(b *book) error {
	op.lost = nil
	for i, id := range op.ids {
		rec := op.page.records[op.refs[i]]
		if rec == nil || rec.state != open {
			op.lost = append(op.lost, id)
			continue
		}
		rec.expires = sum(b.now, int64(op.ttl))
		op.page.due = min(op.page.due, rec.expires)
		b.touchRecord(rec)
	}
	return nil
}
