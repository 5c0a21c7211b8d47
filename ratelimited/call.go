package ratelimited

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// modelCall is one range over GenerateContent's sequence, from its estimate to
// its end. The consumer's goroutine drives it; the end of the context may reach
// it from another one, which is why there is a lock.
type modelCall[Req, Resp any] struct {
	m      *RateLimitedModel[Req, Resp]
	ctx    context.Context
	stream bool
	yield  func(Resp, error) bool

	call      Call        // with the estimate that is held
	raw       usage.Usage // the estimate before it was corrected by what was learned
	model     string      // label, bounded
	agent     string      // label, bounded
	since     time.Time   // when it entered the line
	deadline  time.Time   // when it must have left it for good; zero is never
	byContext bool        // the deadline is the context's
	attempts  int
	stopped   bool // the consumer wants no more
	written   *time.Timer

	mu sync.Mutex
	// mu guards all that follows.
	permit   Permit
	granted  bool // the permit is held: the call is not in line
	started  time.Time
	heldFor  time.Duration // how long the slot was held, once it is back
	held     []budget.Reservation
	seen     usage.Usage // maximum of the reports
	output   int64       // estimated output of the items without a report
	items    int         // that the model has answered
	answered bool        // the answer is complete
	settled  usage.Usage // what was settled when the answer was complete
	verdict  retry.Verdict
	refused  bool  // the provider refused the last attempt, before an item
	sent     bool  // an attempt was begun and its end is not known to be "not sent"
	over     bool  // the end was booked
	result   label // outcome of the last attempt
}

// run makes the call.
func (c *modelCall[Req, Resp]) run(req Req) {
	m, g := c.m, c.m.gate
	var zero Resp
	if c.ctx.Done() != nil && c.ctx.Err() != nil {
		c.yield(zero, &WaitError{Err: contextError(c.ctx)})
		return
	}
	c.raw = m.meter.Estimate(req)
	c.call = Call{Model: m.inner.Name(), Slots: m.opts.slots}
	maxWait := g.fill(c.ctx, &c.call)
	if c.call.Class == "" {
		c.call.Class = g.cfg.Classes[0].Name
	}
	c.model, c.agent = g.learner.labels(c.call.Model, c.call.Agent)
	c.call.Usage = g.admissible(c.raw, g.learner.estimate(c.model, c.agent, c.raw))
	c.since = g.now()
	c.deadline, c.byContext = g.deadline(c.ctx, c.since, maxWait)

	defer c.finish()
	if err := c.reserve(); err != nil {
		c.yield(zero, err)
		return
	}
	permit, err := g.Acquire(c.ctx, c.call)
	if err != nil {
		c.yield(zero, err)
		return
	}
	c.permit, c.granted, c.started = permit, true, g.now()
	if c.ctx.Done() != nil {
		stop := context.AfterFunc(c.ctx, c.abandon)
		defer stop()
	}
	g.retries.Call(c.since)
	for {
		delay, cause := c.attempt(req)
		if cause == nil {
			return
		}
		if err := c.requeue(delay); err != nil {
			var w *WaitError
			if errors.As(err, &w) {
				w.Throttled = cause
			}
			c.yield(zero, err)
			return
		}
	}
}

// deadline is when a call must have left the line for good.
func (g *Gate) deadline(ctx context.Context, now time.Time, maxWait *time.Duration) (at time.Time, byContext bool) {
	at, byContext = ctx.Deadline()
	if maxWait == nil {
		maxWait = g.cfg.MaxWait
	}
	if maxWait != nil {
		if d := now.Add(*maxWait); !byContext || d.Before(at) {
			return d, false
		}
	}
	return at, byContext
}

// admissible keeps a learned estimate from never fitting where the raw one
// does.
func (g *Gate) admissible(raw, learned usage.Usage) usage.Usage {
	for i := range g.cfg.Profile.Dimensions {
		d := &g.cfg.Profile.Dimensions[i]
		if d.Count(learned) > d.Limit && d.Count(raw) <= d.Limit {
			return raw
		}
	}
	return learned
}

// reserve sets the estimate aside on every customer budget, or on none.
func (c *modelCall[Req, Resp]) reserve() error {
	if len(c.m.opts.budgets) == 0 {
		return nil
	}
	call := budget.Call{ID: budget.NewID(), Model: c.call.Model, Agent: c.call.Agent, Usage: c.call.Usage}
	for _, b := range c.m.opts.budgets {
		r, err := b.Reserve(c.ctx, call)
		if err != nil {
			return err // what is held already is released by finish
		}
		c.held = append(c.held, r)
	}
	return nil
}

// attempt sends the call once. It returns the refusal after which it is worth
// trying again, and the delay before that; nil if the call is over.
func (c *modelCall[Req, Resp]) attempt(req Req) (delay time.Duration, cause error) {
	c.mu.Lock()
	c.attempts++
	c.sent, c.refused, c.result = true, false, outcomeCancelled
	c.mu.Unlock()
	ctx := c.ctx
	if c.m.opts.transport {
		permit := c.permit
		ctx = retry.WithWritten(Pin(ctx), func() { c.counted(permit) })
	}
	over := false
	c.m.inner.GenerateContent(ctx, req, c.stream)(func(resp Resp, err error) bool {
		if over {
			return false // an inner model that ignores false
		}
		more := false
		if err != nil && c.items == 0 {
			if delay, cause = c.refusal(err); cause == nil {
				more = c.pass(resp, err)
			}
		} else if err != nil {
			c.broken(err)
			more = c.pass(resp, err)
		} else if c.m.isNil(resp) {
			return true // an item that is nothing is not passed on: frameworks trip over it
		} else {
			c.observe(resp)
			more = c.pass(resp, nil)
		}
		over = !more
		return more
	})
	if cause == nil {
		c.completed()
	}
	return delay, cause
}

// pass hands an item to the consumer.
func (c *modelCall[Req, Resp]) pass(resp Resp, err error) bool {
	if c.stopped {
		return false
	}
	if !c.yield(resp, err) {
		c.stopped = true
	}
	return !c.stopped
}

// counted is called when the request was written: a second later the provider
// has counted it.
func (c *modelCall[Req, Resp]) counted(p Permit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.items > 0 {
		return
	}
	if c.written != nil {
		c.written.Stop()
	}
	c.written = time.AfterFunc(writtenDelay, p.Counted)
}

// observe reads an item before it is passed on. The first one settles that the
// provider has counted the call; the one that completes the answer gives the
// slot back, because frameworks run more calls inside its yield.
func (c *modelCall[Req, Resp]) observe(resp Resp) {
	u, progress := c.m.meter.Observe(resp)
	if !c.stream && progress == More {
		progress = Done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.Has(usage.Estimated) {
		c.output += max(u.Output, 0)
	} else if !u.IsZero() {
		c.seen = c.seen.Max(u)
	}
	first := c.items == 0
	c.items++
	complete := progress != More && !c.answered
	if complete {
		c.answered = true
		c.heldFor = c.m.gate.now().Sub(c.started)
		c.result = outcomeOK
		if progress == Failed {
			c.result = outcomeFailed
		}
	}
	if c.over || !first && !complete {
		return
	}
	if !complete || c.seen.IsZero() {
		c.permit.progress(first, complete, nil)
		return
	}
	c.settled = c.actual()
	var costs [gate.MaxDims]int64
	n := costs[:len(c.m.gate.owner)]
	c.m.gate.settledCosts(n, c.settled)
	c.permit.progress(first, complete, n)
	c.settleHeld(c.settled)
}

// actual is the reported usage, completed with the estimate where the provider
// reported a total only.
func (c *modelCall[Req, Resp]) actual() usage.Usage { return c.seen.Split(c.call.Usage) }

// refusal handles an error in place of the first item: it tells the gate, and
// decides whether the call is tried again.
func (c *modelCall[Req, Resp]) refusal(err error) (delay time.Duration, cause error) {
	g := c.m.gate
	v := g.cfg.Retry.Classify(err)
	c.mu.Lock()
	c.verdict = v
	c.refused = answered(v, err)
	c.sent = v.Class != retry.NotSent && v.Class != retry.Denied && v.Class != retry.NeverFits
	c.result = outcomeOf(v, c.ctx)
	over := c.over
	c.mu.Unlock()
	if !over {
		c.permit.refused(v)
		c.m.gate.metrics.throttled(c.agent, c.call.Class, v)
		if delay, ok := c.again(v); ok {
			return delay, err
		}
	}
	c.finish() // an error completes the call: everything is back before it is yielded
	return 0, nil
}

// again tells whether a refused call may be sent once more, and after what
// delay. A throttled call was not executed and is simply requeued; where the
// provider is in trouble, retries are bounded by a share of all calls.
func (c *modelCall[Req, Resp]) again(v retry.Verdict) (time.Duration, bool) {
	g := c.m.gate
	if !c.m.retries {
		return 0, false
	}
	delay, ok := g.cfg.Retry.Delay(v, c.attempts)
	if !ok {
		return 0, false
	}
	now := g.now()
	if !c.deadline.IsZero() && now.Add(delay).After(c.deadline) {
		return 0, false
	}
	if v.Class.UsesBudget() && !g.retries.TryRetry(now) {
		return 0, false
	}
	return delay, true
}

// answered reports whether the provider answered with an error status, so that
// the call was not executed.
func answered(v retry.Verdict, err error) bool {
	switch v.Class {
	case retry.Throttled, retry.QuotaExhausted, retry.Overloaded:
		return true
	}
	var e genai.APIError
	return errors.As(err, &e) && e.Code >= 400
}

// requeue gives everything back and waits in line again.
func (c *modelCall[Req, Resp]) requeue(delay time.Duration) error {
	g := c.m.gate
	var costs [gate.MaxDims]int64
	n := costs[:len(g.owner)]
	c.mu.Lock()
	if c.over { // its context ended
		c.mu.Unlock()
		return &WaitError{Err: contextError(c.ctx), Waited: g.now().Sub(c.since)}
	}
	c.attemptOver()
	if c.refused {
		g.failedCosts(n, c.call.Usage)
	}
	permit := c.permit
	c.granted = false
	c.mu.Unlock()
	err := permit.requeue(c.ctx, n, delay, c.since, c.byContext)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return err
	}
	if c.ctx.Err() != nil { // it ended between the grant and here; abandon has been and gone
		permit.Release()
		return &WaitError{Err: contextError(c.ctx), Waited: g.now().Sub(c.since)}
	}
	c.granted, c.started = true, g.now()
	return nil
}

// attemptOver books the outcome of an attempt. mu is held.
func (c *modelCall[Req, Resp]) attemptOver() {
	if c.written != nil {
		c.written.Stop()
		c.written = nil
	}
	held := c.heldFor
	if held == 0 {
		held = c.m.gate.now().Sub(c.started)
	}
	c.m.gate.metrics.attempt(c.model, c.call.Class, c.result, held)
}

// broken handles an error after the first item. It is passed on: what was
// delivered cannot be taken back, so the call is never sent again.
func (c *modelCall[Req, Resp]) broken(err error) {
	v := c.m.gate.cfg.Retry.Classify(err)
	c.mu.Lock()
	over, done := c.over, c.answered
	if !done {
		c.result = outcomeOf(v, c.ctx)
		if c.result == outcomeFailed {
			c.result = outcomeBroken
		}
	}
	c.mu.Unlock()
	if over || done {
		return
	}
	c.permit.refused(v)
	c.m.gate.metrics.throttled(c.agent, c.call.Class, v)
	c.finish()
}

// completed handles the normal end of the model's sequence.
func (c *modelCall[Req, Resp]) completed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered && !c.stopped && !c.refused && c.items > 0 && c.result == outcomeCancelled {
		c.result = outcomeBroken // it ended without the item that completes it
	}
}
