package ratelimited_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// strict is a provider that enforces a quota that nobody was told, and counts.
type strict struct {
	mu     sync.Mutex
	quota  *budget.TokenBudget // nil is no such limit
	places int                 // 0 is any number
	busy   int
	// In the measured time: calls served and refused, and the sum of the times that the
	// served ones took.
	served, refused int
	took            time.Duration
}

func (s *strict) llm(latency time.Duration) *fakeLLM {
	return &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
		if err := s.admit(); err != nil {
			yield(nil, err)
			return
		}
		err := wait(ctx, latency)
		s.mu.Lock()
		s.busy--
		s.took += latency
		s.mu.Unlock()
		if err != nil {
			yield(nil, err)
			return
		}
		yield(final(5, 5), nil)
	}}
}

func (s *strict) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places > 0 && s.busy >= s.places {
		s.refused++
		return throttled(quotaFailure("ConcurrentRequests"))
	}
	if s.quota != nil {
		if _, ok := s.quota.TryTake(time.Now(), 1); !ok {
			s.refused++
			return throttled()
		}
	}
	s.busy++
	s.served++
	return nil
}

// since forgets what was counted so far, and returns it.
func (s *strict) since() (served int, refused float64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served, took = s.served, s.took
	refused = float64(s.refused) / float64(max(s.served+s.refused, 1))
	s.served, s.refused, s.took = 0, 0, 0
	return served, refused, took
}

// crowd has so many callers call again and again until ctx ends.
func crowd(ctx context.Context, n int, llm LLM) *sync.WaitGroup {
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			for ctx.Err() == nil {
				_ = call(ctx, llm, hello())
			}
		})
	}
	return &callers
}

func TestALimitThatNobodyHasToldIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const perSecond = 5
		quota, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 60 * perSecond, Window: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		provider := &strict{quota: quota}
		g := newGate(t, ratelimited.Config{Slots: 40, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{
			{Name: "requests", Limit: ratelimited.Unknown, Count: ratelimited.OneRequest, Resource: retry.Requests},
		}}})
		ctx, stop := context.WithCancel(t.Context())
		callers := crowd(ctx, 40, wrap(t, provider.llm(2*time.Second), g))
		time.Sleep(20 * time.Minute)
		provider.since()
		time.Sleep(20 * time.Minute)
		served, refused, _ := provider.since()
		if use := float64(served) / (20 * 60 * perSecond); use < 0.95 || refused > 0.025 {
			t.Errorf("%.3f of the quota is used, and %.2f %% of the calls are refused; want 0.95 at least, and 2.5 %% at most", use, 100*refused)
		}
		if found := dimension(t, g, "requests").Limit; found < 57*perSecond || found > 75*perSecond {
			t.Errorf("the limit that was found is %d, want about %d", found, 60*perSecond)
		}

		if err := g.SetLimit("requests", 60); err != nil { // now it is told
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		provider.since()
		time.Sleep(10 * time.Minute)
		if served, refused, _ := provider.since(); served > 10*60 || served < 9*50 || refused > 0 {
			t.Errorf("%d calls in 10 min, and %.2f %% refused, where 60 a minute are told", served, 100*refused)
		}
		if d := dimension(t, g, "requests"); d.Limit != 60 || d.Share != 1 {
			t.Errorf("the limit is %d and its share %v, want 60 and 1", d.Limit, d.Share)
		}
		stop()
		callers.Wait()
	})
}

func TestSlotsThatNobodyHasToldAreFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		provider := &strict{places: 20}
		g := newGate(t, ratelimited.Config{Slots: 60, FindSlots: true})
		ctx, stop := context.WithCancel(t.Context())
		callers := crowd(ctx, 60, wrap(t, provider.llm(2*time.Second), g))
		time.Sleep(5 * time.Minute)
		provider.since()
		time.Sleep(10 * time.Minute)
		_, refused, took := provider.since()
		if use := took.Minutes() / (10 * 20); use < 0.9 || refused > 0.03 {
			t.Errorf("%.3f of 20 places are used, and %.2f %% of the calls are refused; want 0.9 at least, and 3 %% at most", use, 100*refused)
		}
		if s := g.Stats(); s.SlotLimit < 17 || s.SlotLimit > 22 {
			t.Errorf("%d slots were found, want about 20", s.SlotLimit)
		}
		stop()
		callers.Wait()
	})
}

// Gates that share a provider's limits and have slots of their own, as where each reaches
// another server of it, find these each for itself.
func TestGatesThatShareOnlyLimitsFindTheirSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := agent.NewMemory(share.CoordinatorConfig{})
		sharing, err := agent.New(agent.Config{Open: store.Open, OwnSlots: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var gates []*ratelimited.Gate
		var callers []*sync.WaitGroup
		servers := []*strict{{places: 20}, {places: 30}}
		for _, s := range servers {
			g := newGate(t, ratelimited.Config{Slots: 60, FindSlots: true, Share: sharing, Profile: ratelimited.Profile{
				Dimensions: []ratelimited.Dimension{{Name: "requests", Limit: 1_000_000, Count: ratelimited.OneRequest, Resource: retry.Requests}},
			}})
			gates = append(gates, g)
			callers = append(callers, crowd(ctx, 60, wrap(t, s.llm(2*time.Second), g)))
		}
		time.Sleep(5 * time.Minute)
		for _, s := range servers {
			s.since()
		}
		time.Sleep(10 * time.Minute)
		sum := 0
		for i, s := range servers {
			served, refused, took := s.since()
			if use := took.Minutes() / float64(10*s.places); use < 0.9 || refused > 0.03 {
				t.Errorf("%.3f of %d places are used, and %.2f %% of the calls are refused; want 0.9 at least, and 3 %% at most", use, s.places, 100*refused)
			}
			if n := gates[i].Stats().SlotLimit; n < int64(s.places)*8/10 || n > int64(s.places)+2 {
				t.Errorf("%d slots were found, want about %d", n, s.places)
			}
			sum += served / 10
		}
		books := store.Books()
		if used := books[0].Limit - books[0].Level; len(books) != 1 || used < 0.95*float64(sum) {
			t.Errorf("the books of %d dimensions have %.0f requests of the last minute, want those of both gates, %d", len(books), used, sum)
		}
		stop()
		for i, g := range gates {
			callers[i].Wait()
			if err := g.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSlotsThatAreSharedAreNotFound(t *testing.T) {
	t.Parallel()
	sharing, err := agent.New(agent.Config{Open: agent.NewMemory(share.CoordinatorConfig{}).Open})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ratelimited.NewGate(ratelimited.Config{Slots: 60, FindSlots: true, Share: sharing})
	if err == nil || !strings.HasPrefix(err.Error(), "ratelimited: Config.FindSlots is true, and Config.Share shares the slots") {
		t.Errorf("got %v, want an error that names Config.FindSlots", err)
	}
}

func TestTheFloorOfCutsIsDividedByTheReplicas(t *testing.T) {
	for _, replicas := range []int{1, 10} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Replicas: replicas, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 10_000})})
				llm := wrap(t, refusesFirst(1<<30, throttled(quotaFailure(requestsPerMinute))), g, ratelimited.WithoutRetries())
				for range 12 { // 0.7^12 is 0.014
					_ = call(t.Context(), llm, hello())
					time.Sleep(time.Millisecond)
				}
				want := 0.25 / float64(replicas)
				if got := dimension(t, g, "requests").Share; got < want*0.999 || got > want*1.01 {
					t.Errorf("after twelve cuts %v of the limit are left, want %v", got, want)
				}
				if err := g.SetReplicas(0); err == nil || !strings.Contains(err.Error(), "n is 0") {
					t.Errorf("SetReplicas(0) returns %v", err)
				}
			})
		})
	}
}
