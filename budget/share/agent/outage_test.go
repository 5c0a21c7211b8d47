package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// While the store is down gates go on with their parts; that is logged once, and
// metered; and when it is back nothing is lost.
func TestGatesGoOnWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perMinute = 60_000
		store := open(share.CoordinatorConfig{})
		p := newProvider(perMinute, true)
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		logger := slog.New(slog.NewTextHandler(&log, nil))
		cfg := ratelimited.Config{Name: "g", Profile: tokens(perMinute, true)}
		g := join(t, agent.Config{Open: store.Open, Logger: logger, Registerer: registry}, cfg)
		other := join(t, agent.Config{Open: store.Open, Logger: slog.New(slog.DiscardHandler)}, cfg)
		time.Sleep(30 * time.Second)
		var served atomic.Int64
		stop := make(chan struct{})
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					permit, err := g.Acquire(context.Background(), call(1000))
					if err != nil {
						t.Error(err)
						return
					}
					p.take(1000)
					served.Add(1000)
					p.run(time.Second)
					permit.End(usage.Usage{Input: 1000})
				}
			})
		}
		time.Sleep(2 * time.Minute) // the bucket is empty by now
		store.SetDown(true)
		time.Sleep(10 * time.Second)
		before := served.Load()
		time.Sleep(time.Minute)
		alone := served.Load() - before
		if want := int64(0.8 * perMinute / 2); alone < want-2000 || alone > want+2000 {
			t.Errorf("without its store one of two gates served %d tokens in a minute, want about %d", alone, want)
		}
		fallback := func() float64 {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "headgate_share_fallback" {
					return f.Metric[0].Gauge.GetValue()
				}
			}
			return -1
		}
		if fallback() != 1 {
			t.Error("the fallback is not metered")
		}
		store.SetDown(false)
		time.Sleep(10 * time.Second)
		before = served.Load()
		time.Sleep(time.Minute)
		if together := served.Load() - before; together < 0.95*perMinute {
			t.Errorf("with its store one gate that is busy served %d tokens in a minute, want all %d", together, perMinute)
		}
		if fallback() != 0 {
			t.Error("the end of the fallback is not metered")
		}
		close(stop)
		calls.Wait()
		p.check(t, 1000)
		end(t, g)
		end(t, other)
		for text, want := range map[string]int{"goes on with what it was granted": 1, "goes on with its part": 1, "answers again": 1} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", text, n, want, log.String())
			}
		}
	})
}

// Replies that are lost are asked for again, and what they granted is used once.
func TestLostRepliesLoseNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		g := join(t, agent.Config{Open: store.Open, Mode: share.Central, Logger: slog.New(slog.DiscardHandler)}, ratelimited.Config{Profile: tokens(1000, false)})
		for range 10 {
			store.DropReplies(1)
			permit, err := g.Acquire(t.Context(), call(50))
			if err != nil {
				t.Fatal(err)
			}
			permit.End(usage.Usage{Input: 50})
		}
		end(t, g)
		if b := store.Books()[0]; b.Level != 500 || b.Outstanding != 0 {
			t.Errorf("after ten calls of 50 the books are %+v", b)
		}
	})
}

// A store that has lost its state learns what gates have, and goes on.
func TestGatesSurviveALossOfState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perMinute = 6000
		store := open(share.CoordinatorConfig{})
		p := newProvider(perMinute, false)
		gates := make([]*ratelimited.Gate, 3)
		for i := range gates {
			gates[i] = join(t, agent.Config{Open: store.Open, Logger: slog.New(slog.DiscardHandler)}, ratelimited.Config{Profile: tokens(perMinute, false)})
		}
		var calls sync.WaitGroup
		for i := range 600 {
			calls.Go(func() {
				permit, err := gates[i%3].Acquire(context.Background(), call(50))
				if err != nil {
					t.Error(err)
					return
				}
				p.take(50)
				p.run(time.Second)
				permit.End(usage.Usage{Input: 50})
			})
		}
		for range 3 {
			time.Sleep(40 * time.Second)
			if err := store.Lose(); err != nil {
				t.Fatal(err)
			}
		}
		calls.Wait()
		p.check(t, 600)
		for _, g := range gates {
			end(t, g)
		}
	})
}

// A gate may be closed while its store is down, whatever is left to be told.
func TestCloseDoesNotWaitForAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := open(share.CoordinatorConfig{})
			g := join(t, agent.Config{Open: store.Open, Logger: slog.New(slog.DiscardHandler)}, ratelimited.Config{Profile: tokens(1000, false)})
			permit, err := g.Acquire(t.Context(), call(50))
			if err != nil {
				t.Fatal(err)
			}
			if hangs {
				store.SetLatency(func() time.Duration { return time.Hour })
			} else {
				store.SetDown(true)
			}
			permit.End(usage.Usage{Input: 50})
			began := time.Now()
			end(t, g)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("hangs %v: Close took %v", hangs, took)
			}
		})
	}
}

// A Close whose context ends gives up, and leaves no goroutine behind.
func TestCloseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		store.SetLatency(func() time.Duration { return 400 * time.Millisecond })
		g := join(t, agent.Config{Open: store.Open}, ratelimited.Config{Profile: tokens(1000, false)})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the context has ended", err)
		}
		synctest.Wait()
	})
}
