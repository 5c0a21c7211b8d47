package ratelimited

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// Gate admits calls to one provider quota: a fair line in front of slots and
// limits. Make one per quota and share it between all models and callers that
// draw on this quota; two gates before one quota would each think that they own
// it.
//
// A call gets its slots and what it takes from every limit together, or
// nothing. While it waits it holds nothing; the order of the line is fair over
// classes and flows (see Config.Order), and a call that was found to lack
// something keeps its claim on it, so that a large call is not starved by small
// ones.
//
// A Gate is safe for concurrent use. It has no goroutines of its own but the
// one that settles reservations of remote budgets, and that only while there
// are any; Close ends it.
type Gate struct {
	cfg     Config
	epoch   time.Time
	classes map[string]int
	owner   []int // per limit of the core: its dimension in the profile
	metrics *metrics
	learner *learner
	retries retry.Budget
	settler settler

	mu sync.Mutex
	// mu guards all that follows. It is never held while something waits.
	core     *gate.Core
	failures map[gate.ID]gate.Failure // of calls whose waiter has not woken yet
	timer    *time.Timer
	wake     time.Time // when the timer fires; zero if it is not set
	closed   bool
	drained  chan struct{} // closed once nothing runs or waits after Close
	alive    int           // calls from Acquire to their end
}

// Call is what a caller asks a [Gate] for. Empty labels are taken from the
// context; see [WithFlow], [WithAgent], [WithRequest] and [WithClass].
type Call struct {
	// Agent is a label for the part of the program that makes the call.
	Agent string
	// Class is the name of a class in Config.Classes.
	Class string
	// Flow is the party among which the gate is fair.
	Flow string
	// Model is the model's name, for metrics.
	Model string
	// Request is the key for the ceilings per request.
	Request string
	// Slots is the number of slots that the call takes; 0 is 1. A call that is
	// wider than the gate runs alone.
	Slots int
	// Usage is the estimate that the profile turns into units.
	Usage usage.Usage
}

// NewGate returns a gate, or an error that names the field of the Config that
// is wrong, and its value.
func NewGate(cfg Config) (*Gate, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	core, owner, err := cfg.core()
	if err != nil {
		return nil, err
	}
	g := &Gate{
		cfg: cfg, epoch: time.Now(), owner: owner, core: core,
		classes:  make(map[string]int, len(cfg.Classes)),
		failures: make(map[gate.ID]gate.Failure),
		learner:  newLearner(cfg.AgentLabels),
	}
	g.settler.log = cfg.Logger
	for i, cl := range cfg.Classes {
		g.classes[cl.Name] = i
	}
	if cfg.Registerer != nil {
		if g.metrics, err = newMetrics(g); err != nil {
			return nil, fmt.Errorf("ratelimited: Config.Registerer: %w", err)
		}
	}
	return g, nil
}

// now is the current time on the monotonic clock. It costs one clock reading
// where time.Now costs two.
func (g *Gate) now() time.Time { return g.epoch.Add(time.Since(g.epoch)) }

// Acquire waits until the call may be sent, and returns the permit for it,
// which must be ended exactly once: see [Permit]. It returns a [WaitError], a
// [NeverFitsError] or an error that names an unknown class; nothing is held
// then. A context that has ended already is never admitted.
func (g *Gate) Acquire(ctx context.Context, call Call) (Permit, error) {
	if ctx.Done() != nil && ctx.Err() != nil {
		return Permit{}, &WaitError{Err: contextError(ctx)}
	}
	maxWait := g.fill(ctx, &call)
	if maxWait == nil {
		maxWait = g.cfg.MaxWait
	}
	var costs [gate.MaxDims]int64
	p := Permit{g: g}
	spec := gate.Spec{Flow: call.Flow, Request: call.Request, Slots: 1}
	if call.Slots > 1 {
		spec.Slots = int32(min(call.Slots, maxSlots))
	}
	if call.Class != "" {
		class, ok := g.classes[call.Class]
		if !ok {
			return Permit{}, fmt.Errorf("ratelimited: Call.Class is %q, which the gate %q does not have", call.Class, g.cfg.Name)
		}
		spec.Class = class
	}
	spec.Costs = costs[:len(g.owner)]
	g.admissionCosts(spec.Costs, call.Usage)
	if g.cfg.FlowWeight != nil {
		spec.FlowWeight = g.cfg.FlowWeight(g.cfg.Classes[spec.Class].Name, call.Flow)
	}

	now := g.now()
	deadline, byContext := ctx.Deadline()
	if maxWait != nil {
		if d := now.Add(*maxWait); !byContext || d.Before(deadline) {
			deadline, byContext = d, false
		}
	}
	spec.Deadline = deadline
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return Permit{}, &WaitError{Err: ErrClosed}
	}
	id, granted, refused := g.core.Enqueue(now, spec)
	if granted {
		g.alive++
		g.mu.Unlock()
		p.id = id
		g.metrics.admitted(call, spec.Class, 0)
		return p, nil
	}
	if refused.Err != nil {
		err := g.refusal(now, refused, &call, spec.Slots, spec.Costs, byContext)
		g.mu.Unlock()
		g.metrics.refused(spec.Class, err)
		return Permit{}, err
	}
	ready := make(chan struct{}, 1)
	g.core.SetReady(id, ready)
	g.alive++
	g.poll(now)
	g.mu.Unlock()

	p.id = id
	if err := g.wait(ctx, id, ready, now, byContext); err != nil {
		g.metrics.refused(spec.Class, err)
		return Permit{}, err
	}
	g.metrics.admitted(call, spec.Class, g.now().Sub(now))
	return p, nil
}

// admissionCosts turns an estimate into units of every limit.
func (g *Gate) admissionCosts(costs []int64, u usage.Usage) {
	for i, d := range g.owner {
		costs[i] = max(0, g.cfg.Profile.Dimensions[d].Count(u))
	}
}

// settledCosts turns actual usage into units of every limit.
func (g *Gate) settledCosts(costs []int64, u usage.Usage) {
	for i, d := range g.owner {
		dim := &g.cfg.Profile.Dimensions[d]
		if dim.Settle != nil {
			costs[i] = max(0, dim.Settle(u))
		} else {
			costs[i] = max(0, dim.Count(u))
		}
	}
}

// failedCosts is what the provider counts for a request that it refused or
// failed.
func (g *Gate) failedCosts(costs []int64, u usage.Usage) {
	for i, d := range g.owner {
		dim := &g.cfg.Profile.Dimensions[d]
		costs[i] = 0
		if dim.FailuresCount {
			costs[i] = max(0, dim.Count(u))
		}
	}
}

// wait waits for the grant of id. The waiter that is granted while it gives up
// hands the grant on.
func (g *Gate) wait(ctx context.Context, id gate.ID, ready chan struct{}, since time.Time, byContext bool) error {
	select {
	case _, granted := <-ready:
		if granted {
			if ctx.Done() == nil || ctx.Err() == nil {
				return nil
			}
			break
		}
		return g.failed(ctx, id, since, byContext)
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	delete(g.failures, id)
	g.core.Settle(now, id, zeros[:len(g.owner)]) // granted meanwhile: it was not used
	if g.core.End(now, id) {
		g.end(now)
	}
	return &WaitError{Err: contextError(ctx), Waited: now.Sub(since)}
}

var zeros [gate.MaxDims]int64

// failed makes the error of a wait that the core has ended.
func (g *Gate) failed(ctx context.Context, id gate.ID, since time.Time, byContext bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	f, ok := g.failures[id]
	delete(g.failures, id)
	cost := int64(0)
	if ok && f.Never {
		cost = g.core.Cost(id, f.Dim)
	}
	closed := g.closed && !ok
	if g.core.End(now, id) {
		g.end(now)
	}
	switch {
	case closed:
		return &WaitError{Err: ErrClosed, Waited: now.Sub(since)}
	case f.Never:
		return &NeverFitsError{Limit: g.limitName(f.Dim), Requested: cost, Max: g.core.Max(f.Dim)}
	}
	err := &WaitError{Waited: now.Sub(since), Limit: g.limitName(f.Dim)}
	if byContext {
		err.Err = context.DeadlineExceeded
	}
	return err
}

// end books the end of a call and lets the next one in. mu is held.
func (g *Gate) end(now time.Time) {
	g.alive--
	g.poll(now)
	if g.closed && g.alive == 0 && g.drained != nil {
		close(g.drained)
		g.drained = nil
	}
}

// poll lets the core start what can start. mu is held.
func (g *Gate) poll(now time.Time) {
	grants, failed, next := g.core.Poll(now)
	for _, id := range grants {
		id.Ready() <- struct{}{} // buffered; the one receiver is the granted waiter
	}
	for _, f := range failed {
		g.failures[f.ID] = f
		close(f.ID.Ready())
	}
	switch {
	case next.IsZero():
	case g.timer == nil:
		g.wake = next
		g.timer = time.AfterFunc(next.Sub(now), g.tick)
	case g.wake.IsZero() || next.Before(g.wake):
		g.wake = next
		g.timer.Reset(next.Sub(now))
	}
}

// tick is the timer's call.
func (g *Gate) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wake = time.Time{}
	g.poll(g.now())
}

// refusal makes the error for a call that was not taken into the line. mu is
// held.
func (g *Gate) refusal(now time.Time, r gate.Refusal, call *Call, slots int32, costs []int64, byContext bool) error {
	if errors.Is(r.Err, gate.ErrNever) {
		return &NeverFitsError{Limit: g.limitName(r.Dim), Requested: costs[r.Dim], Max: g.core.Max(r.Dim)}
	}
	err := &WaitError{Limit: g.limitName(r.Dim), Expected: g.core.ExpectedWait(now, slots, costs)}
	if r.At.After(now) {
		err.Expected = max(err.Expected, r.At.Sub(now))
	}
	switch {
	case errors.Is(r.Err, gate.ErrFull):
		err.Err = ErrLineFull
	case byContext:
		err.Err = context.DeadlineExceeded
	}
	return err
}

func (g *Gate) limitName(core int) string {
	if core < 0 {
		return "slots"
	}
	return g.cfg.Profile.Dimensions[g.owner[core]].Name
}

// Name is the name of the gate in metrics and logs.
func (g *Gate) Name() string { return g.cfg.Name }

// ExpectedWait forecasts how long a call would wait if it arrived now and
// everybody in line went first: queued units over the rate of each limit,
// queued slots over the slots times the average time that a call holds them;
// the largest of these. It is a forecast, not a bound.
func (g *Gate) ExpectedWait(call Call) time.Duration {
	var costs [gate.MaxDims]int64
	c := costs[:len(g.owner)]
	g.admissionCosts(c, call.Usage)
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.ExpectedWait(now, int32(min(max(call.Slots, 1), maxSlots)), c)
}

// SetSlots changes the number of slots while the gate works. Calls in flight
// keep theirs; it returns an error if n is not between 1 and 2³¹−1.
func (g *Gate) SetSlots(n int64) error {
	if n < 1 || n > maxSlots {
		return fmt.Errorf("ratelimited: SetSlots: n is %d, must lie between 1 and %d", n, maxSlots)
	}
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.SetSlots(n)
	g.poll(now)
	return nil
}

// SetLimit changes the published limit of a dimension of the profile while the
// gate works, in units per window. A waiting call that can no longer ever fit
// fails. It returns an error for a name that the profile does not have and for
// a negative limit.
func (g *Gate) SetLimit(dimension string, limit int64) error {
	if limit < 0 {
		return fmt.Errorf("ratelimited: SetLimit: limit is %d (dimension %q), must not be negative", limit, dimension)
	}
	found := false
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
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

// Close ends admission and waits until every call in line and in flight has
// ended and every queued settlement was made, or until ctx ends; then the calls
// still in line fail with an error that matches [ErrClosed]. Calls in flight are
// never cut. It returns the context's error if something was left. Close may be
// called again, to go on waiting.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	drained := g.drained
	if g.alive > 0 && drained == nil {
		drained = make(chan struct{})
		g.drained = drained
	}
	g.mu.Unlock()
	var err error
	if drained != nil {
		select {
		case <-drained:
		case <-ctx.Done():
			err = contextError(ctx)
			g.mu.Lock()
			for _, id := range g.core.FailWaiting() {
				close(id.Ready())
			}
			g.mu.Unlock()
		}
	}
	if e := g.settler.flush(ctx); err == nil {
		err = e
	}
	g.mu.Lock()
	if g.timer != nil && g.alive == 0 {
		g.timer.Stop()
	}
	g.mu.Unlock()
	return err
}
