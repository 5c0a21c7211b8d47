package ratelimited

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/gate"
)

// join puts the shared quota in the place of the limits of the core.
func (c Config) join(cfg *gate.Config, owner []int) (budget.Shared, error) {
	q := budget.SharedQuota{Name: c.Name, Slots: c.Slots}
	for i, d := range owner {
		dim := &c.Profile.Dimensions[d]
		limit := budget.SharedLimit{Name: dim.Name, Limit: dim.Limit, Window: dim.window(), Cell: dim.Cell}
		switch {
		case i > 0 && owner[i-1] == d: // the second one paces
			limit.Bucket, limit.Pace, limit.Burst, limit.Cell = true, true, dim.pace(), 0
		case dim.Shape == Bucket:
			limit.Bucket, limit.Burst, limit.Cell = true, dim.Limit, 0
		}
		q.Limits = append(q.Limits, limit)
	}
	shared, err := c.Share.Join(q)
	if err != nil {
		return nil, err
	}
	limiters := shared.Limiters()
	if len(limiters) != len(cfg.Dims) {
		return nil, fmt.Errorf("it has %d limiters for %d limits", len(limiters), len(cfg.Dims))
	}
	for i, l := range limiters {
		cfg.Dims[i].Limiter = l
	}
	cfg.Lender = shared.Slots()
	return shared, nil
}

// host is a gate as its part of a shared quota sees it.
type host Gate

// Update implements [budget.Host].
func (h *host) Update(f func(now time.Time, d *budget.Demand)) {
	g := (*Gate)(h)
	g.lock()
	defer g.unlock()
	now := g.now()
	g.core.Demand(now, &g.demand)
	f(now, &g.demand)
	g.poll(now)
	g.tellSilence(now)
}

// toldEvery is how often calls in line think again while the store of a shared quota does
// not answer, and how long that must have been so: each looks at all its ways.
const toldEvery = time.Second

// tellSilence has calls that may leave the line think again where the store does not
// answer. mu is held.
func (g *Gate) tellSilence(now time.Time) {
	if at := g.time(); g.silent != nil && at-g.silence >= toldEvery && g.core.Silence(now) >= toldEvery {
		close(g.silent)
		g.silent, g.silence = nil, at
	}
}

// hearsSilence is closed when the store of a shared quota does not answer; nil if the gate
// has its quota for itself.
func (g *Gate) hearsSilence() <-chan struct{} {
	if g.shared == nil {
		return nil
	}
	g.lock()
	defer g.unlock()
	if g.silent == nil {
		g.silent = make(chan struct{})
	}
	return g.silent
}
