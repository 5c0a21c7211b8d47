package blocks_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// marking is a ledger that keeps watermarks, as those of Redis and of databases do.
type marking struct {
	quota.Ledger

	mu    sync.Mutex
	marks map[string]int64
	known map[string]bool // false are reservations that a failover has lost
}

func (m *marking) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[r.ID] = true
	return m.Ledger.Reserve(ctx, r)
}

// failOver loses all reservations, but not what has been told since by others of the
// same writers, of whatever number.
func (m *marking) failOver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.known {
		m.known[id] = false
	}
	for writer := range m.marks {
		m.marks[writer] = 1 << 40
	}
}

func (m *marking) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	writer, n := s.Tree+" "+s.Writer, s.WriterSeq
	s.Writer, s.WriterSeq = "", 0
	res, err := quota.Settled{}, error(quota.ErrUnknownReservation)
	if m.known[s.ID] {
		res, err = m.Ledger.Settle(ctx, s)
	}
	switch {
	case n == 0:
	case err == nil:
		m.marks[writer] = max(m.marks[writer], n)
	case errors.Is(err, quota.ErrUnknownReservation) && n <= m.marks[writer]:
		return quota.Settled{Repeated: true}, nil
	}
	return res, err
}

// newMarking is a world of one replica, whose ledger keeps watermarks.
func newMarking(t *testing.T) (*world, *marking) {
	w := newWorld(t, 0, blocks.Config{})
	m := &marking{Ledger: w.ledger, marks: map[string]int64{}, known: map[string]bool{}}
	k := newLink(m)
	w.links, w.replicas = append(w.links, k), append(w.replicas, newBlocks(t, k, blocks.Config{}))
	return w, m
}

// away has the ledger be away for longer than it remembers what has ended, while others
// use it.
func (w *world) away() {
	w.Helper()
	w.links[0].set(func(k *link) { k.cut = true })
	pass(3 * time.Hour)
	for range 100 {
		w.take(w.ledger, w.entry(quota.Count, 0, 1000))
		pass(time.Minute)
	}
	w.links[0].set(func(k *link) { k.cut = false })
	pass(time.Minute)
}

// spent is what stands in the ledger of all windows.
func (w *world) spent() (sum int64) {
	w.Helper()
	history, err := w.ledger.History(context.Background(), "global", w.hold(0, 0).Counter, 100)
	if err != nil {
		w.Fatal(err)
	}
	now, err := w.ledger.Status(context.Background(), "global", w.hold(0, 0))
	if err != nil {
		w.Fatal(err)
	}
	for _, st := range append(history, now...) {
		sum += st.Committed
	}
	return sum
}

// What the ledger has charged and forgotten is not charged again, whether the reply
// was lost or the request.
func TestAnOutageLongerThanTheLedgerRemembersChargesOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(*link){
		"the reply is lost":   func(k *link) { k.lose = 1 },
		"the request is lost": func(k *link) { k.cut = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, _ := newMarking(t)
				l := w.replicas[0]
				id := w.take(l, w.hold(600, 1000))
				w.settle(l, w.take(l, w.hold(10, 1000)), 10) // so that there is a mark
				pass(2 * blocks.DefaultIdle)
				before := w.links[0].sent("settle")
				w.links[0].set(c)
				w.settle(l, id, 600)
				for w.links[0].sent("settle") == before {
					pass(time.Millisecond)
				}
				w.away()
				if got := w.spent(); got != 610 {
					t.Errorf("%d are charged, want 610", got)
				}
			})
		})
	}
}

// A mark says nothing of what a failover has lost, as long as the ledger would know it
// otherwise.
func TestWhatAFailoverHasLostIsCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newMarking(t)
		l := w.replicas[0]
		w.settle(l, w.take(l, w.hold(10, 1000)), 10) // so that there is a mark
		id := w.take(l, w.hold(100, 1000))
		synctest.Wait()
		w.links[0].set(func(k *link) { k.cut = true })
		w.settle(l, id, 100)
		synctest.Wait()
		m.failOver()
		w.links[0].set(func(k *link) { k.cut = false })
		pass(time.Minute)
		if got := w.spent(); got != 110 {
			t.Errorf("%d are charged, want 110", got)
		}
	})
}

// What is corrected again before the first correction was answered is told as two: the
// ledger takes a number once, with what came with it first.
func TestACorrectionWhoseReplyWasLostIsRepeatedAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		id := w.take(l, w.hold(300, 1000))
		w.settle(l, id, 300)
		w.flush()
		w.links[0].set(func(k *link) { k.lose = 1 })
		for seq, used := range []int64{1: 200, 2: 50} {
			if seq == 0 {
				continue
			}
			s := quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: used}, Adjust: true, Seq: int64(seq)}
			if _, err := l.Settle(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if k := w.links[0]; k.lose != 0 {
			t.Fatal("no reply was lost, so that the test is none")
		}
		w.stands(l, w.hold(0, 1000), 50, 0)
		pass(time.Minute)
		w.stands(w.ledger, w.hold(0, 1000), 50, 0)
	})
}

// While it is not known whether the ledger has counted what a block was settled to,
// nobody is denied because it may be counted twice.
func TestALostReplyDeniesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l, k := w.replicas[0], w.links[0]
		k.set(func(k *link) { k.away = 10 * time.Millisecond })
		id := w.take(l, w.hold(450, 1000))
		pass(5 * time.Second)
		k.set(func(k *link) { k.lose = 1 })
		w.settle(l, id, 450)
		pass(25 * time.Millisecond)
		if k.lose != 0 {
			t.Fatal("no reply was lost, so that the test is none")
		}
		w.take(l, w.hold(100, 1000)) // the ledger says that 450 are spent
		w.take(l, w.hold(400, 1000))
	})
}

// A caller that does not wait long enough is not the ledger's fault: what others need
// is leased as before.
func TestACallerThatLeavesDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Idle: time.Minute})
		l, k := w.replicas[0], w.links[0]
		id := w.take(l, w.hold(300, 1000))
		k.set(func(k *link) { k.away = 50 * time.Millisecond })
		w.take(l, w.hold(1, 1000))
		w.settle(l, id, 100)
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			if err := l.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Flush = %v", err)
			}
			cancel()
		}
		if n := l.Stats().Failures; n != 0 {
			t.Errorf("%d failures of a ledger that works", n)
		}
		pass(time.Second)
		w.flush()
		w.stands(w.ledger, w.hold(0, 1000), 100, 1)
	})
}

// What a call turned out to count against, of which nothing is leased, is booked when
// the ledger can be reached, and not for a call that was given up.
func TestMoreThatIsNotLeasedIsBookedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Leased: func(_ string, c quota.Counter) bool { return c.Key == "global" }})
		l := w.replicas[0]
		other := w.entry(quota.Count, 7, 100)
		other.Key = "other"
		id, gone := w.take(l, w.hold(30, 1000)), w.take(l, w.hold(30, 1000))
		s := quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: 20}, More: []quota.Entry{other}}
		synctest.Wait()
		for _, fail := range []func(*link){
			func(k *link) { k.cut = true },
			func(k *link) { k.cut, k.lose = false, 1 }, // of the reservation
			func(k *link) { k.lose = 1 },
		} {
			w.links[0].set(fail)
			if _, err := l.Settle(t.Context(), s); !unavailable(err) {
				t.Fatalf("error is %v", err)
			}
		}
		for _, repeated := range []bool{false, true} {
			if res, err := l.Settle(t.Context(), s); err != nil || res.Repeated != repeated || len(res.Status) != 2 {
				t.Errorf("Settle = %+v, %v", res, err)
			}
		}
		w.release(l, gone)
		s.ID = gone
		if res, err := l.Settle(t.Context(), s); err != nil || !res.Repeated {
			t.Errorf("Settle after Release = %+v, %v", res, err)
		}
		w.flush()
		w.stands(w.ledger, other, 7, 0)
		w.stands(w.ledger, w.hold(0, 1000), 20, 0)
	})
}

// One call that is ended in several ways at once ends in one of them.
func TestEndsThatMeetAreOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Leased: func(_ string, c quota.Counter) bool { return c.Key == "global" }})
		l := w.replicas[0]
		other := w.entry(quota.Count, 1, 1<<40)
		other.Key = "other"
		settled := int64(0)
		for range 200 {
			id := budget.NewID()
			r := quota.Reserve{ID: id, Tree: "global", Entries: []quota.Entry{w.hold(5, 1<<40)}}
			var wg sync.WaitGroup
			var first, again quota.Settled
			wg.Go(func() { _, _ = l.Reserve(context.Background(), r) })
			wg.Go(func() { _, _ = l.Reserve(context.Background(), r) })
			wg.Wait()
			wg.Go(func() {
				first, _ = l.Settle(context.Background(), quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: 3}})
			})
			wg.Go(func() {
				again, _ = l.Settle(context.Background(), quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: 3}, More: []quota.Entry{other}})
			})
			wg.Go(func() { _ = l.Release(context.Background(), "global", id) })
			wg.Wait()
			if first.Repeated && again.Repeated { // it was released first
				continue
			}
			settled += 3
		}
		w.flush()
		w.stands(w.ledger, w.hold(0, 1<<40), settled, 0)
	})
}
