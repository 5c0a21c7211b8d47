package gate

import (
	"iter"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// ceiling bounds what one flow or one request may hold at a time (slots) and
// take per window (a share of every Dim). A flow over its ceiling is parked
// whole; a call over its request's ceiling steps aside, so that the flow's
// other requests pass it.
type ceiling struct {
	key      string
	flow     *flow // nil for a request
	maxSlots int64
	slots    int64
	share    float64
	shares   []*budget.TokenBudget // per Dim; nil without a share

	refs      int // a request's calls that are not over
	parked    queue
	wakeAt    int64
	wakeIndex int32 // 1 + index in Core.wakes
}

func (c *Core) newCeiling(key string, slots int64, share float64) *ceiling {
	r := &ceiling{key: key, maxSlots: slots, share: share}
	if share > 0 {
		r.shares = make([]*budget.TokenBudget, len(c.dims))
		for i := range c.dims {
			r.shares[i], _ = budget.NewTokenBudget(budget.TokenBudgetConfig{
				Limit: part(share, c.dims[i].Limit()), Window: c.dims[i].window,
			}) // it cannot fail: the numbers come from a valid limiter
		}
	}
	return r
}

// part is share·limit, at least 1 where the limit is.
func part(share float64, limit int64) int64 {
	return max(min(1, limit), int64(share*float64(limit)))
}

func (r *ceiling) setLimit(now time.Time, i int, limit int64) {
	if r.shares != nil {
		r.shares[i].SetLimit(now, part(r.share, limit))
	}
}

// blocks reports whether the ceiling forbids k now, and from when on time alone
// would allow it (never if a slot must come back first).
func (r *ceiling) blocks(c *Core, now time.Time, k *call) (bool, int64) {
	if r == nil {
		return false, 0
	}
	if r.maxSlots > 0 && r.slots > 0 && r.slots+int64(k.slots) > r.maxSlots {
		return true, never
	}
	at, blocked := int64(0), false
	for i, b := range r.shares {
		if k.costs[i] <= 0 {
			continue
		}
		if ok, t := b.Fits(now, k.costs[i]); !ok {
			blocked = true
			if t.IsZero() {
				return true, never
			}
			at = max(at, int64(t.Sub(c.base)))
		}
	}
	return blocked, at
}

// full is the instant at which every share is whole again; now if it is.
func (r *ceiling) full(now time.Time) time.Time {
	at := now
	for _, b := range r.shares {
		if ok, t := b.Fits(now, b.Limit()); !ok {
			at = laterOf(at, t)
		}
	}
	return at
}

// ceilings are all ceilings there are.
func (c *Core) ceilings() iter.Seq[*ceiling] {
	return func(yield func(*ceiling) bool) {
		for _, r := range c.requests {
			if !yield(r) {
				return
			}
		}
		for i := range c.classes {
			if r := c.classes[i].shared.ceil; r != nil && !yield(r) {
				return
			}
			for _, f := range c.classes[i].flows {
				if f.ceil != nil && !yield(f.ceil) {
					return
				}
			}
		}
	}
}

func (c *Core) joinCeilings(k *call, f *flow, s *Spec) {
	if f.ceil == nil && (c.cfg.FlowSlots > 0 || c.cfg.FlowShare > 0) {
		f.ceil = c.newCeiling(f.key, c.cfg.FlowSlots, c.cfg.FlowShare)
		f.ceil.flow = f
	}
	if s.Request == "" || c.requests == nil {
		return
	}
	r := c.requests[s.Request]
	if r == nil {
		r = c.newCeiling(s.Request, c.cfg.RequestSlots, c.cfg.RequestShare)
		c.requests[s.Request] = r
	}
	r.refs++
	k.request = r
}

// leaveCeilings ends k's part in its request. Whoever is parked there gets a
// look: the call that left may have been the one it waited for.
func (c *Core) leaveCeilings(k *call) {
	r := k.request
	if r == nil {
		return
	}
	r.refs--
	c.unparkOne(r)
	c.forgetRequest(r)
}

func (c *Core) forgetRequest(r *ceiling) {
	if r.refs > 0 {
		return
	}
	if at := r.full(c.time(c.last)); at.After(c.time(c.last)) {
		c.wakeLater(r, int64(at.Sub(c.base)))
		return
	}
	delete(c.requests, r.key)
}

// forgettable reports whether a flow's ceiling has nothing to remember. If it
// has, it is looked at again when its shares are whole.
func (r *ceiling) forgettable() bool {
	c := r.flow.class.core
	now := c.time(c.last)
	at := r.full(now)
	if !at.After(now) {
		return true
	}
	c.wakeLater(r, int64(at.Sub(c.base)))
	return false
}

func (c *Core) wakeLater(r *ceiling, at int64) {
	if at == never {
		return
	}
	if r.wakeIndex > 0 {
		c.wakes.remove(int(r.wakeIndex - 1))
	}
	r.wakeAt = at
	c.wakes.push(r)
}

// wake looks again at the ceilings whose time has come.
func (c *Core) wake(ns int64) {
	for c.wakes.len() > 0 && c.wakes.items[0].wakeAt <= ns {
		r := c.wakes.items[0]
		c.wakes.remove(0)
		c.unparkOne(r)
		switch f := r.flow; {
		case f == nil:
			c.forgetRequest(r)
		case f.busy == 0 && f.index == 0 && !f.dead:
			f.class.forget(f)
		}
	}
}

// unparkOne gives the flow, or the first parked call of the request, another
// chance.
func (c *Core) unparkOne(r *ceiling) {
	if f := r.flow; f != nil {
		if f.parked {
			f.parked = false
			f.class.headChanged(f)
		}
		return
	}
	if k := r.parked.head; k != nil {
		r.parked.remove(k)
		c.enqueue(k)
	}
}

// overCeiling reports whether a ceiling forbids k now.
func (c *Core) overCeiling(now time.Time, k *call) bool {
	if over, _ := k.flow.ceil.blocks(c, now, k); over {
		return true
	}
	over, _ := k.request.blocks(c, now, k)
	return over
}

// setAside takes k, the head of its flow, out of the way if a ceiling forbids
// it. A ceiling is nobody else's resource, so it blocks nobody else.
func (c *Core) setAside(now time.Time, k *call) bool {
	f := k.flow
	if over, at := f.ceil.blocks(c, now, k); over {
		f.parked = true
		f.class.headChanged(f)
		c.wakeLater(f.ceil, at)
		return true
	}
	if over, at := k.request.blocks(c, now, k); over {
		f.queue.remove(k)
		f.class.headChanged(f)
		k.state = stateParked
		k.request.parked.insert(k)
		c.wakeLater(k.request, at)
		return true
	}
	return false
}

func (c *Core) takeCeilings(now time.Time, k *call) {
	for _, r := range [2]*ceiling{k.flow.ceil, k.request} {
		if r == nil {
			continue
		}
		r.slots += int64(k.slots)
		for i, b := range r.shares {
			if k.costs[i] > 0 {
				b.Take(now, k.costs[i])
			}
		}
		if r.flow == nil {
			c.unparkOne(r) // there may be room for one more
		}
	}
}

func (c *Core) freeCeilings(k *call) {
	for _, r := range [2]*ceiling{k.flow.ceil, k.request} {
		if r != nil {
			r.slots -= int64(k.slots)
			c.unparkOne(r)
		}
	}
}

func (c *Core) settleCeilings(now time.Time, k *call, actual []int64) {
	for _, r := range [2]*ceiling{k.flow.ceil, k.request} {
		if r == nil {
			continue
		}
		for i, b := range r.shares {
			// A bucket's hold is its cost, so the hold of the Dim stands for it.
			b.Settle(now, k.flight.holds[i], actual[i])
		}
		c.unparkOne(r) // a refund may have made room
	}
}
