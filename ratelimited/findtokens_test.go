package ratelimited_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// sized is a provider of two quotas per minute, of tokens and of requests, that nobody was
// told.
type sized struct {
	mu               sync.Mutex
	tokens, requests *budget.TokenBudget
	served           float64 // tokens
	calls, refused   float64
}

func newSized(t *testing.T, tokens, requests int64) *sized {
	t.Helper()
	s := &sized{}
	for _, b := range []struct {
		budget **budget.TokenBudget
		limit  int64
	}{{&s.tokens, tokens}, {&s.requests, requests}} {
		var err error
		if *b.budget, err = budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: b.limit, Window: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// admit serves a call, or refuses it; named tells which quota that was for.
func (s *sized) admit(tokens int64, named bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	fits, _ := s.tokens.Fits(now, tokens)
	also, _ := s.requests.Fits(now, 1)
	if fits && also {
		s.tokens.Take(now, tokens)
		s.requests.Take(now, 1)
		s.served += float64(tokens)
		s.calls++
		return nil
	}
	s.refused++
	switch {
	case named && !fits:
		return throttled(quotaFailure("GenerateContentInputTokensPerModelPerMinute"))
	case named:
		return throttled(quotaFailure(requestsPerMinute))
	}
	return throttled()
}

// since forgets what was counted so far, and returns it: tokens, calls and the share of
// refusals.
func (s *sized) since() (tokens, calls, refused float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens, calls, refused = s.served, s.calls, s.refused/max(s.calls+s.refused, 1)
	s.served, s.calls, s.refused = 0, 0, 0
	return tokens, calls, refused
}

// crowd has so many callers call again and again until ctx ends, with 1500 tokens in the
// mean, log-normal.
func (s *sized) crowd(ctx context.Context, n int, g *ratelimited.Gate, named bool) *sync.WaitGroup {
	var callers sync.WaitGroup
	for i := range n {
		dice := rand.New(rand.NewPCG(1, uint64(i)))
		callers.Go(func() {
			for ctx.Err() == nil {
				tokens := int64(math.Exp(0.5*dice.NormFloat64())*1500/math.Exp(0.125)) + 1
				for attempt := 1; attempt <= 3; attempt++ {
					permit, err := g.Acquire(ctx, ratelimited.Call{Usage: usage.Usage{Input: tokens}})
					if err != nil {
						return
					}
					time.Sleep(time.Duration(20+dice.IntN(60)) * time.Millisecond)
					if err := s.admit(tokens, named); err != nil {
						v := permit.Refused(err)
						var policy retry.Policy
						if d, ok := policy.Delay(v, attempt); ok {
							time.Sleep(d)
						}
						continue
					}
					time.Sleep(time.Second)
					permit.Counted()
					time.Sleep(2 * time.Second)
					permit.End(usage.Usage{Input: tokens})
					break
				}
			}
		})
	}
	return &callers
}

// Calls of different sizes, before a quota of tokens alone, beside one of requests that
// binds in its place, and where both do.
func TestATokenQuotaThatNobodyHasToldIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		tokens, requests int64
		both, named      bool // limits are searched for; refusals name theirs
	}{
		"tokens":                          {900_000, 1 << 40, false, false},
		"requests, and tokens, named not": {900_000_000, 600, true, false},
		"both bind now and then":          {900_000, 620, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				provider := newSized(t, c.tokens, c.requests)
				profile := ratelimited.Profile{Dimensions: []ratelimited.Dimension{
					{Name: "tokens", Limit: ratelimited.Unknown, Count: ratelimited.InputTokens, Resource: retry.InputTokens},
				}}
				if c.both {
					profile.Dimensions = append(profile.Dimensions, ratelimited.Dimension{
						Name: "requests", Limit: ratelimited.Unknown, Count: ratelimited.OneRequest, Resource: retry.Requests,
					})
				}
				g := newGate(t, ratelimited.Config{Slots: 100, Profile: profile})
				ctx, stop := context.WithCancel(t.Context())
				callers := provider.crowd(ctx, 100, g, c.named)
				time.Sleep(20 * time.Minute)
				provider.since()
				time.Sleep(20 * time.Minute)
				tokens, calls, refused := provider.since()
				use := max(tokens/20/float64(c.tokens), calls/20/float64(c.requests))
				if use < 0.95 || refused > 0.025 {
					t.Errorf("%.3f of the quota is used, and %.2f %% of the calls are refused; want 0.95 at least, and 2.5 %% at most", use, 100*refused)
				}
				stop()
				callers.Wait()
			})
		})
	}
}
