package route_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// A route whose gate is granted nothing, because the store of its quota does not answer,
// is not taken for one that is free.
func TestARouteWhoseStoreIsDownIsNotTakenForFree(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := agent.NewMemory(share.CoordinatorConfig{})
			store.SetLatency(func() time.Duration { return time.Millisecond })
			store.SetDown(early)
			sharing, err := agent.New(agent.Config{Open: store.Open, Fallback: -1})
			if err != nil {
				t.Fatal(err)
			}
			g := newGate(t, ratelimited.Config{
				Slots: 10, Share: sharing,
				Profile: ratelimited.Profile{Name: "p", Dimensions: []ratelimited.Dimension{{Name: "requests", Limit: 60, Count: ratelimited.OneRequest}}},
			})
			first, second := answers(time.Millisecond), answers(time.Millisecond)
			p := newPool(t, route.Config{}, way{Name: "a", Model: wrap(t, first, g)},
				at(1, way{Name: "b", Model: wrap(t, second, newGate(t, ratelimited.Config{Slots: 10}))}))
			time.Sleep(5 * time.Second)
			store.SetDown(true)
			time.Sleep(10 * time.Second)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				for _, err := range p.GenerateContent(ctx, &LLMRequest{}, false) {
					if err != nil {
						t.Error(err)
					}
				}
				cancel()
			}
			if first.count() != 0 || second.count() != 5 {
				t.Errorf("early %v: the first tier had %d calls, the second %d, want 5", early, first.count(), second.count())
			}
			store.SetDown(false)
			time.Sleep(5 * time.Second)
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Calls that wait in line at a route whose store stops to answer go elsewhere, too, when
// nothing has come of it for longer than they would wait there.
func TestCallsInLineLeaveARouteWhoseStoreIsDown(t *testing.T) {
	t.Parallel()
	const deadline = 20 * time.Minute
	slots := ratelimited.Config{Slots: 1}
	limit := ratelimited.Config{Slots: 10, Headroom: 1, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{
		{Name: "requests", Limit: 1, Count: ratelimited.OneRequest},
	}}}
	for name, c := range map[string]struct {
		cfg   ratelimited.Config
		spill time.Duration
		by    time.Duration // when they are served, if they leave
		down  bool
		full  bool // the other route
	}{
		"no slots, and the store is down":         {cfg: slots, spill: 10 * time.Second, by: 30 * time.Second, down: true},
		"no slots, and the store answers":         {cfg: slots, spill: 10 * time.Second},
		"no slots, but neither are any elsewhere": {cfg: slots, spill: 10 * time.Second, down: true, full: true},
		"no units, and the store is down":         {cfg: limit, spill: 3 * time.Minute, by: 5 * time.Minute, down: true},
		"no units, and the store answers":         {cfg: limit, spill: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				leave := c.down && !c.full
				store := agent.NewMemory(share.CoordinatorConfig{})
				store.SetLatency(func() time.Duration { return time.Millisecond })
				sharing, err := agent.New(agent.Config{Open: store.Open, Fallback: -1, OwnSlots: c.cfg.Slots > 1, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				c.cfg.Share = sharing
				shared, own := newGate(t, c.cfg), newGate(t, ratelimited.Config{Slots: 1})
				first, second := answers(30*time.Second), answers(time.Second)
				p := newPool(t, route.Config{Spill: c.spill},
					way{Name: "a", Model: wrap(t, first, shared)}, at(1, way{Name: "b", Model: wrap(t, second, own)}))
				if c.full {
					defer occupy(t, own)()
				}
				time.Sleep(time.Second)
				var callers sync.WaitGroup
				began, ends := time.Now(), make(chan time.Duration, 3)
				for i := range 3 {
					callers.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), deadline)
						defer cancel()
						err := call(ctx, p)
						if stays := i > 0 && c.down && c.full; stays != errors.Is(err, context.DeadlineExceeded) || !stays && err != nil {
							t.Errorf("call %d: %v", i, err)
						}
						if i > 0 {
							ends <- time.Since(began)
						}
					})
					time.Sleep(100 * time.Millisecond)
				}
				if s := shared.Stats(); s.Running != 1 || s.Waiting != 2 {
					t.Errorf("%d calls run at the first route, and %d wait, want 1 and 2", s.Running, s.Waiting)
				}
				store.SetDown(c.down)
				callers.Wait()
				if n := second.count(); leave && n != 2 || !leave && n != 0 {
					t.Errorf("%d calls have gone to the other route", n)
				}
				if latest := max(<-ends, <-ends); leave && latest > c.by {
					t.Errorf("they were served after %v, want within %v", latest, c.by)
				}
				store.SetDown(false)
				time.Sleep(5 * time.Second)
				if err := shared.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
