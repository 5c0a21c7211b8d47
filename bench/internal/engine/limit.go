package engine

import (
	"fmt"
	"math"
	"time"
	_ "time/tzdata" // daily limits need their zone on machines that have no zone files
)

// Dimension is what a limit counts.
type Dimension uint8

const (
	// Requests counts calls.
	Requests Dimension = iota
	// InputTokens counts prompt tokens.
	InputTokens
	// OutputTokens counts generated tokens.
	OutputTokens
	// TotalTokens counts tokens, as the API that is doubled adds them up.
	TotalTokens

	dimensions
)

// Amounts is what one call uses of every dimension.
type Amounts [dimensions]int64

// WindowModel is the way in which a limit renews itself.
type WindowModel uint8

const (
	// Sliding keeps an exact log: no window of the limit's length, wherever it
	// starts, holds more than the limit. A window is half-open, so a call at t
	// counts until just before t plus the length.
	Sliding WindowModel = iota
	// Fixed starts from zero at every multiple of the length after the start.
	// Around a border it lets up to twice the limit through.
	Fixed
	// Bucket refills continuously, the limit over its length, up to the limit.
	// After a pause it lets up to twice the limit through in one length.
	Bucket
	// Daily starts from zero at midnight in the limit's zone.
	Daily
)

var windowNames = [...]string{Sliding: "sliding", Fixed: "fixed", Bucket: "bucket", Daily: "daily"}

// String returns "sliding", "fixed", "bucket" or "daily".
func (m WindowModel) String() string {
	if int(m) < len(windowNames) {
		return windowNames[m]
	}
	return fmt.Sprintf("WindowModel(%d)", uint8(m))
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (m WindowModel) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. Its error lists the
// models that a user may choose; a daily limit is made by its own setting.
func (m *WindowModel) UnmarshalText(text []byte) error {
	for i, name := range windowNames {
		if string(text) == name {
			*m = WindowModel(i)
			return nil
		}
	}
	return fmt.Errorf("window %q: must be sliding, fixed or bucket", text)
}

// CountAt is the instant at which a provider counts a call against a limit.
// Whether the call is admitted is always decided when it arrives.
type CountAt uint8

const (
	// AtArrival counts a call as it is admitted.
	AtArrival CountAt = iota
	// AtCompletion counts a call when it ends, however it ends. Calls in
	// flight are not counted yet, so a burst goes past the limit.
	AtCompletion
)

var countNames = [...]string{AtArrival: "arrival", AtCompletion: "completion"}

// String returns "arrival" or "completion".
func (c CountAt) String() string {
	if int(c) < len(countNames) {
		return countNames[c]
	}
	return fmt.Sprintf("CountAt(%d)", uint8(c))
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (c CountAt) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *CountAt) UnmarshalText(text []byte) error {
	for i, name := range countNames {
		if string(text) == name {
			*c = CountAt(i)
			return nil
		}
	}
	return fmt.Errorf("counting instant %q: must be arrival or completion", text)
}

// maxAmount keeps sums and differences of amounts far from overflow.
const maxAmount = 1_000_000_000_000_000

// Limit is one quota.
type Limit struct {
	// Amount is how much one window holds, at most 10¹⁵. 0 is no limit: the
	// use is measured, nothing is refused.
	Amount int64
	// CountAt is the instant at which calls are counted.
	CountAt CountAt
	// Dimension is what is counted.
	Dimension Dimension
	// Length is the length of a window before the speed is applied. It is not
	// used by Daily.
	Length time.Duration
	// Model is the way in which the window moves.
	Model WindowModel
	// Name is the limit's name in statistics and refusals.
	Name string
	// Offset is how long after the start the first border of a Fixed window
	// falls, before the speed is applied.
	Offset time.Duration
	// Zone is the zone whose midnight renews a Daily limit.
	Zone *time.Location
}

func (l Limit) validate() error {
	switch {
	case l.Amount < 0 || l.Amount > maxAmount:
		return fmt.Errorf("limit %s: amount %d: must be from 0 (no limit) to %d", l.Name, l.Amount, int64(maxAmount))
	case l.Dimension >= dimensions:
		return fmt.Errorf("limit %s: unknown dimension %d", l.Name, l.Dimension)
	case int(l.CountAt) >= len(countNames):
		return fmt.Errorf("limit %s: unknown counting instant %d", l.Name, l.CountAt)
	case int(l.Model) >= len(windowNames):
		return fmt.Errorf("limit %s: unknown window model %d", l.Name, l.Model)
	case l.Model == Daily && l.Zone == nil:
		return fmt.Errorf("limit %s: a daily limit needs a zone", l.Name)
	case l.Model != Daily && l.Length <= 0:
		return fmt.Errorf("limit %s: window length %v: must be above 0", l.Name, l.Length)
	case l.Offset < 0:
		return fmt.Errorf("limit %s: window offset %v: must not be negative", l.Name, l.Offset)
	}
	return nil
}

// meter enforces one limit and measures its use. The two do not share state:
// the peak is what was counted, not what the window thinks of it.
type meter struct {
	Limit // with scaled durations
	// window is nil where there is no limit.
	window window
	peak   peak
}

// newMeter starts a limit at epoch. Its lengths are divided by the speed.
func newMeter(l Limit, epoch time.Time, speed float64) *meter {
	l.Length = max(shorten(l.Length, speed), 1)
	l.Offset = shorten(l.Offset, speed)
	m := &meter{Limit: l}
	border := bounds(fixedBounds(l.Length, l.Offset))
	if l.Model == Daily {
		border = dailyBounds(epoch, speed, l.Zone)
		m.peak = &periodPeak{bounds: border}
	} else {
		m.peak = &slidingPeak{length: l.Length}
	}
	if l.Amount == 0 {
		return m
	}
	switch l.Model {
	case Sliding:
		m.window = &sliding{limit: l.Amount, length: l.Length}
	case Fixed, Daily:
		m.window = &fixed{limit: l.Amount, bounds: border}
	case Bucket:
		m.window = &bucket{limit: l.Amount, length: l.Length, level: l.Amount}
	}
	return m
}

// count books what the call used at now.
func (m *meter) count(now time.Duration, a Amounts) {
	m.peak.add(now, a[m.Dimension])
	if m.window != nil {
		m.window.count(now, a[m.Dimension])
	}
}

// shorten divides a duration by the speed, rounding to the nearest nanosecond.
func shorten(d time.Duration, speed float64) time.Duration {
	if speed == 1 {
		return d
	}
	return saturate(math.Round(float64(d) / speed))
}
