package engine

import (
	"math"
	"time"
)

// Fits returns how long it would take until a call of these amounts were
// admitted, if no other came: 0 where it would be at once. It counts nothing. It
// knows the limits, and faults that refuse every call in an interval; chance and
// the numbers of calls it does not know. A call that never fits, or nobody knows
// when, has the longest duration that there is.
func (e *Engine) Fits(a Amounts) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.run.now()
	wait := time.Duration(0)
	for _, f := range e.faults {
		if f.Kind.Refuses && f.N == 0 && f.Every == 0 && f.P == 0 && f.befalls(0, now, 0) {
			if f.To == 0 || f.To == forever {
				return math.MaxInt64
			}
			wait = max(wait, f.To-now)
		}
	}
	if r := e.limited(now, Arrival{Amounts: a}); r != nil {
		if r.Retry <= 0 {
			return math.MaxInt64
		}
		wait = max(wait, r.Retry)
	}
	return wait
}
