package gate

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// holdAlpha is the weight of one call in the moving average of slot time.
const holdAlpha = 1.0 / 32

// running returns the live running call of an ID, or nil.
func (id ID) running() *call {
	if k := id.call(); k != nil && k.state == stateRunning {
		return k
	}
	return nil
}

// Counted tells that the provider has counted the call by now at the latest.
func (c *Core) Counted(now time.Time, id ID) {
	k := id.running()
	if k == nil || k.settled {
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
	k := id.running()
	if k == nil || k.freed {
		return false
	}
	c.freeSlot(c.at(now), k)
	return true
}

func (c *Core) freeSlot(ns int64, k *call) {
	k.freed = true
	k.flight.held = ns - k.flight.started
	c.holdTime += (float64(max(k.flight.held, 1)) - c.holdTime) * holdAlpha
	k.flow.class.use(c, -int64(k.slots))
	if !c.plain {
		c.freeCeilings(k)
	}
	if k.settled {
		c.over(k)
	}
}

// Settle replaces the call's holds by what was used, in the order of
// Config.Dims; nil settles at what was held. It reports false if the call was
// settled already.
func (c *Core) Settle(now time.Time, id ID, actual []int64) bool {
	k := id.running()
	if k == nil || k.settled {
		return false
	}
	c.at(now)
	c.settle(now, k, actual)
	return true
}

func (c *Core) settle(now time.Time, k *call, actual []int64) {
	k.settled = true
	if actual == nil {
		actual = k.costs
	}
	fl := k.flight
	for i := range c.dims {
		d := &c.dims[i]
		if fl.holds[i].Cost() > 0 || actual[i] > 0 {
			d.Settle(now, fl.holds[i], actual[i])
		}
		if d.probe == k {
			d.probe = nil // it ended without success: another may try
		}
	}
	if !c.plain {
		c.settleCeilings(now, k, actual)
	}
	fl.used = fl.rates.charge(actual, 0)
	if k.freed {
		c.over(k)
	}
}

// over corrects the charge once both slots and units are settled. From here on
// the call is no longer in flight; its record lives on until End.
func (c *Core) over(k *call) {
	c.running--
	c.correct(k)
	c.leave(k)
}

// Adjust books units that were reported after the call was settled. They are
// spent already and go to the current window.
func (c *Core) Adjust(now time.Time, id ID, extra []int64) {
	k := id.running()
	if k == nil || !k.settled {
		return
	}
	c.at(now)
	for i := range c.dims {
		if extra[i] > 0 {
			c.dims[i].Settle(now, budget.Hold{}, extra[i])
		}
	}
	if k.freed {
		c.addService(k.flow, k.flow.class, k.flight.rates.charge(extra, 0))
	} else {
		k.flight.used += k.flight.rates.charge(extra, 0)
	}
}

// End ends a call whatever its state: what is not freed is freed, what is not
// settled is settled at what was held, a waiting call is cancelled. It reports
// false if the call had ended before.
func (c *Core) End(now time.Time, id ID) bool {
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
	ns := c.at(now)
	if !k.freed {
		c.freeSlot(ns, k)
	}
	if !k.settled {
		c.settle(now, k, nil)
	}
	c.land(k)
	c.recycle(k)
	return true
}

// land keeps the flight record of a call for another one.
func (c *Core) land(k *call) {
	fl := k.flight
	k.flight = nil
	clear(fl.holds)
	fl.rates = nil
	fl.next, c.flights = c.flights, fl
}

// Requeue sends a running call back into the line: its slots are freed, its
// units settled to actual (what the refused attempt cost), and it waits again,
// with its first sequence number and its deadline, but not before the given
// instant. It reports false if the call is not running.
func (c *Core) Requeue(now time.Time, id ID, actual []int64, notBefore time.Time) bool {
	k := id.running()
	if k == nil {
		return false
	}
	ns := c.at(now)
	k.flow.busy++ // it stays active in between
	if k.request != nil {
		k.request.refs++
	}
	if !k.freed {
		c.freeSlot(ns, k)
	}
	if !k.settled {
		c.settle(now, k, actual)
	}
	k.flow.busy--
	c.land(k)
	k.freed, k.settled = false, false
	c.countWaiting(k, 1)
	k.state = stateBacking
	c.timers.push(timer{min(max(int64(notBefore.Sub(c.base)), ns), k.deadline), k})
	return true
}
