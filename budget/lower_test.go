package budget_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// A bucket of 1,000 a minute, with a hold of 300 between two small ones. Then
// something is learned about what is left, and the hold turns out to be of
// another size.
func TestWhatTheProviderSaysIsLeftOutlivesOlderHolds(t *testing.T) {
	t.Parallel()
	type learn func(b *budget.TokenBudget, before, after budget.Hold)
	nothing := func(*budget.TokenBudget, budget.Hold, budget.Hold) {}
	lower := func(b *budget.TokenBudget, _, _ budget.Hold) { b.Lower(t0, 200, 0) }
	emptied := func(b *budget.TokenBudget, _, after budget.Hold) { b.Emptied(t0, after, 200) }
	early := func(b *budget.TokenBudget, before, _ budget.Hold) { b.Emptied(t0, before, 200) }
	for _, c := range []struct {
		name   string
		learn  learn
		actual int64
		want   int64
	}{
		{"nothing is said, and less is used", nothing, 100, 880},
		{"less is used than was held", lower, 100, 200},
		{"just what was held", lower, 300, 200},
		{"more, which is used after it was said", lower, 400, 100},
		{"a later call is refused, and less was used", emptied, 100, 200},
		{"a later call is refused, and more was used", emptied, 400, 200},
		{"an earlier call is refused, and more was used", early, 400, 100},
	} {
		for _, revised := range []bool{false, true} {
			b := newToken(t, budget.TokenBudgetConfig{Limit: 1000})
			before, h, after := b.Take(t0, 10), b.Take(t0, 300), b.Take(t0, 10)
			c.learn(b, before, after)
			if revised {
				h = b.Revise(t0, h, c.actual)
				if got := b.Level(t0); got != c.want {
					t.Errorf("%s: %d are left when the hold is revised, want %d", c.name, got, c.want)
				}
			}
			b.Settle(t0, h, c.actual)
			if got := b.Level(t0); got != c.want {
				t.Errorf("%s (revised: %v): %d are left, want %d", c.name, revised, got, c.want)
			}
			later := b.Take(t0, 100)
			b.Settle(t0, later, 40)
			if got := b.Level(t0); got != c.want-40 {
				t.Errorf("%s: a later hold is settled at 40, and %d are left, want %d", c.name, got, c.want-40)
			}
			if got := b.Level(t0.Add(time.Hour)); got != 1000 {
				t.Errorf("%s: an hour later %d are left, want all", c.name, got)
			}
		}
	}
}

func TestWhatIsLeftIsNeverRaised(t *testing.T) {
	t.Parallel()
	b := newToken(t, budget.TokenBudgetConfig{Limit: 1000})
	h := b.Take(t0, 900)
	b.Lower(t0, 500, 0)
	b.Emptied(t0, h, 500)
	w := newWindow(t, budget.WindowBudgetConfig{Limit: 1000})
	w.Take(t0, 900)
	w.Lower(t0, 500, time.Second)
	for name, l := range map[string]budget.Limiter{"bucket": b, "window": w} {
		if got := l.Level(t0); got != 100 {
			t.Errorf("%s: %d are left, want 100", name, got)
		}
	}
}
