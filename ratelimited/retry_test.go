package ratelimited_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"google.golang.org/genai"
)

// refusesFirst refuses the first n calls, and serves the others.
func refusesFirst(n int, err error) *fakeLLM {
	return &fakeLLM{play: func(_ context.Context, call int, yield yields) {
		if call <= n {
			yield(nil, err)
			return
		}
		yield(final(10, 5), nil)
	}}
}

var gemini = ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1_000_000})

// While a throttled call backs off, it holds no slot. Without a hint another
// caller goes out meanwhile; with one nobody does on that budget until the hint
// lapses, because the provider has said so.
func TestBackoffHoldsNoSlot(t *testing.T) {
	t.Run("without a hint another call goes out", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini, Retry: retry.Policy{Base: 1000 * time.Hour, Cap: 1000 * time.Hour}})
			start := time.Now()
			f := refusesFirst(1, throttled())
			llm := wrap(t, f, g)
			errs := make(chan error, 1)
			go func() { errs <- call(t.Context(), llm, hello()) }()
			synctest.Wait()
			if s := g.Stats(); s.SlotsInUse != 0 || s.Waiting != 1 {
				t.Fatalf("during backoff: %d slots in use, %d waiting; want 0 and 1", s.SlotsInUse, s.Waiting)
			}
			time.Sleep(100 * time.Millisecond)
			if err := call(t.Context(), llm, hello()); err != nil {
				t.Fatal(err)
			}
			if d := f.startedAfter(start, 2); d != 100*time.Millisecond {
				t.Errorf("the other call went out after %v, want 100ms", d)
			}
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
			if f.count() != 3 {
				t.Errorf("%d attempts in all, want 3: two and one", f.count())
			}
			mustBeIdle(t, g)
		})
	})
	t.Run("with a hint nobody goes out until it lapses", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
			start := time.Now()
			f := refusesFirst(1, throttled(retryInfo("2s"), quotaFailure(requestsPerMinute)))
			llm := wrap(t, f, g)
			errs := make(chan error, 2)
			go func() { errs <- call(t.Context(), llm, hello()) }()
			time.Sleep(100 * time.Millisecond)
			go func() { errs <- call(t.Context(), llm, hello()) }()
			synctest.Wait()
			if s := g.Stats(); s.SlotsInUse != 0 || s.Waiting != 2 {
				t.Fatalf("during backoff: %d slots in use, %d waiting; want 0 and 2", s.SlotsInUse, s.Waiting)
			}
			for range 2 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			if f.count() != 3 {
				t.Errorf("%d attempts in all, want 3: two and one", f.count())
			}
			for n := 2; n <= 3; n++ {
				if d := f.startedAfter(start, n); d < 2*time.Second || d > 2400*time.Millisecond {
					t.Errorf("attempt %d went out after %v, want the hint of 2s and at most a fifth more", n, d)
				}
			}
			mustBeIdle(t, g)
		})
	})
	t.Run("cancelled in the middle of it", func(t *testing.T) {
		for _, details := range [][]detail{nil, {retryInfo("2s")}} {
			bubbleRun(t, "details", details, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini, Retry: retry.Policy{Base: 1000 * time.Hour, Cap: 1000 * time.Hour}})
				f := refusesFirst(9, throttled(details...))
				l := &ledger{}
				llm := wrap(t, f, g, ratelimited.WithBudgets(l))
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				time.AfterFunc(time.Second, cancel)
				err := call(ctx, llm, hello())
				if !errors.Is(err, context.Canceled) || !errors.As(err, new(genai.APIError)) {
					t.Errorf("got %v, want the cancellation and the refusal before it", err)
				}
				if d := time.Since(start); d != time.Second {
					t.Errorf("returned after %v, want 1s", d)
				}
				l.expect(t, 0, 0)
				mustBeIdle(t, g)
				time.Sleep(2 * time.Hour)
				if f.count() != 1 {
					t.Errorf("%d attempts, want 1: none after the cancellation", f.count())
				}
			})
		}
	})
}

// A hint is believed within the cap and the caller's deadline, and never sleeps
// beyond them: the refusal comes back at once, with the hint readable.
func TestHintIsBoundedByCapAndDeadline(t *testing.T) {
	const attempts = 2
	for name, test := range map[string]struct {
		details  []detail
		deadline time.Duration
		maxWait  time.Duration
		least    time.Duration // of the second attempt
		most     time.Duration // 0 if there must be none
		hint     time.Duration // that the error carries, if there is none
	}{
		"a fraction of a second is kept": {details: []detail{retryInfo("45.837906927s")}, least: 45837906927, most: 56 * time.Second},
		"above the cap":                  {details: []detail{retryInfo("1800s")}, hint: 1800 * time.Second},
		"absurd":                         {details: []detail{retryInfo("9999999999s")}, hint: 1<<63 - 1},
		"not finite":                     {details: []detail{retryInfo("infs")}, most: 500 * time.Millisecond},
		"exponent":                       {details: []detail{retryInfo("1e400s")}, most: 500 * time.Millisecond},
		"not a number":                   {details: []detail{retryInfo("nans")}, most: 500 * time.Millisecond},
		"negative":                       {details: []detail{retryInfo("-5s")}, most: 500 * time.Millisecond},
		"garbage":                        {details: []detail{retryInfo("garbage")}, most: 500 * time.Millisecond},
		"empty":                          {details: []detail{retryInfo("")}, most: 500 * time.Millisecond},
		"none":                           {most: 500 * time.Millisecond},
		"zero is short and not hot":      {details: []detail{retryInfo("0s")}, least: 100 * time.Millisecond, most: 500 * time.Millisecond},
		"a second and a half":            {details: []detail{retryInfo("1.5s")}, least: 1500 * time.Millisecond, most: 1900 * time.Millisecond},
		"beyond the deadline":            {details: []detail{retryInfo("20s")}, deadline: 3 * time.Second, hint: 20 * time.Second},
		"beyond MaxWait":                 {details: []detail{retryInfo("20s")}, maxWait: 3 * time.Second, hint: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
				f := refusesFirst(1, throttled(test.details...))
				llm := wrap(t, f, g)
				deadline := 5 * time.Minute
				if test.deadline > 0 {
					deadline = test.deadline
				}
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				if test.maxWait > 0 {
					ctx = ratelimited.WithMaxWait(ctx, test.maxWait)
				}
				start := time.Now()
				err := call(ctx, llm, hello())
				if test.most == 0 {
					var api genai.APIError
					if !errors.As(err, &api) || errors.Is(err, ratelimited.ErrWait) {
						t.Fatalf("got %v, want the provider's own error", err)
					}
					if v := retry.Classify(err); !v.HasHint || v.Hint != test.hint {
						t.Errorf("the error carries the hint %v (%v), want %v", v.Hint, v.HasHint, test.hint)
					}
					if d := time.Since(start); d != 0 || f.count() != 1 {
						t.Errorf("%d attempts in %v, want 1 at once", f.count(), d)
					}
					mustBeIdle(t, g)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if d := f.startedAfter(start, attempts); d < test.least || d > test.most {
					t.Errorf("the second attempt came after %v, want between %v and %v", d, test.least, test.most)
				}
				if f.count() != attempts {
					t.Errorf("%d attempts, want %d", f.count(), attempts)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// A quota per day is not retried, whatever else the refusal names, and says what
// it is.
func TestQuotaPerDayIsNotRetried(t *testing.T) {
	for name, details := range map[string][]detail{
		"per day":                        {quotaFailure(requestsPerDay)},
		"per day and per minute, hinted": {quotaFailure(requestsPerDay, requestsPerMinute), retryInfo("47s")},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
				f := refusesFirst(9, throttled(details...))
				start := time.Now()
				err := call(t.Context(), wrap(t, f, g), hello())
				if v := retry.Classify(err); v.Class != retry.QuotaExhausted || !v.PerDay {
					t.Errorf("the error means %v (per day: %v), want an exhausted quota per day", v.Class, v.PerDay)
				}
				if f.count() != 1 || time.Since(start) != 0 {
					t.Errorf("%d attempts in %v, want 1 at once", f.count(), time.Since(start))
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// Layers do not multiply: with one wrapper around another, each with its own
// gate, the one next to the provider owns the retries.
func TestWrapperOfAWrapperDoesNotMultiplyAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
		outer := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
		f := refusesFirst(99, throttled())
		llm := wrap(t, wrap(t, f, inner), outer)
		if err := call(t.Context(), llm, hello()); !errors.As(err, new(genai.APIError)) {
			t.Errorf("got %v, want the provider's error", err)
		}
		if f.count() != retry.DefaultMaxAttempts {
			t.Errorf("%d calls reached the provider, want %d", f.count(), retry.DefaultMaxAttempts)
		}
		mustBeIdle(t, inner)
		mustBeIdle(t, outer)
	})
}

// A denial of our own is no refusal of the provider: nobody takes it for a 429,
// it is not repeated, and nothing is sent.
func TestOwnDenialIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
		f := answers(0, final(1, 1))
		l := &ledger{name: "user", limit: 5, hold: 10}
		llm := wrap(t, wrap(t, f, g, ratelimited.WithBudgets(l)), newGate(t, ratelimited.Config{Slots: 1}))
		// An outer layer that repeats whatever looks like a 429.
		var err error
		for attempt := 1; ; attempt++ {
			err = call(t.Context(), llm, hello())
			if !retry.Classify(err).Class.Retryable() || attempt == 9 {
				break
			}
		}
		if retry.Classify(err).Class != retry.Denied {
			t.Errorf("got %v, want a denial", err)
		}
		if l.denials != 1 || f.count() != 0 {
			t.Errorf("%d denials and %d calls, want 1 and 0", l.denials, f.count())
		}
		mustBeIdle(t, g)
	})
}

// The bound on waiting holds for all attempts together: a call that was admitted
// at once, was refused and came back into the line fails when its time is over,
// though another caller's hint keeps the limit closed for longer.
func TestRetryWaitsWithinMaxWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 2, Profile: gemini, MaxWait: ptr(5 * time.Second)})
		f := refusesFirst(9, throttled(retryInfo("2s"), quotaFailure(requestsPerMinute)))
		l := &ledger{}
		llm := wrap(t, f, g, ratelimited.WithBudgets(l))
		other := wrap(t, &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
			_ = wait(ctx, time.Second)
			yield(nil, throttled(retryInfo("50s"), quotaFailure(requestsPerMinute)))
		}}, g)
		go call(t.Context(), other, hello())
		synctest.Wait()
		start := time.Now()
		err := call(t.Context(), llm, hello())
		e := mustNotWait(t, err)
		if d := time.Since(start); d != 5*time.Second || e.Waited != d || e.Limit != "requests" || e.Expected < 45*time.Second {
			t.Errorf("failed after %v (told %v) for %q, expected wait %v; want 5s for requests, and the rest of 50s", d, e.Waited, e.Limit, e.Expected)
		}
		if v, ok := errors.AsType[genai.APIError](err); !ok || v.Code != 429 || f.count() != 1 {
			t.Errorf("%d attempts, and the refusal is %v; want 1 and a 429", f.count(), v)
		}
		l.expect(t, 0, 0)
		mustBeIdle(t, g)
	})
}
