package share

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ledger is a mirror written down once more: a list of what was booked, from which
// every level is computed anew, from the beginning.
type ledger struct {
	dim     Dim
	start   int64
	entries []booking
}

// booking takes effect at a time.
type booking struct{ at, amount int64 }

// level goes through time from one booking to the next.
func (l *ledger) level(now int64) float64 {
	if l.dim.Shape == Window {
		left := float64(l.dim.Limit)
		cell, n := l.dim.Cell.Microseconds(), int64((l.dim.Window-1)/l.dim.Cell)+2
		for _, e := range l.entries {
			if e.at/cell > now/cell-n {
				left -= float64(e.amount)
			}
		}
		return left
	}
	list := append([]booking(nil), l.entries...)
	slices.SortFunc(list, func(a, b booking) int { // spends of one instant first
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.amount, a.amount))
	})
	level, at := float64(l.dim.Burst), l.start
	to := func(t int64) {
		level = min(float64(l.dim.Burst), level+float64(l.dim.Limit)*float64(t-at)/float64(l.dim.Window.Microseconds()))
		at = t
	}
	for _, e := range list {
		to(max(min(e.at, now), at))
		level = min(float64(l.dim.Burst), level-float64(e.amount))
	}
	to(now)
	return min(float64(l.dim.Burst), level)
}

// A mirror's level is what a replay of all bookings says, each dated by the safe
// end of its cell, as long as they are told within the ring.
func TestALevelIsWhatAReplayOfEverythingSays(t *testing.T) {
	t.Parallel()
	for _, d := range []Dim{
		{Shape: Bucket, Limit: 600, Burst: 100, Window: time.Minute, Cell: time.Second},
		{Shape: Bucket, Limit: 7, Burst: 7, Window: time.Minute, Cell: 3 * time.Second},
		{Shape: Window, Limit: 500, Window: 20 * time.Second, Cell: time.Second},
		{Shape: Window, Limit: 500, Window: 20 * time.Second, Cell: 3 * time.Second}, // which does not divide it
	} {
		t.Run(d.Shape.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				const start = int64(1e12)
				cell := d.Cell.Microseconds()
				m := newMirror(d, start)
				l := &ledger{dim: d, start: start}
				now := start
				for range rapid.IntRange(1, 120).Draw(t, "steps") {
					now += rapid.Int64Range(0, 3e6).Draw(t, "later")
					m.advance(now)
					amount := rapid.Int64Range(1, 60).Draw(t, "amount")
					at := max(now-rapid.Int64Range(0, 15e6).Draw(t, "age"), start)
					switch rapid.IntRange(0, 3).Draw(t, "what") {
					case 0:
						m.refund(at, amount)
						if d.Shape == Window {
							l.entries = append(l.entries, booking{at, -amount})
						} else if at/cell*cell > start {
							l.entries = append(l.entries, booking{at / cell * cell, -amount})
						}
					default:
						m.spend(at, amount)
						if d.Shape == Window {
							l.entries = append(l.entries, booking{at, amount})
						} else {
							l.entries = append(l.entries, booking{(at/cell + 1) * cell, amount})
						}
					}
					if got, want := m.level(), l.level(now); math.Abs(got-want) > 1e-6 {
						t.Fatalf("the level is %v, want %v", got, want)
					}
				}
			})
		})
	}
}

// wait names the first instant at which the level has risen so far.
func TestAWaitIsNeitherTooShortNorTooLong(t *testing.T) {
	t.Parallel()
	for _, d := range []Dim{
		{Shape: Bucket, Limit: 600, Burst: 100, Window: time.Minute, Cell: time.Second},
		{Shape: Bucket, Limit: 7, Burst: 5, Window: time.Minute, Cell: 3 * time.Second},
		{Shape: Window, Limit: 500, Window: 20 * time.Second, Cell: 3 * time.Second},
	} {
		t.Run(d.Shape.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				now := int64(1e12)
				m := newMirror(d, now)
				for range rapid.IntRange(0, 30).Draw(t, "spends") {
					now += rapid.Int64Range(0, 2e6).Draw(t, "later")
					m.advance(now)
					m.spend(now-rapid.Int64Range(0, 5e6).Draw(t, "age"), rapid.Int64Range(1, 80).Draw(t, "amount"))
				}
				need := float64(rapid.Int64Range(1, int64(m.capacity())+20).Draw(t, "need"))
				wait, ok := m.wait(need)
				if never := need > m.capacity(); ok == never {
					t.Fatalf("%v of at most %v can be had: %v", need, m.capacity(), ok)
				}
				if !ok || wait == 0 {
					if ok && m.level()+slack < need {
						t.Fatalf("%v is to be had at once, but the level is %v", need, m.level())
					}
					return
				}
				before := *m
				before.ring = slices.Clone(m.ring)
				if before.advance(now + wait - 2); before.level() >= need {
					t.Fatalf("%v could be had 2 µs before the wait of %d is over", need, wait)
				}
				if m.advance(now + wait); m.level()+slack < need {
					t.Fatalf("after the wait of %d the level is %v, want %v", wait, m.level(), need)
				}
			})
		})
	}
}

// What is told too late for the ring is not forgotten by a bucket, and can only make it
// poorer than the truth.
func TestABucketPaysForWhatIsToldVeryLate(t *testing.T) {
	t.Parallel()
	d := Dim{Shape: Bucket, Limit: 60, Burst: 600, Window: time.Minute, Cell: time.Second}
	const second = int64(1e6)
	m := newMirror(d, 0)
	m.advance(100 * second)
	m.spend(10*second, 500)
	if got := m.level(); got != 160 { // as if spent at the beginning of the ring, a minute ago
		t.Errorf("the level is %v, want 160", got)
	}
	m.refund(10*second, 400)
	if got := m.level(); got != 160 {
		t.Errorf("after a refund of what has left the ring the level is %v, want 160", got)
	}
}

func TestAChangeOfLimitsKeepsTheLevel(t *testing.T) {
	t.Parallel()
	d := Dim{Shape: Bucket, Limit: 60, Burst: 60, Window: time.Minute, Cell: time.Second}
	const second = int64(1e6)
	m := newMirror(d, 0)
	m.spend(0, 50)
	m.advance(10 * second)
	m.set(120, 120)
	if got := m.level(); math.Abs(got-19) > 1e-9 { // the spend is dated by the end of its cell
		t.Errorf("after the limit was raised the level is %v, want 19", got)
	}
	m.advance(20 * second)
	if got := m.level(); math.Abs(got-39) > 1e-9 {
		t.Errorf("ten seconds later the level is %v, want 39", got)
	}
	m.set(30, 30)
	if got := m.level(); got != 30 {
		t.Errorf("after the limit was lowered the level is %v, want all there is, 30", got)
	}
}

func TestLowerNeverRaises(t *testing.T) {
	t.Parallel()
	const second = int64(1e6)
	w := newMirror(Dim{Shape: Window, Limit: 100, Window: time.Minute, Cell: time.Second}, 0)
	w.advance(300 * second)
	w.spend(300*second, 30)
	for _, c := range []struct{ left, want float64 }{{90, 70}, {70, 70}, {20, 20}, {50, 20}} {
		if w.lower(c.left, 30*second); w.level() != c.want {
			t.Errorf("after %v are said to be left the level is %v, want %v", c.left, w.level(), c.want)
		}
	}
	w.advance(332 * second)
	if got := w.level(); got != 70 {
		t.Errorf("after the reset the level is %v, want 70", got)
	}
}

// Whatever a store's clock does, time never runs backwards, and a step and its
// undoing make no time out of nothing.
func TestAClockMakesNoTimeOutOfNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c clock
		truth, step := int64(1e12), int64(0)
		start := truth
		last := c.read(truth)
		for range rapid.IntRange(1, 60).Draw(t, "readings") {
			truth += rapid.Int64Range(0, 5e6).Draw(t, "later")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				if step == 0 {
					step = -rapid.Int64Range(0, 3600e6).Draw(t, "back")
				}
			case 1:
				step = 0
			}
			r := c.read(truth + step)
			if r < last {
				t.Fatalf("time ran back by %d", last-r)
			}
			if r > truth {
				t.Fatalf("%d have passed, the clock says %d", truth-start, r-start)
			}
			last = r
		}
	})
}

// A lasting step is followed: time goes on.
func TestAClockThatWasSetBackGoesOn(t *testing.T) {
	t.Parallel()
	var c clock
	c.read(1e12)
	c.read(1e12 + 5e6)
	back := int64(1e12 - 3600e6)
	c.read(back)
	if got := c.read(back + 7e6); got != 1e12+12e6 {
		t.Errorf("seven seconds after the step the clock says %d, want %d", got-1e12, int64(12e6))
	}
}
