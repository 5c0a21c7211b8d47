package ratelimited

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// modelCall is one range over GenerateContent's sequence, from its estimate to
// its end. The consumer's goroutine drives it; the end of the context may reach
// it from another one, which is why there is a lock.
//
// The lock is only held to look at fields and to change them, and to tell the
// gate something. Whoever ends the call, or books something, decides so under
// the lock and acts after it: the model, the meter, the budgets and the
// functions of the profile are other people's code.
type modelCall[Req, Resp any] struct {
	m      *RateLimitedModel[Req, Resp]
	ctx    context.Context
	stream bool
	yield  func(Resp, error) bool

	// What follows belongs to the consumer's goroutine, or is fixed before the
	// call can end from elsewhere.

	request  // with the estimate that is held
	party    *party
	permit   Permit
	accounts []account // of the customer budgets
	stopped  bool      // the consumer wants no more
	returned bool      // the model's sequence has come to its end
	finished int       // the last attempt that is to yield no more
	delay    time.Duration
	cause    error       // the refusal after which the call is tried again, after delay
	unwatch  func() bool // ends the watch over the context

	mu sync.Mutex
	// mu guards all that follows. The consumer's goroutine alone changes what is
	// not marked otherwise, and may read that without the lock.
	phase    phase // changed by whoever ends the call
	attempts int
	started  time.Time     // when the permit was granted
	heldFor  time.Duration // how long the slot was held, once the answer is complete
	seen     usage.Usage   // maximum of the reports
	output   int64         // estimated output of the items without a report
	items    int           // that the model has answered
	answered Progress      // More until an item completed the answer
	settled  usage.Usage   // what was settled when the answer was complete
	booked   bool          // the reservations were settled, too
	entered  bool          // the gate counts the reservations as open; changed by whoever closes them
	refused  bool          // the provider refused the last attempt, before an item
	sent     bool          // an attempt was begun and its end is not known to be "not sent"
	outcome  label         // of the attempt, where an error has told it
	charged  usage.Usage   // what an abandoned call was charged; set by whoever ended it
	paid     bool          // that was booked; likewise
	wait     chan struct{} // closed when it is, if the consumer waits for it
	written  *time.Timer   // set and stopped by the HTTP client's goroutine, too
}

// phase is where a call stands.
type phase uint8

const (
	inLine    phase = iota // or before it: it holds no permit
	granted                // it holds one
	abandoned              // its context's end has ended it; the consumer has not
	over                   // it was ended
)

// run makes the call.
func (c *modelCall[Req, Resp]) run(req Req) {
	m, g := c.m, c.m.gate
	c.raw = m.meter.Estimate(req)
	name := m.inner.Name()
	c.Slots = m.opts.slots
	maxWait := g.fill(c.ctx, &c.Call)
	c.party = g.learner.party(name, c.Agent)
	c.Usage = c.party.estimate(c.raw)

	defer c.leave()
	if err := g.resolve(&c.request); err != nil {
		c.fail(err)
		return
	}
	var err error
	if c.ctx.Done() != nil && c.ctx.Err() != nil {
		err = &WaitError{Err: contextError(c.ctx)}
	} else {
		err = c.reserve(name)
	}
	if err == nil {
		g.begin(c.ctx, &c.request, maxWait)
		c.permit, c.started, err = g.acquire(c.ctx, &c.request)
	}
	if err != nil {
		g.metrics.refused(c.class, err)
		c.fail(err)
		return
	}
	c.phase = granted
	g.metrics.admitted(c.party, c.class, c.started.Sub(c.since))
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
			g.metrics.refused(c.class, err)
			c.fail(err)
			return
		}
	}
}

// fail ends the call with an error of ours. Everything is back before it is
// yielded.
func (c *modelCall[Req, Resp]) fail(err error) {
	var zero Resp
	c.finish()
	c.yield(zero, err)
}

// attempt sends the call once. It returns the refusal after which it is worth
// trying again, and the delay before that; nil if the call is over.
func (c *modelCall[Req, Resp]) attempt(req Req) (delay time.Duration, cause error) {
	c.mu.Lock()
	c.attempts++
	c.sent, c.refused, c.outcome = true, false, ""
	n := c.attempts
	c.mu.Unlock()
	ctx := c.ctx
	if c.m.opts.transport {
		ctx = retry.WithWritten(Pin(ctx), func() { c.requestWritten(n) })
	}
	c.returned, c.delay, c.cause = false, 0, nil
	c.m.inner.GenerateContent(ctx, req, c.stream)(func(resp Resp, err error) bool {
		return n > c.finished && c.item(n, resp, err)
	})
	c.returned = true
	return c.delay, c.cause
}

// item handles what the n-th attempt yields; false if it is to yield no more.
func (c *modelCall[Req, Resp]) item(n int, resp Resp, err error) (more bool) {
	switch {
	case err != nil && c.items == 0:
		if c.delay, c.cause = c.refusal(err); c.cause == nil {
			more = c.pass(resp, err)
		}
	case err != nil:
		c.broken(err)
		more = c.pass(resp, err)
	case c.m.isNil(resp):
		return true // an item that is nothing is not passed on: frameworks trip over it
	default:
		c.observe(resp)
		c.watch()
		more = c.pass(resp, nil)
	}
	if !more {
		c.finished = n
	}
	return more
}

// watch sees to it that the end of the context ends the call while the consumer
// has the word: one that pulled an item and forgot to stop never comes back.
// Where nothing is held any more there is nothing to watch.
func (c *modelCall[Req, Resp]) watch() {
	if c.unwatch != nil || c.booked || c.ctx.Done() == nil {
		return
	}
	c.unwatch = context.AfterFunc(c.ctx, c.abandon)
}

// pass hands an item to the consumer.
func (c *modelCall[Req, Resp]) pass(resp Resp, err error) bool {
	c.stopped = !c.yield(resp, err)
	return !c.stopped
}

// requestWritten is called when the request of the n-th attempt was written: a
// second later the provider has counted it.
func (c *modelCall[Req, Resp]) requestWritten(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.awaits(n) {
		return
	}
	if c.written != nil {
		c.written.Stop() // a request of the same attempt: the last one counts
	}
	c.written = time.AfterFunc(writtenDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.awaits(n) { // and goes on doing so: the lock is held
			c.permit.Counted()
		}
	})
}

// awaits reports whether the n-th attempt runs and has no item yet. mu is held.
func (c *modelCall[Req, Resp]) awaits(n int) bool {
	return c.phase == granted && c.attempts == n && c.items == 0
}

// observe reads an item before it is passed on. The first one tells that the
// provider has counted the call; the one that completes the answer gives the
// slot back, because frameworks run more calls inside its yield.
func (c *modelCall[Req, Resp]) observe(resp Resp) {
	g := c.m.gate
	u, progress := c.m.meter.Observe(resp)
	if !c.stream && progress == More {
		progress = Done
	}
	var now time.Time
	c.mu.Lock()
	if u.Has(usage.Estimated) {
		c.output += min(max(u.Output, 0), maxOutput)
	} else {
		c.seen = c.seen.Max(u.Clamp())
	}
	first := c.items == 0
	c.items++
	complete := progress != More && c.answered == More
	var used usage.Usage
	if complete {
		c.answered = progress
		now = g.now()
		c.heldFor = now.Sub(c.started)
		if !c.seen.IsZero() {
			c.settled = c.actual()
			used = c.settled
		}
	}
	runs := c.phase == granted
	c.mu.Unlock()
	if first && !complete {
		now = g.now()
	}
	switch {
	case !runs || !first && !complete:
	case used.IsZero():
		c.permit.progress(now, first, complete, nil)
	default:
		var costs [gate.MaxDims]int64
		n := costs[:len(g.owner)]
		g.settledCosts(n, used)
		c.permit.progress(now, first, complete, n)
		c.bookAccounts(settle, used)
		c.mu.Lock()
		c.booked = true
		open := c.entered
		c.entered = false
		c.mu.Unlock()
		if open {
			g.exit()
		}
	}
}

// maxOutput bounds what one item adds to the estimate of the output seen, so
// that the sum does not overflow.
const maxOutput = 1 << 40

// refusal handles an error in place of the first item: it tells the gate, and
// decides whether the call is tried again.
func (c *modelCall[Req, Resp]) refusal(err error) (delay time.Duration, cause error) {
	v, real := c.verdict(err)
	c.mu.Lock()
	c.refused = real && answered(v, err)
	c.sent = v.Class != retry.NotSent && v.Class != retry.Denied && v.Class != retry.NeverFits
	c.outcome = outcomeOf(v, c.ctx)
	runs := c.phase == granted
	c.mu.Unlock()
	if runs {
		c.learnRefusal(v)
		if delay, ok := c.again(v); ok {
			return delay, err
		}
	}
	c.finish() // an error completes the call: everything is back before it is yielded
	return 0, nil
}

// verdict is what an error means; false if it means the end of the context. Then
// it may be that context's cause, such as the 429 of a sibling in a fan-out, and
// says nothing about this call.
func (c *modelCall[Req, Resp]) verdict(err error) (retry.Verdict, bool) {
	if c.ctx.Err() != nil {
		return retry.Verdict{}, false
	}
	return c.m.gate.cfg.Retry.Classify(err), true
}

// broken handles an error after the first item. It is passed on: what was
// delivered cannot be taken back, so the call is never sent again.
func (c *modelCall[Req, Resp]) broken(err error) {
	v, _ := c.verdict(err)
	c.mu.Lock()
	runs := c.phase == granted && c.answered == More
	if runs {
		if c.outcome = outcomeOf(v, c.ctx); c.outcome == outcomeFailed {
			c.outcome = outcomeBroken
		}
	}
	c.mu.Unlock()
	if runs {
		c.learnRefusal(v)
	}
	c.finish()
}

// learnRefusal tells the gate what an error means for all callers. The error's
// text is not logged: a provider may quote the prompt in it.
func (c *modelCall[Req, Resp]) learnRefusal(v retry.Verdict) {
	g := c.m.gate
	c.permit.refused(v)
	g.metrics.throttled(c.party, c.class, v)
	if log := g.cfg.Logger; log.Enabled(c.ctx, slog.LevelDebug) {
		log.LogAttrs(c.ctx, slog.LevelDebug, "ratelimited: the provider did not serve a call",
			slog.String("gate", g.Name()), slog.String("model", c.party.model), slog.String("class", c.Class),
			slog.String("agent", c.Agent), slog.String("flow", c.Flow), slog.String("request", c.Request),
			slog.Int("attempt", c.attempts), slog.String("verdict", v.Class.String()),
			slog.String("limits", v.Resources.String()), slog.Bool("per_day", v.PerDay), slog.Duration("hint", v.Hint))
	}
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
	if p := (*genai.APIError)(nil); errors.As(err, &p) && p != nil {
		e = *p
	} else {
		errors.As(err, &e)
	}
	return e.Code >= 400
}

// requeue gives everything back and waits in line again.
func (c *modelCall[Req, Resp]) requeue(delay time.Duration) error {
	g := c.m.gate
	var costs [gate.MaxDims]int64
	n := costs[:len(g.owner)]
	if c.refused {
		g.failedCosts(n, c.Usage)
	}
	c.mu.Lock()
	c.phase = inLine
	held := c.attemptOver()
	c.mu.Unlock()
	g.metrics.attempt(c.party, c.class, c.outcome, held)
	if err := c.permit.requeue(c.ctx, n, delay, &c.request); err != nil {
		return err
	}
	if c.ctx.Err() != nil { // between the grant and here: it is not sent again
		c.permit.Release()
		return &WaitError{Err: contextError(c.ctx), Waited: g.now().Sub(c.since)}
	}
	c.mu.Lock()
	c.phase, c.started = granted, g.now()
	c.mu.Unlock()
	return nil
}

// attemptOver ends the bookkeeping of an attempt and returns how long it held
// its slot. mu is held.
func (c *modelCall[Req, Resp]) attemptOver() time.Duration {
	if c.written != nil {
		c.written.Stop()
		c.written = nil
	}
	if c.answered != More {
		return c.heldFor
	}
	return c.m.gate.now().Sub(c.started)
}
