package gate

import (
	"iter"
	"math"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// ceiling bounds what one flow or one request may hold at a time (slots) and
// take per window (a share of every Dim). A flow over its ceiling is parked
// whole; a call over its request's ceiling steps aside, so that the flow's
// other requests pass it, and later calls of its request wait behind it.
type ceiling struct {
	key      string
	flow     *flow // nil for a request
	maxSlots int64
	slots    int64
	share    float64
	shares   []*budget.TokenBudget // per Dim; nil without a share

	refs      int   // a request's calls that are not over
	member    *flow // a request's first flow
	mixed     bool  // the request has calls in other flows, too
	parked    queue
	wakeAt    int64
	wakeIndex int32 // 1 + index in Core.wakes
}

func (c *Core) newCeiling(key string, slots int64, share float64) *ceiling {
	r := &ceiling{key: key, maxSlots: slots, share: share}
	if share > 0 {
		r.shares = make([]*budget.TokenBudget, len(c.dims))
		for i := range c.dims {
			units, window := c.dims[i].quotaOf()
			r.shares[i], _ = budget.NewTokenBudget(budget.TokenBudgetConfig{
				Limit: part(share, int64(min(units, 1<<62))), Window: window,
			}) // it cannot fail: the numbers come from a valid limiter
		}
	}
	return r
}

// part is share·limit, at least 1 where the limit is.
func part(share float64, limit int64) int64 {
	if share >= 1 {
		return limit
	}
	return max(min(1, limit), int64(share*float64(limit)))
}

func (r *ceiling) setLimit(now time.Time, i int, limit int64) {
	if r.shares != nil {
		r.shares[i].SetLimit(now, part(r.share, limit))
	}
}

// blocks reports whether the ceiling forbids k now, and from when on time alone
// would allow it (never if something must come back first).
func (r *ceiling) blocks(c *Core, now time.Time, k *call) (bool, int64) {
	if r == nil {
		return false, 0
	}
	if r.maxSlots > 0 && r.slots > 0 && r.slots+int64(k.slots) > r.maxSlots {
		return true, never
	}
	at, blocked := int64(math.MinInt64), false
	costs := c.costs(k)
	for i, b := range r.shares {
		if costs[i] <= 0 {
			continue
		}
		if ok, t := b.Fits(now, costs[i]); !ok {
			blocked = true
			if t.IsZero() {
				return true, never
			}
			at = max(at, c.reading(t))
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
	if r.refs == 0 {
		r.member, r.mixed = f, false
	}
	r.mixed = r.mixed || r.member != f
	r.refs++
	k.more.request = r
}

// leaveCeilings ends k's part in its request. Whoever is parked there gets a
// look: the call that left may have been the one it waited for.
func (c *Core) leaveCeilings(k *call) {
	r := k.request()
	if r == nil {
		return
	}
	r.refs--
	c.unpark(r)
	if r.refs == 0 {
		c.forgetRequest(r)
	}
}

func (c *Core) forgetRequest(r *ceiling) {
	r.member = nil
	if c.forgettable(r) {
		delete(c.requests, r.key)
	}
}

// forgettable reports whether an idle ceiling has nothing to remember. If it
// has, it is looked at again when its shares are whole.
func (c *Core) forgettable(r *ceiling) bool {
	c.sleep(r)
	now := c.time(c.last)
	at := r.full(now)
	if !at.After(now) {
		return true
	}
	c.wakeLater(r, c.reading(at))
	return false
}

// wakeLater has the ceiling looked at again at a time that it alone decides.
func (c *Core) wakeLater(r *ceiling, at int64) {
	if at == never {
		return
	}
	c.sleep(r)
	r.wakeAt = at
	c.wakes.push(r)
}

// sleep takes wakeLater back.
func (c *Core) sleep(r *ceiling) {
	if r.wakeIndex > 0 {
		c.wakes.remove(int(r.wakeIndex - 1))
	}
}

// wake looks again at the ceilings whose time has come.
func (c *Core) wake(ns int64) {
	for c.wakes.len() > 0 && c.wakes.items[0].wakeAt <= ns {
		r := c.wakes.items[0]
		c.wakes.remove(0)
		c.unpark(r)
		switch f := r.flow; {
		case f == nil && r.refs == 0:
			c.forgetRequest(r)
		case f != nil && f.busy == 0 && f.index == 0:
			f.class.settle(f)
		}
	}
}

// unpark gives the flow, or the first parked call of the request, another
// chance. The next one of the request has it when that one starts or ends;
// but in a request with several flows one of them may be held up by something
// else, so all have it.
func (c *Core) unpark(r *ceiling) {
	if f := r.flow; f != nil {
		if f.parked {
			f.class.headChanged(f)
		}
		return
	}
	for k := r.parked.head; k != nil; k = r.parked.head {
		r.parked.remove(k)
		c.enqueue(k)
		if !r.mixed {
			return
		}
	}
}

// overCeiling reports whether a ceiling forbids k now.
func (c *Core) overCeiling(now time.Time, k *call) bool {
	if over, _ := k.flow.ceil.blocks(c, now, k); over {
		return true
	}
	over, _ := k.request().blocks(c, now, k)
	return over
}

// setAside takes k, the head of its flow, out of the way if a ceiling forbids
// it. A ceiling is nobody else's resource, so it blocks nobody else.
func (c *Core) setAside(now time.Time, k *call) bool {
	f, r := k.flow, k.request()
	over, at := r.blocks(c, now, k)
	if r != nil && r.parked.head != nil && r.parked.head.seq < k.seq {
		over, at = true, never // its turn comes after that one's
	}
	if over {
		f.queue.remove(k)
		f.class.headChanged(f)
		k.state = stateParked
		r.parked.insert(k)
		c.wakeLater(r, at)
		return true
	}
	if over, at = f.ceil.blocks(c, now, k); over {
		f.class.hide(f)
		f.parked = true
		c.wakeLater(f.ceil, at)
	}
	return over
}

func (c *Core) takeCeilings(now time.Time, k *call) {
	n, costs := len(c.dims), c.costs(k)
	if fl := k.flight; fl.shares == nil && (c.cfg.FlowShare > 0 || c.cfg.RequestShare > 0) {
		fl.shares = make([]budget.Hold, 2*n)
	}
	for j, r := range k.ceilings() {
		r.slots += int64(k.slots)
		for i, b := range r.shares {
			if costs[i] > 0 {
				k.flight.shares[j*n+i] = b.Take(now, costs[i])
			}
		}
	}
	if k.request() != nil {
		c.unpark(k.request()) // there may be room for one more
	}
}

// ceilings are those of the call's flow (0) and of its request (1), where it has
// them.
func (k *call) ceilings() iter.Seq2[int, *ceiling] {
	return func(yield func(int, *ceiling) bool) {
		if r := k.flow.ceil; r != nil && !yield(0, r) {
			return
		}
		if r := k.request(); r != nil {
			yield(1, r)
		}
	}
}

func (c *Core) freeCeilings(k *call) {
	for _, r := range k.ceilings() {
		r.slots -= int64(k.slots)
		c.unpark(r)
	}
}

func (c *Core) settleCeilings(now time.Time, k *call, actual []int64) {
	n := len(c.dims)
	for j, r := range k.ceilings() {
		for i, b := range r.shares {
			if h := k.flight.shares[j*n+i]; h.Cost() > 0 || actual[i] > 0 {
				b.Settle(now, h, actual[i])
			}
		}
		c.unpark(r) // a refund may have made room
	}
}

// adjustCeilings books units that were reported late.
func (c *Core) adjustCeilings(now time.Time, k *call, extra []int64) {
	for _, r := range k.ceilings() {
		for i, b := range r.shares {
			if extra[i] > 0 {
				b.Settle(now, budget.Hold{}, extra[i])
			}
		}
	}
}
