package ratelimited

import "time"

// poll lets the core start what can start. mu is held.
func (g *Gate) poll(now time.Time) {
	if last := g.pollAllButOne(now); last != nil {
		last <- struct{}{}
	}
}

// pollAllButOne is poll, but leaves it to the caller to tell the last one that
// it is granted, after unlocking: to wake somebody takes a while. mu is held.
func (g *Gate) pollAllButOne(now time.Time) (last chan<- struct{}) {
	grants, failed, next := g.core.Poll(now)
	g.noteLine()
	for i, id := range grants {
		if ready := id.Ready(); i < len(grants)-1 {
			ready <- struct{}{} // buffered; the one receiver is the granted waiter
		} else {
			last = ready
		}
	}
	for _, f := range failed {
		g.failures[f.ID] = f
		close(f.ID.Ready())
	}
	g.arm(now, next)
	return last
}

// arm makes the timer fire at next at the latest; a zero next is never. mu is
// held.
func (g *Gate) arm(now, next time.Time) {
	switch {
	case next.IsZero():
	case g.timer == nil:
		g.wake = next
		g.timer = time.AfterFunc(next.Sub(now), g.tick)
	case g.wake.IsZero() || next.Before(g.wake):
		g.wake = next
		g.timer.Reset(next.Sub(now))
	}
}

// tick is the timer's call.
func (g *Gate) tick() {
	g.lock()
	defer g.unlock()
	g.wake = time.Time{}
	g.poll(g.now())
}
