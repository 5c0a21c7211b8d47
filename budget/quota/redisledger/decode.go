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

// record is a reservation as the scripts keep it.
type record struct {
	late    bool
	entries int // how many of held are its entries; the others came with a Settle
	taken   int64
	wait    int64
	held    []held
}

// recordVersion is that of the format in which reservations are kept.
const recordVersion = 1

// States of a reservation, as in lua/store.lua.
const (
	stateSettled       = 1
	stateSettledSimply = 4
)

// settledRecord is a reservation that was open, with how it was settled.
func settledRecord(record, ended string) string {
	if len(record) < 2 {
		return ""
	}
	return record[:1] + string(rune(stateSettledSimply)) + record[2:] + ended
}

// held is an entry of a reservation, and what was found out of it.
type held struct {
	counter     quota.Counter
	place       int
	kind        quota.Kind
	rolling     bool
	limit       int64
	burst       int64
	units, den  int64 // its rate
	from, to    int64 // of a calendar's window
	said        byte
	first, last stand // when it was taken, and settled
}

// record reads a reservation whose keys begin with k.
func (r *decoder) record(k keys) (rec record, err error) {
	version, state := r.byte(), r.byte()
	if version != recordVersion && !r.short {
		return rec, fmt.Errorf("%w: a reservation is in format %d, which is not of this version", quota.ErrUnavailable, version)
	}
	rec.late = r.byte() != 0
	r.bytes(9) // whether there are flags, the sequence number
	rec.taken = r.int64()
	r.bytes(8) // when it expires
	rec.wait = r.int64()
	places := make([]string, r.uint16())
	rec.entries = r.uint16()
	rec.held = make([]held, r.uint16())
	r.bytes(12) // where parts begin
	r.bytes(r.uint16())
	for i := range places {
		name := r.bytes(r.uint16())
		places[i] = name[min(len(k.account("")), len(name)):]
	}
	for i := range rec.held {
		h := &rec.held[i]
		h.place = r.uint16()
		flags := r.byte()
		h.kind, h.rolling = quota.Kind(flags&kinds), flags&rolling != 0
		r.bytes(9) // the unit and the amount
		thresholds := int(r.byte())
		if h.rolling {
			h.limit, h.burst, h.units, h.den = r.int64(), r.int64(), r.int64(), r.int64()
		}
		r.bytes(thresholds * 10)
	}
	for i := range rec.held {
		h := &rec.held[i]
		name := r.bytes(r.uint16())
		if h.place < 1 || h.place > len(places) {
			return rec, errGarbled
		}
		h.counter = counterOf(places[h.place-1], name)
	}
	for i := range rec.held {
		h := &rec.held[i]
		h.said = r.byte()
		h.first.crossed = r.uint16()
	}
	for i := range rec.held {
		h := &rec.held[i]
		crossed := h.first.crossed
		h.first = r.slot(h)
		h.first.crossed = crossed
	}
	r.bytes(sinceLen * len(places))
	switch state {
	case stateSettled:
		for i := range rec.held {
			rec.held[i].ended(r)
		}
	case stateSettledSimply:
		r.bytes(8 * quota.Units) // what was used
		for i := range rec.held {
			then := rec.held[i] // its limit may be that of another call by then
			rec.held[i].last = r.slot(&then)
		}
	}
	for i := range rec.held {
		if h := &rec.held[i]; h.rolling && h.limit < 0 {
			h.first, h.last = stand{}, stand{}
		}
	}
	return rec, r.err()
}

// slot reads the slot of an entry.
func (r *decoder) slot(h *held) (st stand) {
	r.bytes(8) // its name
	if h.rolling {
		st = r.bucket(h.units, h.den)
		r.bytes(16) // mark, holds, charges
	} else {
		h.from, h.to, h.limit, st = r.window()
	}
	return st
}

// ended reads how an entry was settled.
func (h *held) ended(r *decoder) {
	h.said |= r.byte()
	if h.rolling {
		r.bytes(16) // the mark, and what was used
		h.last = r.bucket(h.units, h.den)
		return
	}
	r.bytes(24) // what was used and kept, the epoch
	h.last.committed, h.last.reserved = r.int64(), r.int64()
	h.last.crossed = r.uint16()
}

// status is how a counter stood, and what it had crossed. Of a key that was erased
// it says nothing.
func (h *held) status(st *stand, to *quota.Status) {
	to.Limit = h.limit
	if h.said&erased != 0 {
		to.Limit = -1
		return
	}
	to.Counter = h.counter
	if h.rolling {
		to.Rolling, to.Burst = true, h.burst
	} else {
		to.Span = spanOf(h.from, h.to)
	}
	st.fill(to)
}

func (h *held) crossing(st *stand, to []quota.Crossing) []quota.Crossing {
	if st.crossed == 0 || h.said&erased != 0 {
		return to
	}
	return append(to, quota.Crossing{
		Counter: h.counter, Span: spanOf(h.from, h.to), Percent: st.crossed, Committed: st.committed, Limit: h.limit,
	})
}

// over reports whether the counter was above its limit after the last settlement.
func (h *held) over() bool {
	switch {
	case h.limit < 0 || h.said&erased != 0:
		return false
	case h.rolling:
		return h.last.committed > h.burst
	}
	return h.last.reserved > h.limit-h.last.committed
}

// repeated is the first result of a Reserve.
func (rec *record) repeated(room []quota.Status) quota.Reserved {
	res := quota.Reserved{
		Denied: -1, Now: timeOf(rec.taken), Wait: duration(rec.wait), Repeated: true,
		Status: statusesIn(room, rec.entries),
	}
	for i := range res.Status {
		h := &rec.held[i]
		h.status(&h.first, &res.Status[i])
		if h.said&over != 0 {
			res.Over = append(res.Over, i)
		}
		res.Crossed = h.crossing(&h.first, res.Crossed)
	}
	return res
}

// settled is the result of the last Settle.
func (rec *record) settled(room []quota.Status) quota.Settled {
	res := quota.Settled{Late: rec.late}
	n := 0
	for i := range rec.held {
		if rec.settles(i) {
			n++
		}
	}
	res.Status = statusesIn(room, n)
	n = 0
	for i := range rec.held {
		if !rec.settles(i) {
			continue
		}
		h := &rec.held[i]
		h.status(&h.last, &res.Status[n])
		res.Over = res.Over || h.over()
		res.Crossed = h.crossing(&h.last, res.Crossed)
		n++
	}
	return res
}

// settles reports whether the i-th of what is held is settled.
func (rec *record) settles(i int) bool { return i >= rec.entries || rec.held[i].kind == quota.Hold }
