package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// minute is a window of a minute in cells of a second.
func minute(t *testing.T, limit int64) *budget.WindowBudget {
	t.Helper()
	return newWindow(t, budget.WindowBudgetConfig{Limit: limit, Cell: time.Second})
}

func TestTheWholeLimitFitsAtOnceAndThenNothingUntilAWindowAfterItsCell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  budget.WindowBudgetConfig
		at   time.Duration // when it is counted, after the first instant seen
		free time.Duration // the end of its cell and a window
	}{
		{"minute in seconds", budget.WindowBudgetConfig{Cell: time.Second}, 0, 61 * time.Second},
		{"at the end of the cell", budget.WindowBudgetConfig{Cell: time.Second}, time.Second - 1, 61 * time.Second},
		{"at the start of the next", budget.WindowBudgetConfig{Cell: time.Second}, time.Second, 62 * time.Second},
		{"defaults", budget.WindowBudgetConfig{}, 0, 61 * time.Second},
		{"one cell", budget.WindowBudgetConfig{Cell: time.Minute}, 0, 2 * time.Minute},
		{"cells that do not divide", budget.WindowBudgetConfig{Cell: 7 * time.Second}, 0, 70 * time.Second},
		{"long after the start", budget.WindowBudgetConfig{Cell: time.Second}, 1000 * time.Hour, 1000*time.Hour + 61*time.Second},
		{"a window of a day", budget.WindowBudgetConfig{Window: 24 * time.Hour}, 0, 24*time.Hour + 24*time.Minute},
		{"a window of a nanosecond", budget.WindowBudgetConfig{Window: 1}, 0, 2},
		{"a tiny default cell", budget.WindowBudgetConfig{Window: 59}, 0, 60},
	} {
		c.cfg.Limit = 1000
		w := newWindow(t, c.cfg)
		w.Level(t0)
		now := t0.Add(c.at)
		if !fits(w, now, 1000) {
			t.Errorf("%s: the limit does not fit at once", c.name)
		}
		w.Settle(now, w.Take(now, 1000), 1000)
		if ok, at := w.Fits(now, 1); ok || at.Sub(t0) != c.free {
			t.Errorf("%s: 1 fits (%v) at +%v, want at +%v", c.name, ok, at.Sub(t0), c.free)
		}
		if got := w.Level(t0.Add(c.free - 1)); got != 0 {
			t.Errorf("%s: level is %d before its cell has left, want 0", c.name, got)
		}
		if got := w.Level(t0.Add(c.free)); got != 1000 {
			t.Errorf("%s: level is %d when its cell has left, want 1000", c.name, got)
		}
	}
}

func TestACostAboveTheLimitNeverFits(t *testing.T) {
	t.Parallel()
	w := minute(t, 100)
	if w.Max() != 100 {
		t.Errorf("Max is %d, want the limit", w.Max())
	}
	for _, cost := range []int64{101, math.MaxInt64} {
		if ok, at := w.Fits(t0, cost); ok || !at.IsZero() {
			t.Errorf("Fits(%d) = %v, %v; want false and no time", cost, ok, at)
		}
		if _, ok := w.Earliest(t0, cost); ok {
			t.Errorf("Earliest(%d) is some time, want never", cost)
		}
	}
}

func TestAHoldCountsOutsideTheRingUntilItIsCounted(t *testing.T) {
	t.Parallel()
	w := minute(t, 100)
	h := w.Take(t0, 100)
	later := t0.Add(10 * time.Minute) // a long answer
	if got := w.Level(later); got != 0 {
		t.Fatalf("level is %d while the hold may not be counted yet, want 0", got)
	}
	if ok, at := w.Fits(later, 1); ok || !at.IsZero() {
		t.Errorf("Fits = %v, %v; want false and no time, because the hold must end first", ok, at)
	}
	if at, ok := w.Earliest(later, 100); !ok || !at.Equal(later) {
		t.Errorf("Earliest is %v, %v; want now, because the hold may be refunded", at, ok)
	}
	h = w.Counted(later, h)
	if ok, at := w.Fits(later, 1); ok || at.Sub(later) != 61*time.Second {
		t.Errorf("1 fits (%v) %v after it was counted, want after 61s", ok, at.Sub(later))
	}
	again := later.Add(30 * time.Second)
	if h2 := w.Counted(again, h); h2 != h {
		t.Errorf("counting it again changed it")
	}
	w.Settle(again, h, 100) // it stays in the cell where it was counted
	if ok, at := w.Fits(again, 1); ok || at.Sub(later) != 61*time.Second {
		t.Errorf("1 fits (%v) %v after it was counted, want after 61s", ok, at.Sub(later))
	}
}

func TestARefundGoesToItsCellOrVanishesWithIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		settle    time.Duration // after 60 were counted, with 40 used
		now, full int64         // level at that time, and 61 s after it was counted
	}{
		{"at once", 0, 60, 100},
		{"in another cell", 30 * time.Second, 60, 100},
		{"in the last instant of its cell's life", 61*time.Second - 1, 60, 100},
		{"when its cell has left", 61 * time.Second, 100, 100},
		{"long after", time.Hour, 100, 100},
	} {
		w := minute(t, 100)
		h := w.Counted(t0, w.Take(t0, 60))
		now := t0.Add(c.settle)
		w.Settle(now, h, 40)
		if got := w.Level(now); got != c.now {
			t.Errorf("%s: level is %d after the refund, want %d", c.name, got, c.now)
		}
		if got := w.Level(t0.Add(max(c.settle, 61*time.Second))); got != c.full {
			t.Errorf("%s: level is %d when the cell has left, want %d", c.name, got, c.full)
		}
	}
}

// The window's edge: were a refund given to the current cell it could be spent
// now, and once more when the old cell leaves.
func TestARefundIsNotSpentTwiceAtTheWindowsEdge(t *testing.T) {
	t.Parallel()
	w := minute(t, 100)
	h := w.Counted(t0, w.Take(t0, 100))
	edge := t0.Add(60 * time.Second)
	w.Settle(edge, h, 20)
	if got := w.Level(edge); got != 80 {
		t.Fatalf("level is %d, want the 80 that were not used", got)
	}
	w.Settle(edge, w.Take(edge, 80), 80)
	after := t0.Add(61 * time.Second) // the old cell leaves, with 20
	if got := w.Level(after); got != 20 {
		t.Errorf("level is %d, want 20", got)
	}
}

func TestARefundBeforeItWasCountedIsWhole(t *testing.T) {
	t.Parallel()
	w := minute(t, 100)
	h := w.Take(t0, 60)
	now := t0.Add(10 * time.Second)
	w.Settle(now, h, 0)
	if got := w.Level(now); got != 100 {
		t.Errorf("level is %d, want 100", got)
	}
}

func TestAnOverrunGoesToTheCurrentCell(t *testing.T) {
	t.Parallel()
	w := minute(t, 100)
	h := w.Counted(t0, w.Take(t0, 60))
	now := t0.Add(30 * time.Second)
	w.Settle(now, h, 90)
	for _, c := range []struct {
		at   time.Duration
		want int64
	}{
		{30 * time.Second, 10},
		{61*time.Second - 1, 10},
		{61 * time.Second, 70}, // the 60 have left, the 30 have not
		{91*time.Second - 1, 70},
		{91 * time.Second, 100},
	} {
		if got := w.Level(t0.Add(c.at)); got != c.want {
			t.Errorf("level is %d at +%v, want %d", got, c.at, c.want)
		}
	}
	// Also when the cell of the hold has long left, and for more than the limit.
	h = w.Counted(now.Add(time.Hour), w.Take(now.Add(time.Hour), 60))
	now = now.Add(2 * time.Hour)
	w.Settle(now, h, 260)
	if got := w.Level(now); got != -100 {
		t.Errorf("level is %d after an overrun of 200, want −100", got)
	}
	if ok, at := w.Fits(now, 1); ok || at.IsZero() || w.Level(at) != 100 {
		t.Errorf("1 fits (%v) at %v with a level of %d, want when the overrun has left", ok, at, w.Level(at))
	}
}

func TestAWindowScaledDownAdmitsTheFullLimitOnlyAlone(t *testing.T) {
	t.Parallel()
	w := minute(t, 100)
	w.Scale(t0, 0.5)
	h := w.Counted(t0, w.Take(t0, 1))
	for _, c := range []struct {
		cost int64
		wait time.Duration // 0: at once
	}{{49, 0}, {50, 61 * time.Second}, {51, 61 * time.Second}, {100, 61 * time.Second}} {
		ok, at := w.Fits(t0, c.cost)
		if ok != (c.wait == 0) || !ok && at.Sub(t0) != c.wait {
			t.Errorf("%d fits (%v) after %v, want after %v", c.cost, ok, at.Sub(t0), c.wait)
		}
		if at, ok := w.Earliest(t0, c.cost); !ok || !at.Equal(t0) {
			t.Errorf("Earliest(%d) is %v, %v; want now, because the hold may be refunded", c.cost, at, ok)
		}
	}
	if ok, at := w.Fits(t0, 101); ok || !at.IsZero() {
		t.Errorf("101 fits (%v) at %v, want never", ok, at)
	}
	w.Settle(t0, h, 1)
	if at, ok := w.Earliest(t0, 100); !ok || at.Sub(t0) != 61*time.Second {
		t.Errorf("Earliest(100) is +%v, %v; want when the settled 1 has left", at.Sub(t0), ok)
	}
	w.SetLimit(t0, 100)
	if got := w.Level(t0); got != 99 {
		t.Errorf("level is %d after the limit was set anew, want 99", got)
	}
}

func TestAWindowsBooksSaturate(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	w := minute(t, most)
	var holds []budget.Hold
	for range 3 {
		holds = append(holds, w.Take(t0, most))
	}
	holds[1] = w.Counted(t0, holds[1])
	w.Settle(t0, budget.Hold{}, most)
	if got := w.Level(t0); got != 0 {
		t.Fatalf("level is %d, want 0", got)
	}
	for _, h := range holds {
		w.Settle(t0, h, most)
	}
	if got := w.Level(t0); got != 0 {
		t.Errorf("level is %d when all is settled, want 0", got)
	}
	if got := w.Level(t0.Add(61 * time.Second)); got != most {
		t.Errorf("level is %d when all has left, want all", got)
	}
	w.SetLimit(t0, 0)
	w.Settle(t0, w.Take(t0, most), most)
	if got := w.Level(t0); got != -most {
		t.Errorf("level is %d, want %d", got, int64(-most))
	}
}

// The price of certainty. A client that always has more to do, calls of which
// the provider's count becomes known after d, and refunds nothing: the share of
// the quota that it gets is Window/(Window + Cell + d). It is that much where d
// is a number of cells, and never less; where d ends inside a cell the hold
// enters the cell that is current already.
func TestTheUsableShareIsWindowOverWindowPlusCellPlusDelay(t *testing.T) {
	t.Parallel()
	const window, limit = time.Minute, 60
	for _, c := range []struct{ cell, delay time.Duration }{
		{time.Second, 0},
		{time.Second, time.Second},
		{time.Second, 5 * time.Second},
		{5 * time.Second, 0},
		{5 * time.Second, 10 * time.Second},
		{time.Minute, 0},
		{100 * time.Millisecond, time.Second},
		{5 * time.Second, 2 * time.Second},
		{5 * time.Second, 9 * time.Second},
	} {
		w := newWindow(t, budget.WindowBudgetConfig{Limit: limit, Window: window, Cell: c.cell})
		type flight struct {
			hold budget.Hold
			done time.Time
		}
		var open []flight
		var sent int64
		const periods = 100
		now, end := t0, t0
		for sent < periods*limit {
			for len(open) > 0 && !open[0].done.After(now) {
				w.Settle(open[0].done, open[0].hold, 1)
				open = open[1:]
			}
			ok, at := w.Fits(now, 1)
			switch {
			case ok:
				open = append(open, flight{w.Take(now, 1), now.Add(c.delay)})
				sent++
				end = now
			case len(open) > 0 && (at.IsZero() || open[0].done.Before(at)):
				now = open[0].done
			default:
				now = at
			}
		}
		// The last of 100 full limits was sent after 99 periods.
		share := float64((periods-1)*limit) * float64(window) / float64(limit) / float64(end.Sub(t0))
		want := float64(window) / float64(window+c.cell+c.delay)
		atMost := want
		if rest := c.delay % c.cell; rest > 0 {
			atMost = float64(window) / float64(window+c.cell+c.delay-rest)
		}
		if share < want-1e-9 || share > atMost+1e-9 {
			t.Errorf("cell %v, delay %v: the usable share is %.5f, want %.5f to %.5f", c.cell, c.delay, share, want, atMost)
		}
	}
}
