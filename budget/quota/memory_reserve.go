package quota

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// Reserve implements [Ledger]. It returns an error that matches [ErrUnavailable]
// if the ledger is full; see [MemoryConfig].
func (m *Memory) Reserve(ctx context.Context, r Reserve) (Reserved, error) {
	none := Reserved{Denied: -1}
	if err := m.ready(ctx); err != nil {
		return none, err
	}
	if err := r.Validate(); err != nil {
		return none, err
	}
	s := m.shard(r.Tree)
	for try := 0; ; try++ {
		s.mu.Lock()
		res, err := s.reserve(&r)
		s.mu.Unlock()
		if err == nil {
			return res, nil
		}
		if full := (*fullError)(nil); !errors.As(err, &full) || try == maxRooms || !m.makeRoomFor(full.what) {
			return none, err
		}
	}
}

// maxRooms is how often room is made for a reservation: others may be quicker to take
// it.
const maxRooms = 3

// found is where an entry's counter is, if there is one, and what its limit says.
type found struct {
	account    *account
	counter    int   // −1 if there is none yet
	span       *Span // of a calendar limit: its window
	start, end int64 // the same, in Unix nanoseconds
	verdict
}

// look looks the counter of an entry up, whose account is known.
func (f *found) look(e *Entry, now reading) {
	f.counter = f.account.find(e)
	if !e.Rolling {
		f.span = e.spanAt(now.wall)
		f.start, f.end = bounds(f.span)
	}
}

// verdict is what a limit says to an entry.
type verdict struct {
	denied bool
	never  bool
	over   bool
	passed bool  // nothing is to be taken
	wait   int64 // nanoseconds
	retry  int64 // nanoseconds until a denied one fits; math.MaxInt64 if time alone does not help
}

// reserve decides about all entries, and then takes all or none. Until then it
// changes nothing but what time does.
func (s *shard) reserve(r *Reserve) (Reserved, error) {
	now := s.m.now()
	s.expire(now.mono)
	key := recordKey{r.Tree, r.ID}
	if rec := s.records[key]; rec != nil {
		return rec.repeatReserve(r.Room), nil
	}
	res := Reserved{Denied: -1, Now: now.wall.Round(0).UTC()}
	if r.Exclusive != "" {
		if other := s.exclusive[recordKey{r.Tree, r.Exclusive}]; other != nil {
			res.Held = true
			res.RetryAfter = time.Duration(other.expires - now.mono)
			res.Status = s.statuses(r.Tree, r.Entries, r.Room, now)
			return res, nil
		}
	}

	var room [8]found
	all := room[:]
	if len(r.Entries) > len(room) {
		all = make([]found, len(r.Entries))
	}
	all = all[:len(r.Entries)]
	added, retry := 0, int64(0)
	for i := range r.Entries {
		e, f := &r.Entries[i], &all[i]
		if i > 0 && e.Key == r.Entries[i-1].Key {
			f.account = all[i-1].account
		} else if f.account = s.accounts[accountKey{r.Tree, e.Key}]; f.account == nil {
			added++
		}
		f.look(e, now)
		f.verdict = f.check(e, now)
		if f.denied {
			if res.Denied < 0 {
				res.Denied, res.Never = i, f.never
			}
			retry = max(retry, f.retry)
		}
		if f.over {
			res.Over = append(res.Over, i)
		}
		res.Wait = max(res.Wait, time.Duration(f.wait))
	}
	if res.Denied >= 0 {
		if res.Wait = 0; retry < math.MaxInt64 {
			res.RetryAfter = time.Duration(retry)
		}
		res.Status = statusesIn(r.Room, len(all))
		for i := range all {
			all[i].status(&res.Status[i], &r.Entries[i], now)
		}
		return res, nil
	}
	for i := range all {
		if err := all[i].roomForCounter(); err != nil {
			return res, err
		}
	}
	switch {
	case !s.roomFor(added):
		return res, &fullError{"MaxSubjects", s.m.cfg.MaxSubjects}
	case !s.roomForOpen():
		return res, &fullError{"MaxOpen", s.m.cfg.MaxOpen}
	}
	s.take(r, key, all, now, &res)
	return res, nil
}

// check asks the limit. It changes nothing.
func (f *found) check(e *Entry, now reading) verdict {
	amount := e.Amount
	if e.Kind == Check {
		amount = max(amount, 1) // something must be left
	}
	if e.Rolling {
		return f.checkBucket(e, amount, now)
	}
	var used int64
	if f.counter >= 0 {
		if p := f.account.calendars[f.counter].at(f.start); p != nil {
			used = p.used()
		}
	}
	limit := e.Limit
	if limit < 0 {
		limit = math.MaxInt64
	}
	v := verdict{passed: e.Kind == Check}
	fits := amount == 0 || used <= limit && amount <= limit-used
	hard := limit
	if e.Soft {
		if hard = e.Ceiling; hard < 0 {
			hard = math.MaxInt64
		}
		v.over = !fits
		fits = fits || used <= hard && amount <= hard-used
	}
	switch {
	case fits:
	case e.Observe && amount <= math.MaxInt64-used:
		v.over = true
	default:
		v.denied, v.over, v.never, v.retry = true, false, amount > hard, math.MaxInt64
		if !v.never && !f.span.End.IsZero() {
			v.retry = max(int64(f.span.End.Sub(now.wall)), 0)
		}
	}
	return v
}

func (f *found) checkBucket(e *Entry, amount int64, now reading) verdict {
	var none bucket
	b := &none
	if f.counter >= 0 {
		b = &f.account.buckets[f.counter]
		b.refill(now.mono, e.Limit)
	}
	v := verdict{passed: e.Kind == Check || e.Limit < 0}
	if e.Limit < 0 || amount == 0 {
		return v
	}
	v.wait = b.Lacks(amount, e.Burst).Time(e.Limit, int64(e.Per))
	if e.Limit > 0 && v.wait <= int64(e.MaxWait) && v.wait < math.MaxInt64 && b.Takes(amount) {
		if e.Observe {
			v.wait = 0
		}
		return v
	}
	if e.Observe {
		return verdict{over: true, passed: true}
	}
	v.denied, v.retry = true, math.MaxInt64
	fromFull := rolling.Quantity{Units: max(amount-e.Burst, 0)}.Time(e.Limit, int64(e.Per))
	if v.never = fromFull > int64(e.MaxWait) || fromFull == math.MaxInt64 || e.Limit == 0; !v.never && v.wait < math.MaxInt64 {
		v.retry = max(v.wait-int64(e.MaxWait), 1)
	}
	v.wait = 0
	return v
}

// take takes all entries, and opens the reservation.
func (s *shard) take(r *Reserve, key recordKey, all []found, now reading, res *Reserved) {
	ttl := r.TTL
	if ttl == 0 {
		ttl = DefaultTTL
	}
	rec := s.newRecord(len(r.Entries))
	rec.key, rec.exclusive, rec.entries = key, r.Exclusive, len(r.Entries)
	rec.expires = sum(now.mono, int64(ttl))
	rec.held = rec.held[:len(r.Entries)]
	res.Status = statusesIn(r.Room, len(r.Entries))
	for i := range r.Entries {
		e, f, h := &r.Entries[i], &all[i], &rec.held[i]
		if f.account == nil {
			f.account = s.account(r.Tree, e.Key)
		}
		f.account.used = now.mono
		if f.counter < 0 {
			f.counter = s.counter(f.account, e, f.start, f.end, now)
		}
		s.hold(h, e, f, now)
		if e.Kind == Count && !e.Rolling {
			res.Crossed = h.cross(res.Crossed)
		}
		h.first = f.status(&res.Status[i], e, now)
	}
	rec.reserved = reservedResult{
		now: now.wall.UnixNano(), wait: res.Wait,
		over: slices.Clone(res.Over), crossed: slices.Clone(res.Crossed),
	}
	s.start(rec)
}

// hold takes an entry, unless nothing is to be taken, and fills in what is held.
func (s *shard) hold(h *held, e *Entry, f *found, now reading) {
	// Field by field; see held.status. The record may be an old one.
	h.account, h.counter, h.thresholds = f.account, f.counter, nil
	h.kind, h.unit, h.rolling, h.passed = e.Kind, e.Unit, e.Rolling, f.passed
	h.limit, h.burst, h.start, h.end, h.mark = e.Limit, e.Burst, f.start, f.end, 0
	h.amount, h.used, h.kept, h.epoch = e.Amount, 0, 0, 0
	h.first, h.last = standing{}, standing{}
	if !e.Rolling {
		h.thresholds = s.thresholds(e.Thresholds)
	}
	switch {
	case f.passed:
	case e.Rolling:
		s.mark++
		h.mark = s.mark
		b := &h.account.buckets[h.counter]
		b.take(h.amount, h.mark, h.kind == Hold, &s.pool)
		b.filled(now, h.limit)
	default:
		p := h.account.calendars[h.counter].open(h.start, h.end, s.m.cfg.KeepWindows)
		p.limit = h.limit
		if h.kind == Count {
			p.committed += h.amount
		} else {
			p.reserved += h.amount
		}
	}
}
