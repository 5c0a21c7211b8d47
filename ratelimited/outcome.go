package ratelimited

import (
	"context"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// label is a value of the metrics' label "outcome"; the list is fixed.
type label string

const (
	outcomeOK        label = "ok"
	outcomeThrottled label = "throttled"
	outcomeQuota     label = "quota_exhausted"
	outcomeOverload  label = "overloaded"
	outcomeNotSent   label = "not_sent"
	outcomeDenied    label = "denied"
	outcomeCancelled label = "cancelled" // by the consumer or its context
	outcomeFailed    label = "failed"    // the provider answered with an error
	outcomeBroken    label = "broken"    // after items, without the one that completes
)

func outcomeOf(v retry.Verdict, ctx context.Context) label {
	switch v.Class {
	case retry.Throttled:
		return outcomeThrottled
	case retry.QuotaExhausted:
		return outcomeQuota
	case retry.Overloaded:
		return outcomeOverload
	case retry.NotSent:
		return outcomeNotSent
	case retry.Denied, retry.NeverFits:
		return outcomeDenied
	}
	if ctx.Err() != nil {
		return outcomeCancelled
	}
	return outcomeFailed
}

// finish ends the call, whatever has happened to it, and does so once. It runs
// deferred in the consumer's goroutine, when the context ends, and before an
// error is yielded. It only touches memory and never waits.
//
// What an ended call is charged:
//
//	usage was reported                      the maximum of the reports, for everybody
//	denied by us, or not sent               nothing
//	refused by the provider                 gate: what the profile says; customers: nothing
//	sent, ended before the first item       the input estimate (customers: see WithReleaseInterrupted)
//	broken off after items without usage    the same, and the output seen, at most the hold
//	completed without usage                 the hold
func (c *modelCall[Req, Resp]) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
	case c.granted:
		c.end()
	default: // it ends in line, or before it
		c.over = true
		c.releaseHeld()
	}
}

// abandon is called when the context has ended. A consumer that forgot to stop
// a pulled sequence never comes back, so the call is ended from here; one that
// waits in line is woken by its context and ends the call itself.
func (c *modelCall[Req, Resp]) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.granted && !c.over {
		c.end()
	}
}

// end books the end of a call that was granted. mu is held.
func (c *modelCall[Req, Resp]) end() {
	g := c.m.gate
	c.over = true
	c.attemptOver()
	switch {
	case !c.settled.IsZero(): // when the answer was complete
		c.late()
		c.permit.finish(nil, true)
		c.learn()
		g.metrics.settled(c.model, c.call.Usage, c.settled)
	case !c.seen.IsZero():
		c.settled = c.actual()
		c.charge(c.settled, c.settled)
		c.learn()
	case c.answered:
		held := c.call.Usage
		held.Flags |= usage.Estimated
		c.permit.finish(nil, true)
		c.settleHeld(held)
		g.metrics.settled(c.model, held, held)
	case !c.sent:
		c.permit.Release()
		c.releaseHeld()
	case c.refused:
		var costs [gate.MaxDims]int64
		n := costs[:len(g.owner)]
		g.failedCosts(n, c.call.Usage)
		c.permit.finish(n, true)
		c.releaseHeld()
	default:
		part := usage.Usage{
			Input: c.call.Usage.Input, CachedInput: c.call.Usage.CachedInput, CacheWrite: c.call.Usage.CacheWrite,
			Output: min(c.output, c.call.Usage.Output), Flags: usage.Estimated,
		}
		if c.m.opts.release {
			c.charge(part, usage.Usage{})
		} else {
			c.charge(part, part)
		}
	}
}

// charge ends the permit and the reservations at what was used; a zero usage
// releases the reservations.
func (c *modelCall[Req, Resp]) charge(provider, customers usage.Usage) {
	g := c.m.gate
	var costs [gate.MaxDims]int64
	n := costs[:len(g.owner)]
	g.settledCosts(n, provider)
	c.permit.finish(n, true)
	if customers.IsZero() {
		c.releaseHeld()
	} else {
		c.settleHeld(customers)
	}
	g.metrics.settled(c.model, c.call.Usage, provider)
}

// late books usage that was reported after the answer was complete and settled.
func (c *modelCall[Req, Resp]) late() {
	now := c.actual()
	if now == c.settled {
		return
	}
	g := c.m.gate
	var costs, extra [gate.MaxDims]int64
	n, x := costs[:len(g.owner)], extra[:len(g.owner)]
	g.settledCosts(n, now)
	g.settledCosts(x, c.settled)
	for i := range n {
		x[i] = n[i] - x[i]
	}
	c.settled = now
	c.permit.adjust(x)
	for i, r := range c.held {
		if a, ok := r.(budget.Adjuster); ok {
			c.book(i, r, func(ctx context.Context) error { return a.Adjust(ctx, now) })
		}
	}
}

// learn corrects later estimates by a reported usage; part of an answer says
// nothing about whole ones.
func (c *modelCall[Req, Resp]) learn() {
	if c.answered && c.result == outcomeOK {
		c.m.gate.learner.observe(c.model, c.agent, c.raw, c.settled)
	}
}

// settleHeld settles the customers' reservations, releaseHeld gives them back.
// A reservation settles once, so both may be called again.
func (c *modelCall[Req, Resp]) settleHeld(u usage.Usage) {
	for i, r := range c.held {
		c.book(i, r, func(ctx context.Context) error { return r.Settle(ctx, u) })
	}
}

func (c *modelCall[Req, Resp]) releaseHeld() {
	for i, r := range c.held {
		c.book(i, r, r.Release)
	}
}

// book does something to a reservation: at once if it only touches memory,
// otherwise from the gate's queue. The caller's cancel does not reach it.
func (c *modelCall[Req, Resp]) book(i int, r budget.Reservation, do func(context.Context) error) {
	job := settlement{ctx: context.WithoutCancel(c.ctx), do: do, index: i}
	if l, ok := r.(budget.Local); ok && l.Local() {
		if err := do(job.ctx); err != nil {
			c.m.gate.settler.lost(job, err)
		}
		return
	}
	c.m.gate.settler.add(job)
}
