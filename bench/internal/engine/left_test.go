package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// What is left is what fits, and no more; it is all there when the whole limit
// fits.
func TestWhatIsLeftFitsAndOneMoreDoesNot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		length := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "length"))
		windows := map[string]window{
			"sliding": &sliding{limit: limit, length: length},
			"fixed":   &fixed{limit: limit, bounds: fixedBounds(length, 7)},
			"bucket":  &bucket{limit: limit, length: length, level: limit},
		}
		for _, u := range drawTrace(t, limit+2, length) {
			for name, w := range windows {
				left := w.left(u.at)
				if left > limit {
					t.Fatalf("%s: %d left of %d", name, left, limit)
				}
				if left >= 0 && w.fits(u.at, left) != u.at {
					t.Fatalf("%s: %d left at %d, but that does not fit", name, left, u.at)
				}
				if more := max(left+1, 0); more <= limit && w.fits(u.at, more) == u.at {
					t.Fatalf("%s: %d left at %d, but %d fits", name, left, u.at, more)
				}
				w.count(u.at, u.amount)
			}
		}
	})
}

func TestLeftTellsOfEveryEnforcedLimitWhenItIsFullAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Speed: 2, Limits: []Limit{
			{Name: "rpm", Amount: 60, Length: time.Minute, Model: Bucket, Dimension: Requests},
			{Name: "measured", Length: time.Minute, Dimension: TotalTokens},
			{Name: "output", Amount: 100, Length: time.Minute, Model: Bucket, Dimension: OutputTokens, CountAt: AtCompletion},
		}})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when string, want ...Left) {
			t.Helper()
			got := e.Left()
			if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		expect("at first", Left{"rpm", 60, 60, 0}, Left{"output", 100, 100, 0})
		c, err := e.Admit(t.Context(), Arrival{Amounts: Amounts{Requests: 1}})
		if err != nil {
			t.Fatal(err)
		}
		expect("admitted", Left{"rpm", 60, 59, time.Second / 2}, Left{"output", 100, 100, 0})
		c.End(Completed, Amounts{Requests: 1, OutputTokens: 150}, 0)
		expect("in debt", Left{"rpm", 60, 59, time.Second / 2}, Left{"output", 100, 0, 45 * time.Second})
		time.Sleep(30 * time.Second)
		expect("later", Left{"rpm", 60, 60, 0}, Left{"output", 100, 50, 15 * time.Second})
	})
}
