package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// marking is a ledger that keeps watermarks of writers, as quota.Settle says.
type marking struct {
	quota.Ledger
	mu    sync.Mutex
	marks map[[2]string]int64 // by tree and writer; guarded by mu
}

func (m *marking) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	writer := [2]string{s.Tree, s.Writer}
	res, err := m.Ledger.Settle(ctx, s)
	switch {
	case s.Writer == "":
	case errors.Is(err, quota.ErrUnknownReservation) && s.WriterSeq <= m.marks[writer]:
		return quota.Settled{Repeated: true}, nil
	case err == nil:
		m.marks[writer] = max(m.marks[writer], s.WriterSeq)
	}
	return res, err
}

// withMarks has the world's process settle with a ledger that keeps watermarks. It fails as
// the store does, after it has marked what was done.
func withMarks(t *testing.T, test func(w *world)) {
	t.Helper()
	virtual(t, journal.Config{Watermarks: true}, func(w *world) {
		_ = w.l.Close(w.Context())
		w.store.failOver(nil)
		w.l = before(w, &lossy{&marking{Ledger: innerStore{w.store}, marks: map[[2]string]int64{}}, w.store}, w.j)
		test(w)
	})
}

// innerStore is the store as it is behind what fails.
type innerStore struct{ *store }

func (s innerStore) Settle(ctx context.Context, x quota.Settle) (quota.Settled, error) {
	return s.memory().Settle(ctx, x)
}

// lossy fails as its store does.
type lossy struct {
	quota.Ledger
	s *store
}

func (l *lossy) Settle(ctx context.Context, x quota.Settle) (res quota.Settled, err error) {
	err = l.s.do("settle", func(*quota.Memory) (err error) { res, err = l.Ledger.Settle(ctx, x); return err })
	return res, err
}

// forget has the store forget what has ended more than an hour ago.
func (w *world) forget() {
	w.Helper()
	for i := range 80 {
		id := fmt.Sprint("other-", time.Now().UnixNano(), i)
		if _, err := w.store.memory().Reserve(w.Context(), quota.Reserve{ID: id, Tree: tree, Entries: []quota.Entry{w.day("other", quota.Hold, 1)}}); err != nil {
			w.Fatal(err)
		}
		if _, err := w.store.memory().Settle(w.Context(), used(id, 1)); err != nil {
			w.Fatal(err)
		}
	}
}

// After an outage that is longer than a ledger's memory its watermarks tell what it has
// taken before: that is not charged again, and the rest is not lost.
func TestWatermarksTellAfterALongOutageWhatWasCharged(t *testing.T) {
	withMarks(t, func(w *world) {
		for _, id := range []string{"a", "b", "c", "d"} {
			w.reserve(id, w.day("ann", quota.Hold, 10))
		}
		for i := range 50 {
			w.reserve(fmt.Sprint(i), w.day("bob", quota.Hold, 10))
		}
		w.settle("a", 1)
		w.store.set(lost)
		w.unsettled("b", 10, quota.ErrUnavailable)
		w.store.set(down)
		w.unsettled("c", 100, quota.ErrUnavailable)
		w.unsettled("d", 1000, quota.ErrUnavailable)
		for i := range 50 {
			w.unsettled(fmt.Sprint(i), 1, quota.ErrUnavailable)
		}
		time.Sleep(quota.DefaultTTL + time.Minute + between)
		w.forget() // the holds lapse when the store has something to do
		time.Sleep(3 * time.Hour)
		w.unanswered(53)
		w.forget()
		w.store.set(fine)
		w.unsettled("d", 1000, quota.ErrUnavailable) // not before the others: it would overtake them
		w.tokens("ann", 11)
		time.Sleep(time.Minute)
		w.unanswered(0)
		w.tokens("ann", 1111)
		w.tokens("bob", 50)
		if told := w.j.Stats().Told; told != (journal.Report{Known: 1, Booked: 52}) {
			t.Errorf("told %+v", told)
		}
	})
}

// A store that has failed over has lost what its watermarks say, too, or has gone on since:
// they say nothing about what it must know.
func TestWatermarksDoNotHideWhatAFailoverHasLost(t *testing.T) {
	withMarks(t, func(w *world) {
		begun := time.Now()
		w.reserve("a", w.day("ann", quota.Hold, 10))
		w.reserve("b", w.day("ann", quota.Hold, 10))
		w.settle("a", 1)
		w.store.failOver(nil)
		w.reserve("c", w.day("ann", quota.Hold, 10))
		w.settle("c", 100) // its number is above that of what was lost
		w.settle("b", 10)
		w.tokens("ann", 110)
		w.replayed(begun, journal.Report{Booked: 1, Known: 2})
		w.tokens("ann", 111)
	})
}

// What is too old even for watermarks is doubtful.
func TestWatermarksLastADay(t *testing.T) {
	withMarks(t, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		w.store.set(down)
		w.unsettled("a", 1, quota.ErrUnavailable)
		time.Sleep(25 * time.Hour)
		w.store.failOver(nil)
		w.store.set(fine)
		time.Sleep(time.Minute)
		w.unanswered(0)
		if told := w.j.Stats().Told; told != (journal.Report{Doubtful: 1}) {
			t.Errorf("told %+v", told)
		}
	})
}
