package ledgertest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// Rolling counters. Limits are such that refill within Slack does not matter, or
// the tests are for clocks that stand still.
var rollingTests = []test{
	{"BurstPassesThenTheOthersAreToldWhen", func(e *env) {
		if !e.Virtual {
			e.Skip("needs a clock that stands still")
		}
		passed := 0
		for i := range 10 { // within a second, at 20 a minute and a burst of 5
			res := e.try(fmt.Sprint("turn-", i), e.rolling("u", quota.Count, 1, 20, 5, 0))
			if res.Denied < 0 {
				passed++
			} else {
				e.about("RetryAfter", res.RetryAfter, 3*time.Second-time.Duration(i)*100*time.Millisecond)
				if res.Never || res.Status[0].Left() != 0 {
					e.Fatalf("denied turn: %+v", res)
				}
			}
			e.Pass(100 * time.Millisecond)
		}
		if passed != 5 {
			e.Fatalf("%d passed, want 5", passed)
		}
	}},
	{"WaitingAsLongAsToldSucceeds", func(e *env) {
		e.take(e.rolling("u", quota.Count, 7, 7, 7, 0))
		for range 20 {
			res := e.refuse(0, e.rolling("u", quota.Count, 2, 7, 7, time.Second))
			if e.Virtual {
				e.Pass(res.RetryAfter - 1)
				e.refuse(0, e.rolling("u", quota.Count, 2, 7, 7, time.Second))
				e.Pass(1)
			} else {
				e.Pass(res.RetryAfter)
			}
			ok := e.try(budget.NewID(), e.rolling("u", quota.Count, 2, 7, 7, time.Second))
			if ok.Denied >= 0 {
				e.Fatalf("refused after waiting %v: %+v", res.RetryAfter, ok)
			}
			e.Pass(ok.Wait)
		}
	}},
	{"DebtIsWaitedForUpToMaxWait", func(e *env) {
		// 60,000 a minute: 2,000 are left and 6,000 are asked for, so 4,000 must be
		// waited for.
		call := func(amount int64, maxWait time.Duration) quota.Entry {
			return e.rolling("u", quota.Hold, amount, 60_000, 60_000, maxWait)
		}
		if !e.Virtual {
			e.Skip("needs a clock that stands still")
		}
		e.take(call(58_000, 0))
		res := e.refuse(0, call(6_000, 2*time.Second))
		if res.RetryAfter != 2*time.Second || res.Wait != 0 || res.Status[0].Committed != 58_000 || res.Status[0].Left() != 2_000 {
			e.Fatalf("beyond MaxWait: %+v", res)
		}
		res = e.try("waits", call(6_000, 4*time.Second))
		if res.Denied >= 0 || res.Wait != 4*time.Second || res.Status[0].Committed != 64_000 || res.Status[0].Left() != 0 {
			e.Fatalf("within MaxWait: %+v", res)
		}
		if full := res.Status[0].FullAt.Sub(res.Now); full != 64*time.Second {
			e.Fatalf("full in %v, want 64s", full)
		}
		e.Pass(res.Wait)
		if st := e.status(call(0, 0)); st.Committed != 60_000 || st.Left() != 0 {
			e.Fatalf("after the wait: %+v, want nothing left and no debt", st)
		}
		if res := e.refuse(1, call(6_000, 6*time.Second), e.hold("u", 2, 1)); res.Wait != 0 {
			e.Fatalf("denied, and told to wait: %+v", res)
		}
		// On the empty bucket, 6,000 take 6 seconds.
		e.refuse(0, call(6_000, 2*time.Second))
		if res := e.try("six", call(6_000, 6*time.Second)); res.Denied >= 0 || res.Wait != 6*time.Second {
			e.Fatalf("with a MaxWait of 6s: %+v", res)
		}
	}},
	{"WhatCannotPassFromFullNeverFits", func(e *env) {
		for _, c := range []struct {
			amount, limit, burst int64
			wait                 time.Duration
			never                bool
		}{
			{60, 60, 60, 0, false}, {61, 60, 60, 0, true}, {61, 60, 60, time.Second, false}, {62, 60, 60, time.Second, true},
			{1, 0, 0, time.Hour, true}, {1, 0, 60, time.Hour, true}, {5, 60, 0, 5 * time.Second, false}, {1 << 50, -1, 0, 0, false},
		} {
			e.newTree()
			res := e.try(budget.NewID(), e.rolling("u", quota.Hold, c.amount, c.limit, c.burst, c.wait))
			if (res.Denied >= 0) != c.never || res.Never != c.never {
				e.Errorf("%+v: %+v", c, res)
			}
		}
	}},
	{"RefundIsAsIfLessHadBeenTaken", func(e *env) {
		call := func(amount int64) quota.Entry { return e.rolling("u", quota.Hold, amount, 60, 600, 0) }
		id := e.take(call(600))
		e.settle(id, 100)
		if st := e.status(call(0)); st.Committed > 100 || st.Committed < 100-int64(e.Slack.Seconds()+1) {
			e.Fatalf("after the refund: %+v, want 100 missing", st)
		}
		e.release(e.take(call(300)))
		if st := e.status(call(0)); st.Committed > 100 {
			e.Fatalf("after a release: %+v, want no more than 100 missing", st)
		}
	}},
	{"LateRefundDoesNotBringBackWhatFlowedOver", func(e *env) {
		call := func(amount int64) quota.Entry { return e.rolling("u", quota.Hold, amount, 60, 600, 0) }
		for i, idle := range []time.Duration{10 * time.Minute, 9*time.Minute + 59*time.Second} {
			e.newTree()
			first := e.reserve(quota.Reserve{ID: "first", Tree: e.tree, TTL: time.Hour, Entries: []quota.Entry{call(600)}})
			e.Pass(idle)
			second := call(600 - int64(i))
			e.take(second)
			e.release("first")
			// Had the first cost nothing, the bucket would have been full when the
			// second came; so what it took is missing.
			if st := e.status(call(0)); first.Denied >= 0 || st.Committed < second.Amount-int64(e.Slack.Seconds()+1) {
				e.Fatalf("after %v: %+v, want %d missing", idle, st, second.Amount)
			}
		}
	}},
	{"RollingOverrunIsADebt", func(e *env) {
		call := func(amount int64, wait time.Duration) quota.Entry {
			return e.rolling("u", quota.Hold, amount, 60, 60, wait)
		}
		id := e.take(call(60, 0))
		if res := e.settle(id, 3600); !res.Over || res.Status[0].Left() != 0 {
			e.Fatalf("Settle = %+v", res)
		}
		res := e.refuse(0, call(1, 0))
		e.about("RetryAfter", res.RetryAfter, 3541*time.Second)
		e.Pass(res.RetryAfter)
		e.take(call(1, 0))
	}},
	{"ExpiredRollingHoldsComeBackAndLateOnesAreDebited", func(e *env) {
		call := func(amount int64) quota.Entry { return e.rolling("u", quota.Hold, amount, 1, 1000, 0) }
		id := e.take(call(1000))
		e.Pass(quota.DefaultTTL + e.Slack)
		if st := e.status(call(0)); st.Committed != 0 || st.Reserved != 0 {
			e.Fatalf("after it has expired: %+v", st)
		}
		if res := e.settle(id, 500); !res.Late || res.Status[0].Committed != 500 {
			e.Fatalf("late Settle = %+v", res)
		}
	}},
	{"ObservedRollingLimitsDoNotSink", func(e *env) {
		observed := e.rolling("u", quota.Hold, 10, 20, 20, 0)
		observed.Observe = true
		var over int
		for i := range 30 {
			res := e.try(fmt.Sprint("call-", i), observed)
			if res.Denied >= 0 || res.Wait != 0 {
				e.Fatalf("call %d: %+v", i, res)
			}
			over += len(res.Over)
		}
		if over != 28 {
			e.Fatalf("%d of 30 were over, want 28", over)
		}
		e.settle("call-29", 500)
		waits := observed
		waits.Amount, waits.MaxWait = 1, time.Hour
		if res := e.try("waits", waits); res.Wait != 0 || len(res.Over) != 0 {
			e.Fatalf("one that would have to wait: %+v", res)
		}
		e.release("waits")
		enforced := e.rolling("u", quota.Hold, 10, 20, 20, 0)
		res := e.refuse(0, enforced)
		e.about("RetryAfter", res.RetryAfter, 30*time.Second)
	}},
	{"RollingCheckNeedsWhatIsAsked", func(e *env) {
		check := func(amount int64) quota.Entry { return e.rolling("u", quota.Check, amount, 1, 10, 0) }
		e.take(e.rolling("u", quota.Count, 7, 1, 10, 0))
		e.take(check(3), e.hold("u", 1, 10))
		e.take(check(0))
		e.refuse(0, check(4))
		e.take(e.rolling("u", quota.Count, 3, 1, 10, 0))
		res := e.refuse(0, check(0))
		e.about("RetryAfter", res.RetryAfter, time.Minute)
	}},
	{"RollingTopUpAndResetFillTheBucket", func(e *env) {
		call := func(kind quota.Kind, amount int64) quota.Entry { return e.rolling("u", kind, amount, 1, 100, 0) }
		e.take(call(quota.Count, 80))
		held := e.take(call(quota.Hold, 20))
		st, err := e.Ledger.TopUp(e.ctx(), e.tree, call(quota.Hold, 0), 30)
		if err != nil || st.Committed != 70 || st.Left() != 30 {
			e.Fatalf("TopUp = %+v, %v", st, err)
		}
		st, err = e.Ledger.TopUp(e.ctx(), e.tree, call(quota.Hold, 0), 1000)
		if err != nil || st.Committed != 0 || st.Left() != 100 {
			e.Fatalf("TopUp above the burst = %+v, %v", st, err)
		}
		e.take(call(quota.Count, 100))
		if st, err = e.Ledger.Reset(e.ctx(), e.tree, call(quota.Hold, 0)); err != nil || st.Committed != 0 {
			e.Fatalf("Reset = %+v, %v", st, err)
		}
		e.take(call(quota.Count, 100))
		e.release(held)
		if st := e.status(call(quota.Hold, 0)); st.Committed != 100 || st.Reserved != 0 {
			e.Fatalf("after the release of what was reset: %+v", st)
		}
	}},
	{"RollingLimitChangesKeepWhatIsMissing", func(e *env) {
		e.take(e.rolling("u", quota.Count, 80, 10, 100, 0))
		for burst, left := range map[int64]int64{50: 0, 100: 20, 500: 420} {
			if st := e.status(e.rolling("u", quota.Hold, 0, 10, burst, 0)); st.Left() != left {
				e.Errorf("with a burst of %d: %+v, left %d, want %d", burst, st, st.Left(), left)
			}
		}
	}},
}
