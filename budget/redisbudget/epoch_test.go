package redisbudget_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/servers"
	"github.com/headgate-go/headgate/ratelimited"
)

// A replica comes back on a host whose clock is an hour behind that of the one it ran on
// before: it is served, and its former life is not any more.
func TestAReplicaWhoseClockIsBehindTakesItsPlaceInRedis(t *testing.T) {
	t.Parallel()
	s := fresh(t, servers.SharedRedis(t), func(c *redisbudget.Config) { c.Replica = "a" })
	dims := []share.Dim{{Limit: 100, Window: time.Minute}, {Shape: share.Slots, Limit: 5}}
	d := newDesk(t, s, "a", dims...)
	d.epoch = time.Now().Add(time.Hour).UnixMicro()
	d.must(10, 1)

	g, err := ratelimited.NewGate(ratelimited.Config{
		Slots: 5, Headroom: 1, Share: s,
		Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{{Name: "requests", Limit: 100, Count: ratelimited.OneRequest}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p, err := g.Acquire(ctx, ratelimited.Call{})
	if err != nil {
		t.Fatalf("it is not served: %v", err)
	}
	if got := d.must(10, 1); !got.Stale || got.Newest <= d.epoch {
		t.Errorf("its former life is answered %+v, want that there is a younger one", got)
	}
	p.Release()
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
}
