package redisbudget_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/servers"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// One step of the coordinator, over two limits and slots, beside one of a limiter in Redis
// that has one limit and no replicas (redis_rate's GCRA).
func BenchmarkStep(b *testing.B) {
	client := servers.SharedRedis(b).Client()
	dims := []share.Dim{{Limit: 1_000_000}, {Limit: 1_000_000_000}, {Shape: share.Slots, Limit: 1_000_000}}
	for _, c := range []struct {
		replicas int
		scarce   bool // all want more than there is
	}{{1, false}, {100, false}, {1000, false}, {100, true}, {1000, true}} {
		name := fmt.Sprintf("headgate/replicas=%d", c.replicas)
		if c.scarce {
			name += ",overloaded"
		}
		b.Run(name, func(b *testing.B) {
			s := sharing(b, client, func(cfg *redisbudget.Config) {
				cfg.Name, cfg.TTL = fmt.Sprint(b.Name(), time.Now()), time.Hour
			})
			redisbudget.Learn(s, false)
			store, err := redisbudget.Open(s, budget.SharedQuota{}, dims)
			if err != nil {
				b.Fatal(err)
			}
			step := func(i int, seq int64, has int64) {
				r := share.Request{Replica: fmt.Sprint("replica-", i), Epoch: 1, Seq: seq}
				for j, d := range dims {
					report := share.DimReport{Limit: d.Limit, Has: has, Want: 10, Need: 1}
					if j < 2 && has > 0 {
						report.Spent = []share.Spend{{Age: time.Second, Amount: 1}}
					}
					if c.scarce {
						report.Want = d.Limit
						report.Need = 0
					}
					r.Dims = append(r.Dims, report)
				}
				if _, err := store.Do(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
			for i := range c.replicas {
				step(i, 1, 0)
			}
			n := 0
			for b.Loop() {
				step(n%c.replicas, int64(2+n/c.replicas), 1)
				n++
			}
		})
	}
	b.Run("redis_rate", func(b *testing.B) {
		limiter := redis_rate.NewLimiter(client)
		limit := redis_rate.PerMinute(1_000_000)
		for b.Loop() {
			if _, err := limiter.Allow(context.Background(), b.Name(), limit); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A call through a gate that shares its quota, by 8 callers side by side: how long it
// takes, and how many round trips. redis_rate has one for each.
func BenchmarkCall(b *testing.B) {
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		b.Run(mode.String(), func(b *testing.B) {
			registry := prometheus.NewRegistry()
			s := sharing(b, servers.SharedRedis(b).Client(), func(cfg *redisbudget.Config) {
				cfg.Name, cfg.Mode, cfg.Registerer = fmt.Sprint(b.Name(), time.Now()), mode, registry
			})
			redisbudget.Learn(s, false)
			gate, err := ratelimited.NewGate(ratelimited.Config{
				Name: "gemini", Slots: 1000, Share: s,
				Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 100_000_000, InputTokensPerMinute: 100_000_000_000}),
			})
			if err != nil {
				b.Fatal(err)
			}
			call := func() {
				permit, err := gate.Acquire(context.Background(), ratelimited.Call{Usage: usage.Usage{Input: 500}})
				if err != nil {
					b.Error(err)
					return
				}
				permit.Counted()
				permit.End(usage.Usage{Input: 500})
			}
			call() // the first one asks
			b.SetParallelism(4)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call()
				}
			})
			b.StopTimer()
			if err := gate.Close(context.Background()); err != nil {
				b.Error(err)
			}
			families, err := registry.Gather()
			if err != nil {
				b.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "headgate_share_requests_total" {
					trips := 0.0
					for _, m := range f.Metric {
						trips += m.GetCounter().GetValue()
					}
					b.ReportMetric(trips/float64(b.N), "trips/call")
				}
			}
		})
	}
}
