package agent_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// provider counts what it is asked for, and how far that is above its limits. It is
// exact: a bucket of a minute's depth, or any minute.
type provider struct {
	mu      sync.Mutex
	limit   float64 // per minute
	bucket  bool
	level   float64
	at      time.Time
	log     []request
	sum     float64
	worst   float64
	served  int64
	running int
	peak    int
}

type request struct {
	at    time.Time
	units float64
}

func newProvider(limit int64, bucket bool) *provider {
	return &provider{limit: float64(limit), bucket: bucket, level: float64(limit), at: time.Now()}
}

func (p *provider) take(units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.served += units
	if p.bucket {
		p.level = min(p.limit, p.level+p.limit/60*now.Sub(p.at).Seconds()) - float64(units)
		p.at = now
		p.worst = max(p.worst, -p.level)
		return
	}
	for len(p.log) > 0 && now.Sub(p.log[0].at) >= time.Minute {
		p.sum -= p.log[0].units
		p.log = p.log[1:]
	}
	p.log = append(p.log, request{now, float64(units)})
	p.sum += float64(units)
	p.worst = max(p.worst, p.sum-p.limit)
}

func (p *provider) run(d time.Duration) {
	p.mu.Lock()
	p.running++
	p.peak = max(p.peak, p.running)
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	p.running--
	p.mu.Unlock()
}

func (p *provider) check(t *testing.T, slots int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worst > 1e-6 {
		t.Errorf("the provider was asked for %v units more than it has", p.worst)
	}
	if p.peak > slots {
		t.Errorf("%d calls were in flight together, want at most %d", p.peak, slots)
	}
}

// tokens is a profile of one limit.
func tokens(limit int64, bucket bool) ratelimited.Profile {
	d := ratelimited.Dimension{Name: "tokens", Limit: limit, Count: ratelimited.InputTokens}
	if bucket {
		d.Shape = ratelimited.Bucket
	}
	return ratelimited.Profile{Name: "test", Dimensions: []ratelimited.Dimension{d}}
}

// join makes a gate that shares a quota.
func join(t *testing.T, cfg agent.Config, gate ratelimited.Config) *ratelimited.Gate {
	t.Helper()
	sharing, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gate.Share = sharing
	if gate.Headroom == 0 {
		gate.Headroom = 1
	}
	if gate.Slots == 0 {
		gate.Slots = 100
	}
	g, err := ratelimited.NewGate(gate)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// open is a store in memory, two milliseconds away.
func open(cfg share.CoordinatorConfig) *agent.Memory {
	m := agent.NewMemory(cfg)
	m.SetLatency(func() time.Duration { return 2 * time.Millisecond })
	return m
}

func call(units int64) ratelimited.Call {
	return ratelimited.Call{Usage: usage.Usage{Input: units}}
}

func end(t *testing.T, g *ratelimited.Gate) {
	t.Helper()
	if err := g.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Several gates in every mode, with more calls than the quota allows: all are
// answered, in about the time that the quota takes; the provider, which hears of
// calls late, is never asked for more than it has, and sees no more calls at a time than
// there are slots.
func TestGatesThatShareAQuotaKeepIt(t *testing.T) {
	t.Parallel()
	const perMinute, replicas, slots = 60_000, 4, 24
	for _, c := range []struct {
		mode   share.Mode
		bucket bool
		within float64 // of the shortest time
	}{
		{share.Leased, true, 1.05}, {share.Leased, false, 1.12},
		{share.Central, true, 1.05}, {share.Central, false, 1.12},
		{share.Static, true, 1.25}, {share.Static, false, 1.35},
	} {
		name := c.mode.String() + " window"
		if c.bucket {
			name = c.mode.String() + " bucket"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := open(share.CoordinatorConfig{Replicas: replicas})
				p := newProvider(perMinute, c.bucket)
				start := time.Now()
				var wg sync.WaitGroup
				for r := range replicas {
					g := join(t, agent.Config{Open: store.Open, Mode: c.mode}, ratelimited.Config{Slots: slots, Profile: tokens(perMinute, c.bucket)})
					rnd := rand.New(rand.NewPCG(1, uint64(r)))
					wg.Go(func() {
						defer end(t, g)
						var calls sync.WaitGroup
						for range 100 {
							cost := int64(100 + rnd.IntN(2000))
							late, lasts := time.Duration(rnd.IntN(500))*time.Millisecond, time.Duration(1+rnd.IntN(3))*time.Second
							calls.Go(func() {
								permit, err := g.Acquire(context.Background(), call(cost))
								if err != nil {
									t.Error(err)
									return
								}
								p.run(late)
								p.take(cost)
								p.run(lasts / 2)
								permit.Counted()
								p.run(lasts / 2)
								permit.End(usage.Usage{Input: cost})
							})
						}
						calls.Wait()
					})
				}
				wg.Wait()
				p.check(t, slots)
				shortest := float64(p.served-perMinute) / perMinute * 60
				if !c.bucket {
					shortest = float64((p.served - 1) / perMinute * 60)
				}
				took := time.Since(start).Seconds()
				t.Logf("%d tokens in %.0f s, at least %.0f s; %.2f requests per call", p.served, took, shortest, float64(store.Requests())/400)
				if took > shortest*c.within+10 {
					t.Errorf("it took %.0f s, want about %.0f s", took, shortest)
				}
			})
		})
	}
}

// A call waits for its turn only: a gate that shares a quota with an idle one has it
// all, at once.
func TestAnIdleGateKeepsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		cfg := ratelimited.Config{Slots: 10, Profile: tokens(1000, false)}
		a, b := join(t, agent.Config{Open: store.Open}, cfg), join(t, agent.Config{Open: store.Open}, cfg)
		defer end(t, a)
		defer end(t, b)
		for range 20 { // a has a stock
			permit, err := a.Acquire(t.Context(), call(20))
			if err != nil {
				t.Fatal(err)
			}
			permit.End(usage.Usage{Input: 20})
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		began := time.Now()
		permit, err := b.Acquire(t.Context(), call(600))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("all that is left was to be had after %v, want one round trip", took)
		}
		permit.End(usage.Usage{Input: 600})
	})
}

// A call that does not wait is refused while the gate holds nothing, but the gate
// then asks, and the next one is admitted.
func TestACallThatDoesNotWaitHelpsTheNextOne(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		synctest.Test(t, func(t *testing.T) {
			store := open(share.CoordinatorConfig{})
			g := join(t, agent.Config{Open: store.Open, Mode: mode}, ratelimited.Config{Profile: tokens(1000, true), MaxWait: new(time.Duration)})
			defer end(t, g)
			time.Sleep(time.Second)
			if _, err := g.Acquire(t.Context(), call(20)); err == nil {
				t.Errorf("%v: a call was admitted before anything was granted", mode)
			}
			time.Sleep(10 * time.Millisecond)
			permit, err := g.Acquire(t.Context(), call(20))
			if err != nil {
				t.Fatalf("%v: %v", mode, err)
			}
			permit.End(usage.Usage{Input: 20})
		})
	}
}

func TestWhatNeverFitsIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		g := join(t, agent.Config{Open: store.Open}, ratelimited.Config{Profile: tokens(1000, false)})
		defer end(t, g)
		_, err := g.Acquire(t.Context(), call(1001))
		var never *ratelimited.NeverFitsError
		if !errors.As(err, &never) || never.Max != 1000 {
			t.Errorf("%v, want that it never fits into 1000", err)
		}
	})
}

// The published limit is changed at all gates, one after the other; in between the
// smaller one is in force.
func TestLimitsAndSlotsChangeForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		cfg := ratelimited.Config{Slots: 4, Profile: tokens(1000, false)}
		gates := []*ratelimited.Gate{join(t, agent.Config{Open: store.Open}, cfg), join(t, agent.Config{Open: store.Open}, cfg)}
		limit := func() (float64, float64) {
			time.Sleep(time.Second)
			b := store.Books()
			return b[0].Limit, b[1].Limit
		}
		for i, g := range gates {
			if err := errors.Join(g.SetLimit("tokens", 2000), g.SetSlots(8)); err != nil {
				t.Fatal(err)
			}
			want, slots := float64(1000+1000*i), float64(4+4*i)
			if got, n := limit(); got != want || n != slots {
				t.Errorf("after %d of two gates were told, %v tokens and %v slots are in force, want %v and %v", i+1, got, n, want, slots)
			}
		}
		end(t, gates[0])
		end(t, gates[1])
	})
}

// Headroom and cuts of one gate hold for the whole quota.
func TestTheHeadroomIsKeptBackOfTheWholeQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		g := join(t, agent.Config{Open: store.Open}, ratelimited.Config{Headroom: 0.5, Profile: tokens(1000, false)})
		defer end(t, g)
		time.Sleep(time.Second)
		if got := store.Books()[0].Limit; got != 500 {
			t.Errorf("%v tokens are in force, want half of 1000", got)
		}
	})
}

// What a gate has left is there for the others as soon as it is closed.
func TestAGateThatIsClosedGivesEverythingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		g := join(t, agent.Config{Open: store.Open}, ratelimited.Config{Slots: 5, Profile: tokens(1000, false)})
		permit, err := g.Acquire(t.Context(), call(300))
		if err != nil {
			t.Fatal(err)
		}
		permit.End(usage.Usage{Input: 100})
		end(t, g)
		end(t, g) // again
		if b := store.Books(); b[0].Outstanding != 0 || b[0].Level != 900 || b[1].Outstanding != 0 {
			t.Errorf("after Close the books are %+v, want 100 spent", b)
		}
	})
}

// Without a store each of so many gates has its part, and no goroutine.
func TestStaticGatesNeedNoStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := join(t, agent.Config{Mode: share.Static, Replicas: 4}, ratelimited.Config{Slots: 8, Profile: tokens(1000, false)})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		p := newProvider(250, false)
		for range 2 {
			permit, err := g.Acquire(ctx, call(125))
			if err != nil {
				t.Fatal(err)
			}
			p.take(125)
			permit.End(usage.Usage{Input: 125})
		}
		if _, err := g.Acquire(ctx, call(1)); err == nil {
			t.Error("one of four gates may use more than a quarter of the quota")
		}
		end(t, g)
	})
}

// Gates that name other limits do not share a quota.
func TestGatesMustNameTheSameLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(share.CoordinatorConfig{})
		g := join(t, agent.Config{Open: store.Open}, ratelimited.Config{Profile: tokens(1000, false)})
		defer end(t, g)
		sharing, err := agent.New(agent.Config{Open: store.Open, OwnSlots: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ratelimited.NewGate(ratelimited.Config{Slots: 1, Share: sharing, Profile: tokens(1000, false)})
		if err == nil || !strings.Contains(err.Error(), "Config.Share") {
			t.Errorf("%v, want an error that names Config.Share", err)
		}
	})
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	store := agent.NewMemory(share.CoordinatorConfig{})
	for want, cfg := range map[string]agent.Config{
		"Open is nil":    {},
		"Timeout is -1":  {Open: store.Open, Timeout: -1},
		"Epoch is -2":    {Open: store.Open, Epoch: -2},
		"Fallback is 2":  {Open: store.Open, Fallback: 2},
		"Idle is -3ns":   {Open: store.Open, Idle: -3},
		"Mode is 9":      {Open: store.Open, Mode: 9},
		"Replicas is -1": {Open: store.Open, Replicas: -1},
		"Stock is -4ns":  {Open: store.Open, Stock: -4},
	} {
		if _, err := agent.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "agent: Config."+want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
	registry := prometheus.NewRegistry()
	if _, err := agent.New(agent.Config{Open: store.Open, Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.New(agent.Config{Open: store.Open, Registerer: registry}); err == nil || !strings.Contains(err.Error(), "Registerer") {
		t.Errorf("the same metrics twice: %v", err)
	}
	sharing, err := agent.New(agent.Config{Open: store.Open, OwnSlots: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sharing.Join(budget.SharedQuota{Slots: 3}); err == nil {
		t.Error("a quota of nothing was joined")
	}
}

// Real goroutines and real time, for the race detector.
func TestManyCallersOfManyGates(t *testing.T) {
	t.Parallel()
	store := agent.NewMemory(share.CoordinatorConfig{})
	var gates []*ratelimited.Gate
	for range 3 {
		gates = append(gates, join(t, agent.Config{Open: store.Open}, ratelimited.Config{Slots: 50, Profile: tokens(100_000_000, true)}))
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			for range 30 {
				permit, err := gates[i%3].Acquire(context.Background(), call(100))
				if err != nil {
					t.Error(err)
					return
				}
				permit.Counted()
				permit.End(usage.Usage{Input: 90})
			}
		})
	}
	wg.Wait()
	for _, g := range gates {
		end(t, g)
	}
	if b := store.Books(); b[0].Outstanding != 0 || b[1].Outstanding != 0 {
		t.Errorf("after all gates were closed the books are %+v", b)
	}
}
