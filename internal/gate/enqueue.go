package gate

import (
	"slices"
	"time"
)

// Enqueue takes a call in. If it can start at once, granted is true. Otherwise
// it waits, and the caller must call Poll, which may start it at the same
// instant. A refusal leaves no trace.
func (c *Core) Enqueue(now time.Time, s Spec) (id ID, granted bool, refused Refusal) {
	c.company()
	ns := c.at(now)
	if ns >= c.rescale {
		c.recover(now, ns)
	}
	cl := &c.classes[0]
	if c.cfg.FIFO {
		s.Flow, s.FlowWeight = "", 0
	} else {
		cl = &c.classes[s.Class]
	}
	k := c.newCall()
	c.seq++
	k.seq, k.slots, k.deadline, k.need = c.seq, s.Slots, never, slotsBit
	if !s.Deadline.IsZero() {
		k.deadline = c.later(now, s.Deadline)
	}
	if c.searching {
		c.meet(now, s.Costs)
	}
	costs := c.costs(k)
	for i, cost := range s.Costs {
		costs[i] = max(cost, 0)
		if cost > 0 {
			k.need |= dimBit(i)
		}
	}
	if c.plain && c.waiting == 0 && k.deadline >= ns && cl.underCap(k.slots) && c.lacks(now, ns, cl, k) == 0 {
		c.join(k, cl, &s)
		c.start(now, ns, k, nil)
		return ID{k, k.gen}, true, Refusal{}
	}
	if refused = c.refuse(now, ns, k, s.Deadline); refused.Err != nil {
		c.recycle(k)
		return ID{}, false, refused
	}
	if k.deadline != never {
		c.timers.push(timer{k.deadline, k})
	}
	c.join(k, cl, &s)
	c.countWaiting(k, 1)
	c.enqueue(k)
	return ID{k, k.gen}, false, Refusal{}
}

// refuse reports why k should not even wait.
func (c *Core) refuse(now time.Time, ns int64, k *call, deadline time.Time) Refusal {
	if i := c.tooLarge(k); i >= 0 {
		return Refusal{Err: ErrNever, Dim: i}
	}
	if !deadline.IsZero() {
		at, dim := c.earliest(now, ns, k)
		switch {
		case k.deadline < ns:
			return Refusal{Err: ErrDeadline, Dim: dim, At: at}
		case at.After(deadline):
			return Refusal{Err: ErrTooLate, Dim: dim, At: at}
		}
	}
	if c.cfg.MaxWaiting > 0 && c.waiting >= c.cfg.MaxWaiting {
		return Refusal{Err: ErrFull, Dim: -1}
	}
	return Refusal{}
}

// tooLarge is a Dim in which k can never fit, or -1.
func (c *Core) tooLarge(k *call) int {
	for i, cost := range c.costs(k) {
		if cost > c.dims[i].Max() {
			return i
		}
	}
	return -1
}

// earliest is the instant before which k cannot start even if every hold were
// refunded, every slot came back and every cut were taken back now.
func (c *Core) earliest(now time.Time, ns int64, k *call) (at time.Time, dim int) {
	at, dim = now, -1
	for i, cost := range c.costs(k) {
		if k.need&dimBit(i) == 0 {
			continue
		}
		d := &c.dims[i]
		t, ok := d.earliest(now, cost)
		if !ok {
			continue
		}
		if d.closed(ns) {
			t = laterOf(t, now.Add(time.Duration(d.until-ns)))
		}
		if t.After(at) {
			at, dim = t, i
		}
	}
	return at, dim
}

// earliest is the instant before which cost cannot fit even if every hold were
// refunded and every cut were taken back now. A limit that nobody has told may be
// any.
func (d *dim) earliest(now time.Time, cost int64) (time.Time, bool) {
	switch {
	case d.search != nil:
		return now, true
	case d.share >= 1:
		return d.Earliest(now, cost)
	}
	d.Scale(now, d.headroom) // a cut recovers meanwhile
	t, ok := d.Earliest(now, cost)
	d.Scale(now, d.headroom*d.share)
	return t, ok
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// countWaiting books a call that starts or stops waiting.
func (c *Core) countWaiting(k *call, sign int) {
	c.waiting += sign
	c.waitSlot += int64(sign) * int64(k.slots)
	k.flow.class.waiting += sign
	for i, cost := range c.costs(k) {
		c.dims[i].queued += int64(sign) * min(cost, maxQueued)
	}
}

// maxQueued bounds what one waiting call adds to the forecast, so that a
// hundred thousand absurd ones do not overflow.
const maxQueued = 1 << 44

// Cancel takes a waiting call out, without a trace. It reports false if the
// call is not waiting: it was granted meanwhile, or has ended.
func (c *Core) Cancel(now time.Time, id ID) bool {
	k := id.call()
	if k == nil || k.state == stateRunning || k.state == stateFailed {
		return false
	}
	c.at(now)
	c.remove(k)
	c.leave(k)
	c.recycle(k)
	return true
}

// remove takes a waiting call out of wherever it waits.
func (c *Core) remove(k *call) {
	c.countWaiting(k, -1)
	c.unlink(k)
	if k.timer > 0 {
		c.timers.remove(int(k.timer - 1))
	}
}

// unlink takes a waiting call out of its queue.
func (c *Core) unlink(k *call) {
	f := k.flow
	switch k.state {
	case stateQueued:
		first := f.queue.head == k
		f.queue.remove(k)
		if first {
			f.class.headChanged(f)
		}
	case stateChosen:
		c.unclaim(slices.Index(c.chosen, k))
		f.class.headChanged(f)
	case stateParked:
		k.request().parked.remove(k)
	}
}

// enqueue puts a call into its flow's queue, by its first sequence number.
func (c *Core) enqueue(k *call) {
	k.state = stateQueued
	f := k.flow
	f.queue.insert(k)
	if f.queue.head == k {
		f.class.headChanged(f)
	}
}
