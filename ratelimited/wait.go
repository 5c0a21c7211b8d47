package ratelimited

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
)

// place is a call's place in line: what its waiter keeps while it waits. It is
// small, because a hundred thousand may.
type place struct {
	id     gate.ID
	posted *arrival      // it is not known yet what became of it
	since  time.Duration // when it entered the line, after the gate's epoch
}

// time is the current time after the gate's epoch.
func (g *Gate) time() time.Duration { return time.Since(g.epoch) }

// since is how long ago the call entered the line.
func (g *Gate) since(p *place) time.Duration { return g.time() - p.since }

// wait waits for the grant of a call in line, which ready tells.
func (g *Gate) wait(ctx context.Context, p *place, ready <-chan struct{}) error {
	received, open := false, true
	select {
	case _, open = <-ready:
		received = true
	case <-ctx.Done():
	}
	return g.woken(ctx, p, received, open)
}

// woken tells what the end of a wait means. The waiter's channel was received
// from, or its context has ended, or else it leaves; a channel that is closed says
// that the wait has failed.
//
//go:noinline
func (g *Gate) woken(ctx context.Context, p *place, received, open bool) error {
	if a := p.posted; a != nil {
		if !received {
			g.lock() // now it has been taken in
			g.unlock()
		}
		var err error
		p.posted = nil
		if p.id, err = g.answer(a, received); err != nil {
			return err
		}
	}
	switch {
	case !open:
		return g.failed(ctx, p)
	case received && ctx.Err() == nil:
		return nil
	default:
		return g.giveUp(ctx, p)
	}
}

// giveUp ends the wait of a call whose context has ended, or that leaves. If it
// was granted meanwhile, the grant is handed on.
//
//go:noinline
func (g *Gate) giveUp(ctx context.Context, p *place) error {
	err := &WaitError{Err: ErrDiverted}
	if ctx.Err() != nil {
		err.Err = contextError(ctx)
	}
	late := ctx.Err() == context.DeadlineExceeded
	g.lock()
	defer g.unlock()
	now := g.now()
	err.Waited = g.since(p)
	dim, slots, costs := -1, int32(0), []int64(nil)
	if late {
		g.poll(now) // the core may have the same deadline, and know what was lacking
		if f, ok := g.failures[p.id]; ok {
			dim = f.Dim
		}
		slots, costs = g.core.Slots(p.id), g.costs(p.id)
	}
	g.forget(p.id)
	g.core.SetReady(p.id, nil)                     // the grant may be on its way
	g.core.Settle(now, p.id, zeros[:len(g.owner)]) // granted meanwhile: it was not used
	if g.core.End(now, p.id) {
		g.end(now)
	}
	if late {
		err.Limit, err.Expected = g.forecast(now, dim, slots, costs)
	}
	return err
}

// forget drops what is known of the failure of a wait. A map keeps the room that
// a burst has needed, so an empty one is made anew now and then. mu is held.
func (g *Gate) forget(id gate.ID) {
	before := len(g.failures)
	delete(g.failures, id)
	if g.mostFailures = max(g.mostFailures, before); g.mostFailures > longLine && len(g.failures) == 0 {
		g.failures, g.mostFailures = make(map[gate.ID]gate.Failure), 0
	}
}

var zeros [gate.MaxDims]int64

// failed makes the error of a wait that the core has ended.
//
//go:noinline
func (g *Gate) failed(ctx context.Context, p *place) error {
	id := p.id
	var late error // why the deadline ended it, if it did
	if _, byContext := g.deadline(ctx, p.since, labelsOf(ctx)); byContext {
		late = overdue(ctx)
	}
	g.lock()
	defer g.unlock()
	now := g.now()
	f, ok := g.failures[id]
	g.forget(id)
	g.core.SetReady(id, nil) // it is closed
	var err error
	switch {
	case !ok:
		err = &WaitError{Err: ErrClosed, Waited: g.since(p)}
	case f.Never:
		err = &NeverFitsError{Limit: g.limitName(f.Dim), Requested: g.core.Cost(id, f.Dim), Max: g.core.Max(f.Dim)}
	default:
		limit, expected := g.forecast(now, f.Dim, g.core.Slots(id), g.costs(id))
		err = &WaitError{Err: late, Waited: g.since(p), Limit: limit, Expected: expected}
	}
	if g.core.End(now, id) {
		g.end(now)
	}
	return err
}

// overdue is the reason why a context ends whose deadline has come, which the
// gate's timer may have noticed first. It is worth a moment to learn the cause;
// a context that does not keep to its deadline is not waited for.
func overdue(ctx context.Context) error {
	if at, _ := ctx.Deadline(); time.Until(at) <= 0 {
		patience := time.NewTimer(10 * time.Millisecond)
		defer patience.Stop()
		select {
		case <-ctx.Done():
			return contextError(ctx)
		case <-patience.C:
		}
	}
	return context.DeadlineExceeded
}

// costs are those of a call that is not over. mu is held.
func (g *Gate) costs(id gate.ID) []int64 {
	costs := make([]int64, len(g.owner))
	for i := range costs {
		costs[i] = g.core.Cost(id, i)
	}
	return costs
}

// forecast says how long a call would wait if it arrived now, and for which
// limit: dim, which it was found to lack, or the one with the longest wait; ""
// if none of them is what it waits for. mu is held.
func (g *Gate) forecast(now time.Time, dim int, slots int32, costs []int64) (limit string, expected time.Duration) {
	expected = g.core.ExpectedWait(now, slots, costs)
	if dim < 0 {
		longest := g.core.ExpectedWait(now, slots, nil) // for slots
		one := make([]int64, len(costs))
		for i, cost := range costs {
			one[i] = cost
			if wait := g.core.ExpectedWait(now, slots, one); wait > longest {
				dim, longest = i, wait
			}
			one[i] = 0
		}
		if dim < 0 && longest == 0 {
			return "", expected // a ceiling, or a budget that waits for its probe
		}
	}
	return g.limitName(dim), expected
}
