package gate

import "time"

// outageAfter is the number of refusals by an overloaded provider, one after the
// other and nothing answered in between, after which it counts as down.
const outageAfter = 5

// outage is what is known of a provider that is down. Cutting the slots does not
// reach below one call at a time, and where every call is refused at once, one
// after the other would use up its attempts. So calls wait, and one at a time
// tries.
type outage struct {
	shut  bool  // the gate is paused, or half-open after that
	until int64 // paused until then
	probe *call // the one call that is let through while half-open
	tried int64 // when it was

	refusals int     // in a row, one for each epoch
	from     int64   // when the first of them came
	last     int64   // and the last
	whole    float64 // share of the slots in force before they were cut

	// regain is a share of the slots that was in force before the provider was
	// found to be down. That has nothing to do with how many calls there were, so
	// up to it every answer gives a slot back: as many again with every round.
	regain float64
}

// probePatience is how long a probe that is not answered keeps the next one back.
const probePatience = int64(30 * time.Second)

// closes reports whether no call may start.
func (o *outage) closes(ns int64) bool { return o.shut && ns < o.opens() }

// opens is when a call may try.
func (o *outage) opens() int64 {
	if o.probe != nil {
		return max(o.until, o.tried+probePatience)
	}
	return o.until
}

// Overloaded counts a refusal by an overloaded provider, before CutSlots does. A
// call that was sent before the last one has nothing new to say. It returns 0
// while the provider may be up; then, how often it was found to be down: the
// shell should pause the gate the longer, the more often.
func (c *Core) Overloaded(now time.Time, id ID) int {
	k := id.running()
	if k == nil {
		return 0
	}
	o := &c.outage
	ns := c.at(now)
	if o.refusals > 0 && k.flight.started <= o.last {
		return 0
	}
	if o.refusals == 0 {
		o.from, o.whole = ns, max(c.share, o.regain)
		o.regain *= cutFactor
	}
	o.last = ns
	o.refusals++
	return max(0, o.refusals-outageAfter+1)
}

// Answered tells that the provider has answered the call, though not with what
// was asked for: it is not down.
func (c *Core) Answered(id ID) {
	if k := id.running(); k != nil && !k.is(answered) {
		c.isAnswered(k)
	}
}

// Runs reports whether the call is in flight and was not settled.
func (c *Core) Runs(id ID) bool {
	k := id.running()
	return k != nil && !k.is(settled)
}

// Bounded reports whether the call has a deadline that the core knows.
func (c *Core) Bounded(id ID) bool {
	k := id.call()
	return k != nil && k.deadline != never
}

// Pause lets no call start until the given instant. After it one call at a time
// tries, until Succeeded or Answered is told of one that was sent since the
// refusals began. Pausing again can only lengthen the time.
func (c *Core) Pause(now time.Time, until time.Time) {
	ns := c.at(now)
	at := c.later(now, until)
	o := &c.outage
	if at > ns {
		o.probe = nil
	}
	if !o.shut {
		o.shut, o.until = true, at
		c.setShare(max(c.share, o.whole)) // a probe that hangs must not be all that may run
	}
	o.until = max(o.until, at)
}

// isAnswered takes note that the provider has answered k.
func (c *Core) isAnswered(k *call) {
	k.marks |= answered
	if o := &c.outage; o.refusals > 0 && k.flight.started > o.from {
		if o.shut {
			*o = outage{regain: o.whole}
			c.setShare(min(o.regain, float64(c.inUse)/float64(c.limit))) // no more than there are, to begin with
		} else {
			*o = outage{regain: o.regain}
		}
	}
	if c.share < c.outage.regain {
		c.setShare(min(1, c.share+1/float64(c.limit)))
	}
}
