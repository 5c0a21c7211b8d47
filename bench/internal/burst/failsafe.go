package burst

import (
	"context"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

// failsafeRetry retries what the SDK's retries do, as often and as late.
func failsafeRetry() retrypolicy.RetryPolicy[any] {
	return retrypolicy.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool { return temporary(err) }).
		WithMaxAttempts(sdkAttempts).
		WithBackoff(sdkDelay, sdkCap).
		WithJitterFactor(0.25).
		ReturnLastFailure().
		Build()
}

// guarded sends calls through an executor.
func guarded(policies ...failsafe.Policy[any]) admission {
	executor := failsafe.With(policies...)
	return admit(func(ctx context.Context, _ *call, send sender) error {
		return executor.WithContext(ctx).Run(func() error { return send.whole(ctx) })
	})
}

func failsafeLimits() Policy {
	return Policy{
		Name: "failsafe-limits", Title: "failsafe-go bulkhead, rate limiter and retry",
		Settings: "Retry policy outside, as in the composition that the documentation of failsafe.With shows, then rate limiter, then bulkhead. " +
			"Bulkhead: the shape's slots. Rate limiter: at the published quota in calls of the mean estimated size, because an " +
			"execution takes one permit; bursty, a period a minute, where the quota is a fixed minute, else smooth: of the two " +
			"that there are, the one that does better before each quota. Both wait for MaxWait, or as long as it takes. Retry: 5 attempts, backoff from 1 s to " +
			"1 min as its documentation shows, jitter factor 0.25.",
		make: func(s setting) (admission, error) {
			_, mean := s.estimates()
			calls := min(float64(s.shape.RequestsPerMinute), float64(s.shape.TokensPerMinute)/float64(max(mean, 1)))
			build := ratelimiter.NewSmoothBuilder[any]
			if s.window == fixedWindow && s.shape.Quantum == 0 {
				build = ratelimiter.NewBurstyBuilder[any]
			}
			limiter := build(uint(max(calls, 1)), minute).WithMaxWaitTime(s.shape.patience()).Build()
			slots := bulkhead.NewBuilder[any](uint(s.shape.Slots)).WithMaxWaitTime(s.shape.patience()).Build()
			return guarded(failsafeRetry(), limiter, slots), nil
		},
	}
}

func failsafeAdaptive() Policy {
	return Policy{
		Name: "failsafe-adaptive", Title: "failsafe-go adaptive limiter and retry",
		Settings: "Retry policy as above around an adaptive limiter at its documented defaults (limits 1, 200, 20; p90 of windows of 1 to " +
			"30 s with 50 samples), which waits for MaxWait, or as long as it takes, instead of rejecting.",
		make: func(s setting) (admission, error) {
			limiter := adaptivelimiter.NewBuilder[any]().WithMaxWaitTime(s.shape.patience()).Build()
			return guarded(failsafeRetry(), limiter), nil
		},
	}
}
