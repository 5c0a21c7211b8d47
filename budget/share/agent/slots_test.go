package agent_test

import (
	"context"
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

// crowd keeps a gate busy with calls of one unit each, n at a time, that begin one
// after the other.
type crowd struct {
	calls sync.WaitGroup
	stop  chan struct{}
	ended atomic.Int64
}

func crowdOf(t *testing.T, g *ratelimited.Gate, n int, p *provider, lasts time.Duration) *crowd {
	c := &crowd{stop: make(chan struct{})}
	for i := range n {
		c.calls.Go(func() {
			time.Sleep(time.Duration(i) * lasts / time.Duration(n))
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				permit, err := g.Acquire(context.Background(), call(1))
				if err != nil {
					t.Error(err)
					return
				}
				p.run(lasts)
				permit.End(usage.Usage{Input: 1})
				c.ended.Add(1)
			}
		})
	}
	return c
}

func (c *crowd) end() {
	close(c.stop)
	c.calls.Wait()
}

// slotsCases are quotas of which only the slots are scarce.
func slotsCases(t *testing.T, f func(t *testing.T, mode share.Mode, profile ratelimited.Profile)) {
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		for name, profile := range map[string]ratelimited.Profile{"slots": {}, "slots and tokens": tokens(1_000_000, true)} {
			t.Run(mode.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, mode, profile) })
			})
		}
	}
}

// A gate that has all slots, and a line of its own for each that comes back, does not
// keep them from one that comes later: that has one soon, and half of them in the end.
func TestSlotsThatAreAlwaysInUseAreSharedAllTheSame(t *testing.T) {
	t.Parallel()
	slotsCases(t, func(t *testing.T, mode share.Mode, profile ratelimited.Profile) {
		const slots, lasts = 10, 10 * time.Second
		store := open(share.CoordinatorConfig{})
		cfg := ratelimited.Config{Slots: slots, Profile: profile}
		a, b := join(t, agent.Config{Open: store.Open, Mode: mode}, cfg), join(t, agent.Config{Open: store.Open, Mode: mode}, cfg)
		p := newProvider(1_000_000, true)
		first := crowdOf(t, a, 3*slots, p, lasts)
		time.Sleep(time.Minute)
		for range 5 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			permit, err := b.Acquire(ctx, call(1))
			cancel()
			if err != nil {
				first.end()
				t.Fatal(err)
			}
			if took := time.Since(began); took > lasts {
				t.Errorf("a call waited for %v, though all slots come back in %v", took, lasts)
			}
			permit.End(usage.Usage{Input: 1})
			time.Sleep(5 * time.Second)
		}
		second := crowdOf(t, b, 3*slots, p, lasts)
		time.Sleep(time.Minute)
		before, other := first.ended.Load(), second.ended.Load()
		time.Sleep(10 * time.Minute)
		n, m := first.ended.Load()-before, second.ended.Load()-other
		if n < 240 || m < 240 || n+m < 570 {
			t.Errorf("of two gates that are always busy one had %d calls, the other %d, want 300 each", n, m)
		}
		t.Logf("%d and %d calls, %d requests", n, m, store.Requests())
		first.end()
		second.end()
		p.check(t, slots)
		end(t, a)
		end(t, b)
		if out := store.Books()[len(profile.Dimensions)].Outstanding; out != 0 {
			t.Errorf("%d slots are outstanding after all gates were closed", out)
		}
	})
}

// When there come to be fewer slots than are in use, that many calls end before the
// next one starts, however busy the gates are.
func TestFewerSlotsAreKeptByBusyGates(t *testing.T) {
	t.Parallel()
	slotsCases(t, func(t *testing.T, mode share.Mode, profile ratelimited.Profile) {
		const lasts = 3 * time.Second
		store := open(share.CoordinatorConfig{})
		p := newProvider(1_000_000, true)
		var gates []*ratelimited.Gate
		var crowds []*crowd
		for range 3 {
			g := join(t, agent.Config{Open: store.Open, Mode: mode}, ratelimited.Config{Slots: 30, Profile: profile})
			gates, crowds = append(gates, g), append(crowds, crowdOf(t, g, 40, p, lasts))
		}
		time.Sleep(20 * time.Second)
		for i, g := range gates {
			if err := g.SetSlots(6); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			p.mu.Lock()
			p.peak = p.running
			p.mu.Unlock()
			time.Sleep(20 * time.Second)
			if i > 0 {
				p.check(t, 6)
			}
		}
		for i, g := range gates {
			crowds[i].end()
			end(t, g)
		}
	})
}
