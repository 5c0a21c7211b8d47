package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

func TestWhatTheLedgerWasNotToldIsToldAfterARestart(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.reserve("b", w.day("ann", quota.Hold, 100))
		w.settle("a", 70)
		w.store.set(down)
		w.unsettled("b", 80, quota.ErrUnavailable)
		w.unanswered(1)

		w.restart()
		time.Sleep(time.Minute) // the store is still down
		w.unanswered(1)
		w.stands(w.day("ann", quota.Hold, 0), 70, 100)
		w.store.set(fine)
		w.recovered(journal.Report{Settled: 1})
		w.tokens("ann", 150)

		w.restart()
		w.recovered(journal.Report{})
		w.tokens("ann", 150)
	})
}

// The store has done it, and nobody knows: it is told again, and again.
func TestALostReplyIsNotChargedTwice(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.store.set(lost)
		for range 3 {
			w.unsettled("a", 60, quota.ErrUnavailable)
		}
		if st := w.j.Stats(); st.Records != 1 {
			t.Errorf("%d records of one settlement", st.Records)
		}
		w.restart()
		w.store.set(fine)
		w.recovered(journal.Report{Known: 1})
		w.tokens("ann", 60)
	})
}

// The caller's own repeat is answered as if nothing had happened.
func TestARepeatAfterAnOutageIsAnsweredByTheLedger(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.store.set(down)
		w.unsettled("a", 60, quota.ErrUnavailable)
		w.store.set(fine)
		if res := w.settle("a", 60); res.Repeated || res.Late || len(res.Status) != 1 || res.Status[0].Committed != 60 {
			t.Errorf("Settle = %+v", res)
		}
		w.unanswered(0)
		if st := w.j.Stats(); st.Records != 1 {
			t.Errorf("%d records of one settlement", st.Records)
		}
	})
}

// A caller that has given up leaves it to the journal.
func TestWhatNobodyTellsAgainIsToldByTheJournal(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.store.set(down)
		w.unsettled("a", 60, quota.ErrUnavailable)
		tried := w.store.called("settle")
		time.Sleep(journal.RetryAfter - time.Second)
		if n := w.store.called("settle"); n != tried {
			t.Errorf("told %d times while its caller may tell it", n-tried)
		}
		w.store.set(fine)
		time.Sleep(time.Minute)
		w.unanswered(0)
		w.tokens("ann", 60)
		if told := w.j.Stats().Told; told != (journal.Report{Settled: 1}) {
			t.Errorf("told %+v", told)
		}
	})
}

// The ledger has lost the reservation, and the call ends only then.
func TestACallThatEndsAfterTheLedgerHasForgottenItIsCharged(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		limited := w.day("ann", quota.Hold, 100)
		limited.Limit = 1000
		limited.Thresholds = []int{50}
		w.reserve("a", limited, w.turns("ann"))
		w.store.failOver(nil)
		w.reserve("c", w.day("ann", quota.Hold, 950))

		res := w.settle("a", 700)
		if !res.Late || res.Repeated || len(res.Status) != 1 || res.Status[0].Committed != 700 || !res.Over {
			t.Errorf("Settle = %+v", res)
		}
		if len(res.Crossed) != 1 || res.Crossed[0].Percent != 50 {
			t.Errorf("crossed %+v", res.Crossed)
		}
		w.stands(w.day("ann", quota.Hold, 0), 700, 950)
		w.stands(w.turns("ann"), 1, 0)
		w.unanswered(0)
		if again := w.settle("a", 700); !again.Repeated {
			t.Errorf("the repeat is %+v", again)
		}
		w.stands(w.day("ann", quota.Hold, 0), 700, 950)
	})
}

func TestBookedAnewIsInTheWindowInWhichItWasTaken(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		time.Sleep(time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24*time.Hour - time.Minute)))
		yesterday := w.day("ann", quota.Hold, 100)
		w.reserve("a", yesterday, w.turns("ann"))
		more := w.day("agent", quota.Count, 40)
		w.store.set(down)
		if _, err := w.l.Settle(w.Context(), quota.Settle{
			ID: "a", Tree: tree, Actual: quota.Amounts{quota.Tokens: 90}, More: []quota.Entry{more},
		}); !errors.Is(err, quota.ErrUnavailable) {
			t.Fatal(err)
		}
		w.restart()
		w.store.failOver(nil)
		time.Sleep(10 * time.Minute) // it is tomorrow
		w.store.set(fine)
		w.recovered(journal.Report{Booked: 1})
		w.tokens("ann", 0)
		w.tokens("agent", 0)
		for _, c := range []struct {
			quota.Counter
			want int64
		}{{yesterday.Counter, 90}, {more.Counter, 40}} {
			past, err := w.store.memory().History(w.Context(), tree, c.Counter, 9)
			if err != nil || len(past) != 1 || past[0].Committed != c.want || !past[0].Span.Start.Equal(yesterday.Spans[1].Start) {
				t.Errorf("%s yesterday is %+v, %v, want %d", c.Key, past, err, c.want)
			}
		}
	})
}

func TestRatesAreNotBookedAnew(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("both", w.rolling("ann", 50), w.day("ann", quota.Hold, 50))
		w.store.set(down)
		w.unsettled("both", 50, quota.ErrUnavailable)
		w.restart()
		w.store.failOver(nil)
		w.store.set(fine)
		w.recovered(journal.Report{Booked: 1})
		w.tokens("ann", 50)
		w.stands(w.rolling("ann", 0), 0, 0)

		// A settlement of a rate only has nothing that outlives the moment.
		w.reserve("rate", w.rolling("ann", 50))
		records := w.j.Stats().Records
		w.settle("rate", 20)
		if n := w.j.Stats().Records; n != records {
			t.Errorf("%d records of a rate", n-records)
		}
		w.stands(w.rolling("ann", 0), 20, 0)
	})
}

// What the ledger may have charged and forgotten is not charged again.
func TestWhatTheLedgerMayHaveForgottenIsDoubtfulAndNotBooked(t *testing.T) {
	for name, long := range map[string]time.Duration{"soon": 58 * time.Minute, "late": 61 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			virtual(t, journal.Config{}, func(w *world) {
				w.reserve("a", w.day("ann", quota.Hold, 100))
				w.store.set(lost)
				w.unsettled("a", 60, quota.ErrUnavailable)
				w.tokens("ann", 60)
				w.store.set(down)
				w.restart()
				time.Sleep(long)
				// The store forgets when it has something to do: here all at once.
				w.store.failOver(nil)
				w.store.set(fine)
				if name == "soon" {
					// It would remember, so that it has lost it.
					w.recovered(journal.Report{Booked: 1})
					w.tokens("ann", 60)
					return
				}
				w.recovered(journal.Report{Doubtful: 1})
				w.tokens("ann", 0)
				w.unanswered(0)
				if w.log.count("level=WARN msg=\"journal: the ledger did not take a settlement\" why=doubtful tree=acme reservation=a") != 1 {
					t.Errorf("the log does not tell:\n%s", w.log.text.String())
				}
				if err := w.l.Flush(w.Context()); err != nil {
					t.Fatal(err)
				}
				found := 0
				for r, err := range journal.All(w.dir) {
					if found++; err != nil || r.Outcome != journal.Doubtful || r.ID != "a" {
						t.Errorf("All has %+v, %v", r, err)
					}
				}
				if found != 1 {
					t.Errorf("All has %d records", found)
				}
				w.restart()
				w.recovered(journal.Report{})
			})
		})
	}
}

// The same while the process lives: its own repeat comes too late.
func TestARepeatLongAfterTheFirstIsDoubtful(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.store.set(down)
		w.unsettled("a", 60, quota.ErrUnavailable)
		time.Sleep(61*time.Minute + between)
		w.store.failOver(nil)
		w.store.set(fine)
		w.unsettled("a", 60, quota.ErrUnknownReservation)
		w.tokens("ann", 0)
		w.unanswered(0)
		if told := w.j.Stats().Told; told.Doubtful != 1 || told.Booked != 0 {
			t.Errorf("told %+v", told)
		}
	})
}

// The same for what its caller has told differently in between, which is another record:
// here a counter falls in another window by then.
func TestWhatWasToldLongAgoIsDoubtfulHoweverItIsToldSince(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(midnight.Add(-30*time.Minute + between)))
		w.reserve("a", w.day("ann", quota.Hold, 100))
		s := used("a", 60)
		s.More = []quota.Entry{w.day("agent", quota.Count, 5)}
		for _, f := range []fault{lost, down} {
			w.store.set(f)
			if _, err := w.l.Settle(w.Context(), s); !errors.Is(err, quota.ErrUnavailable) {
				t.Fatal(err)
			}
			w.store.set(down)
			time.Sleep(50 * time.Minute)
		}
		w.unanswered(2)
		w.restart()
		w.store.failOver(nil) // as if it had forgotten what it has charged
		w.store.set(fine)
		w.recovered(journal.Report{Doubtful: 2})
		w.tokens("ann", 0)
	})
}

// A caller's own number is not the one by which the journal tells it later: even a ledger
// that keeps watermarks does not know then whether it has taken it.
func TestWhatWasToldByTheCallersNumberIsDoubtfulLater(t *testing.T) {
	for writer, want := range map[string]journal.Report{"": {Booked: 1}, "replica-1": {Doubtful: 1}} {
		t.Run("writer "+writer, func(t *testing.T) {
			virtual(t, journal.Config{Watermarks: true}, func(w *world) {
				w.reserve("a", w.day("ann", quota.Hold, 100))
				w.store.set(down)
				s := used("a", 60)
				if s.Writer = writer; writer != "" {
					s.WriterSeq = 1
				}
				if _, err := w.l.Settle(w.Context(), s); !errors.Is(err, quota.ErrUnavailable) {
					t.Fatal(err)
				}
				w.restart()
				time.Sleep(61 * time.Minute)
				w.store.failOver(nil) // as if it had forgotten the reservation
				w.store.set(fine)
				w.recovered(want)
			})
		})
	}
}

// A reservation that is not this process's, or that the journal knows nothing of.
func TestUnknownReservationsStayUnknown(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.unsettled("nobody", 60, quota.ErrUnknownReservation)
		w.unanswered(0)
		w.store.set(down)
		w.unsettled("somebody", 60, quota.ErrUnavailable)
		w.restart()
		w.store.set(fine)
		w.recovered(journal.Report{Unknown: 1})
	})
}

func TestCorrectionsAreToldInOrder(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		adjust := func(seq, tokens int64) error {
			s := used("a", tokens)
			s.Adjust, s.Seq = true, seq
			_, err := w.l.Settle(w.Context(), s)
			return err
		}
		w.reserve("a", w.day("ann", quota.Hold, 100))
		w.settle("a", 50)
		w.store.set(down)
		for seq, tokens := range []int64{70, 65, 90} {
			if err := adjust(int64(seq+1), tokens); !errors.Is(err, quota.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		w.restart()
		w.store.set(fine)
		w.recovered(journal.Report{Settled: 3})
		w.tokens("ann", 90)
		// And all of it into a store that has lost everything.
		w.store.failOver(nil)
		w.replayed(time.Now().Add(-time.Minute), journal.Report{Booked: 1, Settled: 3})
		w.tokens("ann", 90)
	})
}

func TestErasedKeysAreNotBookedAgain(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		begun := time.Now()
		w.reserve("open", w.day("ann", quota.Hold, 10), w.day("team", quota.Hold, 10), w.lease("ann"))
		w.reserve("only", w.day("ann", quota.Hold, 10))
		for _, id := range []string{"before", "unanswered"} {
			w.reserve(id, w.day("ann", quota.Hold, 10), w.day("team", quota.Hold, 10), w.turns("ann"))
		}
		before := used("before", 7)
		before.More = []quota.Entry{w.day("ann/agent", quota.Count, 7)}
		if _, err := w.l.Settle(w.Context(), before); err != nil {
			t.Fatal(err)
		}
		w.store.setFor(func(op string) fault {
			if op == "settle" {
				return down
			}
			return fine
		})
		w.unsettled("unanswered", 8, quota.ErrUnavailable)
		for _, key := range []string{"ann", "ann/agent"} {
			if err := w.l.Erase(w.Context(), tree, key); err != nil {
				t.Fatal(err)
			}
		}
		w.reserve("after", w.day("ann", quota.Hold, 10), w.day("team", quota.Hold, 10))
		w.unsettled("after", 9, quota.ErrUnavailable)

		w.store.failOver(nil)
		w.store.set(fine)
		w.settle("open", 5)
		w.unsettled("only", 5, quota.ErrUnknownReservation)
		w.tokens("ann", 0)
		w.restart()
		w.recovered(journal.Report{Booked: 2})
		w.replayed(begun, journal.Report{Booked: 1, Known: 3, Unknown: 3}) // three turns and a settlement of hers only
		w.tokens("team", 5+7+8+9)
		w.tokens("ann", 9)
		w.tokens("ann/agent", 0)
		w.stands(w.turns("ann"), 0, 0)
		for r, err := range journal.All(w.dir) {
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Charges() {
				if strings.HasPrefix(c.Counter.Key, "ann") && r.ID != "after" {
					t.Errorf("All has %+v of %s", c, r.ID)
				}
			}
		}
	})
}

func TestAnErasureThatCannotBeRecordedIsNotDone(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		w.settle("a", 5)
		if err := w.j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.l.Erase(w.Context(), tree, "ann"); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("Erase: %v", err)
		}
		w.tokens("ann", 5)
	})
}

// What passed without the ledger is durable before it is booked.
func TestWhatPassedWithoutTheLedgerIsBookedAfterACrash(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		book := func(w *world) error {
			r := quota.Reserve{ID: "a.o", Tree: tree, Entries: []quota.Entry{w.day("ann", quota.Hold, 60), w.turns("ann")}}
			for i := range r.Entries {
				r.Entries[i].Limit = 0 // nothing denies what is spent
			}
			_, err := w.l.Book(w.Context(), r, used("a.o", 60))
			return err
		}
		w.store.set(down)
		for range 2 {
			if err := book(w); !errors.Is(err, quota.ErrUnavailable) {
				t.Fatalf("Book: %v", err)
			}
		}
		w.unanswered(1)
		w.restart()
		w.store.set(fine)
		w.recovered(journal.Report{Booked: 1})
		w.tokens("ann", 60)
		w.stands(w.turns("ann"), 1, 0)

		if err := book(w); err != nil { // as a process does that did not crash
			t.Fatal(err)
		}
		w.tokens("ann", 60)
		w.stands(w.turns("ann"), 1, 0)

		w.store.set(down) // it has counted only
		r := quota.Reserve{ID: "b.o", Tree: tree, Entries: []quota.Entry{w.turns("ann")}}
		if _, err := w.l.Book(w.Context(), r, used("b.o", 0)); !errors.Is(err, quota.ErrUnavailable) {
			t.Fatalf("Book: %v", err)
		}
		w.restart()
		w.store.set(fine)
		w.recovered(journal.Report{Booked: 1})
		w.stands(w.turns("ann"), 2, 0)
		if _, err := w.l.Book(w.Context(), quota.Reserve{ID: "x", Tree: tree}, used("y", 1)); err == nil {
			t.Error("a booking of one id and the settlement of another passed")
		}
	})
}

// The background does not outlive its ledger, even if that never answers.
func TestCloseEndsTellingAHangingLedger(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		w.reserve("a", w.day("ann", quota.Hold, 10))
		w.store.set(down)
		w.unsettled("a", 5, quota.ErrUnavailable)
		_ = w.l.Close(w.Context())
		w.l = before(w, hanging{w.store}, w.j)
		_ = w.l.Close(w.Context())
		if err := w.j.Close(); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(w.dir, w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.j, w.l = j, before(w, hanging{w.store}, j)
		synctest.Wait() // it hangs now
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		if _, err := w.l.Recover(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Recover: %v", err)
		}
		began := time.Now()
		_ = w.l.Close(w.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
	})
}

// hanging is a ledger that answers when its caller gives up.
type hanging struct{ quota.Ledger }

func (hanging) Settle(ctx context.Context, _ quota.Settle) (quota.Settled, error) {
	<-ctx.Done()
	return quota.Settled{}, fmt.Errorf("%w: %w", quota.ErrUnavailable, ctx.Err())
}

// What a long call has counted when it began, the ledger may have forgotten when it ends:
// only what it was settled to is surely not charged.
func TestCountsOfLongAgoAreNotBookedWithTheirCall(t *testing.T) {
	for name, crash := range map[string]bool{"in the process": false, "after a crash": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, journal.Config{}, func(w *world) {
				w.reserve("a", w.day("ann", quota.Hold, 10), w.turns("ann"))
				for range 14 {
					time.Sleep(5 * time.Minute)
					if lost, err := w.l.Renew(w.Context(), tree, 0, "a"); err != nil || len(lost) > 0 {
						t.Fatal(lost, err)
					}
				}
				w.store.failOver(nil)
				if crash {
					w.store.set(down)
					w.unsettled("a", 7, quota.ErrUnavailable)
					w.restart()
					w.store.set(fine)
					w.recovered(journal.Report{Booked: 1})
				} else {
					w.settle("a", 7)
				}
				w.tokens("ann", 7)
				w.stands(w.turns("ann"), 0, 0)
			})
		})
	}
}

// Who reaches a part of a limit is told once: of what is told again nobody knows yet, and of
// what a store has lost somebody was told.
func TestThresholdsAreToldOnceOverCrashesAndFailovers(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		begun := time.Now()
		call := func(id string, tokens int64, fails bool) (crossed int) {
			e := w.day("ann", quota.Hold, tokens)
			e.Limit, e.Thresholds = 100, []int{50}
			w.reserve(id, e)
			if fails {
				w.store.set(down)
				w.unsettled(id, tokens, quota.ErrUnavailable)
				return 0
			}
			return len(w.settle(id, tokens).Crossed)
		}
		call("a", 60, true)
		w.restart()
		w.store.failOver(nil)
		w.store.set(fine)
		w.recovered(journal.Report{Booked: 1})
		if n := call("b", 1, false); n != 1 {
			t.Errorf("%d thresholds were told after the crash, want 1", n)
		}
		w.store.failOver(nil)
		w.replayed(begun, journal.Report{Booked: 2})
		if n := call("c", 1, false); n != 0 {
			t.Errorf("%d thresholds were told again after the failover", n)
		}
	})
}

// What the ledger never takes delays nothing else, and is told once more now and then.
func TestWhatTheLedgerNeverTakesDelaysNothingElse(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		for i := range 50 {
			w.reserve(fmt.Sprint("a", i), w.day("ann", quota.Hold, 1))
		}
		w.store.set(down)
		for i := range 50 {
			w.unsettled(fmt.Sprint("a", i), 1, quota.ErrUnavailable)
		}
		w.restart()
		refused := map[string]bool{}
		for i := range 20 {
			refused[fmt.Sprint("a", i)] = true
		}
		w.store.refuses(refused)
		w.store.set(fine)
		time.Sleep(10 * time.Minute)
		w.stands(w.day("ann", quota.Hold, 0), 30, 0) // the others have lapsed
		w.store.refuses(nil)
		w.recovered(journal.Report{Settled: 50})
		w.tokens("ann", 50)
	})
}

// What is left for a part of the store that is gone delays nothing else.
func TestWhatIsLeftForAPartThatIsGoneDelaysNothingElse(t *testing.T) {
	virtual(t, journal.Config{}, func(w *world) {
		for i := range 100 {
			w.reserve(fmt.Sprint("a", i), w.day("ann", quota.Hold, 1))
		}
		bob := w.day("bob", quota.Hold, 100)
		if res, err := w.l.Reserve(w.Context(), quota.Reserve{ID: "b", Tree: "globex", Entries: []quota.Entry{bob}}); err != nil || res.Denied >= 0 {
			t.Fatal(res, err)
		}
		w.store.set(down)
		for i := range 100 {
			w.unsettled(fmt.Sprint("a", i), 1, quota.ErrUnavailable)
		}
		s := used("b", 60)
		s.Tree = "globex"
		if _, err := w.l.Settle(w.Context(), s); !errors.Is(err, quota.ErrUnavailable) {
			t.Fatal(err)
		}
		w.restart()
		w.store.set(fine)
		w.store.gone(tree)
		time.Sleep(2 * time.Minute)
		all, err := w.store.memory().Status(w.Context(), "globex", bob)
		if err != nil || all[0].Committed != 60 {
			t.Errorf("bob stands at %+v, %v, want 60", all, err)
		}
		w.store.gone("")
		w.recovered(journal.Report{Settled: 101})
		w.tokens("ann", 100)
	})
}
