package journal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// Many callers in real time, with a store that fails now and then: some settle the same
// calls, and a Replay goes on beside them.
func TestManyCallersAreChargedOnceEach(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	j, err := journal.Open(t.TempDir(), journal.Config{SyncTimeout: time.Minute, SegmentBytes: 8 << 10, MaxBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l := before(t, s, j)
	ctx := context.Background()
	begun := time.Now()
	const callers, calls = 64, 8
	var wg sync.WaitGroup
	s.setFor(func(op string) fault {
		if op == "settle" {
			return []fault{down, lost, fine}[min(rand.IntN(20), 2)]
		}
		return fine
	})
	for c := range callers {
		wg.Go(func() {
			for i := range calls {
				id := fmt.Sprint(c/2, "-", i) // two callers each
				res, err := l.Reserve(ctx, quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{hold("ann", 10)}})
				if err != nil || res.Denied >= 0 {
					t.Errorf("Reserve = %+v, %v", res, err)
				}
				for {
					_, err := l.Settle(ctx, used(id, 3))
					if err == nil {
						break
					}
					if !errors.Is(err, quota.ErrUnavailable) {
						t.Errorf("Settle: %v", err)
						break
					}
				}
			}
		})
	}
	for range 3 {
		if _, err := l.Replay(ctx, begun); err != nil && !errors.Is(err, journal.ErrIncomplete) {
			t.Error(err)
		}
	}
	wg.Wait()
	s.set(fine)
	if report, err := l.Replay(ctx, begun); err != nil || report.Booked > 0 || report.Settled > 0 {
		t.Errorf("Replay = %+v, %v", report, err)
	}
	want := int64(callers / 2 * calls * 3)
	all, err := s.memory().Status(ctx, tree, hold("ann", 0))
	if err != nil || all[0].Committed != want || all[0].Reserved != 0 {
		t.Errorf("the counter is %+v, %v, want %d", all, err, want)
	}
	if st := l.Stats(); st.Unanswered != 0 || st.Unrecorded != 0 || st.Open != 0 || st.Segments < 2 {
		t.Errorf("stats are %+v", st)
	}
	if err := errors.Join(l.Close(ctx), j.Close()); err != nil {
		t.Error(err)
	}
}
