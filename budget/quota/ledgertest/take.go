package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// What Reserve takes, and what it does not.
var takeTests = []test{
	{"ReserveTakesAllEntriesOrNone", func(e *env) {
		e.take(e.hold("user", 50, 50))
		res := e.refuse(1, e.hold("session", 100, 500), e.hold("user", 100, 140), e.hold("tenant", 100, 1000))
		if st := res.Status[1]; st.Committed != 0 || st.Reserved != 50 || st.Limit != 140 || st.Counter.Key != "user" {
			e.Fatalf("the denied entry stands at %+v", st)
		}
		for key, reserved := range map[string]int64{"session": 0, "user": 50, "tenant": 0} {
			e.stands(e.hold(key, 0, 1000), 0, reserved)
		}
	}},
	{"ParallelReservesNeverOverspend", func(e *env) {
		for _, first := range []bool{true, false} { // a key that is known, and one never seen
			key := fmt.Sprint("session-", first)
			if first {
				e.release(e.take(e.hold(key, 1, 300)))
			}
			var mu sync.Mutex
			var wg sync.WaitGroup
			begin, passed := make(chan struct{}), 0
			for range 10 {
				wg.Go(func() {
					<-begin
					res, err := e.Ledger.Reserve(e.ctx(), quota.Reserve{
						ID: budget.NewID(), Tree: e.tree, Entries: []quota.Entry{e.hold(key, 100, 300)},
					})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						e.Error(err)
					}
					if res.Denied < 0 {
						passed++
					}
				})
			}
			close(begin)
			wg.Wait()
			if passed != 3 {
				e.Fatalf("%d of 10 passed, want 3", passed)
			}
			e.stands(e.hold(key, 0, 300), 0, 300)
		}
	}},
	{"DenialsAreNotCounted", func(e *env) {
		for i := range 50 {
			res := e.try(fmt.Sprint("try-", i), e.calendar("u", quota.Count, 1, 10))
			if (res.Denied < 0) != (i < 10) {
				e.Fatalf("try %d: Denied = %d", i, res.Denied)
			}
		}
		passed := 0
		for range 12 {
			if e.try(budget.NewID(), e.calendar("u", quota.Count, 1, 20)).Denied < 0 {
				passed++
			}
		}
		if passed != 10 {
			e.Fatalf("after the limit was raised from 10 to 20, %d pass, want 10", passed)
		}
	}},
	{"DeniedIDMayBeUsedAgain", func(e *env) {
		other := e.take(e.hold("u", 100, 100))
		if res := e.try("again", e.hold("u", 10, 100)); res.Denied != 0 {
			e.Fatalf("Denied = %d, want 0", res.Denied)
		}
		e.release(other)
		if res := e.try("again", e.hold("u", 10, 100)); res.Denied >= 0 || res.Repeated {
			e.Fatalf("Denied = %d, Repeated = %v; want it to pass anew", res.Denied, res.Repeated)
		}
	}},
	{"RepeatedReserveReturnsTheFirstResult", func(e *env) {
		e.take(e.hold("u", 60, 100))
		soft := e.hold("s", 30, 20)
		soft.Soft = true
		count := e.calendar("c", quota.Count, 90, 100)
		count.Thresholds = []int{80, 100}
		entries := []quota.Entry{
			e.hold("u", 40, 100), soft, count,
			e.rolling("r", quota.Hold, 90, 60, 60, 40e9),
			e.calendar("k", quota.Check, 5, 100),
		}
		first := e.try("id", entries...)
		e.settle("id", 7)
		repeat := e.try("id", entries...)
		switch {
		case first.Repeated || !repeat.Repeated:
			e.Fatalf("Repeated = %v, then %v", first.Repeated, repeat.Repeated)
		case repeat.Denied != -1 || first.Wait != 30e9 || repeat.Wait != first.Wait || !repeat.Now.Equal(first.Now),
			fmt.Sprint(first.Over, repeat.Over) != "[1] [1]",
			len(first.Crossed) != 1 || len(repeat.Crossed) != 1 || repeat.Crossed[0].Percent != 80,
			!sameStatus(first.Status, repeat.Status):
			e.Fatalf("first:  %+v\nrepeat: %+v", first, repeat)
		}
		e.stands(e.hold("u", 0, 100), 7, 60)
		e.stands(count, 90, 0)
	}},
	{"RoomChangesNoResult", func(e *env) {
		dirty := func() []quota.Status {
			room := make([]quota.Status, 3, 5)
			for i := range room[:5] {
				room[:5][i] = quota.Status{Limit: 99, Committed: 99, Rolling: true, FullAt: e.Now(), Span: e.span(7)}
			}
			return room
		}
		for n, entries := range [][]quota.Entry{
			{e.hold("u", 40, 100), e.rolling("u", quota.Hold, 0, 60, 60, 0)},
			{e.hold("u", 61, 100), e.lease("u", 1)}, // denied
			make([]quota.Entry, 0, 1),
			{e.hold("a", 1, 9), e.hold("b", 1, 9), e.hold("c", 1, 9), e.hold("d", 1, 9), e.hold("e", 1, 9), e.hold("f", 1, 9)},
		} {
			r := quota.Reserve{ID: fmt.Sprint("with-", n), Tree: e.tree, Entries: entries, Room: dirty()}
			with := e.reserve(r)
			if with.Denied < 0 {
				e.release(r.ID)
			}
			r.ID, r.Room = fmt.Sprint("without-", n), nil
			without := e.reserve(r)
			if !sameStatus(with.Status, without.Status) || with.Denied != without.Denied {
				e.Fatalf("with room:    %+v\nwithout room: %+v", with, without)
			}
			if with.Denied >= 0 {
				continue
			}
			s := quota.Settle{ID: r.ID, Room: dirty()}
			settled := e.settleWith(s)
			s.Room = nil
			if repeat := e.settleWith(s); !sameStatus(settled.Status, repeat.Status) {
				e.Fatalf("with room:    %+v\nwithout room: %+v", settled, repeat)
			}
		}
	}},
	{"TreesAreApart", func(e *env) {
		e.try("same", e.hold("u", 10, 10))
		tree, anchor := e.tree, e.anchor
		e.newTree()
		if res := e.try("same", e.hold("u", 10, 10)); res.Denied >= 0 || res.Repeated {
			e.Fatalf("Denied = %d, Repeated = %v in another tree", res.Denied, res.Repeated)
		}
		e.settle("same", 3)
		e.stands(e.hold("u", 0, 10), 3, 0)
		e.tree, e.anchor = tree, anchor
		e.stands(e.hold("u", 0, 10), 0, 10)
	}},
	{"CountersAreApart", func(e *env) {
		a, b, c, d := e.hold("k", 1, 9), e.hold("k", 2, 9), e.hold("k", 4, 9), e.hold("K", 8, 9)
		b.Unit = quota.Money
		c.Window = "other"
		roll := e.rolling("k", quota.Hold, 5, 60, 60, 0)
		id := e.take(a, b, c, d, roll)
		for i, x := range []quota.Entry{a, b, c, d} {
			e.stands(x, 0, 1<<i)
		}
		e.settleWith(quota.Settle{ID: id, Actual: quota.Amounts{quota.Tokens: 3, quota.Money: 7}})
		e.stands(a, 3, 0)
		e.stands(b, 7, 0)
		e.stands(c, 3, 0)
		e.stands(d, 3, 0)
	}},
	{"CountIsSpentAtOnceAndStays", func(e *env) {
		id := e.take(e.calendar("u", quota.Count, 3, 10), e.lease("u", 2))
		e.stands(e.calendar("u", quota.Count, 0, 10), 3, 0)
		e.release(id)
		e.stands(e.calendar("u", quota.Count, 0, 10), 3, 0)
		e.stands(e.lease("u", 2), 0, 0)
	}},
	{"LeasesComeBack", func(e *env) {
		first, second := e.take(e.lease("u", 2)), e.take(e.lease("u", 2))
		if res := e.refuse(0, e.lease("u", 2)); res.Never || res.RetryAfter != 0 {
			e.Fatalf("Never = %v, RetryAfter = %v; nobody knows when a lease comes back", res.Never, res.RetryAfter)
		}
		e.release(first)
		e.take(e.lease("u", 2))
		e.refuse(0, e.lease("u", 2))
		e.settle(second, 0)
		e.take(e.lease("u", 2))
		e.release(second) // again, which frees nothing
		e.refuse(0, e.lease("u", 2))
	}},
	{"CheckTakesNothing", func(e *env) {
		id := e.take(e.hold("u", 90, 100))
		e.take(e.calendar("u", quota.Check, 10, 100))
		e.take(e.calendar("u", quota.Check, 0, 100))
		e.refuse(0, e.calendar("u", quota.Check, 11, 100))
		e.stands(e.hold("u", 0, 100), 0, 90)
		e.settle(id, 100)
		res := e.refuse(1, e.hold("other", 1, 10), e.calendar("u", quota.Check, 0, 100))
		e.about("RetryAfter", res.RetryAfter, e.span(0).End.Sub(e.Now()))
		e.stands(e.hold("other", 0, 10), 0, 0)
	}},
	{"ExclusiveReservationsGoOneAtATime", func(e *env) {
		r := quota.Reserve{ID: "first", Tree: e.tree, Exclusive: "alice", TTL: 60e9, Entries: []quota.Entry{e.hold("u", 10, 100)}}
		e.reserve(r)
		r.ID = "second"
		res := e.reserve(r)
		if !res.Held || res.Denied != -1 {
			e.Fatalf("Held = %v, Denied = %d; want it held back", res.Held, res.Denied)
		}
		e.about("RetryAfter", res.RetryAfter, 60e9)
		e.stands(r.Entries[0], 0, 10)
		e.take(e.hold("u", 10, 100)) // one that is not exclusive
		other := r
		other.ID, other.Exclusive = "third", "bob"
		if e.reserve(other).Held {
			e.Fatal("another value was held back")
		}
		e.settle("first", 10)
		if e.reserve(r).Held {
			e.Fatal("held back after the first was settled")
		}
		e.Pass(60e9 + e.Slack + e.Resolution)
		r.ID = "fourth"
		if e.reserve(r).Held {
			e.Fatal("held back by one that has expired")
		}
	}},
	{"BadInputIsAnErrorThatNamesTheField", func(e *env) {
		good := e.hold("u", 1, 10)
		change := func(f func(x *quota.Entry)) []quota.Entry {
			x := good
			f(&x)
			return []quota.Entry{x}
		}
		for want, r := range map[string]quota.Reserve{
			"ID has 0 bytes":          {Entries: []quota.Entry{good}},
			"ID has 129 bytes":        {ID: strings.Repeat("x", 129)},
			"TTL is -1ns":             {ID: "x", TTL: -1},
			"Entries[0].Amount is -1": {ID: "x", Entries: change(func(x *quota.Entry) { x.Amount = -1 })},
			"Entries[0].Kind is 9":    {ID: "x", Entries: change(func(x *quota.Entry) { x.Kind = 9 })},
			"Entries[0].Unit is 99":   {ID: "x", Entries: change(func(x *quota.Entry) { x.Unit = 99 })},
			"Entries[0].Per is 0s":    {ID: "x", Entries: change(func(x *quota.Entry) { x.Rolling = true })},
			"Entries[0].Burst is -2": {ID: "x", Entries: change(func(x *quota.Entry) {
				x.Rolling, x.Per, x.Burst = true, 1, -2
			})},
			"Entries[0].MaxWait is -3ns": {ID: "x", Entries: change(func(x *quota.Entry) {
				x.Rolling, x.Per, x.MaxWait = true, 1, -3
			})},
			"Entries[0].Kind is Lease": {ID: "x", Entries: change(func(x *quota.Entry) {
				x.Rolling, x.Per, x.Kind = true, 1, quota.Lease
			})},
			"Entries[0].Spans[1] is from": {ID: "x", Entries: change(func(x *quota.Entry) {
				x.Spans[1].End = x.Spans[1].Start
			})},
			"Entries[0].Thresholds[1] is 80": {ID: "x", Entries: change(func(x *quota.Entry) { x.Thresholds = []int{80, 80} })},
			"Entries[1].Counter is the same": {ID: "x", Entries: []quota.Entry{good, good}},
			"Entries has 65 entries":         {ID: "x", Entries: make([]quota.Entry, 65)},
		} {
			r.Tree = e.tree
			if _, err := e.Ledger.Reserve(e.ctx(), r); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, quota.ErrUnavailable) {
				e.Errorf("error is %v, want one with %q", err, want)
			}
		}
		id := e.take(good)
		_, err := e.Ledger.Settle(e.ctx(), quota.Settle{ID: id, Tree: e.tree, Actual: quota.Amounts{quota.Tokens: -100}})
		if err == nil || !strings.Contains(err.Error(), "Actual[tokens] is -100") {
			e.Errorf("error for a negative use is %v", err)
		}
		if _, err := e.Ledger.TopUp(e.ctx(), e.tree, good, -1); err == nil || !strings.Contains(err.Error(), "amount is -1") {
			e.Errorf("error for a negative top-up is %v", err)
		}
		if _, err := e.Ledger.Renew(e.ctx(), e.tree, -1, id); err == nil || !strings.Contains(err.Error(), "ttl is -1ns") {
			e.Errorf("error for a negative ttl is %v", err)
		}
		e.stands(good, 0, 1)
	}},
	{"EndedContextLeavesNoTrace", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		cancel()
		_, err := e.Ledger.Reserve(ctx, quota.Reserve{ID: "x", Tree: e.tree, Entries: []quota.Entry{e.hold("u", 1, 10)}})
		if !errors.Is(err, context.Canceled) {
			e.Fatalf("error is %v, want that of the context", err)
		}
		e.stands(e.hold("u", 0, 10), 0, 0)
	}},
	{"ClosedLedgerIsUnavailable", func(e *env) {
		if err := e.Ledger.Healthy(e.ctx()); err != nil {
			e.Fatalf("Healthy: %v", err)
		}
		if err := e.Ledger.Flush(e.ctx()); err != nil {
			e.Fatalf("Flush: %v", err)
		}
		if err := e.Ledger.Close(e.ctx()); err != nil {
			e.Fatalf("Close: %v", err)
		}
		if err := e.Ledger.Healthy(e.ctx()); !errors.Is(err, quota.ErrUnavailable) {
			e.Fatalf("Healthy after Close: %v", err)
		}
	}},
}
