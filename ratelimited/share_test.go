package ratelimited_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
)

// served keeps workers busy with calls of a second each until d has passed, and
// counts how many calls each key was served.
func served(t *testing.T, g *ratelimited.Gate, d time.Duration, workers int, calls map[string]ratelimited.Call) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var mu sync.Mutex
	n := make(map[string]int)
	var wg sync.WaitGroup
	for key, call := range calls {
		for range workers {
			wg.Go(func() {
				for {
					p, err := g.Acquire(ctx, call)
					if err != nil {
						return
					}
					mu.Lock()
					n[key]++
					mu.Unlock()
					time.Sleep(time.Second)
					p.End(call.Usage)
				}
			})
		}
	}
	wg.Wait()
	return n
}

// mustShare checks that calls were served in proportion to the weights, up to
// a few calls.
func mustShare(t *testing.T, n map[string]int, weights map[string]float64) {
	t.Helper()
	calls, sum := 0, 0.0
	for key, w := range weights {
		calls += n[key]
		sum += w
	}
	for key, w := range weights {
		want := float64(calls) * w / sum
		if d := float64(n[key]) - want; d < -8 || d > 8 {
			t.Errorf("%s was served %d calls of %d, want about %.0f", key, n[key], calls, want)
		}
	}
}

func TestFlowsShareByWeight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		weights := map[string]float64{"one": 1, "two": 2, "four": 4, "default": 1}
		g := newGate(t, ratelimited.Config{Slots: 4, FlowWeight: func(_, flow string) float64 {
			if flow == "default" {
				return -1 // not above 0: counts as 1
			}
			return weights[flow]
		}})
		calls := make(map[string]ratelimited.Call)
		for flow := range weights {
			calls[flow] = ratelimited.Call{Flow: flow}
		}
		mustShare(t, served(t, g, 100*time.Second, 8, calls), weights)
		mustBeIdle(t, g)
	})
}

// Classes share by weight while they compete; one that is alone gets everything.
func TestClassesShareByWeight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 4})
		n := served(t, g, 100*time.Second, 8, map[string]ratelimited.Call{
			"interactive": {Class: "interactive"}, "normal": {}, "batch": {Class: "batch"},
		})
		mustShare(t, n, map[string]float64{"interactive": 4, "normal": 2, "batch": 1})
		if n := served(t, g, 10*time.Second, 8, map[string]ratelimited.Call{"batch": {Class: "batch"}}); n["batch"] < 38 {
			t.Errorf("a class that is alone was served %d calls in 10s of 4 slots, want 40", n["batch"])
		}
		mustBeIdle(t, g)
	})
}

// A cap bounds a class even when it is alone; a reserved minimum is kept free
// for a class that is idle.
func TestClassBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 6, Classes: []ratelimited.Class{
			{Name: "normal"}, {Name: "capped", MaxSlots: 2}, {Name: "kept", MinSlots: 1},
		}})
		capped, releaseCapped, errs := line(t, t.Context(), g, 5, ratelimited.Call{Class: "capped"})
		if n := capped(); n != 2 {
			t.Errorf("a class with a cap of 2 has %d calls in flight", n)
		}
		normal, releaseNormal, more := line(t, t.Context(), g, 5, ratelimited.Call{})
		if n := normal(); n != 3 {
			t.Errorf("%d calls beside 2 and a reserved slot of 6, want 3", n)
		}
		p, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), 0), ratelimited.Call{Class: "kept"})
		if err != nil {
			t.Fatalf("the reserved slot is not free: %v", err)
		}
		if c := g.Stats().Classes[2]; c.Name != "kept" || c.SlotsInUse != 1 || c.Waiting != 0 || c.Flows != 1 {
			t.Errorf("the class's snapshot is %+v", c)
		}
		p.Release()
		for range 5 {
			releaseCapped(1)
			releaseNormal(1)
		}
		for range 5 {
			<-errs
			<-more
		}
		mustBeIdle(t, g)
	})
}

// An agent framework starts as many branches as it likes. The ceilings bound
// what one request and one flow hold, by keys that the framework's own context
// gives, and others pass whoever is over its ceiling.
func TestCeilingsBoundWhatOnePartyHolds(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  ratelimited.Config
		most int64
	}{
		"per request": {ratelimited.Config{PerRequest: ratelimited.Ceiling{Slots: 4}}, 4},
		"per flow":    {ratelimited.Config{PerFlow: ratelimited.Ceiling{Slots: 3}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				test.cfg.Slots = 10
				g := newGate(t, test.cfg)
				f := answers(time.Second, final(10, 5))
				llm := wrap(t, f, g)
				fan := framework{t.Context(), "hog", "reviewer", "click-1"}
				start := time.Now()
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						if err := call(fan, llm, hello()); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if s := g.Stats(); s.SlotsInUse != test.most {
					t.Errorf("twenty branches hold %d slots, want %d", s.SlotsInUse, test.most)
				}
				now := ratelimited.WithMaxWait(framework{t.Context(), "other", "reviewer", "click-2"}, 0)
				if err := call(now, llm, hello()); err != nil {
					t.Errorf("another party is blocked by that ceiling: %v", err)
				}
				wg.Wait()
				if d, want := time.Since(start), time.Duration((20+test.most-1)/test.most)*time.Second; d != want {
					t.Errorf("twenty branches of 1s took %v, want %v", d, want)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// A share bounds what one flow takes of a limit per window.
func TestCeilingBoundsTheShareOfALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{
			Slots: 100, Headroom: 1, Profile: window(1000), PerFlow: ratelimited.Ceiling{Share: 0.25},
		})
		ctx, cancel := context.WithCancel(t.Context())
		admitted, release, errs := line(t, ctx, g, 20, ratelimited.Call{Flow: "hog", Usage: input(50)})
		if n := admitted(); n != 5 {
			t.Errorf("a flow with a quarter of 1,000 tokens was admitted %d calls of 50, want 5", n)
		}
		other, releaseOther, more := line(t, t.Context(), g, 5, ratelimited.Call{Flow: "other", Usage: input(50)})
		if n := other(); n != 5 {
			t.Errorf("another flow was admitted %d calls, want 5", n)
		}
		releaseOther(5)
		release(admitted())
		cancel()
		for range 20 {
			<-errs
		}
		for range 5 {
			<-more
		}
		mustBeIdle(t, g)
	})
}

// In the order of arrival, whatever the flows and the classes are.
func TestFIFOServesInOrderOfArrival(t *testing.T) {
	for _, order := range []ratelimited.Order{ratelimited.FIFO, ratelimited.Fair} {
		bubbleRun(t, "order", order, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Order: order})
			p, err := g.Acquire(t.Context(), ratelimited.Call{Flow: "hog"})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var got []string
			var wg sync.WaitGroup
			for i, flow := range []string{"hog", "hog", "hog", "small"} {
				class := "batch"
				if flow == "small" {
					class = "interactive"
				}
				wg.Go(func() {
					q, err := g.Acquire(t.Context(), ratelimited.Call{Flow: flow, Class: class})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					got = append(got, fmt.Sprint(flow, i))
					mu.Unlock()
					time.Sleep(time.Second)
					q.Release()
				})
				synctest.Wait()
			}
			time.Sleep(time.Second)
			p.Release()
			wg.Wait()
			last := slices.Index(got, "small3") == 3
			if last != (order == ratelimited.FIFO) {
				t.Errorf("served in the order %v", got)
			}
			mustBeIdle(t, g)
		})
	}
}
