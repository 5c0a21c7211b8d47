package ratelimited

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
)

// ExpectedWait forecasts how long a call would wait if it arrived now and
// everybody in line went first: queued units over the rate of each limit,
// queued slots over the slots times the average time that a call holds them;
// the largest of these. It is a forecast, not a bound. Of the call, only Slots
// and Usage matter.
func (g *Gate) ExpectedWait(call Call) time.Duration {
	var costs [gate.MaxDims]int64
	c := costs[:len(g.owner)]
	g.admissionCosts(c, &call.Usage)
	now := g.now()
	g.lock()
	defer g.unlock()
	return g.core.ExpectedWait(now, call.slots(), c)
}

// ExpectedWait forecasts how long a call of the model would wait at the gate if
// it were made now, as [Gate.ExpectedWait] does, with the estimate that the call
// would be held at. It is the largest Duration if the gate is closed, or if the
// call can never fit. It takes nothing, sends nothing, asks no customer budget,
// and is cheap enough to be asked before every call: up to four limits, and without
// a History, it allocates nothing, and it takes as long as the estimate and the
// gate's lock.
func (m *RateLimitedModel[Req, Resp]) ExpectedWait(ctx context.Context, req Req) time.Duration {
	g := m.gate
	l := labelsOf(ctx)
	agent := l.agent
	if agent == "" {
		agent = agentAround(ctx, l)
	}
	most := m.limitOf(req)
	raw := m.meter.Estimate(req)
	learned := m.party(m.inner.Name(), agent).estimate(raw, most)
	var buf, rawBuf costs
	n, rawCosts := buf.of(g), rawBuf.of(g)
	g.admissionCosts(n, &learned)
	g.keepLimit(n, learned, most, false)
	g.admissionCosts(rawCosts, &raw)
	g.keepLimit(rawCosts, raw, most, false)
	call := Call{Slots: m.opts.slots}
	now := g.now()
	g.lock()
	defer g.unlock()
	if g.closed {
		return never
	}
	g.admissible(n, rawCosts)
	for i, cost := range n {
		if cost > g.core.Max(i) {
			return never
		}
	}
	return g.core.ExpectedWait(now, call.slots(), n)
}

// MaxWait is Config.MaxWait; false if it was not set. See also the function
// [MaxWait].
func (g *Gate) MaxWait() (time.Duration, bool) {
	if g.cfg.MaxWait == nil {
		return 0, false
	}
	return *g.cfg.MaxWait, true
}

// SetReplicas changes Config.Replicas while the gate works. It returns an error if
// n is less than 1.
func (g *Gate) SetReplicas(n int) error {
	if n < 1 {
		return fmt.Errorf("ratelimited: SetReplicas: n is %d, must be at least 1", n)
	}
	g.lock()
	defer g.unlock()
	g.core.SetReplicas(n)
	return nil
}

// SetSlots changes the number of slots while the gate works, or with
// Config.FindSlots the most that are looked for. Calls in flight keep theirs. It returns an error if n is not between 1 and 2³¹−1.
func (g *Gate) SetSlots(n int64) error {
	if n < 1 || n > maxSlots {
		return fmt.Errorf("ratelimited: SetSlots: n is %d, must lie between 1 and %d", n, maxSlots)
	}
	now := g.now()
	g.lock()
	defer g.unlock()
	g.core.SetSlots(n)
	g.poll(now)
	return nil
}

// SetLimit changes the published limit of a dimension of the profile while the
// gate works, in units per window; the headroom applies to it. Where the limit was
// Unknown the search is over; before a Sliding window calls are then paced, at 96 % of
// the limit, and what the last window has had counts: where that is more than the limit,
// the next call waits, at most for a window. A waiting call that can no longer ever fit fails with a [NeverFitsError].
// It returns an error for a name that the profile does not have and for a negative
// limit.
func (g *Gate) SetLimit(dimension string, limit int64) error {
	if limit < 0 {
		return fmt.Errorf("ratelimited: SetLimit: limit is %d (dimension %q), must not be negative", limit, dimension)
	}
	found := false
	now := g.now()
	g.lock()
	defer g.unlock()
	for i, d := range g.owner {
		if g.cfg.Profile.Dimensions[d].Name == dimension {
			found = true
			g.core.SetLimit(now, i, limit)
		}
	}
	if !found {
		return fmt.Errorf("ratelimited: SetLimit: dimension is %q, which the profile %q does not have", dimension, g.cfg.Profile.Name)
	}
	g.poll(now)
	return nil
}
