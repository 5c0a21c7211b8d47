package route_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// A route whose gate shares an idle quota holds nothing in stock, but no call has to
// wait there: it is as good as one whose gate has its quota for itself.
func TestARouteWithASharedGateIsNotTakenForBusy(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		synctest.Test(t, func(t *testing.T) {
			store := agent.NewMemory(share.CoordinatorConfig{})
			store.SetLatency(func() time.Duration { return time.Millisecond })
			sharing, err := agent.New(agent.Config{Open: store.Open, Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			g := newGate(t, ratelimited.Config{
				Slots: 10, Share: sharing,
				Profile: ratelimited.Profile{Name: "p", Dimensions: []ratelimited.Dimension{{Name: "requests", Limit: 60, Count: ratelimited.OneRequest}}},
			})
			defer g.Close(t.Context())
			first, second := answers(time.Millisecond), answers(time.Millisecond)
			p := newPool(t, route.Config{}, way{Name: "a", Model: wrap(t, first, g)},
				at(1, way{Name: "b", Model: wrap(t, second, newGate(t, ratelimited.Config{Slots: 10}))}))
			for range 10 {
				for _, err := range p.GenerateContent(t.Context(), &LLMRequest{}, false) {
					if err != nil {
						t.Error(err)
					}
				}
				time.Sleep(5 * time.Second)
			}
			if first.count() != 10 || second.count() != 0 {
				t.Errorf("%v: of ten calls that need not wait the first tier had %d, the second %d", mode, first.count(), second.count())
			}
		})
	}
}
