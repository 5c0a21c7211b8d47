package quota

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// busLine is the queue of one listener, and who takes events from it.
type busLine struct {
	bus    *Bus
	listen Listener

	mu sync.Mutex
	// mu guards all that follows. It is never held while the listener works.
	ring     []Event // of events that wait; grows up to the bus's size
	head, n  int
	working  bool      // there is a goroutine, and only one
	shutting bool      // nothing is taken any more
	warned   time.Time // when it was logged last that events are dropped
	taken    int64     // events that were put into the ring, ever
	done     int64     // events that have left it, and that the listener is through with
	flushers []busFlusher
	// panicked are the kinds of events at which a panic was logged.
	panicked map[EventKind]bool
}

// busFlusher waits until so many events are done.
type busFlusher struct {
	done  int64
	ready chan struct{} // closed then
}

// add puts an event into the queue, or drops it.
func (l *busLine) add(e Event) {
	l.mu.Lock()
	if l.shutting {
		l.mu.Unlock()
		if l.bus.closed.Load() { // and nobody just stopped listening
			l.bus.dropped.Add(1)
		}
		return
	}
	if l.n == l.bus.size {
		l.dropOne()
		return
	}
	if l.n == len(l.ring) {
		l.grow()
	}
	l.ring[(l.head+l.n)%len(l.ring)] = e
	l.n++
	l.taken++
	start := !l.working
	l.working = true
	l.mu.Unlock()
	if start {
		go l.work()
	}
}

// dropWarnings is how often it is logged that a listener is too slow.
const dropWarnings = time.Minute

// dropOne counts a dropped event. mu is held, and given back.
func (l *busLine) dropOne() {
	now := time.Now()
	warn := l.warned.IsZero() || now.Sub(l.warned) >= dropWarnings
	if warn {
		l.warned = now
	}
	l.mu.Unlock()
	if n := l.bus.dropped.Add(1); warn {
		l.bus.logger.Warn("quota: events are dropped, as a listener is too slow",
			slog.Int("queue", l.bus.size), slog.Int64("dropped", n))
	}
}

// grow makes the ring twice as large. mu is held.
func (l *busLine) grow() {
	ring := make([]Event, min(max(2*len(l.ring), 16), l.bus.size))
	for i := range l.n {
		ring[i] = l.ring[(l.head+i)%len(l.ring)]
	}
	l.ring, l.head = ring, 0
}

// work tells the listener of what waits, and ends when nothing does.
func (l *busLine) work() {
	ended := false
	defer func() {
		if !ended { // the listener ended its goroutine, which was this one
			l.through()
			go l.work()
		}
	}()
	for {
		e := l.next()
		if e == nil {
			ended = true
			return
		}
		l.tell(e)
		l.through()
	}
}

// next takes an event; nil if there is none, and then somebody else has to begin
// working anew.
func (l *busLine) next() Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.working = false
		return nil
	}
	e := l.ring[l.head]
	l.ring[l.head] = nil
	l.head = (l.head + 1) % len(l.ring)
	l.n--
	return e
}

// tell tells the listener of one event, and survives it.
func (l *busLine) tell(e Event) {
	l.bus.delivered.Add(1)
	defer func() {
		if r := recover(); r != nil {
			l.survive(kindOf(e), r)
		}
	}()
	l.listen(e)
}

// kindOf is the kind of an event; "" of one that panics when it is asked, such as a
// pointer to nothing.
func kindOf(e Event) (k EventKind) {
	defer func() { _ = recover() }()
	return e.Kind()
}

// survive counts a panic of the listener, and logs the first of a kind.
func (l *busLine) survive(k EventKind, r any) {
	l.bus.panics.Add(1)
	l.mu.Lock()
	known := l.panicked[k]
	if !known {
		if l.panicked == nil {
			l.panicked = map[EventKind]bool{}
		}
		l.panicked[k] = true
	}
	l.mu.Unlock()
	if !known {
		l.bus.logger.Error("quota: a listener panicked; further panics at such events are only counted",
			slog.String("event", string(k)), slog.String("panic", fmt.Sprintf("%.200v", r)))
	}
}

// through notes that the listener is through with an event.
func (l *busLine) through() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	l.wake()
}

// wake tells whoever waits for what is done. mu is held.
func (l *busLine) wake() {
	kept := l.flushers[:0]
	for _, f := range l.flushers {
		if f.done <= l.done {
			close(f.ready)
		} else {
			kept = append(kept, f)
		}
	}
	clear(l.flushers[len(kept):])
	l.flushers = kept
}

// flush waits until the listener is through with all that it was sent before.
func (l *busLine) flush(ctx context.Context) error {
	l.mu.Lock()
	if l.done >= l.taken {
		l.mu.Unlock()
		return nil
	}
	f := busFlusher{done: l.taken, ready: make(chan struct{})}
	l.flushers = append(l.flushers, f)
	l.mu.Unlock()
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.flushers {
		if l.flushers[i].ready == f.ready {
			l.flushers = append(l.flushers[:i], l.flushers[i+1:]...)
			return context.Cause(ctx)
		}
	}
	return nil // it was done in the meantime
}

// shut takes no more events.
func (l *busLine) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shutting = true
}

// stop takes no more events and forgets those that wait. If they were promised to the
// listener, they count as dropped. It returns how many they are.
func (l *busLine) stop(promised bool) (left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = int64(l.n)
	l.shutting, l.ring, l.head, l.n = true, nil, 0, 0
	l.done += left
	if promised {
		l.bus.dropped.Add(left)
	}
	l.wake()
	return left
}

// waiting is how many events wait.
func (l *busLine) waiting() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.n)
}
