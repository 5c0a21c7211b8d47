package ledgertest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// How reservations end.
var endTests = []test{
	{"SettleReplacesTheHoldByWhatWasUsed", func(e *env) {
		for _, used := range []int64{0, 40, 100} {
			e.newTree()
			id := e.take(e.hold("u", 100, 1000))
			e.stands(e.hold("u", 0, 1000), 0, 100)
			res := e.settle(id, used)
			if res.Over || res.Late || res.Repeated || len(res.Status) != 1 || res.Status[0].Committed != used || res.Status[0].Left() != 1000-used {
				e.Fatalf("Settle = %+v", res)
			}
			e.stands(e.hold("u", 0, 1000), used, 0)
		}
	}},
	{"OverrunIsAcceptedAndFlagged", func(e *env) {
		id := e.take(e.hold("u", 90, 100))
		if res := e.settle(id, 130); !res.Over || res.Late || res.Status[0].Committed != 130 || res.Status[0].Left() != 0 {
			e.Fatalf("Settle = %+v", res)
		}
		e.refuse(0, e.hold("u", 1, 100))
		e.take(e.hold("u", 0, 100)) // what is free always passes
	}},
	{"ReleaseGivesTheHoldBack", func(e *env) {
		e.release(e.take(e.hold("u", 100, 100)))
		e.stands(e.hold("u", 0, 100), 0, 0)
		e.take(e.hold("u", 100, 100))
	}},
	{"TheFirstEndCountsAndRepeatsReturnItsResult", func(e *env) {
		settled := e.take(e.hold("u", 10, 1000))
		e.take(e.hold("u", 500, 1000))
		first := e.settle(settled, 1100)
		e.take(e.hold("other", 1, 10))
		for range 3 {
			e.release(settled)
			repeat := e.settle(settled, 7)
			if !repeat.Repeated || repeat.Over != first.Over || repeat.Late || !sameStatus(repeat.Status, first.Status) {
				e.Fatalf("first:  %+v\nrepeat: %+v", first, repeat)
			}
		}
		e.stands(e.hold("u", 0, 1000), 1100, 500)

		released := e.take(e.hold("v", 10, 1000))
		e.release(released)
		if res := e.settle(released, 10); !res.Repeated || res.Late {
			e.Fatalf("Settle after Release = %+v", res)
		}
		e.release(released)
		e.stands(e.hold("v", 0, 1000), 0, 0)
	}},
	{"UnknownReservationsAreAnError", func(e *env) {
		_, err := e.Ledger.Settle(e.ctx(), quota.Settle{ID: "nobody", Tree: e.tree})
		if !errors.Is(err, quota.ErrUnknownReservation) {
			e.Errorf("Settle: %v", err)
		}
		if err := e.Ledger.Release(e.ctx(), e.tree, "nobody"); !errors.Is(err, quota.ErrUnknownReservation) {
			e.Errorf("Release: %v", err)
		}
		if lost := e.renew(time.Minute, "nobody"); !slices.Equal(lost, []string{"nobody"}) {
			e.Errorf("Renew lost %q", lost)
		}
	}},
	{"HoldsExpireUnlessTheyAreRenewed", func(e *env) {
		ttl := 5 * time.Minute
		for _, id := range []string{"dies", "lives"} {
			e.reserve(quota.Reserve{ID: id, Tree: e.tree, TTL: ttl, Entries: []quota.Entry{e.hold("u", 100, 1000), e.lease("u", 9)}})
		}
		e.Pass(ttl - time.Minute)
		if lost := e.renew(ttl, "lives"); len(lost) != 0 {
			e.Fatalf("Renew lost %q", lost)
		}
		e.stands(e.hold("u", 0, 1000), 0, 200)
		e.Pass(time.Minute + e.Slack)
		e.stands(e.hold("u", 0, 1000), 0, 100)
		e.stands(e.lease("u", 9), 0, 1)
		if lost := e.renew(ttl, "dies", "lives"); !slices.Equal(lost, []string{"dies"}) {
			e.Fatalf("Renew lost %q, want the one that has expired", lost)
		}
		e.Pass(ttl + e.Slack)
		e.stands(e.hold("u", 0, 1000), 0, 0)
		e.stands(e.lease("u", 9), 0, 0)
	}},
	{"StatusLeavesOutWhatHasExpiredHoweverManyThereAre", func(e *env) {
		const holds = 100 // more than a store may look at in one step
		ttl := 5 * time.Minute
		for i := range holds {
			e.reserve(quota.Reserve{ID: fmt.Sprint("dies-", i), Tree: e.tree, TTL: ttl, Entries: []quota.Entry{
				e.hold("u", 1, holds+1), e.lease("u", holds+1), e.rolling("u", quota.Hold, 1, 1000, 1000, 0),
			}})
		}
		e.reserve(quota.Reserve{ID: "lives", Tree: e.tree, TTL: 2 * ttl, Entries: []quota.Entry{e.hold("u", 1, holds+1), e.lease("u", holds+1)}})
		e.Pass(ttl + e.Slack)
		e.stands(e.hold("u", 0, holds+1), 0, 1)
		e.stands(e.lease("u", holds+1), 0, 1)
		e.stands(e.rolling("u", quota.Hold, 0, 1000, 1000, 0), 0, 0)
	}},
	{"DefaultTTLIsTenMinutes", func(e *env) {
		e.take(e.hold("u", 100, 1000))
		e.Pass(10*time.Minute - e.Slack - 1)
		e.stands(e.hold("u", 0, 1000), 0, 100)
		e.Pass(1 + e.Slack + e.Resolution)
		e.stands(e.hold("u", 0, 1000), 0, 0)
	}},
	{"LateSettleIsAFlaggedDebit", func(e *env) {
		id := e.take(e.hold("u", 100, 100), e.lease("u", 1))
		e.Pass(quota.DefaultTTL + e.Slack)
		other := e.take(e.hold("u", 80, 100), e.lease("u", 1))
		if res := e.settle(id, 90); !res.Late || !res.Over || res.Repeated || res.Status[0].Committed != 90 || res.Status[0].Reserved != 80 {
			e.Fatalf("late Settle = %+v", res)
		}
		if res := e.settle(id, 90); !res.Late || !res.Repeated {
			e.Fatalf("repeated late Settle = %+v", res)
		}
		e.stands(e.lease("u", 1), 0, 1)
		e.settle(other, 80)
		e.stands(e.hold("u", 0, 100), 170, 0)
	}},
	{"ReleaseAfterExpiryEndsIt", func(e *env) {
		id := e.take(e.hold("u", 100, 100))
		e.Pass(quota.DefaultTTL + e.Slack)
		e.release(id)
		if res := e.settle(id, 90); !res.Repeated {
			e.Fatalf("Settle after it was released = %+v", res)
		}
		e.stands(e.hold("u", 0, 100), 0, 0)
	}},
	{"AdjustmentsCorrectTheWholeCallInOrder", func(e *env) {
		id := e.take(e.hold("u", 100, 1000))
		e.take(e.hold("u", 5, 1000))
		e.settle(id, 100)
		adjust := func(seq, used int64, want int64, repeated bool) {
			e.Helper()
			res := e.settleWith(quota.Settle{ID: id, Adjust: true, Seq: seq, Actual: quota.Amounts{quota.Tokens: used}})
			if res.Repeated != repeated || res.Status[0].Committed != want {
				e.Fatalf("adjustment %d to %d = %+v, want %d committed, repeated %v", seq, used, res, want, repeated)
			}
			e.stands(e.hold("u", 0, 1000), want, 5)
		}
		adjust(1, 40, 40, false)
		adjust(1, 40, 40, true)
		adjust(3, 70, 70, false)
		adjust(2, 10, 70, true)
		adjust(4, 0, 0, false)
		adjust(5, 30, 30, false)
	}},
	{"SettleMayBringFurtherCounters", func(e *env) {
		id := e.take(e.hold("u", 100, 1000))
		id2 := e.take(e.calendar("checked", quota.Check, 1, 10), e.calendar("counted", quota.Count, 1, 10))
		e.settleWith(quota.Settle{ID: id2, More: []quota.Entry{e.calendar("checked", quota.Count, 4, 10), e.calendar("counted", quota.Count, 4, 10)}})
		e.stands(e.hold("checked", 0, 10), 4, 0)
		e.stands(e.hold("counted", 0, 10), 5, 0)
		more := e.calendar("agent", quota.Count, 30, 20)
		more.Thresholds = []int{100}
		res := e.settleWith(quota.Settle{ID: id, Actual: quota.Amounts{quota.Tokens: 30}, More: []quota.Entry{more, e.hold("u", 99, 1000)}})
		if len(res.Status) != 2 || res.Status[1].Committed != 30 || !res.Over || len(res.Crossed) != 1 || res.Crossed[0].Counter.Key != "agent" {
			e.Fatalf("Settle = %+v", res)
		}
		more.Amount = 50
		e.settleWith(quota.Settle{ID: id, Adjust: true, Seq: 1, Actual: quota.Amounts{quota.Tokens: 50}, More: []quota.Entry{more}})
		e.stands(e.hold("u", 0, 1000), 50, 0)
		e.stands(more, 50, 0)
	}},
	{"ParallelEndsTakeEffectOnce", func(e *env) {
		for range 20 {
			e.newTree()
			id := e.take(e.hold("u", 10, 100), e.lease("u", 5))
			begin, done := make(chan struct{}), make(chan bool)
			for i := range 6 {
				go func() {
					<-begin
					if i%2 == 0 {
						done <- e.Ledger.Release(e.ctx(), e.tree, id) == nil && false
						return
					}
					res, err := e.Ledger.Settle(e.ctx(), quota.Settle{ID: id, Tree: e.tree, Actual: quota.Amounts{quota.Tokens: 3}})
					done <- err == nil && !res.Repeated
				}()
			}
			close(begin)
			settled := 0
			for range 6 {
				if <-done {
					settled++
				}
			}
			if settled > 1 {
				e.Fatalf("settled %d times", settled)
			}
			e.stands(e.hold("u", 0, 100), int64(settled)*3, 0)
			e.stands(e.lease("u", 5), 0, 0)
		}
	}},
	{"SumsAreExact", func(e *env) {
		passed := 0
		for range 15 { // of 0.10 each, until 1.00 is spent
			id := budget.NewID()
			if e.try(id, e.hold("dime", 100_000, 1_000_000)).Denied < 0 {
				e.settle(id, 100_000)
				passed++
			}
		}
		if passed != 10 {
			e.Fatalf("%d charges passed, want 10", passed)
		}
		e.stands(e.hold("dime", 0, 1_000_000), 1_000_000, 0)

		n := int64(e.Steps)
		big := int64(quota.MaxAmount)
		id := e.take(e.hold("many", big-n, big))
		e.settle(id, big-n)
		for i := range n {
			if i%10 == 0 {
				e.settle(e.take(e.hold("many", 5, big)), 1)
				continue
			}
			e.take(e.calendar("many", quota.Count, 1, big))
		}
		e.stands(e.hold("many", 0, big), big, 0)
		e.refuse(0, e.calendar("many", quota.Count, 1, big))
	}},
	{"NothingOverflows", func(e *env) {
		// A store may end before math.MaxInt64, but must say no then.
		for _, limit := range []int64{-1, math.MaxInt64} {
			e.newTree()
			for i := range 4 {
				id := fmt.Sprint("call-", i)
				res, err := e.Ledger.Reserve(e.ctx(), quota.Reserve{ID: id, Tree: e.tree, Entries: []quota.Entry{e.hold("u", math.MaxInt64-1, limit)}})
				if err != nil || res.Denied >= 0 {
					continue
				}
				e.settle(id, math.MaxInt64)
			}
			st := e.status(e.hold("u", 0, limit))
			if st.Committed < 0 || st.Reserved != 0 {
				e.Fatalf("stands at %+v", st)
			}
		}
	}},
}
