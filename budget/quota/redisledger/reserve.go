package redisledger

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// The lengths of parts of a reservation, as lua/store.lua has them.
const (
	recordHead = 36 // what the script knows of it
	recordRest = 18 // what Go does
	slotLen    = 56
	sinceLen   = 8
	flagsLen   = 3
)

// day is how much longer lives what must outlive something else.
const day = 24 * time.Hour

// reserve writes what a Reserve asks. See lua/reserve.lua.
func (l *Ledger) reserve(w *encoder, k keys, r *quota.Reserve) {
	all, ttl := r.Entries, microsUp(cmp.Or(r.TTL, quota.DefaultTTL))
	remember, forget := microsUp(l.cfg.Remember), microsUp(l.cfg.Forget)

	const head = 98
	w.asked = append(w.asked, make([]byte, head)...)
	horizon, low, high := ttl+remember, int64(-never), int64(never)
	next := head - 3 // where the flags and the account of the next entry are written
	for i := range all {
		e := &all[i]
		name := w.entry(e)
		flags, thresholds := flagsOf(e), 0
		if e.Kind == quota.Count {
			if thresholds = countThresholds(e); thresholds > 0 {
				flags |= crosses
			}
		}
		w.asked[next] = flags
		order.PutUint16(w.asked[next+1:], uint16(w.place(e.Key)))
		a := appendSlot(w.asked, name)
		if e.Rolling {
			units, per := rate(e)
			a = w.amount(a, e.Amount)
			a = w.amount(a, e.Burst)
			a = w.amount(a, units)
			a = w.amount(a, per)
			a = order.AppendUint64(a, uint64(micros(e.MaxWait)))
		} else {
			from, to := ends(&e.Spans, 1)
			low, high = max(low, from), min(high, to)
			if to == never && e.Kind != quota.Lease {
				horizon = max(horizon, forget)
			}
			a = order.AppendUint64(a, uint64(from))
			a = order.AppendUint64(a, uint64(to))
			a = appendLimit(a, e)
			a = w.amount(a, e.Amount)
			a = w.limit(a, e.Limit)
		}
		next = len(a)
		a = append(a, 0, 0, 0)
		if !e.Rolling {
			hard := e.Limit
			if e.Soft {
				hard = e.Ceiling
			}
			a = w.limit(a, hard)
		}
		if thresholds > 0 {
			a = appendThresholds(append(a, byte(thresholds)), e, thresholds)
		}
		w.asked = a
	}
	spans := len(w.asked)
	for i := range all {
		if e := &all[i]; !e.Rolling && w.whole {
			for _, i := range []int{0, 2} {
				from, to := ends(&e.Spans, i)
				w.asked = order.AppendUint64(w.asked, uint64(from))
				w.asked = order.AppendUint64(w.asked, uint64(to))
			}
		}
	}

	// All keys are parts of one text.
	w.text = append(append(w.text, k...), 'x')
	w.text = append(append(append(w.text, k...), "r:"...), r.ID...)
	for _, key := range w.keys {
		w.text = append(append(append(w.text, k...), "a:"...), key...)
	}
	text := string(w.text)
	name := func(n int) (name string) {
		name, text = text[:n], text[n:]
		return name
	}
	exclusive := ""
	rest := append(w.rest, make([]byte, recordRest)...)
	if r.Exclusive != "" {
		exclusive = k.exclusive(r.Exclusive)
	}
	rest = appendText(rest, exclusive)
	w.key(name(len(k) + 1))
	w.key(name(len(k) + 2 + len(r.ID)))
	for _, key := range w.keys {
		account := name(len(k) + 2 + len(key))
		w.key(account)
		rest = appendText(rest, account)
	}
	if exclusive != "" {
		w.key(exclusive)
	}
	const begin = 1 + recordHead
	said := begin + len(rest)
	rest = append(rest, w.said...)
	rest = append(rest, w.names...)
	flags := begin + len(rest)
	rest = append(rest, make([]byte, flagsLen*len(all))...)
	order.PutUint16(rest, uint16(len(w.keys)))
	order.PutUint16(rest[2:], uint16(len(all)))
	order.PutUint16(rest[4:], uint16(len(all)))
	order.PutUint32(rest[6:], uint32(said))
	order.PutUint32(rest[10:], uint32(flags))
	order.PutUint32(rest[14:], uint32(begin+len(rest)))

	h := w.asked[:0]
	offset, still := l.time()
	score := l.hint(ttl)
	h = order.AppendUint16(h, uint16(len(w.keys)))
	h = order.AppendUint16(h, uint16(len(all)))
	h = order.AppendUint64(h, uint64(offset))
	h = append(h, still)
	h = order.AppendUint64(h, uint64(ttl))
	h = order.AppendUint64(h, uint64(remember))
	h = order.AppendUint64(h, uint64(forget))
	h = order.AppendUint16(h, uint16(l.cfg.KeepWindows))
	h = order.AppendUint64(h, uint64(horizon))
	h = order.AppendUint64(h, uint64(low))
	h = order.AppendUint64(h, uint64(high))
	h = order.AppendUint64(h, uint64(score))
	h = appendDigits(h, score)
	h = order.AppendUint32(h, uint32(flags-begin))
	order.AppendUint32(h, uint32(spans+1))
	life := (ttl + forget + microsUp(day) + 999) / 1000
	w.rest, w.life = rest, strconv.AppendInt(w.life, life, 10)
	w.ask(&w.rest, &w.asked, &w.life)
}

// Reserve implements [quota.Ledger]. It is one round trip, however many entries there
// are; what is rare takes a second one, such as the first use of a counter in a window,
// or an expired reservation that is to be swept. A denial takes further ones while there
// are more of these than one script sweeps.
func (l *Ledger) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	none := quota.Reserved{Denied: -1}
	if err := r.Validate(); err != nil {
		return none, err
	}
	if err := checkTexts(r.Tree, "Entries", r.Entries); err != nil {
		return none, err
	}
	if len(r.Exclusive) > maxText {
		return none, fmt.Errorf("redisledger: Exclusive has %d bytes, at most %d are allowed", len(r.Exclusive), maxText)
	}
	answer, err := l.run(ctx, reserveScript, r.Tree, func(w *encoder, k keys) { l.reserve(w, k, &r) })
	if err != nil {
		return none, err
	}
	d := decoder{s: answer[1:]}
	if answer[0] == 'R' {
		rec, err := d.record(l.keysOf(r.Tree))
		if err == nil {
			err = d.repeated(&rec)
		}
		if err != nil {
			return none, err
		}
		return rec.repeated(r.Room), nil
	}
	var res quota.Reserved
	if answer[0] == recordVersion {
		res, err = taken(answer, r.Entries, r.Room)
	} else {
		res, err = d.reserved(answer[0], r.Entries, r.Room)
	}
	if err == nil {
		l.saw(res.Now)
	}
	return res, err
}

// taken reads what a Reserve was answered that nothing is to be said of but how counters
// stand: the reservation as it is kept.
func taken(answer string, entries []quota.Entry, room []quota.Status) (quota.Reserved, error) {
	d := decoder{s: answer}
	d.bytes(12) // the version, states, the sequence number
	res := quota.Reserved{Denied: -1, Now: timeOf(d.int64())}
	d.bytes(8) // when it expires
	res.Wait = duration(d.int64())
	d.bytes(14) // how many there are of things, where parts begin
	slots := d.uint16() | d.uint16()<<16
	if d.short || slots < 1 || slots > len(answer) {
		return res, errGarbled
	}
	d.s = answer[slots-1:]
	res.Status = statusesIn(room, len(entries))
	for i := range entries {
		d.status(&entries[i], &res.Status[i])
	}
	return res, d.err()
}

// reserved reads what a Reserve was answered: it was taken, denied, or held back.
func (r *decoder) reserved(code byte, entries []quota.Entry, room []quota.Status) (quota.Reserved, error) {
	res := quota.Reserved{Now: timeOf(r.int64()), Denied: r.uint16() - 1, Never: r.byte() != 0}
	retry, wait := r.int64(), r.int64()
	res.Status = statusesIn(room, len(entries))
	switch code {
	case 'T':
		res.Denied, res.Wait = -1, duration(wait)
	case 'H':
		res.Denied, res.Never, res.Held = -1, false, true
	}
	if code != 'T' && retry < never {
		res.RetryAfter = duration(retry)
	}
	for i := range entries {
		r.status(&entries[i], &res.Status[i])
	}
	if r.s == "" { // no flags at all
		return res, r.err()
	}
	for i := range entries {
		said, crossed := r.byte(), r.uint16()
		if said&over != 0 && code != 'H' {
			res.Over = append(res.Over, i)
		}
		if crossed > 0 {
			e, st := &entries[i], &res.Status[i]
			res.Crossed = append(res.Crossed, quota.Crossing{
				Counter: e.Counter, Span: st.Span, Percent: crossed, Committed: st.Committed, Limit: e.Limit,
			})
		}
	}
	return res, r.err()
}
