package rolling

import (
	"math"
	"math/bits"
)

// A Quantity is a number of units and a fraction of one, in parts of per. It is
// never negative, and the fraction is below one.
type Quantity struct{ Units, Part int64 }

// Zero reports whether q is nothing.
func (q Quantity) Zero() bool { return q.Units|q.Part == 0 }

// Less reports whether q is less than r.
func (q Quantity) Less(r Quantity) bool {
	return q.Units < r.Units || q.Units == r.Units && q.Part < r.Part
}

// Plus is q + r. The caller sees to it that it does not overflow.
func (q Quantity) Plus(r Quantity, per int64) Quantity {
	q.Units += r.Units
	if q.Part >= per-r.Part {
		q.Units, q.Part = q.Units+1, q.Part-per
	}
	q.Part += r.Part
	return q
}

// Minus is q − r; r must not be more than q.
func (q Quantity) Minus(r Quantity, per int64) Quantity {
	q.Units -= r.Units
	if q.Part < r.Part {
		q.Units, q.Part = q.Units-1, q.Part+per
	}
	q.Part -= r.Part
	return q
}

// Ceil is q in whole units, rounded up.
func (q Quantity) Ceil() int64 {
	if q.Part > 0 {
		return q.Units + 1
	}
	return q.Units
}

// Time is how long it takes to refill q at limit units per per, rounded up to the
// nanosecond; math.MaxInt64 if it is longer than that, or for ever.
func (q Quantity) Time(limit, per int64) int64 {
	if q.Zero() {
		return 0
	}
	if limit <= 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(q.Units), uint64(per))
	lo, carry := bits.Add64(lo, uint64(q.Part), 0)
	hi += carry
	lo, carry = bits.Add64(lo, uint64(limit)-1, 0)
	hi += carry
	if hi >= uint64(limit) {
		return math.MaxInt64
	}
	d, _ := bits.Div64(hi, lo, uint64(limit))
	return int64(min(d, math.MaxInt64))
}
