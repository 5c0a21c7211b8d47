package route_test

import (
	"context"
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
			g, err := ratelimited.NewGate(ratelimited.Config{
				Slots: 10, Share: sharing,
				Profile: ratelimited.Profile{Name: "p", Dimensions: []ratelimited.Dimension{{Name: "requests", Limit: 60, Count: ratelimited.OneRequest}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			own, err := ratelimited.NewGate(ratelimited.Config{Slots: 10})
			if err != nil {
				t.Fatal(err)
			}
			first, second := answers(time.Millisecond), answers(time.Millisecond)
			a, err := ratelimited.New[*LLMRequest, *LLMResponse](first, g)
			if err != nil {
				t.Fatal(err)
			}
			b, err := ratelimited.New[*LLMRequest, *LLMResponse](second, own)
			if err != nil {
				t.Fatal(err)
			}
			p, err := route.New(route.Config{}, []way{{Name: "a", Model: a}, {Name: "b", Model: b, Tier: 1}})
			if err != nil {
				t.Fatal(err)
			}
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
