package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

func TestReplayMakesAStoreWholeThatHasFailedOver(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("kept", w.day("ann", quota.Hold, 100), w.turns("ann"))
		w.reserve("reserved", w.day("ann", quota.Hold, 100), w.turns("ann"))
		w.settle("kept", 10)
		time.Sleep(time.Minute)
		since := time.Now()
		copied := w.store.snapshot()
		time.Sleep(time.Minute)
		w.settle("reserved", 20)
		for i := range 3 { // and what the copy knows nothing of
			id := fmt.Sprint("lost-", i)
			w.reserve(id, w.day("ann", quota.Hold, 100), w.turns("ann"))
			w.settle(id, 100)
		}
		w.reserve("turn", w.turns("bob"), w.lease("bob"))
		w.reserve("open", w.day("bob", quota.Hold, 50))
		w.reserve("released", w.day("bob", quota.Hold, 50), w.turns("bob"))
		if err := w.l.Release(w.Context(), tree, "released"); err != nil {
			t.Fatal(err)
		}
		stands := func() {
			t.Helper()
			w.tokens("ann", 330)
			w.stands(w.turns("ann"), 5, 0)
			w.stands(w.day("bob", quota.Hold, 0), 0, 50)
			w.stands(w.turns("bob"), 2, 0)
			w.stands(w.lease("bob"), 0, 1)
		}
		stands()
		w.store.failOver(copied)
		w.tokens2("ann", 10, 100)

		// Open: the turn and the call are held anew, and the turn's count with it, which then
		// is known. The three settlements find what their counts have made.
		w.replayed(since, journal.Report{Held: 2, Booked: 4, Settled: 4, Known: 1})
		stands()
		// Again it changes nothing, and all is known: 2 open, 4 settled, 5 counted.
		w.replayed(since, journal.Report{Known: 11})
		stands()

		w.settle("open", 45)
		if err := w.l.Release(w.Context(), tree, "turn"); err != nil {
			t.Fatal(err)
		}
		w.tokens("bob", 45)
		w.stands(w.lease("bob"), 0, 0)
		w.stands(w.turns("bob"), 2, 0)
	})
}

func (w *world) tokens2(key string, committed, reserved int64) {
	w.Helper()
	w.stands(w.day(key, quota.Hold, 0), committed, reserved)
}

// A store that has lost nothing: nobody pays twice, however often it is told.
func TestReplayOfWhatIsKnownChargesNothing(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		begun := time.Now()
		for i := range 20 {
			id := fmt.Sprint(i)
			w.reserve(id, w.day("ann", quota.Hold, 10), w.turns("ann"))
			w.settle(id, 11)
		}
		for range 3 {
			w.replayed(begun, journal.Report{Known: 40})
			w.tokens("ann", 220)
			w.stands(w.turns("ann"), 20, 0)
		}
		w.restart()
		w.replayed(begun, journal.Report{Known: 40})
		w.tokens("ann", 220)
	})
}

// After Remember a ledger may have forgotten an id, and a charge looks like a loss.
func TestReplaySinceBeforeTheLedgersMemoryIsRefused(t *testing.T) {
	virtual(t, journal.Config{Keep: 10 * time.Hour, Remember: 2 * time.Hour}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		w.settle("a", 10)
		time.Sleep(121 * time.Minute)
		w.store.failOver(nil) // or as if: it would say the same had it forgotten
		report, err := w.l.Replay(w.Context(), time.Now().Add(-121*time.Minute))
		if !errors.Is(err, journal.ErrTooOld) || report != (journal.Report{}) {
			t.Errorf("Replay = %+v, %v", report, err)
		}
		if n := w.store.called("settle"); n != 1 {
			t.Errorf("the ledger was told %d times", n-1)
		}
		w.replayed(time.Now().Add(-119*time.Minute), journal.Report{})
		w.tokens("ann", 0)
	})
}

// What was settled before since and answered after it may be lost all the same.
func TestReplayGoesByWhenTheLedgerHasAnswered(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("early", w.day("ann", quota.Hold, 10))
		w.reserve("late", w.day("ann", quota.Hold, 10))
		w.settle("early", 1)
		w.store.set(down)
		w.unsettled("late", 2, quota.ErrUnavailable)
		time.Sleep(time.Minute)
		w.store.set(fine)
		since := time.Now()
		copied := w.store.snapshot()
		w.settle("late", 2)
		w.store.failOver(copied)
		w.tokens2("ann", 1, 10)
		w.replayed(since, journal.Report{Settled: 1})
		w.tokens("ann", 3)
	})
}

func TestReplayToldWhatWasReleasedChargesNothing(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		begun := time.Now()
		w.reserve("a", w.day("ann", quota.Hold, 10))
		// Another replica, or a caller that does both.
		if err := w.store.Release(w.Context(), tree, "a"); err != nil {
			t.Fatal(err)
		}
		if res := w.settle("a", 10); !res.Repeated {
			t.Fatalf("Settle = %+v", res)
		}
		w.store.failOver(nil)
		w.replayed(begun, journal.Report{})
		w.tokens("ann", 0)
		for r, err := range journal.All(w.dir) {
			t.Errorf("All has %+v, %v", r, err)
		}
	})
}

// An open call that ends while it is taken anew leaves no hold behind.
func TestReplayLeavesNoHoldOfACallThatHasEnded(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10), w.lease("ann"))
		w.store.failOver(nil)
		w.store.setFor(func(op string) fault {
			if op == "reserve" {
				w.store.setFor(nil)
				if err := w.l.Release(w.Context(), tree, "a"); !errors.Is(err, quota.ErrUnknownReservation) {
					t.Errorf("Release: %v", err)
				}
			}
			return fine
		})
		w.replayed(time.Now(), journal.Report{})
		w.stands(w.day("ann", quota.Hold, 0), 0, 0)
		w.stands(w.lease("ann"), 0, 0)
	})
}

func TestReplaySaysWhatGotNoAnswer(t *testing.T) {
	var progress []journal.Report
	cfg := journal.Config{Workers: 1, Progress: func(r journal.Report) { progress = append(progress, r) }}
	virtual(t, cfg, func(w *world) {
		begun := time.Now()
		for i := range 1500 {
			id := fmt.Sprint(i)
			w.reserve(id, w.day("ann", quota.Hold, 1))
			w.settle(id, 1)
		}
		w.store.failOver(nil)
		n := 0
		w.store.setFor(func(op string) fault {
			// All tries of one record fail, and of another one the second half of a booking.
			if op == "settle" {
				if n++; n >= 11 && n <= 14 || n == 20 {
					return down
				}
			}
			return fine
		})
		report, err := w.l.Replay(w.Context(), begun)
		if want := (journal.Report{Booked: 1498, Settled: 1, Failed: 1}); !errors.Is(err, journal.ErrIncomplete) || report != want {
			t.Fatalf("Replay = %+v, %v, want %+v", report, err, want)
		}
		if len(progress) != 2 || progress[0] != (journal.Report{Booked: 998, Settled: 1, Failed: 1}) || progress[1] != report {
			t.Errorf("progress was %+v", progress)
		}
		w.store.set(fine)
		w.replayed(begun, journal.Report{Known: 1499, Booked: 1})
		w.tokens("ann", 1500)

		w.store.set(down)
		tried := w.store.called("settle")
		report, err = w.l.Replay(w.Context(), begun)
		if !errors.Is(err, journal.ErrIncomplete) || !errors.Is(err, quota.ErrUnavailable) || report.Failed == 0 || report.Failed > 20 {
			t.Errorf("Replay = %+v, %v", report, err)
		}
		if n := w.store.called("settle") - tried; n > 100 {
			t.Errorf("a store that is down was told %d times", n)
		}
		w.store.set(fine)

		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := w.l.Replay(ctx, begun); !errors.Is(err, context.Canceled) {
			t.Errorf("Replay with an ended context: %v", err)
		}
	})
}

// What is being settled is not held anew: if the ledger has charged it and forgotten it,
// the settlement would find what was held, and charge it again.
func TestReplayDoesNotHoldWhatIsDoubtful(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10), w.lease("ann"))
		w.store.set(lost)
		w.unsettled("a", 7, quota.ErrUnavailable)
		w.store.set(down)
		time.Sleep(61*time.Minute + between)
		w.store.failOver(nil) // as if it had forgotten
		w.store.set(fine)
		report, err := w.l.Replay(w.Context(), time.Now().Add(-time.Minute))
		if want := (journal.Report{Doubtful: 1}); report != want || !errors.Is(err, journal.ErrIncomplete) {
			t.Errorf("Replay = %+v, %v, want %+v", report, err, want)
		}
		w.tokens("ann", 0)
		w.stands(w.lease("ann"), 0, 0)
	})
}

// A turn that a caller asks for again long after is counted when it was first.
func TestCountsAreAsOldAsTheFirstResult(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.store.set(lost)
		r := quota.Reserve{ID: "a", Tree: tree, Entries: []quota.Entry{w.turns("ann")}}
		if _, err := w.l.Reserve(w.Context(), r); !errors.Is(err, quota.ErrUnavailable) {
			t.Fatal(err)
		}
		w.store.set(fine)
		time.Sleep(50 * time.Minute)
		if res, err := w.l.Reserve(w.Context(), r); err != nil || !res.Repeated {
			t.Fatalf("Reserve = %+v, %v", res, err)
		}
		time.Sleep(30 * time.Minute)
		w.store.failOver(nil) // as if it had forgotten
		report, err := w.l.Replay(w.Context(), time.Now().Add(-40*time.Minute))
		if want := (journal.Report{Doubtful: 1}); report != want || !errors.Is(err, journal.ErrIncomplete) {
			t.Errorf("Replay = %+v, %v, want %+v", report, err, want)
		}
		w.stands(w.turns("ann"), 0, 0)
	})
}

// While some reservations of a store are lost and its callers go on, all is charged once.
func TestReplayWhileCallsGoOn(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		begun := time.Now()
		for i := range 200 {
			w.reserve(fmt.Sprint(i), w.day("ann", quota.Hold, 1), w.turns("ann"))
		}
		for i := range 100 {
			w.settle(fmt.Sprint(i), 1)
		}
		w.store.failOver(nil)
		done := make(chan error)
		go func() {
			for i := 100; i < 200; i++ {
				if _, err := w.l.Settle(w.Context(), used(fmt.Sprint(i), 1)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		if _, err := w.l.Replay(w.Context(), begun); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		w.tokens("ann", 200)
		w.stands(w.turns("ann"), 200, 0)
	})
}

// A correction finds nothing in a store that has lost its call, also while that is about to
// be told.
func TestReplayTellsACorrectionThatHasMetIt(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		begun := time.Now()
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.settle("a", 60)
		w.store.failOver(nil)
		met := false
		w.store.setFor(func(op string) fault {
			if op == "settle" && !met {
				met = true
				s := used("a", 80)
				s.Adjust, s.Seq = true, 1
				if _, err := w.l.Settle(w.Context(), s); !errors.Is(err, quota.ErrUnknownReservation) {
					t.Errorf("Settle: %v", err)
				}
			}
			return fine
		})
		w.replayed(begun, journal.Report{Booked: 1, Settled: 1})
		w.tokens("ann", 80)
	})
}
