package quota

import (
	"context"
	"fmt"
	"time"
)

// Settle implements [Ledger]. What a call has used is always taken, also when the
// ledger is full.
func (m *Memory) Settle(ctx context.Context, st Settle) (Settled, error) {
	if err := m.ready(ctx); err != nil {
		return Settled{}, err
	}
	if err := st.Validate(); err != nil {
		return Settled{}, err
	}
	s := m.shard(st.Tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	s.expire(now.mono)
	rec := s.records[recordKey{st.Tree, st.ID}]
	switch {
	case rec == nil:
		return Settled{}, unknown(st.ID)
	case rec.state == released:
		return Settled{Repeated: true}, nil
	case rec.state == settled && (!st.Adjust || st.Seq <= rec.seq):
		res := rec.result(st.Room)
		res.Repeated = true
		return res, nil
	}
	return s.settle(rec, &st, now), nil
}

func unknown(id string) error { return fmt.Errorf("%w: %q", ErrUnknownReservation, id) }

// settle books what was used. The record may be open, expired, or settled before.
func (s *shard) settle(rec *record, st *Settle, now reading) Settled {
	wasOpen := rec.state == open
	if wasOpen {
		s.finish(rec, settled, now.mono)
	}
	late := rec.state == expired || rec.settled.late
	rec.state, rec.seq = settled, st.Seq
	rec.settled = settledResult{late: late}

	for i := range st.More {
		s.more(rec, &st.More[i], now)
	}
	for i := range rec.held {
		h := &rec.held[i]
		if h.account == nil {
			continue
		}
		s.current(rec.key.tree, h, now)
		h.account.used = now.mono
		if i < rec.entries {
			switch {
			case h.kind == Hold:
				s.book(h, st.Actual[h.unit], wasOpen, now)
			case h.kind == Lease && wasOpen:
				s.giveBack(h, now)
			}
			if h.kind != Hold {
				continue
			}
		}
		rec.settled.crossed = h.cross(rec.settled.crossed)
		h.last = h.stand(now)
		rec.settled.over = rec.settled.over || h.over(h.last)
	}
	return rec.result(st.Room)
}

// book replaces what is held, if it still is, or what was booked before, by what
// was used.
func (s *shard) book(h *held, used int64, isHeld bool, now reading) {
	switch {
	case h.rolling && h.passed: // it takes nothing from its bucket
	case h.rolling:
		b := &h.account.buckets[h.counter]
		b.refill(now.mono, h.limit)
		before := h.used
		if isHeld {
			before = h.amount
		}
		if used < before {
			b.refund(before-used, h.mark)
		}
		if isHeld {
			b.end(h.amount, h.mark, &s.pool)
		}
		if used > before {
			s.mark++
			b.take(used-before, s.mark, false, &s.pool)
			if before == 0 {
				h.mark = s.mark
			}
		}
		b.filled(now, h.limit)
	default:
		p := h.account.calendars[h.counter].open(h.start, h.end, s.m.cfg.KeepWindows)
		if isHeld {
			p.reserved -= h.amount
		}
		if h.epoch != p.epoch { // what was booked before was cleared by a reset
			h.kept, h.epoch = 0, p.epoch
		}
		if more := used - h.used; more >= 0 {
			p.committed = sum(p.committed, more)
			h.kept += more
		} else {
			less := min(-more, h.kept)
			p.committed = max(p.committed-less, 0)
			h.kept -= less
		}
	}
	h.used = used
}

// more books a counter that the call turned out to count against.
func (s *shard) more(rec *record, e *Entry, now reading) {
	for i := range rec.held {
		h := &rec.held[i]
		if h.account == nil || h.account.key != e.Key || h.rolling != e.Rolling || !h.settles(i, rec) {
			continue
		}
		s.current(rec.key.tree, h, now)
		if h.account.find(e) == h.counter {
			if i >= rec.entries {
				s.book(h, e.Amount, false, now)
			}
			return
		}
	}
	f := found{account: s.account(rec.key.tree, e.Key)}
	if f.look(e, now); f.counter < 0 {
		f.counter = s.counter(f.account, e, f.start, f.end, now)
	}
	h := held{
		account: f.account, counter: f.counter, start: f.start, end: f.end,
		kind: Count, unit: e.Unit, rolling: e.Rolling, passed: e.Kind == Check || e.Rolling && e.Limit < 0,
		limit: e.Limit, burst: e.Burst,
	}
	if !e.Rolling {
		h.thresholds = s.thresholds(e.Thresholds)
		p := f.account.calendars[f.counter].open(h.start, h.end, s.m.cfg.KeepWindows)
		p.limit, h.epoch = e.Limit, p.epoch
	}
	s.book(&h, e.Amount, false, now)
	rec.held = append(rec.held, h)
}

// giveBack gives back what an entry holds.
func (s *shard) giveBack(h *held, now reading) {
	switch {
	case h.account == nil || h.passed || h.kind != Hold && h.kind != Lease:
	case h.rolling:
		b := &h.account.buckets[h.counter]
		b.refill(now.mono, h.limit)
		b.refund(h.amount, h.mark)
		b.end(h.amount, h.mark, &s.pool)
		b.filled(now, h.limit)
	default:
		h.account.calendars[h.counter].open(h.start, h.end, s.m.cfg.KeepWindows).reserved -= h.amount
	}
}

// cross adds the threshold that the committed spend of a counter has crossed.
func (h *held) cross(to []Crossing) []Crossing {
	if len(h.thresholds) == 0 {
		return to
	}
	c := &h.account.calendars[h.counter]
	p := c.at(h.start)
	if p == nil {
		return to
	}
	percent, ok := p.cross(h.thresholds, h.limit)
	if !ok {
		return to
	}
	return append(to, Crossing{
		Counter: Counter{Key: h.account.key, Window: c.window, Unit: h.unit}, Span: spanOf(h.start, h.end),
		Percent: percent, Committed: p.committed, Limit: h.limit,
	})
}

// stand says how the counter of what is held stands now.
func (h *held) stand(now reading) standing {
	if h.rolling {
		return h.account.buckets[h.counter].stand(h.limit, now)
	}
	if p := h.account.calendars[h.counter].at(h.start); p != nil {
		return standing{committed: p.committed, reserved: p.reserved}
	}
	return standing{committed: h.used} // its window is not kept any more
}

// stand says how a bucket stands now.
func (b *bucket) stand(limit int64, now reading) standing {
	if limit < 0 {
		return standing{}
	}
	b.refill(now.mono, limit)
	st := standing{committed: b.Missing.Ceil(), reserved: b.Reserved}
	if !b.Missing.Zero() {
		st.full = now.after(b.Missing.Time(limit, b.per))
	}
	return st
}

// over reports whether a counter is above its limit.
func (h *held) over(st standing) bool {
	switch {
	case h.limit < 0:
		return false
	case h.rolling:
		return st.committed > h.burst
	default:
		return sum(st.committed, st.reserved) > h.limit
	}
}

// Release implements [Ledger]. Releasing what is settled or released changes
// nothing. What has expired can be released, too, and not be settled any more.
func (m *Memory) Release(ctx context.Context, tree, id string) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	s := m.shard(tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	s.expire(now.mono)
	rec := s.records[recordKey{tree, id}]
	switch {
	case rec == nil:
		return unknown(id)
	case rec.state == open:
		s.undo(rec, released, now)
	case rec.state == expired:
		rec.state = released
	}
	return nil
}

// undo gives back all that an open record holds.
func (s *shard) undo(rec *record, to state, now reading) {
	for i := range rec.held {
		s.giveBack(&rec.held[i], now)
	}
	s.finish(rec, to, now.mono)
}

// Renew implements [Ledger]. A ttl of 0 is [DefaultTTL].
func (m *Memory) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	if ttl < 0 {
		return nil, fmt.Errorf("quota: ttl is %v, must not be negative", ttl)
	}
	if ttl == 0 {
		ttl = DefaultTTL
	}
	s := m.shard(tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	s.expire(now.mono)
	for _, id := range ids {
		rec := s.records[recordKey{tree, id}]
		if rec == nil || rec.state != open {
			lost = append(lost, id)
			continue
		}
		rec.expires = sum(now.mono, int64(ttl))
		s.fix(rec.place)
	}
	return lost, nil
}

// expire ends every reservation of the shard whose time is up. Each is looked at
// once, so this costs no more than they did.
func (s *shard) expire(mono int64) {
	for len(s.expiring) > 0 && s.expiring[0].expires <= mono {
		s.undo(s.expiring[0], expired, reading{mono: mono})
	}
}
