package blocks_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// traffic makes calls at a steady rate for a while: each holds an amount, lasts some
// time and uses something.
type traffic struct {
	every, lasts time.Duration
	entries      []quota.Entry
	used         quota.Amounts
}

func (w *world) traffic(l quota.Ledger, d time.Duration, f traffic) (passed, denied int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(f.every) {
		wg.Go(func() {
			id := budget.NewID()
			res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: "global", Entries: f.entries})
			mu.Lock()
			switch {
			case err != nil:
				w.Error(err)
			case res.Denied >= 0:
				denied++
			default:
				passed++
			}
			mu.Unlock()
			if err != nil || res.Denied >= 0 {
				return
			}
			time.Sleep(f.lasts)
			if _, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: "global", Actual: f.used}); err != nil {
				w.Error(err)
			}
		})
	}
	wg.Wait()
	return passed, denied
}

func TestBlocksSaveAtLeastNineteenOfTwentyRoundTrips(t *testing.T) {
	t.Parallel()
	calls := func(t *testing.T, entries func(*world) []quota.Entry, wrap bool) (trips, n int) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 4, blocks.Config{})
			for _, k := range w.links {
				k.set(func(k *link) { k.away = time.Millisecond })
			}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i, l := range w.replicas {
				ledger := quota.Ledger(l)
				if !wrap {
					ledger = w.links[i]
				}
				wg.Go(func() {
					passed, denied := w.traffic(ledger, 40*time.Second, traffic{
						every: 20 * time.Millisecond, lasts: 3 * time.Second, entries: entries(w),
						used: quota.Amounts{quota.Tokens: 3000, quota.Calls: 1, quota.Money: 700},
					})
					mu.Lock()
					defer mu.Unlock()
					n += passed
					if denied > 0 {
						t.Errorf("%d calls were denied", denied)
					}
				})
			}
			wg.Wait()
			pass(2 * blocks.DefaultIdle) // all is returned
			for _, k := range w.links {
				trips += k.all()
			}
			for _, e := range entries(w) {
				used := map[quota.Unit]int64{quota.Tokens: 3000, quota.Calls: 1, quota.Money: 700}[e.Unit]
				w.stands(w.ledger, e, int64(n)*used, 0)
			}
		})
		return trips, n
	}
	for name, entries := range map[string]func(*world) []quota.Entry{
		"one limit": func(w *world) []quota.Entry { return []quota.Entry{w.hold(4000, 1e9)} },
		"three limits": func(w *world) []quota.Entry {
			tokens, count, money := w.hold(4000, 1e9), w.hold(1, 1e6), w.hold(900, 1e9)
			count.Unit, money.Unit = quota.Calls, quota.Money
			return []quota.Entry{tokens, count, money}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, n := calls(t, entries, false)
			leased, m := calls(t, entries, true)
			t.Logf("%d calls: %d round trips without blocks, %d with: %.0f times fewer", m, plain, leased, float64(plain)/float64(leased))
			if n != m || plain != 2*n || 20*leased > plain {
				t.Errorf("%d and %d calls made %d and %d round trips", n, m, plain, leased)
			}
		})
	}
}

// Nobody waits for the ledger while calls come steadily, and it is asked for no more
// than is needed.
func TestMoreIsLeasedBeforeAnybodyHasToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		w.links[0].set(func(k *link) { k.away = 50 * time.Millisecond })
		l := w.replicas[0]
		f := traffic{every: 25 * time.Millisecond, lasts: time.Second, entries: []quota.Entry{w.hold(100, 1e9)}, used: quota.Amounts{quota.Tokens: 100}}
		w.traffic(l, 2*time.Second, f)
		before := l.Stats()
		w.traffic(l, 20*time.Second, f)
		after := l.Stats()
		if n := after.Waited - before.Waited; n > 0 {
			t.Errorf("%d calls had to wait", n)
		}
		// 40 calls a second for 2 seconds, and a quarter left when more is leased.
		if n := after.BlocksLeased - before.BlocksLeased; n < 10 || n > 30 {
			t.Errorf("%d blocks were leased for 800 calls, want one for about every second and a half", n)
		}
		if idle := after.Idle[quota.Tokens]; idle > 2*80*100 {
			t.Errorf("%d lie idle, more than two blocks", idle)
		}
	})
}

func TestRareCallsLeaseWhatTheyAskFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		l := w.replicas[0]
		for range 5 {
			id := w.take(l, w.hold(700, 1e9))
			if s := l.Stats(); s.Leased[quota.Tokens] != 700 || s.Idle[quota.Tokens] != 0 {
				t.Fatalf("leased %d, of which %d are idle, want 700 and 0", s.Leased[quota.Tokens], s.Idle[quota.Tokens])
			}
			w.settle(l, id, 700)
			pass(10 * time.Second)
		}
		if n := w.links[0].all(); n != 10 {
			t.Errorf("5 calls made %d round trips, want 10: no more than without blocks", n)
		}
	})
}

func TestBlocksAreBoundedByShareMinAndMax(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg   blocks.Config
		limit int64
		want  int64 // leased after 50 calls of 10 at once
	}{
		"a hundredth of what is left": {blocks.Config{Share: 0.01}, 20_000, 500 + 195},
		"at most Max":                 {blocks.Config{Max: quota.Amounts{quota.Tokens: 40}}, 1e9, 500 + 40},
		// The first call takes its 10 before it is known how much is left.
		"at least Min":              {blocks.Config{Min: quota.Amounts{quota.Tokens: 5000}}, 1e9, 5010},
		"no more than what is left": {blocks.Config{Min: quota.Amounts{quota.Tokens: 5000}, Share: 1}, 600, 600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, c.cfg)
				for range 50 {
					w.take(w.replicas[0], w.hold(10, c.limit))
					synctest.Wait()
				}
				if got := w.replicas[0].Stats().Leased[quota.Tokens]; got > c.want || got < 500 {
					t.Errorf("leased %d, want at most %d", got, c.want)
				}
			})
		})
	}
}

// Many who come at once to a counter of which nothing is leased are served by few
// requests, in the order in which they came.
func TestThoseWhoComeTogetherAreServedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		w.links[0].set(func(k *link) { k.away = 10 * time.Millisecond })
		var mu sync.Mutex
		var wg sync.WaitGroup
		passed := 0
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				res := w.try(w.replicas[0], budget.NewID(), w.hold(100, 15_000))
				mu.Lock()
				defer mu.Unlock()
				if res.Denied < 0 {
					passed++
					if i >= 150 {
						t.Errorf("caller %d was served before one who came earlier", i)
					}
				}
			})
		}
		wg.Wait()
		if passed != 150 {
			t.Errorf("%d passed, want 150", passed)
		}
		if n := w.links[0].all(); n > 10 {
			t.Errorf("%d round trips for 200 callers who came together", n)
		}
	})
}

// One who needs much is not passed over by others who need little and come later.
func TestWhoNeedsMuchIsNotOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 100}, Share: 1})
		l := w.replicas[0]
		w.take(l, w.hold(10, 200))
		w.take(l, w.hold(10, 200)) // 90 are left of what is leased, and 90 of the limit
		synctest.Wait()
		if idle := l.Stats().Idle[quota.Tokens]; idle != 90 {
			t.Fatalf("%d are idle, so that the test is none", idle)
		}
		w.links[0].set(func(k *link) { k.away = 10 * time.Millisecond })
		var wg sync.WaitGroup
		wg.Go(func() {
			if res := w.try(l, "much", w.hold(180, 200)); res.Denied >= 0 {
				t.Errorf("denied: %+v", res)
			}
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() { w.refuse(l, w.hold(10, 200)) })
		}
		wg.Wait()
	})
}

// What somebody wanted who is denied because of something else is there for those who
// came later.
func TestWhoIsDeniedLeavesWhatItWantedToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Min: quota.Amounts{quota.Tokens: 90}, Share: 1, Idle: time.Hour})
		l := w.replicas[0]
		other := w.entry(quota.Count, 10, 10)
		other.Unit = quota.Calls
		w.take(w.ledger, other)
		other.Amount = 1
		w.refuse(l, other)
		pass(2 * blocks.DefaultRecheck)
		w.take(l, w.hold(10, 100))
		w.take(l, w.hold(40, 100)) // 50 are left of a block, and nothing of the limit
		synctest.Wait()
		w.links[0].set(func(k *link) { k.away = 10 * time.Millisecond })
		var wg sync.WaitGroup
		wg.Go(func() { w.stands(l, other, 10, 0) }) // nobody else can ask about calls meanwhile
		synctest.Wait()
		wg.Go(func() {
			if res := w.refuse(l, w.hold(50, 100), other); res.Denied != 1 {
				t.Errorf("denied at entry %d, want that of the calls", res.Denied)
			}
		})
		synctest.Wait()
		wg.Go(func() { w.take(l, w.hold(50, 100)) })
		wg.Wait()
	})
}

// Before anything is denied the ledger is asked for what is left, down to what is
// asked for.
func TestTheLastOfALimitIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, blocks.Config{Min: quota.Amounts{quota.Tokens: 500}})
		passed := 0
		for i := range 1000 {
			if w.try(w.replicas[i%3], budget.NewID(), w.hold(1, 900)).Denied < 0 {
				passed++
			}
			if i%10 == 0 {
				pass(100 * time.Millisecond)
			}
		}
		if passed != 900 {
			t.Errorf("%d of 900 passed", passed)
		}
	})
}

func TestWhatLiesIdleIsReturned(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"alone": false, "while a part of it is held": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2, blocks.Config{Min: quota.Amounts{quota.Tokens: 1000}, Share: 1})
				w.settle(w.replicas[0], w.take(w.replicas[0], w.hold(100, 1000)), 40)
				id, keeps := w.take(w.replicas[0], w.hold(10, 1000)), int64(0) // now the block is leased
				synctest.Wait()
				if held {
					keeps = 10
				} else {
					w.settle(w.replicas[0], id, 10)
				}
				res := w.refuse(w.replicas[1], w.hold(950-keeps, 1000))
				if res.Never || res.RetryAfter != window {
					t.Errorf("denied with %+v", res)
				}
				if n := w.replicas[1].Stats().DeniedBusy; n != 1 {
					t.Errorf("DeniedBusy = %d, want 1", n)
				}
				pass(blocks.DefaultIdle * 3 / 2)
				if idle := w.replicas[0].Stats().Idle[quota.Tokens]; idle != 0 {
					t.Fatalf("%d are idle still", idle)
				}
				w.take(w.replicas[1], w.hold(950-keeps, 1000))
				if held {
					w.stands(w.ledger, w.hold(0, 1000), 40, 950)
					w.settle(w.replicas[0], id, 7)
					pass(2 * blocks.DefaultIdle)
					w.stands(w.ledger, w.hold(0, 1000), 47, 940)
				} else {
					w.stands(w.ledger, w.hold(0, 1000), 50, 950)
				}
			})
		})
	}
}

// A replica that had much traffic and has little now does not keep what it leased
// then.
func TestWhatIsTooMuchIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		f := traffic{every: 5 * time.Millisecond, entries: []quota.Entry{w.hold(100, 1e9)}, used: quota.Amounts{quota.Tokens: 100}}
		w.traffic(w.replicas[0], 3*time.Second, f)
		much := w.replicas[0].Stats().Leased[quota.Tokens]
		f.every = 900 * time.Millisecond // less than Idle
		w.traffic(w.replicas[0], 10*time.Second, f)
		if s := w.replicas[0].Stats(); much < 5000 || s.Idle[quota.Tokens] > 1000 {
			t.Errorf("%d were leased in a rush, and %d lie idle at a call a second", much, s.Idle[quota.Tokens])
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{})
		resume := w.links[0].stall()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := w.replicas[0].Reserve(ctx, quota.Reserve{ID: "x", Tree: "global", Entries: []quota.Entry{w.hold(10, 100)}})
		if err != context.DeadlineExceeded || time.Since(began) != 100*time.Millisecond {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		resume()
		pass(2 * blocks.DefaultIdle)
		w.stands(w.ledger, w.hold(0, 100), 0, 0) // nobody holds anything
	})
}
