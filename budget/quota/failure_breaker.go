package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// When the ledger is not asked any more, and how often it is tried then. The numbers
// are those by which the gate waits out a provider that is down: few enough failures
// that hardly anybody waits for a store that is gone, and pauses short enough that
// nobody notices its return late.
const (
	// breakAfter is how many operations must fail in a row.
	breakAfter = 5
	// pauseMin and pauseMax are how long nobody asks then: twice as long after each
	// operation that was tried in vain.
	pauseMin = time.Second
	pauseMax = 8 * time.Second
)

// errNotAsked is matched where a breaker has saved the time of an operation.
var errNotAsked = fmt.Errorf("%w: it was not asked, because it could not be reached a moment ago", ErrUnavailable)

// breaker makes an outage cheap: after some operations in a row that failed, which
// may have taken the whole of their time, others fail at once, and one at a time
// tries. While some operations succeed, because only a part of the store is gone, it
// stays closed.
type breaker struct {
	mu sync.Mutex
	// mu guards all that follows.
	failures int // in a row
	until    time.Time
	pause    time.Duration // 0 while it is closed
	trying   bool

	telling sync.Mutex
	// telling guards told: whether the hook was told that it is open. It is locked
	// before mu.
	told bool
}

// asker is whose operation it is.
type asker uint8

const (
	// caller is somebody who waits for it.
	caller asker = iota
	// aside is nobody: what was left over is told, or what is held is renewed. Of a store
	// of which a part is gone that is what belongs to this part, so that its failures in a
	// row say nothing about the rest.
	aside
)

// asked is an operation that the breaker let through.
type asked struct {
	ok    bool
	trial bool // it tells whether the others may
	who   asker
}

// ask asks whether the ledger may be asked.
func (b *breaker) ask(who asker) asked {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pause == 0:
		return asked{ok: true, who: who}
	case b.trying || time.Now().Before(b.until):
		return asked{}
	}
	b.trying = true
	return asked{ok: true, trial: true, who: who}
}

// ended is told how an operation ended. ctx is the caller's, whose end says nothing
// about the ledger. It reports whether the breaker is open now and was not, or the
// other way round.
func (b *breaker) ended(ctx context.Context, a asked, err error) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.pause
	if a.trial {
		b.trying = false
	}
	switch {
	case err == errUnasked: // which says nothing about the store: if it was to try it, the next one is
	case err != nil && ended(ctx) != nil:
	case !errors.Is(err, ErrUnavailable):
		b.failures, b.pause = 0, 0
	case a.who == aside: // if it has tried, the next one may at once
	case b.pause == 0:
		if b.failures++; b.failures >= breakAfter {
			b.shut(pauseMin)
		}
	case a.trial: // the others began before it was known
		b.shut(min(2*b.pause, pauseMax))
	}
	return (was > 0) != (b.pause > 0)
}

// tell tells a hook whether the breaker is open, unless it knows.
func (b *breaker) tell(hook func(bool)) {
	if hook == nil {
		return
	}
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	open := b.pause > 0
	b.mu.Unlock()
	if open != b.told {
		b.told = open
		hook(open)
	}
}

// shut has nobody ask for a while. mu is held.
func (b *breaker) shut(pause time.Duration) {
	b.pause, b.until = pause, time.Now().Add(pause)
}
