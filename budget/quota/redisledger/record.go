package redisledger

import (
	"fmt"

	"github.com/headgate-go/headgate/budget/quota"
)

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
	if state == stateSettledSimply {
		r.bytes(12) // the same when it was open
	}
	rec.taken = r.int64()
	r.bytes(8) // when it expires
	rec.wait = r.int64()
	places := make([]string, r.uint16())
	rec.entries = r.uint16()
	rec.held = make([]held, r.uint16())
	if rec.entries > len(rec.held) {
		return rec, errGarbled
	}
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

// repeated reads what comes after a reservation that is told again: which of its accounts
// were erased since. Nothing is told of these.
func (r *decoder) repeated(rec *record) error {
	for i := 1; r.s != ""; i++ {
		if r.byte() == 0 {
			continue
		}
		for j := range rec.held {
			if h := &rec.held[j]; h.place == i {
				h.said |= erased
			}
		}
	}
	return r.err()
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
