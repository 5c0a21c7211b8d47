package blocks

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate-go/headgate/budget/quota"
)

// hold has nobody else ask the ledger about counters, and returns how to end that.
// All that do this do it in the same order.
func hold(ctx context.Context, counters []*counter) (pass func(), err error) {
	slices.SortFunc(counters, func(a, b *counter) int {
		return cmp.Or(cmp.Compare(a.key.Key, b.key.Key), cmp.Compare(a.key.Window, b.key.Window),
			cmp.Compare(a.key.Unit, b.key.Unit), cmp.Compare(a.key.per, b.key.per))
	})
	counters = slices.Compact(counters)
	for i, c := range counters {
		if err := c.turn(ctx); err != nil {
			for _, c := range counters[:i] {
				c.pass()
			}
			return nil, err
		}
	}
	return func() {
		for _, c := range counters {
			c.pass()
		}
	}, nil
}

// known finds the counters of a tree that match.
func (l *Ledger) known(tree string, match func(*counter) bool) (counters []*counter) {
	t := l.find(tree)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	now := l.now()
	if t.expire(now) {
		t.serve(now)
	}
	for _, c := range t.counters {
		if match(c) {
			c.usedAt = now
			counters = append(counters, c)
		}
	}
	return counters
}

// Status implements [quota.Ledger]. It asks the ledger underneath, and puts what
// calls of this process hold and have spent in the place of the blocks that are
// leased for them. The blocks of other processes are reserved.
func (l *Ledger) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	counters := l.known(tree, func(c *counter) bool {
		return slices.ContainsFunc(entries, func(e quota.Entry) bool { return keyOf(&e) == c.key })
	})
	pass, err := hold(ctx, counters)
	if err != nil {
		return nil, err
	}
	defer pass()
	for _, c := range counters {
		// What was given back to a rolling one may have flowed over.
		if c.unsure() || c.key.per > 0 {
			if err := c.settleAll(ctx, onlyDue); err != nil {
				return nil, err
			}
		}
	}
	l.stats.pass(ctx)
	all, err := l.next.Status(ctx, tree, entries...)
	if err != nil || len(counters) == 0 || len(all) != len(entries) {
		return all, err
	}
	t := l.tree(tree)
	defer t.mu.Unlock()
	now := l.now()
	for i := range all {
		t.correct(&all[i], &entries[i], now)
	}
	return all, nil
}

// correct notes what the ledger has said about an entry's counter, and puts what is
// known here in the place of the blocks.
func (t *tree) correct(st *quota.Status, e *quota.Entry, now int64) {
	c := t.counters[keyOf(e)]
	if c == nil || e.Rolling && e.Limit < 0 {
		return
	}
	if p := c.find(st.Span); p != nil {
		span := st.Span
		p.saw(st, now)
		p.status(st, e, p.view(now))
		st.Span = span
	}
}

// unsure reports whether the ledger may have counted something that it has not answered
// yet. That is told again at once then.
func (c *counter) unsure() bool {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	for _, p := range c.pools {
		if len(p.ended) > 0 || p.fixed != nil {
			c.retryAt = 0
			return true
		}
	}
	return false
}

// TopUp implements [quota.Ledger]. What was spent here is settled first.
func (l *Ledger) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	return l.change(ctx, tree, &e, func() (quota.Status, error) {
		return l.next.TopUp(ctx, tree, e, amount)
	}, nil)
}

// Reset implements [quota.Ledger]. What was spent here is settled first. What other
// processes have spent and not settled yet is not cleared.
func (l *Ledger) Reset(ctx context.Context, name string, e quota.Entry) (quota.Status, error) {
	return l.change(ctx, name, &e, func() (quota.Status, error) {
		return l.next.Reset(ctx, name, e)
	}, (*tree).cleared)
}

// cleared notes that what is committed in a window of a counter was reset, so that
// nothing of it can be given back.
func (t *tree) cleared(k counterKey, span quota.Span) {
	if c := t.counters[k]; c != nil {
		if p := c.find(span); p != nil {
			p.back, p.past, p.fixed = 0, nil, nil
		}
	}
	for _, rec := range t.records {
		for i := range rec.held {
			if p := rec.held[i].pool; p != nil && p.c.key == k && p.is(span) {
				rec.held[i].kept = 0
			}
		}
	}
}

// change changes a counter in its current window.
func (l *Ledger) change(
	ctx context.Context, name string, e *quota.Entry, do func() (quota.Status, error), then func(*tree, counterKey, quota.Span),
) (quota.Status, error) {
	if err := l.ready(ctx); err != nil {
		return quota.Status{}, err
	}
	counters := l.known(name, func(c *counter) bool { return c.key == keyOf(e) })
	pass, err := hold(ctx, counters)
	if err != nil {
		return quota.Status{}, err
	}
	defer pass()
	for _, c := range counters {
		if err := c.settleAll(ctx, allSpent); err != nil {
			return quota.Status{}, err
		}
	}
	l.stats.pass(ctx)
	st, err := do()
	if err != nil {
		return st, err
	}
	t := l.find(name)
	if t == nil {
		return st, nil
	}
	defer t.mu.Unlock()
	now := l.now()
	if then != nil {
		then(t, keyOf(e), st.Span)
	}
	t.correct(&st, e, now)
	t.serve(now)
	return st, nil
}

// History implements [quota.Ledger]. Windows in which nothing was used but what this
// process has leased are left out.
func (l *Ledger) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	counters := l.known(tree, func(k *counter) bool { return k.key == counterKey{Counter: c} })
	pass, err := hold(ctx, counters)
	if err != nil {
		return nil, err
	}
	defer pass()
	for _, c := range counters { // so that there is a window for all that was spent
		if err := c.settleAll(ctx, onlyDue); err != nil {
			return nil, err
		}
	}
	l.stats.pass(ctx)
	all, err := l.next.History(ctx, tree, c, n)
	if err != nil || len(counters) == 0 {
		return all, err
	}
	t := l.tree(tree)
	defer t.mu.Unlock()
	now := l.now()
	for i := range all {
		t.correct(&all[i], &quota.Entry{Counter: c, Limit: all[i].Limit}, now)
	}
	return slices.DeleteFunc(all, func(st quota.Status) bool { return st.Committed|st.Reserved == 0 }), nil
}

// Erase implements [quota.Ledger]. Blocks of the key's counters are given up; those
// of other processes are erased with it, and what they still settle is no spend of
// anybody.
func (l *Ledger) Erase(ctx context.Context, tree, key string) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	counters := l.known(tree, func(c *counter) bool { return c.key.Key == key })
	pass, err := hold(ctx, counters)
	if err != nil {
		return err
	}
	defer pass()
	l.stats.pass(ctx)
	if err := l.next.Erase(ctx, tree, key); err != nil {
		return err
	}
	t := l.find(tree)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	for _, c := range counters {
		c.pools, c.lost, c.crossed, c.short = nil, nil, nil, false
	}
	for _, rec := range t.records {
		for i := range rec.held {
			if h := &rec.held[i]; h.pool != nil && h.pool.c.key.Key == key {
				h.pool, h.thresholds = nil, nil
			}
		}
		strip := func(c quota.Crossing) bool { return c.Counter.Key == key }
		rec.crossed = slices.DeleteFunc(rec.crossed, strip)
		rec.told = slices.DeleteFunc(rec.told, strip)
	}
	t.serve(l.now())
	return nil
}
