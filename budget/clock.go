package budget

import "time"

// inversion is the largest step backwards that is taken for two goroutines
// that read the clock in one order and took the lock in the other. Such a step
// counts as no time at all.
const inversion = time.Second

// clock turns instants into nanoseconds since the first instant that it saw,
// and never runs backwards.
type clock struct {
	base time.Time
	last int64 // the latest result of at
}

// at returns the nanoseconds that have passed at now. A large step backwards
// moves the base along, so that time goes on from where it was instead of
// standing still until the old instant comes round again.
func (c *clock) at(now time.Time) int64 {
	if c.base.IsZero() {
		c.base = now
		return 0
	}
	ns := int64(now.Sub(c.base))
	if ns > c.last {
		c.last = ns
		return ns
	}
	if c.last-ns > int64(inversion) {
		c.base = now.Add(-time.Duration(c.last))
	}
	return c.last
}

// time is the inverse of at.
func (c *clock) time(ns int64) time.Time { return c.base.Add(time.Duration(ns)) }
