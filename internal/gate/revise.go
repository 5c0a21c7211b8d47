package gate

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// reviser is a limiter that can replace a hold by one of another cost, where it
// stands.
type reviser interface {
	Revise(now time.Time, h budget.Hold, cost int64) budget.Hold
}

// revised replaces a hold.
func (d *dim) revised(now time.Time, h budget.Hold, cost int64) budget.Hold {
	if d.revise != nil {
		return d.revise.Revise(now, h, cost)
	}
	d.Settle(now, h, 0)
	return d.Take(now, cost)
}

// Revise changes the costs of a call that waits, or that runs and was not
// settled: they are expected to be others than was thought. In line it keeps its
// place, and what it claims, and a cost that could never fit is cut to what can:
// it is a forecast. In flight its holds and its charge follow, whether
// they fit or not. A cost of 0 stays 0, and others stay above. Call Poll
// afterwards. It reports false, with nothing changed, for all other calls.
func (c *Core) Revise(now time.Time, id ID, costs []int64) bool {
	c.company()
	k := id.call()
	if k == nil || k.state == stateFailed || k.state == stateRunning && k.is(settled) {
		return false
	}
	ns := c.at(now)
	if k.state == stateRunning {
		c.reviseRunning(now, k, costs)
		return true
	}
	c.countWaiting(k, -1)
	mine := c.costs(k)
	for i, cost := range costs {
		if mine[i] > 0 {
			mine[i] = max(min(cost, max(mine[i], c.dims[i].Max())), 1)
		}
	}
	c.countWaiting(k, 1)
	if c.plain {
		return true
	}
	switch f := k.flow; { // a ceiling may have room for it now
	case k.state == stateParked:
		c.wakeLater(k.request(), ns)
	case f.parked && f.queue.head == k:
		f.class.headChanged(f)
	}
	return true
}

// reviseRunning is Revise for a call in flight.
func (c *Core) reviseRunning(now time.Time, k *call, costs []int64) {
	fl, mine := k.flight, c.costs(k)
	for i, cost := range costs {
		if mine[i] <= 0 {
			continue
		}
		if over := cost - mine[i]; over > mine[i]/4 {
			c.explained(now, i, fl)
		}
		if s := c.dims[i].search; s != nil {
			s.taken.add(fl.started, float64(max(cost, 1))-float64(mine[i]))
		}
		mine[i] = max(cost, 1)
		fl.holds[i] = c.dims[i].revised(now, fl.holds[i], mine[i])
	}
	for j, r := range k.ceilings() {
		for i, b := range r.shares {
			if h := &fl.shares[j*len(c.dims)+i]; h.Cost() > 0 {
				*h = b.Revise(now, *h, mine[i])
			}
		}
		c.unpark(r) // there may be room for more
	}
	qns := fl.rates.charge(mine, float64(k.slots)*c.holdTime)
	c.recharge(k.flow, fl.charged, qns)
	fl.charged, fl.used = qns, qns
}

// lowerer is a limiter that can be told how much of it is left at most.
type lowerer interface {
	Lower(now time.Time, left int64, reset time.Duration)
}

// emptier is a limiter that makes something of a refusal.
type emptier interface {
	Emptied(now time.Time, h budget.Hold, left int64)
}

// Emptied tells that the provider has refused a call in flight for want of units
// of a Dim: it has less left than the call takes, and has counted what was taken
// before at its true cost. It does something only where the limiter is a bucket.
func (c *Core) Emptied(now time.Time, id ID, i int) {
	c.company()
	k := id.running()
	if k == nil || k.is(settled) {
		return
	}
	c.at(now)
	if d, ok := c.dims[i].Limiter.(emptier); ok && c.costs(k)[i] > 0 {
		d.Emptied(now, k.flight.holds[i], c.costs(k)[i]-1)
	}
}

// Lower tells that no more than left units of a Dim are left, and when all are
// back; 0 if that is not known. It never raises what is left.
func (c *Core) Lower(now time.Time, i int, left int64, reset time.Duration) {
	c.company()
	c.at(now)
	if d, ok := c.dims[i].Limiter.(lowerer); ok {
		d.Lower(now, left, reset)
	}
}
