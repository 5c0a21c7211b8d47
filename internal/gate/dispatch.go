package gate

import (
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// lacks is the set of resources that k, a call of the given class, needs and
// cannot have now.
func (c *Core) lacks(now time.Time, ns int64, cl *class, k *call) resources {
	var lack resources
	if c.outage.closes(ns) || !c.slotsFit(now, cl, k.slots) {
		lack = slotsBit
	}
	costs := c.costs(k)
	for i := range c.dims {
		if costs[i] <= 0 {
			continue
		}
		d := &c.dims[i]
		if d.shut && (ns < d.until || d.probe != nil) {
			lack |= dimBit(i)
		} else if ok, _ := d.Fits(now, costs[i]); !ok {
			lack |= dimBit(i)
		}
	}
	return lack
}

// when is the instant from which on the Dims allow k, as far as time alone
// decides; never if something else must happen first.
func (c *Core) when(now time.Time, ns int64, k *call) int64 {
	at := int64(math.MinInt64) // a limiter's clock may differ from ours
	if o := &c.outage; o.closes(ns) {
		at = o.opens()
	}
	if !c.slotsFit(now, k.flow.class, k.slots) {
		return never
	}
	costs := c.costs(k)
	for i := range c.dims {
		if costs[i] <= 0 {
			continue
		}
		d := &c.dims[i]
		if d.shut && ns >= d.until && d.probe != nil {
			return never
		}
		if ok, t := d.Fits(now, costs[i]); !ok {
			if t.IsZero() {
				return never
			}
			at = max(at, c.reading(t))
		}
		if d.closed(ns) {
			at = max(at, d.until)
		}
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
	c.grants, c.failed = emptied(c.grants), emptied(c.failed)
	c.wake(ns)
	if c.waiting == 0 {
		c.unfit = false
		return nil, nil, time.Time{}
	}
	if ns >= c.rescale {
		c.recover(now, ns)
	}
	if c.unfit {
		c.failUnfit()
	}
	c.expire(ns)
	at := c.dispatch(now, ns)
	for c.expireNow(ns) {
		at = c.dispatch(now, ns) // what they claimed is free
	}
	if c.timers.len() > 0 {
		at = min(at, c.timers.items[0].at)
	}
	if c.wakes.len() > 0 {
		at = min(at, c.wakes.items[0].wakeAt)
	}
	if o := &c.outage; o.closes(ns) {
		at = min(at, o.opens()) // who waits for more than that keeps nobody else waiting then
	}
	if len(c.chosen) > 0 {
		at = min(at, c.rescale) // a cut that recovers raises what fits
	}
	if at == never || c.waiting == 0 {
		return c.grants, c.failed, time.Time{}
	}
	return c.grants, c.failed, c.time(at)
}

// emptied is a list to be filled again, or a new one if a burst has made it large.
func emptied[T any](list []T) []T {
	if cap(list) > maxFree {
		return nil
	}
	return list[:0]
}

// expire handles the timers that are due: a backoff that is over goes back into
// its queue, a deadline that has passed ends the wait. A deadline that is right
// now does not: the call may still start.
func (c *Core) expire(ns int64) {
	for c.timers.len() > 0 && c.timers.items[0].at <= ns {
		t := c.timers.items[0]
		k := t.call
		switch {
		case k.state == stateBacking && t.at < k.deadline && ns <= k.deadline:
			c.timers.remove(0)
			c.comeBack(k)
			if k.deadline != never {
				c.timers.push(timer{k.deadline, k})
			}
		case k.state == stateBacking || t.at < ns:
			c.fail(k, false)
		default:
			return
		}
	}
}

// comeBack puts a call whose backoff is over into its queue. If a later call of
// its flow was chosen meanwhile, that one is not the flow's next any more.
func (c *Core) comeBack(k *call) {
	f := k.flow
	if o := f.chosen; o != nil && o.seq > k.seq {
		c.unclaim(slices.Index(c.chosen, o))
		c.enqueue(o)
	}
	c.enqueue(k)
	f.class.headChanged(f)
}

// expireNow ends the wait of the calls whose deadline is now and that could not
// start. It reports whether there were any.
func (c *Core) expireNow(ns int64) (any bool) {
	for c.timers.len() > 0 && c.timers.items[0].at <= ns {
		c.fail(c.timers.items[0].call, false)
		any = true
	}
	return any
}

// fail ends the wait of k and reports it with the next answer of Poll.
func (c *Core) fail(k *call, never bool) {
	dim := -1
	if never {
		dim = c.tooLarge(k)
	} else if k.state == stateChosen {
		for i := range c.dims {
			if k.flow.claim&dimBit(i) != 0 {
				dim = i
				break
			}
		}
	}
	c.end(k)
	c.failed = append(c.failed, Failure{ID: ID{k, k.gen}, Dim: dim, Never: never})
}

// end ends the wait of k.
func (c *Core) end(k *call) {
	c.remove(k)
	c.leave(k)
	k.state = stateFailed
}

// pass is the state of one walk over the line.
type pass struct {
	claimed  resources // by calls that were chosen and lack something
	claimers uint64    // the classes of those that claim slots; all if one must run alone
	skipped  uint64    // the classes that a bound of their own blocks
	kept     bool      // a chosen call was left waiting
	stale    bool      // something was granted after that: it may lack more now
}

// blocks reports whether k needs what was claimed before it. A class may use
// the slots of its own minimum past a claim of others: they are not for them.
func (p *pass) blocks(k *call) bool {
	b := k.need & p.claimed
	return b != 0 && (b != slotsBit || !p.reserve(k.flow.class, k.slots))
}

// reserve reports whether the class has so many slots of its minimum that no
// claim covers.
func (p *pass) reserve(cl *class, slots int32) bool {
	return p.claimers&cl.bit == 0 && int64(slots) <= cl.unused
}

// dispatch starts calls in fair order. Those that were chosen before and lacked
// something come first: they keep their claim, so that a large call is not
// starved by small ones. A head that lacks a resource is chosen in turn and
// blocks only heads that need a resource which it claims. It returns the next
// instant at which time alone lets a chosen call start.
func (c *Core) dispatch(now time.Time, ns int64) (next int64) {
	for again := true; again; {
		granted := len(c.grants)
		var p pass
		c.serveChosen(now, ns, &p)
		c.serveHeads(now, ns, &p)
		// A chosen call that was looked at before a grant may lack more after it,
		// or be over the ceiling of a request that was served in another flow.
		again = p.stale || !c.plain && len(c.grants) > granted
	}
	return c.nextStart(now, ns)
}

// serveChosen starts what it can of the calls that have a claim.
func (c *Core) serveChosen(now time.Time, ns int64, p *pass) {
	for i := 0; i < len(c.chosen); {
		k := c.chosen[i]
		if !c.plain && c.overCeiling(now, k) {
			c.unclaim(i) // back into its flow, without a claim
			c.enqueue(k)
			k.flow.class.headChanged(k.flow) // though an older call may be ahead of it
			continue
		}
		blocked := p.blocks(k)
		fl, lack := c.take(now, ns, k, blocked)
		if lack == 0 && !blocked {
			c.unclaim(i)
			c.grant(now, ns, k, fl)
			p.stale = p.kept
			continue
		}
		p.kept = true
		k.flow.claim = k.flow.claim&^slotsBit | lack
		c.claim(p, k)
		i++
	}
}

// serveHeads starts what it can of the others, and chooses those that lack
// something.
func (c *Core) serveHeads(now time.Time, ns int64, p *pass) {
	for {
		f := c.pick(p)
		if f == nil {
			return
		}
		k, cl := f.queue.head, f.class
		if !c.plain && c.setAside(now, k) {
			continue
		}
		if !cl.underCap(k.slots) || p.blocks(k) {
			p.skipped |= cl.bit
			continue
		}
		fl, lack := c.take(now, ns, k, false)
		f.queue.remove(k)
		if lack == 0 {
			c.grant(now, ns, k, fl)
			p.stale = p.kept
			continue
		}
		p.kept = true
		k.state, k.flow.claim = stateChosen, lack
		f.chosen = k
		cl.pending += int64(k.slots)
		cl.headChanged(f)
		c.chosen = append(c.chosen, k)
		c.claim(p, k)
		p.skipped = 0 // a class may have another next call that needs none of that
	}
}

// claim books what a chosen call claims: what it lacks now, and every unit that
// it lacked before, or two limits that are full in turn would starve it. Slots
// need no such memory: every call needs them, so it gets them in its turn.
func (c *Core) claim(p *pass, k *call) {
	p.claimed |= k.flow.claim
	if k.flow.claim&slotsBit != 0 {
		p.claimers |= k.flow.class.bit
		if c.alone(k.flow.class, k.slots) {
			p.claimers = ^uint64(0)
		}
	}
}

// nextStart is the next instant at which time alone lets a chosen call start.
func (c *Core) nextStart(now time.Time, ns int64) int64 {
	next := int64(never)
	var p pass
	for _, k := range c.chosen {
		if !p.blocks(k) {
			next = min(next, c.when(now, ns, k))
		}
		c.claim(&p, k)
	}
	return next
}

// unclaim takes the i-th chosen call out of the chosen ones.
func (c *Core) unclaim(i int) {
	k := c.chosen[i]
	copy(c.chosen[i:], c.chosen[i+1:])
	c.chosen[len(c.chosen)-1] = nil
	c.chosen = c.chosen[:len(c.chosen)-1]
	k.flow.claim = 0
	k.flow.chosen = nil
	k.flow.class.pending -= int64(k.slots)
}

// pick is the flow to be served next: the class with the least counter among
// those that have a candidate (the first of them, if they are even), then the
// flow with the least counter in it.
func (c *Core) pick(p *pass) *flow {
	var best *flow
	for i := range c.classes {
		cl := &c.classes[i]
		if cl.waiting == 0 || p.skipped&cl.bit != 0 || best != nil && cl.vt >= best.class.vt {
			continue
		}
		if p.claimed&slotsBit != 0 && !p.reserve(cl, 1) {
			continue
		}
		if f := cl.top(p.claimed &^ slotsBit); f != nil {
			best = f
		}
	}
	return best
}

// grant starts a call that waited and was taken out of its queue.
func (c *Core) grant(now time.Time, ns int64, k *call, fl *flight) {
	c.countWaiting(k, -1)
	if k.timer > 0 {
		c.timers.remove(int(k.timer - 1))
	}
	k.flow.class.headChanged(k.flow)
	c.start(now, ns, k, fl)
	c.grants = append(c.grants, ID{k, k.gen})
}

// take takes the units that k needs from every Dim, or none. It returns what k
// lacks; a nil flight beside nothing lacking means that the units are still to
// be taken.
func (c *Core) take(now time.Time, ns int64, k *call, blocked bool) (*flight, resources) {
	if !blocked && !c.outage.closes(ns) && c.slotsFit(now, k.flow.class, k.slots) {
		fl := c.newFlight()
		if _, ok := c.takeAll(now, fl.holds, c.costs(k)); ok {
			return fl, 0
		}
		fl.next, c.flights = c.flights, fl
	}
	return nil, c.lacks(now, ns, k.flow.class, k)
}

// start takes slots and units for k, all at once, and charges its flow. fl has
// the units, if they are taken already.
func (c *Core) start(now time.Time, ns int64, k *call, fl *flight) {
	if fl == nil {
		fl = c.newFlight()
		for i, cost := range c.costs(k) {
			fl.holds[i] = budget.Hold{}
			if d := &c.dims[i]; cost > 0 {
				fl.holds[i] = d.Take(now, cost)
				if d.shut {
					d.probe = k
				}
			}
		}
	}
	fl.started, fl.rates = ns, c.rates
	k.flight, k.state = fl, stateRunning
	if c.searching {
		c.took(ns, c.costs(k))
	}
	c.running++
	if c.outage.shut {
		c.outage.probe, c.outage.tried = k, ns
	}
	k.flow.class.use(c, int64(k.slots))
	if !c.plain {
		c.takeCeilings(now, k)
	}
	c.charge(k)
}
