package blocks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// past is what a ledger has of the windows that have passed, the latest first.
func (w *world) past(l quota.Ledger) (committed []int64) {
	w.Helper()
	all, err := l.History(context.Background(), "global", w.hold(0, 0).Counter, 10)
	if err != nil {
		w.Fatal(err)
	}
	for _, st := range all {
		committed = append(committed, st.Committed)
	}
	return committed
}

func TestABlockBelongsToItsWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{Min: quota.Amounts{quota.Tokens: 800}, Share: 1})
		l := w.replicas[0]
		pass(window - 1500*time.Millisecond)
		w.take(l, w.hold(1, 1000))
		yesterday := w.take(l, w.hold(300, 1000))
		synctest.Wait()
		if idle := l.Stats().Idle[quota.Tokens]; idle < 400 {
			t.Fatalf("%d are idle, so that the test is none", idle)
		}
		pass(1500 * time.Millisecond) // to the edge, exactly
		today := w.take(l, w.hold(700, 1000))
		w.stands(w.ledger, w.hold(0, 1000), 0, 700)
		w.take(w.replicas[1], w.hold(300, 1000))

		pass(5 * time.Second)
		w.settle(l, today, 700)
		if st := w.settle(l, yesterday, 250).Status[0]; !st.Span.Start.Equal(w.began) || st.Committed != 250 {
			t.Errorf("yesterday stands at %+v", st)
		}
		w.flush()
		w.stands(w.ledger, w.hold(0, 1000), 700, 300)
		if got := w.past(w.ledger); len(got) != 1 || got[0] != 250 {
			t.Errorf("yesterday stands at %v in the ledger, want 250", got)
		}
	})
}

// What was spent before an edge and had not been settled then is spend of the window
// before it.
func TestSpendIsDatedWhenItWasSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 5000}, Share: 1, Idle: time.Minute, Ahead: time.Minute})
		l := w.replicas[0]
		pass(window - 10*time.Second)
		for range 103 { // five a second, over the edge
			w.settle(l, w.take(l, w.hold(10, 100_000)), 10)
			w.take(l, w.entry(quota.Count, 1, 100_000))
			pass(200 * time.Millisecond)
		}
		if n := l.Stats().Spent[quota.Tokens]; n == 0 {
			t.Fatal("nothing waits to be settled, so that the test is none")
		}
		if got := w.past(l); len(got) != 1 || got[0] != 550 {
			t.Errorf("History tells of %v, want 550", got)
		}
		w.stands(l, w.hold(0, 100_000), 583, 0)
		w.flush()
		if got := w.past(w.ledger); len(got) != 1 || got[0] != 550 {
			t.Errorf("the ledger has %v before the edge, want 550", got)
		}
		w.stands(w.ledger, w.hold(0, 100_000), 583, 0)
	})
}

// A call that is settled when its window and its reservation are long gone is a debit
// to that window.
func TestALateSettlementIsOfItsOwnWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		id := w.take(l, w.hold(300, 1000))
		pass(3*window + time.Minute)
		w.take(l, w.hold(100, 1000))
		res := w.settle(l, id, 250)
		if st := res.Status[0]; !res.Late || st.Committed != 250 || st.Reserved != 0 || !st.Span.Start.Equal(w.began) {
			t.Errorf("Settle = %+v", res)
		}
		if got := w.past(w.ledger); len(got) != 1 || got[0] != 250 {
			t.Errorf("the ledger has %v", got)
		}
		w.stands(l, w.hold(0, 1000), 0, 100)
	})
}

// shifted is a ledger whose clock differs from ours.
type shifted struct {
	quota.Ledger
	by time.Duration
}

func (s *shifted) span(x quota.Span, by time.Duration) quota.Span {
	if !x.Start.IsZero() {
		x.Start = x.Start.Add(by)
	}
	if !x.End.IsZero() {
		x.End = x.End.Add(by)
	}
	return x
}

func (s *shifted) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	entries := append([]quota.Entry(nil), r.Entries...)
	for i := range entries {
		for j := range entries[i].Spans {
			entries[i].Spans[j] = s.span(entries[i].Spans[j], -s.by)
		}
	}
	r.Entries = entries
	res, err := s.Ledger.Reserve(ctx, r)
	res.Now = res.Now.Add(s.by)
	for i := range res.Status {
		res.Status[i].Span = s.span(res.Status[i].Span, s.by)
	}
	return res, err
}

func (s *shifted) Settle(ctx context.Context, x quota.Settle) (quota.Settled, error) {
	res, err := s.Ledger.Settle(ctx, x)
	for i := range res.Status {
		res.Status[i].Span = s.span(res.Status[i].Span, s.by)
	}
	return res, err
}

// In which window something falls, the ledger's clock decides, also where no block is
// leased for it.
func TestTheLedgersClockDecidesAboutWindows(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-40 * time.Second, 40 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, blocks.Config{})
			l, err := blocks.New(&shifted{w.ledger, by}, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close(context.Background())
			// 20 seconds before and after the edge, as our clock sees it.
			for _, at := range []time.Duration{window - 20*time.Second, window + 20*time.Second} {
				pass(time.Until(w.began.Add(at)))
				for range 3 { // the first one asks the ledger
					res := w.try(l, budget.NewID(), w.hold(10, 10_000))
					ledger := time.Now().Add(by)
					if st := res.Status[0]; !st.Span.Contains(ledger) || res.Now.Sub(ledger).Abs() > time.Millisecond {
						t.Errorf("by %v: at %v of the ledger's time it falls in %v, and Now is %v", by, ledger, st.Span, res.Now)
					}
				}
			}
			// Its edge comes while there is a block.
			edge := w.began.Add(window - by)
			if edge.Before(time.Now()) {
				edge = edge.Add(window)
			}
			pass(time.Until(edge) - 10*time.Millisecond)
			for _, n := range []int{0, 1} {
				for range 2 {
					e := w.hold(10, 10_000)
					e.Spans = [3]quota.Span{w.span(0), w.span(1), w.span(2)}
					if st := w.try(l, budget.NewID(), e).Status[0]; !st.Span.Contains(time.Now().Add(by)) {
						t.Errorf("by %v: %d after its edge it falls in %v", by, n, st.Span)
					}
				}
				pass(10 * time.Millisecond)
			}
		})
	}
}

// A limit without windows has one that never ends.
func TestALimitWithoutWindowsIsLeased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		e := w.hold(10, 30)
		e.Window, e.Spans = "", [3]quota.Span{}
		l := w.replicas[0]
		w.settle(l, w.take(l, e), 20)
		w.take(l, e)
		if res := w.refuse(l, e); res.RetryAfter != 0 || res.Never {
			t.Errorf("%+v", res)
		}
		pass(1000 * time.Hour)
		w.take(l, e)
	})
}
