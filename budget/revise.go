package budget

import (
	"math"
	"time"
)

// Revise replaces a hold by one of another cost: what a started call will take
// is now expected to be more or less. The difference stands where the hold does,
// outside the ring or in the cell in which it was counted, because that is when
// the provider counts it; a hold whose cell has left the window is all gone, and
// stays so. Like an overrun it may bring the books above the limit. A cost of 0
// or below ends the hold.
func (w *WindowBudget) Revise(now time.Time, h Hold, cost int64) Hold {
	w.advance(now)
	cost = max(cost, 0)
	if h.mark == 0 {
		w.outside -= h.cost
		cost = w.bookable(cost)
		w.outside += cost
		return Hold{cost: cost}
	}
	n := int64(len(w.cells))
	if w.cur-(h.mark-1) >= n {
		h.cost = cost
		return h
	}
	c := &w.cells[(h.mark-1)%n]
	more := cost - h.cost
	if more > 0 {
		more = w.bookable(more)
	}
	c.used += more
	c.open += more
	w.counted += more
	h.cost += more
	return h
}

// Revise replaces a hold by one of another cost: what a started call will take
// is now expected to be more or less. Less is a refund, as if the smaller cost
// had been known from the start; more is charged now, whether it fits or not. A
// cost of 0 or below ends the hold.
func (b *TokenBudget) Revise(now time.Time, h Hold, cost int64) Hold {
	cost = max(cost, 0)
	switch {
	case cost == 0:
		b.Settle(now, h, 0)
		return Hold{}
	case h.cost == 0:
		return b.Take(now, cost)
	case h.mark <= b.told, h.mark <= b.lowered && cost < h.cost:
		cost = min(cost, h.cost+math.MaxInt64-b.open)
		b.open += cost - h.cost
		h.cost = cost
		return h
	}
	b.refill(now)
	if cost > h.cost {
		more := b.bookable(min(cost-h.cost, math.MaxInt64-b.open))
		if more == 0 {
			return h
		}
		b.open += more
		mark := b.charge(more, 1)
		if b.raised == nil {
			b.raised = make(map[int64]raise)
		}
		b.raised[mark] = raise{h.mark, more}
		return Hold{cost: h.cost + more, mark: mark}
	}
	units := h.cost - cost
	b.open -= units
	for len(b.raised) > 0 {
		r, ok := b.raised[h.mark]
		if !ok {
			break
		}
		if units < r.units {
			b.raised[h.mark] = raise{r.mark, r.units - units}
			break
		}
		b.refund(h.mark, r.units)
		delete(b.raised, h.mark)
		h.mark, units = r.mark, units-r.units
	}
	if units > 0 {
		b.missing.keep(h.mark)
		b.refund(h.mark, units)
	}
	h.cost = cost
	return h
}

// Emptied is Lower for a provider that has refused the call of a hold, because no
// more than left units are left: it has counted all that was taken before, at what
// it really costs. If the books say more, those holds were too small, or others
// have used it. Either way, what such holds are settled to or revised to makes no
// difference any more.
func (b *TokenBudget) Emptied(now time.Time, h Hold, left int64) {
	b.refill(now)
	if over := b.bookable(satSub(b.level, left)); over > 0 && h.cost > 0 {
		b.charge(over, 0)
		b.told = max(b.told, h.mark)
	}
}

// raise says that a hold was charged in parts: units with its own mark, and the
// rest before, with another one. A refund takes back first what was charged
// last.
type raise struct{ mark, units int64 }

// refundRaised is refund for a hold that was charged in parts. It returns what
// is left to be refunded of the first part, and its mark.
func (b *TokenBudget) refundRaised(mark, units int64) (firstMark, rest int64) {
	for {
		r, ok := b.raised[mark]
		if !ok {
			return mark, units
		}
		delete(b.raised, mark)
		b.refund(mark, min(units, r.units))
		mark, units = r.mark, max(units-r.units, 0)
	}
}

// Lower tells that no more than left units of the limit can be left, beside what
// is held: the provider says so. What is missing from the books is booked as if
// it had been used just now, and what the open holds turn out not to need does not
// come back: what is left is what the provider says. left may be negative; nothing
// is ever raised.
func (b *TokenBudget) Lower(now time.Time, left int64, _ time.Duration) {
	b.refill(now)
	if over := b.bookable(satSub(b.level, left)); over > 0 {
		b.lowered = b.charge(over, 0)
	}
}

// Lower tells that no more than left units of the limit can be left, beside what
// is held: the provider says so, and that it will have the rest again after
// reset (0 if that is not known). What is missing from the books is booked in the
// cell that leaves the window then, or in the current one. left may be negative;
// nothing is ever raised.
//
// Where reset lies between two edges of cells, all is back at the first of them.
func (w *WindowBudget) Lower(now time.Time, left int64, reset time.Duration) {
	w.advance(now)
	over := w.bookable(satSub(satSub(w.inUse, w.used()), left))
	if over <= 0 {
		return
	}
	slot := w.slot
	if n := int64(len(w.cells)); reset > 0 {
		// The i-th oldest cell leaves i cells after the current one began.
		i := satAdd(int64(reset), int64(w.into)) / w.cell
		if i == 0 {
			return
		}
		slot = int((int64(w.slot) + min(i, n)) % n)
	}
	w.cells[slot].used += over
	w.counted += over
}
