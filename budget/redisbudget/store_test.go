package redisbudget_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/internal/servers"
)

// desk is one replica that speaks to a store itself.
type desk struct {
	t     testing.TB
	store agent.Store
	dims  []share.Dim
	name  string
	epoch int64
	seq   int64
}

func newDesk(t testing.TB, s *redisbudget.Sharing, name string, dims ...share.Dim) *desk {
	t.Helper()
	store, err := redisbudget.Open(s, budget.SharedQuota{Name: "gate"}, dims)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t: t, store: store, dims: dims, name: name, epoch: 1}
}

// needs asks for so many units of each dimension.
func (d *desk) needs(ctx context.Context, units ...int64) (share.Reply, error) {
	d.seq++
	r := share.Request{Replica: d.name, Epoch: d.epoch, Seq: d.seq, Dims: make([]share.DimReport, len(d.dims))}
	for i := range d.dims {
		r.Dims[i] = share.DimReport{Limit: d.dims[i].Limit, Need: units[i], Want: units[i]}
	}
	return d.store.Do(ctx, r)
}

func (d *desk) must(units ...int64) share.Reply {
	d.t.Helper()
	reply, err := d.needs(context.Background(), units...)
	if err != nil {
		d.t.Fatal(err)
	}
	return reply
}

// Quotas are kept apart by prefix and name, whatever is in a name; without one by the
// gate's. No key is left behind for ever, and all of a quota are in one slot.
func TestQuotasAreKeptApartAndForgotten(t *testing.T) {
	t.Parallel()
	client := servers.StartRedis(t, servers.RedisOptions{}).Client()
	dim := share.Dim{Limit: 100, Window: time.Minute}
	for _, name := range []string{"", "a", "{a}", "%7Ba%7D", "}{", "ä b"} {
		for _, prefix := range []string{"one:", "two:"} {
			s := sharing(t, client, func(c *redisbudget.Config) { c.Name, c.Prefix = name, prefix })
			redisbudget.Learn(s, false)
			if got := newDesk(t, s, "r", dim).must(100); got.Granted[0] != 100 || got.Replicas != 1 {
				t.Errorf("prefix %q, name %q: %+v, want all of the quota", prefix, name, got)
			}
			if got := newDesk(t, s, "s", dim).must(1); got.Granted[0] != 0 || got.Replicas != 2 {
				t.Errorf("prefix %q, name %q: a second replica has %+v, want nothing", prefix, name, got)
			}
		}
	}
	s := sharing(t, client, func(c *redisbudget.Config) { c.Name, c.Prefix = "gate", "one:" })
	if got := newDesk(t, s, "t", dim).must(1); got.Replicas != 3 {
		t.Errorf("the name of the gate is not that of the quota: %d replicas, want 3", got.Replicas)
	}
	keys, err := client.Keys(context.Background(), "*").Result()
	if err != nil || len(keys) < 12 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	tags := map[string]bool{}
	for _, key := range keys {
		if ttl := client.PTTL(context.Background(), key).Val(); ttl < 2*time.Minute || ttl > 10*time.Minute {
			t.Errorf("key %q expires after %v, want two windows and some minutes", key, ttl)
		}
		_, rest, _ := strings.Cut(key, "{") // what a Cluster goes by
		tag, _, ok := strings.Cut(rest, "}")
		if tags[tag] = true; !ok || tag == "" {
			t.Errorf("key %q has no hash tag", key)
		}
	}
	if len(tags) != 6 {
		t.Errorf("quotas of 6 names have %d hash tags: %v", len(tags), tags)
	}
}

// The only replica begins a new life: the keys that held its last one are gone and come
// anew, and they are forgotten, too.
func TestKeysThatComeAnewAreForgotten(t *testing.T) {
	t.Parallel()
	client := servers.SharedRedis(t).Client()
	s := fresh(t, servers.SharedRedis(t))
	d := newDesk(t, s, "only", share.Dim{Limit: 100, Window: time.Minute})
	for epoch := range int64(3) {
		r := share.Request{Replica: "only", Epoch: epoch + 1, Seq: 1, Dims: []share.DimReport{{Limit: 100, Need: 200, Want: 200}}}
		if _, err := d.store.Do(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		for _, key := range redisbudget.Keys(redisbudget.DefaultPrefix, nameOf(t)) {
			if ttl := client.PTTL(context.Background(), key).Val(); ttl == -1 {
				t.Errorf("in life %d: key %q never expires", epoch+1, key)
			}
		}
	}
}

// Replicas that name other dimensions do not share a quota; other limits they may name.
func TestReplicasMustNameTheSameDimensions(t *testing.T) {
	t.Parallel()
	s := fresh(t, servers.SharedRedis(t))
	dim := share.Dim{Limit: 100, Window: time.Minute}
	newDesk(t, s, "a", dim).must(1)
	for what, dims := range map[string][]share.Dim{
		"more of them":   {dim, {Shape: share.Slots, Limit: 3}},
		"another shape":  {{Shape: share.Bucket, Limit: 100, Window: time.Minute}},
		"another window": {{Limit: 100, Window: time.Hour}},
		"another cell":   {{Limit: 100, Window: time.Minute, Cell: time.Minute}},
	} {
		if _, err := newDesk(t, s, "b", dims...).needs(context.Background(), 1, 1); !errors.Is(err, redisbudget.ErrOtherLimits) {
			t.Errorf("%s: %v, want that this is not the same quota", what, err)
		}
	}
	if got := newDesk(t, s, "c", share.Dim{Limit: 50, Window: time.Minute}).must(1); got.Limits[0] != 50 {
		t.Errorf("the limit in force is %d, want the smaller one, 50", got.Limits[0])
	}
	if _, err := newDesk(t, s, "d", dim).store.Do(context.Background(), share.Request{Replica: "d", Epoch: 1, Seq: 1}); err == nil {
		t.Error("a request without dimensions was taken in")
	}
	if _, err := redisbudget.Open(s, budget.SharedQuota{}, []share.Dim{{Limit: -1}}); err == nil {
		t.Error("a quota with a limit below 0 was opened")
	}
}

// A step does a bounded part of what is due: the leases of many that are gone end in some
// steps, and nothing of theirs can be had before.
func TestTheLeasesOfManyEndInSomeSteps(t *testing.T) {
	t.Parallel()
	const many = 300
	s := fresh(t, servers.SharedRedis(t))
	now := time.Unix(1_000_000, 0)
	redisbudget.SetClock(s, now)
	dims := []share.Dim{{Limit: many, Window: time.Minute}, {Shape: share.Slots, Limit: many}}
	for i := range many {
		if got := newDesk(t, s, fmt.Sprint("gone-", i), dims...).must(1, 1); got.Granted[1] != 1 || got.Replicas != i+1 {
			t.Fatalf("replica %d: %+v", i, got)
		}
	}
	d := newDesk(t, s, "last", dims...)
	now = now.Add(share.DefaultTTL + share.DefaultLate)
	redisbudget.SetClock(s, now)
	steps := 1
	for ; d.must(0, many).Granted[1] == 0; steps++ {
		if steps > many {
			t.Fatal("the slots of those that are gone do not come back")
		}
	}
	if steps < 3 || steps > 10 {
		t.Errorf("the slots of %d come back after %d steps, want some", many, steps)
	}
	if got := d.must(1, 0); got.Granted[0] != 0 {
		t.Error("what those had that are gone does not count as spent")
	}
	redisbudget.SetClock(s, now.Add(2*time.Minute))
	if got := d.must(many, 0); got.Granted[0] != many {
		t.Errorf("%+v, want the whole window, which has forgotten all", got)
	}
	for range 40 { // time in which nobody was heard of does not count
		now = now.Add(share.DefaultTTL)
		redisbudget.SetClock(s, now.Add(2*time.Minute))
		d.must(0, 0)
	}
	if got := d.must(0, 0); got.Replicas != 1 {
		t.Errorf("%d replicas are remembered, want one", got.Replicas)
	}
}

// When those that named other dimensions are gone, whoever comes begins anew, and learns.
func TestDimensionsChangeWhenNobodyGoesByThem(t *testing.T) {
	t.Parallel()
	s := fresh(t, servers.SharedRedis(t), func(c *redisbudget.Config) { c.TTL, c.Late = 300*time.Millisecond, 300*time.Millisecond })
	newDesk(t, s, "a", share.Dim{Limit: 100}).must(60)
	d := newDesk(t, s, "b", share.Dim{Limit: 100}, share.Dim{Shape: share.Slots, Limit: 5})
	refused := 0
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		reply, err := d.needs(context.Background(), 10, 1)
		if err == nil && reply.Granted[1] == 1 {
			break
		}
		if err != nil {
			refused++
		}
		if err != nil && !errors.Is(err, redisbudget.ErrOtherLimits) || time.Since(began) > 20*time.Second {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	if refused == 0 {
		t.Error("a replica was admitted that names other dimensions than one that lives")
	}
	if _, err := newDesk(t, s, "c", share.Dim{Limit: 100}).needs(context.Background(), 1); !errors.Is(err, redisbudget.ErrOtherLimits) {
		t.Errorf("%v, want that the old dimensions are not those of the quota any more", err)
	}
}

// A server that was started just now may have lost a quota: nothing is granted until all
// who use it must have been heard. One that has run for longer has nothing to tell.
func TestAServerThatWasJustStartedLearnsFirst(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	s := sharing(t, server.Client(), func(c *redisbudget.Config) { c.TTL = 2 * time.Second })
	d := newDesk(t, s, "a", share.Dim{Limit: 100})
	first := d.must(10)
	if first.Granted[0] != 0 || first.RetryAfter <= 0 || first.RetryAfter > 2*time.Second {
		t.Fatalf("%+v, want nothing before a TTL has passed", first)
	}
	time.Sleep(first.RetryAfter)
	if got := d.must(10); got.Granted[0] != 10 {
		t.Errorf("%+v, want what was asked for", got)
	}
	time.Sleep(2 * time.Second)
	s = sharing(t, server.Client(), func(c *redisbudget.Config) { c.TTL, c.Name = time.Second, "another" })
	if got := newDesk(t, s, "a", share.Dim{Limit: 100}).must(10); got.Granted[0] != 10 {
		t.Errorf("%+v, want what was asked for at once", got)
	}
}

// A server that was put back to an earlier state has forgotten what it has granted since: a
// replica that was told of a later time than the server knows of shows it.
func TestAServerThatWasPutBackLearns(t *testing.T) {
	t.Parallel()
	ctx, client := context.Background(), servers.SharedRedis(t).Client()
	s := fresh(t, servers.SharedRedis(t))
	a := newDesk(t, s, "a", share.Dim{Limit: 100})
	a.must(0)
	keys := redisbudget.Keys(redisbudget.DefaultPrefix, nameOf(t))
	if err := client.Copy(ctx, keys[0], keys[0]+"before", 0, true).Err(); err != nil {
		t.Fatal(err)
	}
	told := a.must(60)
	if err := client.Rename(ctx, keys[0]+"before", keys[0]).Err(); err != nil {
		t.Fatal(err)
	}
	again := share.Request{
		Replica: "a", Epoch: 1, Seq: 3, Coordinator: told.Epoch, Prev: told.At,
		Dims: []share.DimReport{{Limit: 100, Has: 60, Need: 10, Want: 10}},
	}
	got, err := a.store.Do(ctx, again)
	if err != nil || !got.Stale || got.Epoch == told.Epoch {
		t.Fatalf("%+v, %v; want that the coordinator is another one", got, err)
	}
	if b := newDesk(t, s, "b", share.Dim{Limit: 100}).must(50); b.Granted[0] != 0 || b.RetryAfter == 0 {
		t.Errorf("another replica gets %+v, though nobody knows what is left", b)
	}
}

// A server that has no memory left refuses a step as a whole.
func TestAServerThatIsFullTakesNothingIn(t *testing.T) {
	t.Parallel()
	client := servers.StartRedis(t, servers.RedisOptions{Config: []string{"maxmemory 200kb"}}).Client()
	s := sharing(t, client)
	redisbudget.Learn(s, false)
	d := newDesk(t, s, "a", share.Dim{Limit: 100})
	if _, err := d.needs(context.Background(), 10); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("%v, want that the server has no memory left", err)
	}
	if n, err := client.DBSize(context.Background()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys, %v; want none", n, err)
	}
	if err := client.ConfigSet(context.Background(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	d.seq--
	if got := d.must(10); got.Granted[0] != 10 {
		t.Errorf("%+v, want what was asked for", got)
	}
}

// Whether the client keeps deadlines or not: nobody waits for longer than the time limit
// for a server that hangs, and what is left behind is bounded.
func TestAServerThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, bounded := range []bool{true, false} {
		t.Run(fmt.Sprintf("the client keeps deadlines: %v", bounded), func(t *testing.T) {
			t.Parallel()
			proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: bounded, ReadTimeout: time.Minute, PoolSize: 64})
			t.Cleanup(func() { _ = client.Close() })
			d := newDesk(t, fresh(t, servers.SharedRedis(t)), "a", share.Dim{Limit: 1000})
			d.must(1)
			s := sharing(t, client, named(t))
			d = newDesk(t, s, "b", share.Dim{Limit: 1000})
			proxy.Stall(true)
			began := time.Now()
			for range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				if _, err := d.needs(ctx, 1); err == nil {
					t.Fatal("there was an answer")
				}
				cancel()
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("20 requests took %v, want 50 ms each", took)
			}
			proxy.Stall(false)
			for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				if _, err := d.needs(context.Background(), 1); err == nil {
					break
				} else if time.Since(began) > 10*time.Second {
					t.Fatalf("after it hung: %v", err)
				}
			}
		})
	}
}

// A gate is closed in time while its store hangs, and leaves nothing running.
func TestAGateIsClosedWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	s := sharing(t, client, named(t, func(c *redisbudget.Config) {
		c.Timeout, c.Logger = 200*time.Millisecond, slog.New(slog.DiscardHandler)
	}))
	redisbudget.Learn(s, false)
	p := newProvider(t)
	r := p.replica(s)
	if err := r.call(context.Background(), 10); err != nil {
		t.Fatal(err)
	}
	proxy.Stall(true)
	defer proxy.Stall(false)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.gate.Close(ctx) // whether it knows already that its store hangs, or not
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
}

func TestNewNamesEveryFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialTimeout: time.Second, MaxRetries: -1})
	defer client.Close()
	if _, err := redisbudget.New(context.Background(), redisbudget.Config{Client: (*redis.Client)(nil)}); err == nil || !strings.Contains(err.Error(), "Config.Client ") {
		t.Errorf("with a client that is a nil pointer: %v", err)
	}
	_, err := redisbudget.New(context.Background(), redisbudget.Config{Late: -1, Prefix: "{", Timeout: -1, TTL: time.Millisecond})
	for _, field := range []string{"Client", "Late", "Prefix", "Timeout", "TTL"} {
		if err == nil || !strings.Contains(err.Error(), "redisbudget: Config."+field+" ") {
			t.Errorf("%v, want an error that names %s", err, field)
		}
	}
	for field, cfg := range map[string]redisbudget.Config{
		"Fallback": {Fallback: 2}, "Idle": {Idle: -1}, "Mode": {Mode: 9}, "Replicas": {Replicas: -1}, "Stock": {Stock: -1},
	} {
		cfg.Client = client
		if _, err := redisbudget.New(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v, want an error that names %s", err, field)
		}
	}
	registry := prometheus.NewRegistry()
	cfg := redisbudget.Config{Client: client, Registerer: registry}
	if _, err := redisbudget.New(context.Background(), cfg); err != nil {
		t.Errorf("a server that cannot be reached now: %v", err)
	}
	if _, err := redisbudget.New(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "Registerer") {
		t.Errorf("%v, want that the metrics are there already", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := redisbudget.New(ctx, redisbudget.Config{Client: client}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context has ended", err)
	}
}

// A server that will not do is told apart from one that is not there.
func TestNewSaysWhatAServerRefuses(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	registry := prometheus.NewRegistry()
	for what, rule := range map[string]string{"PING": "-ping", "EVAL": "-eval", "SCRIPT LOAD": "-script"} {
		user := strings.ReplaceAll(what, " ", "")
		if err := server.Client().Do(context.Background(), "ACL", "SETUSER", user, "on", "nopass", "~*", "+@all", rule).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "any"})
		t.Cleanup(func() { _ = client.Close() })
		_, err := redisbudget.New(context.Background(), redisbudget.Config{Client: client, Timeout: 10 * time.Second, Registerer: registry})
		if err == nil || !strings.Contains(err.Error(), "refuses "+what+",") {
			t.Errorf("%v, want that the server refuses %s", err, what)
		}
	}
	sharing(t, server.Client(), func(c *redisbudget.Config) { c.Registerer = registry }) // the metrics are not taken
}

// One that answers nobody just now is not one that refuses.
func TestNewDoesNotMindAServerThatIsBusy(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{Config: []string{"busy-reply-threshold 10"}})
	slow, client := server.Client(), server.Client()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = slow.Eval(context.Background(), "while true do end", nil).Err()
	}()
	for began := time.Now(); !redis.HasErrorPrefix(client.Ping(context.Background()).Err(), "BUSY"); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the server is not busy")
		}
	}
	if _, err := redisbudget.New(context.Background(), redisbudget.Config{Client: client, Timeout: 10 * time.Second}); err != nil {
		t.Errorf("a server that runs a long script: %v", err)
	}
	if err := client.ScriptKill(context.Background()).Err(); err != nil {
		t.Error(err)
	}
	<-ended
}
