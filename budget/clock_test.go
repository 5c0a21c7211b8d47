package budget

import (
	"testing"
	"time"
)

func TestTheClockCountsTimeOnceAndNeverBackwards(t *testing.T) {
	t.Parallel()
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		readings []time.Duration // after the start
		want     []time.Duration // counted at each
	}{
		{"the first reading is the start",
			[]time.Duration{time.Hour, time.Hour, time.Hour + 1}, []time.Duration{0, 0, 1}},
		{"a lag within the inversion stands still",
			[]time.Duration{0, 5 * time.Second, 4 * time.Second, 4500 * time.Millisecond, 5 * time.Second, 5*time.Second + 1},
			[]time.Duration{0, 5 * time.Second, 0, 0, 0, 1}},
		{"a longer step back goes on at once",
			[]time.Duration{0, -time.Second - 1, -time.Second, 0},
			[]time.Duration{0, 0, 0, 0}}, // here it comes to the peak at once
		{"an hour back goes on at once",
			[]time.Duration{0, -time.Hour, -time.Hour + 1, -30 * time.Minute, -time.Second - 1},
			[]time.Duration{0, 0, 1, 30*time.Minute - 1, 30*time.Minute - time.Second - 1}},
		{"and loses the inversion where it comes past the peak",
			[]time.Duration{0, -time.Hour, -time.Second - 1, -time.Second, -time.Second / 2, 0, 1, time.Hour},
			[]time.Duration{0, 0, time.Hour - time.Second - 1, 0, 0, 0, 1, time.Hour - 1}},
		{"or at most the length of the step if nobody asked",
			[]time.Duration{0, -time.Hour, -time.Minute, 3 * time.Hour, 3*time.Hour + 1},
			[]time.Duration{0, 0, 59 * time.Minute, 2*time.Hour + time.Minute, 1}},
		{"the way back to the peak counts as nothing",
			[]time.Duration{0, -time.Hour, -time.Hour + 10, 10, 30},
			[]time.Duration{0, 0, 10, 0, 20}},
		{"what was counted since the step is not counted again",
			[]time.Duration{0, -time.Hour, -time.Hour + 10, 15, -time.Hour, -time.Hour + 10, 5, 6},
			[]time.Duration{0, 0, 10, 5, 0, 10, 0, 0}},
		{"nor is it from two steps below",
			[]time.Duration{0, -time.Hour, -time.Hour + 1, -3 * time.Hour, -3*time.Hour + 5, 7, 8},
			[]time.Duration{0, 0, 1, 0, 5, 1, 1}},
		{"one lagging caller makes no time and takes none",
			[]time.Duration{0, -2 * time.Second, 0, -2 * time.Second, 0, -2 * time.Second, 1, 2},
			[]time.Duration{0, 0, 0, 0, 0, 0, 1, 1}},
		{"a lag on the way up stands still",
			[]time.Duration{0, -time.Hour, -time.Hour + 10*time.Second, -time.Hour + 9*time.Second, -time.Hour + 11*time.Second},
			[]time.Duration{0, 0, 10 * time.Second, 0, time.Second}},
		{"a step back after the peak is passed is a new one",
			[]time.Duration{0, -time.Hour, 0, -time.Hour, -time.Hour + 1, 0, 1},
			[]time.Duration{0, 0, 0, 0, 1, 0, 1}},
		{"the longest step there is",
			[]time.Duration{0, 1<<63 - 1, 1<<63 - 1},
			[]time.Duration{0, 1<<63 - 1, 0}},
	} {
		for kind, start := range map[string]time.Time{
			"wall clock": wall,
			"monotonic":  time.Now(),
			"year 1":     {}, // the zero time is an instant like others
		} {
			var clock clock
			for i, at := range c.readings {
				if got := time.Duration(clock.elapsed(start.Add(at))); got != c.want[i] {
					t.Errorf("%s, %s: reading %d (%v) counts %v, want %v", c.name, kind, i, at, got, c.want[i])
				}
			}
		}
	}
}

func TestTheClockNeverComesToAStop(t *testing.T) {
	t.Parallel()
	var clock clock
	now := time.Time{}
	clock.elapsed(now)
	for range 50 { // 100 years at a time, far beyond what 64 bits of nanoseconds hold
		then := now.AddDate(100, 0, 0)
		if got := time.Duration(clock.elapsed(then)); got != then.Sub(now) {
			t.Fatalf("%v to %v counts %v, want %v", now, then, got, then.Sub(now))
		}
		now = then.Add(1)
		if got := clock.elapsed(now); got != 1 {
			t.Fatalf("a nanosecond after %v counts %d", then, got)
		}
	}
	clock.elapsed(time.Time{}) // back by 5,000 years
	if got := clock.elapsed(time.Time{}.Add(time.Minute)); got != int64(time.Minute) {
		t.Errorf("a minute after a step back by 5,000 years counts %v", time.Duration(got))
	}
}

// At the limiters: whatever the clock does, a unit that was there is still
// there, no unit is made, and time goes on.
func TestClockStepsBackwardsMakeNoRoomAndDoNotStopTime(t *testing.T) {
	t.Parallel()
	steps := []time.Duration{
		time.Nanosecond, time.Millisecond, time.Second, time.Second + 1, 90 * time.Second,
		time.Hour, 1000 * time.Hour, 100 * 365 * 24 * time.Hour,
	}
	starts := map[string]time.Time{
		"wall clock": time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		"monotonic":  time.Now(),
		"year 1":     {},
	}
	limiters := map[string]func() Limiter{
		"TokenBudget": func() Limiter {
			b, err := NewTokenBudget(TokenBudgetConfig{Limit: 60})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		"WindowBudget": func() Limiter {
			w, err := NewWindowBudget(WindowBudgetConfig{Limit: 60, Cell: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return w
		},
	}
	// The slower limiter, and what a step may cost: the inversion and the second
	// between two questions.
	const patience = 61*time.Second + inversion + time.Second
	for name, make := range limiters {
		for kind, now := range starts {
			for _, back := range steps {
				l := make()
				h := l.Counted(now, l.Take(now, 60))
				for range 100 { // a clock that jumps to and fro
					if got := l.Level(now.Add(-back)); got != 0 {
						t.Fatalf("%s, %s: a step back by %v made room for %d", name, kind, back, got)
					}
					if got := l.Level(now); got != 0 {
						t.Fatalf("%s, %s: the way back from a step by %v made room for %d", name, kind, back, got)
					}
				}
				low := now.Add(-back) // a lasting step
				if ok, at := l.Fits(low, 60); ok || at.Sub(low) > patience {
					t.Errorf("%s, %s: after a step back by %v the next limit fits (%v) after %v", name, kind, back, ok, at.Sub(low))
				}
				l.Settle(low, h, 60)
				for s := time.Duration(0); s <= patience; s += time.Second {
					if got := l.Level(low.Add(s)); got > int64(s/time.Second) && s < time.Minute {
						t.Fatalf("%s, %s: %v after a step back by %v there is room for %d", name, kind, s, back, got)
					}
				}
				if got := l.Level(low.Add(patience)); got != 60 {
					t.Errorf("%s, %s: level is %d %v after a step back by %v, want 60", name, kind, got, patience, back)
				}
			}
		}
	}
}
