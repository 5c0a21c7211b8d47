package budget_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
)

func TestThirtyThousandAMinuteIsHalfATokenAMillisecond(t *testing.T) {
	t.Parallel()
	b := newToken(t, budget.TokenBudgetConfig{Limit: 30_000})
	b.Take(t0, 30_000)
	for ms := range int64(60_000) {
		if got := b.Level(t0.Add(time.Duration(ms) * time.Millisecond)); got != ms/2 {
			t.Fatalf("level is %d after %d ms, want %d", got, ms, ms/2)
		}
	}
	for _, c := range []struct {
		cost int64
		wait time.Duration
	}{{1, 2 * time.Millisecond}, {2, 4 * time.Millisecond}, {7, 14 * time.Millisecond}, {30_000, time.Minute}} {
		b := newToken(t, budget.TokenBudgetConfig{Limit: 30_000})
		b.Take(t0, 30_000)
		if ok, at := b.Fits(t0, c.cost); ok || at.Sub(t0) != c.wait {
			t.Errorf("%d tokens fit (%v) after %v, want after %v", c.cost, ok, at.Sub(t0), c.wait)
		}
	}
}

func TestABucketBurstsToItsCapacityAndThenRefills(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg      budget.TokenBudgetConfig
		capacity int64
		perUnit  time.Duration // rounded up
	}{
		{budget.TokenBudgetConfig{Limit: 60}, 60, time.Second},
		{budget.TokenBudgetConfig{Limit: 60, Burst: 1}, 1, time.Second},
		{budget.TokenBudgetConfig{Limit: 60, Burst: 1000}, 1000, time.Second},
		{budget.TokenBudgetConfig{Limit: 7}, 7, 8_571_428_572},
		{budget.TokenBudgetConfig{Limit: 3, Window: time.Second}, 3, 333_333_334},
		{budget.TokenBudgetConfig{Limit: 1, Window: 1}, 1, 1},
		{budget.TokenBudgetConfig{Limit: 1, Window: math.MaxInt64}, 1, math.MaxInt64},
	} {
		b := newToken(t, c.cfg)
		if got := b.Level(t0.Add(-time.Hour)); got != c.capacity {
			t.Errorf("%+v: level is %d when new, want %d", c.cfg, got, c.capacity)
		}
		if got := b.Level(t0); got != c.capacity {
			t.Errorf("%+v: level is %d after an hour of silence, want %d", c.cfg, got, c.capacity)
		}
		if !fits(b, t0, c.capacity) {
			t.Errorf("%+v: the capacity does not fit", c.cfg)
		}
		b.Take(t0, c.capacity)
		if ok, at := b.Fits(t0, 1); ok || at.Sub(t0) != c.perUnit {
			t.Errorf("%+v: the next unit fits (%v) after %v, want after %v", c.cfg, ok, at.Sub(t0), c.perUnit)
		}
	}
}

// A year of refills at odd instants, against math/big: what is there is what was
// refilled less what was taken, to the unit.
func TestAYearOfRefillsDoesNotDrift(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		limit, burst int64
		window, step time.Duration // burst is more than what a step refills: never a full bucket
	}{
		{30_000, 30_000_000, time.Minute, 9 * time.Hour},
		{30_000, 30_000, time.Hour, 59 * time.Minute},
		{7, 7_000, time.Minute, 11 * time.Hour},
		{999_983, 999_983_000, time.Minute, 13 * time.Hour}, // a prime
		{1_000_003, 2_000_003, 59*time.Minute + 7, 59 * time.Minute},
		{math.MaxInt64, math.MaxInt64, time.Hour, 50 * time.Minute},
		{1, 1000, 97 * time.Minute, 31 * time.Hour},
	} {
		b := newToken(t, budget.TokenBudgetConfig{Limit: c.limit, Burst: c.burst, Window: c.window})
		b.Take(t0, c.burst)
		limit, window, taken := big.NewInt(c.limit), big.NewInt(int64(c.window)), new(big.Int)
		var elapsed time.Duration
		for i := time.Duration(1); elapsed < year; i++ {
			elapsed += c.step - i%1_000_003
			now := t0.Add(elapsed)
			want := new(big.Int).Mul(limit, big.NewInt(int64(elapsed)))
			want.Div(want, window).Sub(want, taken) // limit·elapsed/window − taken
			got := b.Level(now)
			if want.Cmp(big.NewInt(got)) != 0 {
				t.Fatalf("%+v: level is %d after %v, want %v", c, got, elapsed, want)
			}
			b.Settle(now, b.Take(now, got), got)
			taken.Add(taken, big.NewInt(got))
		}
	}
}

func TestNothingOverflowsAtMaxInt64(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	b := newToken(t, budget.TokenBudgetConfig{Limit: most, Burst: most})
	if b.Level(t0) != most || !fits(b, t0, most) {
		t.Fatalf("level is %d, want all of it", b.Level(t0))
	}
	h := b.Take(t0, most)
	if ok, at := b.Fits(t0, most); ok || at.Sub(t0) != time.Minute {
		t.Errorf("the limit fits again (%v) after %v, want after a minute", ok, at.Sub(t0))
	}
	if got := b.Level(t0.Add(30 * time.Second)); got != most/2 {
		t.Errorf("level is %d after half a minute, want %d", got, int64(most/2))
	}
	if got := b.Level(t0.AddDate(200, 0, 0)); got != most {
		t.Errorf("level is %d after 200 years, want %d", got, int64(most))
	}
	b.Settle(t0.AddDate(300, 0, 0), h, 0)
	if got := b.Level(t0.AddDate(600, 0, 0)); got != most {
		t.Errorf("level is %d after 600 years, want %d", got, int64(most))
	}
}

func TestHugeCostsAndOverrunsSaturateAndRefundsStayWithinThem(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	b := newToken(t, budget.TokenBudgetConfig{Limit: 1000})
	var holds []budget.Hold
	for range 5 {
		holds = append(holds, b.Take(t0, most))
	}
	if got := b.Level(t0); got > -most+1000 {
		t.Fatalf("level is %d after five costs of MaxInt64", got)
	}
	ok, at := b.Fits(t0, 1)
	if ok || at.Sub(t0) < 200*365*24*time.Hour {
		t.Errorf("1 fits (%v) after %v", ok, at.Sub(t0))
	}
	for i, h := range holds {
		b.Settle(t0, h, most) // one of them beyond what could be held
		if got := b.Level(t0); got > -most+1000 {
			t.Fatalf("level is %d after settling hold %d in full", got, i)
		}
	}
	b.Settle(t0, b.Take(t0, most), most)
	if got := b.Level(t0); got != math.MinInt64 {
		t.Errorf("level is %d, want the least there is", got)
	}

	b = newToken(t, budget.TokenBudgetConfig{Limit: 1000})
	holds = holds[:0]
	for range 5 {
		holds = append(holds, b.Take(t0, most))
	}
	for _, h := range holds {
		b.Settle(t0, h, 0)
	}
	if got := b.Level(t0); got != 1000 {
		t.Errorf("level is %d after all was refunded, want 1000", got)
	}
}

func TestDebtIsRepaidBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	b := newToken(t, budget.TokenBudgetConfig{Limit: 60})
	b.Settle(t0, b.Take(t0, 60), 90) // 30 more than held, 30 s of refill
	for s := range 31 {
		now := t0.Add(time.Duration(s) * time.Second)
		ok, at := b.Fits(now, 1)
		if ok || !at.Equal(t0.Add(31*time.Second)) {
			t.Fatalf("1 fits (%v) at +%v with a level of %d, want at +31s", ok, at.Sub(t0), b.Level(now))
		}
	}
	if !fits(b, t0.Add(31*time.Second), 1) {
		t.Error("does not fit when the debt is repaid")
	}
}

func TestACostAboveTheCapacityWaitsForAFullBucketAndGoesIntoDebt(t *testing.T) {
	t.Parallel()
	b := newToken(t, budget.TokenBudgetConfig{Limit: 60, Burst: 20})
	if b.Max() != math.MaxInt64 {
		t.Errorf("Max is %d, want any", b.Max())
	}
	b.Take(t0, 1)
	for _, cost := range []int64{20, 21, 1000, math.MaxInt64} {
		if ok, at := b.Fits(t0, cost); ok || at.Sub(t0) != time.Second {
			t.Errorf("%d fits (%v) after %v, want when the bucket is full, after 1s", cost, ok, at.Sub(t0))
		}
		if at, ok := b.Earliest(t0, cost); !ok || !at.Equal(t0) {
			t.Errorf("Earliest(%d) is +%v, %v; want now, because the hold may be refunded", cost, at.Sub(t0), ok)
		}
	}
	full := t0.Add(time.Second)
	if !fits(b, full, 100) {
		t.Fatal("does not fit a full bucket")
	}
	b.Take(full, 100)
	if got := b.Level(full); got != -80 {
		t.Errorf("level is %d, want −80", got)
	}
	if ok, at := b.Fits(full, 1); ok || at.Sub(full) != 81*time.Second {
		t.Errorf("1 fits (%v) after %v, want after the debt, in 81s", ok, at.Sub(full))
	}
}

func TestACapacityFollowsItsLimitInProportionAndComesBack(t *testing.T) {
	t.Parallel()
	b := newToken(t, budget.TokenBudgetConfig{Limit: 100, Burst: 10})
	now := t0
	for _, c := range []struct{ limit, capacity int64 }{
		{200, 20},
		{3, 1}, // a limit above 0 always has room for something
		{55, 5},
		{math.MaxInt64, math.MaxInt64 / 10},
		{1, 1},
		{0, 0},
		{100, 10}, // nothing was lost on the way
	} {
		b.SetLimit(now, c.limit)
		now = now.Add(1000 * time.Hour)
		if got := b.Level(now); got != c.capacity || b.Limit() != c.limit {
			t.Errorf("limit %d: capacity %d, limit %d; want %d, %d", c.limit, got, b.Limit(), c.capacity, c.limit)
		}
	}
	closed := newToken(t, budget.TokenBudgetConfig{Burst: 5})
	closed.SetLimit(t0, 100)
	if got := closed.Level(t0); got != 0 {
		t.Errorf("level is %d at once after a limit of 0, want 0", got)
	}
	if got := closed.Level(t0.Add(time.Hour)); got != 5 {
		t.Errorf("capacity is %d, want the configured 5", got)
	}
}

func TestANewLimitOrScaleNeverLiftsTheLevel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 1000).Draw(t, "limit")
		b := newToken(t, budget.TokenBudgetConfig{Limit: limit, Burst: rapid.Int64Range(0, 1000).Draw(t, "burst")})
		trace, now, _ := drawTrace(t, limit)
		replay(b, trace)
		before := b.Level(now)
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			if rapid.Bool().Draw(t, "scale") {
				b.Scale(now, rapid.Float64Range(0, 1).Draw(t, "share"))
			} else {
				b.SetLimit(now, rapid.Int64().Draw(t, "limit"))
			}
		}
		if after := b.Level(now); after > before {
			t.Fatalf("level rose from %d to %d", before, after)
		}
	})
}

func TestTheLevelIsTheSameHoweverOftenItIsAskedFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := budget.TokenBudgetConfig{
			Limit:  rapid.Int64Range(1, math.MaxInt64).Draw(t, "limit"),
			Window: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "window")),
		}
		often, once := newToken(t, cfg), newToken(t, cfg)
		cost := rapid.Int64().Draw(t, "cost")
		often.Take(t0, cost)
		once.Take(t0, cost)
		now := t0
		for range rapid.IntRange(1, 30).Draw(t, "questions") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause")))
			often.Level(now)
		}
		if a, b := often.Level(now), once.Level(now); a != b {
			t.Fatalf("%d when asked often, %d when asked once", a, b)
		}
	})
}
