package ratelimited

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
)

// entry is a call as admission sees it, beside its costs.
type entry struct {
	flow, request string
	weight        float64       // of the flow; 0 is 1
	since         time.Duration // when it entered the line, after the gate's epoch
	deadline      time.Duration // when it must have left it for good; or never
	slots         int32
	revised       *revisable // a model call, which must know its place; or nil
	class         uint8      // index of its class
	byContext     bool       // the deadline is the context's
}

// takeIn admits a call at once or gives it its place in line, and a channel that
// tells when it is granted.
func (g *Gate) takeIn(ctx context.Context, r *request, revised *revisable, p *place) (ready <-chan struct{}, err error) {
	p.since = r.since
	if ctx.Done() != nil && ctx.Err() != nil {
		return nil, &WaitError{Err: contextError(ctx)}
	}
	var buf, rawBuf costs
	n := buf.of(g)
	g.admissionCosts(n, &r.Usage)
	var raw []int64
	if r.raw != estimateOf(r.Usage) { // it was corrected
		raw = rawBuf.of(g)
		u := r.raw.over(r.Usage)
		g.admissionCosts(raw, &u)
	}
	if revised != nil { // a model's call, whose limit is known
		g.keepLimit(n, r.Usage, revised.most, false)
		if raw != nil {
			g.keepLimit(raw, r.raw.over(r.Usage), revised.most, false)
		}
	}
	e := entry{
		flow: r.Flow, request: r.Request, since: r.since, deadline: r.deadline,
		slots: r.slots(), revised: revised, class: r.class, byContext: r.byContext,
	}
	if g.cfg.FlowWeight != nil {
		e.weight = g.cfg.FlowWeight(r.Class, r.Flow)
	}
	if g.foreign { // the caller's functions may have taken a while
		e.since = g.time()
		if !e.byContext && e.deadline != never {
			e.deadline += e.since - r.since
		}
	}

	if !g.company.Load() {
		g.mu.Lock()
	} else if !g.mu.TryLock() {
		if len(n) <= fewLimits && g.line.Load() && !g.long.Load() {
			p.posted = g.postArrival(&e, n, raw)
			return p.posted.ready, nil
		}
		g.lockSlow()
	}
	g.drain()
	p.id, ready, err = g.admit(&e, n, raw, nil)
	g.unlock()
	return ready, err
}

// admit admits a call at once or gives it its place in line. n are its costs;
// raw, if not nil, those of its estimate before it was corrected. In line, the
// call has a channel that tells when it is granted; nil otherwise. Where the
// call was posted it has one already, and may be granted before admit returns:
// whoever waits for it has the arrival then. mu is held.
func (g *Gate) admit(e *entry, n, raw []int64, posted *arrival) (id gate.ID, ready chan struct{}, err error) {
	if g.closed {
		return id, nil, &WaitError{Err: ErrClosed}
	}
	if raw != nil {
		g.admissible(n, raw)
	}
	now := g.epoch.Add(e.since) // a call that must not wait may start at this very instant
	if e.weight == 0 && (e.byContext || e.deadline == never) {
		// Start does not note the deadline for a later wait; a context that
		// ends needs no note.
		if id, ok := g.core.Start(now, int(e.class), e.flow, e.slots, n); ok {
			g.alive++
			e.knows(id)
			return id, nil, nil
		}
	}
	copy(g.scratch, n) // what goes into the core's Spec would go to the heap
	id, granted, refused := g.core.Enqueue(now, gate.Spec{
		Flow: e.flow, FlowWeight: e.weight, Request: e.request, Class: int(e.class), Slots: e.slots,
		Costs: g.scratch, Deadline: g.latest(e),
	})
	if refused.Err != nil {
		return id, nil, g.refusal(now, refused, e, n)
	}
	g.alive++
	e.knows(id)
	if granted {
		return id, nil, nil
	}
	ready = id.Ready()
	switch {
	case posted != nil:
		posted.id, posted.kept, posted.spare = id, true, ready
		ready = posted.ready
		g.core.SetReady(id, ready)
	case ready == nil:
		ready = make(chan struct{}, 1)
		g.core.SetReady(id, ready)
	}
	if g.core.Stuck() && e.deadline > e.since {
		g.arm(now, g.latest(e)) // it can only wait
		g.noteLine()
	} else {
		g.poll(now)
	}
	return id, ready, nil
}

// knows tells a model call its place, before it can be granted. The gate's mu is
// held.
func (e *entry) knows(id gate.ID) {
	if e.revised != nil {
		e.revised.id = id
	}
}

// slots is the number of slots that the call takes.
func (c *Call) slots() int32 { return int32(min(max(c.Slots, 1), maxSlots)) }

// latest is the deadline as the core takes it: zero is never.
func (g *Gate) latest(e *entry) time.Time {
	if e.deadline == never {
		return time.Time{}
	}
	return g.epoch.Add(e.deadline)
}

// admissible keeps a learned estimate from never fitting where the raw one
// does: what was learned is a forecast, and a forecast must not refuse a call
// that the provider would serve. mu is held.
func (g *Gate) admissible(learned, raw []int64) {
	for i, cost := range learned {
		if cost > raw[i] {
			learned[i] = min(cost, max(raw[i], g.core.Max(i)))
		}
	}
}

// refusal makes the error for a call that was not taken into the line. mu is
// held.
func (g *Gate) refusal(now time.Time, f gate.Refusal, e *entry, costs []int64) error {
	if errors.Is(f.Err, gate.ErrNever) {
		return &NeverFitsError{Limit: g.limitName(f.Dim), Requested: costs[f.Dim], Max: g.core.Max(f.Dim)}
	}
	err := &WaitError{}
	err.Limit, err.Expected = g.forecast(now, f.Dim, e.slots, costs)
	if f.At.After(now) {
		err.Expected = max(err.Expected, f.At.Sub(now))
	}
	switch {
	case errors.Is(f.Err, gate.ErrFull):
		err.Err = ErrLineFull
	case e.byContext:
		err.Err = context.DeadlineExceeded
	}
	return err
}
