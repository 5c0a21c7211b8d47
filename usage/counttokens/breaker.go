package counttokens

import "time"

// breaker decides whether an endpoint may be asked. It is not safe for
// concurrent use.
type breaker struct {
	failures int           // in a row after which it opens
	first    time.Duration // how long it is then open

	inRow   int
	open    bool
	probing bool
	until   time.Time
	pause   time.Duration // the current one
}

// verdict is what may be done.
type verdict uint8

const (
	closed verdict = iota // ask, and wait
	probe                 // ask, and do not wait
	paused                // do not ask
)

// ask is whether the endpoint may be asked at an instant. A probe must be
// followed by tell.
func (b *breaker) ask(now time.Time) verdict {
	switch {
	case !b.open:
		return closed
	case b.probing || now.Before(b.until):
		return paused
	}
	b.probing = true
	return probe
}

// tell says how a question ended. Answers to what was asked before the breaker
// opened count, too: one that worked shows that the endpoint is back.
func (b *breaker) tell(now time.Time, failure bool) {
	if !failure {
		b.inRow, b.open, b.probing, b.pause = 0, false, false, 0
		return
	}
	b.inRow++
	switch {
	case b.open && !b.probing:
		return // one of those that were under way
	case b.open:
		b.pause = min(2*b.pause, max(maxPause, b.first))
	case b.inRow >= b.failures:
		b.pause = b.first
	default:
		return
	}
	b.open, b.probing, b.until = true, false, now.Add(b.pause)
}
