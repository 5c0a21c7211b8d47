package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestMemoryForgetsWhatIsIdleAndNeverWhatIsSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 200
		m := newMemory(t, quota.MemoryConfig{MaxSubjects: most})
		tree := func(i int) string { return fmt.Sprint("user-", i) }
		try := func(i int, id string) error {
			_, err := m.Reserve(t.Context(), quota.Reserve{ID: id, Tree: tree(i), Entries: []quota.Entry{hourly(tree(i), quota.Hold, 1, 10)}})
			return err
		}
		for i := range most {
			if err := try(i, "first"); err != nil {
				t.Fatalf("user %d: %v", i, err)
			}
			mustSettle(t, m, tree(i), "first", 10)
		}
		err := try(most, "first")
		if !errors.Is(err, quota.ErrUnavailable) || !strings.Contains(err.Error(), "MaxSubjects of 200") {
			t.Fatalf("one more: %v", err)
		}
		for i := range most { // nobody was forgotten for it
			if st := statusOf(t, m, tree(i), hourly(tree(i), quota.Hold, 0, 10)); st.Committed != 10 {
				t.Fatalf("user %d stands at %+v", i, st)
			}
		}

		time.Sleep(time.Hour) // all windows have passed; a few come again
		for i := range 10 {
			if err := try(i, "second"); err != nil {
				t.Fatal(err)
			}
			mustSettle(t, m, tree(i), "second", 0)
		}
		mustReserve(t, m, tree(10), "held", hourly(tree(10), quota.Hold, 3, 10))
		mustReserve(t, m, tree(11), "debt", perMinute(tree(11), quota.Count, 10, 10))
		if err := try(most, "second"); err != nil {
			t.Fatalf("when there are idle ones: %v", err)
		}
		st := m.Stats()
		if st.Subjects > most || st.Subjects < 13 {
			t.Fatalf("%+v", st)
		}
		if got := statusOf(t, m, tree(10), hourly(tree(10), quota.Hold, 0, 10)); got.Reserved != 3 {
			t.Errorf("who holds something stands at %+v", got)
		}
		if got := statusOf(t, m, tree(11), perMinute(tree(11), quota.Hold, 0, 10)); got.Committed != 10 {
			t.Errorf("whose bucket is empty stands at %+v", got)
		}
		past, err := m.History(t.Context(), tree(0), hourly(tree(0), quota.Hold, 0, 10).Counter, 9)
		if err != nil || len(past) != 1 {
			t.Errorf("who came last was forgotten first: %+v, %v", past, err)
		}
	})
}

// A search for idle ones that finds none is not made again at once, so that
// refusals stay cheap; but what is idle later is found.
func TestMemoryFindsIdleOnesOfOtherShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 50 // of many shards
		m := newMemory(t, quota.MemoryConfig{MaxSubjects: most})
		for i := range most {
			key := fmt.Sprint("user-", i)
			mustReserve(t, m, key, "id", hourly(key, quota.Count, 1, 10))
		}
		try := func() error {
			_, err := m.Reserve(t.Context(), quota.Reserve{ID: "id", Tree: "new", Entries: []quota.Entry{hourly("new", quota.Count, 1, 10)}})
			return err
		}
		for range 3 {
			if err := try(); !errors.Is(err, quota.ErrUnavailable) {
				t.Fatalf("error is %v", err)
			}
		}
		time.Sleep(time.Hour)
		if err := try(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMemoryBooksLateCallsOfForgottenSubjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{MaxSubjects: 2})
		day := func(kind quota.Kind) quota.Entry {
			e := hourly("alice", kind, 5, 10)
			e.Window = "day"
			for i := range e.Spans {
				from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, i-1)
				e.Spans[i] = quota.Span{Start: from, End: from.AddDate(0, 0, 1)}
			}
			return e
		}
		mustReserve(t, m, "alice", "late", day(quota.Hold), perMinute("alice", quota.Hold, 5, 10))
		time.Sleep(11 * time.Minute) // it has expired, so alice has spent nothing
		mustReserve(t, m, "bob", "other", hourly("bob", quota.Lease, 1, 10))
		mustReserve(t, m, "eve", "one more", hourly("eve", quota.Lease, 1, 10))
		if st := m.Stats(); st.Subjects != 2 {
			t.Fatalf("%+v, want that alice was forgotten for eve", st)
		}
		file := snapshotOf(t, m) // in which she is, too
		restored := newMemory(t, quota.MemoryConfig{})
		if err := restored.Restore(strings.NewReader(file)); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*quota.Memory{restored, m} {
			if res := mustSettle(t, m, "alice", "late", 7); !res.Late || len(res.Status) != 2 || res.Status[0].Committed != 7 || res.Status[1].Committed != 7 {
				t.Fatalf("Settle = %+v", res)
			}
		}
		if st := statusOf(t, m, "alice", day(quota.Hold)); st.Committed != 7 {
			t.Fatalf("alice stands at %+v, want what she has used", st)
		}
		if st := statusOf(t, m, "alice", perMinute("alice", quota.Hold, 0, 10)); st.Committed != 7 {
			t.Fatalf("alice's bucket stands at %+v, want what she has used", st)
		}
	})
}

func TestMemoryBoundsOpenReservations(t *testing.T) {
	t.Parallel()
	m := newMemory(t, quota.MemoryConfig{MaxOpen: 3})
	for _, id := range []string{"a", "b", "c"} {
		mustReserve(t, m, "tree-"+id, id, allTime("u", quota.Lease, 1, 100))
	}
	_, err := m.Reserve(t.Context(), quota.Reserve{ID: "d", Tree: "t"})
	if !errors.Is(err, quota.ErrUnavailable) || !strings.Contains(err.Error(), "MaxOpen of 3") {
		t.Fatalf("error is %v", err)
	}
	if err := m.Release(t.Context(), "tree-a", "a"); err != nil {
		t.Fatal(err)
	}
	mustReserve(t, m, "t", "d")
}

// Nothing else happens where they are.
func TestMemoryEndsWhatHasExpiredOfOtherShardsBeforeItIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 50 // of many shards
		m := newMemory(t, quota.MemoryConfig{MaxOpen: most})
		fill := func(round string) {
			t.Helper()
			for i := range most {
				key := fmt.Sprint(round, i)
				mustReserve(t, m, key, "id", hourly(key, quota.Hold, 1, 10))
			}
		}
		fill("first")
		for range 3 {
			if _, err := m.Reserve(t.Context(), quota.Reserve{ID: "id", Tree: "new"}); !errors.Is(err, quota.ErrUnavailable) {
				t.Fatalf("error is %v", err)
			}
		}
		time.Sleep(quota.DefaultTTL)
		fill("second")
	})
}

func TestMemoryRemembersSoManyForSoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{MaxRemembered: 1000, Remember: time.Minute})
		end := func(id string) {
			mustReserve(t, m, "t", id, allTime("u", quota.Hold, 1, -1))
			mustSettle(t, m, "t", id, 1)
		}
		known := func(id string) bool {
			err := m.Release(t.Context(), "t", id)
			return !errors.Is(err, quota.ErrUnknownReservation)
		}
		for i := range 5000 {
			end(fmt.Sprint(i))
		}
		if st := m.Stats(); st.Remembered > 1000+1000/10 || st.Remembered < 900 || st.Open != 0 {
			t.Errorf("%+v", st)
		}
		if known("0") || !known("4999") {
			t.Errorf("the first is known: %v, the last: %v", known("0"), known("4999"))
		}
		time.Sleep(time.Minute)
		before := m.Stats().Remembered
		for i := range 100 { // each forgets two that are too old
			end(fmt.Sprint("next-", i))
		}
		if st := m.Stats(); st.Remembered != before-100 {
			t.Errorf("%+v after Remember, want 100 less than %d", st, before)
		}
		if st := statusOf(t, m, "t", allTime("u", quota.Hold, 0, -1)); st.Committed != 5100 {
			t.Errorf("stands at %+v, want all that was spent", st)
		}
	})
}

func TestMemoryKeepsSoManyWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{KeepWindows: 3})
		ctx := t.Context()
		var held []string
		for i := range 10 {
			id := fmt.Sprint(i)
			if _, err := m.Reserve(ctx, quota.Reserve{ID: id, Tree: "t", TTL: 24 * time.Hour, Entries: []quota.Entry{hourly("u", quota.Hold, 5, 100)}}); err != nil {
				t.Fatal(err)
			}
			if i == 1 || i == 2 {
				held = append(held, id)
			} else {
				mustSettle(t, m, "t", id, int64(i+1))
			}
			time.Sleep(time.Hour)
		}
		past, err := m.History(ctx, "t", hourly("u", quota.Hold, 0, 0).Counter, 99)
		if err != nil || len(past) != 6 || past[0].Committed != 10 || past[3].Committed != 7 || past[4].Reserved != 5 || past[5].Reserved != 5 {
			t.Fatalf("History = %+v, %v, want the last one, 3 more, and 2 in which something is held", past, err)
		}
		for _, id := range held {
			if res := mustSettle(t, m, "t", id, 8); res.Status[0].Committed != 8 || res.Status[0].Reserved != 0 || res.Late {
				t.Errorf("Settle = %+v, want it in its own window", res)
			}
		}
		if st := statusOf(t, m, "t", hourly("u", quota.Hold, 0, 100)); st.Committed != 0 {
			t.Errorf("the window that goes on stands at %+v", st)
		}
	})
}
