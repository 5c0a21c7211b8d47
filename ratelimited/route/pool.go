package route

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// Pool sends each call over one of several routes; see the package comment. It is
// a ratelimited.Model. It is safe for concurrent use, and keeps no goroutines.
type Pool[Req, Resp any] struct {
	cfg     Config
	name    string
	routes  []Route[Req, Resp] // in order of tiers
	wait    []func(context.Context, Req) time.Duration
	policy  retry.Policy
	table   *table
	metrics *metrics
	epoch   time.Time
}

// New makes a pool of the routes. Its name, as a model, is that of the first
// route's model: agent frameworks put it into requests. The error names the field
// that is wrong, and its value.
func New[Req, Resp any](cfg Config, routes []Route[Req, Resp]) (*Pool[Req, Resp], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	routes, err := completeAll(routes)
	if err != nil {
		return nil, err
	}
	p := &Pool[Req, Resp]{
		cfg: cfg, name: routes[0].Model.Name(), routes: routes,
		policy: retry.Policy{Classifiers: slices.Clone(cfg.Classifiers)}, table: newTable(&cfg), epoch: time.Now(),
	}
	slices.SortStableFunc(routes, func(a, b Route[Req, Resp]) int { return a.Tier - b.Tier })
	var names []string
	for i := range routes {
		r := &routes[i]
		names = append(names, r.Name)
		p.table.lanes = append(p.table.lanes, lane{hash: hash(r.Name), tier: r.Tier, weight: r.Weight})
		p.wait = append(p.wait, forecastOf(r))
	}
	if p.metrics, err = newMetrics(&cfg, p.table, names); err != nil {
		return nil, fmt.Errorf("route: Config.Registerer: pool %q: %w", cfg.Name, err)
	}
	return p, nil
}

// forecastOf predicts the wait of calls at a route.
func forecastOf[Req, Resp any](r *Route[Req, Resp]) func(context.Context, Req) time.Duration {
	if m, ok := r.Model.(interface {
		ExpectedWait(ctx context.Context, req Req) time.Duration
	}); ok {
		return m.ExpectedWait
	}
	gate := r.Gate
	return func(context.Context, Req) time.Duration {
		return gate.ExpectedWait(ratelimited.Call{Usage: usage.Usage{Input: 1, Output: 1}})
	}
}

// Name is the name of the first route's model.
func (p *Pool[Req, Resp]) Name() string { return p.name }

// GetGoogleLLMVariant tells which Google API the models speak to, for agent
// frameworks that adapt requests to it, if all of them speak to the same;
// genai.BackendUnspecified otherwise.
func (p *Pool[Req, Resp]) GetGoogleLLMVariant() genai.Backend {
	common := genai.BackendUnspecified
	for i := range p.routes {
		v, ok := p.routes[i].Model.(interface{ GetGoogleLLMVariant() genai.Backend })
		if !ok {
			return genai.BackendUnspecified
		}
		switch b := v.GetGoogleLLMVariant(); {
		case i == 0:
			common = b
		case b != common:
			return genai.BackendUnspecified
		}
	}
	return common
}

// Gates are the gates that a call may go through. Package ratelimited asks, and
// refuses to wrap the pool by one of them again.
func (p *Pool[Req, Resp]) Gates() []*ratelimited.Gate {
	var all []*ratelimited.Gate
	for i := range p.routes {
		all = append(all, p.routes[i].Gate)
		if w, ok := p.routes[i].Model.(interface{ Gates() []*ratelimited.Gate }); ok {
			all = append(all, w.Gates()...)
		}
	}
	var distinct []*ratelimited.Gate
	for _, g := range all {
		if !slices.Contains(distinct, g) {
			distinct = append(distinct, g)
		}
	}
	return distinct
}

// GenerateContent returns the sequence of the call's items. Nothing happens until
// it is ranged; each range is one call, on its route. The items, and the errors,
// are those of the routes' models; see the package comment for which error is
// passed on when several routes have refused a call.
func (p *Pool[Req, Resp]) GenerateContent(ctx context.Context, req Req, stream bool) iter.Seq2[Resp, error] {
	return func(yield func(Resp, error) bool) {
		c := &call[Req, Resp]{p: p, ctx: ctx, req: req, stream: stream, yield: yield}
		c.run()
	}
}

// ExpectedWait forecasts how long a call would wait if it were made now: at the
// route that it would take. It is the largest Duration if no route would admit it.
func (p *Pool[Req, Resp]) ExpectedWait(ctx context.Context, req Req) time.Duration {
	c := &call[Req, Resp]{p: p, ctx: ctx, req: req, began: p.time()}
	q := c.question()
	q.exact = true
	best, wait := c.choose(&q)
	if best < 0 {
		q.forced = true
		_, wait = c.choose(&q)
	}
	return wait
}

// RouteStats is a snapshot of a route.
type RouteStats struct {
	// Name of the route.
	Name string
	// Up is false while the route is left out because its calls fail.
	Up bool
	// OutUntil is when a call may try it, if it is left out; else the zero Time.
	OutUntil time.Time
}

// Stats are the routes in the order in which they were given, by tiers. How busy
// they are, their gates tell.
func (p *Pool[Req, Resp]) Stats() []RouteStats {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	var all []RouteStats
	for i := range p.routes {
		s := RouteStats{Name: p.routes[i].Name, Up: true}
		if h := &p.table.lanes[i].health; h.out {
			s.Up, s.OutUntil = false, p.epoch.Add(h.until)
		}
		all = append(all, s)
	}
	return all
}

// time is the current time after the pool's epoch.
func (p *Pool[Req, Resp]) time() time.Duration { return time.Since(p.epoch) }
