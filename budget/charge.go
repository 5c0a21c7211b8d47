package budget

import "math/bits"

// A charge is what is still missing from a bucket because of one cost: the
// cost, less what was refilled and refunded since. All charges together are
// what the bucket lacks to be full, to the last fraction of a unit.
type charge struct {
	hi, lo uint64 // units times the window in nanoseconds, never 0
	mark   int64  // names the hold
	holds  int    // open holds with this mark or one before the next charge's
}

// charges are kept because a refund is a correction of the past. Had the bucket
// known the smaller cost from the start it would have been fuller, but never
// more than full: the refill that would have flowed over is lost, and a refund
// must not bring it back. Otherwise refunds that come a minute late pile up, and
// after ten minutes of calls that turned out to cost nothing ten times the limit
// would pass in the eleventh.
//
// With charges the correction is exact. The level is the smallest of what it
// would be had the bucket been full at any one moment of the past. So refill
// pays the newest charge first (a bucket that was full then is full again), and
// a refund pays the charge of its own cost first, then older ones, and never a
// newer one: when that was made, the bucket may have been full.
//
// The zero value is the list of a full bucket. There are at most as many charges
// as open holds, and one; a hold that was raised counts once more for each time.
type charges struct {
	// list[head:] are the charges from the oldest to the newest, with
	// increasing marks. Only the newest may have no holds: any other such charge
	// is part of the next newer one, because no refund tells the two apart.
	list  []charge
	head  int
	marks int64 // the last mark given
}

// clear makes the bucket full.
func (c *charges) clear() { c.list, c.head = c.list[:0], 0 }

// add charges a positive amount, for so many holds (0 or 1), and returns its
// mark.
func (c *charges) add(hi, lo uint64, holds int) int64 {
	c.marks++
	n := len(c.list)
	if n > 0 && c.list[n-1].holds == 0 {
		top := &c.list[n-1]
		top.plus(hi, lo)
		top.mark, top.holds = c.marks, holds
		return c.marks
	}
	if n == cap(c.list) && c.head > n/2 {
		c.list, c.head = c.list[:copy(c.list, c.list[c.head:])], 0
	}
	c.list = append(c.list, charge{hi: hi, lo: lo, mark: c.marks, holds: holds})
	return c.marks
}

// refill pays an amount off the newest charges. It must be less than all of
// them together.
func (c *charges) refill(hi, lo uint64) {
	holds := 0
	for i := len(c.list) - 1; i >= c.head; i-- {
		top := &c.list[i]
		if hi, lo = top.pay(hi, lo); !top.paid() {
			top.holds += holds
			c.list = c.list[:i+1]
			return
		}
		holds += top.holds
	}
	c.clear()
}

// settle ends the hold with the given mark: it pays up to the amount of its
// refund off the charge of the hold and off older ones, and returns what of the
// amount is left over.
func (c *charges) settle(mark int64, hi, lo uint64) (leftHi, leftLo uint64) {
	i := c.find(mark)
	if i < c.head {
		return hi, lo
	}
	if i == len(c.list)-1 && hi|lo == 0 { // settled at what was held, as the newest
		c.list[i].holds--
		return 0, 0
	}
	c.list[i].holds--
	j, holds := i, 0
	for ; j >= c.head && hi|lo != 0; j-- {
		x := &c.list[j]
		if hi, lo = x.pay(hi, lo); !x.paid() {
			break
		}
		holds += x.holds
	}
	switch {
	case j < i: // those between are paid off
		if j >= c.head {
			c.list[j].holds += holds
		}
		c.remove(j+1, i+1)
	case c.list[i].holds == 0 && i < len(c.list)-1:
		c.list[i+1].plus(c.list[i].hi, c.list[i].lo)
		c.remove(i, i+1)
	}
	return hi, lo
}

// keep makes the next settle of this mark leave the hold open.
func (c *charges) keep(mark int64) {
	if i := c.find(mark); i >= c.head {
		c.list[i].holds++
	}
}

// find returns the index of the newest charge that is not newer than mark,
// head−1 if there is none. It looks at both ends first: most holds end in about
// the order in which they were taken, or at once.
func (c *charges) find(mark int64) int {
	low, high := c.head, len(c.list) // all before low are not newer, all from high on are
	switch {
	case low == high:
		return low - 1
	case c.list[high-1].mark <= mark:
		return high - 1
	case c.list[low].mark >= mark:
		if c.list[low].mark == mark {
			return low
		}
		return low - 1
	}
	for low < high {
		if mid := int(uint(low+high) / 2); c.list[mid].mark <= mark {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// remove drops list[from:to] and moves the shorter side.
func (c *charges) remove(from, to int) {
	if from-c.head > len(c.list)-to {
		c.list = c.list[:from+copy(c.list[from:], c.list[to:])]
		return
	}
	copy(c.list[c.head+to-from:to], c.list[c.head:from])
	if c.head += to - from; c.head == len(c.list) {
		c.clear()
	}
}

func (x *charge) paid() bool { return x.hi|x.lo == 0 }

func (x *charge) plus(hi, lo uint64) {
	var carry uint64
	x.lo, carry = bits.Add64(x.lo, lo, 0)
	x.hi += hi + carry
}

// pay lowers the charge by an amount, as far as it goes, and returns the rest.
func (x *charge) pay(hi, lo uint64) (restHi, restLo uint64) {
	restLo, borrow := bits.Sub64(lo, x.lo, 0)
	restHi, borrow = bits.Sub64(hi, x.hi, borrow)
	if borrow == 0 {
		x.hi, x.lo = 0, 0
		return restHi, restLo
	}
	x.lo, borrow = bits.Sub64(x.lo, lo, 0)
	x.hi -= hi + borrow
	return 0, 0
}
