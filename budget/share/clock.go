package share

// inversion is the largest step backwards of a clock that is taken for two
// callers that came in the other order, in ticks.
const inversion = ticksPerSecond

// clock makes readings of a store's clock never run backwards. A larger step
// backwards is followed, so that time does not stand still until the old instant
// comes round again; and who comes back to the old instant gets only the time
// after it, so that neither the step nor its undoing makes time out of nothing.
type clock struct {
	raw, reading int64 // an instant, and what it read
	last         int64 // the latest reading
	stepped      bool
	peak, atPeak int64 // the latest instant before the step, and what it read
}

func (c *clock) read(raw int64) int64 {
	if c.last == 0 {
		c.raw, c.reading, c.last = raw, raw, raw
	}
	if c.stepped && raw >= c.peak {
		c.raw, c.reading, c.stepped = c.peak, c.atPeak, false
	}
	x := c.reading + raw - c.raw
	if x < c.last-inversion {
		if !c.stepped {
			c.stepped, c.atPeak = true, c.last
			c.peak = c.raw + c.last - c.reading
		}
		c.raw, c.reading, x = raw, c.last, c.last
	}
	c.last = max(c.last, x)
	return c.last
}
