package quota

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// status fills in how an entry's counter stands, and returns the part of it that
// does not come from the entry.
func (f *found) status(to *Status, e *Entry, now reading) (st standing) {
	to.Counter, to.Limit = e.Counter, e.Limit
	if e.Rolling {
		to.Rolling, to.Burst = true, e.Burst
		if f.counter >= 0 {
			st = f.account.buckets[f.counter].stand(e.Limit, now)
		}
	} else {
		to.Span = *f.span
		if f.counter >= 0 {
			if p := f.account.calendars[f.counter].at(f.start); p != nil {
				st = standing{committed: p.committed, reserved: p.reserved}
			}
		}
	}
	to.Committed, to.Reserved = st.committed, st.reserved
	if st.full != 0 {
		to.FullAt = time.Unix(0, st.full).UTC()
	}
	return st
}

// statusesIn are n statuses to be filled in, in the caller's room if it is enough.
func statusesIn(room []Status, n int) []Status {
	if cap(room) < n {
		return make([]Status, n)
	}
	room = room[:n]
	clear(room)
	return room
}

func (s *shard) statuses(tree string, entries []Entry, room []Status, now reading) []Status {
	all := statusesIn(room, len(entries))
	for i := range entries {
		e := &entries[i]
		f := found{account: s.accounts[accountKey{tree, e.Key}]}
		f.look(e, now)
		f.status(&all[i], e, now)
	}
	return all
}

// Status implements [Ledger].
func (m *Memory) Status(ctx context.Context, tree string, entries ...Entry) ([]Status, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	for i := range entries {
		if err := entries[i].validate("entries", i); err != nil {
			return nil, err
		}
	}
	s := m.shard(tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	s.expire(now.mono)
	return s.statuses(tree, entries, nil, now), nil
}

// TopUp implements [Ledger]. The amount must not be negative.
func (m *Memory) TopUp(ctx context.Context, tree string, e Entry, amount int64) (Status, error) {
	if amount < 0 {
		return Status{}, fmt.Errorf("quota: amount is %d, must not be negative", amount)
	}
	return m.change(ctx, tree, e, func(p *period, b *bucket) {
		switch {
		case p != nil:
			p.committed = max(p.committed-amount, 0)
		default:
			b.Pay(amount, b.per)
		}
	})
}

// Reset implements [Ledger]. A rolling counter is full afterwards.
func (m *Memory) Reset(ctx context.Context, tree string, e Entry) (Status, error) {
	return m.change(ctx, tree, e, func(p *period, b *bucket) {
		if p == nil {
			b.Fill()
			return
		}
		p.committed = 0
		p.epoch++
	})
}

// change changes a counter, if there is one, in its current window.
func (m *Memory) change(ctx context.Context, tree string, e Entry, do func(*period, *bucket)) (Status, error) {
	if err := m.ready(ctx); err != nil {
		return Status{}, err
	}
	if err := e.Validate(); err != nil {
		return Status{}, err
	}
	s := m.shard(tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	s.expire(now.mono)
	f := found{account: s.accounts[accountKey{tree, e.Key}]}
	if f.look(&e, now); f.counter >= 0 {
		f.account.used = now.mono
		if e.Rolling {
			b := &f.account.buckets[f.counter]
			b.refill(now.mono, e.Limit)
			do(nil, b)
			b.filled(now, e.Limit)
		} else {
			if p := f.account.calendars[f.counter].at(f.start); p != nil {
				do(p, nil)
			}
		}
	}
	var st Status
	f.status(&st, &e, now)
	return st, nil
}

// History implements [Ledger]. Windows in which nothing was spent are not kept.
// Limit is the one that was given last in that window.
func (m *Memory) History(ctx context.Context, tree string, c Counter, n int) ([]Status, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	s := m.shard(tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	s.expire(now.mono)
	a := s.accounts[accountKey{tree, c.Key}]
	if a == nil {
		return nil, nil
	}
	i := a.calendar(c)
	if i < 0 {
		return nil, nil
	}
	all := []period{a.calendars[i].cur}
	if past := a.calendars[i].past; past != nil {
		all = append(slices.Clone(*past), all...)
	}
	var history []Status
	wall := now.wall.UnixNano()
	for _, p := range slices.Backward(all) {
		if len(history) >= n {
			break
		}
		if p.end <= wall && !p.empty() {
			history = append(history, Status{
				Counter: c, Span: spanOf(p.start, p.end), Limit: p.limit,
				Committed: p.committed, Reserved: p.reserved,
			})
		}
	}
	return history, nil
}

// Erase implements [Ledger]. What reservations hold under other keys stays, to be
// settled there; their own ids say nothing about anybody.
func (m *Memory) Erase(ctx context.Context, tree, key string) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	s := m.shard(tree)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, accountKey{tree, key})
	s.free = nil // old records still have keys
	s.subjects.Store(int64(len(s.accounts)))
	for _, rec := range s.records {
		if rec.key.tree != tree {
			continue
		}
		for i := range rec.held {
			if h := &rec.held[i]; h.account != nil && h.account.key == key {
				h.account = nil
			}
		}
		strip := func(c Crossing) bool { return c.Counter.Key == key }
		rec.reserved.crossed = slices.DeleteFunc(rec.reserved.crossed, strip)
		rec.settled.crossed = slices.DeleteFunc(rec.settled.crossed, strip)
	}
	return nil
}
