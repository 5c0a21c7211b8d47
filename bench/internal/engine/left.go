package engine

import "time"

// Left is what is left of a limit at an instant, as APIs report it in headers.
type Left struct {
	// Name is the limit's name.
	Name string
	// Limit is its amount.
	Limit int64
	// Remaining is what could be counted at once; never negative.
	Remaining int64
	// Full is how long it takes until all of the limit is there again if
	// nothing more is counted, with the speed applied; 0 where it is all there.
	Full time.Duration
}

// Left returns what is left of every limit that is enforced, in the order of
// the configuration.
func (e *Engine) Left() []Left {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.run.now()
	var list []Left
	for _, m := range e.run.meters {
		if m.window == nil {
			continue
		}
		list = append(list, Left{
			Name: m.Name, Limit: m.Amount, Remaining: max(m.window.left(now), 0), Full: m.window.fits(now, m.Amount) - now,
		})
	}
	return list
}

func (w *sliding) left(now time.Duration) int64 {
	w.expire(now)
	return w.limit - w.used()
}

func (w *fixed) left(now time.Duration) int64 {
	w.turn(now)
	return w.limit - w.used
}

func (w *bucket) left(now time.Duration) int64 {
	w.refill(now)
	return w.level
}
