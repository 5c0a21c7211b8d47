package gate

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// slotsFit reports whether the class may take so many slots now. What other
// classes have left of their minimums is kept free. Whatever the bounds, a call
// may run when nothing else does: one that is wider than the limit in force runs
// alone. But nobody runs in slots that others use.
func (c *Core) slotsFit(now time.Time, cl *class, slots int32) bool {
	if int64(slots) > c.eff-c.inUse-(c.reserved-cl.unused) && c.inUse != 0 {
		return false
	}
	return c.cfg.Lender == nil || c.cfg.Lender.Fits(now, min(int64(slots), c.limit))
}

// alone reports whether a call of the class can start only when nothing else
// runs.
func (c *Core) alone(cl *class, slots int32) bool {
	return int64(slots) > c.eff-(c.minimums-cl.minimum)
}

// underCap reports whether the class's cap allows so many more slots.
func (cl *class) underCap(slots int32) bool {
	taken := cl.inUse + cl.pending
	return cl.cfg.MaxSlots <= 0 || taken == 0 || taken+int64(slots) <= cl.cfg.MaxSlots
}

// use books slots that the class takes (or gives back, if negative).
func (cl *class) use(c *Core, slots int64) {
	c.inUse += slots
	cl.inUse += slots
	if c.cfg.Lender != nil && slots != 0 {
		c.cfg.Lender.Use(c.time(c.last), slots)
	}
	if cl.minimum == 0 && cl.unused == 0 {
		return
	}
	unused := max(0, cl.minimum-cl.inUse)
	c.reserved += unused - cl.unused
	cl.unused = unused
}

// SetSlots changes the number of slots, or the most that are searched for. Calls in
// flight keep theirs.
func (c *Core) SetSlots(n int64) {
	c.most = max(n, 1)
	if c.cfg.Lender != nil {
		c.cfg.Lender.SetLimit(c.time(c.last), c.most)
	}
	if c.cfg.SearchSlots {
		c.setFoundSlots(min(c.found, float64(c.most)))
		return
	}
	c.limit, c.quotaSlots = c.most, c.most
	c.setShare(c.share)
	c.newRates()
}

// rounding makes up for parts of slots that do not add up to whole ones in binary.
const rounding = 1e-6

// setShare puts a part of the slots in force. The minimums shrink where they no
// longer leave a slot for everybody: a class without a minimum must not wait
// until the others hold nothing at all.
func (c *Core) setShare(share float64) {
	c.share = share
	c.eff = max(1, int64(float64(c.limit)*share+rounding))
	total := int64(0)
	for i := range c.classes {
		total += c.classes[i].cfg.MinSlots
	}
	room := c.eff
	for range 2 {
		least := int64(never)
		c.minimums = 0
		for i := range c.classes {
			cl := &c.classes[i]
			if cl.minimum = cl.cfg.MinSlots; total > room {
				cl.minimum = cl.cfg.MinSlots * room / total
			}
			c.minimums += cl.minimum
			least = min(least, cl.minimum)
		}
		if least > 0 || c.minimums < c.eff {
			break
		}
		room = c.eff - 1
	}
	for i := range c.classes {
		c.classes[i].use(c, 0)
	}
}

// Demand tells what the calls in line ask for; see [budget.Demand]. Next is valid
// until the call changes, Backlog until the next Demand.
func (c *Core) Demand(now time.Time, d *budget.Demand) {
	c.company()
	ns := c.at(now)
	backlog := d.Backlog[:0]
	*d = budget.Demand{BacklogSlots: max(0, min(c.waitSlot, c.eff-c.inUse))}
	for i := range c.classes {
		d.Flows += c.classes[i].active
	}
	shut := c.outage.closes(ns)
	for i := range c.dims {
		shut = shut || c.dims[i].closed(ns)
	}
	if shut {
		d.BacklogSlots = 0 // whatever is granted now could not be used
	}
	part := 0.0
	if c.waitSlot > 0 {
		part = float64(d.BacklogSlots) / float64(c.waitSlot)
	}
	for i := range c.dims {
		backlog = append(backlog, int64(float64(c.dims[i].queued)*part))
	}
	d.Backlog = backlog
	if len(c.chosen) > 0 && !shut {
		k := c.chosen[0]
		d.Next, d.Slots = c.costs(k), int64(k.slots)
	}
}

// SetLimit changes the units per window of a Dim; for one that was searched for,
// per Search.Window, and the search is over; before a sliding window what was taken in
// the last one counts. A waiting call that can no longer ever fit fails with the next
// Poll.
func (c *Core) SetLimit(now time.Time, i int, limit int64) {
	ns := c.at(now)
	d := &c.dims[i]
	before := d.Max()
	if d.search != nil {
		c.tell(now, ns, d, limit)
	} else {
		d.setLimit(now, limit)
	}
	c.newRates()
	c.unfit = c.unfit || d.Max() < before
	for r := range c.ceilings() {
		r.setLimit(now, i, limit)
		c.unpark(r)
	}
}

// failUnfit ends the wait of the calls that no longer ever fit, in order of
// arrival. Wherever in line they are, they would block it.
func (c *Core) failUnfit() {
	c.unfit = false
	var unfit []*call
	for k := range c.waiters() {
		if c.tooLarge(k) >= 0 {
			unfit = append(unfit, k)
		}
	}
	slices.SortFunc(unfit, func(a, b *call) int { return cmp.Compare(a.seq, b.seq) })
	for _, k := range unfit {
		c.fail(k, true)
	}
}
