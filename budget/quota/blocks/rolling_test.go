package blocks_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// taken is what was let through at a time.
type taken struct {
	at     time.Time
	amount int64
}

// most is the largest excess, over all intervals, of what was taken in it above what a
// bucket lets through.
func most(all []taken, limit, burst int64) (excess int64) {
	slices.SortStableFunc(all, func(a, b taken) int { return a.at.Compare(b.at) })
	for i := range all {
		sum := int64(0)
		for j := i; j < len(all); j++ {
			sum += all[j].amount
			refilled := int64(float64(limit) * all[j].at.Sub(all[i].at).Minutes())
			excess = max(excess, sum-burst-refilled-1)
		}
	}
	return excess
}

// Whatever replicas do, over any time they let no more through than the burst and what
// has refilled, and what lay idle in their blocks; and those who are told to wait wait
// long enough.
func TestReplicasShareARate(t *testing.T) {
	bubbles(t, func(t *testing.T, rt *rapid.T) {
		const limit, burst = 600, 300
		w := newWorld(t, rapid.IntRange(1, 3).Draw(rt, "replicas"), blocks.Config{
			Share: rapid.SampledFrom([]float64{0, 0.3}).Draw(rt, "share"),
		})
		wait := rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(rt, "max wait")
		var all []taken
		var open []struct {
			at     int
			id     string
			amount int64
		}
		idle, n := int64(0), 0
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				at := rapid.IntRange(0, len(w.replicas)-1).Draw(t, "replica")
				amount := rapid.Int64Range(1, burst/2).Draw(t, "amount")
				kind := rapid.SampledFrom([]quota.Kind{quota.Hold, quota.Count}).Draw(t, "kind")
				n++
				id := fmt.Sprint("call-", n)
				res := w.try(w.replicas[at], id, w.perMinute(kind, amount, limit, burst, wait))
				switch {
				case res.Denied >= 0 && (res.Wait != 0 || res.Never || res.RetryAfter <= 0):
					t.Fatalf("denied with %+v", res)
				case res.Denied >= 0:
					return
				case res.Wait > wait:
					t.Fatalf("told to wait for %v, more than %v", res.Wait, wait)
				}
				all = append(all, taken{time.Now().Add(res.Wait), amount})
				if kind == quota.Hold {
					open = append(open, struct {
						at     int
						id     string
						amount int64
					}{at, id, amount})
				}
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "call")
				k := open[i]
				open = append(open[:i], open[i+1:]...)
				// To what it held: refunds would make room that all does not know of.
				w.settle(w.replicas[k.at], k.id, k.amount)
			},
			"pass": func(t *rapid.T) {
				most := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t, "at most")
				pass(time.Duration(rapid.Int64Range(1, int64(most)).Draw(t, "for")))
			},
			"": func(*rapid.T) {
				synctest.Wait()
				now := int64(0)
				for _, l := range w.replicas {
					now += l.Stats().Idle[quota.Tokens]
				}
				idle = max(idle, now)
			},
		})
		if excess := most(all, limit, burst); excess > idle {
			rt.Fatalf("%d more than the bucket lets through, and never more than %d lay idle", excess, idle)
		}
	})
}

// As long as the demand is above the rate, the rate is what passes: neither blocks nor
// refunds let more or less of it through.
func TestTheRateHoldsUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, blocks.Config{})
		for _, k := range w.links {
			k.set(func(k *link) { k.away = time.Millisecond })
		}
		const limit, burst, minutes = 6000, 1000, 4
		var mu sync.Mutex
		var wg sync.WaitGroup
		used := int64(0)
		for i, l := range w.replicas {
			for range 8 { // workers, each of which makes one call after the other
				wg.Go(func() {
					for end := time.Now().Add(minutes * time.Minute); time.Now().Before(end); {
						id := budget.NewID()
						res := w.try(l, id, w.perMinute(quota.Hold, 60, limit, burst, 2*time.Second))
						if res.Denied >= 0 {
							time.Sleep(min(res.RetryAfter, time.Second))
							continue
						}
						time.Sleep(res.Wait + time.Duration(500+100*i)*time.Millisecond)
						w.settle(l, id, 40)
						mu.Lock()
						used += 40
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if want := int64(limit * minutes); used < want*9/10 || used > want+burst+1000 {
			t.Errorf("%d were used in %d minutes at %d a minute with a burst of %d", used, minutes, limit, burst)
		}
	})
}

func TestARollingDebtIsWaitedForAsLongAsWithoutBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		call := func(amount int64, wait time.Duration) quota.Entry {
			return w.perMinute(quota.Hold, amount, 60_000, 60_000, wait)
		}
		w.take(w.replicas[0], call(58_000, 0))
		if res := w.refuse(w.replicas[1], call(6_000, 2*time.Second)); res.RetryAfter != 2*time.Second || res.Never || res.Wait != 0 {
			t.Fatalf("beyond MaxWait: %+v", res)
		}
		if res := w.try(w.replicas[1], "waits", call(6_000, 4*time.Second)); res.Denied >= 0 || res.Wait != 4*time.Second {
			t.Fatalf("within MaxWait: %+v", res)
		}
		if res := w.refuse(w.replicas[0], call(60_001, 0)); !res.Never {
			t.Fatalf("more than the burst: %+v", res)
		}
	})
}

// Those who wait together wait each as long as if they had come one after the other.
func TestThoseWhoWaitForARateWaitInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		w.take(l, w.perMinute(quota.Count, 100, 60, 100, 0)) // all of the burst
		w.links[0].set(func(k *link) { k.away = 10 * time.Millisecond })
		waits := make([]time.Duration, 6)
		var wg sync.WaitGroup
		for i := range waits {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				res := w.try(l, fmt.Sprint(i), w.perMinute(quota.Hold, 2, 60, 100, 8500*time.Millisecond))
				waits[i] = res.Wait
				if res.Denied >= 0 {
					waits[i] = -res.RetryAfter
				}
			})
		}
		wg.Wait()
		for i, got := range waits {
			// The i-th needs what refills in 2(i+1) seconds; the requests take a moment.
			want := time.Duration(2*(i+1)) * time.Second
			if i >= 4 {
				want = -(10*time.Second - 8500*time.Millisecond)
			}
			if (got - want).Abs() > 100*time.Millisecond {
				t.Errorf("the %d-th waits for %v, want %v", i, got, want)
			}
		}
	})
}

// What calls give back is there again, and what they give back late is not more than
// what has not flowed over.
func TestRefundsOfARollingLimitAreNeverTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		call := func(amount int64) quota.Entry { return w.perMinute(quota.Hold, amount, 60, 600, 0) }
		w.settle(l, w.take(l, call(600)), 100)
		w.stands(l, call(0), 100, 0)
		pass(2 * blocks.DefaultIdle)
		w.take(l, call(500))
		w.refuse(l, call(100))

		pass(time.Hour)
		first := budget.NewID()
		if _, err := l.Reserve(t.Context(), quota.Reserve{ID: first, Tree: "global", TTL: 2 * time.Hour, Entries: []quota.Entry{call(600)}}); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute) // all of it has refilled
		w.take(l, w.perMinute(quota.Count, 600, 60, 600, 0))
		w.release(l, first)
		w.refuse(l, call(10))
		pass(2 * blocks.DefaultIdle)
		if res := w.refuse(l, call(10)); res.Status[0].Left() > 5 {
			t.Errorf("%d are left after a release of what had flowed over", res.Status[0].Left())
		}
	})
}

// What a call holds stays taken when the rest of its block is returned, or what others
// have given back.
func TestWhatIsHeldOfARollingLimitOutlivesItsBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}, Share: 1})
		l := w.replicas[0]
		call := func(amount int64) quota.Entry { return w.perMinute(quota.Hold, amount, 1, 1000, 0) }
		w.settle(l, w.take(l, call(1)), 1)
		id := w.take(l, call(100)) // of a block of 500
		other := w.take(l, call(50))
		synctest.Wait()
		w.stands(w.ledger, call(0), 501, 500)
		pass(2 * blocks.DefaultIdle)
		w.stands(w.ledger, call(0), 151, 150)
		w.settle(l, other, 20)
		pass(2 * blocks.DefaultIdle)
		w.stands(w.ledger, call(0), 121, 100)
		w.stands(l, call(0), 121, 100)
		w.settle(l, id, 70)
		pass(2 * blocks.DefaultIdle)
		w.stands(w.ledger, call(0), 91, 0)
	})
}

// Who comes right after an overrun waits for that, too.
func TestARollingOverrunIsWaitedForAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 { // the ledger may be told before or after the next one asks
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, blocks.Config{})
			l := w.replicas[0]
			w.settle(l, w.take(l, w.perMinute(quota.Hold, 10, 60, 60, 0)), 100)
			res := w.try(l, "next", w.perMinute(quota.Hold, 1, 60, 60, time.Minute))
			if res.Denied >= 0 || res.Wait != 41*time.Second {
				t.Errorf("%+v, want a wait of 41s", res)
			}
		})
	}
}

func TestARollingOverrunIsADebtForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, blocks.Config{})
		call := func(amount int64) quota.Entry { return w.perMinute(quota.Hold, amount, 60, 60, 0) }
		id := w.take(w.replicas[0], call(60))
		if res := w.settle(w.replicas[0], id, 3600); !res.Over || res.Status[0].Committed != 3600 {
			t.Errorf("Settle = %+v", res)
		}
		if res := w.refuse(w.replicas[0], call(1)); res.RetryAfter != 3541*time.Second {
			t.Errorf("here RetryAfter is %v, want 59m1s", res.RetryAfter)
		}
		synctest.Wait()
		if res := w.refuse(w.replicas[1], call(1)); res.RetryAfter != 3541*time.Second {
			t.Errorf("elsewhere RetryAfter is %v, want 59m1s", res.RetryAfter)
		}
	})
}

func TestObservedRollingLimitsTakeNothingWhereThereIsNoRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		observed := w.perMinute(quota.Hold, 10, 20, 20, 0)
		observed.Observe = true
		over := 0
		for range 30 {
			res := w.try(l, budget.NewID(), observed)
			if res.Denied >= 0 || res.Wait != 0 {
				t.Fatalf("%+v", res)
			}
			over += len(res.Over)
		}
		if over != 28 {
			t.Errorf("%d of 30 were above the limit, want 28", over)
		}
		w.stands(w.ledger, observed, 20, 20)
		none := w.perMinute(quota.Hold, 1<<50, -1, 0, 0)
		if res := w.try(l, "unlimited", none); res.Denied >= 0 || res.Status[0].Limit != -1 || res.Status[0].Committed != 0 {
			t.Errorf("without a limit: %+v", res)
		}
		if _, err := l.Settle(context.Background(), quota.Settle{ID: "unlimited", Tree: "global", Actual: quota.Amounts{quota.Tokens: 1 << 50}}); err != nil {
			t.Error(err)
		}
		w.stands(w.ledger, w.perMinute(quota.Hold, 0, 20, 20, 0), 20, 20)
	})
}
