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
}
