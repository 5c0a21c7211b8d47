package blocks

import (
	"context"
	"math"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// ask is a request for a block. One whose reply was lost is repeated with the same
// id, so that it is not taken twice.
type ask struct {
	id    string
	entry quota.Entry
	first int64 // when it was sent first
	last  int64

	forced  bool   // whatever the limit says: it is for what is held or spent already
	instead *block // that it takes the place of
}

// maxTries is how often less is asked for, after a denial that said how much is
// left. Each time somebody else may be quicker.
const maxTries = 4

// serveWaiters asks the ledger once for all who wait, and tells them. err is not nil
// if the ledger does not answer anyway.
func (c *counter) serveWaiters(ctx context.Context, err error) error {
	t := c.t
	t.mu.Lock()
	group := c.waiters()
	if len(group) == 0 {
		t.mu.Unlock()
		return nil
	}
	e := copyOf(&group[0].r.Entries[group[0].asks(c).at])
	t.mu.Unlock()
	var said word
	if err == nil {
		said, err = c.fetch(ctx, &e)
	}
	t.mu.Lock()
	c.answer(group, said, err)
	t.mu.Unlock()
	return err
}

// word is what the ledger has said.
type word uint8

const (
	refused word = iota
	granted
	// refreshed is said where nothing was asked for, but how the counter stands.
	refreshed
)

// waiters are those whose questions are taken up together: the first one's, and all
// others under the same terms.
func (c *counter) waiters() (group []*waiter) {
	var terms quota.Entry
	for _, w := range c.t.waiters {
		x := w.asks(c)
		if x == nil {
			continue
		}
		if e := &w.r.Entries[x.at]; len(group) == 0 {
			terms = *e
		} else if !sameTerms(e, &terms) {
			continue
		}
		x.asking = true
		group = append(group, w)
	}
	return group
}

func sameTerms(a, b *quota.Entry) bool {
	if a.Limit != b.Limit || a.Observe != b.Observe || a.Rolling != b.Rolling {
		return false
	}
	if a.Rolling {
		return a.Burst == b.Burst && a.MaxWait == b.MaxWait
	}
	return a.Soft == b.Soft && a.Ceiling == b.Ceiling
}

// copyOf is a copy of an entry that shares nothing with a caller's but strings.
func copyOf(e *quota.Entry) quota.Entry {
	c := *e
	c.Thresholds = append([]int(nil), e.Thresholds...)
	return c
}

// answer ends a round: what is not there now is not to be had, or that cannot be told
// because of err. But those who were to get something that a call has spent meanwhile,
// above what it held, ask again. The tree's lock is held.
func (c *counter) answer(group []*waiter, said word, err error) {
	now := c.t.l.now()
	for _, w := range group {
		x := w.on(c)
		if x.v.lacks {
			e := &w.r.Entries[x.at]
			again := x.picked && (said == granted || said == refreshed && takes(e) && c.current(e, now).free(now) < e.Amount)
			x.answered, x.err = err != nil || !again, err
		}
		x.asking, x.picked = false, false
	}
	c.t.serve(now)
}

// fetch asks for what those lack who are being asked for, and for what will probably
// be asked for next. If that is too much it asks for as much as is left, and for less
// again if somebody else was quicker.
func (c *counter) fetch(ctx context.Context, e *quota.Entry) (word, error) {
	t := c.t
	t.mu.Lock()
	now := t.l.now()
	p := c.current(e, now)
	_, hard := ends(e)
	narrow := !e.Rolling && !p.within(hard) || e.Rolling && p.known && (p.limit != e.Limit || p.burst != e.Burst)
	t.mu.Unlock()
	if narrow {
		// What was leased under a higher limit is not spent under a lower one.
		if err := c.settleAll(ctx, everything); err != nil {
			return refused, err
		}
	}
	for try := 0; ; try++ {
		t.mu.Lock()
		now := t.l.now()
		a := c.request(e, try, now)
		t.mu.Unlock()
		switch {
		case a == nil && try == 0:
			return refreshed, c.refresh(ctx, e)
		case a == nil:
			return refused, nil
		}
		ok, err := c.send(ctx, a)
		if ok {
			return granted, nil
		}
		if err != nil || try == maxTries {
			return refused, err
		}
		if e.Rolling { // what calls have given back may be what lacks
			if err := c.settleAll(ctx, onlyDue); err != nil {
				return refused, err
			}
		}
	}
}

// request is what to ask for: at first for all who are being asked for and some more,
// after a denial for those who fit into what is left. nil is nothing.
func (c *counter) request(e *quota.Entry, try int, now int64) *ask {
	p := c.current(e, now)
	free := p.free(now)
	want := int64(0)
	for _, w := range c.t.waiters {
		x := w.on(c)
		if x == nil || x.v.denied || x.v.lacks && !x.asking || !takes(&w.r.Entries[x.at]) {
			continue
		}
		// Those who lack nothing here wait for another counter, and get what they want.
		more := sum(want, w.r.Entries[x.at].Amount)
		x.picked = try == 0 || !x.asking || p.hasRoom(less(more, free), e, now)
		if x.picked {
			want = more
		}
	}
	lacks := less(want, free)
	if want == 0 || lacks <= 0 {
		return nil
	}
	x := *e
	x.Kind, x.Amount = quota.Hold, lacks
	if try == 0 {
		x.Amount = c.size(lacks, p, e, now)
	}
	if x.Rolling {
		x.Observe = false
		if x.Amount <= p.left(e, now) || try == 0 && !p.known {
			x.MaxWait = 0 // nothing is leased ahead from a debt
		}
	}
	return &ask{id: budget.NewID(), entry: x}
}

// less is n − free, at most math.MaxInt64; n is not negative.
func less(n, free int64) int64 {
	if free < 0 {
		return sum(n, -free)
	}
	return n - free
}

// hasRoom reports whether so much more can be taken, as the ledger said.
func (p *pool) hasRoom(n int64, e *quota.Entry, now int64) bool {
	if e.Rolling {
		return p.waitFor(n, e, now) <= int64(e.MaxWait)
	}
	_, hard := ends(e)
	used := sum(p.committed, p.reserved)
	return used <= hard && n <= hard-used
}

// left is what is left of a limit, what is leased not included; math.MaxInt64 where
// there is none.
func (p *pool) left(e *quota.Entry, now int64) int64 {
	if e.Rolling {
		missing := max(p.full-now, 0)
		if missing == 0 {
			return e.Burst
		}
		return max(e.Burst-refilled(missing-1, e)-1, 0)
	}
	limit, hard := ends(e)
	used := sum(p.committed, p.reserved)
	if used < limit {
		return limit - used
	}
	return max(hard-used, 0)
}

// size is how large a block is to be of which so much is needed at once.
func (c *counter) size(need int64, p *pool, e *quota.Entry, now int64) int64 {
	cfg := &c.t.l.cfg
	if !p.known {
		return need
	}
	want := max(sum(need, c.demand.ahead(now, cfg.Ahead)), cfg.Min[e.Unit])
	if most := cfg.Max[e.Unit]; most > 0 {
		want = min(want, most)
	}
	if left := p.left(e, now); left < math.MaxInt64 {
		want = min(want, int64(cfg.Share*float64(left)))
	}
	return max(want, need)
}

// runsShort reports whether it is time to lease more before anybody has to wait.
func (c *counter) runsShort(now int64) bool {
	if !c.short {
		return false
	}
	if now < c.noMore || now < c.retryAt {
		c.short = false
	}
	return c.short
}

// lowWater is the part of a block that is left when more is leased: a quarter, so that
// it comes before anybody has to wait for it.
const lowWater = 4

// ahead is how much to lease before it is needed, if it is time for that.
func (c *counter) ahead(p *pool, e *quota.Entry, now int64) int64 {
	if !p.known || now < c.noMore || c.demand.ahead(now, c.t.l.cfg.Ahead) == 0 || e.Rolling && e.Limit <= 0 {
		return 0
	}
	size := c.size(0, p, e, now)
	if p.free(now) >= size/lowWater {
		return 0
	}
	return size
}

// leaseAhead leases more if little is left.
func (c *counter) leaseAhead(ctx context.Context) error {
	c.t.mu.Lock()
	now := c.t.l.now()
	e := c.entry
	if c.runsShort(now) {
		e.Amount = c.ahead(c.current(&e, now), &e, now)
	} else {
		e.Amount = 0
	}
	c.short = false
	c.t.mu.Unlock()
	if e.Amount == 0 {
		return nil
	}
	e.Kind, e.MaxWait = quota.Hold, 0
	e.Observe = e.Observe && !e.Rolling
	granted, err := c.send(ctx, &ask{id: budget.NewID(), entry: e})
	if err == nil && !granted {
		c.t.mu.Lock()
		c.noMore = c.t.l.now() + int64(c.t.l.cfg.Ahead)
		c.t.mu.Unlock()
	}
	return err
}

// repeatLost repeats a request whose reply has not come.
func (c *counter) repeatLost(ctx context.Context) error {
	c.t.mu.Lock()
	a := c.lost
	if a != nil && c.t.l.now()-a.last > int64(c.t.l.cfg.TTL) {
		a, c.lost = nil, nil // whatever it has taken has lapsed
	}
	c.t.mu.Unlock()
	if a == nil {
		return nil
	}
	_, err := c.send(ctx, a)
	return err
}

// send asks for a block, and reports whether there is one.
func (c *counter) send(ctx context.Context, a *ask) (granted bool, err error) {
	t, l := c.t, c.t.l
	within, cancel := l.within(ctx)
	defer cancel()
	l.stats.trips.Add(1)
	a.last = l.now()
	if a.first == 0 {
		a.first = a.last
	}
	sent := a.last
	res, err := l.next.Reserve(within, quota.Reserve{
		ID: a.id, Tree: t.name, Entries: []quota.Entry{a.entry}, TTL: l.cfg.TTL, Note: quota.Note{Agent: l.cfg.Name},
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.now()
	if err == nil && len(res.Status) != 1 {
		err = errNoStatus
	}
	if err != nil {
		c.lost = a
		return false, c.failed(ctx, err, now)
	}
	c.lost = nil
	c.worked()
	st := &res.Status[0]
	p := c.pool(st.Span)
	if res.Repeated {
		// That is what it said then. How things stand now must be asked.
		sent, p.known = a.first, false
	} else {
		t.heard(res.Now, now)
		p.saw(st, now)
	}
	if res.Denied >= 0 || res.Held {
		l.stats.refused.Add(1)
		return false, nil
	}
	p.lease(a, sent, now)
	return true, nil
}

// lease adds a block. sent is when the request was sent by which it lives.
func (p *pool) lease(a *ask, sent, now int64) {
	l := p.c.t.l
	if len(p.blocks)+len(p.ended) == 0 {
		p.reportedAt = now
	}
	b := &block{
		id: a.id, size: a.entry.Amount, leased: sent, renewed: sent, until: sent + int64(l.cfg.TTL-l.cfg.Margin),
	}
	p.blocks = append(p.blocks, b)
	_, hard := ends(&a.entry)
	p.hard = max(p.hard, hard)
	p.stuck = false
	p.recount()
	switch {
	case p.rolls():
		p.leaseRolling(b, a, now)
	case a.instead != nil:
		p.replace(a.instead, now)
	}
	l.stats.leased.Add(1)
	l.stats.taken[p.c.key.Unit].Add(a.entry.Amount)
	p.c.t.arm()
}

// refresh asks how the counter stands.
func (c *counter) refresh(ctx context.Context, e *quota.Entry) error {
	t, l := c.t, c.t.l
	within, cancel := l.within(ctx)
	defer cancel()
	l.stats.trips.Add(1)
	all, err := l.next.Status(within, t.name, *e)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.now()
	if err == nil && len(all) != 1 {
		err = errNoStatus
	}
	if err != nil {
		return c.failed(ctx, err, now)
	}
	c.worked()
	c.pool(all[0].Span).saw(&all[0], now)
	return nil
}
