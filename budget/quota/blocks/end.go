package blocks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/unasked"
)

// Settle implements [quota.Ledger]. What is leased is settled here, and told to the
// ledger underneath when its block is settled.
func (l *Ledger) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	if err := l.ready(ctx); err != nil {
		return quota.Settled{}, err
	}
	rec, isBelow := l.record(s.Tree, s.ID)
	if rec == nil {
		l.stats.pass(ctx)
		return l.next.Settle(ctx, s)
	}
	if err := s.Validate(); err != nil {
		return quota.Settled{}, err
	}
	var more, moreBelow []quota.Entry // what is leased of s.More, and what is not
	for _, e := range s.More {
		if l.leases(s.Tree, &e) {
			more = append(more, e)
		} else {
			moreBelow = append(moreBelow, e)
		}
	}
	below, err := l.settleBelow(ctx, &s, rec, moreBelow)
	if err != nil {
		return quota.Settled{}, err
	}
	res, asked := l.settleRecord(ctx, &s, rec, more, below)
	if !asked && !isBelow && len(moreBelow) == 0 {
		unasked.Say(ctx)
	}
	return res, nil
}

// record finds a reservation that is served from blocks, and says whether a part of it
// is the ledger's underneath.
func (l *Ledger) record(tree, id string) (rec *record, below bool) {
	t := l.find(tree)
	if t == nil {
		return nil, false
	}
	defer t.mu.Unlock()
	if now := l.now(); t.expire(now) {
		t.serve(now)
	}
	if rec = t.records[id]; rec == nil {
		return nil, false
	}
	return rec, rec.below
}

// settleBelow settles what is not leased.
func (l *Ledger) settleBelow(ctx context.Context, s *quota.Settle, rec *record, more []quota.Entry) (quota.Settled, error) {
	t := l.tree(s.Tree)
	is, repeat := rec.below, rec.repeats(s)
	t.mu.Unlock()
	if !is {
		if len(more) == 0 || repeat {
			return quota.Settled{}, nil
		}
		// There has been nothing of it until now.
		l.stats.pass(ctx)
		if _, err := l.next.Reserve(ctx, quota.Reserve{ID: s.ID, Tree: s.Tree}); err != nil {
			return quota.Settled{}, err
		}
		t := l.tree(s.Tree)
		rec.below = true
		t.mu.Unlock()
	}
	b := *s
	b.More, b.Room = more, nil
	l.stats.pass(ctx)
	res, err := l.next.Settle(ctx, b)
	if errors.Is(err, quota.ErrUnknownReservation) && len(rec.at) == 0 && len(more) == 0 {
		return quota.Settled{}, nil // it was only exclusive
	}
	return res, err
}

// repeats reports whether a settlement changes nothing any more.
func (r *record) repeats(s *quota.Settle) bool {
	return r.state == released || r.state == settled && (!s.Adjust || s.Seq <= r.seq)
}

// settleRecord books what was used. asked is true if the ledger underneath was told at once.
func (l *Ledger) settleRecord(ctx context.Context, s *quota.Settle, rec *record, more []quota.Entry, below quota.Settled) (_ quota.Settled, asked bool) {
	t := l.tree(s.Tree)
	now := l.now()
	switch {
	case rec.state == released:
		t.mu.Unlock()
		return quota.Settled{Repeated: true}, false
	case rec.repeats(s):
		defer t.mu.Unlock()
		res := rec.result(s.Room, &below)
		res.Repeated = true
		return res, false
	}
	wasOpen := rec.state == open
	if wasOpen {
		t.finish(rec, settled, now)
	}
	rec.late = rec.late || rec.state == expired || below.Late
	rec.state, rec.seq, rec.told = settled, s.Seq, nil
	for i := range more {
		t.more(rec, &more[i], now)
	}
	var sync []*pool
	for i := range rec.held {
		h := &rec.held[i]
		if h.pool == nil || !h.settles(i, rec) {
			continue
		}
		t.current(h)
		if i < rec.entries {
			h.book(s.Actual[h.unit], wasOpen)
		}
		h.pool.usedAt, h.pool.c.usedAt = now, now
		if !h.passed && (!h.pool.known || h.pool.reaches(h, now)) {
			sync = append(sync, h.pool)
		}
	}
	t.arm()
	t.serve(now)
	rec.stand(now)
	t.mu.Unlock()
	l.report(ctx, sync)

	t = l.tree(s.Tree)
	defer t.mu.Unlock()
	now = l.now()
	rec.stand(now)
	for i := range rec.held {
		h := &rec.held[i]
		if h.pool == nil || !h.settles(i, rec) {
			continue
		}
		c := h.pool.c
		rec.told = append(rec.told, c.crossed...)
		c.crossed = nil
		c.look(now)
	}
	return rec.result(s.Room, &below), len(sync) > 0
}

// book replaces what is held, if it still is, or what was booked before, by what was
// used.
func (h *held) book(used int64, isHeld bool) {
	p := h.pool
	isHeld = isHeld && !h.passed && h.amount > 0
	if isHeld {
		p.held -= h.amount
	}
	more := used - h.used
	switch {
	case h.rolling && h.passed:
	case h.rolling && isHeld:
		p.consume(h, used)
	case h.rolling && more < 0:
		p.refund(h, -more)
	case more < 0:
		less := min(-more, h.kept) // what a reset has cleared is not given back
		p.unspend(less)
		h.kept -= less
	default:
		p.spend(more)
		h.kept = sum(h.kept, more)
	}
	h.used = used
}

// more books a counter that the call turned out to count against.
func (t *tree) more(rec *record, e *quota.Entry, now int64) {
	k := keyOf(e)
	for i := range rec.held {
		h := &rec.held[i]
		if h.pool == nil || h.pool.c.key != k || !h.settles(i, rec) {
			continue
		}
		if i >= rec.entries {
			t.current(h)
			h.book(e.Amount, false)
		}
		return
	}
	c := t.counter(e)
	c.note(e)
	h := held{
		pool: c.current(e, now), kind: quota.Count, unit: e.Unit, limit: e.Limit, burst: e.Burst, rolling: e.Rolling,
		passed: e.Kind == quota.Check || e.Rolling && e.Limit < 0, thresholds: c.entry.Thresholds,
	}
	h.book(e.Amount, false)
	rec.held = append(rec.held, h)
}

// stand notes how the counters of what was settled stand.
func (r *record) stand(now int64) {
	r.above = false
	for i := range r.held {
		h := &r.held[i]
		if h.pool == nil || !h.settles(i, r) {
			continue
		}
		h.last = standing{}
		if !h.rolling || h.limit >= 0 {
			h.last = h.pool.view(now)
		}
		r.above = r.above || h.over(h.last)
	}
}

// result is that of the last Settle that took effect.
func (r *record) result(room []quota.Status, below *quota.Settled) quota.Settled {
	n := len(below.Status)
	for i := range r.held {
		if h := &r.held[i]; h.settles(i, r) && !h.below {
			n++
		}
	}
	if cap(room) < n {
		room = make([]quota.Status, 0, n)
	}
	res := quota.Settled{
		Over: r.above || below.Over, Late: r.late,
		Crossed: append(slices.Clone(r.told), below.Crossed...),
		Status:  room[:0],
	}
	rest := below.Status
	for i := range r.held {
		h := &r.held[i]
		switch {
		case !h.settles(i, r):
		case !h.below:
			var st quota.Status
			h.status(&st, h.last)
			res.Status = append(res.Status, st)
		case len(rest) > 0:
			res.Status, rest = append(res.Status, rest[0]), rest[1:]
		}
	}
	res.Status = append(res.Status, rest...)
	return res
}

// Release implements [quota.Ledger].
func (l *Ledger) Release(ctx context.Context, tree, id string) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	rec, below := l.record(tree, id)
	if rec == nil || below {
		l.stats.pass(ctx)
		err := l.next.Release(ctx, tree, id)
		if rec == nil || err != nil && !errors.Is(err, quota.ErrUnknownReservation) {
			return err
		}
	} else {
		unasked.Say(ctx)
	}
	t := l.tree(tree)
	defer t.mu.Unlock()
	now := l.now()
	switch rec.state {
	case open:
		t.undo(rec, released, now)
		t.serve(now)
		for i := range rec.held {
			if p := rec.held[i].pool; p != nil {
				p.c.look(now)
			}
		}
		t.arm()
	case expired:
		rec.state = released
	}
	return nil
}

// Renew implements [quota.Ledger]. What is leased lives as long as its blocks are
// renewed, which they are as long as anything of them is held.
func (l *Ledger) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	live, err := checkTTL(ttl)
	if err != nil {
		return nil, err
	}
	here := make([]bool, len(ids)) // whether the ledger underneath need not be asked
	gone := map[string]bool{}
	if t := l.find(tree); t != nil {
		now := l.now()
		if t.expire(now) {
			t.serve(now)
		}
		for i, id := range ids {
			rec := t.records[id]
			switch {
			case rec == nil:
				continue
			case rec.state != open:
				gone[id] = true
			default:
				t.renew(rec, sum(now, int64(live)))
			}
			here[i] = !rec.below
		}
		t.mu.Unlock()
	}
	var below []string
	for i, id := range ids {
		if !here[i] && !gone[id] {
			below = append(below, id)
		}
	}
	if len(below) > 0 || len(ids) == 0 {
		l.stats.pass(ctx)
		lost, err = l.next.Renew(ctx, tree, ttl, below...)
		if err != nil {
			return nil, err
		}
	} else {
		unasked.Say(ctx)
	}
	if len(gone) == 0 {
		return lost, nil
	}
	for _, id := range lost {
		gone[id] = true
	}
	lost = nil
	for _, id := range ids {
		if gone[id] {
			lost = append(lost, id)
		}
	}
	return lost, nil
}
