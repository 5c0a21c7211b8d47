package quota

import (
	"math"
	"math/bits"
)

// A quantity is a number of units and a fraction of one, in parts of the
// bucket's per. It is never negative, and the fraction is below one.
type quantity struct{ units, part int64 }

func (q quantity) zero() bool { return q.units|q.part == 0 }

func (q quantity) less(r quantity) bool {
	return q.units < r.units || q.units == r.units && q.part < r.part
}

// plus is q + r. The caller sees to it that it does not overflow.
func (q quantity) plus(r quantity, per int64) quantity {
	q.units += r.units
	if q.part >= per-r.part {
		q.units, q.part = q.units+1, q.part-per
	}
	q.part += r.part
	return q
}

// minus is q − r; r must not be more than q.
func (q quantity) minus(r quantity, per int64) quantity {
	q.units -= r.units
	if q.part < r.part {
		q.units, q.part = q.units-1, q.part+per
	}
	q.part -= r.part
	return q
}

// ceil is q in whole units, rounded up.
func (q quantity) ceil() int64 {
	if q.part > 0 {
		return q.units + 1
	}
	return q.units
}

// time is how long it takes to refill q at limit units per per, rounded up to the
// nanosecond; math.MaxInt64 if it is longer than that, or for ever.
func (q quantity) time(limit, per int64) int64 {
	if q.zero() {
		return 0
	}
	if limit <= 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(q.units), uint64(per))
	lo, carry := bits.Add64(lo, uint64(q.part), 0)
	hi += carry
	lo, carry = bits.Add64(lo, uint64(limit)-1, 0)
	hi += carry
	if hi >= uint64(limit) {
		return math.MaxInt64
	}
	d, _ := bits.Div64(hi, lo, uint64(limit))
	return int64(min(d, math.MaxInt64))
}

// bucket is a rolling counter: a token bucket in integers, kept as what is
// missing from a full burst. So it needs neither limit nor burst, which come with
// each operation, and a change of them keeps what was spent.
type bucket struct {
	*name

	missing  quantity
	at       int64    // when missing was right
	full     int64    // when nothing is missing any more, if nothing is taken
	reserved int64    // sum of the holds
	mark     int64    // of the newest charge
	open     *charges // while there are holds: what missing consists of
}

// refill brings the bucket to now. What is missing shrinks by limit units per
// per; elapsed·limit is computed in 128 bits.
func (b *bucket) refill(now, limit int64) {
	elapsed := now - b.at
	if elapsed <= 0 {
		return
	}
	b.at = now
	if b.missing.zero() || limit <= 0 {
		return
	}
	hi, lo := bits.Mul64(uint64(elapsed), uint64(limit))
	if hi < uint64(b.per) {
		units, part := bits.Div64(hi, lo, uint64(b.per))
		if q := (quantity{int64(min(units, math.MaxInt64)), int64(part)}); q.less(b.missing) {
			b.pay(q)
			return
		}
	}
	b.fill()
}

// pay raises the level by less than what is missing.
func (b *bucket) pay(q quantity) {
	b.missing = b.missing.minus(q, b.per)
	if b.open != nil {
		b.open.refill(q, b.per)
	}
}

// fill makes nothing missing.
func (b *bucket) fill() {
	b.missing = quantity{}
	if b.open != nil {
		b.open.list = b.open.list[:0]
	}
}

// lacks is what an amount needs beyond what is there now.
func (b *bucket) lacks(amount, burst int64) quantity {
	units := uint64(b.missing.units) + uint64(amount)
	if units < uint64(burst) {
		return quantity{}
	}
	return quantity{int64(min(units-uint64(burst), math.MaxInt64)), b.missing.part}
}

// takes reports whether an amount can be booked at all.
func (b *bucket) takes(amount int64) bool {
	return amount < math.MaxInt64-b.missing.units && amount <= math.MaxInt64-b.reserved
}

// take lowers the level by an amount, which may be a hold. The mark names its
// charge, and must be larger than any before.
func (b *bucket) take(amount, mark int64, hold bool, pool *chargePool) {
	amount = min(amount, math.MaxInt64-1-b.missing.units)
	q := quantity{units: amount}
	b.missing = b.missing.plus(q, b.per)
	b.mark = mark
	switch {
	case b.open != nil:
		b.open.add(q, mark, hold, b.per)
	case hold:
		b.open = pool.get()
		b.open.add(b.missing, mark, true, b.per)
	}
	if hold {
		b.reserved += amount
	}
}

// refund gives back a part of what was charged under a mark.
func (b *bucket) refund(units, mark int64) {
	q := quantity{units: units}
	switch {
	case b.open != nil:
		b.missing = b.missing.minus(b.open.refund(q, mark, b.per), b.per)
	case mark != b.mark: // became one with newer charges
	case q.less(b.missing):
		b.missing = b.missing.minus(q, b.per)
	default:
		b.missing = quantity{}
	}
}

// end ends a hold of an amount, after its refund.
func (b *bucket) end(amount, mark int64, pool *chargePool) {
	b.reserved -= amount
	if b.open.end(mark, b.per); b.open.holds == 0 {
		pool.put(b.open)
		b.open = nil
	}
}

// A charge is what is still missing from a bucket because of one cost: the
// cost, less what was refilled and refunded since.
type charge struct {
	quantity
	mark  int64
	holds int64 // open holds with this mark or one before the next charge's
}

// charges make a refund exact. The level of a bucket is the smallest of what it
// would be had it been full at any one moment of the past. So refill pays the
// newest charge first (a bucket that was full then is full again), and a refund
// pays the charge of its own cost first, then older ones, and never a newer one:
// when that was made, the bucket may have been full. Otherwise refunds that come
// late would bring back what has flowed over since, and calls that turn out to
// cost nothing would pile up a multiple of the burst.
//
// list goes from the oldest charge to the newest, with rising marks. Only the
// newest may have no holds: any other such charge is part of the next newer one,
// because no refund tells the two apart. So there are at most as many as holds,
// and one.
type charges struct {
	list  []charge
	holds int
}

func (c *charges) add(q quantity, mark int64, hold bool, per int64) {
	n := int64(0)
	if hold {
		c.holds++
		n = 1
	}
	if last := len(c.list) - 1; last >= 0 && c.list[last].holds == 0 {
		top := &c.list[last]
		top.quantity, top.mark, top.holds = top.plus(q, per), mark, n
		return
	}
	c.list = append(c.list, charge{q, mark, n})
}

// refill pays the newest charges first, less than all of them together.
func (c *charges) refill(q quantity, per int64) {
	holds := int64(0)
	for i := len(c.list) - 1; i >= 0; i-- {
		top := &c.list[i]
		if q.less(top.quantity) {
			top.quantity = top.minus(q, per)
			top.holds += holds
			c.list = c.list[:i+1]
			return
		}
		q = q.minus(top.quantity, per)
		holds += top.holds
	}
	c.list = c.list[:0]
}

// refund pays the charge with a mark and older ones, the newest of them first,
// and returns what was paid.
func (c *charges) refund(q quantity, mark, per int64) (paid quantity) {
	i := c.find(mark)
	j, rest, holds := i, q, int64(0)
	for ; j >= 0 && !rest.less(c.list[j].quantity); j-- {
		rest = rest.minus(c.list[j].quantity, per)
		holds += c.list[j].holds
	}
	if j >= 0 {
		c.list[j].quantity = c.list[j].minus(rest, per)
		c.list[j].holds += holds
		rest = quantity{}
	}
	c.list = append(c.list[:j+1], c.list[i+1:]...)
	return q.minus(rest, per)
}

// end ends a hold with a mark.
func (c *charges) end(mark, per int64) {
	c.holds--
	i := c.find(mark)
	if i < 0 {
		return // its charge was paid, and all before it
	}
	x := &c.list[i]
	if x.holds--; x.holds == 0 && i+1 < len(c.list) {
		c.list[i+1].quantity = c.list[i+1].plus(x.quantity, per)
		c.list = append(c.list[:i], c.list[i+1:]...)
	}
}

// find is the index of the newest charge that is not newer than mark, or −1.
func (c *charges) find(mark int64) int {
	low, high := 0, len(c.list)
	for low < high {
		if mid := int(uint(low+high) / 2); c.list[mid].mark <= mark {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// chargePool keeps lists of charges for the next bucket that needs one.
type chargePool struct{ free []*charges }

// maxPooled bounds how many lists are kept, and maxPooledLen how long they are.
const (
	maxPooled    = 256
	maxPooledLen = 64
)

func (p *chargePool) get() *charges {
	n := len(p.free) - 1
	if n < 0 {
		return new(charges)
	}
	c := p.free[n]
	p.free = p.free[:n]
	return c
}

func (p *chargePool) put(c *charges) {
	if len(p.free) < maxPooled && cap(c.list) <= maxPooledLen {
		c.list, c.holds = c.list[:0], 0
		p.free = append(p.free, c)
	}
}
