package blocks

import (
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// tree is what is known here about a tree of which something is leased. Nothing
// that takes time is done under its lock.
type tree struct {
	l    *Ledger
	name string

	mu sync.Mutex
	// mu guards all that follows, and the tree's counters, pools and blocks.
	gone        bool
	counters    map[counterKey]*counter
	records     map[string]*record
	open        expiring
	first, last *record // those that have ended, in that order
	waiters     []*waiter
	ticking     bool
	renewing    bool
	said        time.Time // the ledger's time
	saidAt      int64     // when it said so
}

func newTree(l *Ledger, name string) *tree {
	return &tree{
		l: l, name: strings.Clone(name),
		counters: map[counterKey]*counter{}, records: map[string]*record{},
	}
}

// ledgerNow is the ledger's time, as far as is known: as it said last, and what has
// passed since by the monotonic clock. Before it has said anything it is ours.
func (t *tree) ledgerNow(now int64) time.Time {
	if t.said.IsZero() {
		return t.l.base.Add(time.Duration(now)).Round(0).UTC()
	}
	return t.said.Add(time.Duration(now - t.saidAt))
}

// heard notes the ledger's time. It is that of an instant before now, so that a
// window is never thought to have ended before it has.
func (t *tree) heard(ledger time.Time, now int64) {
	if !ledger.IsZero() {
		t.said, t.saidAt = ledger.Round(0).UTC(), now
	}
}

// attempt is a reservation that is looked at.
type attempt struct {
	r     *quota.Reserve
	wants []wanted
	below int // how many entries are not leased
	room  [4]wanted
}

// wanted is an entry that is leased.
type wanted struct {
	at       int // its index
	c        *counter
	p        *pool
	v        verdict
	asking   bool  // the ledger is being asked on its behalf
	picked   bool  // what it wants is part of what is asked for
	answered bool  // the ledger has been asked, and what lacks is not to be had
	err      error // instead of an answer
}

// waiter is an attempt that waits for the ledger.
type waiter struct {
	attempt
	out  outcome
	done chan struct{} // closed when out is there; it is out of the line then
}

// outcome is what came of an attempt.
type outcome struct {
	rec      *record
	local    bool    // the ledger underneath was not asked
	told     bool    // there are crossings to be told
	reached  []*pool // those of which a threshold was crossed by what was counted
	repeated bool
	denied   bool
	result   quota.Reserved
	err      error
}

// begin finds the counters of an attempt.
func (t *tree) begin(a *attempt, now int64) {
	for i := range a.wants {
		w := &a.wants[i]
		e := &a.r.Entries[w.at]
		w.c = t.counter(e)
		w.c.note(e)
		w.c.usedAt = now
		if takes(e) {
			w.c.demand.add(e.Amount, now, t.l.cfg.Ahead)
		}
	}
}

// takes reports whether an entry takes something.
func takes(e *quota.Entry) bool { return e.Kind != quota.Check && e.Amount > 0 }

// try decides about all entries, and then takes all or none. It is false if the
// ledger has to be asked first. waits says whether the attempt is in the line.
func (t *tree) try(a *attempt, waits bool, now int64) (out outcome, done bool) {
	if rec := t.records[a.r.ID]; rec != nil {
		return outcome{rec: rec, repeated: true}, true
	}
	lacks, denied := false, false
	for i := range a.wants {
		w := &a.wants[i]
		e := &a.r.Entries[w.at]
		before := w.c.wanted
		if waits {
			before = w.c.before
		}
		w.p = w.c.current(e, now)
		w.v = w.p.look(e, before, w.answered, now)
		if w.err != nil && (w.v.lacks || w.v.denied) {
			return outcome{err: w.err}, true
		}
		if !w.v.denied && !w.v.queues { // it has to ask again, or needs no answer
			w.answered, w.err = false, nil
		}
		lacks, denied = lacks || w.v.lacks, denied || w.v.denied
	}
	switch {
	case lacks:
		return out, false
	case denied:
		return outcome{denied: true, result: t.deny(a, now)}, true
	}
	return t.take(a, now), true
}

// deny is the result of an attempt that was denied.
func (t *tree) deny(a *attempt, now int64) quota.Reserved {
	res := quota.Reserved{Denied: -1, Now: t.ledgerNow(now), Status: statuses(a.r)}
	retry := int64(0)
	for i := range a.wants {
		w := &a.wants[i]
		e := &a.r.Entries[w.at]
		if w.v.denied {
			if res.Denied < 0 {
				res.Denied, res.Never = w.at, w.v.never
			}
			retry = max(retry, w.v.retry)
			if w.p.reservedElse(now) > 0 {
				t.l.stats.deniedBusy.Add(1)
			}
		}
		if w.v.over {
			res.Over = append(res.Over, w.at)
		}
		w.status(&res.Status[w.at], e, now)
	}
	if retry < math.MaxInt64 {
		res.RetryAfter = time.Duration(retry)
	}
	return res
}

// reservedElse is what is reserved by others.
func (p *pool) reservedElse(now int64) int64 { return p.view(now).reserved - p.held }

func (w *wanted) status(to *quota.Status, e *quota.Entry, now int64) (st standing) {
	if !e.Rolling || e.Limit >= 0 { // otherwise nothing is counted
		st = w.p.view(now)
	}
	w.p.status(to, e, st)
	return st
}

// statuses are those of a result, in the caller's room if it is enough.
func statuses(r *quota.Reserve) []quota.Status {
	n := len(r.Entries)
	if cap(r.Room) < n {
		return make([]quota.Status, n)
	}
	room := r.Room[:n]
	clear(room)
	return room
}

// take takes all entries. The record is not kept yet.
func (t *tree) take(a *attempt, now int64) outcome {
	r := a.r
	rec := newRecord(len(r.Entries))
	rec.id, rec.below, rec.saidAt = r.ID, a.below > 0 || r.Exclusive != "", t.ledgerNow(now)
	ttl := r.TTL
	if ttl == 0 {
		ttl = quota.DefaultTTL
	}
	rec.expires = sum(now, int64(ttl))
	for i := range rec.held {
		rec.held[i].below, rec.held[i].kind = true, r.Entries[i].Kind
	}
	if a.below > 0 {
		rec.at = a.notLeased()
	}
	out := outcome{rec: rec}
	res := quota.Reserved{Denied: -1, Now: rec.saidAt, Status: statuses(r)}
	for i := range a.wants {
		w := &a.wants[i]
		e, h := &r.Entries[w.at], &rec.held[w.at]
		*h = held{
			pool: w.p, passed: w.v.passed, kind: e.Kind, unit: e.Unit, limit: e.Limit, burst: e.Burst,
			rolling: e.Rolling, amount: e.Amount,
		}
		if w.v.over {
			rec.over = append(rec.over, w.at)
		}
		rec.wait = max(rec.wait, w.v.wait)
		h.thresholds = w.c.entry.Thresholds
		w.p.take(h, now)
		h.first = w.status(&res.Status[w.at], e, now)
		w.c.short = w.c.short || takes(e) && w.c.ahead(w.p, e, now) > 0
		w.c.look(now)
		out.told = out.told || len(w.c.crossed) > 0
		if h.kind == quota.Count && w.p.reaches(h, now) {
			out.reached = append(out.reached, w.p)
		}
	}
	res.Over, res.Wait = slices.Clone(rec.over), rec.wait
	t.arm()
	out.result = res
	return out
}

// wait puts an attempt into the line, and has the ledger asked. It is nil if there
// is nobody any more who would ask.
func (t *tree) wait(a *attempt) *waiter {
	w := &waiter{attempt: *a, done: make(chan struct{})}
	w.wants = w.room[:0:len(w.room)]
	w.wants = append(w.wants, a.wants...)
	for i := range w.wants {
		w.wants[i].c.wants(&w.wants[i], w.r, 1)
	}
	for i := range w.wants {
		if x := &w.wants[i]; x.v.lacks && !x.c.kick() {
			t.unwait(w)
			return nil
		}
	}
	t.waiters = append(t.waiters, w)
	t.arm()
	return w
}

// wants adds what an entry wants to what those who wait want, or takes it off.
func (c *counter) wants(w *wanted, r *quota.Reserve, sign int64) {
	if e := &r.Entries[w.at]; takes(e) {
		c.wanted += sign * min(e.Amount, math.MaxInt64>>16)
	}
}

// unwait takes a waiter's wants off.
func (t *tree) unwait(w *waiter) {
	for i := range w.wants {
		w.wants[i].c.wants(&w.wants[i], w.r, -1)
	}
}

// leave takes a waiter out of the line that does not wait any longer; false if it
// had been served before.
func (t *tree) leave(w *waiter) bool {
	i := slices.Index(t.waiters, w)
	if i < 0 {
		return false
	}
	t.waiters = slices.Delete(t.waiters, i, i+1)
	t.unwait(w)
	return true
}

// serve looks at all who wait, the longest first, after something has changed.
// What the ones in front want the others do not get, as long as it may still come.
func (t *tree) serve(now int64) {
	if len(t.waiters) == 0 {
		return
	}
	for _, c := range t.counters {
		c.before = 0
	}
	line := t.waiters
	t.waiters = line[:0]
	for _, w := range line {
		out, done := t.try(&w.attempt, true, now)
		for i := range w.wants {
			if x := &w.wants[i]; !done && x.v.lacks && !x.c.kick() {
				out, done = outcome{err: errClosed}, true
			}
		}
		if done {
			t.unwait(w)
			w.out = out
			if out.rec != nil && !out.repeated && !out.rec.below {
				t.keep(out.rec)
			}
			close(w.done)
			continue
		}
		t.waiters = append(t.waiters, w)
		for i := range w.wants {
			x := &w.wants[i]
			if e := &w.r.Entries[x.at]; takes(e) && !x.v.denied {
				x.c.before += min(e.Amount, math.MaxInt64>>16)
			}
		}
	}
	clear(line[len(t.waiters):])
}

// renew has a record live for longer.
func (t *tree) renew(r *record, until int64) {
	r.expires = until
	heap.Fix(&t.open, r.place)
}
