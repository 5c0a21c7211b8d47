package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// Gates with everything at once: two limits and slots that are all scarce, classes
// with minimums, ceilings, large calls, calls wider than all slots, refunds, calls
// that are given up, replies that are lost, a store that is down for less than a
// lease, gates that join and leave. The provider is never asked for more than it has,
// everybody is served, and in the end everything is back.
func TestGatesUnderHavoc(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%v_%d", mode, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { havoc(t, mode, seed) })
			})
		}
	}
}

func havoc(t *testing.T, mode share.Mode, seed uint64) {
	const perMinute, requests, slots = 12_000, 240, 8
	store := open(share.CoordinatorConfig{})
	profile := ratelimited.Profile{Name: "test", Dimensions: []ratelimited.Dimension{
		{Name: "tokens", Limit: perMinute, Count: ratelimited.InputTokens},
		{Name: "requests", Limit: requests, Count: ratelimited.OneRequest, Shape: ratelimited.Bucket},
	}}
	cfg := ratelimited.Config{
		Slots: slots, Profile: profile,
		Classes: []ratelimited.Class{{Name: "a", MinSlots: 2}, {Name: "b", Weight: 3, MinSlots: 1}, {Name: "c", MaxSlots: 5}},
		PerFlow: ratelimited.Ceiling{Share: 0.5, Slots: 6},
	}
	p, q := newProvider(perMinute, false), newProvider(requests, true)
	var running atomic.Int64
	var served, failed atomic.Int64
	life := func(r int) {
		g := join(t, agent.Config{Open: store.Open, Mode: mode, Logger: slog.New(slog.DiscardHandler)}, cfg)
		rnd := rand.New(rand.NewPCG(seed, uint64(r)))
		var calls sync.WaitGroup
		for range 15 {
			cost := int64(1 + rnd.IntN(600))
			switch rnd.IntN(30) {
			case 0:
				cost = perMinute / 4 // half of its flow's ceiling
			case 1:
				cost = 1
			}
			wide := 1
			if rnd.IntN(10) == 0 {
				wide = 1 + rnd.IntN(slots+4)
			}
			class, flow := string(rune('a'+rnd.IntN(3))), string(rune('p'+rnd.IntN(4)))
			begins := time.Duration(rnd.IntN(60_000)) * time.Millisecond
			late, lasts := time.Duration(rnd.IntN(1500))*time.Millisecond, time.Duration(rnd.IntN(8000))*time.Millisecond
			refund, gives := rnd.IntN(3) == 0, rnd.IntN(12) == 0
			calls.Go(func() {
				time.Sleep(begins)
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				if gives {
					ctx, cancel = context.WithTimeout(context.Background(), time.Second)
				}
				defer cancel()
				permit, err := g.Acquire(ctx, ratelimited.Call{Class: class, Flow: flow, Slots: wide, Usage: usage.Usage{Input: cost}})
				if err != nil {
					if !gives {
						failed.Add(1)
						t.Errorf("a call of %d tokens and %d slots: %v", cost, wide, err)
					}
					return
				}
				if n := running.Add(int64(wide)); n > slots && int(n) > wide {
					t.Errorf("%d slots are in use", n)
				}
				time.Sleep(late)
				used := cost
				if refund {
					used = cost / 2
				}
				p.take(used)
				q.take(1)
				time.Sleep(lasts / 2)
				permit.Counted()
				time.Sleep(lasts / 2)
				running.Add(-int64(wide))
				permit.End(usage.Usage{Input: used})
				served.Add(1)
			})
		}
		calls.Wait()
		end(t, g)
	}
	var all sync.WaitGroup
	rnd := rand.New(rand.NewPCG(seed, 99))
	for r := range 4 {
		all.Go(func() {
			time.Sleep(time.Duration(r) * 20 * time.Second)
			life(r)
			life(r + 10)
		})
	}
	stop := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(5+rnd.IntN(20)) * time.Second):
			}
			switch rnd.IntN(3) {
			case 0:
				store.DropReplies(1 + rnd.IntN(3))
			case 1:
				store.SetDown(true)
				time.Sleep(time.Duration(rnd.IntN(2500)) * time.Millisecond)
				store.SetDown(false)
			case 2:
				store.SetLatency(func() time.Duration { return 700 * time.Millisecond }) // the answers are late
				time.Sleep(time.Duration(rnd.IntN(2500)) * time.Millisecond)
				store.SetLatency(func() time.Duration { return 2 * time.Millisecond })
			}
		}
	})
	began := time.Now()
	all.Wait()
	close(stop)
	chaos.Wait()
	t.Logf("%d served, %d failed, in %v (tokens need %v); %d requests", served.Load(), failed.Load(), time.Since(began), time.Duration(p.served)*time.Minute/perMinute, store.Requests())
	if took, least := time.Since(began), time.Duration(p.served)*time.Minute/perMinute; took > 2*least+2*time.Minute {
		t.Errorf("it took %v, though the tokens were there after %v", took, least)
	}
	p.check(t, 1000)
	q.check(t, 1000)
	time.Sleep(3 * time.Minute)
	for i, b := range store.Books() {
		if b.Outstanding != 0 || b.Level < b.Limit {
			t.Errorf("in the end the books of dimension %d are %+v", i, b)
		}
	}
}
