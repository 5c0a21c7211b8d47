package ratelimited

import (
	"context"
	"time"
)

// Close ends admission and waits until every call in line and in flight has
// ended and every queued settlement was made, or until ctx ends; then the calls
// still in line, and those that come back into it from a refusal of the
// provider, fail with an error that matches [ErrClosed]. Calls in flight are
// never cut. What the gate was granted of a shared quota it then gives back. It
// returns the context's error if something was left. Close may be
// called again, to go on waiting, and by several goroutines. The gate's metrics
// stay registered, for a last scrape: another gate on the same registerer needs
// another Config.Name.
func (g *Gate) Close(ctx context.Context) error {
	g.lock()
	g.closed = true
	drained := g.drained
	if g.alive > 0 && drained == nil {
		drained = make(chan struct{})
		g.drained = drained
	}
	g.unlock()
	var err error
	if drained != nil {
		select {
		case <-drained:
		case <-ctx.Done():
			err = contextError(ctx)
			g.failWaiting()
		}
	}
	if e := g.settler.flush(ctx); err == nil {
		err = e
	}
	if g.shared != nil {
		if e := g.shared.Close(ctx); err == nil {
			err = e
		}
	}
	g.lock()
	defer g.unlock()
	if g.timer != nil && g.alive == 0 {
		g.timer.Stop()
	}
	return err
}

// failWaiting ends the wait of all calls in line, now and later.
func (g *Gate) failWaiting() {
	g.lock()
	defer g.unlock()
	g.cut = true
	for _, id := range g.core.FailWaiting() {
		close(id.Ready())
	}
	g.noteLine()
}

// enter tells that a call may have reservations open until exit; false if the
// gate is closed.
func (g *Gate) enter() bool {
	g.lock()
	defer g.unlock()
	if !g.closed {
		g.alive++
	}
	return !g.closed
}

// exit tells that the reservations of a call are closed, or in the settler's
// queue.
func (g *Gate) exit() {
	g.lock()
	defer g.unlock()
	g.gone()
}

// end books the end of a call and lets the next one in. mu is held.
func (g *Gate) end(now time.Time) {
	g.poll(now)
	g.gone()
}

// gone counts one that Close waits for down. mu is held.
func (g *Gate) gone() {
	if g.alive--; g.alive == 0 && g.drained != nil {
		close(g.drained)
		g.drained = nil
	}
}
