package engine

import "time"

// Meter is one limit on its own, for simulations that need no calls: it tells what
// would fit, counts, and measures. Instants are durations since its start; they must not
// go back. It is not safe for concurrent use.
type Meter struct{ m *meter }

// NewMeter starts a limit that counts nothing yet. Daily limits start at the zero time.
func NewMeter(l Limit) (*Meter, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	return &Meter{newMeter(l, time.Time{}, 1)}, nil
}

// Fits returns how long after now an amount could be counted within the limit, if
// nothing else were counted before: 0 where it fits at once. ok is false if it never can.
func (m *Meter) Fits(now time.Duration, amount int64) (wait time.Duration, ok bool) {
	if m.m.window == nil {
		return 0, true
	}
	at := m.m.window.fits(now, amount)
	return at - now, at != never
}

// Count counts an amount, whether it fits or not.
func (m *Meter) Count(now time.Duration, amount int64) {
	var a Amounts
	a[m.m.Dimension] = amount
	m.m.count(now, a)
}

// Left returns what could be counted at now, below 0 where more was counted than the
// limit; 0 if there is no limit.
func (m *Meter) Left(now time.Duration) int64 {
	if m.m.window == nil {
		return 0
	}
	return m.m.window.left(now)
}
