package budget

import "time"

// inversion is the largest step backwards that is taken for two goroutines
// that read the clock in one order and took the lock in the other. Such a step
// counts as no time at all.
const inversion = time.Second

// horizon keeps readings far from overflow; a clock that comes to it (146
// years) moves its base.
const horizon = 1 << 62

// clock turns instants into the time that passed between them, and never runs
// backwards.
//
// A step backwards by more than the inversion is followed: time goes on from
// there, instead of standing still until the old instant comes round again. The
// old instant, the peak, is remembered, and who comes back to it gets only the
// time after it, less what was counted since the step. So neither the step nor
// its undoing makes time out of nothing, and no more does one caller whose clock
// lags behind the others'. The price is paid once by a lasting step: where it
// comes past the peak the clock loses the inversion, or the time since it was
// last asked, at most the length of the step.
//
// A step forwards from anywhere else counts as time: it cannot be told from a
// pause. Instants with a monotonic reading do not step.
type clock struct {
	base  time.Time
	last  int64 // the latest instant that counted, in nanoseconds after base
	until int64 // readings below it need no more than a subtraction; 0 before the first one

	stepped bool
	peak    time.Time // if stepped: the latest instant before the step backwards
	counted int64     // if stepped: nanoseconds counted between the step and base
}

// elapsed returns the nanoseconds that have passed since the previous call.
func (c *clock) elapsed(now time.Time) int64 {
	if ns := int64(now.Sub(c.base)); ns >= c.last && ns < c.until {
		d := ns - c.last
		c.last = ns
		return d
	}
	return c.turn(now)
}

// turn is elapsed for the first reading, for one that is behind the latest and
// for one that comes to the peak or to the horizon.
func (c *clock) turn(now time.Time) int64 {
	latest := c.after(0)
	switch d := now.Sub(latest); {
	case c.until == 0: // the first one
		c.move(now)
	case c.stepped && now.Sub(c.peak) >= -inversion:
		beyond := max(now.Sub(c.peak), 0)
		d := max(int64(beyond)-c.sinceStep(), 0)
		c.stepped = false
		c.move(c.peak.Add(beyond))
		return d
	case d >= 0: // to the horizon
		c.counted = satAdd(c.sinceStep(), int64(d))
		c.move(now)
		return int64(d)
	case d < -inversion:
		if c.stepped {
			c.counted = c.sinceStep()
		} else {
			c.stepped, c.peak, c.counted = true, latest, 0
		}
		c.move(now)
	}
	return 0
}

// sinceStep is the time counted since the step backwards from the peak.
func (c *clock) sinceStep() int64 { return satAdd(c.counted, c.last) }

// move makes now the latest instant, without counting the time to it.
func (c *clock) move(now time.Time) {
	c.base, c.last, c.until = now, 0, horizon
	if c.stepped {
		c.until = min(c.until, int64(c.peak.Sub(now)-inversion))
	}
}

// after is the instant that is wait nanoseconds after the latest one. Where the
// peak lies between them, the clock may read less by then.
func (c *clock) after(wait int64) time.Time {
	return c.base.Add(time.Duration(c.last)).Add(time.Duration(wait))
}
