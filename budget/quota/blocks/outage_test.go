package blocks_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// kill ends a replica as kill -9 does: nothing more of it reaches the ledger.
func (w *world) kill(at int) {
	w.Helper()
	w.links[at].set(func(k *link) { k.cut = true })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.replicas[at].Close(ctx); err == nil && w.replicas[at].Stats().Blocks > 0 {
		w.Error("Close returned no error, although it could not return the blocks")
	}
}

func TestWhatAKilledReplicaHadLeasedLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		l := w.replicas[0]
		w.take(l, w.hold(100, 1000)) // a call that it does not finish
		spent := int64(0)
		for range 5 {
			w.settle(l, w.take(l, w.hold(30, 1000)), 30)
			spent += 30
		}
		s := l.Stats()
		leased := s.Leased[quota.Tokens]
		w.kill(0)
		if unsettled := s.Spent[quota.Tokens]; unsettled >= 500 {
			t.Fatalf("%d had not been settled, not less than a block", unsettled)
		}
		w.refuse(w.replicas[1], w.hold(1001-leased-(spent-s.Spent[quota.Tokens]), 1000))
		pass(blocks.DefaultTTL)
		// What was not settled is lost; the rest of what it had leased is there again.
		w.stands(w.ledger, w.hold(0, 1000), spent-s.Spent[quota.Tokens], 0)
		w.take(w.replicas[1], w.hold(1000-(spent-s.Spent[quota.Tokens]), 1000))
	})
}

// What is spent while calls of the same block are under way is settled when the block
// is renewed.
func TestAKilledReplicaLosesNoMoreThanItSpentSinceTheLastRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 5000}, Share: 1, Idle: time.Minute})
		l := w.replicas[0]
		w.take(l, w.hold(1, 10_000))
		long := w.take(l, w.hold(100, 10_000)) // lasts as long as the test
		spent := int64(0)
		for range 60 {
			w.settle(l, w.take(l, w.hold(30, 10_000)), 30)
			spent += 30
			pass(time.Second)
		}
		lost := l.Stats().Spent[quota.Tokens]
		if most := int64(30 * (5 + 2)); lost > most { // a third of the TTL, and the next look at it
			t.Errorf("%d are not settled, more than what is spent between two renewals (%d)", lost, most)
		}
		if s := l.Stats(); s.Lapsed > 0 || s.Held[quota.Tokens] != 101 {
			t.Errorf("%+v", s)
		}
		w.settle(l, long, 70)
		w.flush()
		w.stands(w.ledger, w.hold(0, 10_000), spent+70, 1)
	})
}

// A replica that cannot reach the ledger spends what it has leased, but not beyond the
// end of its blocks; then others get that. When it comes back, what it has spent is
// booked, and the limit is passed by no more than what it had leased.
func TestASeparatedReplicaStopsSpendingBeforeItsBlocksEnd(t *testing.T) {
	t.Parallel()
	for name, separate := range map[string]func(*link) (join func()){
		"cut off": func(k *link) func() {
			k.set(func(k *link) { k.cut = true })
			return func() { k.set(func(k *link) { k.cut = false }) }
		},
		"stalled": (*link).stall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				w := newWorld(t, 2, blocks.Config{
					Min: quota.Amounts{quota.Tokens: 500}, Share: 1,
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				alone, other := w.replicas[0], w.replicas[1]
				w.take(alone, w.hold(1, 1000))
				held := w.take(alone, w.hold(99, 1000)) // leases 500, at once
				synctest.Wait()
				leased := alone.Stats().Leased[quota.Tokens]
				began := time.Now()
				join := separate(w.links[0])

				spent := int64(0)
				last := time.Duration(0)
				for time.Since(began) < 2*blocks.DefaultTTL {
					ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
					id, asked := budget.NewID(), time.Now()
					res, err := alone.Reserve(ctx, quota.Reserve{ID: id, Tree: "global", Entries: []quota.Entry{w.hold(1, 1000)}})
					cancel()
					switch {
					case time.Since(asked) > 300*time.Millisecond:
						t.Fatalf("the caller had to wait for %v", time.Since(asked))
					case err == nil && res.Denied < 0:
						w.settle(alone, id, 1)
						spent++
						last = time.Since(began)
					case err == nil:
						t.Fatalf("denied with %+v although nobody knows", res)
					case !unavailable(err) && err != context.DeadlineExceeded:
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if ttl := blocks.DefaultTTL - blocks.DefaultTTL/10; last >= ttl || last < ttl/2 {
					t.Errorf("it spent for %v, want nearly up to %v and no longer", last, ttl)
				}
				// The other one gets all of the limit that is not spent in the ledger.
				w.settle(other, w.take(other, w.hold(1000, 1000)), 1000)

				join()
				pass(blocks.DefaultTTL / 2)
				w.refuse(alone, w.hold(1, 1000)) // what had been idle is not its own any more
				w.settle(alone, held, 99)
				pass(blocks.DefaultTTL)
				if err := alone.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.stands(w.ledger, w.hold(0, 1000), 1000+99+spent, 1)
				if over := 99 + spent + 1; over > leased {
					t.Errorf("the limit was passed by %d, more than the %d that were leased", over, leased)
				}
				if s := alone.Stats(); s.Lapsed == 0 {
					t.Error("Lapsed = 0: nobody is told")
				}
				if n := strings.Count(log.String(), "had lapsed"); n != 1 {
					t.Errorf("logged %d times: %s", n, log.String())
				}
			})
		})
	}
}

// The life of a block counts from when the request for it was sent, and not from when
// the answer came.
func TestSpendingEndsTTLAfterTheRequestWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{
			TTL: 2 * time.Second, Margin: 200 * time.Millisecond, Min: quota.Amounts{quota.Tokens: 5000}, Share: 1,
		})
		l := w.replicas[0]
		w.links[0].set(func(k *link) { k.away = 200 * time.Millisecond })
		w.take(l, w.hold(1, 10_000))
		sent := time.Now()
		w.take(l, w.hold(1, 10_000)) // the request for a block takes 400 ms
		w.links[0].set(func(k *link) { k.cut = true })
		last := time.Duration(0)
		for time.Since(sent) < 3*time.Second {
			res, err := l.Reserve(context.Background(), quota.Reserve{ID: budget.NewID(), Tree: "global", Entries: []quota.Entry{w.hold(1, 10_000)}})
			if err == nil && res.Denied < 0 {
				last = time.Since(sent)
			}
			time.Sleep(time.Millisecond)
		}
		if last < 1795*time.Millisecond || last >= 1800*time.Millisecond {
			t.Errorf("spent until %v after the request was sent, want 1.8s", last)
		}
	})
}

// That holds after a renewal, too.
func TestSpendingEndsTTLAfterTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{
			TTL: 2 * time.Second, Margin: 200 * time.Millisecond, Min: quota.Amounts{quota.Tokens: 8000}, Share: 1,
		})
		l := w.replicas[0]
		w.links[0].set(func(k *link) { k.away = 200 * time.Millisecond })
		w.take(l, w.hold(1, 10_000))
		var last, renewed time.Time
		for began := time.Now(); time.Since(began) < 6*time.Second; time.Sleep(time.Millisecond) {
			if time.Since(began) == 3*time.Second {
				w.links[0].set(func(k *link) {
					k.cut = true
					renewed = k.last["renew"]
				})
			}
			res, err := l.Reserve(context.Background(), quota.Reserve{ID: budget.NewID(), Tree: "global", Entries: []quota.Entry{w.hold(1, 10_000)}})
			if err == nil && res.Denied < 0 {
				last = time.Now()
			}
		}
		// The one that was on its way when the link was cut may have arrived.
		if d := last.Sub(renewed); renewed.IsZero() || d > 1800*time.Millisecond || d < 1000*time.Millisecond {
			t.Errorf("spent until %v after the last renewal was sent, want at most 1.8s", d)
		}
	})
}

// A block whose request was repeated lives since the first time that it was sent.
func TestARepeatedRequestDoesNotProlongABlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{
			TTL: 4 * time.Second, Margin: 400 * time.Millisecond, Min: quota.Amounts{quota.Tokens: 5000},
		})
		l := w.replicas[0]
		ask := func(amount int64) bool {
			res, err := l.Reserve(context.Background(), quota.Reserve{ID: budget.NewID(), Tree: "global", Entries: []quota.Entry{w.hold(amount, 10_000)}})
			return err == nil && res.Denied < 0
		}
		sent := time.Now()
		w.links[0].set(func(k *link) { k.lose = 1 })
		if ask(5000) {
			t.Fatal("the reply was not lost")
		}
		w.links[0].set(func(k *link) { k.cut = true })
		time.Sleep(1500 * time.Millisecond)
		w.links[0].set(func(k *link) { k.cut = false })
		if !ask(1) { // repeats the request
			t.Fatal("the request was not repeated")
		}
		w.links[0].set(func(k *link) { k.cut = true })
		last := time.Duration(0)
		for time.Since(sent) < 6*time.Second {
			if ask(1) {
				last = time.Since(sent)
			}
			time.Sleep(time.Millisecond)
		}
		if last >= 3600*time.Millisecond || last < 3500*time.Millisecond {
			t.Errorf("spent until %v after the request was sent first, want 3.6s", last)
		}
	})
}

// What is spent counts here before the ledger has been told.
func TestWhatCannotBeSettledYetCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 300}, Share: 1})
		l := w.replicas[0]
		first := w.take(l, w.hold(200, 1000))
		second := w.take(l, w.hold(200, 1000))
		synctest.Wait()
		w.links[0].set(func(k *link) { k.cut = true })
		w.settle(l, first, 190)
		pass(blocks.DefaultIdle * 3)
		st := w.settle(l, second, 150).Status[0]
		if st.Committed != 340 || st.Reserved != 0 || w.links[0].sent("settle") == 0 {
			t.Errorf("stands at %d committed and %d reserved, want 340 and 0", st.Committed, st.Reserved)
		}
		w.links[0].set(func(k *link) { k.cut = false })
		pass(time.Minute)
		w.stands(w.ledger, w.hold(0, 1000), 340, 0)
	})
}

// What a call has used above what it held is known to all at once, also while others
// hold the rest of the block.
func TestAnOverrunIsCoveredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		l := w.replicas[0]
		w.take(l, w.hold(990, 2000))
		pass(10 * time.Second) // so that nothing is leased ahead
		id := w.take(l, w.hold(10, 2000))
		if res := w.settle(l, id, 209); res.Status[0].Committed != 209 || res.Over {
			t.Errorf("Settle = %+v", res)
		}
		synctest.Wait()
		w.refuse(w.replicas[1], w.hold(802, 2000))
		w.take(w.replicas[1], w.hold(801, 2000))
	})
}

// A block that has lapsed is not spent from, also when the ledger can be reached again.
func TestALapsedBlockIsNotSpentFrom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1, Idle: time.Hour})
		alone, other := w.replicas[0], w.replicas[1]
		w.take(alone, w.hold(1, 1000))
		held := w.take(alone, w.hold(99, 1000)) // of a block of 500
		synctest.Wait()
		w.links[0].set(func(k *link) { k.cut = true })
		pass(2 * blocks.DefaultTTL)
		w.take(other, w.hold(1000, 1000))
		w.links[0].set(func(k *link) { k.cut = false })
		pass(blocks.DefaultTTL / 2)
		w.refuse(alone, w.hold(1, 1000))
		w.stands(w.ledger, w.hold(0, 1000), 0, 1100) // what is held is held again
		w.settle(alone, held, 50)
		w.refuse(alone, w.hold(1, 1000))
		w.flush()
		w.stands(w.ledger, w.hold(0, 1000), 50, 1001)
	})
}

// A call that takes from what is just being returned does not lose what it has taken.
func TestWhatIsTakenWhileItIsReturnedIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{Min: quota.Amounts{quota.Tokens: 900}, Share: 1})
		l := w.replicas[0]
		w.take(l, w.hold(1, 1000))
		w.take(l, w.hold(9, 1000)) // of a block of 900
		synctest.Wait()
		w.links[0].set(func(k *link) { k.away = 100 * time.Millisecond })
		before := w.links[0].sent("reserve")
		for w.links[0].sent("reserve") == before {
			pass(10 * time.Millisecond)
		}
		w.take(l, w.hold(500, 1000)) // the request for what is held is on its way
		for range 200 {
			if res := w.try(w.replicas[1], budget.NewID(), w.hold(491, 1000)); res.Denied < 0 {
				t.Fatal("with 510 of 1000 taken, 491 pass")
			}
			pass(10 * time.Millisecond)
		}
		w.take(w.replicas[1], w.hold(490, 1000))
	})
}

// While the ledger is away, who can be served from a block is, also when others wait
// who cannot.
func TestAnOutageStopsOnlyWhoNeedsMoreThanIsLeased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		l := w.replicas[0]
		w.take(l, w.hold(1, 10_000))
		w.take(l, w.hold(1, 10_000))
		defer w.links[0].stall()()
		much, little := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := l.Reserve(context.Background(), quota.Reserve{ID: "much", Tree: "global", Entries: []quota.Entry{w.hold(800, 10_000)}})
			much <- err
		}()
		synctest.Wait()
		began := time.Now()
		go func() {
			res, err := l.Reserve(context.Background(), quota.Reserve{ID: "little", Tree: "global", Entries: []quota.Entry{w.hold(5, 10_000)}})
			if res.Denied >= 0 {
				t.Error("denied")
			}
			little <- err
		}()
		if err := <-much; !unavailable(err) || time.Since(began) > 2*blocks.DefaultTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-little; err != nil || time.Since(began) > 2*blocks.DefaultTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A request for a block whose reply was lost is repeated with the same id, so that the
// block is there, and not two of them.
func TestALostReplyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		lose := func() {
			w.links[0].set(func(k *link) { k.lose = 1 })
			if _, err := l.Reserve(t.Context(), quota.Reserve{ID: budget.NewID(), Tree: "global", Entries: []quota.Entry{w.hold(600, 1000)}}); !unavailable(err) {
				t.Fatalf("error is %v", err)
			}
			w.stands(w.ledger, w.hold(0, 1000), 0, 600)
		}
		lose()
		pass(3 * time.Second) // nobody needs it
		w.stands(w.ledger, w.hold(0, 1000), 0, 0)

		lose()
		id := w.take(l, w.hold(600, 1000)) // there would not be room for another one
		w.stands(w.ledger, w.hold(0, 1000), 0, l.Stats().Leased[quota.Tokens])

		w.links[0].set(func(k *link) { k.lose = 1 })
		w.settle(l, id, 450)
		pass(time.Minute)
		w.stands(w.ledger, w.hold(0, 1000), 450, 0)
		if got := w.replicas[0].Stats(); got.Spent[quota.Tokens] != 0 || got.Blocks != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A settlement that the ledger cannot take for longer than it remembers reservations is
// booked all the same.
func TestWhatWasSpentIsBookedHoweverLongTheLedgerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		id := w.take(l, w.hold(600, 1000))
		w.links[0].set(func(k *link) { k.cut = true })
		w.settle(l, id, 450)
		pass(3 * time.Hour)
		for range 100 { // others use the ledger, which forgets
			w.take(w.ledger, w.entry(quota.Count, 0, 1000))
			pass(time.Minute)
		}
		w.links[0].set(func(k *link) { k.cut = false })
		pass(time.Minute)
		history, err := w.ledger.History(t.Context(), "global", w.hold(0, 0).Counter, 100)
		if err != nil || len(history) == 0 {
			t.Fatalf("History = %v, %v", history, err)
		}
		if st := history[len(history)-1]; st.Committed != 450 || !st.Span.Start.Equal(w.began) {
			t.Errorf("the window in which it was spent stands at %+v", st)
		}
	})
}

func TestAClosedLedgerReturnsWhatItLeased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		l := w.replicas[0]
		w.settle(l, w.take(l, w.hold(10, 1000)), 10)
		w.settle(l, w.take(l, w.hold(20, 1000)), 15)
		w.take(l, w.hold(30, 1000)) // still under way
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.stands(w.ledger, w.hold(0, 1000), 25, 30)
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if _, err := l.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "global", Entries: []quota.Entry{w.hold(1, 1000)}}); !unavailable(err) {
			t.Errorf("Reserve after Close: %v", err)
		}
		pass(blocks.DefaultTTL)
		w.stands(w.ledger, w.hold(0, 1000), 25, 0)
	})
}

func TestClosingEndsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Timeout: time.Hour})
		defer w.links[0].stall()()
		done := make(chan error, 1)
		go func() {
			_, err := w.replicas[0].Reserve(context.Background(), quota.Reserve{ID: "x", Tree: "global", Entries: []quota.Entry{w.hold(1, 1000)}})
			done <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.replicas[0].Close(ctx)
		if err := <-done; !unavailable(err) {
			t.Errorf("error is %v", err)
		}
	})
}
