package budget

import (
	"fmt"
	"math"
	"time"
)

// DefaultCells is the number of cells that a window is divided into when
// WindowBudgetConfig.Cell is not set. 60 cells of one second in a window of a
// minute leave 60/61 = 98.4 % of the quota usable.
const DefaultCells = 60

// WindowBudgetConfig describes a [WindowBudget].
type WindowBudgetConfig struct {
	// Cell is the width of a cell of the ring: the grain in which the window
	// slides. Defaults to Window/DefaultCells. If it does not divide Window,
	// the mirrored window is longer by the rest.
	Cell time.Duration
	// Limit is the number of units per Window. 0 lets nothing pass.
	Limit int64
	// Window is the length of the provider's window. Defaults to
	// [DefaultWindow].
	Window time.Duration
}

// maxCells bounds the memory of one WindowBudget (16 bytes a cell).
const maxCells = 1 << 20

func (c WindowBudgetConfig) withDefaults() (WindowBudgetConfig, error) {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	switch {
	case c.Limit < 0:
		return c, fmt.Errorf("WindowBudgetConfig.Limit is %d, must not be negative", c.Limit)
	case c.Window < 0:
		return c, fmt.Errorf("WindowBudgetConfig.Window is %v, must not be negative", c.Window)
	case c.Cell < 0:
		return c, fmt.Errorf("WindowBudgetConfig.Cell is %v, must not be negative", c.Cell)
	}
	if c.Cell == 0 {
		c.Cell = max(c.Window/DefaultCells, 1)
	}
	switch {
	case c.Cell > c.Window:
		return c, fmt.Errorf("WindowBudgetConfig.Cell is %v, must not exceed Window (%v)", c.Cell, c.Window)
	case c.Window/c.Cell > maxCells:
		return c, fmt.Errorf("WindowBudgetConfig.Cell is %v, divides Window (%v) into more than %d cells", c.Cell, c.Window, maxCells)
	}
	return c, nil
}

// WindowBudget mirrors a provider's window: at most Limit units in any window
// of the given length, wherever the provider's window begins and even though
// the provider counts a call at another moment than we send it.
//
// A hold counts outside the ring until [WindowBudget.Counted] or
// [WindowBudget.Settle] tells that the provider has counted it by then; from
// that cell on it counts for one window. Every unit that a window of the
// provider can hold together was thus on our books at the moment when the last
// of them was sent, and the books never exceed the limit. The price is that the
// usable share of the quota is Window/(Window + Cell + d), where d is the time
// from the taking of a hold until it is known to be counted.
//
// A refund goes to the cell in which the hold was counted, or vanishes with it:
// in the current cell it could be spent twice at the window's edge. An overrun
// goes to the current cell, because it is spent already. A cost above the limit
// never fits.
//
// WindowBudget is a [Limiter] and is not safe for concurrent use.
type WindowBudget struct {
	clock
	limit int64 // units per window, as configured
	inUse int64 // limit in force, after scaling

	cell  int64  // width of a cell in nanoseconds
	into  uint64 // nanoseconds since the current cell began, below cell
	cells []cell // one more than fit in the window
	cur   int64  // number of the current cell; a pause longer than the ring counts as one ring
	slot  int    // cur modulo len(cells)

	counted int64 // sum of used over the cells
	outside int64 // held, and perhaps not counted by the provider yet
}

// cell is what was counted in one stretch of time.
type cell struct {
	used int64 // units counted here, holds included
	open int64 // the part of it that may still be refunded
}

var _ Limiter = (*WindowBudget)(nil)

// NewWindowBudget returns an empty window. The error names the field that is
// wrong and its value.
func NewWindowBudget(cfg WindowBudgetConfig) (*WindowBudget, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := (cfg.Window-1)/cfg.Cell + 1 // rounded up
	return &WindowBudget{
		limit: cfg.Limit, inUse: cfg.Limit,
		cell: int64(cfg.Cell), cells: make([]cell, n+1),
	}, nil
}

// advance brings the ring up to now: it drops the cells that have left the
// window.
func (w *WindowBudget) advance(now time.Time) {
	w.into += uint64(w.elapsed(now))
	if w.into < uint64(w.cell) {
		return
	}
	n := int64(len(w.cells))
	steps := min(int64(w.into/uint64(w.cell)), n)
	w.into %= uint64(w.cell)
	w.cur += steps
	for range steps {
		if w.slot++; w.slot == len(w.cells) {
			w.slot = 0
		}
		w.counted -= w.cells[w.slot].used
		w.cells[w.slot] = cell{}
	}
}

// used is everything on the books.
func (w *WindowBudget) used() int64 { return w.counted + w.outside }

// fits reports whether cost fits beside the given use. A cost between the
// limit in force and the configured one fits beside nothing at all.
func (w *WindowBudget) fits(cost, used int64) bool {
	return used <= w.inUse && cost <= w.inUse-used || used == 0 && cost <= w.limit
}

// Fits implements [Limiter].
func (w *WindowBudget) Fits(now time.Time, cost int64) (bool, time.Time) {
	w.advance(now)
	if cost <= 0 || w.fits(cost, w.used()) {
		return true, time.Time{}
	}
	used := w.used()
	if wait, ok := w.whenFits(cost, used, func(c cell) int64 { return c.used }); ok {
		return false, w.after(wait)
	}
	return false, time.Time{}
}

// whenFits is how long it takes until enough cells have left the window, from
// the oldest on; false if that does not help.
func (w *WindowBudget) whenFits(cost, used int64, in func(cell) int64) (int64, bool) {
	n := int64(len(w.cells))
	for i := int64(1); i <= n; i++ {
		c := in(w.cells[(int64(w.slot)+i)%n])
		if c == 0 {
			continue
		}
		if used -= c; w.fits(cost, used) {
			return mulDiv(i, w.cell, 1) - int64(w.into), true // the i-th oldest leaves i cells after the current one began
		}
	}
	return 0, false
}

// Earliest implements [Limiter].
func (w *WindowBudget) Earliest(now time.Time, cost int64) (time.Time, bool) {
	w.advance(now)
	if cost <= 0 {
		return now, true
	}
	if cost > w.limit {
		return time.Time{}, false
	}
	used := w.counted
	for _, c := range w.cells {
		used -= c.open
	}
	if w.fits(cost, used) {
		return now, true
	}
	wait, ok := w.whenFits(cost, used, func(c cell) int64 { return c.used - c.open })
	return w.after(wait), ok
}

// Take implements [Limiter].
func (w *WindowBudget) Take(now time.Time, cost int64) Hold {
	w.advance(now)
	cost = w.bookable(max(cost, 0))
	w.outside += cost
	return Hold{cost: cost}
}

// TryTake is Fits and Take in one step: it takes cost if it fits now.
func (w *WindowBudget) TryTake(now time.Time, cost int64) (Hold, bool) {
	w.advance(now)
	if cost > 0 && !w.fits(cost, w.used()) {
		return Hold{}, false
	}
	cost = w.bookable(max(cost, 0))
	w.outside += cost
	return Hold{cost: cost}, true
}

// bookable is the part of cost that the books can still take without overflow.
func (w *WindowBudget) bookable(cost int64) int64 {
	return min(cost, math.MaxInt64-w.used())
}

// Counted implements [Limiter].
func (w *WindowBudget) Counted(now time.Time, h Hold) Hold {
	if h.mark != 0 || h.cost == 0 {
		return h
	}
	w.advance(now)
	return w.count(h)
}

// count moves a hold from outside into the current cell.
func (w *WindowBudget) count(h Hold) Hold {
	w.outside -= h.cost
	w.counted += h.cost
	c := &w.cells[w.slot]
	c.used += h.cost
	c.open += h.cost
	h.mark = w.cur + 1
	return h
}

// Settle implements [Limiter].
func (w *WindowBudget) Settle(now time.Time, h Hold, actual int64) {
	actual = max(actual, 0)
	if actual == 0 && h.mark == 0 { // refunded before it was counted
		w.outside -= h.cost
		return
	}
	w.advance(now)
	if h.cost > 0 {
		if h.mark == 0 {
			h = w.count(h)
		}
		if n := int64(len(w.cells)); w.cur-(h.mark-1) < n { // its cell is still in the ring
			c := &w.cells[(h.mark-1)%n]
			c.open -= h.cost
			if actual < h.cost {
				c.used -= h.cost - actual
				w.counted -= h.cost - actual
			}
		}
	}
	if actual > h.cost {
		over := w.bookable(actual - h.cost)
		w.cells[w.slot].used += over
		w.counted += over
	}
}

// Level implements [Limiter].
func (w *WindowBudget) Level(now time.Time) int64 {
	w.advance(now)
	return satSub(w.inUse, w.used())
}

// Limit implements [Limiter].
func (w *WindowBudget) Limit() int64 { return w.limit }

// Max implements [Limiter]: a cost above the limit never fits.
func (w *WindowBudget) Max() int64 { return w.limit }

// SetLimit implements [Limiter]. A scale that was in force ends.
func (w *WindowBudget) SetLimit(_ time.Time, limit int64) {
	w.limit = max(limit, 0)
	w.inUse = w.limit
}

// Scale implements [Limiter].
func (w *WindowBudget) Scale(_ time.Time, share float64) { w.inUse = scaled(w.limit, share) }
