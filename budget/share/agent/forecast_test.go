package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// A gate that holds nothing in stock does not forecast a wait, nor does it ask for
// units because it was asked for a forecast; when the quota is used up it does.
func TestAForecastKnowsWhatIsARoundTripAway(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := open(share.CoordinatorConfig{})
				cfg := ratelimited.Config{Slots: 4, Profile: tokens(600, true)}
				a, b := join(t, agent.Config{Open: store.Open, Mode: mode}, cfg), join(t, agent.Config{Open: store.Open, Mode: mode}, cfg)
				defer end(t, a)
				defer end(t, b)
				time.Sleep(time.Second)
				before := store.Requests()
				for range 10 {
					if got := b.ExpectedWait(call(300)); got != 0 {
						t.Errorf("a wait of %v is forecast where nobody waits", got)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n := store.Requests() - before; n > 2 {
					t.Errorf("ten forecasts made %d requests", n)
				}
				permit, err := a.Acquire(t.Context(), call(600))
				if err != nil {
					t.Fatal(err)
				}
				defer permit.End(usage.Usage{Input: 600})
				permit.Counted()
				waiting := make(chan struct{})
				go func() {
					defer close(waiting)
					p, err := b.Acquire(context.Background(), call(100))
					if err != nil {
						t.Error(err)
						return
					}
					p.End(usage.Usage{Input: 100})
				}()
				defer func() { <-waiting }()
				time.Sleep(time.Second)
				// 200 units at ten a second, or five if a shares in it
				if got := b.ExpectedWait(call(100)); got < 15*time.Second || got > 45*time.Second {
					t.Errorf("a wait of %v is forecast for 200 units of a bucket that is empty", got)
				}
			})
		})
	}
}

// When others have all slots, and calls wait for them, the forecast says so.
func TestAForecastKnowsThatOthersHaveAllSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		cfg := ratelimited.Config{Slots: 2, Profile: tokens(6000, true)}
		a, b := join(t, agent.Config{Open: store.Open}, cfg), join(t, agent.Config{Open: store.Open}, cfg)
		defer end(t, a)
		defer end(t, b)
		permit, err := a.Acquire(t.Context(), ratelimited.Call{Slots: 2})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() { _, _ = b.Acquire(ctx, call(1)) }()
		time.Sleep(time.Second)
		if got := b.ExpectedWait(call(1)); got < 500*time.Millisecond {
			t.Errorf("a wait of %v is forecast though others have all slots", got)
		}
		time.Sleep(10 * time.Second)
		permit.End(usage.Usage{})
	})
}

// While the store does not answer, a forecast says that nobody knows when it will; where
// the gate then goes by its part of the quota, it is that which counts.
func TestAForecastKnowsThatTheStoreIsDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fallback float64
		profile  ratelimited.Profile
		early    bool // it never answered
	}{
		"units":                 {-1, tokens(6000, true), false},
		"units, from the start": {-1, tokens(6000, false), true},
		"slots":                 {-1, ratelimited.Profile{}, false},
		"slots, from the start": {-1, ratelimited.Profile{}, true},
		"units, its part":       {0, tokens(6000, true), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := open(share.CoordinatorConfig{})
				store.SetDown(c.early)
				g := join(t, agent.Config{Open: store.Open, Fallback: c.fallback}, ratelimited.Config{Slots: 4, Profile: c.profile})
				time.Sleep(10 * time.Second)
				if got := g.ExpectedWait(call(100)); !c.early && got != 0 {
					t.Errorf("a wait of %v is forecast while the store answers", got)
				}
				store.SetDown(true)
				time.Sleep(30 * time.Second)
				switch got := g.ExpectedWait(call(100)); {
				case c.fallback == 0 && got != 0: // much has come together by now
					t.Errorf("a wait of %v is forecast for what is its own part", got)
				case c.fallback < 0 && (got < 15*time.Second || got > 45*time.Second):
					t.Errorf("a wait of %v is forecast when the store has been down for 30 s", got)
				}
				store.SetDown(false)
				time.Sleep(20 * time.Second)
				if got := g.ExpectedWait(call(100)); got != 0 {
					t.Errorf("a wait of %v is forecast when the store answers again", got)
				}
				end(t, g)
			})
		})
	}
}
