package ratelimited

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// Permit is the right to send one call. It holds slots and units of every
// limit until they are given back: End does it all; Release does it for a call
// that was not sent. The first of them takes effect, later ones do nothing, so
// that
//
//	permit, err := gate.Acquire(ctx, call)
//	if err != nil { … }
//	defer permit.Release()
//	… send …
//	permit.End(used)
//
// is right whatever happens. A Permit may be copied; the copies are one permit.
// Its methods are safe for concurrent use and never wait. The zero Permit holds
// nothing.
type Permit struct {
	g  *Gate
	id gate.ID
}

// End ends the call: its slots come back and its estimate is settled to what
// was used. A zero usage means that nothing is known; the estimate then stands.
func (p Permit) End(actual usage.Usage) {
	if p.g == nil {
		return
	}
	if actual.IsZero() {
		p.finish(nil, true)
		return
	}
	var costs [gate.MaxDims]int64
	c := costs[:len(p.g.owner)]
	p.g.settledCosts(c, actual)
	p.finish(c, true)
}

// Release ends a call that was not sent, or that the provider cannot have
// counted: everything is refunded.
func (p Permit) Release() {
	if p.g != nil {
		p.finish(zeros[:len(p.g.owner)], true)
	}
}

// FreeSlot gives the slots back while the estimate stays held: the answer is
// complete, but its usage is not known yet.
func (p Permit) FreeSlot() {
	if p.g == nil {
		return
	}
	now := p.g.now()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.g.core.FreeSlot(now, p.id) {
		p.g.poll(now)
	}
}

// Counted tells that the provider has counted the call by now at the latest:
// its first item has arrived, or its request was written a second ago. The
// sooner it is told, the sooner the quota comes back in a sliding window.
func (p Permit) Counted() {
	if p.g == nil {
		return
	}
	now := p.g.now()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.g.core.Counted(now, p.id)
}

// finish frees the slots and settles; costs are in units of the core's limits,
// nil stands for what was held. With last, the call ends here.
func (p Permit) finish(costs []int64, last bool) {
	g := p.g
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	freed := g.core.FreeSlot(now, p.id)
	settled := g.core.Settle(now, p.id, costs)
	if last && g.core.End(now, p.id) {
		g.end(now)
		return
	}
	if freed || settled {
		g.poll(now)
	}
}

// adjust books units that were reported after the call was settled.
func (p Permit) adjust(extra []int64) {
	now := p.g.now()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.g.core.Adjust(now, p.id, extra)
	p.g.poll(now)
}

// progress tells, in one step, that the provider has begun to answer (first)
// and that the answer is complete: the slots come back, and unless costs is nil
// the call is settled to them.
func (p Permit) progress(first, complete bool, costs []int64) {
	g := p.g
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if first {
		g.core.Counted(now, p.id)
		g.core.Succeeded(now, p.id)
	}
	if complete {
		g.core.FreeSlot(now, p.id)
		if costs != nil {
			g.core.Settle(now, p.id, costs)
		}
	}
	g.poll(now)
}

// refused tells the gate what a refusal of the provider means for everybody: a
// hint closes the budget that it names, a 429 cuts its rate, an overloaded
// provider gets fewer calls in flight. The call itself stays as it is.
func (p Permit) refused(v retry.Verdict) {
	g := p.g
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch v.Class {
	case retry.Throttled:
		for _, i := range g.hit(v) {
			if v.HasHint && v.Hint > 0 {
				g.core.CloseBudget(now, i, now.Add(g.closeFor(v.Hint)))
			}
			g.core.Cut(now, p.id, i)
		}
		if v.Resources&retry.Concurrency != 0 {
			g.core.CutSlots(now, p.id)
		}
	case retry.QuotaExhausted:
		if !v.PerDay {
			return // billing, credits: every call finds out for itself, at no cost
		}
		for _, i := range g.hit(v) {
			g.core.CloseBudget(now, i, now.Add(g.closeFor(g.maxHint())))
		}
	case retry.Overloaded:
		g.core.CutSlots(now, p.id)
	}
	g.poll(now)
}

// hit lists the limits of the core that a refusal means: those of the resources
// that it names, per day or shorter as it says. If it names none that the
// profile has, it means all.
func (g *Gate) hit(v retry.Verdict) []int {
	var named, all []int
	for i, d := range g.owner {
		dim := &g.cfg.Profile.Dimensions[d]
		perDay := dim.window() >= 24*time.Hour
		if perDay != v.PerDay {
			continue
		}
		all = append(all, i)
		if dim.Resource&v.Resources != 0 {
			named = append(named, i)
		}
	}
	switch {
	case len(named) > 0:
		return named
	case len(all) > 0 && v.Resources&^retry.Concurrency == 0:
		return all
	case v.Resources == retry.Concurrency:
		return nil
	}
	for i := range g.owner { // a limit that the profile does not have: everything waits
		named = append(named, i)
	}
	return named
}

// closeFor is for how long a hint closes a budget: not longer than the longest
// hint that is believed, and up to a tenth more, so that the programs that share
// the quota do not return at once.
func (g *Gate) closeFor(hint time.Duration) time.Duration {
	hint = min(hint, g.maxHint())
	return hint + rand.N(hint/10+1)
}

func (g *Gate) maxHint() time.Duration {
	if g.cfg.Retry.MaxHint > 0 {
		return g.cfg.Retry.MaxHint
	}
	return retry.DefaultMaxHint
}

// requeue sends a refused call back into the line, not before the given delay,
// and waits for its next grant. It is in line with its first place. since is
// when the call first entered; costs are what the refused attempt cost.
func (p Permit) requeue(ctx context.Context, costs []int64, delay time.Duration, since time.Time, byContext bool) error {
	g := p.g
	ready := make(chan struct{}, 1)
	now := g.now()
	g.mu.Lock()
	if !g.core.Requeue(now, p.id, costs, now.Add(delay)) {
		g.mu.Unlock()
		return &WaitError{Err: context.Canceled} // it was ended meanwhile: its context is over
	}
	g.core.SetReady(p.id, ready)
	g.poll(now)
	g.mu.Unlock()
	return g.wait(ctx, p.id, ready, since, byContext)
}
