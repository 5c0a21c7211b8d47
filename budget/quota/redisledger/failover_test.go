package redisledger_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// replicated waits until the replica of a master has all that was written before. The
// master answers for a key with the tag.
func replicated(t *testing.T, master *servers.Redis, tag string) {
	t.Helper()
	eventually(t, func() error { // it may not have its replica yet
		conn := master.Client().Conn() // WAIT is about the writes of a connection
		defer conn.Close()
		if err := conn.Set(t.Context(), tag+"replicated", "", time.Second).Err(); err != nil {
			return err
		}
		n, err := conn.Wait(t.Context(), 1, time.Second).Result()
		if err == nil && n != 1 {
			err = errors.New("the master has no replica")
		}
		return err
	})
}

// A client of Sentinel is a client like any other, and finds the new master by itself.
func TestLedgerFollowsWhatSentinelSays(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, servers.RedisOptions{}), servers.StartRedis(t, servers.RedisOptions{})
	host, port, _ := net.SplitHostPort(master.Addr())
	if err := replica.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	replicated(t, master, "{t}")
	sentinel := servers.StartRedisSentinel(t, "main", master)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: []string{sentinel.Addr()}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	l := open(t, client)
	e := hourly("u", quota.Hold, 40, 100)
	spent, held := take(t, l, "t", e), take(t, l, "t", e)
	settle(t, l, "t", spent, 35)
	replicated(t, master, "{t}")
	eventually(t, func() error { // it must have found the replica
		return sentinel.Client().Do(t.Context(), "SENTINEL", "FAILOVER", "main").Err()
	})
	eventually(t, func() error {
		role, err := replica.Client().Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(role, "role:master") {
			err = errors.New("the replica is not the master yet")
		}
		return err
	})
	master.Kill() // so that nobody asks it by mistake
	eventually(t, func() error {
		res, err := l.Settle(t.Context(), quota.Settle{ID: held, Tree: "t", Actual: quota.Amounts{quota.Tokens: 50}})
		if err == nil && (res.Late || res.Status[0].Committed != 85) {
			t.Errorf("Settle = %+v", res)
		}
		return err
	})
	stands(t, l, "t", e, 85, 0)
	take(t, l, "t", hourly("u", quota.Hold, 15, 100))
}

// keepJournal puts a journal before a ledger, until the test ends.
func keepJournal(t *testing.T, l quota.Ledger) *journal.Ledger {
	t.Helper()
	j, err := journal.Open(t.TempDir(), journal.Config{SyncTimeout: 10 * time.Second, Watermarks: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	journaled, err := journal.New(l, j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := journaled.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return journaled
}

// A replica that takes over has not got what the master has acknowledged last. The process
// that has spent it kept a journal.
func TestWhatAFailoverHasLostIsWholeAgainAfterReplay(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, 3, 1, servers.RedisOptions{AppendOnly: "everysec"})
	l := open(t, cluster.Client())
	journaled := keepJournal(t, l)
	const tree = "tenant=acme"
	key := redisledger.DefaultPrefix + "{" + tree + "}:x"
	e := hourly("u", quota.Hold, 20, 1000)
	spend := func(calls int) {
		t.Helper()
		for range calls {
			settle(t, journaled, tree, take(t, journaled, tree, e), 10)
		}
	}
	spend(10)
	master := cluster.MasterOf(key)
	replicated(t, master, "{"+tree+"}")
	since := time.Now()
	replicas := cluster.Nodes()[3:]
	for _, r := range replicas { // nothing reaches them from now on
		r.Kill()
	}
	spend(5)
	open := take(t, journaled, tree, e)
	stands(t, journaled, tree, e, 150, 20)
	master.Kill()
	for _, r := range replicas {
		r.Restart()
	}
	cluster.AwaitFailover(key, master)
	eventually(t, func() error { return l.Healthy(t.Context()) })
	stands(t, l, tree, e, 100, 0) // no more is lost than what was not replicated

	for range 2 { // what is known already is not charged again
		if _, err := journaled.Replay(t.Context(), since); err != nil {
			t.Fatal(err)
		}
		stands(t, l, tree, e, 150, 20)
	}
	settle(t, journaled, tree, open, 7)
	stands(t, l, tree, e, 157, 0)
}

// A process that makes no call while a master is replaced has none that fails, and finds it out.
func TestAProcessThatIsIdleInAFailoverReplaysWhatItHasLost(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, 3, 1, servers.RedisOptions{AppendOnly: "everysec"})
	var replaced []time.Time
	l := open(t, cluster.Client(), func(c *redisledger.Config) {
		c.Replaced = func(since time.Time) { replaced = append(replaced, since) }
	})
	journaled := keepJournal(t, l)
	const tree = "tenant=acme"
	key := redisledger.DefaultPrefix + "{" + tree + "}:x"
	e := hourly("u", quota.Hold, 20, 1000)
	spend := func(calls int) {
		t.Helper()
		for range calls {
			settle(t, journaled, tree, take(t, journaled, tree, e), 10)
		}
	}
	healthy := func() { t.Helper(); eventually(t, func() error { return journaled.Healthy(t.Context()) }) }
	spend(10)
	master := cluster.MasterOf(key)
	replicated(t, master, "{"+tree+"}")
	lost := time.Now()
	replicas := cluster.Nodes()[3:]
	for _, r := range replicas { // nothing reaches them from now on
		r.Kill()
	}
	spend(5)
	idle := time.Now()
	healthy()
	if len(replaced) != 0 {
		t.Fatalf("nothing has happened, and masters were replaced since %v", replaced)
	}
	master.Kill()
	for _, r := range replicas {
		r.Restart()
	}
	cluster.AwaitFailover(key, master)
	after := time.Now()
	for range 3 { // it is told once
		healthy()
	}
	if len(replaced) != 1 || replaced[0].Before(idle) || replaced[0].After(after) {
		t.Fatalf("masters were replaced since %v, want once, since an instant from %v to %v", replaced, idle, after)
	}
	stands(t, l, tree, e, 100, 0)
	if _, err := journaled.Replay(t.Context(), replaced[0].Add(-idle.Sub(lost))); err != nil {
		t.Fatal(err)
	}
	stands(t, l, tree, e, 150, 0)
}

// A master that was restarted is the same by its address, and may lack what it had not written to
// its disk.
func TestAServerThatWasRestartedIsReplaced(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	var replaced []time.Time
	begun := time.Now()
	l := open(t, server.Client(), func(c *redisledger.Config) {
		c.Replaced = func(since time.Time) { replaced = append(replaced, since) }
	})
	opened := time.Now()
	server.Kill()
	unavailable(t, "Healthy", l.Healthy(t.Context()))
	server.Restart()
	for range 2 {
		eventually(t, func() error { return l.Healthy(t.Context()) })
	}
	if len(replaced) != 1 || replaced[0].Before(begun) || replaced[0].After(opened) {
		t.Errorf("it was replaced since %v, want once, since New at %v", replaced, begun)
	}
}
