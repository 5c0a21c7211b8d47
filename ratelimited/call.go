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
//
// Every call needs one record of this, so what only few calls need is made apart,
// and a record that nobody else has come to know is used again; see renew.
type modelCall[Req, Resp any] struct {
	m      *RateLimitedModel[Req, Resp]
	ctx    context.Context
	yield  func(Resp, error) bool
	stream bool

	// What follows belongs to the consumer's goroutine, or is fixed before the
	// call can end from elsewhere.

	shared    bool  // another goroutine knows the call: mu must be held
	stopped   bool  // the consumer wants no more
	returned  bool  // the model's sequence has come to its end
	probes    int32 // the attempts that found the provider down
	finished  int32 // the last attempt that is to yield no more, of this call or one before
	earlier   int32 // the attempts of the calls that had the record before
	request         // with the estimate that is held
	most      int64 // limit of its output; 0 is none
	party     *party
	revised   *revisable  // the call in the party's list
	id        gate.ID     // of the permit
	accounts  []account   // of the customer budgets
	next      *repetition // the call is tried again, and how
	unwatch   func() bool // ends the watch over the context
	elsewhere Diversion   // tells whether it goes elsewhere; or nil

	mu sync.Mutex // see lock
	// mu guards all that follows. The consumer's goroutine alone changes what is
	// not marked otherwise, and may read that without the lock.
	phase    phase         // changed by whoever ends the call
	answered Progress      // More until an item completed the answer
	settled  bool          // the call was, when the answer was complete
	booked   bool          // the reservations were, too
	listed   bool          // its estimate may be revised
	entered  bool          // the gate counts the reservations as open; changed by whoever closes them
	refused  bool          // the provider refused the last attempt, before an item
	sent     bool          // an attempt was begun and its end is not known to be "not sent"
	outcome  outcome       // of the attempt, where an error has told it
	attempts int32         // with earlier ones
	items    int32         // that the model has answered
	started  time.Duration // when the permit was granted, after the gate's epoch
	heldFor  time.Duration // how long the slot was held, once the answer is complete
	seen     usage.Usage   // maximum of the reports
	output   int64         // estimated output of the items since the last report
	first    *usage.Usage  // what was settled, if more was reported later; else nil
	left     *abandonment  // set by whoever abandoned the call
	written  *time.Timer   // set and stopped by the HTTP client's goroutine, too
}

// repetition is why and when a refused call is sent again.
type repetition struct {
	delay time.Duration
	cause error
}

// abandonment is what becomes of a call that the end of its context has ended.
type abandonment struct {
	charged usage.Usage   // what it was charged
	paid    bool          // that was booked
	wait    chan struct{} // closed when it is, if the consumer waits for it
}

// lock takes mu, unless nobody else can know the call yet: most calls are
// complete with their first item, before their context had to be watched.
func (c *modelCall[Req, Resp]) lock() {
	if c.shared {
		c.mu.Lock()
	}
}

func (c *modelCall[Req, Resp]) unlock() {
	if c.shared {
		c.mu.Unlock()
	}
}

// renew makes the record ready for another call. The numbers of attempts go on,
// so that a model that has kept what it was to yield to, and calls it when the
// call is over, is told to stop as before.
func (c *modelCall[Req, Resp]) renew() {
	*c = modelCall[Req, Resp]{m: c.m, revised: c.revised, earlier: c.attempts, attempts: c.attempts, finished: c.attempts}
}

func (c *modelCall[Req, Resp]) permit() Permit { return Permit{g: c.m.gate, id: c.id} }

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
	c.shared = m.opts.transport
	raw := m.meter.Estimate(req)
	name := m.inner.Name()
	c.Slots = m.opts.slots
	l := g.fill(c.ctx, &c.Call)
	c.elsewhere = l.diversion
	c.party = m.party(name, c.Agent)
	c.most = m.limitOf(req)
	c.raw, c.Usage, c.listed = estimateOf(raw), c.party.enlist(c.revised, raw, c.most), true

	defer c.leave()
	if err := g.resolve(&c.request); err != nil {
		c.fail(err)
		return
	}
	var err error
	if c.ctx.Done() != nil && c.ctx.Err() != nil {
		err = &WaitError{Err: contextError(c.ctx)}
	} else {
		req, err = c.reserve(name, req)
	}
	if err == nil {
		g.begin(c.ctx, &c.request, l)
		c.id, c.started, err = g.acquire(c.ctx, &c.request, c.revised, c.elsewhere)
	}
	if err != nil {
		g.metrics.refused(c.class, err)
		c.fail(err)
		return
	}
	c.phase = granted
	g.metrics.admitted(c.party, c.class, c.started-c.since)
	g.retries.Call(g.epoch.Add(c.since))
	for {
		c.attempt(req)
		again := c.next
		if again == nil {
			return
		}
		if err := c.requeue(again.delay); err != nil {
			var w *WaitError
			if errors.As(err, &w) {
				w.Throttled = again.cause
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

// attempt sends the call once. Afterwards next tells whether it is worth trying
// again; nil if the call is over.
func (c *modelCall[Req, Resp]) attempt(req Req) {
	c.lock()
	c.attempts++
	c.sent, c.refused, c.outcome = true, false, outcomeNone
	n := c.attempts
	c.unlock()
	ctx := c.ctx
	if c.m.opts.transport {
		ctx = retry.WithWritten(Pin(ctx), func() { c.requestWritten(n) })
	}
	if c.m.opts.reports || c.m.opts.transport {
		ctx = withGate(Pin(ctx), c.m.gate)
	}
	c.returned, c.next = false, nil
	c.m.inner.GenerateContent(ctx, req, c.stream)(func(resp Resp, err error) bool {
		return n > c.finished && c.item(n, resp, err)
	})
	c.returned = true
}

// item handles what the n-th attempt yields; false if it is to yield no more.
func (c *modelCall[Req, Resp]) item(n int32, resp Resp, err error) (more bool) {
	switch {
	case err != nil && c.items == 0:
		if c.next = c.refusal(err); c.next == nil {
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
	if !c.shared { // the other goroutine reads it
		c.shared = true
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
func (c *modelCall[Req, Resp]) requestWritten(n int32) {
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
			c.permit().Counted()
		}
	})
}

// awaits reports whether the n-th attempt runs and has no item yet. mu is held.
func (c *modelCall[Req, Resp]) awaits(n int32) bool {
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
	c.lock()
	c.see(u)
	first := c.items == 0
	c.items++
	complete := progress != More && c.answered == More
	runs := c.phase == granted
	if !first && !complete {
		c.unlock()
		return
	}
	now := g.time()
	var used usage.Usage
	if complete {
		c.answered = progress
		c.withdraw()
		c.heldFor = now - c.started
		if c.settled = !c.seen.IsZero(); c.settled {
			used = c.actual()
		}
	}
	c.unlock()
	switch {
	case !runs:
	case !complete || !c.settled:
		c.permit().progress(g.epoch.Add(now), first, complete, nil)
	default:
		var buf costs
		n := buf.of(g)
		c.settledCosts(n, &used)
		c.permit().progress(g.epoch.Add(now), first, complete, n)
		c.bookAccounts(settle, used)
		c.lock()
		c.booked = true
		open := c.entered
		c.entered = false
		c.unlock()
		if open {
			g.exit()
		}
	}
}

// withdraw ends the revisions of the estimate. mu is held.
func (c *modelCall[Req, Resp]) withdraw() {
	if c.listed {
		c.listed = false
		c.Usage = c.party.withdraw(c.revised)
	}
}

// settledCosts turns what the call used into units, of which the limit of its
// output stays counted where the provider keeps it.
func (c *modelCall[Req, Resp]) settledCosts(costs []int64, u *usage.Usage) {
	g := c.m.gate
	g.settledCosts(costs, u)
	g.keepLimit(costs, *u, c.most, true)
}

// see takes in what an item says about usage. mu is held.
func (c *modelCall[Req, Resp]) see(u usage.Usage) {
	switch {
	case u == usage.Usage{}:
	case u.Has(usage.Estimated):
		c.output += min(max(u.Output, 0), maxOutput)
	case c.seen == usage.Usage{}:
		c.seen, c.output = u.Clamp(), 0
	default:
		c.output = 0
		seen := c.seen.Max(u.Clamp()).Clamp()
		if c.settled && c.first == nil && seen != c.seen {
			first := c.actual()
			c.first = &first
		}
		c.seen = seen
	}
}

// maxOutput bounds what one item adds to the estimate of the output seen, so
// that the sum does not overflow.
const maxOutput = 1 << 40

// refusal handles an error in place of the first item: it tells the gate, and
// decides whether the call is tried again; nil if not.
func (c *modelCall[Req, Resp]) refusal(err error) *repetition {
	v, real := c.verdict(err)
	c.lock()
	c.refused = real && answered(v, err)
	c.sent = v.Class != retry.NotSent && v.Class != retry.Denied && v.Class != retry.NeverFits
	c.outcome = outcomeOf(v, c.ctx)
	runs := c.phase == granted
	c.unlock()
	if runs {
		if c.learnRefusal(v, refusal{answered: c.refused}) {
			// It only found out that the provider is down: its attempt does not count, and
			// the pause is its backoff.
			c.probes++
			if c.m.retries && !c.leaves(err, 0) {
				return &repetition{0, err}
			}
		} else if delay, ok := c.again(v, err); ok {
			return &repetition{delay, err}
		}
	}
	c.finish() // an error completes the call: everything is back before it is yielded
	return nil
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
	c.lock()
	runs := c.phase == granted && c.answered == More
	if runs {
		if c.outcome = outcomeOf(v, c.ctx); c.outcome == outcomeFailed {
			c.outcome = outcomeBroken
		}
	}
	c.unlock()
	if runs {
		c.learnRefusal(v, refusal{begun: true})
	}
	c.finish()
}

// learnRefusal tells the gate what an error means for all callers, and reports
// whether the provider is down, so that calls wait. The error's text is not
// logged: a provider may quote the prompt in it.
func (c *modelCall[Req, Resp]) learnRefusal(v retry.Verdict, r refusal) (paused bool) {
	g := c.m.gate
	r.bounded = c.deadline != never
	paused = c.permit().refused(v, r)
	g.metrics.throttled(c.party, c.class, v)
	if log := g.cfg.Logger; log.Enabled(c.ctx, slog.LevelDebug) {
		log.LogAttrs(c.ctx, slog.LevelDebug, "ratelimited: the provider did not serve a call",
			slog.String("gate", g.Name()), slog.String("model", c.party.model), slog.String("class", c.Class),
			slog.String("agent", c.Agent), slog.String("flow", c.Flow), slog.String("request", c.Request),
			slog.Int("attempt", int(c.attempts-c.earlier)), slog.String("verdict", v.Class.String()),
			slog.String("limits", v.Resources.String()), slog.Bool("per_day", v.PerDay), slog.Duration("hint", v.Hint))
	}
	return paused
}

// again tells whether a refused call may be sent once more from here, and after
// what delay. A throttled call was not executed and is simply requeued; where the
// provider is in trouble, retries are bounded by a share of all calls.
func (c *modelCall[Req, Resp]) again(v retry.Verdict, err error) (time.Duration, bool) {
	g := c.m.gate
	if !c.m.retries {
		return 0, false
	}
	delay, ok := g.cfg.Retry.Delay(v, int(c.attempts-c.earlier-c.probes))
	if !ok {
		return 0, false
	}
	now := g.time()
	if delay > c.deadline-now || c.leaves(err, delay) {
		return 0, false
	}
	if v.Class.UsesBudget() && !g.retries.TryRetry(g.epoch.Add(now)) {
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
	if other, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return other.StatusCode() >= 400
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
	var buf costs
	n := buf.of(g)
	if c.refused {
		g.failedCosts(n, c.party.holds(c.revised))
	}
	c.lock()
	c.phase = inLine
	held := c.attemptOver()
	c.unlock()
	g.metrics.attempt(c.party, c.class, c.outcome)
	c.party.held(held)
	if err := c.permit().requeue(c.ctx, n, delay, &c.request, c.elsewhere); err != nil {
		return err
	}
	if c.ctx.Err() != nil { // between the grant and here: it is not sent again
		c.permit().Release()
		return &WaitError{Err: contextError(c.ctx), Waited: g.time() - c.since}
	}
	c.lock()
	c.phase, c.started = granted, g.time()
	c.unlock()
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
	return c.m.gate.time() - c.started
}
