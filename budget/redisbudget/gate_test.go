package redisbudget_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/redisbudget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/internal/servers"
)

// run is another one for each run of the tests.
var run atomic.Int64

// nameOf is the quota of a test: one of its own, in each run.
func nameOf(t testing.TB) string {
	name := fmt.Sprint(t.Name(), run.Add(1))
	if first, ok := names.LoadOrStore(t, name); ok {
		return first.(string)
	}
	t.Cleanup(func() { names.Delete(t) })
	return name
}

// names are the quotas of tests that are running.
var names sync.Map

// named gives a test a quota of its own.
func named(t testing.TB, change ...func(*redisbudget.Config)) func(*redisbudget.Config) {
	return func(c *redisbudget.Config) {
		c.Name, c.Timeout = nameOf(t), 10*time.Second
		for _, f := range change {
			f(c)
		}
	}
}

// fresh is a Sharing whose quota was not lost, however young its server is.
func fresh(t testing.TB, addr *servers.Redis, change ...func(*redisbudget.Config)) *redisbudget.Sharing {
	t.Helper()
	s := sharing(t, addr.Client(), named(t, change...))
	redisbudget.Learn(s, false)
	return s
}

// Two and four gates, each with more calls than the quota has room for: all are answered,
// none is refused, in about the time that the quota takes.
func TestGatesThatShareAQuotaAreNeverThrottled(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central, share.Static} {
		for _, gates := range []int{2, 4} {
			t.Run(fmt.Sprintf("%v, %d gates", mode, gates), func(t *testing.T) {
				t.Parallel()
				const calls = 88
				p := newProvider(t)
				var all sync.WaitGroup
				var s *redisbudget.Sharing
				for range gates {
					s = fresh(t, servers.SharedRedis(t), func(c *redisbudget.Config) { c.Mode, c.Replicas = mode, gates })
					r := p.replica(s)
					all.Go(func() {
						r.burst(calls / gates)
						r.close()
					})
				}
				all.Wait()
				p.check(calls)
				if mode != share.Static {
					p.whole(s)
				}
				if took := p.double.Stats().Elapsed; took < 2*window {
					t.Errorf("it took %v: the quota did not bind, and this test proves nothing", took)
				}
			})
		}
	}
}

// One that is busy has what the other ones do not use.
func TestABusyGateHasTheWholeQuota(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	busy, idle := p.replica(fresh(t, servers.SharedRedis(t))), p.replica(fresh(t, servers.SharedRedis(t)))
	defer idle.close()
	defer busy.close()
	if err := idle.call(context.Background(), 10); err != nil {
		t.Fatal(err)
	}
	busy.burst(requests - 1) // all in the window of the first call
	p.check(requests)
	for _, w := range p.double.Stats().Windows {
		if w.Name == "rpm" && w.Largest <= requests/2 {
			t.Errorf("one busy gate used %d of %d requests in a window beside an idle one, want more than its half", w.Largest, w.Limit)
		}
	}
}
