package redisbudget_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/internal/servers"
)

// journal is a log that is written and read at once.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// forget begins the log anew.
func (j *journal) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
}

// says fails unless the log has each text so many times.
func (j *journal) says(t *testing.T, want map[string]int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for text, n := range want {
		if got := strings.Count(j.text.String(), text); got != n {
			t.Errorf("%q was logged %d times, want %d:\n%s", text, got, n, j.text.String())
		}
	}
}

// count is how often the log has a text.
func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// What a gate logs of its store.
const (
	alone = "goes on with its part"
	back  = "answers again"
)

// outage is a fleet whose store can fail.
type outage struct {
	t        *testing.T
	p        *provider
	sharings []*redisbudget.Sharing
	gates    []*replica
	logs     []*journal
	registry []*prometheus.Registry
	calls    sync.WaitGroup
	mu       sync.Mutex
	made     int64
	stall    atomic.Int64 // the longest that a healthy server took to answer
}

func newOutage(t *testing.T, gates int, client func() redis.UniversalClient, change ...func(*redisbudget.Config)) *outage {
	o := &outage{t: t, p: newProvider(t)}
	o.watch()
	for range gates {
		log, registry := &journal{}, prometheus.NewRegistry()
		s := sharing(t, client(), func(c *redisbudget.Config) {
			c.Name, c.Timeout, c.TTL, c.Late = nameOf(t), time.Second, time.Second, 300*time.Millisecond
			c.Logger, c.Registerer = slog.New(slog.NewTextHandler(log, nil)), registry
			for _, f := range change {
				f(c)
			}
		})
		o.sharings = append(o.sharings, s)
		o.gates = append(o.gates, o.p.replica(s))
		o.logs = append(o.logs, log)
		o.registry = append(o.registry, registry)
	}
	return o
}

// patient is for a store that is never down, on a machine that may be slow.
func patient(c *redisbudget.Config) { c.Timeout, c.TTL = 5*time.Second, 5*time.Second }

// watch has a server that nothing is done to answer all the time: on a machine that lets it
// wait, a lease may lapse that nothing else happened to.
func (o *outage) watch() {
	client := servers.SharedRedis(o.t).Client()
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for last := time.Now(); ctx.Err() == nil; {
			_ = client.Ping(ctx).Err()
			time.Sleep(5 * time.Millisecond)
			now := time.Now()
			o.stall.Store(max(o.stall.Load(), int64(now.Sub(last))))
			last = now
		}
	})
	o.t.Cleanup(func() { stop(); done.Wait() })
}

// says fails unless the log of each gate has each text so many times. More of what a gate
// says of its store is nobody's fault where the machine has stalled for a part of the time to live.
func (o *outage) says(want map[string]int) {
	o.t.Helper()
	stall := time.Duration(o.stall.Load())
	for _, log := range o.logs {
		want := maps.Clone(want)
		for text, n := range want {
			if got := log.count(text); got > n && stall > 100*time.Millisecond && (text == alone || text == back) {
				o.t.Logf("the machine stalled for %v: %q was logged %d times instead of %d", stall, text, got, n)
				want[text] = got
			}
		}
		log.says(o.t, want)
	}
}

// work has all gates call for a time, while the test goes on.
func (o *outage) work(lasts time.Duration) {
	for _, r := range o.gates {
		o.calls.Go(func() {
			n := r.work(lasts)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.made += n
		})
	}
}

// end waits for all calls, and for the quota to be whole again.
func (o *outage) end() {
	o.t.Helper()
	o.calls.Wait()
	for _, r := range o.gates {
		r.close()
	}
	o.p.check(o.made)
	o.p.whole(o.sharings[0])
}

// gauge is the value of a metric of a gate.
func (o *outage) gauge(i int, name string) float64 {
	o.t.Helper()
	families, err := o.registry[i].Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	o.t.Fatalf("there is no metric %s", name)
	return 0
}

// await waits until something holds of all gates.
func (o *outage) await(holds func(i int) bool) {
	o.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		all := true
		for i := range o.gates {
			all = all && holds(i)
		}
		if all {
			return
		}
		if time.Since(began) > 20*time.Second {
			o.t.Fatal("it does not come about in 20 s")
		}
	}
}

// Two ways in which a store goes away for longer than leases last, and comes back: with
// all that it knew, and with nothing. Gates go on with their parts of the quota, say so
// once, and come back by themselves; the provider refuses nothing.
func TestGatesGoOnWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		goes, comes func(*servers.Redis, *servers.Proxy)
	}{
		"it hangs": {
			func(_ *servers.Redis, p *servers.Proxy) { p.Stall(true) },
			func(_ *servers.Redis, p *servers.Proxy) { p.Stall(false) },
		},
		"it is killed, and knows nothing any more": {
			func(r *servers.Redis, _ *servers.Proxy) { r.Kill() },
			func(r *servers.Redis, _ *servers.Proxy) { r.Restart() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t, servers.RedisOptions{})
			proxy := servers.NewProxy(t, server.Addr())
			o := newOutage(t, 2, func() redis.UniversalClient {
				c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
				t.Cleanup(func() { _ = c.Close() })
				return c
			})
			o.work(9 * time.Second)
			time.Sleep(3 * time.Second)
			for i := range o.gates {
				if up := o.gauge(i, "headgate_share_store_up"); up != 1 {
					t.Errorf("before it goes store_up is %v", up)
				}
			}
			for _, log := range o.logs {
				log.forget()
			}
			way.goes(server, proxy)
			time.Sleep(2500 * time.Millisecond)
			before := o.p.double.Stats().Completed
			for i := range o.gates {
				if up, fallback := o.gauge(i, "headgate_share_store_up"), o.gauge(i, "headgate_share_fallback"); up != 0 || fallback != 1 {
					t.Errorf("while it is away store_up is %v and fallback %v, want 0 and 1", up, fallback)
				}
			}
			time.Sleep(time.Second)
			if o.p.double.Stats().Completed == before {
				t.Error("nobody was answered while the store was away")
			}
			way.comes(server, proxy)
			o.await(func(i int) bool { return o.gauge(i, "headgate_share_store_up") == 1 })
			for i := range o.gates {
				if up, fallback := o.gauge(i, "headgate_share_store_up"), o.gauge(i, "headgate_share_fallback"); up != 1 || fallback != 0 {
					t.Errorf("when it is back store_up is %v and fallback %v, want 1 and 0", up, fallback)
				}
			}
			o.says(map[string]int{alone: 1, back: 1})
			o.end()
		})
	}
}

// rewind puts a quota back to what it was some time ago, as the failover to a replica does
// that lags behind.
func rewind(c *redis.Client, name string) error {
	ctx := context.Background()
	before := map[string]string{}
	for _, key := range redisbudget.Keys(redisbudget.DefaultPrefix, name) {
		dump, err := c.Dump(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		before[key] = dump
	}
	time.Sleep(500 * time.Millisecond)
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for key, dump := range before {
			p.Del(ctx, key)
			if dump != "" {
				p.Restore(ctx, key, time.Hour, dump)
			}
		}
		return nil
	})
	return err
}

// A quota that is lost while gates use it is learned from them, again and again. So is one
// of which a part is lost, or what has happened lately.
func TestAQuotaThatIsLostIsLearned(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redis.Client, string) error{
		"what happened lately": rewind,
		"all of it":            func(c *redis.Client, _ string) error { return c.FlushAll(context.Background()).Err() },
		"a part of it": func(c *redis.Client, name string) error {
			return c.Del(context.Background(), redisbudget.Keys(redisbudget.DefaultPrefix, name)[1]).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t, servers.RedisOptions{})
			client := server.Client()
			o := newOutage(t, 3, func() redis.UniversalClient { return server.Client() }, func(c *redisbudget.Config) {
				c.Timeout, c.TTL = 2*time.Second, 2*time.Second
			})
			o.work(9 * time.Second)
			for range 2 {
				time.Sleep(4 * time.Second)
				if err := lose(client, nameOf(t)); err != nil {
					t.Fatal(err)
				}
			}
			o.end()
			o.says(map[string]int{alone: 0, "level=ERROR": 0})
		})
	}
}

// Replies that are lost are asked for again, and what they granted is used once.
func TestLostRepliesLoseNothing(t *testing.T) {
	t.Parallel()
	server := servers.SharedRedis(t)
	proxy := servers.NewProxy(t, server.Addr())
	o := newOutage(t, 2, func() redis.UniversalClient {
		// The client does not ask again by itself.
		c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	})
	o.work(4 * time.Second)
	for range 12 {
		time.Sleep(300 * time.Millisecond)
		proxy.DropRepliesTo(1, "evalsha")
	}
	o.calls.Wait()
	if n := proxy.Dropped(); n < 8 {
		t.Errorf("only %d replies were dropped: this test proves nothing", n)
	}
	proxy.DropReplies(0)
	o.end()
}

// Scripts that a server has forgotten are told it again; nobody notices.
func TestScriptsMayBeFlushed(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := server.Client()
	o := newOutage(t, 2, func() redis.UniversalClient { return server.Client() }, patient)
	o.work(2500 * time.Millisecond)
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		if err := client.ScriptFlush(context.Background()).Err(); err != nil {
			t.Error(err)
		}
	}
	o.end()
	o.says(map[string]int{alone: 0, "level=ERROR": 0})
}

func TestGatesShareAQuotaInACluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, 3, 0, servers.RedisOptions{})
	o := newOutage(t, 3, func() redis.UniversalClient { return cluster.Client() }, patient)
	o.work(3 * time.Second)
	o.end()
	o.says(map[string]int{alone: 0, "level=ERROR": 0})
}

// A replica that is started while the store is down goes on with its part of as many as it
// was told that there are; and finds the others when the store is there.
func TestAReplicaThatIsStartedWithoutItsStoreHasItsPart(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	proxy := servers.NewProxy(t, server.Addr())
	proxy.Cut()
	o := newOutage(t, 3, func() redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}, func(c *redisbudget.Config) { c.Replicas = 3 })
	o.work(9 * time.Second)
	time.Sleep(8 * time.Second) // until all is forgotten that others may have used before
	if o.p.double.Stats().Completed == 0 {
		t.Error("nobody was answered while the store was down")
	}
	proxy.Mend()
	o.await(func(i int) bool { return o.gauge(i, "headgate_share_store_up") == 1 })
	o.end()
}
