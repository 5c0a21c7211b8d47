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
	g      *Gate
	id     gate.ID
	direct *direct // for the metrics; nil if there are none, or a model counts its call
}

// End ends the call: its slots come back and its estimate is settled to what
// was used. A zero usage means that nothing is known; the estimate then stands.
// A usage that is known tells that the provider has answered: a budget that a
// hint had closed, and for which this call was let through, opens again.
func (p Permit) End(actual usage.Usage) {
	if p.g == nil {
		return
	}
	if actual.IsZero() {
		p.direct.used(actual)
		p.finish(nil, false)
		return
	}
	var buf costs
	n := buf.of(p.g)
	p.g.settledCosts(n, &actual) // it may panic: nothing has ended then
	p.direct.used(actual)
	p.finish(n, true)
}

// Refused ends a call that failed, and tells the gate what its error means for
// everybody: a hint closes the budget that it names, a 429 cuts its rate, an
// overloaded provider gets fewer calls in flight, and one that is down none for a
// while. After the end of the call it does nothing. A call that the provider
// refused is settled at what the profile says of such requests; one that was not
// sent is refunded; for any other the estimate stands, because the provider may
// have counted it. It returns what the error means, so that the caller can
// decide whether to ask for another permit; a RateLimitedModel does all that by
// itself.
func (p Permit) Refused(err error) retry.Verdict {
	if p.g == nil {
		return retry.Classify(err)
	}
	v := p.g.cfg.Retry.Classify(err)
	p.refused(v, refusal{answered: answered(v, err)})
	switch {
	case v.Class == retry.NotSent, v.Class == retry.Denied, v.Class == retry.NeverFits:
		p.direct.refused(v, false)
		p.Release()
	case answered(v, err):
		p.direct.refused(v, false)
		p.finish(p.refusedCosts(), false)
	default:
		p.direct.refused(v, true)
		p.finish(nil, false)
	}
	return v
}

// refusedCosts is what the provider counts for the call if it refuses it.
func (p Permit) refusedCosts() []int64 {
	g := p.g
	costs := make([]int64, len(g.owner))
	g.lock()
	defer g.unlock()
	for i, d := range g.owner {
		if g.cfg.Profile.Dimensions[d].FailuresCount {
			costs[i] = g.core.Cost(p.id, i)
		}
	}
	return costs
}

// Release ends a call that was not sent, or that the provider cannot have
// counted: everything is refunded.
func (p Permit) Release() {
	if p.g != nil {
		p.direct.released()
		p.finish(zeros[:len(p.g.owner)], false)
	}
}

// FreeSlot gives the slots back while the estimate stays held: the answer is
// complete, but its usage is not known yet.
func (p Permit) FreeSlot() {
	if p.g == nil {
		return
	}
	at := p.g.time()
	p.direct.free(at)
	now := p.g.epoch.Add(at)
	p.g.lock()
	defer p.g.unlock()
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
	p.g.lock()
	defer p.g.unlock()
	p.g.core.Counted(now, p.id)
}

// finish ends the call: it frees the slots and settles, as far as that has not
// been done. costs are in units of the core's limits; nil stands for what was
// held.
func (p Permit) finish(costs []int64, success bool) {
	g := p.g
	var at time.Duration
	if !g.line.Load() && !g.company.Load() {
		g.mu.Lock()
		if g.core.FinishLast(p.id, costs) {
			g.gone()
			g.unlock()
			return
		}
		at = g.time()
	} else {
		at = g.time() // read while nobody is kept waiting for the lock
		if !g.mu.TryLock() {
			if len(costs) <= fewLimits {
				g.postEnd(at, p.id, costs, success)
				return
			}
			g.lockSlow()
		}
	}
	now := g.epoch.Add(at)
	g.drain()
	var next chan<- struct{}
	if g.endRunning(now, p.id, costs, success) {
		next = g.pollAllButOne(now)
	}
	g.noteCompany()
	g.unlock()
	if next != nil {
		next <- struct{}{}
	}
}

// endRunning ends a call in the core, and counts it down; false if it had ended
// before. What it gives back is not yet given to others. mu is held.
func (g *Gate) endRunning(now time.Time, id gate.ID, costs []int64, success bool) bool {
	last := g.core.Leave(id)
	if success {
		g.core.Succeeded(now, id)
	}
	ended := g.core.Finish(now, id, costs)
	if last {
		g.gone()
	}
	return ended
}

// abandon is finish for a call whose usage may still be reported: it can be
// adjusted until drop.
func (p Permit) abandon(costs []int64) {
	g := p.g
	now := g.now()
	g.lock()
	defer g.unlock()
	g.core.FreeSlot(now, p.id)
	g.core.Settle(now, p.id, costs)
	g.poll(now)
	if g.core.Leave(p.id) {
		g.gone()
	}
}

// close is finish for a call whose answer was complete and settled: as a rule it
// holds nothing any more.
func (p Permit) close() {
	g := p.g
	g.lock()
	forgotten := g.core.Forget(p.id)
	g.unlock()
	if !forgotten {
		p.finish(nil, false)
	}
}

// drop forgets a call that was abandoned. One that never comes to it costs its
// memory only.
func (p Permit) drop() {
	now := p.g.now()
	p.g.lock()
	defer p.g.unlock()
	p.g.core.End(now, p.id)
}

// adjust books units that were reported after the call was settled.
func (p Permit) adjust(extra []int64) {
	now := p.g.now()
	p.g.lock()
	defer p.g.unlock()
	p.g.core.Adjust(now, p.id, extra)
	p.g.poll(now)
}

// progress tells, in one step, that the provider has begun to answer (first)
// and that the answer is complete: the slots come back, and unless costs is nil
// the call is settled to them.
func (p Permit) progress(now time.Time, first, complete bool, costs []int64) {
	g := p.g
	g.lock()
	defer g.unlock()
	if first {
		g.core.Succeeded(now, p.id)
	}
	if complete && costs != nil {
		g.core.Complete(now, p.id, costs) // what is settled is counted
	} else {
		if first {
			g.core.Counted(now, p.id)
		}
		if complete {
			g.core.FreeSlot(now, p.id)
		}
	}
	g.poll(now)
	if complete && costs != nil && g.core.Leave(p.id) {
		g.gone() // nothing is held any more, even if the consumer never comes back
		g.noteCompany()
	}
}

// refusal is what is known of an error beside its verdict.
type refusal struct {
	answered bool // the provider answered, with an error status
	begun    bool // it had begun to answer with what was asked for
	bounded  bool // the call is bounded in how long it waits
}

// refused tells the gate what an error of the provider means for everybody: a
// hint closes the budget that it names, a 429 cuts its rate, an overloaded
// provider gets fewer calls in flight, and one that is down none for a while, if
// the call is bounded in how long it waits. It reports whether that is so. The
// call itself stays as it is.
func (p Permit) refused(v retry.Verdict, r refusal) (paused bool) {
	g := p.g
	now := g.now()
	g.lock()
	defer g.unlock()
	if !g.core.Runs(p.id) {
		return false
	}
	if v.Class != retry.Overloaded && (r.answered || r.begun) {
		g.core.Answered(p.id)
	}
	switch v.Class {
	case retry.Throttled:
		hit, hinted := g.hit(v), v.HasHint && v.Hint > 0
		for _, i := range hit {
			if hinted {
				g.core.CloseBudget(now, i, now.Add(g.closeFor(v.Hint)))
				named := g.cfg.Profile.Dimensions[g.owner[i]].Resource&v.Resources != 0
				if named && !r.begun && g.count[i].atAdmission() {
					g.core.Emptied(now, p.id, i)
				}
			}
			if row := g.core.Cut(now, p.id, i); row > 0 && !hinted {
				g.core.CloseBudget(now, i, now.Add(g.cfg.Retry.Backoff(min(row, mostPause))))
			}
		}
		if v.Resources&retry.Concurrency != 0 || len(hit) == 0 && g.cfg.FindSlots {
			g.core.Crowded(now, p.id)
		}
	case retry.QuotaExhausted:
		if !v.PerDay {
			break // billing, credits: every call finds out for itself, at no cost
		}
		for _, i := range g.hit(v) {
			g.core.CloseBudget(now, i, now.Add(g.closeFor(g.maxHint())))
		}
	case retry.Overloaded:
		times := g.core.Overloaded(now, p.id)
		g.core.CutSlots(now, p.id)
		if times > 0 && (r.bounded || g.core.Bounded(p.id)) { // it is down
			paused = true
			pause := g.cfg.Retry.Backoff(min(times, mostPause))
			if v.HasHint {
				pause = max(pause, g.closeFor(v.Hint))
			}
			g.core.Pause(now, now.Add(pause))
		}
	}
	g.poll(now)
	return paused
}

// mostPause bounds the pauses of an outage: the longest is drawn from as long a
// time as the wait after so many failures, 8 s by default. One call that tries so
// often is no load, and the end of the outage is found soon.
const mostPause = 5

// hit lists the limits of the core that a refusal means, of those per day or of
// the shorter ones, as it says: those of the resources that it names; all of
// them if it names none that the profile has; all of the profile if there are
// none of that kind.
func (g *Gate) hit(v retry.Verdict) []int {
	var named, kind, all []int
	for i, d := range g.owner {
		dim := &g.cfg.Profile.Dimensions[d]
		all = append(all, i)
		if perDay := dim.window() >= 24*time.Hour; perDay != v.PerDay {
			continue
		}
		kind = append(kind, i)
		if dim.Resource&v.Resources != 0 {
			named = append(named, i)
		}
	}
	switch {
	case len(named) > 0:
		return named
	case v.Resources == retry.Concurrency:
		return nil
	case len(kind) > 0:
		return kind
	default:
		return all
	}
}

// closeFor is for how long a hint closes a budget: not longer than the longest
// hint that is believed, and up to a tenth more, so that the programs that share
// the quota do not return at once.
func (g *Gate) closeFor(hint time.Duration) time.Duration {
	hint = min(hint, g.maxHint(), maxClosed)
	return hint + rand.N(hint/10+1)
}

// maxClosed keeps sums of times far from overflow.
const maxClosed = 365 * 24 * time.Hour

func (g *Gate) maxHint() time.Duration {
	if g.cfg.Retry.MaxHint > 0 {
		return g.cfg.Retry.MaxHint
	}
	return retry.DefaultMaxHint
}

// requeue sends a refused call back into the line, not before the given delay,
// and waits for its next grant. It is in line with its first place. costs are
// what the refused attempt cost.
func (p Permit) requeue(ctx context.Context, costs []int64, delay time.Duration, r *request, d Diversion) error {
	g := p.g
	ready := make(chan struct{}, 1)
	now := g.now()
	g.lock()
	if g.cut {
		g.core.Settle(now, p.id, costs)
		if g.core.End(now, p.id) {
			g.end(now)
		}
		g.unlock()
		return &WaitError{Err: ErrClosed, Waited: now.Sub(g.epoch) - r.since}
	}
	g.core.Requeue(now, p.id, costs, now.Add(delay))
	g.core.SetReady(p.id, ready)
	g.poll(now)
	g.unlock()
	return g.await(ctx, &place{id: p.id, since: r.since}, ready, r, d)
}
