package route

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

// call is one range over GenerateContent's sequence. The consumer's goroutine
// drives it. The pool holds nothing for it but that it may be the one that tries a
// route, and that only until the route answers: so there is nothing to give back
// where a consumer pulls an item and never comes back.
type call[Req, Resp any] struct {
	p      *Pool[Req, Resp]
	ctx    context.Context
	req    Req
	yield  func(Resp, error) bool
	stream bool

	bounded   bool          // it is in how long it waits
	own       bool          // by the pool's MaxWait, of which the gate does not know
	delivered bool          // the consumer has had something
	stopped   bool          // the consumer wants no more
	began     time.Duration // after the pool's epoch, as all times
	deadline  time.Duration // when it must have left all lines, if it is bounded
	kept      kept[Resp]
	first     turn[Req, Resp]  // so that a call which needs no other has it at hand
	next      *turn[Req, Resp] // at the route that the call goes on to; nil if there is none

	mu sync.Mutex
	// mu guards all that follows. The consumer's goroutine alone changes what is not
	// marked otherwise; a model that stands between the pool and a gate may ask from
	// several goroutines.
	now   *turn[Req, Resp] // that is under way; nil before and after
	once  set              // routes that it was given to
	twice set              // and again
	spent set              // routes that have given it up
	after []time.Duration  // when routes that have refused it may be asked again; nil if none has; changed by all
}

// turn is one attempt to have a route serve the call. It tells the route's gate
// whether the call goes elsewhere.
type turn[Req, Resp any] struct {
	c       *call[Req, Resp]
	at      int           // the route
	number  uint64        // in the table
	sent    time.Duration // when it began
	forced  bool          // the route was left out already
	counted bool          // what came of it is known

	// The call's mu guards what follows.
	changed <-chan struct{}
	left    bool // the call leaves the route, which would have kept it
}

// kept is an error that the consumer has not had yet.
type kept[Resp any] struct {
	resp    Resp
	err     error
	despair int
}

func (c *call[Req, Resp]) run() {
	c.began = c.p.time()
	defer c.end()
	c.start()
	for c.next != nil {
		c.give(c.next)
	}
}

// start looks for the first turn. The forecasts are other people's code, and may
// panic.
func (c *call[Req, Resp]) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pick()
}

// end is deferred: the consumer, or the model, may have panicked.
func (c *call[Req, Resp]) end() {
	if a := c.now; a != nil {
		a.settle(outcomePanicked)
	}
	c.begin(nil) // what a model has kept to yield to is told to stop
}

// question is what the call asks of the table. mu is held.
func (c *call[Req, Resp]) question() question {
	q := question{barred: c.twice | c.spent, here: -1}
	q.key, q.sticky = stickyOf(c.ctx)
	return q
}

// choose asks the table for a route, without taking it. mu is held.
func (c *call[Req, Resp]) choose(q *question) (best int, wait time.Duration) {
	var r ranking
	c.p.table.rank(c.p.time(), q, &r)
	return c.p.table.choose(&r, q, c.wait, c.bound)
}

// wait predicts the wait at a route. One that has refused the call is not asked
// again before its backoff is over, unless its gate keeps it back as long. mu is
// held.
func (c *call[Req, Resp]) wait(i int) time.Duration {
	wait := c.p.wait[i](c.ctx, c.req)
	if c.after != nil && wait < c.after[i]-c.p.time() {
		return never
	}
	return wait
}

// bound is how long the call may still wait at a route.
func (c *call[Req, Resp]) bound(i int) time.Duration {
	bound := never
	if at, ok := c.ctx.Deadline(); ok {
		bound = time.Until(at)
	}
	if d, ok, _ := c.maxWait(i); ok {
		bound = min(bound, d-(c.p.time()-c.began))
	}
	return max(bound, 0)
}

// maxWait is the MaxWait of the call, if it comes to the route first or is bounded
// already. own is true if no gate knows of it.
func (c *call[Req, Resp]) maxWait(i int) (d time.Duration, bounded, own bool) {
	if c.bounded {
		return c.deadline - c.began, true, c.own
	}
	if d, ok := ratelimited.MaxWait(c.ctx); ok {
		return d, true, false
	}
	if d := c.p.cfg.MaxWait; d != nil {
		return *d, true, true
	}
	d, bounded = c.p.routes[i].Gate.MaxWait()
	return d, bounded, false
}

// pick takes the route of the next turn, if there is one. For the first one, a
// route that is left out is better than none; to go on to such a route only makes
// an outage worse. mu is held.
func (c *call[Req, Resp]) pick() {
	q := c.question()
	first := c.now == nil
	q.exact = !first
	for {
		best, wait := c.choose(&q)
		switch {
		case best >= 0 && wait == never && !first:
			return // it would be refused there, too
		case best >= 0 && c.take(best, q.forced):
			return
		case best >= 0: // somebody else tries it now
		case q.forced || !first:
			return
		default:
			q.forced = true
		}
	}
}

// take makes the call's next turn one at that route. mu is held.
func (c *call[Req, Resp]) take(i int, forced bool) bool {
	now := c.p.time()
	number, changed, out, ok := c.p.table.take(now, i, forced)
	if !ok {
		return false
	}
	a := &c.first
	if c.now != nil {
		a = new(turn[Req, Resp])
	}
	*a = turn[Req, Resp]{c: c, at: i, number: number, sent: now, forced: out, changed: changed}
	c.next = a
	return true
}

// give gives the call to a route. Afterwards next tells where it goes on to.
func (c *call[Req, Resp]) give(a *turn[Req, Resp]) {
	c.begin(a)
	r, req := &c.p.routes[a.at], c.req
	ctx := c.context(a)
	if r.Rewrite != nil {
		req = r.Rewrite(req)
	}
	r.Model.GenerateContent(ctx, req, c.stream)(func(resp Resp, err error) bool {
		return c.now == a && c.next == nil && !c.stopped && c.item(a, resp, err)
	})
	a.settle(outcomeBroken) // the sequence was empty, unless it is known by now
}

// begin makes a turn the one that is under way; nil if the call is over.
func (c *call[Req, Resp]) begin(a *turn[Req, Resp]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.next = a, nil
	if a == nil {
		return
	}
	if c.once.has(a.at) {
		c.twice = c.twice.with(a.at)
	}
	c.once = c.once.with(a.at)
}

// context is that of a turn. The first one's gate finds by itself what bounds it,
// unless it is the pool that does.
func (c *call[Req, Resp]) context(a *turn[Req, Resp]) context.Context {
	ctx, first := c.ctx, a == &c.first
	if first {
		var d time.Duration
		d, c.bounded, c.own = c.maxWait(a.at)
		c.deadline = c.began + d
	}
	if c.bounded && (c.own || !first) {
		ctx = ratelimited.WithMaxWait(ctx, c.deadline-c.p.time())
	}
	if len(c.p.routes) > 1 {
		ctx = ratelimited.WithDiversion(ctx, a)
	}
	return ctx
}

// item handles what the turn yields; false if it is to yield no more.
func (c *call[Req, Resp]) item(a *turn[Req, Resp], resp Resp, err error) bool {
	switch {
	case c.delivered:
	case err == nil:
		a.served()
		a.settle(outcomeOK)
	case c.ctx.Err() != nil: // the error may be anything then
		a.settle(outcomeCancelled)
	default:
		return c.failed(a, resp, err)
	}
	return c.pass(resp, err)
}

// pass hands something to the consumer.
func (c *call[Req, Resp]) pass(resp Resp, err error) bool {
	c.delivered = true
	c.stopped = !c.yield(resp, err)
	return !c.stopped
}

// failed handles an error in place of the first item: the call goes on to another
// route, or ends with it.
func (c *call[Req, Resp]) failed(a *turn[Req, Resp], resp Resp, err error) bool {
	v := judge(&c.p.policy, err)
	if !c.goesOn(a, &v) {
		if v.reason == "" {
			return c.pass(resp, err)
		}
		c.keep(resp, err, v.despair)
		return c.pass(c.kept.resp, c.kept.err)
	}
	c.keep(resp, err, v.despair)
	if c.next.at != a.at {
		c.p.metrics.spill(a.at, c.next.at, v.reason)
	}
	return false
}

// goesOn notes why a turn has failed, and looks for the next one.
func (c *call[Req, Resp]) goesOn(a *turn[Req, Resp], v *verdict) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.left { // or it was told already
		a.tell(v)
	}
	a.settle(v.outcome)
	if v.reason == "" {
		return false
	}
	if !a.left {
		c.spent = c.spent.with(a.at)
	}
	if c.pick(); c.next == nil && a.left && !c.twice.has(a.at) {
		c.take(a.at, true) // what was better is gone
	}
	return c.next != nil
}

// keep keeps an error, unless the one before gives more hope.
func (c *call[Req, Resp]) keep(resp Resp, err error, despair int) {
	if c.kept.err == nil || despair <= c.kept.despair {
		c.kept = kept[Resp]{resp, err, despair}
	}
}

// settle notes what came of the turn, once. If that says nothing of the route, the
// next call may try it.
func (a *turn[Req, Resp]) settle(o outcome) {
	if a.counted {
		return
	}
	a.counted = true
	a.c.p.metrics.attempt(a.at, o)
	a.c.p.table.untried(a.at, a.number)
}

// served tells the table that the route has answered.
func (a *turn[Req, Resp]) served() {
	p := a.c.p
	if p.table.served(a.at, a.sent) {
		p.cfg.Logger.LogAttrs(a.c.ctx, slog.LevelInfo, "route: a route is back",
			slog.String("pool", p.cfg.Name), slog.String("route", p.routes[a.at].Name))
	}
}

// tell tells the table what an error says of the route. The error's text is not
// logged: a provider may quote the prompt in it.
func (a *turn[Req, Resp]) tell(v *verdict) {
	switch v.blow {
	case neutral:
		return
	case answered:
		a.served()
		return
	}
	p, now := a.c.p, a.c.p.time()
	leftOut, strikes, until := p.table.hit(now, a.sent, a.at, v.blow, v.hint)
	if leftOut {
		p.cfg.Logger.LogAttrs(a.c.ctx, slog.LevelWarn, "route: a route is left out because its calls fail",
			slog.String("pool", p.cfg.Name), slog.String("route", p.routes[a.at].Name),
			slog.Int("failures", strikes), slog.String("last", v.outcome.String()), slog.Duration("pause", until-now))
	}
}

// Changed and Leaves make a turn a ratelimited.Diversion.

// Changed is closed when routes have changed.
func (a *turn[Req, Resp]) Changed() <-chan struct{} {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	return a.changed
}

// Leaves reports whether the call is better off elsewhere than at this route, where
// it waits for at least so long.
func (a *turn[Req, Resp]) Leaves(err error, wait time.Duration) bool {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != a {
		return true // it has gone on: whoever asks was left behind
	}
	if err != nil {
		v := judge(&c.p.policy, err)
		a.tell(&v)
		if c.after == nil {
			c.after = make([]time.Duration, len(c.p.routes))
		}
		c.after[a.at] = c.p.time() + cmp.Or(v.hint, wait) // the gate adds to a hint
	}
	a.changed = c.p.table.watch() // before anything is looked at
	q := c.question()
	q.here, q.stay = a.at, wait
	if !a.forced && c.p.table.isOut(a.at) {
		q.stay = never // who knows when it will be back
	}
	if q.stay == 0 {
		return false
	}
	best, there := c.choose(&q)
	a.left = best != a.at && there < q.stay
	return a.left
}
