package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"google.golang.org/genai"
)

// dimension is the snapshot of one dimension.
func dimension(t *testing.T, g *ratelimited.Gate, name string) ratelimited.DimensionStats {
	t.Helper()
	for _, d := range g.Stats().Dimensions {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no dimension %q", name)
	return ratelimited.DimensionStats{}
}

// A hinted refusal closes the limits that it names, for every caller and for
// the hinted time; the others stay open.
func TestHintClosesTheNamedLimitForEverybody(t *testing.T) {
	quota := ratelimited.Quota{RequestsPerMinute: 100, InputTokensPerMinute: 10_000, RequestsPerDay: 1000}
	all := []string{"requests", "input_tokens", "requests_per_day"}
	for name, test := range map[string]struct {
		err    error
		closed []string
		least  time.Duration
	}{
		"requests per minute":        {throttled(retryInfo("20s"), quotaFailure(requestsPerMinute)), all[:1], 20 * time.Second},
		"input tokens per minute":    {throttled(retryInfo("20s"), quotaFailure(inputPerMinute)), all[1:2], 20 * time.Second},
		"both":                       {throttled(retryInfo("20s"), quotaFailure(requestsPerMinute, inputPerMinute)), all[:2], 20 * time.Second},
		"none: all per minute":       {throttled(retryInfo("20s")), all[:2], 20 * time.Second},
		"one that is not configured": {throttled(retryInfo("20s"), quotaFailure("OutputTokensPerMinute")), all[:2], 20 * time.Second},
		"concurrency":                {throttled(retryInfo("20s"), quotaFailure("ConcurrentRequests")), nil, 0},
		"no hint":                    {throttled(quotaFailure(requestsPerMinute)), nil, 0},
		"a hint of nothing":          {throttled(retryInfo("0s"), quotaFailure(requestsPerMinute)), nil, 0},
		"beyond the cap":             {throttled(retryInfo("3600s"), quotaFailure(requestsPerMinute)), all[:1], time.Minute},
		"per day, at most the cap":   {throttled(quotaFailure(requestsPerDay)), all[2:], time.Minute},
		"billing":                    {genai.APIError{Code: 402}, nil, 0},
		"overloaded":                 {genai.APIError{Code: 503, Details: []map[string]any{retryInfo("20s")}}, nil, 0},
		"bad request":                {badRequest(), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 10, Profile: ratelimited.GeminiAPI(quota), Retry: retry.Policy{MaxAttempts: 1}})
				llm := wrap(t, refusesFirst(1, test.err), g)
				start := time.Now()
				if err := call(t.Context(), llm, hello()); err == nil {
					t.Fatal("the refusal was lost")
				}
				closed := make(map[string]bool)
				for _, name := range test.closed {
					closed[name] = true
				}
				for _, name := range all {
					until := dimension(t, g, name).ClosedUntil
					if !closed[name] {
						if !until.IsZero() {
							t.Errorf("%s is closed for %v, want it open", name, until.Sub(start))
						}
						continue
					}
					if d := until.Sub(start); d < test.least || d > test.least*11/10 {
						t.Errorf("%s is closed for %v, want %v and at most a tenth more", name, d, test.least)
					}
				}
				before := time.Now()
				if err := call(t.Context(), llm, hello()); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(before); d < test.least || d > test.least*11/10 {
					t.Errorf("another caller waited %v, want %v and at most a tenth more", d, test.least)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// A closed limit reopens half: one call tries, the others follow once it was
// answered. If it is refused, the next one tries.
func TestClosedLimitReopensWithOneCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 50, Profile: gemini, Retry: retry.Policy{MaxAttempts: 1}})
		f := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			switch n {
			case 1:
				yield(nil, throttled(retryInfo("5s")))
			case 2: // the first one that tries
				_ = wait(ctx, time.Second)
				yield(nil, throttled())
			default:
				_ = wait(ctx, time.Second)
				_ = yield(part("a"), nil)
				_ = wait(ctx, time.Second)
				yield(final(10, 5), nil)
			}
		}}
		llm := wrap(t, f, g)
		_ = call(t.Context(), llm, hello())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { _ = call(t.Context(), llm, hello()) })
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n := f.count(); n != 2 && n != 3 {
			t.Fatalf("6s after a hint of 5s, %d calls were sent, want one try at a time", n)
		}
		if s := g.Stats(); s.Running != 1 {
			t.Fatalf("half-open, %d calls are in flight, want 1", s.Running)
		}
		time.Sleep(1600 * time.Millisecond) // the second try has its first item by now
		synctest.Wait()
		if n := f.count(); n != 21 {
			t.Errorf("after an answer began, %d calls were sent, want all 21", n)
		}
		wg.Wait()
		mustBeIdle(t, g)
	})
}

// Fifty calls that are refused together are one cut of the rate, and none of
// them is lost if the provider recovers: throttled calls are outside the retry
// budget.
func TestBurstOfRefusalsIsOneCutAndLosesNobody(t *testing.T) {
	for name, details := range map[string][]detail{"with a hint": {retryInfo("2s")}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 50, Profile: gemini})
				recovers := time.Now().Add(2 * time.Second)
				f := &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
					sent := time.Now()
					_ = wait(ctx, 10*time.Millisecond)
					if details != nil && sent.Before(recovers) || details == nil && sent.Equal(recovers.Add(-2*time.Second)) {
						yield(nil, throttled(details...))
						return
					}
					yield(final(10, 5), nil)
				}}
				llm := wrap(t, f, g)
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						if err := call(t.Context(), llm, hello()); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(15 * time.Millisecond)
				if share := dimension(t, g, "requests").Share; share != 0.7 {
					t.Errorf("after fifty refusals the share in force is %v, want one cut to 0.7", share)
				}
				wg.Wait()
				if f.count() != 100 {
					t.Errorf("%d attempts, want 100: each call was refused once", f.count())
				}
				time.Sleep(10 * time.Minute)
				p, err := g.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				p.Release()
				if share := dimension(t, g, "requests").Share; share != 1 {
					t.Errorf("ten minutes later the share in force is %v, want 1", share)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// Where the provider is in trouble, or cannot be reached, retries are bounded by
// a fifth of all calls, and what fails beyond that fails at once.
func TestRetriesOfATroubledProviderAreBounded(t *testing.T) {
	for name, err := range map[string]error{"overloaded": overloaded(), "not sent": notSent()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 100, Profile: gemini})
				f := refusesFirst(1<<30, err)
				llm := wrap(t, f, g)
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() {
						if got := call(t.Context(), llm, hello()); got == nil || errors.Is(got, ratelimited.ErrWait) {
							t.Errorf("got %v, want the error of the model", got)
						}
					})
				}
				wg.Wait()
				if n := f.count(); n <= 100 || n > 120 {
					t.Errorf("%d attempts of 100 calls, want some retries and at most 20", n)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// A provider that is overloaded gets fewer calls at a time, at an unchanged
// rate; successes give the slots back.
func TestOverloadCutsTheSlotsAndNotTheRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Profile: gemini, Retry: retry.Policy{MaxAttempts: 1}})
		f := refusesFirst(1, overloaded())
		llm := wrap(t, f, g)
		_ = call(t.Context(), llm, hello())
		if s := g.Stats(); s.Slots != 7 || s.SlotLimit != 10 || s.Dimensions[0].Share != 1 {
			t.Errorf("%d of %d slots and a share of %v in force, want 7 of 10 and 1", s.Slots, s.SlotLimit, s.Dimensions[0].Share)
		}
		for range 200 {
			time.Sleep(time.Millisecond)
			if err := call(t.Context(), llm, hello()); err != nil {
				t.Fatal(err)
			}
		}
		if s := g.Stats(); s.Slots != 10 {
			t.Errorf("after 200 successes %d slots in force, want 10", s.Slots)
		}
	})
}

// A call that never reached the provider takes nothing of its quota, in any of
// its attempts.
func TestCallThatWasNotSentTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: both})
		f := refusesFirst(2, notSent())
		l := &ledger{}
		if err := call(t.Context(), wrap(t, f, g, ratelimited.WithBudgets(l)), hello()); err != nil {
			t.Fatal(err)
		}
		if r, n := booked(t, g, "requests"), booked(t, g, "input_tokens"); f.count() != 3 || r != 1 || n != 10 {
			t.Errorf("%d attempts; the gate counts %d requests and %d tokens, want those of the third: 1 and 10", f.count(), r, n)
		}
		l.expect(t, 0, 15)
		mustBeIdle(t, g)
	})
}

// A refused attempt counts where the profile says that refused requests count,
// once for each attempt.
func TestRefusedAttemptsCountAsTheProfileSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: both})
		f := refusesFirst(2, throttled())
		if err := call(t.Context(), wrap(t, f, g), hello()); err != nil {
			t.Fatal(err)
		}
		if r, n := booked(t, g, "requests"), booked(t, g, "input_tokens"); r != 3 || n != 10 {
			t.Errorf("the gate counts %d requests and %d tokens, want 3 and those of the third attempt: 10", r, n)
		}
		mustBeIdle(t, g)
	})
}

// Errors of other SDKs are understood by a classifier of the caller's.
func TestCallersClassifierComesFirst(t *testing.T) {
	mine := errors.New("slow down, says another SDK")
	for class, want := range map[retry.Class]struct {
		attempts         int
		requests, tokens int64
		fails            bool
	}{
		retry.Throttled:      {attempts: 2, requests: 2, tokens: 10},
		retry.Overloaded:     {attempts: 2, requests: 2, tokens: 10},
		retry.QuotaExhausted: {attempts: 1, requests: 1, fails: true},
		retry.NotSent:        {attempts: 2, requests: 1, tokens: 10},
		retry.Denied:         {attempts: 1, fails: true},
		retry.NotRetryable:   {attempts: 1, requests: 1, tokens: 3, fails: true}, // perhaps executed: the input estimate
	} {
		bubbleRun(t, "class", class, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: both, Retry: retry.Policy{
				Classifiers: []retry.Classifier{func(err error) (retry.Verdict, bool) {
					return retry.Verdict{Class: class}, errors.Is(err, mine)
				}},
			}})
			f := refusesFirst(1, mine)
			llm, err := ratelimited.NewMetered(f, g, fixedMeter{3, 5})
			if err != nil {
				t.Fatal(err)
			}
			if err := call(t.Context(), llm, hello()); errors.Is(err, mine) != want.fails {
				t.Errorf("got %v, want the model's error: %v", err, want.fails)
			}
			if r, n := booked(t, g, "requests"), booked(t, g, "input_tokens"); f.count() != want.attempts || r != want.requests || n != want.tokens {
				t.Errorf("%d attempts, %d requests and %d tokens counted; want %d, %d and %d", f.count(), r, n, want.attempts, want.requests, want.tokens)
			}
			mustBeIdle(t, g)
		})
	}
}
