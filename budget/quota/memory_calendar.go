package quota

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// period is what was spent and is held in one window of a calendar counter.
type period struct {
	start, end          int64 // Unix nanoseconds; math.MinInt64 and MaxInt64 for all time
	committed, reserved int64
	limit               int64  // as it was given last
	crossed             int32  // the highest threshold that was crossed, in percent
	epoch               uint32 // how often it was reset
}

// used is what counts against the limit.
func (p *period) used() int64 { return sum(p.committed, p.reserved) }

// empty reports whether nothing is lost when p is forgotten.
func (p *period) empty() bool { return p.committed|p.reserved == 0 && p.crossed == 0 }

// cross returns the highest threshold that committed spend has reached, if it is
// higher than any before in this window.
func (p *period) cross(thresholds []int, limit int64) (percent int, ok bool) {
	if limit <= 0 {
		return 0, false
	}
	for i := len(thresholds) - 1; i >= 0 && thresholds[i] > int(p.crossed); i-- {
		hi, lo := bits.Mul64(uint64(limit), uint64(thresholds[i]))
		if usedHi, usedLo := bits.Mul64(uint64(p.committed), 100); usedHi > hi || usedHi == hi && usedLo >= lo {
			p.crossed = int32(thresholds[i])
			return thresholds[i], true
		}
	}
	return 0, false
}

// calendar is a counter of a calendar limit: a period for each window.
type calendar struct {
	*name
	cur  period    // the latest that was taken in
	past *[]period // the earlier ones, the oldest first
}

// at returns the period that starts at an instant, or nil.
func (c *calendar) at(start int64) *period {
	if c.cur.start == start {
		return &c.cur
	}
	if c.past == nil {
		return nil
	}
	past := *c.past
	for i := len(past) - 1; i >= 0; i-- {
		if past[i].start == start {
			return &past[i]
		}
	}
	return nil
}

// open returns the period that starts at an instant, and begins it if need be.
func (c *calendar) open(start, end int64, keep int) *period {
	if p := c.at(start); p != nil {
		return p
	}
	next := period{start: start, end: end, limit: -1}
	if start > c.cur.start {
		old := c.cur
		c.cur = next
		if !old.empty() {
			c.archive(old, keep)
		}
		return &c.cur
	}
	// The clock was set back, or a call is settled that began in a window that is
	// not kept any more.
	return c.archive(next, keep)
}

// archive puts a period among the past ones, and returns where it is. Of those in
// which nothing is held the latest are kept, as many as keep, which is 1 at least;
// this one is among them.
func (c *calendar) archive(p period, keep int) *period {
	if c.past == nil {
		c.past = new([]period)
	}
	past := *c.past
	i, _ := slices.BinarySearchFunc(past, p.start, func(x period, start int64) int {
		switch {
		case x.start < start:
			return -1
		case x.start > start:
			return 1
		}
		return 0
	})
	past = slices.Insert(past, i, p)
	over := -keep
	for j := range past {
		if past[j].reserved == 0 {
			over++
		}
	}
	for j := 0; over > 0; j++ {
		if past[j].reserved != 0 || j == i {
			continue
		}
		past = slices.Delete(past, j, j+1)
		if j < i {
			i--
		}
		j--
		over--
	}
	*c.past = past
	return &past[i]
}

// idle reports whether nothing is lost of what still matters when c is forgotten:
// nothing is held, and what was spent is in windows that have passed.
func (c *calendar) idle(now int64) bool {
	if c.cur.reserved != 0 || c.cur.end > now && !c.cur.empty() {
		return false
	}
	if c.past != nil {
		for _, p := range *c.past {
			if p.reserved != 0 || p.end > now {
				return false
			}
		}
	}
	return true
}

// nanos are Unix nanoseconds, or zero for the zero time.
func nanos(t time.Time, zero int64) int64 {
	switch s := t.Unix(); {
	case t.IsZero():
		return zero
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// bounds are the ends of a span in Unix nanoseconds.
func bounds(s *Span) (start, end int64) {
	return nanos(s.Start, math.MinInt64), nanos(s.End, math.MaxInt64)
}

// spanOf is the span between two instants in Unix nanoseconds.
func spanOf(start, end int64) (s Span) {
	if start != math.MinInt64 {
		s.Start = time.Unix(0, start).UTC()
	}
	if end != math.MaxInt64 {
		s.End = time.Unix(0, end).UTC()
	}
	return s
}

// sum is a + b of numbers that are not negative, at most math.MaxInt64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
