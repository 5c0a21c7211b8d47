package gate

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// lacks is the set of resources that k needs and cannot have now.
func (c *Core) lacks(now time.Time, ns int64, k *call) resources {
	var lack resources
	if !c.slotsFit(k.slots) {
		lack = slotsBit
	}
	for i := range c.dims {
		if k.costs[i] <= 0 {
			continue
		}
		d := &c.dims[i]
		if d.shut && (ns < d.until || d.probe != nil) {
			lack |= dimBit(i)
		} else if ok, _ := d.Fits(now, k.costs[i]); !ok {
			lack |= dimBit(i)
		}
	}
	return lack
}

// slotsFit: a call wider than the limit in force runs alone.
func (c *Core) slotsFit(slots int32) bool {
	return int64(slots) <= c.eff-c.inUse || c.inUse == 0
}

// when is the instant at which the Dims that k lacks allow it, as far as time
// alone decides; never if something else must happen first.
func (c *Core) when(now time.Time, ns int64, k *call) int64 {
	at := int64(0)
	for i := range c.dims {
		if k.claim&dimBit(i) == 0 {
			continue
		}
		d := &c.dims[i]
		switch {
		case d.shut && ns < d.until:
			at = max(at, d.until)
		case d.shut && d.probe != nil:
			return never
		default:
			ok, t := d.Fits(now, k.costs[i])
			if ok {
				continue
			}
			if t.IsZero() {
				return never
			}
			at = max(at, int64(t.Sub(c.base)))
		}
	}
	if at == 0 {
		return never
	}
	return at
}

// Poll starts every call that can start, ends the wait of those whose deadline
// has passed, and tells when it wants to be called next if nothing else
// happens; a zero next means never. Call it after anything that may have
// changed what fits. The slices are valid until the next Poll. A failed call
// must be ended with End.
func (c *Core) Poll(now time.Time) (grants []ID, failed []Failure, next time.Time) {
	ns := c.at(now)
	c.grants, c.failed = c.grants[:0], c.failed[:0]
	if c.waiting == 0 {
		return nil, nil, time.Time{}
	}
	if ns >= c.rescale {
		c.recover(now, ns)
	}
	c.expire(ns)
	c.wake(ns)
	at := c.dispatch(now, ns)
	if c.timers.len() > 0 {
		at = min(at, c.timers.items[0].at)
	}
	if c.wakes.len() > 0 {
		at = min(at, c.wakes.items[0].wakeAt)
	}
	if at == never || c.waiting == 0 {
		return c.grants, c.failed, time.Time{}
	}
	return c.grants, c.failed, c.time(at)
}

// expire handles the timers that are due: a backoff that is over, a deadline.
func (c *Core) expire(ns int64) {
	for c.timers.len() > 0 && c.timers.items[0].at <= ns {
		k := c.timers.items[0].call
		if k.state == stateBacking && k.deadline > ns {
			c.timers.remove(0)
			k.timer = 0
			if k.deadline != never {
				c.timers.push(timer{k.deadline, k})
			}
			c.enqueue(k)
			continue
		}
		c.fail(k, false)
	}
}

// fail ends the wait of k.
func (c *Core) fail(k *call, never bool) {
	dim := -1
	for i := range c.dims {
		if c.dims[i].Max() < k.costs[i] || !never && k.claim&dimBit(i) != 0 {
			dim = i
			break
		}
	}
	c.remove(k)
	c.leave(k)
	k.state = stateFailed
	c.failed = append(c.failed, Failure{ID: ID{k, k.gen}, Dim: dim, Never: never})
}

// neverFits reports whether a limit was lowered below what k needs. Such a call
// must not block the line.
func (c *Core) neverFits(k *call, lack resources) bool {
	for i := range c.dims {
		if lack&dimBit(i) != 0 && k.costs[i] > c.dims[i].Max() {
			return true
		}
	}
	return false
}

// enqueue puts a call into its flow's queue, by its first sequence number.
func (c *Core) enqueue(k *call) {
	k.state = stateQueued
	f := k.flow
	old := f.queue.head
	f.queue.insert(k)
	if f.queue.head != old {
		f.class.headChanged(f)
	}
}

// dispatch starts calls in fair order. Those that were chosen before and lacked
// something come first: they keep their claim, so that a large call is not
// starved by small ones. A head that lacks a resource is chosen in turn and
// blocks only heads that need a resource which it claims. It returns the next
// instant at which time alone lets a chosen call start.
func (c *Core) dispatch(now time.Time, ns int64) (next int64) {
	var claimed resources
	var skipped uint64 // classes whose own bounds block them in this pass
	next = never

	for i := 0; i < len(c.chosen); {
		k := c.chosen[i]
		if !c.plain && c.overCeiling(now, k) || c.slotsFit(k.slots) && !k.flow.class.fits(c, k.slots) {
			c.unchoose(i) // back to the head of its flow, without a claim
			continue
		}
		lack := c.lacks(now, ns, k)
		if lack == 0 && k.need&claimed == 0 {
			c.chosen = append(c.chosen[:i], c.chosen[i+1:]...)
			k.flow.chosen = nil
			k.flow.class.headChanged(k.flow)
			c.grant(now, ns, k)
			continue
		}
		if c.neverFits(k, lack) {
			c.fail(k, true)
			continue
		}
		k.claim |= lack
		claimed |= k.claim
		next = min(next, c.when(now, ns, k))
		i++
	}

	for claimed&slotsBit == 0 {
		f := c.pick(claimed, skipped)
		if f == nil {
			break
		}
		k := f.queue.head
		if !c.plain && c.setAside(now, k) {
			continue
		}
		if c.slotsFit(k.slots) && !f.class.fits(c, k.slots) {
			skipped |= f.class.bit
			continue
		}
		lack := c.lacks(now, ns, k)
		if c.neverFits(k, lack) {
			c.fail(k, true)
			continue
		}
		f.queue.remove(k)
		if lack == 0 {
			f.class.headChanged(f)
			c.grant(now, ns, k)
			continue
		}
		k.state, k.claim = stateChosen, lack
		f.chosen = k
		f.class.headChanged(f)
		c.chosen = append(c.chosen, k)
		claimed |= lack
		next = min(next, c.when(now, ns, k))
	}
	return next
}

func (c *Core) unchoose(i int) {
	k := c.chosen[i]
	c.chosen = append(c.chosen[:i], c.chosen[i+1:]...)
	k.claim = 0
	k.flow.chosen = nil
	c.enqueue(k)
}

// pick is the flow to be served next: the class with the least counter among
// those that have a candidate, then the flow with the least counter in it.
func (c *Core) pick(claimed resources, skipped uint64) *flow {
	var best *flow
	for i := range c.classes {
		cl := &c.classes[i]
		if cl.waiting == 0 || skipped&cl.bit != 0 {
			continue
		}
		f := cl.top(claimed)
		switch {
		case f == nil:
		case best == nil, cl.vt < best.class.vt,
			cl.vt == best.class.vt && f.queue.head.seq < best.queue.head.seq:
			best = f
		}
	}
	return best
}

// grant starts a call that waited.
func (c *Core) grant(now time.Time, ns int64, k *call) {
	c.countWaiting(k, -1)
	if k.timer > 0 {
		c.timers.remove(int(k.timer - 1))
		k.timer = 0
	}
	k.claim = 0
	c.start(now, ns, k)
	c.grants = append(c.grants, ID{k, k.gen})
}

// start takes slots and units for k, all at once, and charges its flow.
func (c *Core) start(now time.Time, ns int64, k *call) {
	fl := c.flights
	if fl == nil {
		fl = &flight{holds: make([]budget.Hold, len(c.dims))}
	} else {
		c.flights, fl.next = fl.next, nil
	}
	fl.started, fl.rates = ns, c.rates
	k.flight, k.state = fl, stateRunning
	for i := range c.dims {
		if k.costs[i] > 0 {
			d := &c.dims[i]
			fl.holds[i] = d.Take(now, k.costs[i])
			if d.shut {
				d.probe = k
			}
		}
	}
	c.running++
	k.flow.class.use(c, int64(k.slots))
	if !c.plain {
		c.takeCeilings(now, k)
	}
	c.charge(k)
}
