package retry

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Defaults of [Budget].
const (
	// DefaultRatio is the share of calls that may be retries. Finagle's
	// RetryBudget has the same default.
	DefaultRatio = 0.2
	// DefaultFloor is how many retries per window need no calls to pay for
	// them, so that a quiet program can retry at all.
	DefaultFloor = 3
	// DefaultWindow is how long a call pays for retries, as in Finagle.
	DefaultWindow = 10 * time.Second
)

// budgetCells is how many cells a window is divided into. One more is kept, so
// that the cells always cover a whole window.
const budgetCells = 10

// Budget keeps retries to a share of the calls of a whole process, so that a
// provider in trouble gets at most 1 + Ratio times the load and not MaxAttempts
// times. Every call is announced with Call once, before its first attempt, and
// every further attempt is asked of TryRetry:
//
//	retries in a window ≤ max(Floor, Ratio · calls in the window)
//
// A refused retry means: return the error that the call met. The budget is for
// errors that say that the provider, or the way to it, is in trouble; see
// [Class.UsesBudget].
//
// The window slides in steps of a tenth of its length, so what it covers is
// between one window and a tenth more. Time is an argument: a Budget has no
// clock and no goroutine, and does not allocate. Clock steps backwards are
// harmless: the window stands still until the clock is back, or goes on from
// where it stands if the step was longer than the window.
//
// The zero value is ready to use, with the defaults. A Budget must not be copied
// after first use, and its fields must not be changed then. It is safe for
// concurrent use.
type Budget struct {
	// Ratio is the number of retries that a call pays for. Defaults to
	// DefaultRatio.
	Ratio float64

	// Floor is the number of retries per window that are always allowed.
	// Defaults to DefaultFloor.
	Floor int

	// Window is how long calls and retries count. Defaults to DefaultWindow.
	Window time.Duration

	mu sync.Mutex
	// mu guards all that follows.

	started bool
	origin  time.Time // begin of cell number 0
	head    int64     // number of the newest cell
	cells   [budgetCells + 1]struct{ calls, retries int64 }
	calls   int64 // sum over cells
	retries int64 // sum over cells
}

// Validate returns an error that names the first field with an unusable value,
// and the value; nil if there is none. Zero values are usable. A Budget that
// Validate refuses works with the default in place of that value.
func (b *Budget) Validate() error {
	switch {
	case !(b.Ratio >= 0) || math.IsInf(b.Ratio, 1):
		return fmt.Errorf("retry: Ratio is %v; want a positive number, or 0 for the default of %v", b.Ratio, DefaultRatio)
	case b.Floor < 0:
		return fmt.Errorf("retry: Floor is %d; want at least 1, or 0 for the default of %d", b.Floor, DefaultFloor)
	case b.Window < 0:
		return fmt.Errorf("retry: Window is %v; want a positive duration, or 0 for the default of %v", b.Window, DefaultWindow)
	}
	return nil
}

// Call notes a call that begins at now. It is counted once, however often it is
// tried.
func (b *Budget) Call(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	b.cells[b.head%int64(len(b.cells))].calls++
	b.calls++
}

// TryRetry reports whether one more attempt may be made at now, and counts it if
// so. It never waits.
func (b *Budget) TryRetry(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	if b.retries >= b.allowed() {
		return false
	}
	b.cells[b.head%int64(len(b.cells))].retries++
	b.retries++
	return true
}

// allowed is the number of retries that the calls in the window permit.
func (b *Budget) allowed() int64 {
	ratio := b.Ratio
	if !(ratio > 0) || math.IsInf(ratio, 1) {
		ratio = DefaultRatio
	}
	// The small addend makes up for ratios that are not exact in binary: 0.29
	// of 100 calls are 29.
	paid := int64(math.Min(ratio*float64(b.calls)+1e-9, math.MaxInt32))
	return max(paid, int64(orDefault(b.Floor, DefaultFloor)))
}

// advance moves the window so that its newest cell is the one of now, and
// forgets the cells that it leaves behind.
func (b *Budget) advance(now time.Time) {
	if !b.started {
		b.started, b.origin = true, now
	}
	width := max(1, orDefault(b.Window, DefaultWindow)/budgetCells)
	size := int64(len(b.cells))
	elapsed := now.Sub(b.origin)
	cell := int64(elapsed / width)
	switch {
	case elapsed == math.MaxInt64:
		// Further than a Duration reaches: a new beginning.
		clear(b.cells[:])
		b.origin, b.head, b.calls, b.retries = now, 0, 0, 0
	case cell > b.head:
		for n := min(cell-b.head, size); n > 0; n-- {
			left := &b.cells[(cell-n+1)%size]
			b.calls -= left.calls
			b.retries -= left.retries
			left.calls, left.retries = 0, 0
		}
		b.head = cell
	case cell < b.head-size:
		// The clock was set back, or had been ahead: go on from here.
		b.origin = now.Add(-time.Duration(b.head) * width)
	}
}
