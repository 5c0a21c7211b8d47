package redisledger_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
)

// keysOf are the keys with a prefix, and how long each lives.
func keysOf(t testing.TB, client *redis.Client, prefix string) map[string]time.Duration {
	t.Helper()
	lives := map[string]time.Duration{}
	all := client.Scan(t.Context(), 0, prefix+"*", 1000).Iterator()
	for all.Next(t.Context()) {
		ttl, err := client.PTTL(t.Context(), all.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		lives[all.Val()] = ttl
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return lives
}

// Each operation writes the time at which a key expires together with the key: after
// none of them there is a key without.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	ctx := t.Context()
	month := hourly("u", quota.Hold, 10, 100)
	month.Window = "month"
	month.Spans[1].End = month.Spans[1].Start.Add(30 * 24 * time.Hour)
	month.Spans[2] = quota.Span{Start: month.Spans[1].End, End: month.Spans[1].End.Add(30 * 24 * time.Hour)}
	kinds := map[string]bool{}
	var settled, released, renewed string
	for i := range 3 { // in three windows, so that some have passed
		now := time.Now().Add(redisledger.Skew(l))
		entries := []quota.Entry{
			month, hourlyAt(now, "u", quota.Hold, 10, 100), perMinute("u", quota.Hold, 10, 60), lease("u", 9), always("team", quota.Count, 1, -1),
		}
		large := always("large", quota.Hold, 1<<60, -1)
		for _, op := range []struct {
			name string
			do   func() error
		}{
			{"Reserve", func() error { settled = take(t, l, "t", entries...); return nil }},
			{"Reserve of what is there", func() error { released, renewed = take(t, l, "t", entries...), take(t, l, "t", entries...); return nil }},
			{"Reserve that is denied", func() error {
				res, err := l.Reserve(ctx, quota.Reserve{ID: "denied", Tree: "t", Entries: []quota.Entry{hourlyAt(now, "other", quota.Hold, 11, 10)}})
				if err == nil && res.Denied != 0 {
					err = fmt.Errorf("it was not denied: %+v", res)
				}
				return err
			}},
			{"Reserve, exclusive", func() error {
				res, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: "t", Exclusive: "one", TTL: time.Minute, Entries: entries})
				if err == nil && (res.Held || res.Denied >= 0) {
					err = fmt.Errorf("it was not taken: %+v", res)
				}
				return err
			}},
			{"Reserve of a large amount", func() error { settle(t, l, "t", take(t, l, "t", large), 1); return nil }},
			{"Settle", func() error { settle(t, l, "t", settled, 7); return nil }},
			{"Settle that corrects and adds", func() error {
				_, err := l.Settle(ctx, quota.Settle{
					ID: settled, Tree: "t", Adjust: true, Seq: 1, Actual: quota.Amounts{quota.Tokens: 5}, Writer: "w", WriterSeq: int64(i + 1),
					More: []quota.Entry{always("agent", quota.Count, 3, -1)},
				})
				return err
			}},
			{"Release", func() error { return l.Release(ctx, "t", released) }},
			{"Renew", func() error { _, err := l.Renew(ctx, "t", 20*time.Minute, renewed); return err }},
			{"TopUp", func() error { _, err := l.TopUp(ctx, "t", entries[0], 1); return err }},
			{"Reset", func() error { _, err := l.Reset(ctx, "t", entries[2]); return err }},
			{"Status", func() error { _, err := l.Status(ctx, "t", entries...); return err }},
			{"History", func() error { _, err := l.History(ctx, "t", entries[1].Counter, 5); return err }},
			{"Erase", func() error { return l.Erase(ctx, "t", "agent") }},
			{"Healthy", func() error { return l.Healthy(ctx) }},
			{"what comes an hour later", func() error { redisledger.Pass(l, time.Hour); return nil }},
		} {
			if err := op.do(); err != nil {
				t.Fatalf("%s: %v", op.name, err)
			}
			for key, ttl := range keysOf(t, client, prefixOf(t)) {
				_, kind, _ := strings.Cut(key, "}:")
				kind, _, _ = strings.Cut(kind, ":")
				kinds[kind] = true
				// Nothing is kept for more than Forget unless somebody comes back.
				if ttl <= 0 && ttl != -2 || ttl > redisledger.DefaultForget+5*24*time.Hour {
					t.Errorf("after %s, %s lives for %v", op.name, key, ttl)
				}
			}
		}
	}
	all := slices.Sorted(maps.Keys(kinds))
	if got, want := fmt.Sprint(all), "[ a e h o r w x]"; got != want { // the first is that of Healthy
		t.Errorf("there are keys of the kinds %s, want %s", got, want)
	}
}

// What is over does not stay: a user who does not come back costs nothing for long.
func TestKeysLiveAboutAsLongAsTheyMatter(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	id := take(t, l, "t", perMinute("rate", quota.Hold, 10, 60), hourly("hour", quota.Hold, 10, 100))
	settle(t, l, "t", id, 5)
	for key, most := range map[string]time.Duration{
		"r:" + id: time.Hour,                              // Remember
		"a:rate":  3 * time.Hour,                          // the life of the reservation, Remember, and some spare time
		"a:hour":  time.Hour + 12*time.Hour + 2*time.Hour, // its window, as many as are kept, the same
	} {
		key = prefixOf(t) + "{t}:" + key
		if ttl := keysOf(t, client, key)[key]; ttl > most || ttl < most/3 {
			t.Errorf("%s lives for %v, want about %v", key, ttl, most)
		}
	}
}

// openReservations counts the reservations that are still in the index.
func openReservations(t testing.TB, client *redis.Client, index string) int {
	t.Helper()
	n, err := client.ZCount(t.Context(), index, "-inf", "(inf").Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func TestNoScriptSweepsMoreThan32(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	index := prefixOf(t) + "{t}:x"
	for range 100 {
		take(t, l, "t", hourly("u", quota.Hold, 1, -1))
	}
	redisledger.Pass(l, quota.DefaultTTL+time.Second)
	for want := 100; want > 32; { // what fits passes at once
		take(t, l, "t", always("u", quota.Count, 1, -1))
		want -= 32
		// That one is open itself.
		if got := openReservations(t, client, index); got != want+1 {
			t.Fatalf("%d are left, want %d", got, want+1)
		}
		settleAll(t, l, client, index)
	}
}

// settleAll settles what is open and has not expired.
func settleAll(t testing.TB, l *redisledger.Ledger, client *redis.Client, index string) {
	t.Helper()
	now := time.Now().Add(redisledger.Skew(l)).UnixMicro()
	names, err := client.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: index, Start: now, Stop: "(inf", ByScore: true}).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		_, id, _ := strings.Cut(name, "}:r:")
		if err := l.Release(t.Context(), "t", id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHoldsPastTheirExpiryDenyNobodyHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	const holds = 150
	for range holds {
		take(t, l, "t", hourly("u", quota.Hold, 1, holds), perMinute("u", quota.Hold, 1, holds), lease("u", holds))
	}
	for _, e := range []quota.Entry{hourly("u", quota.Hold, 1, holds), lease("u", holds)} {
		if res, err := l.Reserve(t.Context(), quota.Reserve{ID: "early", Tree: "t", Entries: []quota.Entry{e}}); err != nil || res.Denied != 0 {
			t.Fatalf("while they hold: %+v, %v", res, err)
		}
	}
	redisledger.Pass(l, quota.DefaultTTL+time.Second)
	now := time.Now().Add(redisledger.Skew(l))
	soft := hourlyAt(now, "u", quota.Hold, holds, holds)
	soft.Soft = true
	res, err := l.Reserve(t.Context(), quota.Reserve{ID: "all", Tree: "t", Entries: []quota.Entry{soft, perMinute("u", quota.Hold, holds, holds)}})
	if err != nil || res.Denied >= 0 || len(res.Over) > 0 || res.Wait > 0 {
		t.Fatalf("Reserve = %+v, %v", res, err)
	}
	stands(t, l, "t", soft, 0, holds)
	stands(t, l, "t", lease("u", 1), 0, 0)
}

func TestDenialIsNotGivenBeforeEverythingIsSwept(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	for range 70 {
		take(t, l, "t", always("u", quota.Hold, 1, 70))
	}
	redisledger.Pass(l, quota.DefaultTTL+time.Second)
	// 70 are swept in three scripts; then it is denied, as it has no room at all.
	res, err := l.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "t", Entries: []quota.Entry{always("u", quota.Hold, 71, 70)}})
	if err != nil || res.Denied != 0 || !res.Never || res.Status[0].Reserved != 0 {
		t.Fatalf("Reserve = %+v, %v", res, err)
	}
	if n := openReservations(t, client, prefixOf(t)+"{t}:x"); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// A process dies, and nobody touches the tree for weeks: nothing is held for ever.
func TestHoldsOfTheDeadAreGivenBackWheneverSomebodyComes(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	take(t, l, "t", lease("u", 1), always("u", quota.Hold, 100, 100))
	redisledger.Pass(l, 30*24*time.Hour)
	take(t, l, "t", lease("u", 1), always("u", quota.Hold, 100, 100))
	stands(t, l, "t", always("u", quota.Hold, 0, 100), 0, 100)
}

// The index may be given a time that is a little early, and is told it at once when it
// is wrong.
func TestClockOfTheServerDecidesWhenHoldsExpire(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	for i := range 5 {
		take(t, l, "t", always("u", quota.Hold, 20, 100))
		redisledger.Pass(l, []time.Duration{time.Minute, -2 * time.Minute, time.Second, time.Minute, 0}[i])
	}
	// The first was at 0:00, the others at 1:00, -1:00, -0:59 and 0:01; now it is 0:01.
	redisledger.Pass(l, quota.DefaultTTL-30*time.Second)
	stands(t, l, "t", always("u", quota.Hold, 0, 100), 0, 60)
	redisledger.Pass(l, 40*time.Second)
	stands(t, l, "t", always("u", quota.Hold, 0, 100), 0, 20)
	redisledger.Pass(l, time.Minute)
	stands(t, l, "t", always("u", quota.Hold, 0, 100), 0, 0)
}

func TestEraseLeavesNoNameInWhatIsOpen(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	const user = "tenant=acme/user=alice"
	for range 80 { // more than are looked at in one step
		take(t, l, "t", hourly(user, quota.Hold, 1, -1), hourly("tenant=acme", quota.Hold, 1, -1))
	}
	settled := take(t, l, "t", hourly(user, quota.Hold, 1, -1), hourly("tenant=acme", quota.Hold, 1, -1))
	settle(t, l, "t", settled, 1)
	if err := l.Erase(t.Context(), "t", user); err != nil {
		t.Fatal(err)
	}
	for key := range keysOf(t, client, prefixOf(t)) {
		if strings.Contains(key, user) {
			t.Errorf("there is a key %s", key)
		}
		if strings.HasSuffix(key, "}:r:"+settled) || !strings.Contains(key, "}:r:") {
			continue // that one is forgotten in an hour
		}
		if text, err := client.Get(t.Context(), key).Result(); err != nil || strings.Contains(text, user) {
			t.Errorf("%s still names the user (%v)", key, err)
		}
	}
	stands(t, l, "t", hourly("tenant=acme", quota.Hold, 0, -1), 1, 80)
	// A correction of what was settled before does not bring the user back.
	res, err := l.Settle(t.Context(), quota.Settle{ID: settled, Tree: "t", Adjust: true, Seq: 1, Actual: quota.Amounts{quota.Tokens: 9}})
	if err != nil || len(res.Status) != 2 || res.Status[0].Counter.Key != "" || res.Status[1].Committed != 9 {
		t.Errorf("Settle = %+v, %v", res, err)
	}
	stands(t, l, "t", hourly(user, quota.Hold, 0, -1), 0, 0)
}

func TestWritersOfReplayedSettlementsAreNotChargedTwice(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	base := prefixOf(t) + "{t}:"
	ctx, e := t.Context(), hourly("u", quota.Hold, 10, -1)
	s := func(id string, writer string, seq int64) quota.Settle {
		return quota.Settle{ID: id, Tree: "t", Actual: quota.Amounts{quota.Tokens: 7}, Writer: writer, WriterSeq: seq}
	}
	var ids []string
	for seq := range 4 {
		ids = append(ids, take(t, l, "t", e))
		if res, err := l.Settle(ctx, s(ids[seq], "a", int64(seq+1))); err != nil || res.Repeated {
			t.Fatalf("Settle = %+v, %v", res, err)
		}
	}
	lost := take(t, l, "t", e) // its settlement never arrived
	forget := func(id string) {
		t.Helper()
		if n, err := client.Del(ctx, base+"r:"+id).Result(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	for _, id := range append(ids, lost) {
		forget(id)
	}
	for i, id := range ids {
		if res, err := l.Settle(ctx, s(id, "a", int64(i+1))); err != nil || !res.Repeated || len(res.Status) != 0 {
			t.Errorf("what was taken before: %+v, %v", res, err)
		}
	}
	stands(t, l, "t", e, 28, 10)
	for name, x := range map[string]quota.Settle{
		"a number that was never taken": s(lost, "a", 5), "another writer": s(lost, "b", 1), "no writer": s(lost, "", 0),
	} {
		if _, err := l.Settle(ctx, x); !isUnknown(err) {
			t.Errorf("%s: %v, want that it is not known", name, err)
		}
	}
	// Numbers may overtake each other while reservations are known.
	late, early := take(t, l, "t", e), take(t, l, "t", e)
	for id, seq := range map[string]int64{late: 7, early: 6} {
		if res, err := l.Settle(ctx, s(id, "a", seq)); err != nil || res.Repeated {
			t.Errorf("Settle = %+v, %v", res, err)
		}
	}
	if ttl := keysOf(t, client, base+"w:a")[base+"w:a"]; ttl < 24*time.Hour {
		t.Errorf("the number is kept for %v, want a day at least", ttl)
	}
	for want, x := range map[string]quota.Settle{
		"WriterSeq is 0": s(late, "a", 0), "WriterSeq is 1": s(late, "", 1), "WriterSeq is -1": s(late, "a", -1),
		"Writer has 129 bytes": s(late, strings.Repeat("x", 129), 1),
	} {
		if _, err := l.Settle(ctx, x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

func isUnknown(err error) bool {
	return err != nil && strings.Contains(err.Error(), quota.ErrUnknownReservation.Error())
}

func TestReservationsAreRememberedFromTheirEnd(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t), func(c *redisledger.Config) { c.Remember = 2 * time.Hour })
	id := take(t, l, "t", hourly("u", quota.Hold, 1, 10))
	name := prefixOf(t) + "{t}:r:" + id
	if ttl := keysOf(t, client, name)[name]; ttl < redisledger.DefaultForget {
		t.Errorf("an open one lives for %v: it must outlive what it holds in", ttl)
	}
	if err := l.Release(context.Background(), "t", id); err != nil {
		t.Fatal(err)
	}
	if ttl := keysOf(t, client, name)[name]; ttl > 2*time.Hour || ttl < 2*time.Hour-time.Minute {
		t.Errorf("it is remembered for %v, want 2h", ttl)
	}
}

func TestWhatASettlementBringsWithoutALimitIsNotTakenForErased(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	id := take(t, l, "t", hourly("u", quota.Hold, 1, -1))
	free := perMinute("free", quota.Count, 5, 0)
	free.Limit = -1
	for seq := range int64(3) { // settled, corrected, and a repeat of that
		res, err := l.Settle(t.Context(), quota.Settle{
			ID: id, Tree: "t", Adjust: true, Seq: min(seq, 1), Actual: quota.Amounts{quota.Tokens: 1}, More: []quota.Entry{free},
		})
		if err != nil || len(res.Status) != 2 || res.Status[1].Counter != free.Counter {
			t.Errorf("Settle = %+v, %v, want two statuses, the second of %v", res, err, free.Counter)
		}
	}
}

func TestWhatHasExpiredCountsInNoSettlement(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		settle func(l *redisledger.Ledger, id string) (quota.Settled, error)
	}{
		{"corrected", func(l *redisledger.Ledger, id string) (quota.Settled, error) {
			settle(t, l, "t", id, 1)
			take(t, l, "t", always("u", quota.Hold, 95, 100))
			redisledger.Pass(l, quota.DefaultTTL+time.Second)
			return l.Settle(t.Context(), quota.Settle{ID: id, Tree: "t", Actual: quota.Amounts{quota.Tokens: 9}, Adjust: true, Seq: 1})
		}},
		{"late", func(l *redisledger.Ledger, id string) (quota.Settled, error) {
			redisledger.Pass(l, quota.DefaultTTL+time.Second)
			stands(t, l, "t", always("u", quota.Hold, 0, 100), 0, 0)
			take(t, l, "t", always("u", quota.Hold, 95, 100))
			redisledger.Pass(l, quota.DefaultTTL+time.Second)
			return l.Settle(t.Context(), quota.Settle{ID: id, Tree: "t", Actual: quota.Amounts{quota.Tokens: 9}})
		}},
		{"with another counter", func(l *redisledger.Ledger, id string) (quota.Settled, error) {
			take(t, l, "t", always("other", quota.Hold, 95, 100))
			redisledger.Pass(l, quota.DefaultTTL-time.Second)
			if lost, err := l.Renew(t.Context(), "t", time.Hour, id); err != nil || len(lost) > 0 {
				t.Fatalf("Renew lost %q, %v", lost, err)
			}
			redisledger.Pass(l, 2*time.Second)
			return l.Settle(t.Context(), quota.Settle{
				ID: id, Tree: "t", Actual: quota.Amounts{quota.Tokens: 9}, More: []quota.Entry{always("other", quota.Count, 9, 100)},
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := open(t, shared(t), prefix(t))
			res, err := tt.settle(l, take(t, l, "t", always("u", quota.Hold, 1, 100)))
			if err != nil || res.Over || len(res.Status) == 0 {
				t.Fatalf("Settle = %+v, %v, and nothing is above its limit", res, err)
			}
			for _, st := range res.Status {
				if st.Committed != 9 || st.Reserved != 0 {
					t.Errorf("%s stands at %d committed and %d reserved, want 9 and 0", st.Counter.Key, st.Committed, st.Reserved)
				}
			}
		})
	}
}

func TestAWindowThatIsOnlyLookedPastIsKeptOnce(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	first := time.Now()
	settled := take(t, l, "t", hourlyAt(first, "u", quota.Hold, 30, 100))
	settle(t, l, "t", settled, 30)
	redisledger.Pass(l, time.Hour)
	now := first.Add(time.Hour)
	for range 2 { // as admissions do, which check what others spend
		take(t, l, "t", hourlyAt(now, "u", quota.Check, 0, 100), hourlyAt(now, "tenant", quota.Count, 1, 100))
	}
	s := quota.Settle{ID: settled, Tree: "t", Adjust: true, Seq: 1, Actual: quota.Amounts{quota.Tokens: 40}}
	for range 2 {
		if res, err := l.Settle(t.Context(), s); err != nil || res.Status[0].Committed != 40 {
			t.Fatalf("Settle = %+v, %v", res, err)
		}
		past, err := l.History(t.Context(), "t", hourly("u", quota.Hold, 0, 0).Counter, 9)
		if err != nil || len(past) != 1 || past[0].Committed != 40 {
			t.Fatalf("History = %+v, %v, want one window with 40", past, err)
		}
		take(t, l, "t", hourlyAt(now, "u", quota.Hold, 1, 100))
	}
}

func TestWhoComesLateTakesNothingFromTheNextOne(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	only := func(id string) quota.Reserved {
		t.Helper()
		res, err := l.Reserve(t.Context(), quota.Reserve{
			ID: id, Tree: "t", Entries: []quota.Entry{hourly("of "+id, quota.Hold, 1, -1)}, Exclusive: "session",
		})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	only("first")
	redisledger.Pass(l, quota.DefaultTTL+time.Second)
	if res := only("second"); res.Held {
		t.Fatalf("Reserve = %+v, and what holds has expired", res)
	}
	if res := settle(t, l, "t", "first", 1); !res.Late {
		t.Errorf("Settle = %+v, want late", res)
	}
	if res := only("third"); !res.Held {
		t.Errorf("Reserve = %+v, want held by the second", res)
	}
}

func TestASettlementIsLateHoweverManyHaveExpired(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t))
	for range 40 { // more than are swept in one step
		take(t, l, "t", hourly("u", quota.Hold, 1, -1))
	}
	id := take(t, l, "t", hourly("u", quota.Hold, 5, -1))
	redisledger.Pass(l, quota.DefaultTTL+time.Second)
	if res := settle(t, l, "t", id, 3); !res.Late {
		t.Errorf("Settle = %+v, want late", res)
	}
	stands(t, l, "t", hourly("u", quota.Hold, 0, -1), 3, 0)
}

func TestAWindowInWhichSomethingIsHeldIsKeptBesides(t *testing.T) {
	t.Parallel()
	l := open(t, shared(t), prefix(t), func(c *redisledger.Config) { c.KeepWindows = 1 })
	first, id := time.Now(), budget.NewID()
	settle(t, l, "t", take(t, l, "t", hourlyAt(first, "u", quota.Hold, 20, -1)), 20)
	res, err := l.Reserve(t.Context(), quota.Reserve{
		ID: id, Tree: "t", Entries: []quota.Entry{hourlyAt(first, "u", quota.Hold, 5, -1)}, TTL: 24 * time.Hour,
	})
	if err != nil || res.Denied >= 0 {
		t.Fatalf("Reserve = %+v, %v", res, err)
	}
	for n := range 4 {
		redisledger.Pass(l, time.Hour)
		settle(t, l, "t", take(t, l, "t", hourlyAt(first.Add(time.Duration(n+1)*time.Hour), "u", quota.Hold, 1, -1)), 1)
	}
	if st := settle(t, l, "t", id, 3).Status[0]; st.Committed != 23 || st.Reserved != 0 {
		t.Errorf("the window in which it was held stands at %d committed and %d reserved, want 23 and 0", st.Committed, st.Reserved)
	}
}

// The charges of a bucket stand among its account's counters, and are all that it grows
// and shrinks by.
func TestAccountsShrinkWithTheChargesOfTheirBuckets(t *testing.T) {
	t.Parallel()
	client := shared(t)
	l := open(t, client, prefix(t))
	rate, total := perMinute("u", quota.Hold, 10, 6), always("u", quota.Hold, 10, 1000)
	rate.Burst = 60
	size := func(when string, want int64) {
		t.Helper()
		if n := client.StrLen(t.Context(), prefixOf(t)+"{t}:a:u").Val(); n != want {
			t.Errorf("%s the account has %d bytes, want %d", when, n, want)
		}
	}
	const begin, slot, charge = 24, 56, 28
	var ids []string
	for range 4 {
		ids = append(ids, take(t, l, "t", rate, total))
	}
	size("with four holds", begin+2*slot+4*charge)
	redisledger.Pass(l, 7*time.Minute) // all is refilled
	ids = append(ids, take(t, l, "t", rate, total))
	size("when four are paid", begin+2*slot+charge)
	for i, id := range ids {
		settle(t, l, "t", id, 10)
		stands(t, l, "t", total, int64(10*i+10), int64(40-10*i))
	}
	size("when all is settled", begin+2*slot)
}
