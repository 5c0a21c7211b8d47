package ratelimited

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// outcome is how an attempt ended; its names are the values of the metrics'
// label "outcome".
type outcome uint8

const (
	outcomeNone outcome = iota // it is not known yet
	outcomeOK
	outcomeThrottled
	outcomeQuota
	outcomeOverload
	outcomeNotSent
	outcomeDenied    // by a gate or budget further in
	outcomeCancelled // by the consumer or its context
	outcomeFailed    // the provider answered with an error
	outcomeBroken    // it ended without the item that completes it
	outcomePanicked  // in the model's code or in the consumer's
)

func (o outcome) String() string {
	return [...]string{
		"none", "ok", "throttled", "quota_exhausted", "overloaded", "not_sent",
		"denied", "cancelled", "failed", "broken", "panicked",
	}[o]
}

func outcomeOf(v retry.Verdict, ctx context.Context) outcome {
	if o := outcomeOfClass(v.Class); o != outcomeNone {
		return o
	}
	if ctx.Err() != nil {
		return outcomeCancelled
	}
	return outcomeFailed
}

// outcomeOfClass is the outcome that a class of errors says, or none.
func outcomeOfClass(c retry.Class) outcome {
	switch c {
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
	return outcomeNone
}

// bill is what an ended call is charged. It is made under the call's lock and
// paid after it.
type bill struct {
	kind     charge
	outcome  outcome
	provider usage.Usage // what the gate's limits are settled to, where kind says so
	customer usage.Usage // what the reservations are settled to; zero releases them
	settled  usage.Usage // what both were settled to when the answer was complete; zero if they were not
	booked   bool        // the reservations were, at any rate
	reported usage.Flags // what was odd about the reports
	held     time.Duration
}

// charge tells what the gate's limits are settled to.
type charge uint8

const (
	asUsed   charge = iota // at bill.provider
	asHeld                 // at the estimate
	asFailed               // at what the profile says of refused requests
	nothing                // the provider cannot have counted it
)

// bill decides what the call is charged:
//
//	usage was reported                      the maximum of the reports, for everybody; if it was broken off
//	                                        later, and the output seen since, at most the hold
//	denied by us, or not sent               nothing
//	refused by the provider                 gate: what the profile says; customers: nothing
//	sent, ended before the first item       the input estimate (customers: see WithReleaseInterrupted)
//	broken off after items without usage    the same, and the output seen, at most the hold
//	completed without usage                 the hold
//
// mu is held.
func (c *modelCall[Req, Resp]) bill() bill {
	b := bill{booked: c.booked, reported: c.seen.Flags}
	mark := usage.Estimated | c.seen.Flags&usage.Mismatch
	switch {
	case !c.seen.IsZero():
		b.provider = c.actual()
		if c.answered == More && c.output > 0 { // the report was of what came before
			reported := b.provider.Output
			b.provider.Output = max(reported, min(reported+c.output, c.Usage.Output))
			b.provider.Flags |= usage.Estimated
		}
		b.customer = b.provider
		switch {
		case !c.settled:
		case c.first != nil:
			b.settled = *c.first
		default:
			b.settled = b.provider
		}
	case c.answered == Done:
		b.kind = asHeld
		b.provider = c.Usage
		b.provider.Flags |= mark
		b.customer = b.provider
	case !c.sent:
		b.kind = nothing
	case c.refused:
		b.kind = asFailed
	default:
		b.provider = usage.Usage{
			Input: c.Usage.Input, CachedInput: c.Usage.CachedInput, CacheWrite: c.Usage.CacheWrite,
			Output: min(c.output, c.Usage.Output), Flags: mark,
		}
		if !c.m.opts.release {
			b.customer = b.provider
		}
	}
	return b
}

// actual is the reported usage, completed with the estimate where the provider
// reported a total only. mu is held.
func (c *modelCall[Req, Resp]) actual() usage.Usage {
	if !c.seen.Has(usage.TotalOnly) {
		return c.seen
	}
	return c.seen.Split(c.Usage).Clamp()
}

// finish ends the call, whatever has happened to it, and does so once; it
// reports whether it was this time. It runs deferred in the consumer's
// goroutine, and before an error is yielded. It only touches memory and never
// waits.
func (c *modelCall[Req, Resp]) finish() bool {
	c.lock()
	was := c.phase
	if was >= abandoned {
		c.unlock()
		return false
	}
	c.phase = over
	c.withdraw()
	if was == inLine {
		c.unlock()
		c.closeAccounts(&bill{})
		return true
	}
	b := c.bill()
	b.outcome = c.result()
	b.held = c.attemptOver()
	c.unlock()
	c.pay(&b, false)
	return true
}

// abandon is called when the context has ended. A consumer that forgot to stop
// a pulled sequence never comes back, so the call is ended from here; one that
// waits in line is woken by its context and ends the call itself.
func (c *modelCall[Req, Resp]) abandon() {
	c.mu.Lock()
	if c.phase != granted {
		c.mu.Unlock()
		return
	}
	c.phase = abandoned
	c.withdraw()
	b := c.bill()
	if b.outcome = outcomeCancelled; c.answered == Done {
		b.outcome = outcomeOK
	}
	b.held = c.attemptOver()
	left := &abandonment{charged: b.provider}
	c.left, c.booked = left, b.booked || !b.customer.IsZero()
	c.mu.Unlock()
	defer func() {
		if p := recover(); p != nil { // nobody above could meet it
			c.m.gate.cfg.Logger.Error("ratelimited: a function of the profile panicked at the end of a call; what it could not count is charged at its estimate",
				slog.String("gate", c.m.gate.Name()), slog.Any("panic", p))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		left.paid = true
		if left.wait != nil {
			close(left.wait)
		}
	}()
	c.pay(&b, true)
}

// leave is deferred by the consumer's goroutine: nothing comes after it. If the
// end of the context had ended the call before, items may have followed, and
// what they reported is booked now.
func (c *modelCall[Req, Resp]) leave() {
	if c.unwatch != nil {
		c.unwatch()
	}
	if c.finish() || !c.shared {
		return
	}
	c.mu.Lock()
	if c.phase != abandoned {
		c.mu.Unlock()
		return
	}
	c.phase = over
	left := c.left
	charged, booked, actual := left.charged, c.booked, left.charged
	if !c.seen.IsZero() {
		actual = c.actual()
	}
	if !left.paid { // that goroutine is at it now
		left.wait = make(chan struct{})
	}
	c.mu.Unlock()
	if left.wait != nil {
		<-left.wait
	}
	defer c.permit().drop()
	if actual != charged {
		c.correct(charged, actual, booked)
		c.m.gate.metrics.corrected(c.party, charged, actual)
	}
}

// result is the outcome of the last attempt. mu is held, in the consumer's
// goroutine.
func (c *modelCall[Req, Resp]) result() outcome {
	switch {
	case c.answered == Done:
		return outcomeOK
	case c.answered == Failed:
		return outcomeFailed
	case c.outcome != outcomeNone:
		return c.outcome
	case c.stopped || c.ctx.Err() != nil:
		return outcomeCancelled
	case c.returned:
		return outcomeBroken
	default:
		return outcomePanicked
	}
}

// pay ends the permit and the reservations as the bill says. The functions of
// the profile may panic; everything is back afterwards all the same.
func (c *modelCall[Req, Resp]) pay(b *bill, abandoned bool) {
	g := c.m.gate
	due := g.tell(c.party, c.class, &c.Usage, &c.raw, b)
	var buf costs
	var at []int64 // nil stands for what was held
	defer func() {
		if due {
			defer g.revise(c.party) // when everything is back
		}
		switch {
		case abandoned:
			c.permit().abandon(at)
		case b.settled.IsZero():
			c.permit().finish(at, false)
		default:
			c.permit().close()
		}
		c.closeAccounts(b)
	}()
	n := buf.of(g)
	switch {
	case !b.settled.IsZero():
		if abandoned {
			c.settledCosts(n, &b.settled)
		}
		if b.provider != b.settled {
			c.correct(b.settled, b.provider, b.booked)
		}
	case b.kind == asUsed:
		c.settledCosts(n, &b.provider)
	case b.kind == asHeld:
		n = nil
	case b.kind == asFailed:
		g.failedCosts(n, c.Usage)
	}
	at = n
}

// tell counts the end of a call in the metrics, and learns from it if the raw
// estimate is given. It reports whether what was learned is to be applied to the
// other calls of the party.
func (g *Gate) tell(p *party, class uint8, reserved *usage.Usage, raw *estimate, b *bill) (due bool) {
	if b.outcome != outcomeNone {
		g.metrics.attempt(p, class, b.outcome)
	}
	billed := b.kind == asUsed || b.kind == asHeld
	ratio := 0.0
	if billed {
		ratio = g.metrics.settled(p, reserved, b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold.observe(waitBuckets, b.held.Seconds())
	if ratio > 0 {
		p.ratio.observe(ratioBuckets, ratio)
	}
	if raw != nil && billed && b.outcome == outcomeOK && !b.provider.Has(usage.Estimated) {
		p.learn(*raw, &b.provider) // part of an answer says nothing about whole ones
		due = p.due()
	}
	return due
}

// correct books usage that was reported after the call was settled, with the
// customers too if their reservations were.
func (c *modelCall[Req, Resp]) correct(from, to usage.Usage, customers bool) {
	g := c.m.gate
	var buf, extra costs
	n, x := buf.of(g), extra.of(g)
	c.settledCosts(n, &from)
	c.settledCosts(x, &to)
	for i := range n {
		x[i] -= n[i]
	}
	c.permit().adjust(x)
	if customers {
		c.bookAccounts(adjust, to)
	}
}

// reserve sets the estimate aside on every customer budget, or on none. It returns
// the request that is to be sent: where a budget has room for a shorter answer
// only, its output is limited.
func (c *modelCall[Req, Resp]) reserve(model string, req Req) (Req, error) {
	budgets := c.m.opts.budgets
	if len(budgets) == 0 {
		return req, nil
	}
	if !c.m.gate.enter() {
		return req, &WaitError{Err: ErrClosed}
	}
	c.entered = true
	call := budget.Call{ID: budget.NewID(), Model: model, Agent: c.Agent, MaxOutput: c.most, Usage: c.Usage}
	c.accounts = make([]account, 0, len(budgets))
	most := int64(-1)
	for i, b := range budgets {
		r, err := b.Reserve(c.ctx, call)
		if err != nil {
			return req, err // what is held already is released by finish
		}
		if r == nil {
			continue
		}
		c.accounts = append(c.accounts, newAccount(c.ctx, r, i))
		if f, ok := r.(budget.Final); ok {
			if n, final := f.MaxOutput(); final && (most < 0 || n < most) {
				most = max(n, 0)
			}
		}
	}
	if most < 0 {
		return req, nil
	}
	return c.shorten(req, most)
}

// shorten limits the output of the request, because a budget has room for no more.
func (c *modelCall[Req, Resp]) shorten(req Req, most int64) (Req, error) {
	shorter, ok := c.m.meter.Clamp(req, most)
	if l, knows := c.m.meter.(outputLimiter[Req]); !ok && knows {
		limit := l.OutputLimit(req)
		ok = limit > 0 && limit <= most // it is short enough
	}
	if !ok || most == 0 {
		return req, &budget.DeniedError{
			Budget: "output", Unit: "tokens", Limit: most, Requested: c.Usage.Output,
			Err: errors.New("there is room for a shorter answer only, and the request cannot be limited to it"),
		}
	}
	c.most = most
	c.Usage = c.party.limit(c.revised, most)
	return shorter, nil
}

// closeAccounts settles the customers' reservations, or releases them if the
// bill says so or they were never used, and tells the gate that none is open
// any more.
func (c *modelCall[Req, Resp]) closeAccounts(b *bill) {
	if len(c.m.opts.budgets) == 0 {
		return
	}
	switch {
	case b.booked:
	case b.customer.IsZero():
		c.bookAccounts(release, usage.Usage{})
	default:
		c.bookAccounts(settle, b.customer)
	}
	c.lock()
	open := c.entered
	c.entered = false
	c.unlock()
	if open {
		c.m.gate.exit()
	}
}

func (c *modelCall[Req, Resp]) bookAccounts(op operation, u usage.Usage) {
	for i := range c.accounts {
		c.m.gate.settler.book(&c.accounts[i], op, u)
	}
}
