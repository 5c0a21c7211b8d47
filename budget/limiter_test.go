package budget_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
)

// t0 is where virtual time begins: a wall clock, without a monotonic reading.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func newToken(t fataler, cfg budget.TokenBudgetConfig) *budget.TokenBudget {
	t.Helper()
	l, err := budget.NewTokenBudget(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newWindow(t fataler, cfg budget.WindowBudgetConfig) *budget.WindowBudget {
	t.Helper()
	l, err := budget.NewWindowBudget(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// both runs a test of the contract of [budget.Limiter] on each limiter, with a
// limit of so many units per minute.
func both(t *testing.T, limit int64, test func(*testing.T, func() budget.Limiter)) {
	t.Helper()
	t.Run("TokenBudget", func(t *testing.T) {
		t.Parallel()
		test(t, func() budget.Limiter { return newToken(t, budget.TokenBudgetConfig{Limit: limit}) })
	})
	t.Run("WindowBudget", func(t *testing.T) {
		t.Parallel()
		test(t, func() budget.Limiter { return newWindow(t, budget.WindowBudgetConfig{Limit: limit}) })
	})
}

func fits(l budget.Limiter, now time.Time, cost int64) bool {
	ok, _ := l.Fits(now, cost)
	return ok
}

func TestANegativeCostIsNone(t *testing.T) {
	t.Parallel()
	both(t, 100, func(t *testing.T, make func() budget.Limiter) {
		for _, cost := range []int64{0, -1, math.MinInt64} {
			l := make()
			l.Take(t0, 100) // nothing is left
			if ok, at := l.Fits(t0, cost); !ok || !at.IsZero() {
				t.Errorf("Fits(%d) = %v, %v; want true and no time", cost, ok, at)
			}
			if at, ok := l.Earliest(t0, cost); !ok || !at.Equal(t0) {
				t.Errorf("Earliest(%d) = %v, %v; want now", cost, at, ok)
			}
			h := l.Take(t0, cost)
			if h.Cost() != 0 || l.Level(t0) != 0 {
				t.Errorf("Take(%d) holds %d and leaves %d; want 0 and 0", cost, h.Cost(), l.Level(t0))
			}
			l.Settle(t0, l.Counted(t0, h), cost)
			if got := l.Level(t0); got != 0 {
				t.Errorf("level after settling %d is %d, want 0", cost, got)
			}
		}
	})
}

func TestTheZeroHoldHoldsNothing(t *testing.T) {
	t.Parallel()
	both(t, 100, func(t *testing.T, make func() budget.Limiter) {
		l := make()
		l.Settle(t0, l.Counted(t0, budget.Hold{}), 0)
		if got := l.Level(t0); got != 100 {
			t.Errorf("level is %d after settling nothing, want 100", got)
		}
		l.Settle(t0, budget.Hold{}, 30)
		if got := l.Level(t0); got != 70 {
			t.Errorf("level is %d after an unannounced use of 30, want 70", got)
		}
	})
}

func TestSettlingAtTheSameInstantChangesExactlyTheDifference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ held, actual, left int64 }{
		{60, 60, 40},
		{60, 0, 100},
		{60, 10, 90},
		{60, 90, 10},
		{60, 130, -30},
		{60, -5, 100},
		{100, 100, 0},
	} {
		both(t, 100, func(t *testing.T, make func() budget.Limiter) {
			for _, counted := range []bool{false, true} {
				l := make()
				h := l.Take(t0, c.held)
				if got := l.Level(t0); got != 100-c.held {
					t.Errorf("level is %d while %d are held, want %d", got, c.held, 100-c.held)
				}
				if counted {
					h = l.Counted(t0, h)
					h = l.Counted(t0, h)
				}
				l.Settle(t0, h, c.actual)
				if got := l.Level(t0); got != c.left {
					t.Errorf("level is %d after %d held, %d used (counted: %v), want %d", got, c.held, c.actual, counted, c.left)
				}
			}
		})
	}
}

func TestALimitOfZeroLetsNothingPass(t *testing.T) {
	t.Parallel()
	limiters := map[string]budget.Limiter{
		"token":            newToken(t, budget.TokenBudgetConfig{}),
		"token with burst": newToken(t, budget.TokenBudgetConfig{Burst: 10}),
		"token set to 0":   newToken(t, budget.TokenBudgetConfig{Limit: 10}),
		"window":           newWindow(t, budget.WindowBudgetConfig{}),
		"window set to 0":  newWindow(t, budget.WindowBudgetConfig{Limit: 10}),
	}
	limiters["token set to 0"].SetLimit(t0, -7) // negative counts as 0
	limiters["window set to 0"].SetLimit(t0, 0)
	for name, l := range limiters {
		l.Scale(t0, 0.5)
		now := t0
		for range 3 {
			if ok, at := l.Fits(now, 1); ok || !at.IsZero() {
				t.Errorf("%s: Fits = %v, %v; want false, and no time that helps", name, ok, at)
			}
			if at, ok := l.Earliest(now, 1); ok {
				t.Errorf("%s: Earliest = %v, true; want never", name, at)
			}
			now = now.Add(time.Hour)
		}
		if l.Max() != 0 || l.Limit() != 0 || l.Level(now) != 0 {
			t.Errorf("%s: Max %d, Limit %d, Level %d; want 0", name, l.Max(), l.Limit(), l.Level(now))
		}
		l.SetLimit(now, 60)
		if l.Max() < 60 {
			t.Errorf("%s: Max is %d at a limit of 60", name, l.Max())
		}
		if !fits(l, now.Add(time.Minute), 1) {
			t.Errorf("%s: still closed a minute after it got a limit of 60", name)
		}
	}
}

func TestScaleKeepsTheLargestCostAdmissible(t *testing.T) {
	t.Parallel()
	both(t, 100, func(t *testing.T, make func() budget.Limiter) {
		for _, share := range []float64{0.999, 0.5, 0.01, 1e-12, 0, -1, math.NaN(), math.Inf(-1)} {
			l := make()
			l.Scale(t0, share)
			if got := l.Level(t0); got < 1 || got > 100 || share == 0.5 && got != 50 {
				t.Errorf("share %v: level is %d", share, got)
			}
			if l.Limit() != 100 || l.Max() < 100 {
				t.Errorf("share %v: Limit %d, Max %d; want them unchanged", share, l.Limit(), l.Max())
			}
			if !fits(l, t0, 100) {
				t.Errorf("share %v: the largest cost does not fit an unused limit", share)
			}
			l.Take(t0, 1)
			if fits(l, t0, 100) {
				t.Errorf("share %v: the largest cost fits beside another", share)
			}
			l.Scale(t0, 1)
			if l.Scale(t0, math.Inf(1)); l.Level(t0.Add(time.Hour)) < 99 {
				t.Errorf("share %v: level is %d an hour after the scale ended", share, l.Level(t0.Add(time.Hour)))
			}
		}
	})
}

func TestALimitSetBelowWhatIsUsedAdmitsNothingUntilEnoughHasPassed(t *testing.T) {
	t.Parallel()
	both(t, 100, func(t *testing.T, make func() budget.Limiter) {
		l := make()
		l.Settle(t0, l.Take(t0, 90), 90)
		l.SetLimit(t0, 30)
		if l.Limit() != 30 {
			t.Errorf("Limit is %d, want 30", l.Limit())
		}
		if got := l.Level(t0); got > 10 {
			t.Errorf("level is %d after 90 of 100 and a new limit of 30, want at most the 10 that were left", got)
		}
		ok, at := l.Fits(t0, 30)
		if ok || at.Before(t0.Add(20*time.Second)) {
			t.Errorf("30 fit (%v) at %v; want not before 20 of them are refilled", ok, at.Sub(t0))
		}
		if !fits(l, at, 30) || fits(l, at, 1) && l.Level(at) > 30 {
			t.Errorf("at that instant %d of 30 are left", l.Level(at))
		}
	})
}

// step is one operation on a limiter; a trace of them can be replayed, because
// [budget.Limiter] is a function of what it was asked.
type step struct {
	op   string
	at   time.Time
	hold int // index among the holds taken so far
	n    int64
}

func (s step) String() string {
	return fmt.Sprintf("%s(+%v, hold %d, %d)", s.op, s.at.Sub(t0), s.hold, s.n)
}

func replay(l budget.Limiter, trace []step) []budget.Hold {
	var holds []budget.Hold
	for _, s := range trace {
		switch s.op {
		case "take":
			holds = append(holds, l.Take(s.at, s.n))
		case "counted":
			holds[s.hold] = l.Counted(s.at, holds[s.hold])
		case "settle":
			l.Settle(s.at, holds[s.hold], s.n)
			holds[s.hold] = budget.Hold{}
		case "limit":
			l.SetLimit(s.at, s.n)
		case "scale":
			l.Scale(s.at, float64(s.n)/100)
		case "look":
			l.Level(s.at)
		}
	}
	return holds
}

// drawTrace draws operations on holds that are settled at most once. The second
// result is the instant of the last one, the third the holds that are open.
func drawTrace(t *rapid.T, limit int64) (trace []step, now time.Time, open []int) {
	now = t0
	holds := 0
	for range rapid.IntRange(0, 60).Draw(t, "steps") {
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause")))
		s := step{at: now}
		switch op := rapid.IntRange(0, 11).Draw(t, "op"); {
		case op < 5 || op < 9 && len(open) == 0:
			s.op, s.n, s.hold = "take", rapid.Int64Range(0, limit).Draw(t, "cost"), holds
			open = append(open, holds)
			holds++
		case op < 7:
			s.op, s.hold = "counted", rapid.SampledFrom(open).Draw(t, "hold")
		case op < 9:
			i := rapid.IntRange(0, len(open)-1).Draw(t, "hold")
			s.op, s.hold, s.n = "settle", open[i], rapid.Int64Range(0, limit+limit/4).Draw(t, "actual")
			open = append(open[:i], open[i+1:]...)
		case op == 9:
			s.op, s.n = "limit", rapid.Int64Range(limit/2, 2*limit).Draw(t, "limit")
		case op == 10:
			s.op, s.n = "scale", rapid.Int64Range(1, 100).Draw(t, "percent")
		default: // a lagging or stepping clock
			now = now.Add(-time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "back")))
			s.op, s.at = "look", now
		}
		trace = append(trace, s)
	}
	return trace, now, open
}

func eachLimiter(t *testing.T, check func(*rapid.T, func() budget.Limiter, int64)) {
	t.Helper()
	t.Run("TokenBudget", rapid.MakeCheck(func(t *rapid.T) {
		cfg := budget.TokenBudgetConfig{
			Limit:  rapid.Int64Range(1, 40_000).Draw(t, "limit"),
			Window: time.Duration(rapid.Int64Range(1, int64(2*time.Minute)).Draw(t, "window")),
		}
		cfg.Burst = rapid.Int64Range(0, 2*cfg.Limit).Draw(t, "burst")
		check(t, func() budget.Limiter { return newToken(t, cfg) }, cfg.Limit)
	}))
	t.Run("WindowBudget", rapid.MakeCheck(func(t *rapid.T) {
		cfg := budget.WindowBudgetConfig{
			Limit:  rapid.Int64Range(1, 40_000).Draw(t, "limit"),
			Window: time.Duration(rapid.Int64Range(1, int64(2*time.Minute)).Draw(t, "window")),
		}
		cfg.Cell = time.Duration(rapid.Int64Range(int64(cfg.Window+99)/100, int64(cfg.Window)).Draw(t, "cell"))
		check(t, func() budget.Limiter { return newWindow(t, cfg) }, cfg.Limit)
	}))
}

func TestAtIsTheFirstNanosecondAtWhichItFits(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *rapid.T, make func() budget.Limiter, limit int64) {
		trace, now, _ := drawTrace(t, limit)
		cost := rapid.Int64Range(1, limit).Draw(t, "cost")
		at := func(instant time.Time) (bool, time.Time) {
			l := make()
			replay(l, trace)
			return l.Fits(instant, cost)
		}
		ok, first := at(now)
		switch {
		case ok:
			if !first.IsZero() {
				t.Fatalf("it fits now, and at %v", first)
			}
		case first.IsZero():
			for _, d := range []time.Duration{time.Second, time.Hour, 1000 * time.Hour} {
				if ok, _ := at(now.Add(d)); ok {
					t.Fatalf("time alone was not to help, but %v did\n%v", d, trace)
				}
			}
		default:
			if !first.After(now) {
				t.Fatalf("it will fit at %v, which is not after now (%v)", first, now)
			}
			if ok, _ := at(first.Add(-1)); ok {
				t.Fatalf("fits 1 ns before %v\n%v", first, trace)
			}
			if ok, again := at(first); !ok && steppedBack(trace) {
				// The clock came past the instant from which it was stepped back.
				l := make()
				replay(l, trace)
				l.Fits(first, cost)
				if ok, third := l.Fits(again, cost); !ok {
					t.Fatalf("does not fit at %v, nor at %v, only at %v\n%v", first, again, third, trace)
				}
			} else if !ok {
				t.Fatalf("does not fit at %v as promised, but at %v\n%v", first, again, trace)
			}
		}
	})
}

func steppedBack(trace []step) bool {
	return slices.ContainsFunc(trace, func(s step) bool { return s.op == "look" })
}

func TestEarliestIsNeverAfterARealAdmission(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *rapid.T, make func() budget.Limiter, limit int64) {
		trace, now, open := drawTrace(t, limit)
		l := make()
		holds := replay(l, trace)
		cost := rapid.Int64Range(1, 3*limit).Draw(t, "cost")
		earliest, ok := l.Earliest(now, cost)
		if possible := cost <= l.Max(); ok != possible {
			t.Fatalf("Earliest says %v for %d of at most %d", ok, cost, l.Max())
		}
		if !ok {
			return
		}
		if earliest.Before(now) {
			t.Fatalf("Earliest is %v, before now (%v)", earliest, now)
		}
		// Whatever the open holds turn out to use, and whenever: it is not
		// admitted before.
		for len(open) > 0 && rapid.Bool().Draw(t, "settle another") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause")))
			l.Settle(now, holds[open[0]], rapid.Int64Range(0, holds[open[0]].Cost()).Draw(t, "actual"))
			open = open[1:]
			if fits(l, now, cost) && now.Before(earliest) {
				t.Fatalf("fits at %v, Earliest said %v\n%v", now, earliest, trace)
			}
		}
		if ok, at := l.Fits(now, cost); !ok && !at.IsZero() && at.Before(earliest) {
			t.Fatalf("will fit at %v, Earliest said %v\n%v", at, earliest, trace)
		}
	})
}

func TestEarliestIsReachedIfAllIsRefundedAtOnce(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *rapid.T, make func() budget.Limiter, limit int64) {
		// Without pauses no refill can have been in vain, so the bound is met.
		l := make()
		var holds []budget.Hold
		for range rapid.IntRange(0, 10).Draw(t, "calls") {
			h := l.Take(t0, rapid.Int64Range(0, limit).Draw(t, "cost"))
			if rapid.Bool().Draw(t, "settled") {
				l.Settle(t0, h, rapid.Int64Range(0, limit).Draw(t, "actual"))
			} else {
				holds = append(holds, l.Counted(t0, h))
			}
		}
		cost := rapid.Int64Range(1, limit).Draw(t, "cost")
		earliest, _ := l.Earliest(t0, cost)
		for _, h := range holds {
			l.Settle(t0, h, 0)
		}
		if ok, at := l.Fits(t0, cost); ok != earliest.Equal(t0) || !ok && !at.Equal(earliest) {
			t.Fatalf("fits now: %v, or at %v; Earliest said %v", ok, at, earliest)
		}
	})
}
