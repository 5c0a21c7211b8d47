package retry_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/retry"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// take asks for retries until one is refused, at most 1,000 times, and returns
// how many were granted.
func take(b *retry.Budget, now time.Time) int {
	for n := range 1000 {
		if !b.TryRetry(now) {
			return n
		}
	}
	return 1000
}

func calls(b *retry.Budget, n int, now time.Time) {
	for range n {
		b.Call(now)
	}
}

func TestRetriesAreAShareOfCallsWithAFloor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		budget *retry.Budget
		calls  int
		want   int
	}{
		{"quiet program", &retry.Budget{}, 0, 3},
		{"few calls: the floor", &retry.Budget{}, 15, 3},
		{"the share", &retry.Budget{}, 20, 4},
		{"many calls", &retry.Budget{}, 1000, 200},
		{"own ratio", &retry.Budget{Ratio: 0.1}, 100, 10},
		{"a ratio that binary does not hold", &retry.Budget{Ratio: 0.29}, 100, 29},
		{"more retries than calls", &retry.Budget{Ratio: 2}, 100, 200},
		{"own floor", &retry.Budget{Floor: 1}, 4, 1},
		{"large floor", &retry.Budget{Floor: 50}, 100, 50},
		{"unusable settings read as defaults", &retry.Budget{Ratio: math.NaN(), Floor: -1, Window: -1}, 100, 20},
		{"infinite ratio read as the default", &retry.Budget{Ratio: math.Inf(1)}, 100, 20},
	} {
		b := c.budget
		calls(b, c.calls, noon)
		if got := take(b, noon); got != c.want {
			t.Errorf("%s: %d retries for %d calls, want %d", c.name, got, c.calls, c.want)
		}
	}
}

func TestCallsPayForOneWindowAndRetriesComeBackAfterIt(t *testing.T) {
	t.Parallel()
	b := &retry.Budget{}
	calls(b, 100, noon)
	if got := take(b, noon.Add(9999*time.Millisecond)); got != 20 {
		t.Errorf("just before the end of the window: %d retries, want 20", got)
	}
	if got := take(b, noon.Add(11*time.Second)); got != 0 {
		t.Errorf("calls are gone, retries are not: %d more, want 0", got)
	}
	if got := take(b, noon.Add(22*time.Second)); got != 3 {
		t.Errorf("a quiet window later: %d retries, want the floor of 3", got)
	}
}

// The bound is checked against the times of the events themselves; the cells of
// the budget leave a tenth of a window of slack, on the side of each that is
// stated.
func TestNoWindowHoldsMoreRetriesThanItsShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const window = 10 * time.Second
		ratio := rapid.SampledFrom([]float64{0.1, 0.2, 0.5, 1}).Draw(t, "ratio")
		floor := rapid.IntRange(1, 4).Draw(t, "floor")
		b := &retry.Budget{Ratio: ratio, Floor: floor, Window: window}
		var called, retried []time.Time
		within := func(list []time.Time, now time.Time, span time.Duration) (n int) {
			for _, at := range list {
				if now.Sub(at) < span {
					n++
				}
			}
			return n
		}
		now := noon
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			step := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(2*time.Second)), rapid.Int64Range(0, int64(time.Minute)))
			now = now.Add(time.Duration(step.Draw(t, "step")))
			if rapid.Bool().Draw(t, "call") {
				b.Call(now)
				called = append(called, now)
				continue
			}
			if b.TryRetry(now) {
				retried = append(retried, now)
				made := within(retried, now, window)
				paid := ratio * float64(within(called, now, window+window/10))
				if made > floor && float64(made) > paid+1e-6 {
					t.Fatalf("%d retries in a window, calls pay for %v, floor %d", made, paid, floor)
				}
			} else {
				made := within(retried, now, window+window/10)
				paid := ratio * float64(within(called, now, window))
				if made < floor || float64(made+1) <= paid {
					t.Fatalf("refused after %d retries, calls pay for %v, floor %d", made, paid, floor)
				}
			}
		}
	})
}

func TestClockStepsDoNotBreakTheBudget(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{
		"a little back":      -3 * time.Second,
		"a day back":         -24 * time.Hour,
		"as far as it goes":  math.MinInt64,
		"a little more back": -11*time.Second - 1,
	} {
		b := &retry.Budget{}
		calls(b, 100, noon)
		if got := take(b, noon); got != 20 {
			t.Fatalf("%s: %d retries before the step, want 20", name, got)
		}
		back := noon.Add(step)
		if got := take(b, back); got != 0 {
			t.Errorf("%s: the step gave %d retries away", name, got)
		}
		calls(b, 10, back)
		if got := take(b, back); got != 2 {
			t.Errorf("%s: %d retries for 10 calls after the step, want 2", name, got)
		}
		if got := take(b, back.Add(25*time.Second)); got != 3 {
			t.Errorf("%s: %d retries long after the step, want the floor of 3", name, got)
		}
	}

	// A clock that was wrong by centuries and is set right.
	b := &retry.Budget{}
	for _, at := range []time.Time{{}, noon, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), {}, noon} {
		calls(b, 50, at)
		if got := take(b, at); got != 10 {
			t.Errorf("at %v: %d retries for 50 calls, want 10", at, got)
		}
	}
	if got := take(b, noon.Add(11*time.Second)); got != 3 {
		t.Errorf("a window later: %d retries, want the floor of 3", got)
	}
}

func TestConcurrentRetriesShareOneBudget(t *testing.T) {
	t.Parallel()
	b := &retry.Budget{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { calls(b, 125, noon) })
	}
	wg.Wait()
	granted := make(chan int, 8)
	for range 8 {
		wg.Go(func() { granted <- take(b, noon) })
	}
	wg.Wait()
	close(granted)
	total := 0
	for n := range granted {
		total += n
	}
	if total != 200 {
		t.Errorf("%d retries for 1000 calls, want 200", total)
	}
}

func TestBudgetValidateNamesTheFieldAndTheValue(t *testing.T) {
	t.Parallel()
	names(t, (&retry.Budget{}).Validate(), nil)
	names(t, (&retry.Budget{Ratio: 0.1, Floor: 1, Window: time.Second}).Validate(), nil)
	names(t, (&retry.Budget{Ratio: -0.1}).Validate(), []string{"Ratio", "-0.1"})
	names(t, (&retry.Budget{Ratio: math.NaN()}).Validate(), []string{"Ratio", "NaN"})
	names(t, (&retry.Budget{Ratio: math.Inf(1)}).Validate(), []string{"Ratio", "+Inf"})
	names(t, (&retry.Budget{Floor: -3}).Validate(), []string{"Floor", "-3"})
	names(t, (&retry.Budget{Window: -time.Second}).Validate(), []string{"Window", "-1s"})
}
