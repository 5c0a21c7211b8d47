package blocks_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// What was leased under a higher limit is not spent under a lower one, unless it is
// below that, too; and a higher one holds at once.
func TestALimitThatChangesHoldsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{Min: quota.Amounts{quota.Tokens: 400}, Share: 1})
		l := w.replicas[0]
		w.settle(l, w.take(l, w.hold(10, 1000)), 10)
		w.take(l, w.hold(90, 1000)) // of a block of 400
		synctest.Wait()

		w.take(l, w.hold(50, 600)) // all that is leased is below it
		if n := w.links[0].sent("reserve"); n != 2 {
			t.Errorf("%d blocks were asked for, want 2", n)
		}
		w.refuse(l, w.hold(1, 150))
		w.refuse(l, w.hold(1, 100))
		w.take(l, w.hold(5, 155))
		w.refuse(l, w.hold(1, 155))
		w.take(l, w.hold(845, 1000))
		w.refuse(w.replicas[1], w.hold(1, 1000))
		w.take(w.replicas[1], w.hold(1, 1001))
	})
}

func TestSoftAndObservedLimitsAreReportedOverAllReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		soft := func(amount int64) quota.Entry {
			e := w.hold(amount, 100)
			e.Soft, e.Ceiling = true, 120
			return e
		}
		for i, c := range []struct {
			amount     int64
			pass, over bool
		}{{100, true, false}, {15, true, true}, {6, false, false}, {5, true, true}, {1, false, false}} {
			res := w.try(w.replicas[i%2], budget.NewID(), soft(c.amount))
			if (res.Denied < 0) != c.pass || (len(res.Over) == 1) != c.over || res.Never {
				t.Errorf("call %d: %+v, want %+v", i, res, c)
			}
		}
		if res := w.refuse(w.replicas[0], soft(121)); !res.Never {
			t.Error("what is above the ceiling may pass some day")
		}
		observed := w.hold(70, 100)
		observed.Key, observed.Observe = "observed", true
		for i, over := range []int{0, 1, 1} {
			if res := w.try(w.replicas[i%2], budget.NewID(), observed); res.Denied >= 0 || len(res.Over) != over {
				t.Errorf("observed call %d: %+v", i, res)
			}
		}
		w.flush()
		w.stands(w.ledger, observed, 0, 210)
	})
}

// A limit that is used up is not asked about again for a moment; one of which others
// may give something back is.
func TestWhatIsUsedUpIsBelievedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		l := w.replicas[0]
		w.take(l, w.entry(quota.Count, 100, 100))
		synctest.Wait()
		w.refuse(l, w.hold(1, 100))
		before := w.links[0].all()
		for range 100 {
			if res := w.refuse(l, w.hold(1, 100)); res.Status[0].Committed != 100 || res.RetryAfter == 0 {
				t.Fatalf("%+v", res)
			}
		}
		if n := w.links[0].all() - before; n != 0 {
			t.Errorf("%d round trips for what is known", n)
		}
		if _, err := w.replicas[1].TopUp(t.Context(), "global", w.hold(0, 100), 30); err != nil {
			t.Fatal(err)
		}
		pass(blocks.DefaultRecheck + 1)
		other := w.take(l, w.hold(30, 100)) // held, and not spent
		for range 10 {
			w.refuse(w.replicas[1], w.hold(1, 100))
		}
		w.release(l, other)
		pass(2 * blocks.DefaultIdle)
		w.take(w.replicas[1], w.hold(30, 100))
	})
}

// A Check is answered here as long as the ledger was heard lately, and denied only
// after it was asked.
func TestChecksNeedARoundTripNowAndThenOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		l := w.replicas[0]
		check := func(amount, limit int64) quota.Entry { return w.entry(quota.Check, amount, limit) }
		w.take(l, w.hold(60, 100))
		before := w.links[0].all()
		for range 100 {
			w.take(l, check(40, 100))
			w.take(l, check(0, 100))
		}
		if n := w.links[0].all() - before; n != 0 {
			t.Errorf("%d round trips for 200 checks", n)
		}
		w.refuse(l, check(41, 100))
		w.settle(w.replicas[1], w.take(w.replicas[1], w.hold(40, 100)), 40)
		pass(blocks.DefaultAhead + 1)
		if res := w.refuse(l, check(0, 100)); res.RetryAfter <= 0 {
			t.Errorf("%+v", res)
		}
		w.stands(l, w.hold(0, 100), 40, 60)
	})
}

// Turns under way at a time are leased one by one; if there is no place, what is
// leased in the same step is not taken, and the other way round.
func TestEntriesOfBothKindsAreTakenTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		turn := func(turns int64) []quota.Entry {
			count := w.entry(quota.Count, 1, turns)
			count.Unit = quota.Turns
			return []quota.Entry{
				count,
				{Counter: quota.Counter{Key: "global", Unit: quota.ConcurrentTurns}, Kind: quota.Lease, Amount: 1, Limit: 2, Ceiling: -1},
				w.entry(quota.Check, 0, 100),
			}
		}
		first := w.take(w.replicas[0], turn(10)...)
		w.take(w.replicas[1], turn(10)...)
		synctest.Wait() // until the ledger has been told that they count
		res := w.refuse(w.replicas[0], turn(10)...)
		if res.Denied != 1 || res.RetryAfter != 0 || len(res.Status) != 3 || res.Status[0].Committed != 2 || res.Status[1].Reserved != 2 {
			t.Errorf("without a place: %+v", res)
		}
		w.release(w.replicas[0], first)
		third := w.take(w.replicas[1], turn(10)...)
		w.flush()
		w.stands(w.ledger, turn(10)[0], 3, 0)
		w.stands(w.ledger, turn(10)[1], 0, 2)

		res = w.refuse(w.replicas[0], turn(3)...)
		if res.Denied != 0 || res.RetryAfter != 0 || res.Status[1].Reserved != 2 || res.Status[2].Counter.Unit != quota.Tokens {
			t.Errorf("turns used up, and no place: %+v", res)
		}
		w.release(w.replicas[1], third)
		if res = w.refuse(w.replicas[0], turn(3)...); res.Denied != 0 || res.RetryAfter <= 0 {
			t.Errorf("turns used up: %+v", res)
		}
		w.stands(w.ledger, turn(10)[1], 0, 1)

		// The lease lives as long as it is renewed, and ends with its process.
		id := budget.NewID()
		r := quota.Reserve{ID: id, Tree: "global", TTL: time.Minute, Entries: turn(10)}
		if res, err := w.replicas[0].Reserve(t.Context(), r); err != nil || res.Denied >= 0 {
			t.Fatal(res, err)
		}
		for range 3 {
			pass(40 * time.Second)
			if lost, err := w.replicas[0].Renew(t.Context(), "global", time.Minute, id); err != nil || len(lost) > 0 {
				t.Fatalf("lost %v, %v", lost, err)
			}
		}
		pass(time.Minute)
		if lost, err := w.replicas[0].Renew(t.Context(), "global", time.Minute, id, "nobody"); err != nil || !slices.Equal(lost, []string{id, "nobody"}) {
			t.Fatalf("lost %v, %v", lost, err)
		}
	})
}

func TestAnErrorOfTheOtherPartLeavesNothingTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Turns: 500}, Share: 1})
		l := w.replicas[0]
		lease := quota.Entry{Counter: quota.Counter{Key: "global", Unit: quota.ConcurrentTurns}, Kind: quota.Lease, Amount: 1, Limit: 2, Ceiling: -1}
		count := w.entry(quota.Count, 10, 1000)
		count.Unit = quota.Turns
		w.take(l, count)
		w.take(l, count) // now there is a block, and only the lease needs the ledger
		synctest.Wait()
		w.links[0].set(func(k *link) { k.lose = 1 })
		r := quota.Reserve{ID: "turn", Tree: "global", Entries: []quota.Entry{count, lease}}
		if _, err := l.Reserve(t.Context(), r); !unavailable(err) {
			t.Fatalf("error is %v", err)
		}
		// Asked for again, it is taken once.
		if res, err := l.Reserve(t.Context(), r); err != nil || res.Denied >= 0 {
			t.Fatal(res, err)
		}
		w.flush()
		w.stands(w.ledger, count, 30, 0)
		w.stands(w.ledger, lease, 0, 1)
		if res, err := l.Reserve(t.Context(), r); err != nil || !res.Repeated || len(res.Status) != 2 {
			t.Fatal(res, err)
		}
		w.release(l, "turn")
		w.stands(w.ledger, count, 30, 0)
		w.stands(w.ledger, lease, 0, 0)
	})
}

func TestExclusiveReservationsAreExclusiveOverAllReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		try := func(at int, id string, amount int64) quota.Reserved {
			res, err := w.replicas[at].Reserve(t.Context(), quota.Reserve{
				ID: id, Tree: "global", Exclusive: "alice", TTL: time.Minute, Entries: []quota.Entry{w.hold(amount, 100)},
			})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		if res := try(0, "first", 60); res.Held || res.Denied >= 0 {
			t.Fatalf("%+v", res)
		}
		for _, amount := range []int64{10, 50} { // with room, and without
			if res := try(1, "second", amount); !res.Held || res.Denied >= 0 || res.RetryAfter != time.Minute || res.Status[0].Reserved != 60 {
				t.Errorf("%d: %+v", amount, res)
			}
		}
		w.settle(w.replicas[0], "first", 60)
		pass(2 * blocks.DefaultIdle)
		if res := try(1, "second", 50); res.Held || res.Denied != 0 {
			t.Errorf("%+v", res)
		}
		if res := try(1, "second", 40); res.Held || res.Denied >= 0 {
			t.Errorf("%+v", res)
		}
	})
}

// Corrections reach what was settled already, in both directions.
func TestCorrectionsReachTheLedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		id := w.take(l, w.hold(300, 1000))
		w.settle(l, id, 250)
		w.flush()
		w.stands(w.ledger, w.hold(0, 1000), 250, 0)
		for seq, used := range []int64{0: 250, 1: 100, 2: 400, 3: 0, 4: 30} {
			res, err := l.Settle(t.Context(), quota.Settle{
				ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: used}, Adjust: seq > 0, Seq: int64(seq),
			})
			if err != nil || res.Repeated != (seq == 0) || res.Status[0].Committed != used {
				t.Fatalf("correction to %d: %+v, %v", used, res, err)
			}
			w.flush()
			w.stands(w.ledger, w.hold(0, 1000), used, 0)
		}
		// Also when the counter was not used for a while, and then by somebody else.
		pass(3 * time.Minute)
		w.settle(l, w.take(l, w.hold(7, 1000)), 7)
		if _, err := l.Settle(t.Context(), quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: 10}, Adjust: true, Seq: 9}); err != nil {
			t.Fatal(err)
		}
		w.flush()
		w.stands(w.ledger, w.hold(0, 1000), 17, 0)
	})
}

func TestSupportChangesWhatAllReplicasSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		a, b := w.replicas[0], w.replicas[1]
		w.settle(a, w.take(a, w.hold(60, 100)), 60)
		w.settle(b, w.take(b, w.hold(30, 100)), 30)
		w.take(a, w.hold(10, 100))
		synctest.Wait()
		w.refuse(b, w.hold(1, 100))
		st, err := b.TopUp(t.Context(), "global", w.hold(0, 100), 50)
		if err != nil || st.Committed != 40 || st.Reserved != 10 || st.Left() != 50 {
			t.Fatalf("TopUp = %+v, %v", st, err)
		}
		w.take(b, w.hold(20, 100))
		if st, err = a.Reset(t.Context(), "global", w.hold(0, 100)); err != nil || st.Committed != 0 || st.Reserved != 30 {
			t.Fatalf("Reset = %+v, %v", st, err)
		}
		w.take(a, w.hold(70, 100))
		w.refuse(b, w.hold(1, 100))
	})
}

func TestErasedKeysAreForgottenHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Leased: func(string, quota.Counter) bool { return true }})
		l := w.replicas[0]
		user, tenant := w.hold(40, 100), w.hold(40, 1000)
		user.Key = "user"
		w.settle(l, w.take(l, user, tenant), 40)
		shared := w.take(l, user, tenant)
		if err := l.Erase(t.Context(), "global", "user"); err != nil {
			t.Fatal(err)
		}
		w.stands(l, user, 0, 0)
		if res := w.settle(l, shared, 25); res.Status[0].Counter.Key != "" || res.Status[1].Committed != 65 {
			t.Errorf("Settle = %+v", res)
		}
		w.flush()
		w.stands(w.ledger, user, 0, 0)
		w.stands(w.ledger, tenant, 65, 0)
		user.Amount = 100
		w.take(l, user)
	})
}

// Each threshold is reported once over all replicas, whichever call is told.
func TestThresholdsAreCrossedOnceOverAllReplicas(t *testing.T) {
	t.Parallel()
	for _, hook := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var told []int
			cfg := blocks.Config{}
			if hook {
				cfg.Crossed = func(tree string, c quota.Crossing) {
					if tree != "global" || c.Limit != 1000 {
						t.Errorf("%s: %+v", tree, c)
					}
					told = append(told, c.Percent)
				}
			}
			w := newWorld(t, 2, cfg)
			e := w.hold(10, 1000)
			e.Thresholds = []int{50, 80, 100}
			count := e
			count.Kind = quota.Count
			hear := func(all []quota.Crossing, after int64) {
				for _, c := range all {
					told = append(told, c.Percent)
					if least := 10 * int64(c.Percent); after < least {
						t.Errorf("%d%% are told after %d were used", c.Percent, after)
					}
				}
			}
			used := int64(0)
			for i := range 50 {
				l := w.replicas[i%2]
				id := budget.NewID()
				res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: "global", Entries: []quota.Entry{e}})
				if err != nil || res.Denied >= 0 {
					t.Fatal(i, res, err)
				}
				used += 10
				hear(res.Crossed, used)
				hear(w.settle(l, id, 10).Crossed, used)
				res = w.try(l, budget.NewID(), count)
				used += 10
				hear(res.Crossed, used)
				pass(100 * time.Millisecond)
			}
			pass(5 * time.Second)
			w.try(w.replicas[0], "a", quota.Entry{Counter: e.Counter, Kind: quota.Check, Limit: 2000, Ceiling: -1, Spans: e.Spans})
			hear(w.try(w.replicas[0], "b", w.hold(0, 2000)).Crossed, used)
			hear(w.try(w.replicas[1], "c", w.hold(0, 2000)).Crossed, used)
			if !slices.Equal(told, []int{50, 80, 100}) {
				t.Errorf("with a hook (%v), %v were told", hook, told)
			}
		})
	}
}

// A call that brings a counter to a threshold is told so at once.
func TestTheCallThatCrossesAThresholdIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		l := w.replicas[0]
		e := w.hold(30, 100)
		e.Thresholds = []int{80}
		for i, want := range []int{0, 0, 1} {
			id := w.take(l, e)
			if res := w.settle(l, id, 27); len(res.Crossed) != want {
				t.Errorf("call %d crosses %v", i, res.Crossed)
			}
		}
	})
}
