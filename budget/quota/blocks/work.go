package blocks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// How long is waited after an operation that failed, unless somebody waits for it:
// twice as long each time.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// kick has a goroutine do what there is to be done; false if the ledger is closed.
// The tree's lock is held.
func (c *counter) kick() bool {
	if !c.working {
		c.working = c.t.l.begin(c.run)
	}
	return c.working
}

// look kicks if there is anything to be done.
func (c *counter) look(now int64) {
	if !c.working && c.due(now) {
		c.kick()
	}
}

// due reports whether there is anything to be done.
func (c *counter) due(now int64) bool {
	if c.waiter() != nil || c.runsShort(now) {
		return true
	}
	return now >= c.retryAt && (c.lost != nil || c.next(onlyDue, now).do != nothing)
}

// waiter is the first one whose question about the counter was not taken up yet.
func (c *counter) waiter() *waiter {
	for _, w := range c.t.waiters {
		if w.asks(c) != nil {
			return w
		}
	}
	return nil
}

// asks is what a waiter asks about a counter and was not answered, or nil.
func (w *waiter) asks(c *counter) *wanted {
	if x := w.on(c); x != nil && x.v.lacks && !x.answered {
		return x
	}
	return nil
}

// on is what a waiter wants of a counter, or nil.
func (w *waiter) on(c *counter) *wanted {
	for i := range w.wants {
		if w.wants[i].c == c {
			return &w.wants[i]
		}
	}
	return nil
}

// run works until there is nothing more to be done.
func (c *counter) run() {
	l := c.t.l
	for {
		err := c.turn(l.ctx)
		c.t.mu.Lock()
		if now := l.now(); err != nil || !c.due(now) {
			c.working = false
			if err != nil {
				c.refuseAll(errClosed, now)
			}
			c.t.mu.Unlock()
			if err == nil {
				c.pass()
			}
			return
		}
		c.t.mu.Unlock()
		c.work(l.ctx)
		c.pass()
	}
}

// refuseAll gives an error to all who ask about the counter.
func (c *counter) refuseAll(err error, now int64) {
	for _, w := range c.t.waiters {
		if x := w.asks(c); x != nil {
			x.err, x.answered = err, true
		}
	}
	c.t.serve(now)
}

// work does one thing of each kind that is to be done. The caller has the turn.
func (c *counter) work(ctx context.Context) {
	err := c.repeatLost(ctx)
	if c.serveWaiters(ctx, err) != nil || err != nil {
		return
	}
	if c.leaseAhead(ctx) == nil {
		_, _ = c.step(ctx, onlyDue)
	}
}

// within bounds an operation that is made for no single caller.
func (l *Ledger) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.cfg.Timeout)
}

// failed notes that an operation has failed that was made in ctx; the tree's lock is
// held. It returns an error that matches quota.ErrUnavailable.
func (c *counter) failed(ctx context.Context, err error, now int64) error {
	if ctx != c.t.l.ctx && ctx.Err() != nil { // a caller has left, which is not the ledger's fault
		return fmt.Errorf("%w: %w", quota.ErrUnavailable, err)
	}
	c.backoff = min(max(2*c.backoff, backoffMin), backoffMax)
	c.retryAt = now + int64(c.backoff)
	c.t.l.stats.failures.Add(1)
	if errors.Is(err, quota.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", quota.ErrUnavailable, err)
}

// worked notes that an operation has not failed; the tree's lock is held.
func (c *counter) worked() { c.backoff, c.retryAt = 0, 0 }
