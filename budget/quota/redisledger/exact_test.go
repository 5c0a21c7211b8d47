package redisledger_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// Plain numbers of a script end being exact at 2^53.
func TestAmountsAreExactWherePlainNumbersEnd(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	const edge = 1 << 53
	for _, limit := range []int64{edge - 1, edge, edge + 1, math.MaxInt64} {
		tree := fmt.Sprint("limit-", limit)
		count := func(n int64) quota.Entry { return always("u", quota.Count, n, limit) }
		try := func(e quota.Entry) bool {
			t.Helper()
			res, err := l.Reserve(t.Context(), quota.Reserve{ID: fmt.Sprint(tree, e.Amount, time.Now().UnixNano()), Tree: tree, Entries: []quota.Entry{e}})
			if err != nil {
				t.Fatal(err)
			}
			return res.Denied < 0
		}
		take(t, l, tree, count(limit-4))
		for i := range 4 {
			if !try(count(1)) {
				t.Fatalf("limit %d: the last but %d is denied", limit, 3-i)
			}
			stands(t, l, tree, count(0), limit-3+int64(i), 0)
		}
		if try(count(1)) {
			t.Fatalf("limit %d: one more passes", limit)
		}
		if _, err := l.TopUp(t.Context(), tree, count(0), limit/2+1); err != nil {
			t.Fatal(err)
		}
		stands(t, l, tree, count(0), limit-limit/2-1, 0)

		// The same of what is held, and of what it is settled to.
		hold := func(n int64) quota.Entry { return always("held", quota.Hold, n, limit) }
		first, second := take(t, l, tree, hold(limit-3)), take(t, l, tree, hold(2))
		if !try(hold(1)) || try(hold(1)) {
			t.Fatalf("limit %d is not where holds end", limit)
		}
		stands(t, l, tree, hold(0), 0, limit)
		settle(t, l, tree, first, limit-4)
		settle(t, l, tree, second, 3)
		stands(t, l, tree, hold(0), limit-1, 1)
	}
}

func TestNothingIsCountedAboveMaxInt64(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	const most = math.MaxInt64
	first, second := take(t, l, "t", always("u", quota.Hold, most-1, -1)), take(t, l, "t", always("u", quota.Hold, 1, -1))
	soft, observed := always("u", quota.Hold, 1, 5), always("u", quota.Hold, 1, 5)
	soft.Soft, observed.Observe = true, true
	for _, e := range []quota.Entry{always("u", quota.Hold, 1, -1), soft, observed} {
		if res, err := l.Reserve(t.Context(), quota.Reserve{ID: "c", Tree: "t", Entries: []quota.Entry{e}}); err != nil || res.Denied != 0 {
			t.Errorf("above the end of all numbers: %+v, %v", res, err)
		}
	}
	settle(t, l, "t", first, most)
	if res := settle(t, l, "t", second, most); res.Status[0].Committed != most || res.Status[0].Reserved != 0 {
		t.Errorf("Settle = %+v", res)
	}
	rolling := perMinute("u", quota.Hold, most-1, most)
	rolling.MaxWait = 100 * 365 * 24 * time.Hour
	settle(t, l, "t", take(t, l, "t", rolling), most)
	rolling.Amount = most - 1
	if res, err := l.Reserve(t.Context(), quota.Reserve{ID: "e", Tree: "t", Entries: []quota.Entry{rolling}}); err != nil || res.Denied != 0 {
		t.Errorf("rolling, above the end of all numbers: %+v, %v", res, err)
	}
}

// inBubbles makes random runs, each in a bubble of its own with a clock that stands
// still, because rapid itself must see the time that really passes.
func inBubbles(t *testing.T, run func(t *testing.T, rt *rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			run(t, rt)
		})
		if failure != nil {
			panic(failure) // rapid's own, in the goroutine where it waits for it
		}
	})
}

// The suite's model has small amounts only. With large ones Memory says what is right.
func TestLargeAmountsAreThoseOfMemory(t *testing.T) {
	t.Parallel()
	addr := servers.SharedRedis(t).Addr()
	inBubbles(t, func(t *testing.T, rt *rapid.T) {
		l := open(t, connect(t, addr))
		redisledger.SetClock(l, time.Now)
		// Redis forgets in real time, which is none here.
		memory, err := quota.NewMemory(quota.MemoryConfig{Remember: 1000 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		// The limit of a bucket stays: until when it has refilled at one limit, and from
		// when at another, is for a store to say.
		limit := rapid.OneOf(amounts, rapid.SampledFrom([]int64{-1, 7, math.MaxInt64})).Draw(rt, "rolling limit")
		p := &pair{t: t, redis: l, memory: memory, tree: budget.NewID(), limit: limit}
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": p.reserve, "settle": p.settle, "release": p.release, "top up": p.topUp, "pass": p.pass, "": p.check,
		})
	})
}

// amounts are small, and around where something changes.
var amounts = rapid.OneOf(
	rapid.Int64Range(0, 1000),
	rapid.Map(rapid.Int64Range(-3, 3), func(n int64) int64 { return 1<<51 + n }),
	rapid.Map(rapid.Int64Range(-3, 3), func(n int64) int64 { return 1<<52 + n }),
	rapid.Map(rapid.Int64Range(-3, 3), func(n int64) int64 { return 1<<53 + n }),
	rapid.Map(rapid.Int64Range(0, 3), func(n int64) int64 { return math.MaxInt64/2 - n }),
	rapid.Int64Range(0, math.MaxInt64/4),
)

// pair is a ledger in Redis and one in memory, which are told the same.
type pair struct {
	t      *testing.T
	limit  int64 // of the rolling counter
	redis  *redisledger.Ledger
	memory *quota.Memory
	tree   string
	ids    []string
}

func (p *pair) entry(t *rapid.T, i int) quota.Entry {
	label := func(s string) string { return fmt.Sprint(s, i) }
	kind := rapid.SampledFrom([]quota.Kind{quota.Hold, quota.Hold, quota.Count, quota.Check}).Draw(t, label("kind"))
	amount := amounts.Draw(t, label("amount"))
	limit := rapid.OneOf(amounts, rapid.SampledFrom([]int64{-1, math.MaxInt64})).Draw(t, label("limit"))
	if rapid.Bool().Draw(t, label("rolling")) {
		e := perMinute("u", kind, amount, p.limit)
		e.Unit = quota.Credits
		e.Burst = amounts.Draw(t, label("burst"))
		e.MaxWait = rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, label("wait"))
		return e
	}
	e := hourlyAt(time.Now(), "u", kind, amount, limit)
	e.Thresholds = []int{50, 100, 150}
	return e
}

func (p *pair) id(t *rapid.T) string {
	if len(p.ids) == 0 {
		return "unknown"
	}
	return rapid.SampledFrom(p.ids).Draw(t, "id")
}

func (p *pair) reserve(t *rapid.T) {
	id := fmt.Sprint("call-", len(p.ids))
	r := quota.Reserve{ID: id, Tree: p.tree, TTL: time.Hour}
	for i := range rapid.IntRange(1, 2).Draw(t, "entries") {
		if e := p.entry(t, i); !slices.ContainsFunc(r.Entries, func(o quota.Entry) bool { return o.Counter == e.Counter }) {
			r.Entries = append(r.Entries, e)
		}
	}
	got, err := p.redis.Reserve(p.t.Context(), r)
	want, err2 := p.memory.Reserve(p.t.Context(), r)
	if err != nil || err2 != nil {
		t.Fatalf("Reserve(%+v): %v, %v", r, err, err2)
	}
	if want.Denied < 0 {
		p.ids = append(p.ids, id)
	}
	if got.Denied != want.Denied || got.Never != want.Never || !slices.Equal(got.Over, want.Over) ||
		!roundedUp(got.Wait, want.Wait) || !roundedUp(got.RetryAfter, want.RetryAfter) ||
		!sameStatuses(got.Status, want.Status) || !sameCrossings(got.Crossed, want.Crossed) {
		t.Fatalf("Reserve(%+v)\n got: %+v\nwant: %+v", r, got, want)
	}
}

func (p *pair) settle(t *rapid.T) {
	s := quota.Settle{ID: p.id(t), Tree: p.tree, Actual: quota.Amounts{
		quota.Tokens: amounts.Draw(t, "tokens"), quota.Credits: amounts.Draw(t, "credits"),
	}}
	got, err := p.redis.Settle(p.t.Context(), s)
	want, err2 := p.memory.Settle(p.t.Context(), s)
	if (err == nil) != (err2 == nil) {
		t.Fatalf("Settle(%+v): %v, %v", s, err, err2)
	}
	if got.Over != want.Over || got.Late != want.Late || got.Repeated != want.Repeated ||
		!sameStatuses(got.Status, want.Status) || !sameCrossings(got.Crossed, want.Crossed) {
		t.Fatalf("Settle(%+v)\n got: %+v\nwant: %+v", s, got, want)
	}
}

func (p *pair) release(t *rapid.T) {
	id := p.id(t)
	err, err2 := p.redis.Release(p.t.Context(), p.tree, id), p.memory.Release(p.t.Context(), p.tree, id)
	if (err == nil) != (err2 == nil) {
		t.Fatalf("Release(%s): %v, %v", id, err, err2)
	}
}

func (p *pair) topUp(t *rapid.T) {
	e, by := p.entry(t, 0), amounts.Draw(t, "by")
	got, err := p.redis.TopUp(p.t.Context(), p.tree, e, by)
	want, err2 := p.memory.TopUp(p.t.Context(), p.tree, e, by)
	if err != nil || err2 != nil || !sameStatuses([]quota.Status{got}, []quota.Status{want}) {
		t.Fatalf("TopUp(%+v, %d)\n got: %+v, %v\nwant: %+v, %v", e, by, got, err, want, err2)
	}
}

func (p *pair) pass(t *rapid.T) {
	time.Sleep(time.Duration(rapid.Int64Range(1, 40*60*1e6).Draw(t, "microseconds")) * time.Microsecond)
}

func (p *pair) check(t *rapid.T) {
	roll := perMinute("u", quota.Hold, 0, p.limit)
	roll.Unit, roll.Burst = quota.Credits, 1000
	entries := []quota.Entry{hourlyAt(time.Now(), "u", quota.Hold, 0, 1), roll}
	got, err := p.redis.Status(p.t.Context(), p.tree, entries...)
	want, err2 := p.memory.Status(p.t.Context(), p.tree, entries...)
	if err != nil || err2 != nil || !sameStatuses(got, want) {
		t.Fatalf("Status\n got: %+v, %v\nwant: %+v, %v", got, err, want, err2)
	}
}

// roundedUp reports whether a time is another one, rounded up to the microsecond. One of
// centuries may be told as none, or as the longest that there is.
func roundedUp(got, want time.Duration) bool {
	if want > 280*365*24*time.Hour {
		return got == 0 || got > 280*365*24*time.Hour
	}
	return got == (want+time.Microsecond-1)/time.Microsecond*time.Microsecond
}

func sameStatuses(a, b []quota.Status) bool {
	return slices.EqualFunc(a, b, func(x, y quota.Status) bool {
		if x.FullAt.IsZero() != y.FullAt.IsZero() && !beyond(x.FullAt) && !beyond(y.FullAt) ||
			!x.FullAt.IsZero() && !y.FullAt.IsZero() && !x.FullAt.Equal(y.FullAt.Add(time.Microsecond-1).Truncate(time.Microsecond)) {
			return false
		}
		if !x.Span.Start.Equal(y.Span.Start) || !x.Span.End.Equal(y.Span.End) {
			return false
		}
		x.FullAt, x.Span = y.FullAt, y.Span
		return x == y
	})
}

// beyond reports whether a time is centuries away.
func beyond(t time.Time) bool { return t.Year() > 2240 }

func sameCrossings(a, b []quota.Crossing) bool {
	return slices.EqualFunc(a, b, func(x, y quota.Crossing) bool {
		return x.Counter == y.Counter && x.Percent == y.Percent && x.Committed == y.Committed && x.Limit == y.Limit
	})
}

// A bucket keeps apart what its holds have taken, up to a bound; beyond it gives back
// less than Memory, and never more.
func TestRefundsOfManyHoldsAreExactUpToABound(t *testing.T) {
	t.Parallel()
	addr := servers.SharedRedis(t).Addr()
	for _, c := range []struct {
		holds int
		exact bool
	}{{1000, true}, {1200, false}} {
		t.Run(fmt.Sprint(c.holds), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := open(t, connect(t, addr), prefix(t))
				redisledger.SetClock(l, time.Now)
				memory, err := quota.NewMemory(quota.MemoryConfig{})
				if err != nil {
					t.Fatal(err)
				}
				e := perMinute("u", quota.Hold, 100, 60)
				e.Burst = 1 << 30
				var ids []string
				for i := range c.holds {
					ids = append(ids, fmt.Sprint("call-", i))
					for _, ledger := range []quota.Ledger{l, memory} {
						if _, err := ledger.Reserve(t.Context(), quota.Reserve{ID: ids[i], Tree: "t", Entries: []quota.Entry{e}}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Millisecond)
				}
				less := false
				for i := range ids { // in some order
					id := ids[i*7%len(ids)]
					for _, ledger := range []quota.Ledger{l, memory} {
						settle(t, ledger, "t", id, 30)
					}
					got, err := l.Status(t.Context(), "t", e)
					want, err2 := memory.Status(t.Context(), "t", e)
					if err != nil || err2 != nil || got[0].Committed < want[0].Committed || got[0].Reserved != want[0].Reserved {
						t.Fatalf("after %d ends: %+v, %v, want %+v or more missing", i, got, err, want)
					}
					less = less || got[0].Committed > want[0].Committed
				}
				if less == c.exact {
					t.Errorf("less is given back than there was: %v", less)
				}
			})
		})
	}
}

func TestALargeWindowStaysExactWhenAnotherOneBegins(t *testing.T) {
	t.Parallel()
	client, first := shared(t), time.Now()
	l := open(t, client, prefix(t))
	const large = 1<<53 + 1
	settle(t, l, "t", take(t, l, "t", hourlyAt(first, "u", quota.Hold, 1, -1)), large)
	l = open(t, client, prefix(t)) // which knows of no large amounts
	redisledger.Pass(l, time.Hour)
	take(t, l, "t", hourlyAt(first.Add(time.Hour), "u", quota.Hold, 1, -1))
	past, err := l.History(t.Context(), "t", hourly("u", quota.Hold, 0, 0).Counter, 9)
	if err != nil || len(past) != 1 || past[0].Committed != large {
		t.Errorf("History = %+v, %v, want one window with %d", past, err, int64(large))
	}
}
