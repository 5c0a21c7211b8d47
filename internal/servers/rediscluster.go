package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// NodeTimeout is after how long a node of a cluster that does not answer is
	// taken for dead (cluster-node-timeout); one of its replicas takes its
	// place about a second later. The default of Redis is 15 s.
	NodeTimeout = 2 * time.Second
	// clusterSlots is the number of hash slots of a Redis Cluster.
	clusterSlots = 16384
)

// RedisCluster is a running Redis Cluster, one process per node.
type RedisCluster struct {
	t     testing.TB
	nodes []*Redis
}

// StartRedisCluster starts a Redis Cluster for this test, and returns when all
// of its nodes agree that it is whole. Each master has as many replicas as
// replicasEach says; a master that is lost is replaced by one of them after
// [NodeTimeout]. It needs Redis 7.0 or later.
func StartRedisCluster(t testing.TB, masters, replicasEach int, o RedisOptions) *RedisCluster {
	t.Helper()
	binary := requireRedis(t)
	if masters < 1 || replicasEach < 0 {
		t.Fatalf("a cluster of %d masters with %d replicas each", masters, replicasEach)
	}
	c := &RedisCluster{t: t}
	for range masters * (1 + replicasEach) {
		s, err := newRedis(binary, o, clusterConfig)
		if err != nil {
			t.Fatal(err)
		}
		s.closeAfter(t)
		c.nodes = append(c.nodes, &Redis{handle{t: t, server: s}})
	}
	// The bus port is by default the port plus 10000, which is not ours to
	// take.
	if err := c.each(func(_ int, n *Redis) error { return n.startNew(2) }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.form(ctx, masters); err != nil {
		t.Fatalf("form a cluster: %v", err)
	}
	return c
}

func clusterConfig(s *server) string {
	return strings.Join([]string{
		"cluster-enabled yes",
		"cluster-port " + strconv.Itoa(s.ports[1].number),
		"cluster-announce-ip 127.0.0.1",
		"cluster-node-timeout " + strconv.FormatInt(NodeTimeout.Milliseconds(), 10),
		// A replica takes over however long it has not heard of its master: a
		// machine with much else to do is slow, and never has nobody to answer.
		"cluster-replica-validity-factor 0",
	}, "\n")
}

// form makes one cluster of nodes that do not know each other. The first nodes
// become the masters, and replicas are dealt to them in turn.
func (c *RedisCluster) form(ctx context.Context, masters int) error {
	for i, n := range c.nodes {
		// Nodes with equal epochs would have to sort that out first.
		commands := [][]string{{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}}
		if i < masters {
			first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
			commands = append(commands, []string{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)})
		}
		// Everybody meets everybody, which is faster than gossip.
		for _, other := range c.nodes[:i] {
			commands = append(commands, []string{"CLUSTER", "MEET", "127.0.0.1",
				strconv.Itoa(other.ports[0].number), strconv.Itoa(other.ports[1].number)})
		}
		for _, command := range commands {
			if _, err := askRedis(ctx, n.Addr(), command...); err != nil {
				return err
			}
		}
	}
	known := "cluster_known_nodes:" + strconv.Itoa(len(c.nodes))
	if err := c.awaitInfo(ctx, known); err != nil {
		return err
	}
	for i, n := range c.nodes[masters:] {
		master, err := askRedis(ctx, c.nodes[i%masters].Addr(), "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		// A node knows how many there are a moment before it knows their names.
		err = poll(ctx, func(ctx context.Context) error {
			_, err := askRedis(ctx, n.Addr(), "CLUSTER", "REPLICATE", master)
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.awaitWhole(ctx)
}

// Addrs returns host:port of every node.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// Nodes returns every node, always in the same order.
func (c *RedisCluster) Nodes() []*Redis { return append([]*Redis(nil), c.nodes...) }

// Client returns a new client of the cluster with the defaults of go-redis,
// which is closed when the test is over.
func (c *RedisCluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), MaintNotificationsConfig: noNotifications()})
	c.t.Cleanup(func() { _ = client.Close() }) // fails if the test has closed it
	return client
}

// MasterOf returns the node that is the master for a key, as the nodes that
// answer see it; where they do not agree, the latest election decides.
func (c *RedisCluster) MasterOf(key string) *Redis {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var master *Redis
	err := poll(ctx, func(ctx context.Context) (err error) {
		master, err = c.masterOf(ctx, key)
		return err
	})
	if err != nil {
		c.t.Fatalf("master of %q: %v", key, err)
	}
	return master
}

// AwaitFailover waits until the cluster is whole again with another master for
// the key than the one that was killed or paused, and returns that.
func (c *RedisCluster) AwaitFailover(key string, old *Redis) *Redis {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var master *Redis
	err := poll(ctx, func(ctx context.Context) (err error) {
		if master, err = c.masterOf(ctx, key); err == nil && master == old {
			err = errors.New("no replica has taken over")
		}
		return err
	})
	if err == nil {
		err = c.awaitWhole(ctx)
	}
	if err != nil {
		c.t.Fatalf("failover of %s for %q: %v", old.Addr(), key, err)
	}
	return master
}

// AwaitWhole waits until every node that runs sees all slots served, has heard
// of every other node that runs, and, being a replica, follows its master.
func (c *RedisCluster) AwaitWhole() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.awaitWhole(ctx); err != nil {
		c.t.Fatal(err)
	}
}

func (c *RedisCluster) awaitWhole(ctx context.Context) error {
	if err := c.awaitInfo(ctx, "cluster_state:ok"); err != nil {
		return err
	}
	return c.each(func(_ int, n *Redis) error {
		return poll(ctx, func(ctx context.Context) error { return c.isWhole(ctx, n) })
	})
}

// isWhole returns an error if a node has not heard of another one that runs, or
// is a replica that does not follow its master.
func (c *RedisCluster) isWhole(ctx context.Context, n *Redis) error {
	if !n.answers() {
		return nil
	}
	info, err := askRedis(ctx, n.Addr(), "INFO", "replication")
	if err != nil {
		return err
	}
	if strings.Contains(info, "\r\nrole:slave\r\n") && !strings.Contains(info, "\r\nmaster_link_status:up\r\n") {
		return fmt.Errorf("%s does not follow its master", n.Addr())
	}
	view, err := c.view(ctx, n)
	if err != nil {
		return err
	}
	for _, other := range c.nodes {
		if peer, ok := view[other.Addr()]; other.answers() && (!ok || !peer.linked) {
			return fmt.Errorf("%s has no link to %s", n.Addr(), other.Addr())
		}
	}
	return nil
}

// awaitInfo waits until CLUSTER INFO of every node that runs has a line.
func (c *RedisCluster) awaitInfo(ctx context.Context, line string) error {
	return c.each(func(_ int, n *Redis) error {
		return poll(ctx, func(ctx context.Context) error {
			if !n.answers() {
				return nil
			}
			info, err := askRedis(ctx, n.Addr(), "CLUSTER", "INFO")
			if err == nil && !strings.Contains("\r\n"+info, "\r\n"+line+"\r\n") {
				err = fmt.Errorf("%s does not say %q but %q", n.Addr(), line, info)
			}
			return err
		})
	})
}

// masterOf asks every node that answers once.
func (c *RedisCluster) masterOf(ctx context.Context, key string) (*Redis, error) {
	var mu sync.Mutex // guards slot and views
	var slot int
	var views []map[string]peer
	err := c.each(func(_ int, n *Redis) error {
		if !n.answers() {
			return nil
		}
		reply, err := askRedis(ctx, n.Addr(), "CLUSTER", "KEYSLOT", key)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(reply)
		if err != nil {
			return err
		}
		view, err := c.view(ctx, n)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		slot, views = number, append(views, view)
		return nil
	})
	if err != nil {
		return nil, err
	}
	addr, ok := latestMaster(views, slot)
	i := slices.IndexFunc(c.nodes, func(n *Redis) bool { return n.Addr() == addr })
	if !ok || i < 0 {
		return nil, errors.New("no node serves it")
	}
	return c.nodes[i], nil
}

// view returns how a node sees the cluster, by address.
func (c *RedisCluster) view(ctx context.Context, n *Redis) (map[string]peer, error) {
	text, err := askRedis(ctx, n.Addr(), "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	return parseNodes(text)
}

// each does something for every node at once.
func (c *RedisCluster) each(f func(i int, n *Redis) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = f(i, n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// poll repeats f until it returns nil. The error is the last one of f.
func poll(ctx context.Context, f func(context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, askLimit)
		err := f(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
