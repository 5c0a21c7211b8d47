package gate

import (
	"time"

	"github.com/headgate-go/headgate/budget"
)

// spy is a limiter of the Core. It knows which holds are open, and hands on what
// changes the limit itself to the twin.
type spy struct {
	budget.Limiter
	t    failer
	book *book
	open map[budget.Hold]int
	held int64
}

func (s *spy) Take(now time.Time, cost int64) budget.Hold {
	h := s.Limiter.Take(now, cost)
	s.open[h]++
	s.held += h.Cost()
	return h
}

func (s *spy) TryTake(now time.Time, cost int64) (budget.Hold, bool) {
	h, ok := s.Limiter.(tryTaker).TryTake(now, cost)
	if ok {
		s.open[h]++
		s.held += h.Cost()
	}
	return h, ok
}

func (s *spy) Counted(now time.Time, h budget.Hold) budget.Hold {
	s.close(h)
	h = s.Limiter.Counted(now, h)
	s.open[h]++
	s.held += h.Cost()
	return h
}

func (s *spy) Settle(now time.Time, h budget.Hold, actual int64) {
	if h.Cost() > 0 {
		s.close(h)
	}
	s.Limiter.Settle(now, h, actual)
}

func (s *spy) Revise(now time.Time, h budget.Hold, cost int64) budget.Hold {
	s.close(h)
	h = s.Limiter.(reviser).Revise(now, h, cost)
	s.open[h]++
	s.held += h.Cost()
	return h
}

func (s *spy) Lower(now time.Time, left int64, reset time.Duration) {
	s.Limiter.(lowerer).Lower(now, left, reset)
	s.book.twin.(lowerer).Lower(now, left, reset)
}

func (s *spy) Emptied(now time.Time, h budget.Hold, left int64) {
	if b, ok := s.Limiter.(*budget.TokenBudget); ok {
		b.Emptied(now, h, left)
	}
}

func (s *spy) close(h budget.Hold) {
	if s.open[h]--; s.open[h] < 0 {
		s.t.Fatalf("a hold of %d units was settled twice", h.Cost())
	}
	s.held -= h.Cost()
}

func (s *spy) SetLimit(now time.Time, limit int64) {
	s.Limiter.SetLimit(now, limit)
	s.book.twin.SetLimit(now, limit)
	s.book.scale = 1
}

func (s *spy) Scale(now time.Time, share float64) {
	s.Limiter.Scale(now, share)
	s.book.twin.Scale(now, share)
	s.book.scale = share
}

// Ways to make the limiters of a machine.
func bucketOf(limit, burst int64) func() budget.Limiter {
	return func() budget.Limiter {
		b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: limit, Burst: burst, Window: 10 * time.Second})
		if err != nil {
			panic(err)
		}
		return b
	}
}

func windowOf(limit int64) func() budget.Limiter {
	return func() budget.Limiter {
		w, err := budget.NewWindowBudget(budget.WindowBudgetConfig{Limit: limit, Window: 10 * time.Second, Cell: time.Second})
		if err != nil {
			panic(err)
		}
		return w
	}
}

// anyBucket is a bucket for a limit that is searched for. It holds a tenth of its
// window's, which is a window of the provider's.
func anyBucket() budget.Limiter {
	b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 1 << 40, Burst: 1 << 40 / 10, Window: 100 * time.Second})
	if err != nil {
		panic(err)
	}
	return b
}

// lender lends slots.
type lender struct {
	t          failer
	lent, used int64
	limit      int64 // of all
}

func (l *lender) Fits(_ time.Time, slots int64) bool { return slots <= l.lent-l.used }

func (l *lender) SetLimit(_ time.Time, slots int64) { l.limit = slots }

func (l *lender) Use(_ time.Time, slots int64) {
	if l.used += slots; l.used < 0 {
		l.t.Fatalf("%d more slots were given back than were borrowed", -l.used)
	}
}
