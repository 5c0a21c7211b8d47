package gate

import (
	"math"
	"time"
)

// Stats is a snapshot of a Core.
type Stats struct {
	Slots     int64 // limit in force
	SlotLimit int64 // limit as configured or found
	InUse     int64
	Running   int
	Waiting   int
	Flows     int // that are remembered
	Classes   []ClassStats
	Dims      []DimStats
	Paused    time.Time // when a call may start again, if none may because the provider is down
}

// ClassStats is a snapshot of a class.
type ClassStats struct {
	InUse   int64
	Waiting int
	Flows   int // that are active
}

// DimStats is a snapshot of a limit.
type DimStats struct {
	Limit  int64 // units per window, as configured or found; at least 1 if it was found
	Share  float64
	Level  int64 // units that could be taken now; negative in debt
	Queued int64 // units that waiting calls ask for
	Closed time.Duration
	Until  time.Time // when it reopens, if it is closed
}

// Stats takes a snapshot.
func (c *Core) Stats(now time.Time) Stats {
	c.company()
	ns := c.at(now)
	s := Stats{
		Slots: c.eff, SlotLimit: c.limit, InUse: c.inUse, Running: c.running, Waiting: c.waiting,
		Classes: make([]ClassStats, len(c.classes)), Dims: make([]DimStats, len(c.dims)),
	}
	if c.outage.closes(ns) {
		s.Paused = c.time(c.outage.opens())
	}
	for i := range c.classes {
		cl := &c.classes[i]
		s.Flows += len(cl.flows)
		s.Classes[i] = ClassStats{InUse: cl.inUse, Waiting: cl.waiting, Flows: cl.active}
	}
	for i := range c.dims {
		d := &c.dims[i]
		d.count(ns)
		s.Dims[i] = DimStats{
			Limit: d.Limit(), Share: d.share, Level: d.Level(now), Queued: d.queued,
			Closed: time.Duration(d.total),
		}
		if d.search != nil && d.search.quota > 0 {
			s.Dims[i].Limit, s.Dims[i].Share = max(int64(math.Round(d.found())), 1), 1
		} else if d.search != nil || d.span != d.window {
			units, _ := d.quotaOf()
			s.Dims[i].Limit = int64(math.Round(units))
		}
		if d.closed(ns) {
			s.Dims[i].Until = c.time(d.until)
		}
	}
	return s
}

// ExpectedWait estimates how long a call of these slots and costs would wait if
// it arrived now and everybody before it went first: the longest of what the
// slots and each limit need for the line and the call. It is a forecast, not a
// bound: estimates may be settled lower, and a fair order may let it pass. It
// changes nothing.
func (c *Core) ExpectedWait(now time.Time, slots int32, costs []int64) time.Duration {
	ns := c.at(now)
	wait := c.shut(ns, costs)
	inUse := c.inUse
	if c.lone != nil {
		inUse += int64(c.lone.slots) // it is not booked; see company
	}
	free := c.eff - inUse
	lent := c.cfg.Lender != nil && len(c.chosen) > 0 && c.chosen[0].flow.claim&slotsBit != 0
	if lent {
		free = 0 // others have them
	}
	if over := float64(c.waitSlot + int64(slots) - free); over > 0 && (inUse > 0 || lent) {
		wait = max(wait, over/float64(c.eff)*c.holdTime)
	}
	if f, ok := c.cfg.Lender.(forecaster); ok {
		wait = max(wait, float64(f.Forecast(now, c.waitSlot+int64(slots))))
	}
	for i := range c.dims {
		d := &c.dims[i]
		if i >= len(costs) || costs[i] <= 0 {
			continue
		}
		if f, ok := d.Limiter.(forecaster); ok {
			wait = max(wait, float64(f.Forecast(now, d.queued+costs[i])))
			continue
		}
		rate := float64(d.Limit()) * d.headroom * d.share / float64(d.window)
		ok, at := d.Fits(now, costs[i])
		if !ok && !at.IsZero() {
			wait = max(wait, float64(at.Sub(now)))
			if d.queued == 0 {
				continue // nobody is before it: the limiter knows when
			}
		}
		if deficit := float64(d.queued) + float64(costs[i]) - float64(d.Level(now)); deficit > 0 && rate > 0 {
			wait = max(wait, deficit/rate)
		}
	}
	return time.Duration(min(math.Ceil(wait), float64(horizon))) // who must wait does not wait 0
}

// forecaster is a limiter that knows better than its level and its limit tell how
// long it takes until so many units may have been taken; or a lender of slots.
type forecaster interface {
	Forecast(now time.Time, units int64) time.Duration
}

// ShutFor is the part of ExpectedWait that holds for every call of such costs,
// whatever its place in line: the provider is down, a hint has closed a limit, or the
// store of a shared quota does not answer.
func (c *Core) ShutFor(now time.Time, costs []int64) time.Duration {
	wait := c.shut(c.at(now), costs)
	if s, ok := c.cfg.Lender.(silencer); ok {
		wait = max(wait, float64(s.Silence(now, 1)))
	}
	for i := range c.dims {
		if s, ok := c.dims[i].Limiter.(silencer); ok && i < len(costs) && costs[i] > 0 {
			wait = max(wait, float64(s.Silence(now, costs[i])))
		}
	}
	return time.Duration(min(math.Ceil(wait), float64(horizon)))
}

// silencer is a limiter whose units, or a lender whose slots, come from a store. Silence
// is how long it will take, most likely, until the store answers, if it does not, and so
// many are not at hand.
type silencer interface {
	Silence(now time.Time, units int64) time.Duration
}

// Silence is the longest of any limiter's, for calls that take more than is at hand.
func (c *Core) Silence(now time.Time) (longest time.Duration) {
	if s, ok := c.cfg.Lender.(silencer); ok {
		longest = s.Silence(now, math.MaxInt64)
	}
	for i := range c.dims {
		if s, ok := c.dims[i].Limiter.(silencer); ok {
			longest = max(longest, s.Silence(now, math.MaxInt64))
		}
	}
	return longest
}

// shut is ShutFor in nanoseconds. Of a limit that is half-open nobody knows when
// its probe will be answered: most likely when it has taken as long as others, and
// after that, if it takes half as long again.
func (c *Core) shut(ns int64, costs []int64) (wait float64) {
	if o := &c.outage; o.closes(ns) {
		wait = float64(o.opens() - ns)
	}
	for i := range c.dims {
		d := &c.dims[i]
		switch {
		case i >= len(costs) || costs[i] <= 0 || !d.shut:
		case ns < d.until:
			wait = max(wait, float64(d.until-ns))
		case d.probe != nil:
			taken := float64(ns - d.probe.flight.started)
			wait = max(wait, c.holdTime-taken, taken/2)
		}
	}
	return wait
}

// HoldTime is the moving average of the time that a call holds its slots.
func (c *Core) HoldTime() time.Duration { return time.Duration(c.holdTime) }

// Waiting is the number of calls that wait.
func (c *Core) Waiting() int { return c.waiting }

// Running is the number of calls in flight.
func (c *Core) Running() int { return c.running }
