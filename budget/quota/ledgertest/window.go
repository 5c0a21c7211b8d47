package ledgertest

import (
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// What belongs to which window.
var windowTests = []test{
	{"NewWindowStartsFresh", func(e *env) {
		e.settle(e.take(e.hold("u", 100, 100)), 100)
		res := e.refuse(0, e.hold("u", 1, 100))
		e.about("RetryAfter", res.RetryAfter, e.span(0).End.Sub(e.Now()))
		e.Pass(res.RetryAfter)
		e.take(e.hold("u", 100, 100))
	}},
	{"WindowsAreHalfOpen", func(e *env) {
		if !e.Virtual {
			e.Skip("needs a clock that stands still")
		}
		e.settle(e.take(e.hold("u", 100, 100)), 100)
		e.Pass(e.span(0).End.Sub(e.Now()) - e.Resolution)
		if res := e.refuse(0, e.hold("u", 1, 100)); res.RetryAfter != e.Resolution {
			e.Fatalf("RetryAfter = %v, want %v", res.RetryAfter, e.Resolution)
		}
		e.Pass(e.Resolution)
		if st := e.status(e.hold("u", 0, 100)); st.Committed != 0 || !sameSpan(st.Span, e.span(1)) {
			e.Fatalf("at the end stands at %+v, want the next window", st)
		}
	}},
	{"HoldsSurviveTheEdgeInTheirOwnWindow", func(e *env) {
		for name, c := range map[string]struct {
			end   func(id string)
			spent int64
		}{
			"settled below": {func(id string) { e.settle(id, 250) }, 250},
			"settled above": {func(id string) { e.settle(id, 400) }, 400},
			"released":      {func(id string) { e.release(id) }, 0},
			"settled late":  {func(id string) { e.Pass(quota.DefaultTTL); e.settle(id, 250) }, 250},
			"corrected": {func(id string) {
				e.settle(id, 999)
				e.settleWith(quota.Settle{ID: id, Adjust: true, Seq: 1, Actual: quota.Amounts{quota.Tokens: 100}})
			}, 100},
		} {
			e.newTree()
			e.toWindow(0, length-e.Slack-10*time.Second)
			yesterday := e.take(e.hold("u", 300, 1000))
			e.toWindow(1, 5*time.Second)
			today := e.take(e.hold("u", 700, 1000))
			e.stands(e.hold("u", 0, 1000), 0, 700)
			e.settle(today, 700)
			c.end(yesterday)
			e.stands(e.hold("u", 0, 1000), 700, 0)
			st := e.status(e.hold("u", 0, 1000))
			if st.Left() != 300 || !sameSpan(st.Span, e.span(1)) {
				e.Fatalf("%s: today stands at %+v", name, st)
			}
			past, err := e.Ledger.History(e.ctx(), e.tree, st.Counter, 5)
			var spent int64
			if len(past) > 0 {
				spent = past[0].Committed
			}
			if err != nil || spent != c.spent {
				e.Fatalf("%s: yesterday stands at %+v (%v), want %d spent", name, past, err, c.spent)
			}
		}
	}},
	{"SettleSaysHowTheWindowOfTheHoldStands", func(e *env) {
		id := e.take(e.hold("u", 300, 1000))
		e.toWindow(1, time.Second)
		res := e.settle(id, 250)
		if len(res.Status) != 1 || !sameSpan(res.Status[0].Span, e.span(0)) || res.Status[0].Committed != 250 {
			e.Fatalf("Settle = %+v, want the window of the hold", res)
		}
	}},
	{"TheLedgersTimeDecides", func(e *env) {
		// Callers whose clock is one window behind or ahead, or far off.
		for _, off := range []time.Duration{-length, 0, length} {
			x := e.hold("u", 10, 100)
			x.Spans = e.spans(e.Now().Add(off))
			e.take(x)
		}
		e.stands(e.hold("u", 0, 100), 0, 30)
		x := e.hold("u", 10, 100)
		x.Spans = e.spans(e.Now().Add(5 * length)) // the middle one, then
		if st := e.try(budget.NewID(), x).Status[0]; !sameSpan(st.Span, e.span(5)) {
			e.Fatalf("falls in %v, want %v", st.Span, e.span(5))
		}
		e.stands(e.hold("u", 0, 100), 0, 30)
	}},
	{"ClockSetBackFindsWhatWasSpent", func(e *env) {
		if e.SetBack == nil {
			e.Skip("the store's clock cannot be set back")
		}
		count := func(n int) (passed int) {
			for range n {
				if e.try(budget.NewID(), e.calendar("u", quota.Count, 1, 10)).Denied < 0 {
					passed++
				}
			}
			return passed
		}
		e.toWindow(0, length-e.Slack-20*time.Second)
		if n := count(20); n != 10 {
			e.Fatalf("%d of 20 passed, want 10", n)
		}
		e.toWindow(1, 10*time.Second)
		if n := count(4); n != 4 {
			e.Fatalf("%d of 4 passed in the next window", n)
		}
		e.take(e.calendar("v", quota.Count, 1, 10))
		e.SetBack(e.Slack + 30*time.Second)
		e.take(e.calendar("v", quota.Count, 2, 10))
		if n := count(20); n != 0 {
			e.Fatalf("%d passed after the clock was set back, want 0", n)
		}
		e.toWindow(1, 10*time.Second)
		if n := count(20); n != 6 {
			e.Fatalf("%d of 20 passed when the clock came again, want 6", n)
		}
		e.take(e.calendar("v", quota.Count, 4, 10))
		e.toWindow(2, 10*time.Second)
		past, err := e.Ledger.History(e.ctx(), e.tree, e.calendar("v", quota.Count, 0, 0).Counter, 9)
		if err != nil || len(past) != 2 || past[0].Committed != 5 || past[1].Committed != 2 {
			e.Fatalf("History = %+v, %v, want 5 and then 2", past, err)
		}
	}},
	{"HistoryHasThePastWindowsTheLatestFirst", func(e *env) {
		for n := range 4 {
			if n == 2 {
				continue // nothing is spent in it
			}
			e.toWindow(n, time.Minute)
			e.settle(e.take(e.hold("u", 10, int64(1000+n))), int64(100*n+1))
		}
		counter := e.hold("u", 0, 0).Counter
		for n, want := range map[int][]int{0: {}, 1: {1}, 9: {1, 0}} {
			past, err := e.Ledger.History(e.ctx(), e.tree, counter, n)
			if err != nil || len(past) != len(want) {
				e.Fatalf("History(%d) = %+v, %v, want windows %v", n, past, err, want)
			}
			for i, w := range want {
				if p := past[i]; p.Committed != int64(100*w+1) || p.Limit != int64(1000+w) || p.Counter != counter || !sameSpan(p.Span, e.span(w)) {
					e.Fatalf("History(%d)[%d] = %+v, want window %d", n, i, p, w)
				}
			}
		}
		e.toWindow(4, time.Minute)
		past, err := e.Ledger.History(e.ctx(), e.tree, counter, 1)
		if err != nil || len(past) != 1 || !sameSpan(past[0].Span, e.span(3)) {
			e.Fatalf("History = %+v, %v, want the window that has just passed", past, err)
		}
		if past, err := e.Ledger.History(e.ctx(), e.tree, quota.Counter{Key: "nobody"}, 9); err != nil || len(past) != 0 {
			e.Fatalf("History of nobody = %+v, %v", past, err)
		}
	}},
	{"ThresholdsAreCrossedOnceAWindow", func(e *env) {
		spend := func(n int64, want ...int) {
			e.Helper()
			x := e.hold("u", n, 1000)
			x.Thresholds = []int{50, 80, 100}
			id := e.take(x)
			var got []int
			for _, c := range e.settle(id, n).Crossed {
				got = append(got, c.Percent)
				if c.Counter != x.Counter || c.Limit != 1000 || c.Committed*100 < int64(c.Percent)*1000 || !c.Span.Contains(e.Now()) {
					e.Fatalf("crossing %+v", c)
				}
			}
			if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
				e.Fatalf("crossed %v, want %v", got, want)
			}
		}
		spend(499)
		spend(1, 50)
		spend(100)
		spend(400, 100) // the highest one only
		if st, err := e.Ledger.TopUp(e.ctx(), e.tree, e.hold("u", 0, 1000), 900); err != nil || st.Committed != 100 {
			e.Fatalf("TopUp = %+v, %v", st, err)
		}
		spend(800) // not again
		e.toWindow(1, time.Second)
		spend(850, 80)
		spend(149)
		spend(1, 100)
	}},
	{"CountCrossesThresholdsToo", func(e *env) {
		x := e.calendar("u", quota.Count, 8, 10)
		x.Thresholds = []int{80, 100}
		if res := e.try("a", x); len(res.Crossed) != 1 || res.Crossed[0].Percent != 80 || res.Crossed[0].Committed != 8 {
			e.Fatalf("Crossed = %+v, want 80", res.Crossed)
		}
		x.Amount = 2
		x.Observe = true
		if res := e.try("b", x); len(res.Crossed) != 1 || res.Crossed[0].Percent != 100 {
			e.Fatalf("Crossed = %+v, want 100", res.Crossed)
		}
		hold := e.hold("u", 1, 100)
		hold.Thresholds = []int{1}
		if res := e.try("c", hold); len(res.Crossed) != 0 {
			e.Fatalf("a hold has crossed %+v before it was spent", res.Crossed)
		}
	}},
}
