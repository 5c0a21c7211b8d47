package agent_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// static is a replica that has no store, and whose callers always wait.
type static struct {
	sharing *agent.Sharing
	gate    *ratelimited.Gate
	stop    context.CancelFunc
	callers sync.WaitGroup
}

func startStatic(t *testing.T, p *provider, replicas int, profile ratelimited.Profile) *static {
	t.Helper()
	sharing, err := agent.New(agent.Config{Mode: share.Static, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{Slots: 48, Headroom: 1, Profile: profile, Share: sharing})
	if err != nil {
		t.Fatal(err)
	}
	s := &static{sharing: sharing, gate: gate}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	for range 12 {
		s.callers.Go(func() {
			for {
				permit, err := gate.Acquire(ctx, call(10))
				if err != nil {
					return
				}
				time.Sleep(30 * time.Millisecond)
				p.take(10)
				p.run(time.Second)
				permit.End(usage.Usage{Input: 10})
			}
		})
	}
	return s
}

func (s *static) end(t *testing.T) {
	t.Helper()
	s.stop()
	s.callers.Wait()
	end(t, s.gate)
}

// Replicas without a store come and go, and those that stay are told: each has its part, all
// of them use what there is, and never more.
func TestPartsFollowTheNumberOfReplicasThatIsTold(t *testing.T) {
	t.Parallel()
	for _, bucket := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const quota = 2400
			p := newProvider(quota, bucket)
			served := func(d time.Duration) int64 {
				p.mu.Lock()
				before := p.served
				p.mu.Unlock()
				time.Sleep(d)
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.served - before
			}
			var fleet []*static
			tell := func(n int) {
				for _, s := range fleet {
					if err := s.sharing.SetReplicas(n); err != nil {
						t.Error(err)
					}
				}
			}
			for range 4 {
				fleet = append(fleet, startStatic(t, p, 4, tokens(quota, bucket)))
			}
			time.Sleep(3*time.Minute + 17*time.Second)
			fleet[0].end(t)
			fleet = fleet[1:]
			tell(3)
			time.Sleep(90 * time.Second)
			if got := served(4 * time.Minute); got < 0.93*4*quota {
				t.Errorf("bucket %v: three of three use %d of %d", bucket, got, 4*quota)
			}
			tell(4)
			time.Sleep(65 * time.Second)
			if got := served(4 * time.Minute); got > 3*quota+quota/20 {
				t.Errorf("bucket %v: three of four use %d, want three quarters of %d", bucket, got, 4*quota)
			}
			fleet = append(fleet, startStatic(t, p, 4, tokens(quota, bucket)))
			time.Sleep(2 * time.Minute)
			if got := served(4 * time.Minute); got < 0.93*4*quota {
				t.Errorf("bucket %v: four of four use %d of %d", bucket, got, 4*quota)
			}
			for _, s := range fleet {
				s.end(t)
			}
			p.check(t, 48)
		})
	}
}

func TestTheNumberOfReplicasIsTheStoresWhereThereIsOne(t *testing.T) {
	t.Parallel()
	alone, err := agent.New(agent.Config{Mode: share.Static, Replicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.SetReplicas(0); err == nil || !strings.Contains(err.Error(), "n is 0") {
		t.Errorf("%v, want an error that names n and 0", err)
	}
	if err := alone.SetReplicas(5); err != nil {
		t.Fatal(err)
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{Slots: 5, Headroom: 1, Profile: tokens(1000, true), Share: alone})
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, gate)
	if got := gate.Stats().Dimensions[0].Level; got != 200 {
		t.Errorf("a gate that is made later has %v of 1000, want a fifth", got)
	}
	store := agent.NewMemory(share.CoordinatorConfig{})
	shared, err := agent.New(agent.Config{Open: store.Open, Mode: share.Static})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.SetReplicas(2); err == nil || !strings.Contains(err.Error(), "store") {
		t.Errorf("%v, want an error that says that there is a store", err)
	}
}
