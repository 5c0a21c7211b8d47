package servers_test

import (
	"net"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/internal/servers"
)

func TestSentinelKnowsTheServerByItsName(t *testing.T) {
	t.Parallel()
	master := servers.StartRedis(t, servers.RedisOptions{})
	sentinel := servers.StartRedisSentinel(t, "main", master)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	got, err := client.GetMasterAddrByName(t.Context(), "main").Result()
	if err != nil || !slices.Equal(got, []string{host, port}) {
		t.Errorf("main is at %v, %v, want %s", got, err, master.Addr())
	}
}
