package budget_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
)

// ledger is the specification of WindowBudget: a list of who took what and where
// it was counted. It looks at all of it for every answer.
type ledger struct {
	limit, inForce int64
	window, cell   time.Duration
	now            time.Duration
	bookings       []*booking
}

type booking struct {
	units   int64
	counted int64 // number of its cell; outside while there is none
	open    bool
}

// outside is the cell of what was not counted yet.
const outside = -1 << 62

func (l *ledger) cellAt(at time.Duration) int64 { return int64(at / l.cell) }

// at is what is on the books at an instant from now on. A cell is on the books
// for as long as a closed window of the provider can reach back into it: the
// cells in the window, rounded up, and one.
func (l *ledger) at(at time.Duration, optimist bool) (units int64) {
	cells := int64((l.window + l.cell - 1) / l.cell)
	for _, b := range l.bookings {
		if optimist && b.open || b.counted != outside && b.counted < l.cellAt(at)-cells {
			continue
		}
		units += b.units
	}
	return units
}

func (l *ledger) fits(at time.Duration, cost int64, optimist bool) bool {
	used := l.at(at, optimist)
	return cost <= 0 || used+cost <= l.inForce || used == 0 && cost <= l.limit
}

// first is the first instant at which cost fits, from now on: now or an edge.
func (l *ledger) first(cost int64, optimist bool) (time.Duration, bool) {
	if l.fits(l.now, cost, optimist) {
		return l.now, true
	}
	for i := range int64((l.window+l.cell-1)/l.cell) + 1 {
		if edge := time.Duration(l.cellAt(l.now)+1+i) * l.cell; l.fits(edge, cost, optimist) {
			return edge, true
		}
	}
	return 0, false
}

func TestAWindowIsWhatItsLedgerSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 50).Draw(t, "limit")
		ref := &ledger{limit: limit, inForce: limit}
		ref.cell = time.Duration(rapid.Int64Range(1, int64(5*time.Second)).Draw(t, "cell"))
		ref.window = ref.cell + time.Duration(rapid.Int64Range(0, int64(12*ref.cell)).Draw(t, "window − cell"))
		w := newWindow(t, budget.WindowBudgetConfig{Limit: limit, Window: ref.window, Cell: ref.cell})

		type held struct {
			hold budget.Hold
			*booking
		}
		var open []held
		offset := time.Duration(0) // of the clock that is asked
		now := func() time.Time { return t0.Add(ref.now + offset) }
		w.Level(now())
		costs := rapid.Int64Range(0, 20)

		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				ref.now += time.Duration(rapid.OneOf(
					rapid.Int64Range(0, int64(2*ref.cell)),
					rapid.Int64Range(0, int64(2*ref.window)),
				).Draw(t, "pause"))
			},
			"pass to an edge": func(*rapid.T) { ref.now = time.Duration(ref.cellAt(ref.now)+1) * ref.cell },
			"take": func(t *rapid.T) {
				b := &booking{units: costs.Draw(t, "cost"), counted: outside, open: true}
				open = append(open, held{w.Take(now(), b.units), b})
				ref.bookings = append(ref.bookings, b)
			},
			"count": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				h := &open[rapid.IntRange(0, len(open)-1).Draw(t, "hold")]
				h.hold = w.Counted(now(), h.hold)
				if h.counted == outside && h.units > 0 {
					h.counted = ref.cellAt(ref.now)
				}
			},
			"revise": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "hold")
				h := &open[i]
				h.units = costs.Draw(t, "revised cost")
				if h.hold = w.Revise(now(), h.hold, h.units); h.hold.Cost() != h.units {
					t.Fatalf("the revised hold is of %d, want %d", h.hold.Cost(), h.units)
				}
			},
			"lower": func(t *rapid.T) {
				left := costs.Draw(t, "left")
				reset := time.Duration(rapid.Int64Range(0, int64(2*ref.window)).Draw(t, "reset"))
				w.Lower(now(), left, reset)
				over := ref.inForce - ref.at(ref.now, false) - left
				if over <= 0 {
					return
				}
				// On the books until the last edge before the reset, but no longer than
				// what is counted now.
				cells := int64((ref.window + ref.cell - 1) / ref.cell)
				counted := ref.cellAt(ref.now)
				if reset > 0 {
					counted = min(counted, ref.cellAt(ref.now+reset)-cells-1)
				}
				ref.bookings = append(ref.bookings, &booking{units: over, counted: counted})
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "hold")
				h := open[i]
				open = append(open[:i], open[i+1:]...)
				actual := costs.Draw(t, "actual")
				w.Settle(now(), h.hold, actual)
				h.open = false
				if h.counted == outside {
					h.counted = ref.cellAt(ref.now)
				}
				if actual > h.units {
					ref.bookings = append(ref.bookings, &booking{units: actual - h.units, counted: ref.cellAt(ref.now)})
				} else {
					h.units = actual
				}
			},
			"set the limit": func(t *rapid.T) {
				ref.limit = rapid.Int64Range(0, 50).Draw(t, "limit")
				ref.inForce = ref.limit
				w.SetLimit(now(), ref.limit)
			},
			"scale": func(t *rapid.T) {
				share := rapid.Int64Range(1, 64).Draw(t, "64ths") // exact in binary
				w.Scale(now(), float64(share)/64)
				ref.inForce = (ref.limit*share + 32) / 64 // to the nearest
				if ref.limit > 0 {
					ref.inForce = max(ref.inForce, 1)
				}
			},
			"step the clock back": func(*rapid.T) {
				w.Level(now())
				offset -= 1000 * time.Hour // the old instant never comes round again
				w.Level(now())
			},
			"lag": func(t *rapid.T) { // a goroutine that read the clock and waited for the lock
				w.Level(now())
				w.Level(now().Add(-time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "lag"))))
			},
			"": func(t *rapid.T) {
				if got, want := w.Level(now()), ref.inForce-ref.at(ref.now, false); got != want {
					t.Fatalf("level is %d, want %d", got, want)
				}
				if w.Limit() != ref.limit || w.Max() != ref.limit {
					t.Fatalf("Limit %d, Max %d, want %d", w.Limit(), w.Max(), ref.limit)
				}
				cost := costs.Draw(t, "next cost")
				ok, at := w.Fits(now(), cost)
				first, possible := ref.first(cost, false)
				switch {
				case ok != (possible && first == ref.now):
					t.Fatalf("Fits(%d) is %v; want %v at +%v (now +%v)", cost, ok, possible, first, ref.now)
				case !possible && !at.IsZero():
					t.Fatalf("%d is to fit at +%v, want never by time alone", cost, at.Sub(t0)-offset)
				case possible && !ok && at.Sub(t0)-offset != first:
					t.Fatalf("%d is to fit at +%v, want +%v", cost, at.Sub(t0)-offset, first)
				}
				at, ok = w.Earliest(now(), cost)
				first, possible = ref.first(cost, true)
				possible = possible && (cost == 0 || cost <= ref.limit)
				if ok != possible || ok && at.Sub(t0)-offset != first {
					t.Fatalf("Earliest(%d) is +%v, %v; want +%v, %v", cost, at.Sub(t0)-offset, ok, first, possible)
				}
			},
		})
	})
}
