package quota_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/ledgertest"
)

func newMemory(t testing.TB, cfg quota.MemoryConfig) *quota.Memory {
	t.Helper()
	m, err := quota.NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryIsALedger(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		m := newMemory(t, quota.MemoryConfig{})
		return ledgertest.Store{
			Ledger:  m,
			Now:     func() time.Time { return time.Now().Add(quota.Skew(m)) },
			SetBack: func(d time.Duration) { quota.Step(m, -d) },
		}
	}, ledgertest.Options{Virtual: true})
}

// The suite is for stores in real time, too, whose clocks have an offset.
func TestMemoryIsALedgerInRealTime(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		m := newMemory(t, quota.MemoryConfig{})
		return ledgertest.Store{
			Ledger:  m,
			Now:     func() time.Time { return time.Now().Add(quota.Skew(m)) },
			Pass:    func(d time.Duration) { quota.Pass(m, d) },
			SetBack: func(d time.Duration) { quota.Step(m, -d) },
		}
	}, ledgertest.Options{Slack: 20 * time.Second})
}

func TestMemoryConfigErrorsNameEveryField(t *testing.T) {
	t.Parallel()
	_, err := quota.NewMemory(quota.MemoryConfig{KeepWindows: -1, MaxOpen: -2, MaxRemembered: -3, MaxSubjects: -4, Remember: -5})
	for _, want := range []string{
		"MemoryConfig.KeepWindows is -1", "MemoryConfig.MaxOpen is -2", "MemoryConfig.MaxRemembered is -3",
		"MemoryConfig.MaxSubjects is -4", "MemoryConfig.Remember is -5ns",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

// allTime is an entry of a limit without windows.
func allTime(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	return quota.Entry{Counter: quota.Counter{Key: key, Unit: quota.Tokens}, Kind: kind, Amount: amount, Limit: limit, Ceiling: -1}
}

// hourly is an entry of a limit of an hour.
func hourly(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	e := allTime(key, kind, amount, limit)
	e.Window = "hour"
	start := time.Now().UTC().Truncate(time.Hour)
	for i := range e.Spans {
		from := start.Add(time.Duration(i-1) * time.Hour)
		e.Spans[i] = quota.Span{Start: from, End: from.Add(time.Hour)}
	}
	return e
}

// perMinute is an entry of a rolling limit.
func perMinute(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	e := allTime(key, kind, amount, limit)
	e.Window, e.Rolling, e.Per, e.Burst = "minute", true, time.Minute, limit
	return e
}

func mustReserve(t testing.TB, l quota.Ledger, tree, id string, entries ...quota.Entry) quota.Reserved {
	t.Helper()
	res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: tree, Entries: entries})
	if err != nil || res.Denied >= 0 {
		t.Fatalf("Reserve = %+v, %v", res, err)
	}
	return res
}

func mustSettle(t testing.TB, l quota.Ledger, tree, id string, tokens int64) quota.Settled {
	t.Helper()
	res, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: tree, Actual: quota.Amounts{quota.Tokens: tokens}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func statusOf(t testing.TB, l quota.Ledger, tree string, e quota.Entry) quota.Status {
	t.Helper()
	all, err := l.Status(context.Background(), tree, e)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestMemoryEndsAtMaxInt64(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{})
		const most = math.MaxInt64
		mustReserve(t, m, "t", "a", allTime("u", quota.Hold, most-1, -1))
		mustReserve(t, m, "t", "b", allTime("u", quota.Hold, 1, -1))
		soft := allTime("u", quota.Hold, 1, 5)
		soft.Soft = true
		observed := allTime("u", quota.Hold, 1, 5)
		observed.Observe = true
		for _, e := range []quota.Entry{allTime("u", quota.Hold, 1, -1), soft, observed} {
			if res, err := m.Reserve(t.Context(), quota.Reserve{ID: "c", Tree: "t", Entries: []quota.Entry{e}}); err != nil || res.Denied != 0 {
				t.Errorf("above the end of all numbers: %+v, %v", res, err)
			}
		}
		mustSettle(t, m, "t", "a", most)
		if res := mustSettle(t, m, "t", "b", most); res.Status[0].Committed != most || res.Status[0].Reserved != 0 {
			t.Errorf("Settle = %+v", res)
		}

		rolling := perMinute("u", quota.Hold, most-1, most)
		rolling.MaxWait = most
		mustReserve(t, m, "t", "d", rolling)
		mustSettle(t, m, "t", "d", most)
		rolling.Amount = 1
		if res, err := m.Reserve(t.Context(), quota.Reserve{ID: "e", Tree: "t", Entries: []quota.Entry{rolling}}); err != nil || res.Denied != 0 {
			t.Errorf("rolling, above the end of all numbers: %+v, %v", res, err)
		}
		time.Sleep(time.Minute)
		mustReserve(t, m, "t", "f", rolling)
		slow := perMinute("slow", quota.Count, 5, 1)
		slow.Burst, slow.Per, slow.MaxWait = 5, most, most
		mustReserve(t, m, "t", "g", slow)
		slow.Amount = 2
		if res, err := m.Reserve(t.Context(), quota.Reserve{ID: "h", Tree: "t", Entries: []quota.Entry{slow}}); err != nil || res.Denied != 0 || res.RetryAfter != 0 {
			t.Errorf("a wait of more than all time: %+v, %v", res, err)
		}
	})
}

// What was settled is refunded as far as no later call stands between: exactly if
// it is the newest, and never more than it would have been.
func TestMemoryCorrectsRollingCountersDownwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{Remember: 24 * time.Hour})
		adjust := func(id string, seq, tokens int64) int64 {
			t.Helper()
			res, err := m.Settle(t.Context(), quota.Settle{
				ID: id, Tree: "t", Adjust: true, Seq: seq, Actual: quota.Amounts{quota.Tokens: tokens},
			})
			if err != nil {
				t.Fatal(err)
			}
			return res.Status[0].Committed
		}
		entry := perMinute("u", quota.Hold, 100, 60)
		entry.Burst = 1000
		mustReserve(t, m, "t", "first", entry)
		mustReserve(t, m, "t", "second", entry)
		mustSettle(t, m, "t", "first", 100)
		if got := adjust("first", 1, 30); got < 130 || got > 200 {
			t.Errorf("of an older call, missing is %d, want 130 to 200", got)
		}
		mustSettle(t, m, "t", "second", 100)
		before := statusOf(t, m, "t", entry).Committed
		if got := adjust("second", 1, 80); got != before-20 {
			t.Errorf("of the newest call, missing is %d, want 20 less than %d", got, before)
		}
		if got := adjust("second", 2, 95); got != before-5 {
			t.Errorf("upwards, missing is %d, want 5 less than %d", got, before)
		}
		time.Sleep(time.Hour)
		mustReserve(t, m, "t", "third", entry)
		if got := adjust("second", 3, 0); got != 100 {
			t.Errorf("after it was full, missing is %d, want the 100 of the third", got)
		}
		mustSettle(t, m, "t", "third", 100)
		if got := adjust("second", 4, 50); got != 150 { // what it used more is taken now
			t.Errorf("upwards, missing is %d, want 150", got)
		}
		if got := adjust("third", 1, 0); got < 50 || got > 150 {
			t.Errorf("of an older call, missing is %d, want 50 to 150", got)
		}
		time.Sleep(time.Hour)
		mustReserve(t, m, "t", "fourth", entry)
		mustSettle(t, m, "t", "fourth", 100)
		if got := adjust("second", 5, 0); got != 100 {
			t.Errorf("after it was full, missing is %d, want the 100 of the fourth", got)
		}

		time.Sleep(time.Hour)
		mustReserve(t, m, "t", "late", entry)
		time.Sleep(quota.DefaultTTL)
		mustSettle(t, m, "t", "late", 100)
		if got := adjust("late", 1, 30); got != 30 {
			t.Errorf("of a late call, missing is %d, want 30", got)
		}
	})
}

func TestMemoryIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	m := newMemory(t, quota.MemoryConfig{})
	const callers, calls, limit = 8, 300, 100_000
	var wg sync.WaitGroup
	var mu sync.Mutex
	spent := map[string]int64{}
	for g := range callers {
		wg.Go(func() {
			for i := range calls {
				id, user, used := budget.NewID(), fmt.Sprint("user-", (g+i)%3), int64((g*calls+i)%70)
				res, err := m.Reserve(t.Context(), quota.Reserve{ID: id, Tree: "t", Entries: []quota.Entry{
					allTime(user, quota.Hold, 50, limit), allTime("all", quota.Hold, 50, limit), perMinute(user, quota.Hold, 50, limit),
				}})
				if err != nil {
					t.Error(err)
					return
				}
				if res.Denied >= 0 {
					continue
				}
				if i%5 == 0 {
					err = m.Release(t.Context(), "t", id)
				} else {
					_, err = m.Settle(t.Context(), quota.Settle{ID: id, Tree: "t", Actual: quota.Amounts{quota.Tokens: used}})
					mu.Lock()
					spent[user] += used
					spent["all"] += used
					mu.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for key, want := range spent {
		if st := statusOf(t, m, "t", allTime(key, quota.Hold, 0, limit)); st.Committed != want || st.Reserved != 0 {
			t.Errorf("%s stands at %+v, want %d", key, st, want)
		}
	}
}

func TestClosedMemoryRefusesAndIsStillWritten(t *testing.T) {
	t.Parallel()
	m := newMemory(t, quota.MemoryConfig{})
	mustReserve(t, m, "t", "a", allTime("u", quota.Hold, 5, 10))
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, e := t.Context(), allTime("u", quota.Hold, 5, 10)
	for name, op := range map[string]func() error{
		"Reserve": func() error { _, err := m.Reserve(ctx, quota.Reserve{ID: "b"}); return err },
		"Settle":  func() error { _, err := m.Settle(ctx, quota.Settle{ID: "a", Tree: "t"}); return err },
		"Release": func() error { return m.Release(ctx, "t", "a") },
		"Renew":   func() error { _, err := m.Renew(ctx, "t", 0, "a"); return err },
		"Status":  func() error { _, err := m.Status(ctx, "t", e); return err },
		"TopUp":   func() error { _, err := m.TopUp(ctx, "t", e, 1); return err },
		"Reset":   func() error { _, err := m.Reset(ctx, "t", e); return err },
		"History": func() error { _, err := m.History(ctx, "t", e.Counter, 1); return err },
		"Erase":   func() error { return m.Erase(ctx, "t", "u") },
		"Healthy": func() error { return m.Healthy(ctx) },
		"Flush":   func() error { return m.Flush(ctx) },
	} {
		if err := op(); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := m.Stats(); st.Open != 1 || st.Subjects != 1 {
		t.Errorf("Stats = %+v", st)
	}
}
