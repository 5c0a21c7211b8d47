package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// DefaultBusQueue is how many events wait for a listener.
const DefaultBusQueue = 4096

// Listener is told of events, one at a time. It may take its time, and may publish.
type Listener func(Event)

// BusConfig is what a [Bus] is made of. The zero value is a bus without listeners.
type BusConfig struct {
	// Listeners are told of every event. More can be added; see [Bus.Subscribe].
	Listeners []Listener
	// Logger is told of listeners that panic, and of events that were dropped.
	// Defaults to [slog.Default].
	Logger *slog.Logger
	// Queue is how many events wait for each listener. Defaults to
	// [DefaultBusQueue], as does what is not above 0.
	Queue int
}

// Bus takes events to listeners. Publishing never waits: each listener has a queue
// of its own, and events for which it has no room are dropped, counted and logged.
// So a listener that is slow, or hangs, harms nobody but itself.
//
// Each listener gets its events one at a time and in the order in which they were
// published; events of one call come in the order in which they happened. A
// listener that panics is told of the next event as if nothing had been: that is
// counted, and logged once for each kind of event.
//
// There is a goroutine for a listener only while something waits for it. A Bus is
// safe for concurrent use. A nil Bus drops everything and counts nothing.
type Bus struct {
	logger *slog.Logger
	size   int

	delivered, dropped, panics atomic.Int64

	closed atomic.Bool
	lines  atomic.Pointer[[]*busLine] // replaced, never changed
	mu     sync.Mutex                 // guards replacing lines
}

// BusStats is how a [Bus] does.
type BusStats struct {
	// Delivered is how many events listeners were told of, each one counted for each
	// listener; those at which one panicked are among them.
	Delivered int64
	// Dropped is how many they were not told of: for want of room, or because the bus
	// was closed. Those that are published after that count once each.
	Dropped int64
	// Panics is how often a listener panicked.
	Panics int64
	// Queued is how many events wait now.
	Queued int64
}

// NewBus makes a bus.
func NewBus(cfg BusConfig) *Bus {
	b := &Bus{logger: cfg.Logger, size: cfg.Queue}
	if b.logger == nil {
		b.logger = slog.Default()
	}
	if b.size <= 0 {
		b.size = DefaultBusQueue
	}
	for _, l := range cfg.Listeners {
		b.Subscribe(l)
	}
	return b
}

// Subscribe adds a listener for what is published from now on. After stop returns it
// is not told of anything new; what it is being told just then may go on. stop may
// be called more than once, and drops what still waits for it. A nil listener is
// none.
func (b *Bus) Subscribe(l Listener) (stop func()) {
	if b == nil || l == nil {
		return func() {}
	}
	line := &busLine{bus: b, listen: l}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return func() {}
	}
	lines := append(slices.Clone(b.all()), line)
	b.lines.Store(&lines)
	return func() {
		b.mu.Lock()
		lines := slices.DeleteFunc(slices.Clone(b.all()), func(l *busLine) bool { return l == line })
		b.lines.Store(&lines)
		b.mu.Unlock()
		line.stop(false)
	}
}

// Publish takes an event to all listeners. It never waits for any of them. A nil
// event is none.
func (b *Bus) Publish(e Event) {
	if b == nil || e == nil {
		return
	}
	if b.closed.Load() {
		b.dropped.Add(1)
		return
	}
	for _, l := range b.all() {
		l.add(e)
	}
}

// Flush waits until listeners were told of all that was published before, or until
// ctx ends, whose error it returns then.
func (b *Bus) Flush(ctx context.Context) error {
	if b == nil {
		return nil
	}
	for _, l := range b.all() {
		if err := l.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close takes no more events and waits until listeners were told of all that wait.
// When ctx ends before, the rest is dropped and counted, and the error says how many
// they are; a listener that is at work then is left to itself. It may be called more
// than once, but not by a listener, for which it would wait.
func (b *Bus) Close(ctx context.Context) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	b.closed.Store(true)
	lines := b.all()
	b.mu.Unlock()
	for _, l := range lines {
		l.shut()
	}
	var errs []error
	left := int64(0)
	for _, l := range lines {
		if err := l.flush(ctx); err != nil {
			errs = append(errs, err)
			left += l.stop(true)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("quota: %d events were dropped, as the bus was closed: %w", left, errors.Join(errs...))
	}
	return nil
}

// Stats is how the bus does.
func (b *Bus) Stats() BusStats {
	if b == nil {
		return BusStats{}
	}
	s := BusStats{Delivered: b.delivered.Load(), Dropped: b.dropped.Load(), Panics: b.panics.Load()}
	for _, l := range b.all() {
		s.Queued += l.waiting()
	}
	return s
}

func (b *Bus) all() []*busLine {
	if lines := b.lines.Load(); lines != nil {
		return *lines
	}
	return nil
}
