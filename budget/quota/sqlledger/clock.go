package sqlledger

import (
	"sync"
	"time"
)

// clock knows the time of a database from when it was read last. It is never ahead of it,
// and behind by less than the time of a round trip: what was read is older when it is here.
type clock struct {
	mu sync.Mutex
	// mu guards:
	at   time.Time // when it was read, by the process's own clock
	time int64     // what was read then; 0 if it is not known
	last int64     // what was guessed last
}

const (
	// clockFor is how long what was read is good for: clocks do not run at the same speed.
	clockFor = 10 * time.Second
	// clockAnew is after what time a new reading is taken, even if it is behind.
	clockAnew = clockFor / 2
)

// read notes what was just read.
func (c *clock) read(now int64) {
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	// Of two readings, the one that took less time on its way is further ahead.
	if c.time == 0 || at.Sub(c.at) >= clockAnew || now > c.time+int64(at.Sub(c.at)) {
		c.at, c.time = at, now
	}
}

// forget forgets what was read.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time, c.last = 0, 0
}

// guess is the time of the database; ok is false if that is not known. It does not go back.
func (c *clock) guess() (now int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.at)
	if c.time == 0 || passed >= clockFor {
		return 0, false
	}
	c.last = max(c.last, c.time+int64(passed))
	return c.last, true
}
