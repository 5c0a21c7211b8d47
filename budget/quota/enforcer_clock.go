package quota

import (
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// clocksDiffer is how far a process's clock may be from the ledger's before somebody is told. A
	// caller names the window of its own time and those before and after it; the ledger takes its
	// own window if it is one of them, and the shortest ones take a minute.
	clocksDiffer = time.Minute
	// clocksEvery is how often that is told at most.
	clocksEvery = time.Hour
)

// clocks looks whether the clock of this process and the ledger's agree.
type clocks struct{ told atomic.Pointer[time.Time] }

// compare compares them by what the ledger has answered to what was asked at an instant.
func (c *clocks) compare(logger *slog.Logger, asked time.Time, r *Reserved) {
	if r.Now.IsZero() || r.Repeated || r.Held { // a first result may be an old one
		return
	}
	now := time.Now()
	// By the time of day, for the ledger's has no other. It has answered at some time in between.
	ahead := max(r.Now.Sub(now.Round(0)), 0)
	if behind := asked.Round(0).Sub(r.Now); behind > 0 {
		ahead = -behind
	}
	if ahead.Abs() <= clocksDiffer {
		return
	}
	last := c.told.Load()
	if last != nil && now.Sub(*last) < clocksEvery || !c.told.CompareAndSwap(last, &now) {
		return
	}
	logger.Warn("quota: the clocks of this process and of the ledger differ; what is asked for here may count in other windows than the ledger's",
		slog.Duration("ledger_ahead", ahead))
}
