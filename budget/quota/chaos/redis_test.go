package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/internal/servers"
)

// A Redis that appends always has lost nothing after kill -9, and callers that send
// everything again whose answer they did not get are charged once.
func TestRedisKeepsWhatItHasAcknowledged(t *testing.T) {
	t.Parallel()
	redisHavoc(t, false)
}

// The same under journals, which have all of it, too.
func TestRedisUnderJournalsKeepsWhatItHasAcknowledged(t *testing.T) {
	t.Parallel()
	redisHavoc(t, true)
}

func redisHavoc(t *testing.T, journaled bool) {
	t.Helper()
	server := servers.StartRedis(t, servers.RedisOptions{AppendOnly: "always"})
	net := servers.NewProxy(t, server.Addr())
	s := newStack(t, storeAt{"redis", net.Addr()}, storeAt{"redis", server.Addr()}, journaled)
	client := server.Client()
	faults := append(s.serverFaults(server, net), s.killCaller(), s.pauseCaller(), fault{"scripts are forgotten", func() {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}})
	s.havoc(havocFor(t, 4*time.Second), faults...)
	s.settle(func() { redisIsQuiet(t, client) })
	everyKeyExpires(t, client)
}

// redisIsQuiet waits until a server has done what connections that are gone have sent to it:
// it looks at all of them in each round of its loop, and ends them when it has read all.
func redisIsQuiet(t *testing.T, client *redis.Client) {
	t.Helper()
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func everyKeyExpires(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx := context.Background()
	n := 0
	for keys := client.Scan(ctx, 0, "*", 1000).Iterator(); ; n++ {
		if !keys.Next(ctx) {
			if err := keys.Err(); err != nil || n == 0 {
				t.Errorf("%d keys, %v", n, err)
			}
			return
		}
		// -2 is one that has expired meanwhile.
		if left, err := client.PTTL(ctx, keys.Val()).Result(); err != nil || left == -1 {
			t.Errorf("key %q never expires: %v", keys.Val(), err)
			return
		}
	}
}
