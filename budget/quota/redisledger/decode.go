package redisledger

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

var errGarbled = fmt.Errorf("%w: the answer of a script is garbled", quota.ErrUnavailable)

// A decoder reads what a script has answered. What it reads beyond the end is 0, and
// noted.
type decoder struct {
	s     string
	short bool
}

func (r *decoder) bytes(n int) string {
	if n > len(r.s) {
		r.short = true
		r.s = ""
		return ""
	}
	b := r.s[:n]
	r.s = r.s[n:]
	return b
}

func (r *decoder) byte() byte {
	if b := r.bytes(1); b != "" {
		return b[0]
	}
	return 0
}

func (r *decoder) uint16() int {
	b := r.bytes(2)
	if b == "" {
		return 0
	}
	return int(b[0]) | int(b[1])<<8
}

func (r *decoder) int64() int64 {
	b := r.bytes(8)
	if b == "" {
		return 0
	}
	return int64(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56)
}

func (r *decoder) err() error {
	if r.short {
		return errGarbled
	}
	return nil
}

// Flags of what is held, as in lua/store.lua.
const (
	passed = 1 << iota
	over
	erased
)

// stand is how a counter stood at some time.
type stand struct {
	committed, reserved int64
	full                int64 // Unix microseconds; 0 for none
	crossed             int
}

// bucket reads how a bucket stood, which refills at some units per den.
func (r *decoder) bucket(units, den int64) (st stand) {
	missing, part, at := r.int64(), r.int64(), r.int64()
	st.reserved = r.int64()
	if st.committed = missing; part > 0 {
		st.committed++
	}
	if t := refillTime(missing, part, den, units); st.committed > 0 && t < never {
		st.full = at + t
	}
	return st
}

// refillTime is how long it takes to refill, in microseconds, rounded up.
func refillTime(missing, part, den, units int64) int64 {
	if units <= 0 {
		return never
	}
	hi, lo := bits.Mul64(uint64(missing), uint64(den))
	lo, carry := bits.Add64(lo, uint64(part), 0)
	hi += carry
	lo, carry = bits.Add64(lo, uint64(units)-1, 0)
	if hi += carry; hi >= uint64(units) {
		return never
	}
	t, _ := bits.Div64(hi, lo, uint64(units))
	if t > most {
		return never
	}
	return int64(t)
}

// window reads how a calendar counter stood.
func (r *decoder) window() (from, to, limit int64, st stand) {
	from, to = r.int64(), r.int64()
	st.committed, st.reserved = r.int64(), r.int64()
	limit = r.int64()
	r.bytes(8) // what was crossed, and the epoch
	return from, to, limit, st
}

// status reads the slot of an entry, and fills in how its counter stands.
func (r *decoder) status(e *quota.Entry, to *quota.Status) {
	to.Counter, to.Limit = e.Counter, e.Limit
	r.bytes(8) // the slot's name
	var st stand
	if e.Rolling {
		to.Rolling, to.Burst = true, e.Burst
		units, den := rate(e)
		if st = r.bucket(units, den); e.Limit < 0 {
			st = stand{}
		}
		r.bytes(16) // mark, holds, charges
	} else {
		var from, until int64
		from, until, _, st = r.window()
		to.Span = spanOf(from, until)
		for i := range e.Spans {
			if s := &e.Spans[i]; instant(s.Start, -never) == from && instant(s.End, never) == until {
				to.Span = *s
				break
			}
		}
	}
	st.fill(to)
}

func timeOf(us int64) time.Time { return time.UnixMicro(us).UTC() }

func spanOf(from, to int64) (s quota.Span) {
	if from > -never {
		s.Start = timeOf(from)
	}
	if to < never {
		s.End = timeOf(to)
	}
	return s
}

// fill fills in how the counter of an entry stands.
func (st *stand) fill(to *quota.Status) {
	to.Committed, to.Reserved = st.committed, st.reserved
	if st.full != 0 {
		to.FullAt = timeOf(st.full)
	}
}

func duration(us int64) time.Duration {
	if us > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}

// statusesIn are n statuses to be filled in, in the caller's room if it is enough.
func statusesIn(room []quota.Status, n int) []quota.Status {
	if cap(room) < n {
		return make([]quota.Status, n)
	}
	room = room[:n]
	clear(room)
	return room
}
