package gate

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// holdAlpha is the weight of one call in the moving average of slot time.
const holdAlpha = 1.0 / 32

// holdSample: of the calls that end alone, one in so many is timed.
const holdSample = 64

// Counted tells that the provider has counted the call by now at the latest.
func (c *Core) Counted(now time.Time, id ID) {
	k := id.running()
	if k == nil || k.is(settled) {
		return
	}
	c.at(now)
	for i := range c.dims {
		if h := &k.flight.holds[i]; h.Cost() > 0 {
			*h = c.dims[i].Counted(now, *h)
		}
	}
}

// FreeSlot gives the call's slots back. It reports false if they were back
// already.
func (c *Core) FreeSlot(now time.Time, id ID) bool {
	c.company()
	k := id.running()
	if k == nil || k.is(freed) {
		return false
	}
	c.freeSlot(c.at(now), k)
	return true
}

func (c *Core) freeSlot(ns int64, k *call) {
	k.marks |= freed
	held := ns - k.flight.started
	k.flight.held = held
	if held < 1 {
		held = 1 // an average of zeros would end among the slow denormal numbers
	}
	c.holdTime += (float64(held) - c.holdTime) * holdAlpha
	k.flow.class.use(c, -int64(k.slots))
	if !c.plain {
		c.freeCeilings(k)
	}
	if k.is(settled) {
		c.over(k)
	}
}

// Settle replaces the call's holds by what was used, in the order of
// Config.Dims; nil settles at what was held. It reports false if the call was
// settled already.
func (c *Core) Settle(now time.Time, id ID, actual []int64) bool {
	c.company()
	k := id.running()
	if k == nil || k.is(settled) {
		return false
	}
	c.at(now)
	c.settle(now, k, actual)
	return true
}

// Complete is FreeSlot and Settle in one step.
func (c *Core) Complete(now time.Time, id ID, actual []int64) {
	c.company()
	if k := id.running(); k != nil {
		c.complete(now, k, actual)
	}
}

func (c *Core) complete(now time.Time, k *call, actual []int64) {
	ns := c.at(now)
	if !k.is(freed) {
		c.freeSlot(ns, k)
	}
	if !k.is(settled) {
		c.settle(now, k, actual)
	}
}

func (c *Core) settle(now time.Time, k *call, actual []int64) {
	k.marks |= settled
	if actual == nil {
		actual = c.costs(k)
	}
	fl := k.flight
	for i := range c.dims {
		d := &c.dims[i]
		if used := max(actual[i], fl.spent(i)); fl.holds[i].Cost() > 0 || used > 0 {
			d.Settle(now, fl.holds[i], used)
			if d.search != nil {
				d.search.taken.add(fl.started, float64(used)-float64(fl.holds[i].Cost()))
			}
		}
		if d.probe == k {
			d.probe = nil // it ended without success: another may try
		}
	}
	if c.outage.probe == k {
		c.outage.probe = nil
	}
	if !c.plain {
		c.settleCeilings(now, k, actual)
	}
	fl.used = fl.rates.charge(actual, 0)
	if k.is(freed) {
		c.over(k)
	}
}

// spent is what a refused call has taken of a limit that is searched for: all that
// it held. The provider may not have counted it, but the next call is not for now.
func (fl *flight) spent(i int) int64 {
	if fl.refused&dimBit(i) == 0 {
		return 0
	}
	return fl.holds[i].Cost()
}

// over corrects the charge once both slots and units are settled. From here on
// the call is no longer in flight; its record lives on until End.
func (c *Core) over(k *call) {
	c.running--
	c.correct(k)
	c.leave(k)
}

// Adjust books units that were reported after the call was settled. They are
// spent already and go to the current window. Its flow is charged for them as
// if they had been a call of their own, which is never less than their part of
// the dominant share.
func (c *Core) Adjust(now time.Time, id ID, extra []int64) {
	c.company()
	k := id.running()
	if k == nil || !k.is(settled) {
		return
	}
	ns := c.at(now)
	any := false
	for i := range c.dims {
		if extra[i] > 0 {
			any = true
			c.dims[i].Settle(now, budget.Hold{}, extra[i])
			if s := c.dims[i].search; s != nil {
				s.taken.add(ns, float64(extra[i]))
			}
		}
	}
	if !any {
		return
	}
	if !c.plain {
		c.adjustCeilings(now, k, extra)
	}
	more := min(k.flight.rates.charge(extra, 0), maxCharge-k.flight.used)
	k.flight.used += more
	if k.is(freed) {
		c.recharge(k.flow, k.flight.charged, k.flight.charged+more)
		k.flight.charged += more
		if f := k.flow; f.busy == 0 && f.index == 0 && !f.dead {
			f.class.settle(f)
		}
	}
}

// End ends a call whatever its state: what is not freed is freed, what is not
// settled is settled at what was held, a waiting call is cancelled. It reports
// false if the call had ended before.
func (c *Core) End(now time.Time, id ID) bool { return c.Finish(now, id, nil) }

// Finish is End for a call that is settled to what was used, in the order of
// Config.Dims, if it was not settled before; nil stands for what was held.
func (c *Core) Finish(now time.Time, id ID, actual []int64) bool {
	c.company()
	k := id.call()
	switch {
	case k == nil:
		return false
	case k.state == stateFailed:
		c.recycle(k)
		return true
	case k.state != stateRunning:
		return c.Cancel(now, id)
	}
	c.complete(now, k, actual)
	c.land(k)
	c.recycle(k)
	return true
}

// FinishLast is Finish for the last call of all, if its end needs no time: it
// was the only one in line or in flight, so that nobody's order depends on how
// long it took, and its limits can be settled without knowing when. It reports
// false, with nothing changed, if that is not so.
func (c *Core) FinishLast(id ID, actual []int64) bool {
	k := id.running()
	if k == nil || k != c.lone || c.searching || c.share < 1 || c.outage.refusals > 0 || c.outage.shut || k.seq%holdSample == 0 {
		return false
	}
	fl, costs := k.flight, c.costs(k)
	for i := range c.dims {
		d := &c.dims[i]
		if !d.timeless || d.probe == k || actual != nil && actual[i] != costs[i] {
			return false
		}
	}
	for i := range c.dims {
		if d := &c.dims[i]; fl.holds[i].Cost() <= 0 {
			continue
		} else if d.bucket != nil {
			d.bucket.Settle(time.Time{}, fl.holds[i], costs[i])
		} else {
			d.Settle(time.Time{}, fl.holds[i], costs[i])
		}
	}
	c.running--
	c.lone = nil
	c.land(k)
	c.recycle(k)
	return true
}

// land keeps the flight record of a call for another one.
func (c *Core) land(k *call) {
	fl := k.flight
	k.flight = nil
	fl.refused = 0
	if fl.shares != nil {
		clear(fl.shares)
	}
	fl.next, c.flights = c.flights, fl
}

// Requeue sends a running call back into the line: its slots are freed, its
// units settled to actual (what the refused attempt cost), and it waits again,
// with its first sequence number and its deadline, but not before the given
// instant. A backoff that does not end before the deadline ends with it. If its
// flow was idle it comes back with the weight that it had. It reports false if
// the call is not running.
func (c *Core) Requeue(now time.Time, id ID, actual []int64, notBefore time.Time) bool {
	c.company()
	k := id.running()
	if k == nil {
		return false
	}
	ns := c.at(now)
	if k.is(freed) && k.is(settled) { // its flow and its request may be forgotten
		s := Spec{Flow: k.flow.key, FlowWeight: k.flow.weight}
		if k.request() != nil {
			s.Request = k.request().key
		}
		c.join(k, k.flow.class, &s)
	} else {
		k.flow.busy++ // they stay active in between
		if k.request() != nil {
			k.request().refs++
		}
		if !k.is(freed) {
			c.freeSlot(ns, k)
		}
		if !k.is(settled) {
			c.settle(now, k, actual)
		}
	}
	c.land(k)
	k.marks &^= freed | settled | answered
	k.state = stateBacking
	c.countWaiting(k, 1)
	c.timers.push(timer{min(max(c.later(now, notBefore), ns), k.deadline), k})
	c.unfit = c.unfit || c.tooLarge(k) >= 0
	return true
}
