package gate

import (
	"math"
	"time"
)

// never is a time in nanoseconds that does not come.
const never = math.MaxInt64

// horizon is the last reading of a clock: 146 years.
const horizon = never / 2

// inversion is the largest step backwards that is taken for two callers that
// read the clock in one order and came here in the other. It counts as no time.
const inversion = int64(time.Second)

// clock turns instants into nanoseconds since the first one, and never runs
// backwards.
//
// A larger step backwards is followed: time goes on from where it was, or
// deadlines and closed budgets would stand still until the old instant comes
// round again. The old instant, the peak, is remembered: who comes back to it
// gets only the time beyond it, less what was counted since the step. So
// neither a step nor its undoing, nor a caller whose clock lags behind the
// others', makes time out of nothing. A step that lasts pays for that once: where
// it comes past the peak, the time since the clock was last asked may be lost, at
// most the length of the step.
type clock struct {
	base    time.Time // the instant of reading 0, as seen from the last reading
	last    int64     // the last reading
	until   int64     // a reading below it, and not below last, needs a subtraction only
	peak    time.Time // the latest instant before a step backwards; zero if there was none
	stepped int64     // the reading at that step
}

// at is the reading for an instant.
func (c *clock) at(now time.Time) int64 {
	if ns := int64(now.Sub(c.base)); ns >= c.last && ns < c.until {
		c.last = ns
		return ns
	}
	return c.turn(now)
}

// turn is at for the first instant, for one behind the last, and for all
// between a step backwards and its end.
func (c *clock) turn(now time.Time) int64 {
	if c.base.IsZero() {
		c.base = now
	}
	ns := c.step(now)
	c.until = 0
	if c.peak.IsZero() {
		c.until = horizon
	}
	return ns
}

func (c *clock) step(now time.Time) int64 {
	if !c.peak.IsZero() {
		if beyond := int64(now.Sub(c.peak)); beyond >= -inversion {
			beyond = max(beyond, 0)
			more := min(beyond, horizon) - (c.last - c.stepped)
			c.last = min(c.last+max(0, more), horizon)
			c.base = c.peak.Add(time.Duration(beyond - c.last))
			c.peak = time.Time{}
			return c.last
		}
	}
	switch ns := min(int64(now.Sub(c.base)), horizon); {
	case ns > c.last:
		c.last = ns
	case ns < c.last-inversion:
		if c.peak.IsZero() {
			c.peak, c.stepped = c.time(c.last), c.last
		}
		c.base = now.Add(-time.Duration(c.last))
	}
	return c.last
}

// time is the instant of a reading, as seen from the last one.
func (c *clock) time(ns int64) time.Time { return c.base.Add(time.Duration(ns)) }

// reading is the reading at an instant that a limiter has named.
func (c *clock) reading(t time.Time) int64 { return int64(t.Sub(c.base)) }

// later is the reading at which an instant comes that the caller names beside
// its own now: as far ahead as the caller sees it, however its clock goes.
func (c *clock) later(now, t time.Time) int64 {
	d := int64(t.Sub(now))
	if d > never-c.last {
		return never
	}
	return c.last + d
}
