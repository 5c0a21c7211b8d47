package blocks

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// How much of what is leased is settled.
type extent uint8

const (
	// onlyDue settles what is spent, and what lies idle.
	onlyDue extent = iota
	// allSpent settles all that was spent, too, and keeps the rest.
	allSpent
	// everything returns all but what is held.
	everything
)

// What is to be done about what is leased.
type doing uint8

const (
	nothing doing = iota
	// settleBlock tells the ledger how much of a block was spent, and returns the
	// rest.
	settleBlock
	// swapBlock does the same with a block of which a part is still needed: that
	// part is leased anew first.
	swapBlock
	// coverSpent leases what was held or spent above what is leased. It is spent,
	// so no limit denies it.
	coverSpent
	// correct lowers what a block was settled to.
	correct
)

// deed is something that is to be done.
type deed struct {
	do     doing
	p      *pool
	b      *block
	amount int64 // settleBlock: what was spent of it. coverSpent: how much
	keep   int64 // swapBlock: what is leased anew
}

// next is what is to be done first.
func (c *counter) next(x extent, now int64) deed {
	for _, p := range c.pools {
		if d := p.next(x, now); d.do != nothing {
			return d
		}
	}
	return deed{}
}

func (p *pool) next(x extent, now int64) deed {
	if len(p.ended) > 0 {
		return deed{do: settleBlock, p: p, b: p.ended[0], amount: p.ended[0].used}
	}
	if p.back > 0 { // before more is settled: a counter does not go below 0
		return deed{do: correct, p: p}
	}
	if p.dies == 0 {
		for _, b := range p.blocks {
			if b.lapsed {
				return deed{do: settleBlock, p: p, b: b, amount: p.usedOf(b)}
			}
		}
	}
	if p.rolls() {
		return p.nextRolling(x, now)
	}
	rest := p.rest()
	if len(p.blocks) == 0 {
		if rest < 0 {
			return deed{do: coverSpent, p: p, amount: -rest}
		}
		return deed{}
	}
	// The first block carries what was spent above all that is leased.
	b := p.blocks[0]
	if used := min(p.spent, sum(b.size, max(-rest, 0))); p.spent > 0 && used >= b.size {
		return deed{do: settleBlock, p: p, b: b, amount: used}
	}
	if rest < 0 {
		return deed{do: coverSpent, p: p, amount: -rest}
	}
	keep, swap := p.keep(x, now)
	if rest > keep {
		for _, b := range p.blocks {
			if used := p.usedOf(b); b.size-used <= rest-keep {
				return deed{do: settleBlock, p: p, b: b, amount: used}
			}
		}
		if swap && !p.stuck {
			return deed{do: swapBlock, p: p, b: b, keep: b.size - p.usedOf(b) - (rest - keep)}
		}
	}
	if p.spent > 0 && !p.stuck && (x != onlyDue || p.reportDue(now)) {
		return deed{do: swapBlock, p: p, b: b, keep: b.size - p.spent - max(rest-keep, 0)} // on the same trip
	}
	return deed{}
}

// usedOf is what a block is settled to if it ends now.
func (p *pool) usedOf(b *block) int64 {
	if p.rolls() {
		return b.spent
	}
	return min(p.spent, b.size)
}

// reportDue reports whether what was spent is to be settled although its block is
// not used up: when blocks are renewed.
func (p *pool) reportDue(now int64) bool {
	return now-p.reportedAt >= p.c.t.l.renewEvery()
}

// keep is how much of what is free is kept, and whether it is worth two round trips
// to return the rest if a part of a block is still needed.
func (p *pool) keep(x extent, now int64) (n int64, swap bool) {
	cfg := &p.c.t.l.cfg
	switch {
	case x == everything:
		return 0, true
	case !p.span.End.IsZero() && !p.c.t.ledgerNow(now).Before(p.span.End):
		return 0, false // nobody else can use it either
	case now-p.tookAt >= int64(cfg.Idle):
		return p.c.wanted, now >= p.swapAt // for those who wait for another counter
	}
	unused := p.rest()
	if p.rolls() {
		unused = p.fresh
	}
	if target := p.c.demand.block(now, cfg.Ahead); target > 0 {
		if target = max(target, cfg.Min[p.c.key.Unit], p.c.wanted); unused/2 > target {
			return target, now >= p.swapAt
		}
	}
	return math.MaxInt64, false
}

// step does the next thing; did is false if there was none.
func (c *counter) step(ctx context.Context, x extent) (did bool, err error) {
	c.t.mu.Lock()
	now := c.t.l.now()
	d := c.next(x, now)
	switch {
	case x == onlyDue && now < c.retryAt:
		d.do = nothing
	case d.do == settleBlock:
		d.p.end(d.b, d.amount, now)
	}
	c.t.mu.Unlock()
	switch d.do {
	case settleBlock:
		err = c.settle(ctx, d.p, d.b)
	case swapBlock:
		err = c.swap(ctx, d)
	case coverSpent:
		err = c.cover(ctx, d.p, d.amount)
	case correct:
		err = c.correct(ctx, d.p)
	default:
		return false, nil
	}
	return true, err
}

// settleAll does all that there is to be done now. The caller has the turn.
func (c *counter) settleAll(ctx context.Context, x extent) error {
	if err := c.repeatLost(ctx); err != nil {
		return err
	}
	for {
		if did, err := c.step(ctx, x); !did || err != nil {
			return err
		}
	}
}

// settle tells the ledger what was spent of a block that has ended. It is told the
// same until it has answered.
func (c *counter) settle(ctx context.Context, p *pool, b *block) error {
	t, l := c.t, c.t.l
	within, cancel := l.within(ctx)
	defer cancel()
	res, err := l.tell(within, &quota.Settle{ID: b.id, Tree: t.name, Actual: c.amounts(b.used)}, &b.signed)
	t.mu.Lock()
	now := l.now()
	switch {
	case err == nil:
		c.worked()
		p.answered(b)
		if !b.lapsed {
			l.stats.returned[c.key.Unit].Add(max(b.size-b.used, 0))
		}
		if b.used > 0 && !p.rolls() {
			if len(p.past) == maxPast {
				copy(p.past, p.past[1:])
				p.past = p.past[:maxPast-1]
			}
			p.past = append(p.past, b)
		}
		if len(res.Status) > 0 {
			p.saw(&res.Status[0], now)
		}
		p.known = p.known && !res.Repeated // that is what it said then
		p.reportedAt = now
		if res.Late && b.used > 0 {
			l.stats.late.Add(1)
			if !b.lapsed {
				b.lapsed = true
				defer l.tellLapsed(1)
			}
		}
		defer c.tell(c.crossedBy(p, res.Crossed))
	case errors.Is(err, quota.ErrUnknownReservation):
		// It was forgotten. What was spent was spent all the same.
		err = nil
		p.answered(b)
		p.spend(b.used)
	default:
		err = c.failed(ctx, err, now)
		if now-b.signed.since > int64(longest) {
			p.answered(b)
			l.stats.lost.Add(1)
			l.cfg.Logger.Error("blocks: what was spent could not be booked", slog.String("tree", t.name),
				slog.Any("unit", c.key.Unit), slog.Int64("amount", b.used), slog.Any("error", err))
		}
	}
	t.mu.Unlock()
	return err
}

// longest is how long it is tried to book what was spent.
const longest = 24 * time.Hour

func (c *counter) amounts(n int64) (all quota.Amounts) {
	all[c.key.Unit] = n
	return all
}

// end takes a block out of those that are leased; so much of it was spent. It does
// nothing if the block is out already.
func (p *pool) end(b *block, used, now int64) {
	i := slices.Index(p.blocks, b)
	if i < 0 {
		return
	}
	p.blocks = slices.Delete(p.blocks, i, i+1)
	p.ended = append(p.ended, b)
	b.out, b.used = true, used
	b.signed = p.c.t.l.sign(now)
	p.spent -= used
	p.fresh -= b.fresh
	p.recount()
}

// answered takes a block out of those whose end the ledger has not answered.
func (p *pool) answered(b *block) {
	if i := slices.Index(p.ended, b); i >= 0 {
		p.ended = slices.Delete(p.ended, i, i+1)
	}
}

// swap leases the part of a block anew that is still needed, in place of the block.
// Until that is settled the ledger has more reserved than is leased.
func (c *counter) swap(ctx context.Context, d deed) error {
	granted, err := c.force(ctx, d.p, &ask{instead: d.b}, d.keep)
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	now := c.t.l.now()
	d.p.swapAt, d.p.reportedAt = now+int64(c.t.l.cfg.Idle), now
	d.p.stuck = err == nil && !granted
	return err
}

// replace has the newest block, which was leased for that, take the place of an
// older one, unless what is free is needed meanwhile.
func (p *pool) replace(b *block, now int64) {
	if used := p.usedOf(b); !b.out && p.rest() >= b.size-used {
		p.end(b, used, now)
	}
}

// cover leases what was held or spent above what is leased.
func (c *counter) cover(ctx context.Context, p *pool, amount int64) error {
	granted, err := c.force(ctx, p, &ask{}, amount)
	if err == nil && !granted && amount > 0 {
		// Counters end somewhere. A block of nothing can be settled to anything.
		granted, err = c.force(ctx, p, &ask{}, 0)
	}
	if err == nil && !granted {
		c.t.mu.Lock()
		err = c.failed(ctx, errNotCovered, c.t.l.now())
		c.t.mu.Unlock()
	}
	return err
}

// force leases in the window of a pool, whatever its limit says. What else a says of
// the request stays.
func (c *counter) force(ctx context.Context, p *pool, a *ask, amount int64) (granted bool, err error) {
	c.t.mu.Lock()
	e := c.entry
	c.t.mu.Unlock()
	e.Kind, e.Amount = quota.Hold, amount
	e.Spans = [3]quota.Span{1: p.span}
	if e.Rolling {
		e.Observe, e.MaxWait = false, math.MaxInt64
	} else {
		e.Observe, e.Soft = true, false
	}
	a.id, a.entry, a.forced = budget.NewID(), e, true
	return c.send(ctx, a)
}

// correct gives back what blocks were settled for too much, the latest ones first.
func (c *counter) correct(ctx context.Context, p *pool) error {
	t, l := c.t, c.t.l
	t.mu.Lock()
	if len(p.past) == 0 { // they are forgotten: it cannot be given back
		p.back = 0
		t.mu.Unlock()
		return nil
	}
	b := p.fixed
	if b == nil {
		b = p.past[len(p.past)-1]
		b.less, b.signed = min(p.back, b.used), l.sign(l.now())
		p.fixed = b
	}
	less := b.less // whatever else has come back since its reply was lost
	t.mu.Unlock()
	within, cancel := l.within(ctx)
	defer cancel()
	res, err := l.tell(within, &quota.Settle{
		ID: b.id, Tree: t.name, Actual: c.amounts(b.used - less), Adjust: true, Seq: b.seq + 1,
	}, &b.signed)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.now()
	switch {
	case err == nil:
		c.worked()
		b.seq++
		b.used -= less
		p.back = max(p.back-less, 0)
		if len(res.Status) > 0 && !res.Repeated {
			p.saw(&res.Status[0], now)
		} else {
			p.known = false
		}
	case errors.Is(err, quota.ErrUnknownReservation):
		err, b.used = nil, 0
	default:
		return c.failed(ctx, err, now)
	}
	p.fixed = nil
	if i := slices.Index(p.past, b); b.used == 0 && i >= 0 {
		p.past = slices.Delete(p.past, i, i+1)
	}
	return nil
}

// crossedBy notes which thresholds were crossed. The tree's lock is held.
func (c *counter) crossedBy(p *pool, all []quota.Crossing) []quota.Crossing {
	for _, x := range all {
		p.crossed = max(p.crossed, x.Percent)
	}
	if c.t.l.cfg.Crossed == nil {
		c.crossed = append(c.crossed, all...)
		return nil
	}
	return all
}

// tell calls the hook. No lock is held.
func (c *counter) tell(all []quota.Crossing) {
	for _, x := range all {
		c.t.l.cfg.Crossed(c.t.name, x)
	}
}
