package ledgertest

import (
	"errors"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// What support does to counters.
var changeTests = []test{
	{"UnusedCountersHaveZeros", func(e *env) {
		for _, x := range []quota.Entry{e.hold("u", 0, 7), e.lease("u", 7), e.rolling("u", quota.Hold, 0, 7, 9, 0)} {
			st := e.status(x)
			if st.Committed != 0 || st.Reserved != 0 || st.Limit != 7 || st.Counter != x.Counter || !sameSpan(st.Span, x.SpanAt(e.Now())) {
				e.Errorf("%+v", st)
			}
			for name, change := range map[string]func() (quota.Status, error){
				"TopUp": func() (quota.Status, error) { return e.Ledger.TopUp(e.ctx(), e.tree, x, 5) },
				"Reset": func() (quota.Status, error) { return e.Ledger.Reset(e.ctx(), e.tree, x) },
			} {
				if st, err := change(); err != nil || st.Committed != 0 || st.Reserved != 0 {
					e.Errorf("%s of an unused counter = %+v, %v", name, st, err)
				}
			}
		}
		if all, err := e.Ledger.Status(e.ctx(), e.tree); err != nil || len(all) != 0 {
			e.Errorf("Status of nothing = %v, %v", all, err)
		}
	}},
	{"TopUpLowersWhatIsSpentNeverBelowZero", func(e *env) {
		e.settle(e.take(e.hold("u", 100, 100)), 100)
		e.refuse(0, e.hold("u", 1, 100))
		held := e.hold("u", 0, 100)
		if st, err := e.Ledger.TopUp(e.ctx(), e.tree, held, 30); err != nil || st.Committed != 70 || st.Left() != 30 {
			e.Fatalf("TopUp = %+v, %v", st, err)
		}
		id := e.take(e.hold("u", 30, 100))
		if st, err := e.Ledger.TopUp(e.ctx(), e.tree, held, 1000); err != nil || st.Committed != 0 || st.Reserved != 30 {
			e.Fatalf("TopUp = %+v, %v", st, err)
		}
		e.settle(id, 30)
		e.stands(held, 30, 0)
	}},
	{"ResetClearsWhatIsSpentAndKeepsWhatIsReserved", func(e *env) {
		early := e.take(e.hold("u", 40, 100))
		held := e.take(e.hold("u", 50, 100))
		e.settle(early, 40)
		if st, err := e.Ledger.Reset(e.ctx(), e.tree, e.hold("u", 0, 100)); err != nil || st.Committed != 0 || st.Reserved != 50 {
			e.Fatalf("Reset = %+v, %v", st, err)
		}
		e.settle(held, 45)
		e.stands(e.hold("u", 0, 100), 45, 0)
		// What was reset cannot be given back once more, at the cost of others.
		adjust := func(seq, used int64) {
			e.settleWith(quota.Settle{ID: early, Adjust: true, Seq: seq, Actual: quota.Amounts{quota.Tokens: used}})
		}
		adjust(1, 10)
		e.stands(e.hold("u", 0, 100), 45, 0)
		adjust(2, 30)
		e.stands(e.hold("u", 0, 100), 65, 0)
		adjust(3, 5)
		e.stands(e.hold("u", 0, 100), 45, 0)
	}},
	{"ChangesAreOfTheCurrentWindowOnly", func(e *env) {
		e.settle(e.take(e.hold("u", 100, 100)), 100)
		e.toWindow(1, time.Second)
		e.settle(e.take(e.hold("u", 60, 100)), 60)
		if _, err := e.Ledger.Reset(e.ctx(), e.tree, e.hold("u", 0, 100)); err != nil {
			e.Fatal(err)
		}
		past, err := e.Ledger.History(e.ctx(), e.tree, e.hold("u", 0, 0).Counter, 9)
		if err != nil || len(past) != 1 || past[0].Committed != 100 {
			e.Fatalf("History = %+v, %v", past, err)
		}
		e.stands(e.hold("u", 0, 100), 0, 0)
	}},
	{"EraseForgetsAKeyAndLeavesOthersExact", func(e *env) {
		past := e.hold("user", 20, 100)
		e.settle(e.take(past, e.hold("tenant", 20, 1000)), 20)
		only := e.take(e.hold("user", 5, 100))
		e.toWindow(1, time.Second)
		ended := e.take(e.hold("user", 30, 100), e.rolling("user", quota.Hold, 30, 1, 60, 0), e.hold("tenant", 30, 1000))
		e.settle(ended, 30)
		shared := e.take(e.hold("user", 40, 100), e.rolling("user", quota.Hold, 10, 1, 60, 0), e.hold("tenant", 40, 1000))
		if err := e.Ledger.Erase(e.ctx(), e.tree, "user"); err != nil {
			e.Fatal(err)
		}
		e.stands(e.hold("user", 0, 100), 0, 0)
		e.stands(e.rolling("user", quota.Hold, 0, 1, 60, 0), 0, 0)
		if h, err := e.Ledger.History(e.ctx(), e.tree, past.Counter, 9); err != nil || len(h) != 0 {
			e.Fatalf("History = %+v, %v", h, err)
		}
		told := append(e.settle(shared, 25).Status, e.settle(ended, 30).Status...) // the second is a repeat
		told = append(told, e.try(shared, e.hold("user", 40, 100), e.rolling("user", quota.Hold, 10, 1, 60, 0), e.hold("tenant", 40, 1000)).Status...)
		for _, st := range told {
			if st.Counter.Key == "user" {
				e.Fatalf("the key that was erased is told of: %+v", st)
			}
		}
		if len(told) != 3+3+3 || told[5].Counter.Key != "tenant" || told[5].Committed != 30 {
			e.Fatalf("what was not erased is not told of as it was: %+v", told)
		}
		e.stands(e.hold("tenant", 0, 1000), 55, 0)
		e.stands(e.hold("user", 0, 100), 0, 0)
		if _, err := e.Ledger.Settle(e.ctx(), quota.Settle{ID: only, Tree: e.tree, Actual: quota.Amounts{quota.Tokens: 5}}); err != nil && !errors.Is(err, quota.ErrUnknownReservation) {
			e.Fatal(err)
		}
		e.stands(e.hold("user", 0, 100), 0, 0)
		e.take(e.hold("user", 100, 100))
		if err := e.Ledger.Erase(e.ctx(), e.tree, "nobody"); err != nil {
			e.Fatalf("Erase of nobody: %v", err)
		}
	}},
}
