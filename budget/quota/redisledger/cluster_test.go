package redisledger_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

// A master that is gone tells nobody that another one has its keys, and the client looks for itself
// only once a minute.
func TestAClusterThatHasFailedOverIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	server := servers.SharedRedis(t)
	old := servers.NewProxy(t, server.Addr())
	var master atomic.Pointer[string]
	now := old.Addr()
	master.Store(&now)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: *master.Load()}}}}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	l := open(t, client, func(c *redisledger.Config) { c.Timeout = redisledger.DefaultTimeout })
	if err := l.Release(t.Context(), "tree", "nobody"); err == nil {
		t.Fatal("a reservation that nobody has made is known")
	}
	next := server.Addr()
	master.Store(&next)
	old.Cut()
	for begun := time.Now(); ; {
		_, err := l.Status(t.Context(), "tree")
		if err == nil {
			break
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("%v after the failover the new master is not found: %v", time.Since(begun).Round(time.Millisecond), err)
		}
	}
}
