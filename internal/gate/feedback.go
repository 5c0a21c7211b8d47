package gate

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// Constants of the answer to throttling; measured in simulations of clients
// that share a quota without knowing of each other.
const (
	cutFactor  = 0.7                   // one cut of a rate or of the slots
	minShare   = 0.25                  // a rate is never cut below this part of its limit, over the replicas
	recovery   = 600 * time.Second     // a whole limit is regained in this time, additively
	recoverBit = int64(recovery) / 100 // shares are looked at in steps of 1 %
)

// dim is a Dim with its state.
type dim struct {
	budget.Limiter
	try      tryTaker            // the same limiter, or nil
	bucket   *budget.TokenBudget // the same limiter, or nil
	revise   reviser             // the same limiter, or nil
	timeless bool                // settling what was held takes no time into account
	window   time.Duration       // of the limiter
	span     time.Duration       // of the provider; the same, unless the limit was searched for

	shut   bool  // closed, or half-open after that
	until  int64 // closed until then
	probe  *call // the one call that is let through while half-open
	opened int64 // when the count of closed time was last brought up to date
	total  int64 // closed time in nanoseconds

	headroom float64 // part of the limit that is used at most
	told     float64 // the same, once a limit is told that nobody had told before
	share    float64 // part of that in force
	lastCut  int64   // when it was cut; -1 is never
	uncut    float64 // share before the cuts that came one upon the other, up to the last
	cutFrom  int64   // when the first of those came
	looked   int64   // when share was last raised
	queued   int64   // units that waiting calls ask for
	search   *search // nil if the limit is known
}

// tryTaker is a limiter that can take what fits in one step.
type tryTaker interface {
	TryTake(now time.Time, cost int64) (budget.Hold, bool)
}

// tryTake takes cost if it fits now.
func (d *dim) tryTake(now time.Time, cost int64) (hold budget.Hold, ok bool) {
	switch {
	case d.bucket != nil:
		return d.bucket.TryTake(now, cost)
	case d.try != nil:
		return d.try.TryTake(now, cost)
	}
	if ok, _ = d.Fits(now, cost); ok {
		hold = d.Take(now, cost)
	}
	return hold, ok
}

func (d *dim) init(cfg Dim) {
	*d = dim{Limiter: cfg.Limiter, window: cfg.Window, span: cfg.Window, headroom: cfg.Headroom, share: 1, lastCut: -1}
	d.bucket, d.timeless = cfg.Limiter.(*budget.TokenBudget)
	d.try, _ = cfg.Limiter.(tryTaker)
	d.revise, _ = cfg.Limiter.(reviser)
	if cfg.Search != nil {
		d.headroom, d.told = 1, cfg.Headroom
		d.initSearch(cfg.Search)
		return
	}
	if !(d.headroom > 0 && d.headroom < 1) {
		d.headroom = 1
		return
	}
	d.Scale(time.Time{}, d.headroom)
}

// closed reports whether the budget is closed for everybody.
func (d *dim) closed(ns int64) bool { return d.shut && ns < d.until }

// CloseBudget closes a Dim for every caller until the given instant. After it
// the Dim is half-open: it lets one call through at a time until Succeeded.
// Closing it again can only lengthen the time. A call that was let through
// before that has nothing to say about it.
func (c *Core) CloseBudget(now time.Time, i int, until time.Time) {
	ns := c.at(now)
	d := &c.dims[i]
	at := c.later(now, until)
	d.count(ns)
	if at > ns {
		d.probe = nil
	}
	if !d.shut {
		d.shut, d.until = true, at
	}
	d.until = max(d.until, at)
	d.opened = ns
}

// count brings the total of closed time up to date.
func (d *dim) count(ns int64) {
	if d.shut && d.opened < d.until {
		d.total += min(ns, d.until) - d.opened
		d.opened = min(ns, d.until)
	}
}

// Succeeded tells that the provider has begun to answer the call: the Dims for
// which it was the probe open again, an outage is over, and a cut of the slots
// recovers by one slot per limit's worth of successes, or by one with each while
// an outage is recovered from. Telling it again changes nothing.
func (c *Core) Succeeded(now time.Time, id ID) {
	k := id.running()
	if k == nil || k.is(answered) {
		return
	}
	ns := c.at(now)
	for i := range c.dims {
		d := &c.dims[i]
		if d.probe == k {
			d.count(ns)
			d.shut, d.probe = false, nil
			if d.search != nil {
				d.dry(now, k, i, 0)
			}
		}
		if cost := c.costs(k)[i]; d.search != nil && cost > 0 {
			c.grow(now, ns, i, float64(cost))
		}
	}
	slow := c.share >= c.outage.regain && !c.outage.shut
	if c.isAnswered(k); slow && c.share < 1 {
		c.setShare(min(1, c.share+1/(float64(c.eff)*float64(c.limit))))
	}
	if c.cfg.SearchSlots {
		c.company()
		c.slotsFound(k)
	}
}

// Cut answers a refusal by cutting the rate of a Dim. A call that was sent
// before the last cut has nothing new to say: a burst of refusals is one cut. Of a
// limit that is searched for it returns how often calls were refused, one after the
// other with none served in between, where that is too often to go on like that:
// the shell should close it for a while, the longer, the more often. Otherwise it
// returns 0.
func (c *Core) Cut(now time.Time, id ID, i int) (row int) {
	k := id.running()
	if k == nil {
		return 0
	}
	ns := c.at(now)
	d := &c.dims[i]
	if d.search != nil {
		return c.cutFound(now, ns, k, i)
	}
	if k.flight.started <= d.lastCut {
		return 0
	}
	if d.lastCut < 0 || ns-d.lastCut > int64(d.window) {
		d.uncut, d.cutFrom = d.share, ns
	}
	d.share = max(min(d.share, minShare/float64(c.replicas)), d.share*cutFactor)
	d.lastCut, d.looked = ns, ns
	d.Scale(now, d.headroom*d.share)
	c.rescale = min(c.rescale, ns+recoverBit)
	return 0
}

// explained takes the last cuts of a Dim back: a call that was in flight when the
// first of them came takes much more than was thought, and that is why calls were
// refused.
func (c *Core) explained(now time.Time, i int, fl *flight) {
	d := &c.dims[i]
	if d.share < d.uncut && fl.started <= d.cutFrom {
		if d.search != nil {
			c.setFound(now, i, d.uncut*d.search.most)
			return
		}
		d.share = d.uncut
		d.Scale(now, d.headroom*d.share)
	}
}

// CutSlots answers an overloaded provider by cutting the slots, once per epoch
// like Cut.
func (c *Core) CutSlots(now time.Time, id ID) {
	k := id.running()
	if k == nil || k.flight.started <= c.lastCut || c.outage.shut {
		return
	}
	c.lastCut = c.at(now)
	if c.outage.refusals == 0 {
		c.outage.regain *= cutFactor
	}
	c.setShare(math.Max(c.share*cutFactor, 1/float64(c.limit)))
}

// recover raises the shares that were cut, additively.
func (c *Core) recover(now time.Time, ns int64) {
	c.rescale = never
	for i := range c.dims {
		d := &c.dims[i]
		if d.share >= 1 || d.search != nil {
			continue
		}
		d.share = min(1, d.share+float64(ns-d.looked)/float64(recovery))
		d.looked = ns
		d.Scale(now, d.headroom*d.share)
		if d.share < 1 {
			c.rescale = ns + recoverBit
		}
	}
}
