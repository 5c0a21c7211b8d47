package gate

import (
	"math"
	"time"
)

// toldBurst is the part of a limit that was told after all which a bucket holds
// before a sliding window: with the rest for its rate no window has more than all.
const toldBurst = 25

// tell ends the search for the limit of a Dim, because it is told after all.
func (c *Core) tell(now time.Time, ns int64, d *dim, limit int64) {
	s := d.search
	if d.headroom = d.told; !(d.headroom > 0 && d.headroom < 1) {
		d.headroom = 1
	}
	paced := s.Sliding && d.bucket != nil
	if paced {
		d.headroom *= 1 - 1.0/toldBurst
		d.bucket.SetBurst(now, int64(s.most)/toldBurst)
	}
	d.search = nil
	d.share, d.lastCut = 1, -1
	c.searching = c.cfg.SearchSlots
	for i := range c.dims {
		c.searching = c.searching || c.dims[i].search != nil
	}
	d.setLimit(now, limit)
	if paced && limit > 0 {
		d.owe(now, s.taken.level(ns, float64(limit)*d.headroom, max(float64(limit)/toldBurst, 1)))
	}
}

// setLimit puts a limit of the provider in force.
func (d *dim) setLimit(now time.Time, limit int64) {
	d.SetLimit(now, d.ofLimiter(limit))
	d.Scale(now, d.headroom*d.share)
}

// owe takes from a limiter what it has above a level.
func (d *dim) owe(now time.Time, level float64) {
	if more := d.Level(now) - int64(math.Floor(level+rounding)); more > 0 {
		d.Settle(now, d.Take(now, more), more)
	}
}

// takenCells is into how many cells the last window is divided.
const takenCells = 60

// taken is what calls have taken in the last window, by when they started. It is kept
// while a limit is searched for, so that a limit that is told then can go by it.
type taken struct {
	cell  int64 // ns
	last  int64 // the number of the newest cell
	units [takenCells + 1]float64
}

func newTaken(window time.Duration) taken { return taken{cell: max(int64(window)/takenCells, 1)} }

// took books what a call takes that starts now.
func (c *Core) took(ns int64, costs []int64) {
	for i, cost := range costs {
		if s := c.dims[i].search; s != nil && cost > 0 {
			s.taken.add(ns, float64(cost))
		}
	}
}

// add books units, or takes back some of those, of a call that started at ns. What is
// older than a window is forgotten.
func (p *taken) add(ns int64, units float64) {
	n := ns / p.cell
	p.pass(n)
	if p.last-n <= takenCells {
		p.units[n%int64(len(p.units))] += units
	}
}

// pass goes on to a cell.
func (p *taken) pass(n int64) {
	for p.last = max(p.last, n-int64(len(p.units))); p.last < n; {
		p.last++
		p.units[p.last%int64(len(p.units))] = 0
	}
}

// level is what a bucket that refills by perWindow, and holds most, would have now: it
// has been full a window ago, and what was taken since then was taken at the end of each
// cell. So no window that ends later has more than most and perWindow together. It lacks
// at most what comes back in a window, for then all that was taken has left the
// provider's.
func (p *taken) level(ns int64, perWindow, most float64) float64 {
	p.pass(ns / p.cell)
	rate := perWindow / (takenCells * float64(p.cell))
	level := most
	for n := max(p.last-takenCells, 0); n <= p.last; n++ {
		passed := min((n+1)*p.cell, ns) - n*p.cell
		level = min(level+rate*float64(passed), most) - p.units[n%int64(len(p.units))]
	}
	return max(level, -perWindow)
}
