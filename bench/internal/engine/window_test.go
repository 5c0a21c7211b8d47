package engine

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// trace is a run of calls with non-decreasing instants.
type trace []use

func drawTrace(t *rapid.T, most int64, length time.Duration) trace {
	var tr trace
	at := time.Duration(0)
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		// Steps cluster at zero, at one and around the length, where the edges are.
		at += rapid.OneOf(
			rapid.Just(time.Duration(0)), rapid.Just(time.Duration(1)),
			rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.Int64Range(0, int64(length)/4+1).Draw(t, "short"))
			}),
			rapid.Custom(func(t *rapid.T) time.Duration {
				return max(0, length+time.Duration(rapid.Int64Range(-2, 2).Draw(t, "edge")))
			}),
		).Draw(t, "step")
		tr = append(tr, use{at, rapid.Int64Range(0, most).Draw(t, "amount")})
	}
	return tr
}

// within adds up what was counted in [from, to).
func (tr trace) within(from, to time.Duration) (sum int64) {
	for _, u := range tr {
		if u.at >= from && u.at < to {
			sum += u.amount
		}
	}
	return sum
}

func TestNoSlidingWindowHoldsMoreThanTheLimitWhereverItStarts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		w := &sliding{limit: limit, length: length}
		var admitted trace
		for _, u := range drawTrace(t, limit+2, length) {
			// The definition: every window that holds this instant has room.
			want := u.amount <= limit && admitted.within(u.at-length+1, u.at+1)+u.amount <= limit
			if got := w.fits(u.at, u.amount) == u.at; got != want {
				t.Fatalf("fits(%d, %d) = %v, want %v; admitted %v", u.at, u.amount, got, want, admitted)
			}
			if want {
				w.count(u.at, u.amount)
				admitted = append(admitted, u)
			}
		}
		for _, u := range admitted {
			if sum := admitted.within(u.at, u.at+length); sum > limit {
				t.Fatalf("window [%d, %d) holds %d, limit %d", u.at, u.at+length, sum, limit)
			}
		}
	})
}

func TestFixedWindowsStartFromZeroAtTheirBorders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		offset := time.Duration(rapid.Int64Range(0, 3000).Draw(t, "offset"))
		w := &fixed{limit: limit, bounds: fixedBounds(length, offset)}
		var admitted trace
		for _, u := range drawTrace(t, limit+2, length) {
			start := offset - 3001*length // the last border not after u.at, found by walking
			for start+length <= u.at {
				start += length
			}
			want := admitted.within(start, start+length)+u.amount <= limit
			if got := w.fits(u.at, u.amount) == u.at; got != want {
				t.Fatalf("fits(%d, %d) = %v, want %v; window starts at %d", u.at, u.amount, got, want, start)
			}
			if want {
				w.count(u.at, u.amount)
				admitted = append(admitted, u)
			}
		}
	})
}

func TestABucketNeverGivesMoreThanItsCapacityAndItsRefill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		w := &bucket{limit: limit, length: length, level: limit}
		var admitted trace
		for _, u := range drawTrace(t, limit+2, length) {
			// Over every stretch that ends now, use ≤ limit + stretch·limit/length,
			// with all of it multiplied by length to stay in whole numbers.
			want := u.amount <= limit
			for _, from := range append(admitted, u) {
				use := admitted.within(from.at, u.at+1) + u.amount
				if (use-limit)*int64(length) > int64(u.at-from.at)*limit {
					want = false
				}
			}
			if got := w.fits(u.at, u.amount) == u.at; got != want {
				t.Fatalf("fits(%d, %d) = %v, want %v; level %d; admitted %v", u.at, u.amount, got, want, w.level, admitted)
			}
			if want {
				w.count(u.at, u.amount)
				admitted = append(admitted, u)
			}
		}
	})
}

func TestACallFitsAtTheInstantThatWasPromisedAndNotBefore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		windows := map[string]window{
			"sliding": &sliding{limit: limit, length: length},
			"fixed":   &fixed{limit: limit, bounds: fixedBounds(length, length/3)},
			"bucket":  &bucket{limit: limit, length: length, level: limit},
		}
		name := rapid.SampledFrom([]string{"sliding", "fixed", "bucket"}).Draw(t, "window")
		w := windows[name]
		tr := drawTrace(t, limit, length)
		for _, u := range tr {
			w.count(u.at, u.amount) // beyond the limit, too, as with counting at completion
		}
		now := tr[len(tr)-1].at
		amount := rapid.Int64Range(1, limit+1).Draw(t, "amount")
		at := w.fits(now, amount)
		if amount > limit {
			if at != never {
				t.Fatalf("%s: %d above the limit %d fits at %d, want never", name, amount, limit, at)
			}
			return
		}
		if at < now {
			t.Fatalf("%s: fits at %d, before now %d", name, at, now)
		}
		if at > now {
			if early := w.fits(at-1, amount); early != at {
				t.Fatalf("%s: fits(%d) = %d one before the promised instant, want %d again", name, at-1, early, at)
			}
		}
		if got := w.fits(at, amount); got != at {
			t.Fatalf("%s: does not fit at the promised instant %d, but at %d", name, at, got)
		}
	})
}

func TestThePeakIsTheLargestUseOfAnyWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		tr := drawTrace(t, 100, length)
		p := &slidingPeak{length: length}
		for _, u := range tr {
			p.add(u.at, u.amount)
		}
		// Some largest window begins at a call: try each. (The measure under
		// test looks at windows that end at calls.)
		var want int64
		for _, u := range tr {
			want = max(want, tr.within(u.at, u.at+length))
		}
		if p.largest() != want {
			t.Fatalf("largest = %d, want %d; length %d, trace %v", p.largest(), want, length, tr)
		}
	})
}

func TestThePeakOfPeriodsIsTheLargestPeriod(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		tr := drawTrace(t, 100, length)
		p := &periodPeak{bounds: fixedBounds(length, 0)}
		for _, u := range tr {
			p.add(u.at, u.amount)
		}
		var want int64
		for start := time.Duration(0); start <= tr[len(tr)-1].at; start += length {
			want = max(want, tr.within(start, start+length))
		}
		if p.largest() != want {
			t.Fatalf("largest = %d, want %d", p.largest(), want)
		}
	})
}

func TestLongLogsStayExactAndShort(t *testing.T) {
	t.Parallel()
	w := &sliding{limit: 1000, length: 100}
	p := &slidingPeak{length: 100}
	for at := range time.Duration(100_000) {
		if got := w.fits(at, 10); got != at {
			t.Fatalf("at %d: fits at %d; use is 10 per tick, just the limit", at, got)
		}
		w.count(at, 10)
		p.add(at, 10)
	}
	if got := w.fits(99_999, 1); got != 100_000 {
		t.Errorf("with a full window 1 fits at %d, want 100000", got)
	}
	if p.largest() != 1000 {
		t.Errorf("largest = %d, want 1000", p.largest())
	}
	if len(w.log) > 300 || len(p.recent) > 300 {
		t.Errorf("logs keep %d and %d entries for 100 live ones", len(w.log), len(p.recent))
	}
}

func TestABucketIsExactAtTheEndsOfItsRange(t *testing.T) {
	t.Parallel()
	t.Run("largest limit over a day", func(t *testing.T) {
		t.Parallel()
		w := &bucket{limit: maxAmount, length: 24 * time.Hour, level: maxAmount}
		w.count(0, maxAmount)
		if got := w.fits(0, maxAmount); got != 24*time.Hour {
			t.Errorf("an empty bucket is full after %v, want 24h", got)
		}
	})
	t.Run("one per year", func(t *testing.T) {
		t.Parallel()
		year := 365 * 24 * time.Hour
		w := &bucket{limit: 1, length: year, level: 1}
		w.count(0, 1)
		if got := w.fits(year-1, 1); got != year {
			t.Errorf("fits at %v, want %v", got, year)
		}
	})
	t.Run("a debt that outlasts time", func(t *testing.T) {
		t.Parallel()
		w := &bucket{limit: 1, length: 24 * time.Hour, level: 1}
		w.count(0, maxAmount)
		if got := w.fits(0, 1); got != never-1 {
			t.Errorf("fits at %v, want the end of time", got)
		}
	})
	t.Run("many small steps lose nothing", func(t *testing.T) {
		t.Parallel()
		w := &bucket{limit: 7, length: 1000, level: 7}
		w.count(0, 7)
		for at := range time.Duration(1000) {
			w.refill(at)
		}
		if got := w.fits(999, 7); got != 1000 {
			t.Errorf("fits at %v, want 1000", got)
		}
	})
}

func TestADayLastsFromMidnightToMidnightInItsZone(t *testing.T) {
	t.Parallel()
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	utc := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	tests := []struct {
		name       string
		epoch      string
		speed      float64
		start, end time.Duration // of the day that holds the epoch
		next       time.Duration // the end of the day after
	}{
		{"winter", "2026-01-15T12:00:00Z", 1, -4 * time.Hour, 20 * time.Hour, 44 * time.Hour},
		{"summer", "2026-07-15T12:00:00Z", 1, -5 * time.Hour, 19 * time.Hour, 43 * time.Hour},
		{"at midnight", "2026-01-15T08:00:00Z", 1, 0, 24 * time.Hour, 48 * time.Hour},
		{"just before midnight", "2026-01-15T07:59:59Z", 1, -24*time.Hour + time.Second, time.Second, 24*time.Hour + time.Second},
		{"clocks go forward", "2026-03-08T08:00:00Z", 1, 0, 23 * time.Hour, 47 * time.Hour},
		{"clocks go back", "2026-11-01T07:00:00Z", 1, 0, 25 * time.Hour, 49 * time.Hour},
		{"at double speed", "2026-01-15T12:00:00Z", 2, -2 * time.Hour, 10 * time.Hour, 22 * time.Hour},
		{"at 24 times the speed", "2026-01-15T08:00:00Z", 24, 0, time.Hour, 2 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			day := dailyBounds(utc(tt.epoch), tt.speed, pacific)
			for _, now := range []time.Duration{0, tt.end - 1} {
				if start, end := day(now); start != tt.start || end != tt.end {
					t.Errorf("day at %v = [%v, %v), want [%v, %v)", now, start, end, tt.start, tt.end)
				}
			}
			for _, now := range []time.Duration{tt.end, tt.next - 1} {
				if start, end := day(now); start != tt.end || end != tt.next {
					t.Errorf("day at %v = [%v, %v), want [%v, %v)", now, start, end, tt.end, tt.next)
				}
			}
		})
	}
}

func TestDaysCoverTimeWithoutGapsAtAnySpeed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		speed := rapid.Float64Range(0.01, 5000).Draw(t, "speed")
		epoch := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "epoch"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns"))
		day := dailyBounds(epoch, speed, time.UTC)
		now := time.Duration(0)
		for range 5 {
			start, end := day(now)
			if now < start || now >= end {
				t.Fatalf("day [%d, %d) does not hold %d", start, end, now)
			}
			if s, e := day(end - 1); s != start || e != end {
				t.Fatalf("one before its end, day [%d, %d) is [%d, %d)", start, end, s, e)
			}
			if s, _ := day(end); s != end {
				t.Fatalf("the day after [%d, %d) starts at %d", start, end, s)
			}
			now = end
		}
	})
}

func TestWindowModelsAndCountingInstantsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, m := range []WindowModel{Sliding, Fixed, Bucket, Daily} {
		back := WindowModel(9)
		if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m {
			t.Errorf("%v reads back as %v, %v", m, back, err)
		}
	}
	for _, c := range []CountAt{AtArrival, AtCompletion} {
		back := CountAt(9)
		if err := back.UnmarshalText([]byte(c.String())); err != nil || back != c {
			t.Errorf("%v reads back as %v, %v", c, back, err)
		}
	}
	var m WindowModel
	var c CountAt
	for _, bad := range []string{"", "hourly", "Sliding", "arrival "} {
		if m.UnmarshalText([]byte(bad)) == nil || c.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if names := []string{WindowModel(9).String(), CountAt(9).String()}; slices.Contains(names, "") {
		t.Errorf("unknown values have no name: %q", names)
	}
}
