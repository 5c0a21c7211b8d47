package route_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited/route"
)

// A call with a key stays with its own route while that has no wait, whatever Patience is;
// where it would wait there, a Patience below 0 has it go where the wait is shortest.
func TestNegativePatienceIsNone(t *testing.T) {
	for _, c := range []struct {
		patience time.Duration
		waits    bool // at its own route
	}{{0, true}, {time.Minute, true}, {time.Nanosecond, false}, {-1, false}, {-time.Second, false}} {
		t.Run(c.patience.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				models := []*fakeLLM{answers(time.Second), answers(time.Second)}
				ways := []way{via(t, "a", models[0]), via(t, "b", models[1])}
				p := newPool(t, route.Config{Patience: c.patience}, ways...)
				ctx := route.Sticky(t.Context(), "session")
				for range 4 {
					if err := call(ctx, p); err != nil {
						t.Fatal(err)
					}
				}
				own := 0
				if models[1].count() > 0 {
					own = 1
				}
				if models[own].count() != 4 {
					t.Fatalf("of 4 calls of a key %d went to its own route, where none had to wait", models[own].count())
				}

				release := occupy(t, gateOf(ways[own]))
				time.AfterFunc(time.Second/2, release)
				began := time.Now()
				if err := call(ctx, p); err != nil {
					t.Fatal(err)
				}
				if waited := models[own].count() == 5; waited != c.waits {
					t.Errorf("it was served after %v, at its own busy route: %v, want %v", time.Since(began), waited, c.waits)
				}
				time.Sleep(time.Second)
				mustBeIdle(t, p)
			})
		})
	}
}
