package ledgertest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// What limits say.
var limitTests = []test{
	{"WhatALimitLetsPass", func(e *env) {
		for _, c := range []struct {
			spent, held, amount, limit int64
			pass, never                bool
		}{
			{0, 0, 100, 100, true, false},
			{0, 0, 101, 100, false, true},
			{60, 0, 40, 100, true, false},
			{60, 0, 41, 100, false, false},
			{30, 30, 40, 100, true, false},
			{30, 30, 41, 100, false, false},
			{0, 0, 1, 0, false, true}, // 0 lets nothing pass
			{0, 0, 0, 0, true, false}, // but what is free
			{130, 0, 1, 100, false, false},
			{130, 0, 0, 100, true, false},
			{1 << 40, 5, 1 << 50, -1, true, false}, // no limit
		} {
			e.newTree()
			e.settle(e.take(e.hold("u", 0, -1)), c.spent)
			e.take(e.hold("u", c.held, -1))
			res := e.try(budget.NewID(), e.hold("u", c.amount, c.limit))
			if (res.Denied < 0) != c.pass || res.Never != c.never {
				e.Errorf("%+v: Denied = %d, Never = %v", c, res.Denied, res.Never)
			}
			if !c.pass && (res.RetryAfter == 0) != c.never {
				e.Errorf("%+v: RetryAfter = %v", c, res.RetryAfter)
			}
		}
	}},
	{"RetryAfterIsThatOfTheLongestWait", func(e *env) {
		e.take(e.hold("u", 100, 100), e.rolling("u", quota.Count, 60, 60, 60, 0), e.lease("u", 1))
		res := e.refuse(0, e.rolling("u", quota.Hold, 30, 60, 60, 0), e.hold("u", 1, 100))
		e.about("RetryAfter", res.RetryAfter, e.span(0).End.Sub(e.Now()))
		res = e.refuse(0, e.rolling("u", quota.Hold, 30, 60, 60, 0))
		e.about("RetryAfter", res.RetryAfter, 30*time.Second)
		res = e.refuse(0, e.hold("u", 1, 100), e.lease("u", 1))
		if res.RetryAfter != 0 {
			e.Fatalf("RetryAfter = %v, want 0: time does not bring the lease back", res.RetryAfter)
		}
		res = e.refuse(1, e.hold("v", 1, 100), e.hold("w", 101, 100), e.hold("u", 1, 100))
		if !res.Never || res.RetryAfter != 0 {
			e.Fatalf("Never = %v, RetryAfter = %v", res.Never, res.RetryAfter)
		}
	}},
	{"LimitChangesKeepWhatWasSpent", func(e *env) {
		e.settle(e.take(e.hold("u", 150, 200)), 150)
		inFlight := e.take(e.hold("u", 30, 200))
		st := e.refuse(0, e.hold("u", 1, 50)).Status[0]
		if st.Left() != 0 || !st.Span.End.Equal(e.span(0).End) {
			e.Fatalf("after the limit became 50: %+v, left %d", st, st.Left())
		}
		e.settle(inFlight, 30)
		for limit, left := range map[int64]int64{50: 0, 200: 20, 500: 320, -1: -1} {
			if st := e.status(e.hold("u", 0, limit)); st.Left() != left || st.Committed != 180 {
				e.Errorf("with a limit of %d: %+v, left %d, want %d", limit, st, st.Left(), left)
			}
		}
		e.take(e.hold("u", 320, 500))
		e.refuse(0, e.hold("u", 1, 500))
	}},
	{"SoftLimitsAreTakenUpToTheirCeiling", func(e *env) {
		soft := func(amount int64) quota.Entry {
			x := e.hold("u", amount, 100)
			x.Soft, x.Ceiling = true, 120
			return x
		}
		for i, c := range []struct {
			amount     int64
			pass, over bool
			reserved   int64
		}{
			{100, true, false, 100}, {15, true, true, 115}, {6, false, false, 115}, {5, true, true, 120}, {1, false, false, 120},
		} {
			res := e.try(fmt.Sprint("call-", i), soft(c.amount))
			if (res.Denied < 0) != c.pass || (len(res.Over) == 1) != c.over || res.Never || res.Status[0].Reserved != c.reserved {
				e.Fatalf("call %d: %+v, want %+v", i, res, c)
			}
		}
		e.newTree()
		if res := e.refuse(0, soft(121)); !res.Never {
			e.Fatal("what is above the ceiling may pass some day")
		}
		open := soft(1 << 40)
		open.Ceiling = -1
		if res := e.try("open", open); res.Denied >= 0 || len(res.Over) != 1 {
			e.Fatalf("without a ceiling: %+v", res)
		}
	}},
	{"ObservedEntriesAreTakenAndReported", func(e *env) {
		observed := e.hold("u", 70, 100)
		observed.Observe = true
		for i, over := range []int{0, 1, 1} {
			res := e.try(fmt.Sprint("call-", i), e.hold("tenant", 10, 100), observed)
			if res.Denied >= 0 || len(res.Over) != over || over == 1 && res.Over[0] != 1 {
				e.Fatalf("call %d: %+v", i, res)
			}
		}
		e.stands(observed, 0, 210)
		res := e.refuse(0, e.hold("tenant", 71, 100), observed)
		if len(res.Over) != 1 || res.Over[0] != 1 {
			e.Fatalf("Over = %v in a denial, want what the observed limit would have said", res.Over)
		}
		e.stands(observed, 0, 210)
		hard := observed
		hard.Soft, hard.Ceiling = true, 150
		if res := e.try("hard", hard); res.Denied >= 0 || len(res.Over) != 1 {
			e.Fatalf("above an observed ceiling: %+v", res)
		}
	}},
}
