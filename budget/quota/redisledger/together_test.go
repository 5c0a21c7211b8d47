package redisledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// crowd has many call a ledger while its server is paused, so that those which come after
// the first few wait for each other.
type crowd struct {
	server *servers.Redis
	client *redis.Client
	ledger *redisledger.Ledger
}

func newCrowd(t *testing.T) *crowd {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr())
	return &crowd{server, client, open(t, client)}
}

// gather has n callers do something. When all of them are under way or wait it calls
// meanwhile, if there is one, and then has the server go on.
func (c *crowd) gather(t *testing.T, n int, do func(i int), meanwhile func()) {
	t.Helper()
	await(t, func() bool { return !redisledger.Busy(c.ledger) }) // the last ones may have their answers a moment before
	c.server.Pause()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
		await(t, func() bool {
			return redisledger.Busy(c.ledger) && redisledger.Waiting(c.ledger) >= i+1-redisledger.Width
		})
	}
	if meanwhile != nil {
		meanwhile()
	}
	c.server.Resume()
	wg.Wait()
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("what was waited for did not come within 10 s")
		}
	}
}

var scriptCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),`)

// scripts is how many scripts the server has run.
func (c *crowd) scripts(t *testing.T) int {
	t.Helper()
	info, err := c.client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := scriptCalls.FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func treeOf(i int) string { return fmt.Sprintf("tree %d", i) }

func TestCallersThatWaitShareScriptsAndEachHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const callers = 60
	id := func(round, i int) string { return fmt.Sprintf("%d of %d", round, i) }
	limits := func(i int) []quota.Entry {
		amount := int64(100 + i)
		all := []quota.Entry{hourly("u", quota.Hold, amount, 1<<40), perMinute("u", quota.Hold, amount, 1<<40)}
		if i%3 == 0 { // another shape
			all = append(all, hourly("v", quota.Hold, amount, 1<<40))
		}
		return all
	}
	reserve := func(round, i int) {
		res, err := c.ledger.Reserve(t.Context(), quota.Reserve{ID: id(round, i), Tree: treeOf(i), Entries: limits(i)})
		if err != nil || res.Denied >= 0 || res.Repeated || len(res.Status) != len(limits(i)) {
			t.Errorf("Reserve of caller %d = %+v, %v", i, res, err)
		} else if want := int64(100 + i); res.Status[0].Reserved != want || res.Status[0].Committed != int64(round*i) {
			t.Errorf("Reserve of caller %d: %d + %d, want %d + %d", i, res.Status[0].Committed, res.Status[0].Reserved, round*i, want)
		}
	}
	settle := func(round, i int) {
		res, err := c.ledger.Settle(t.Context(), quota.Settle{ID: id(round, i), Tree: treeOf(i), Actual: quota.Amounts{quota.Tokens: int64(i)}})
		if err != nil || res.Repeated || len(res.Status) != len(limits(i)) {
			t.Errorf("Settle of caller %d = %+v, %v", i, res, err)
		} else if want := int64(i + round*i); res.Status[0].Reserved != 0 || res.Status[0].Committed != want {
			t.Errorf("Settle of caller %d: %d + %d, want %d + 0", i, res.Status[0].Committed, res.Status[0].Reserved, want)
		}
	}
	for i := range callers { // all scripts are known, and all counters are there
		reserve(0, i)
		settle(0, i)
	}
	for _, op := range []struct {
		name string
		do   func(round, i int)
	}{{"Reserve", reserve}, {"Settle", settle}} {
		before := c.scripts(t)
		c.gather(t, callers, func(i int) { op.do(1, i) }, nil)
		// The first few went alone, and of those that waited as many as can go together.
		if got := c.scripts(t) - before; got > redisledger.Width+12 {
			t.Errorf("%d callers of %s took %d scripts", callers, op.name, got)
		}
	}
	for i := range callers {
		stands(t, c.ledger, treeOf(i), limits(i)[0], int64(2*i), 0)
	}
}

func TestRepeatsThatGoTogetherAreToldTheFirstResult(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	e := []quota.Entry{hourly("u", quota.Hold, 10, 1000)}
	take(t, c.ledger, "t", e...)
	settle(t, c.ledger, "t", take(t, c.ledger, "t", e...), 1)
	once := func(n int) (count func(repeated bool, err error), check func(string)) {
		var mu sync.Mutex
		first, repeats := 0, 0
		return func(repeated bool, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				} else if repeated {
					repeats++
				} else {
					first++
				}
			}, func(name string) {
				t.Helper()
				if first != 1 || repeats != n-1 {
					t.Errorf("%s: %d were told the first result and %d a repeat, want 1 and %d", name, first, repeats, n-1)
				}
			}
	}
	const n = 30
	count, check := once(n)
	c.gather(t, n, func(int) {
		res, err := c.ledger.Reserve(t.Context(), quota.Reserve{ID: "same", Tree: "t", Entries: e})
		count(res.Repeated, err)
	}, nil)
	check("Reserve")
	stands(t, c.ledger, "t", e[0], 1, 20)
	count, check = once(n)
	c.gather(t, n, func(int) {
		res, err := c.ledger.Settle(t.Context(), quota.Settle{ID: "same", Tree: "t", Actual: quota.Amounts{quota.Tokens: 7}})
		count(res.Repeated, err)
	}, nil)
	check("Settle")
	stands(t, c.ledger, "t", e[0], 8, 10)
}

func TestOneThatFailsLeavesAloneThoseThatGoWithIt(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const callers, bad = 40, 25
	e := hourly("u", quota.Hold, 10, 100)
	for i := range callers {
		take(t, c.ledger, treeOf(i), e)
	}
	index := redisledger.DefaultPrefix + "{" + treeOf(bad) + "}:x"
	if err := c.client.Set(t.Context(), index, "no sorted set", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.gather(t, callers, func(i int) {
		res, err := c.ledger.Reserve(t.Context(), quota.Reserve{ID: "second", Tree: treeOf(i), Entries: []quota.Entry{e}})
		if i == bad {
			unavailable(t, "Reserve with an index that is none", err)
		} else if err != nil || res.Denied >= 0 || res.Status[0].Reserved != 20 {
			t.Errorf("Reserve of caller %d = %+v, %v", i, res, err)
		}
	}, nil)
}

func TestCancelledSettlesAreNeitherLostNorDoneTwice(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const callers = 40
	e := hourly("u", quota.Hold, 10, 100)
	ids := make([]string, callers)
	for i := range ids {
		ids[i] = take(t, c.ledger, treeOf(i), e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leaves := func(i int) bool { return i%2 == 0 } // some of those under way, and of those that wait
	var gone sync.WaitGroup
	gone.Add(callers / 2)
	settles := func(ctx context.Context, i int) (quota.Settled, error) {
		return c.ledger.Settle(ctx, quota.Settle{ID: ids[i], Tree: treeOf(i), Actual: quota.Amounts{quota.Tokens: 3}})
	}
	c.gather(t, callers, func(i int) {
		if !leaves(i) {
			if _, err := settles(t.Context(), i); err != nil {
				t.Errorf("Settle of caller %d, who stays: %v", i, err)
			}
			return
		}
		defer gone.Done()
		if _, err := settles(ctx, i); !errors.Is(err, context.Canceled) {
			t.Errorf("Settle of caller %d, who leaves: %v", i, err)
		}
	}, func() {
		cancel()
		gone.Wait() // although the server does not answer
	})
	for i := range callers {
		res, err := settles(t.Context(), i)
		if err != nil || res.Status[0].Committed != 3 || !leaves(i) && !res.Repeated {
			t.Errorf("Settle of caller %d again = %+v, %v", i, res, err)
		}
		stands(t, c.ledger, treeOf(i), e, 3, 0)
	}
}

func TestLostConnectionIsAnErrorOfAllThatWait(t *testing.T) {
	t.Parallel()
	proxy := servers.NewProxy(t, servers.StartRedis(t, servers.RedisOptions{}).Addr())
	for name, client := range clients(t, proxy.Addr()) {
		const limit = time.Second
		l := open(t, client, within(limit))
		e := hourly("u", quota.Hold, 1, -1)
		take(t, l, "t", e)
		proxy.Stall(true)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				begun := time.Now()
				_, err := l.Reserve(t.Context(), quota.Reserve{ID: treeOf(i), Tree: "t", Entries: []quota.Entry{e}})
				unavailable(t, "Reserve", err)
				if took := time.Since(begun); took > limit+2*time.Second {
					t.Errorf("client %s: it took %v, want at most %v", name, took, limit)
				}
			})
		}
		await(t, func() bool { return redisledger.Waiting(l) > 0 })
		proxy.Cut()
		wg.Wait()
		proxy.Stall(false)
		proxy.Mend()
	}
}

func TestTreesOfAClusterGoApart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	cluster := servers.StartRedisCluster(t, 3, 0, servers.RedisOptions{})
	client := cluster.Client()
	for _, mixed := range []bool{false, true} {
		l := open(t, client, func(c *redisledger.Config) { c.Prefix = fmt.Sprint(mixed, ":") })
		if redisledger.Mixes(l) {
			t.Fatal("trees of a cluster may be in one script")
		}
		if mixed { // as if it was not known
			redisledger.Mix(l)
		}
		const callers = 60
		e := hourly("u", quota.Hold, 10, 1000)
		for i := range callers {
			take(t, l, treeOf(i), e)
		}
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range 20 {
					settle(t, l, treeOf(i), take(t, l, treeOf(i), e), 1)
				}
			})
		}
		wg.Wait()
		for i := range callers {
			stands(t, l, treeOf(i), e, 20, 10)
		}
		if redisledger.Mixes(l) {
			t.Error("although the cluster has refused it, trees may still be in one script")
		}
	}
}

func TestScriptsHaveSeveralTreesOnlyWhereOneServerHasAll(t *testing.T) {
	t.Parallel()
	server := servers.SharedRedis(t)
	if l := open(t, connect(t, server.Addr()), prefix(t)); !redisledger.Mixes(l) {
		t.Error("one server: trees go apart")
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	if l := open(t, ring, prefix(t)); redisledger.Mixes(l) {
		t.Error("a ring: trees go together")
	}
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">pass", "~*", "&*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	mute := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "mute", Password: "pass"})
	t.Cleanup(func() { _ = mute.Close() })
	if l := open(t, mute, prefix(t)); redisledger.Mixes(l) {
		t.Error("a server that does not say what it is: trees go together")
	}
}

// A client whose server has become a replica is told so by what it refuses, and looks for the
// master then. That one script does what many ask must not hide it.
func TestWhoGoesTogetherLeavesAReplicaForTheMaster(t *testing.T) {
	t.Parallel()
	old, next := servers.StartRedis(t, servers.RedisOptions{}), servers.StartRedis(t, servers.RedisOptions{})
	follows := func(r, master *servers.Redis) {
		t.Helper()
		host, port, _ := net.SplitHostPort(master.Addr())
		if err := r.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	follows(next, old)
	var address atomic.Pointer[string] // of the name that stands for the master
	point := func(r *servers.Redis) { a := r.Addr(); address.Store(&a) }
	point(old)
	client := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled: true, PoolSize: 30, MaxRetries: 60, MinRetryBackoff: -1, MaxRetryBackoff: -1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *address.Load())
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	c := &crowd{old, client, open(t, client)}
	const callers = 40
	e := hourly("u", quota.Hold, 10, 100)
	for i := range callers {
		take(t, c.ledger, treeOf(i), e)
	}
	replicated(t, old, "{t}")
	var conns []*redis.Conn // which stay open, to the server that is no master any more
	for range 30 {
		conn := client.Conn()
		if err := conn.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	if err := next.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	follows(old, next)
	point(next)
	c.gather(t, callers, func(i int) {
		if i < redisledger.Width { // those who go alone only read
			stands(t, c.ledger, treeOf(i), e, 0, 10)
			return
		}
		res, err := c.ledger.Reserve(t.Context(), quota.Reserve{ID: "second", Tree: treeOf(i), Entries: []quota.Entry{e}})
		if err != nil || res.Denied >= 0 || res.Status[0].Reserved != 20 {
			t.Errorf("Reserve of caller %d = %+v, %v", i, res, err)
		}
	}, nil)
}
