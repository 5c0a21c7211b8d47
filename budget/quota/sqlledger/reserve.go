package sqlledger

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// reserving is a Reserve.
type reserving struct {
	quota.Reserve
	tree int64
	self ref // the reservation's own
	only ref // of Exclusive

	careful bool // nothing is to be guessed
	page    *page
	guessed bool // that it is new
	found   []found
	res     quota.Reserved
}

// known answers with the first result, if there is one.
func (op *reserving) known() bool {
	rec := op.page.records[op.self]
	if rec == nil {
		return false
	}
	op.res = rec.repeat()
	return true
}

// doubtful reports whether it was guessed that there is no such reservation, and it was not
// written, which would have shown it.
func (op *reserving) doubtful() bool { return op.guessed && op.page.records[op.self] == nil }

func newReserving(r quota.Reserve) *reserving {
	// The caller may give up, and use its slices for something else, while this is
	// still under way.
	r.Entries, r.Room = cloneEntries(r.Entries), nil
	op := &reserving{Reserve: r, tree: treeOf(r.Tree), self: refToReservation(r.Tree, r.ID)}
	if r.Exclusive != "" {
		op.only = refToExclusive(r.Tree, r.Exclusive)
	}
	return op
}

func cloneEntries(entries []quota.Entry) []quota.Entry {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Thresholds = slices.Clone(entries[i].Thresholds)
	}
	return entries
}

func (op *reserving) need(b *book) {
	op.page, op.guessed = b.byTree[op.tree], false
	switch {
	case op.page.records[op.self] != nil:
	case op.page.loaded && !op.careful:
		// It is new, if nobody makes a mistake. If it is not, it cannot be written.
		op.guessed = true
	default:
		b.wantRecord(op.page, op.self)
	}
	if op.Exclusive != "" && op.page.only[op.only] == nil {
		b.want.exclusive = append(b.want.exclusive, refOn{op.page, op.only})
	}
	op.found = make([]found, len(op.Entries))
	for i := range op.Entries {
		op.found[i] = b.of(op.page, op.Tree, &op.Entries[i])
	}
}

// do decides about all entries, and then takes all or none. Until then it changes
// nothing but what time does.
func (op *reserving) do(b *book) error {
	if op.known() {
		return nil
	}
	op.res = quota.Reserved{Denied: -1, Now: b.wall()}
	res := &op.res
	if op.Exclusive != "" {
		if other := op.page.only[op.only]; other != nil && other.state == open {
			res.Held = true
			res.RetryAfter = time.Duration(other.expires - b.now)
			res.Status = b.statuses(op.found, op.Entries)
			return nil
		}
	}
	retry := int64(0)
	for i := range op.Entries {
		e, f := &op.Entries[i], &op.found[i]
		f.verdict = b.check(f, e)
		if f.denied {
			if res.Denied < 0 {
				res.Denied, res.Never = i, f.never
			}
			retry = max(retry, f.retry)
		}
		if f.over {
			res.Over = append(res.Over, i)
		}
		res.Wait = max(res.Wait, time.Duration(f.wait))
	}
	if res.Denied >= 0 {
		if res.Wait = 0; retry < math.MaxInt64 {
			res.RetryAfter = time.Duration(retry)
		}
		res.Status = b.statuses(op.found, op.Entries)
		return nil
	}
	op.take(b)
	return nil
}

// verdict is what a limit says to an entry.
type verdict struct {
	denied bool
	never  bool
	over   bool
	passed bool  // nothing is to be taken
	wait   int64 // nanoseconds
	retry  int64 // nanoseconds until a denied one fits; math.MaxInt64 if time alone does not help
}

// check asks the limit. It changes nothing.
func (b *book) check(f *found, e *quota.Entry) verdict {
	amount := e.Amount
	if e.Kind == quota.Check {
		amount = max(amount, 1) // something must be left
	}
	if e.Rolling {
		return b.checkBucket(f, e, amount)
	}
	used := f.period.used()
	limit := e.Limit
	if limit < 0 {
		limit = math.MaxInt64
	}
	v := verdict{passed: e.Kind == quota.Check}
	fits := amount == 0 || used <= limit && amount <= limit-used
	hard := limit
	if e.Soft {
		if hard = e.Ceiling; hard < 0 {
			hard = math.MaxInt64
		}
		v.over = !fits
		fits = fits || used <= hard && amount <= hard-used
	}
	switch {
	case fits:
	case e.Observe && amount <= math.MaxInt64-used:
		v.over = true
	default:
		v.denied, v.over, v.never, v.retry = true, false, amount > hard, math.MaxInt64
		if !v.never && !f.span.End.IsZero() {
			v.retry = max(int64(f.span.End.Sub(b.wall())), 0)
		}
	}
	return v
}

func (b *book) checkBucket(f *found, e *quota.Entry, amount int64) verdict {
	v := verdict{passed: e.Kind == quota.Check || e.Limit < 0}
	if e.Limit < 0 || amount == 0 {
		return v
	}
	x := b.refill(f.counter, e.Limit)
	v.wait = x.Lacks(amount, e.Burst).Time(e.Limit, f.per)
	if e.Limit > 0 && v.wait <= int64(e.MaxWait) && v.wait < math.MaxInt64 && x.Takes(amount) {
		if e.Observe {
			v.wait = 0
		}
		return v
	}
	if e.Observe {
		return verdict{over: true, passed: true}
	}
	v.denied, v.retry = true, math.MaxInt64
	fromFull := rolling.Quantity{Units: max(amount-e.Burst, 0)}.Time(e.Limit, f.per)
	if v.never = fromFull > int64(e.MaxWait) || fromFull == math.MaxInt64 || e.Limit == 0; !v.never && v.wait < math.MaxInt64 {
		v.retry = max(v.wait-int64(e.MaxWait), 1)
	}
	v.wait = 0
	return v
}

// take takes all entries, and opens the reservation.
func (op *reserving) take(b *book) {
	ttl := op.TTL
	if ttl == 0 {
		ttl = quota.DefaultTTL
	}
	rec := &record{
		ref: op.self, exclusive: op.only, expires: sum(b.now, int64(ttl)),
		entries: len(op.Entries), held: make([]held, len(op.Entries)),
	}
	for i := range op.Entries {
		e, f, h := &op.Entries[i], &op.found[i], &rec.held[i]
		b.hold(h, e, f)
		percent := 0
		if e.Kind == quota.Count && !e.Rolling {
			percent = b.cross(rec, &rec.given.crossed, i)
		}
		if !h.passed {
			b.noteHeld(h, changeOf[h.kind], rec, h.amount, percent, 0)
		}
		st := f.status(b, e)
		h.first = standing{st.Committed, st.Reserved, nanos(st.FullAt, 0)}
		op.res.Status = append(op.res.Status, st)
	}
	rec.given.now, rec.given.wait, rec.given.over = b.now, op.res.Wait, slices.Clone(op.res.Over)
	op.res.Crossed = rec.crossings(rec.given.crossed)
	op.page.addRecord(rec)
	b.touchRecord(rec)
	b.calls = append(b.calls, newCallRow(rec, b.now, &op.Reserve))
}

// hold takes an entry, unless nothing is to be taken, and fills in what is held.
func (b *book) hold(h *held, e *quota.Entry, f *found) {
	*h = held{
		counter: f.counter, kind: e.Kind, unit: e.Unit, rolling: e.Rolling, passed: f.passed,
		limit: e.Limit, amount: e.Amount,
	}
	if e.Rolling {
		h.burst = e.Burst
		if f.passed {
			return
		}
		x := b.refill(f.counter, e.Limit)
		h.mark = b.nextMark(f.counter)
		x.Take(h.amount, h.mark, h.kind == quota.Hold, f.per, &b.pool)
		b.touchBucket(f.counter, e.Limit)
		return
	}
	h.start, h.end = bounds(f.span)
	h.thresholds = e.Thresholds
	if f.passed {
		return
	}
	p := f.period
	b.touchPeriod(f.counter, p)
	p.limit = h.limit
	if h.kind == quota.Count {
		p.committed += h.amount
	} else {
		p.reserved += h.amount
	}
}

// cross adds the threshold that the committed spend of the i-th counter has crossed,
// and returns it, or 0.
func (b *book) cross(r *record, to *[]crossing, i int) (percent int) {
	h := &r.held[i]
	if len(h.thresholds) == 0 || h.rolling {
		return 0
	}
	p := h.period()
	percent, ok := p.cross(h.thresholds, h.limit)
	if !ok {
		return 0
	}
	b.touchPeriod(h.counter, p)
	*to = append(*to, crossing{i, percent, p.committed})
	return percent
}

// cross returns the highest threshold that committed spend has reached, if it is
// higher than any before in this window.
func (p *period) cross(thresholds []int, limit int64) (percent int, ok bool) {
	if limit <= 0 {
		return 0, false
	}
	for i := len(thresholds) - 1; i >= 0 && thresholds[i] > p.crossed; i-- {
		hi, lo := bits.Mul64(uint64(limit), uint64(thresholds[i]))
		if usedHi, usedLo := bits.Mul64(uint64(p.committed), 100); usedHi > hi || usedHi == hi && usedLo >= lo {
			p.crossed = thresholds[i]
			return p.crossed, true
		}
	}
	return 0, false
}
