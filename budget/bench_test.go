package budget_test

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate-go/headgate/budget"
)

// BenchmarkReserve is what a gate asks of one limit for one call: may it start,
// take the estimate, settle it to a little less. The opponent is x/time/rate
// with ReserveN and, for the refund, CancelAt; it takes its own lock, while a
// limiter here runs under the gate's. Calls come exactly as fast as the limit
// is refilled, so the bucket lacks as much as is in flight. The variants with
// calls in flight settle in the order of arrival, that many calls later.
func BenchmarkReserve(b *testing.B) {
	const limit, cost, actual = 1_000_000, 110, 100
	const step = 6 * time.Millisecond
	start := time.Now() // a monotonic reading, as in a gate

	reserve := func(b *testing.B, l budget.Limiter, err error, flight int) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		open, i := make([]budget.Hold, flight), 0
		now := start
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(step)
			if open[i].Cost() > 0 {
				l.Settle(now, open[i], actual)
			}
			if ok, _ := l.Fits(now, cost); !ok {
				b.Fatal("the limit binds")
			}
			open[i] = l.Take(now, cost)
			if i++; i == flight {
				i = 0
			}
		}
	}
	token := func(flight int) func(*testing.B) {
		return func(b *testing.B) {
			l, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: limit})
			reserve(b, l, err, flight)
		}
	}
	window := func(flight int) func(*testing.B) {
		return func(b *testing.B) {
			l, err := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: 2 * limit})
			reserve(b, l, err, flight)
		}
	}
	b.Run("token", token(1))
	b.Run("token-64-in-flight", token(64))
	b.Run("token-1024-in-flight", token(1024))
	b.Run("window", window(1))
	b.Run("window-64-in-flight", window(64))
	b.Run("rate", func(b *testing.B) {
		l := rate.NewLimiter(rate.Limit(limit)/60, 2*limit)
		now := start
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(step)
			r := l.ReserveN(now, cost)
			if !r.OK() || r.DelayFrom(now) > 0 {
				b.Fatal("the limit binds")
			}
			r.CancelAt(now)
		}
	})
}

func TestAReservationAllocatesNothing(t *testing.T) { // not parallel: it counts
	for name, l := range map[string]budget.Limiter{
		"token":  newToken(t, budget.TokenBudgetConfig{Limit: 6_000}),
		"window": newWindow(t, budget.WindowBudgetConfig{Limit: 6_000}),
	} {
		var open [64]budget.Hold
		now, i, calls, fitted := t0, 0, 0, 0
		reserve := func() {
			now = now.Add(600 * time.Millisecond)
			l.Settle(now, l.Counted(now, open[i]), open[i].Cost()*9/10)
			calls++
			if fits(l, now, 100) {
				fitted++
			}
			l.Earliest(now, 100)
			open[i] = l.Take(now, 100)
			i = (i + 1) % len(open)
		}
		for range 1000 { // until its list of charges has grown to what it needs
			reserve()
		}
		if n := testing.AllocsPerRun(1000, reserve); n != 0 {
			t.Errorf("%s: %v allocations a reservation", name, n)
		}
		if fitted == 0 || fitted == calls {
			t.Errorf("%s: %d of %d fitted; want both answers", name, fitted, calls)
		}
	}
}
