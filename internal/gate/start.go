package gate

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Start is Enqueue for the call that need not wait: nobody else does, and it
// fits. That is most calls of a gate that is sized well, so this path does
// nothing that can be left out. It reports false, with nothing changed, if the
// call must go through Enqueue.
func (c *Core) Start(now time.Time, class int, flow string, slots int32, costs []int64) (ID, bool) {
	if c.waiting > 0 || !c.plain || c.outage.shut {
		return ID{}, false
	}
	c.company()
	ns := c.at(now)
	cl := &c.classes[0]
	if c.cfg.FIFO {
		flow = ""
	} else {
		cl = &c.classes[class]
	}
	if ns >= c.rescale || !c.slotsFit(now, cl, slots) || !cl.underCap(slots) {
		return ID{}, false
	}
	if c.searching {
		c.meet(now, costs)
	}
	fl := c.newFlight()
	need, ok := c.takeAll(now, fl.holds, costs)
	if !ok {
		fl.next, c.flights = c.flights, fl
		return ID{}, false
	}
	k := c.newCall()
	c.seq++
	k.seq, k.slots, k.deadline, k.need = c.seq, slots, never, need
	copy(c.costs(k), costs)
	k.flight, k.state = fl, stateRunning
	fl.started, fl.rates = ns, c.rates
	if c.searching {
		c.took(ns, costs)
	}
	k.next = nil
	c.running++
	if c.running == 1 && flow == "" && c.cfg.Lender == nil {
		c.lone, c.loneClass = k, cl
		return ID{k, k.gen}, true
	}
	c.book(k, cl, flow)
	return ID{k, k.gen}, true
}

// book makes a call that was started count: for its flow, and for its slots.
func (c *Core) book(k *call, cl *class, flow string) {
	c.joinFlow(k, cl, flow, 1)
	cl.use(c, int64(k.slots))
	c.charge(k)
}

// company books the lone call, if there is one. A call that starts when there is
// no other, waits or runs, has nobody to be compared with; if it also ends
// before anything else happens, nothing ever depended on its charge. Whatever
// looks at flows, classes or slots in use calls this first.
func (c *Core) company() {
	if k := c.lone; k != nil {
		c.lone = nil
		c.book(k, c.loneClass, "")
	}
}

// takeAll takes all costs, or none.
func (c *Core) takeAll(now time.Time, holds []budget.Hold, costs []int64) (need resources, ok bool) {
	need = slotsBit
	for i, cost := range costs {
		d := &c.dims[i]
		if cost <= 0 {
			holds[i] = budget.Hold{}
			continue
		}
		need |= dimBit(i)
		ok = !d.shut // what is half-open wants Enqueue's care
		if ok {
			holds[i], ok = d.tryTake(now, cost)
		}
		if !ok {
			for j := range i {
				if holds[j].Cost() > 0 {
					c.dims[j].Settle(now, holds[j], 0)
				}
			}
			return 0, false
		}
	}
	return need, true
}

func (c *Core) newFlight() *flight {
	fl := c.flights
	if fl == nil {
		return &flight{holds: make([]budget.Hold, len(c.dims))}
	}
	c.flights, fl.next = fl.next, nil
	return fl
}

// Stuck reports whether a call that was just enqueued can only wait: a call
// that was chosen before it claims the slots, which all need. Poll then changes
// nothing, and its next is the call's own deadline.
func (c *Core) Stuck() bool {
	if !c.plain || c.minimums > 0 || c.unfit {
		return false
	}
	for _, k := range c.chosen {
		if k.flow.claim&slotsBit != 0 {
			return true
		}
	}
	return false
}
