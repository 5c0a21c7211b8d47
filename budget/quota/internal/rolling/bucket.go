// Package rolling is the arithmetic of rolling counters, which ledgers share: a
// token bucket in integers, whose refunds are exact.
//
// Instants are nanoseconds of whatever clock a ledger has; per is the length of
// the window in nanoseconds, and always positive. Nothing here is safe for
// concurrent use.
package rolling

import (
	"math"
	"math/bits"
)

// Bucket is a rolling counter: a token bucket in integers, kept as what is
// missing from a full burst. So it needs neither limit nor burst, which come with
// each operation, and a change of them keeps what was spent. The zero Bucket is
// full.
type Bucket struct {
	Missing  Quantity
	At       int64    // when Missing was right
	Full     int64    // when nothing is missing any more, if nothing is taken; its owner keeps it
	Reserved int64    // sum of the holds
	Mark     int64    // of the newest charge
	Open     *Charges // while there are holds: what Missing consists of
}

// Refill brings the bucket to now. What is missing shrinks by limit units per
// per; elapsed·limit is computed in 128 bits.
func (b *Bucket) Refill(now, limit, per int64) {
	elapsed := now - b.At
	if elapsed <= 0 {
		return
	}
	b.At = now
	if b.Missing.Zero() || limit <= 0 {
		return
	}
	hi, lo := bits.Mul64(uint64(elapsed), uint64(limit))
	if hi < uint64(per) {
		units, part := bits.Div64(hi, lo, uint64(per))
		if q := (Quantity{int64(min(units, math.MaxInt64)), int64(part)}); q.Less(b.Missing) {
			b.pay(q, per)
			return
		}
	}
	b.Fill()
}

// Pay raises the level by an amount, and not above a full burst.
func (b *Bucket) Pay(amount, per int64) {
	if q := (Quantity{Units: amount}); q.Less(b.Missing) {
		b.pay(q, per)
		return
	}
	b.Fill()
}

// pay raises the level by less than what is missing.
func (b *Bucket) pay(q Quantity, per int64) {
	b.Missing = b.Missing.Minus(q, per)
	if b.Open != nil {
		b.Open.refill(q, per)
	}
}

// Fill makes nothing missing.
func (b *Bucket) Fill() {
	b.Missing = Quantity{}
	if b.Open != nil {
		b.Open.List = b.Open.List[:0]
	}
}

// Lacks is what an amount needs beyond what is there now.
func (b *Bucket) Lacks(amount, burst int64) Quantity {
	units := uint64(b.Missing.Units) + uint64(amount)
	if units < uint64(burst) {
		return Quantity{}
	}
	return Quantity{int64(min(units-uint64(burst), math.MaxInt64)), b.Missing.Part}
}

// Takes reports whether an amount can be booked at all.
func (b *Bucket) Takes(amount int64) bool {
	return amount < math.MaxInt64-b.Missing.Units && amount <= math.MaxInt64-b.Reserved
}

// Take lowers the level by an amount, which may be a hold. The mark names its
// charge, and must be larger than any before.
func (b *Bucket) Take(amount, mark int64, hold bool, per int64, pool *Pool) {
	amount = min(amount, math.MaxInt64-1-b.Missing.Units)
	q := Quantity{Units: amount}
	b.Missing = b.Missing.Plus(q, per)
	b.Mark = mark
	switch {
	case b.Open != nil:
		b.Open.add(q, mark, hold, per)
	case hold:
		b.Open = pool.get()
		b.Open.add(b.Missing, mark, true, per)
	}
	if hold {
		b.Reserved += amount
	}
}

// Refund gives back a part of what was charged under a mark.
func (b *Bucket) Refund(units, mark, per int64) {
	q := Quantity{Units: units}
	switch {
	case b.Open != nil:
		b.Missing = b.Missing.Minus(b.Open.refund(q, mark, per), per)
	case mark != b.Mark: // became one with newer charges
	case q.Less(b.Missing):
		b.Missing = b.Missing.Minus(q, per)
	default:
		b.Missing = Quantity{}
	}
}

// End ends a hold of an amount, after its refund.
func (b *Bucket) End(amount, mark, per int64, pool *Pool) {
	b.Reserved -= amount
	if b.Open.end(mark, per); b.Open.Holds == 0 {
		pool.put(b.Open)
		b.Open = nil
	}
}

// Merge has the bucket keep no more charges apart than most, which is 1 at least,
// for a ledger that writes them with each operation. The oldest become one with
// newer ones: the holds that they were of give nothing back any more, as if what
// they took had flowed over since.
func (b *Bucket) Merge(most int, per int64) {
	if b.Open != nil {
		b.Open.merge(most, per)
	}
}
