package burst

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/genai"
)

// The retries of the SDK google.golang.org/genai v1.77 where HTTPRetryOptions
// are set and have no fields (its package documentation, HTTPRetryOptions): five
// attempts; a second, doubled each time, up to a minute; up to a second more by
// chance. Delays that the provider advises are ignored.
const (
	sdkAttempts = 5
	sdkDelay    = time.Second
	sdkCap      = time.Minute
	sdkJitter   = time.Second
)

var sdkCodes = []int{408, 429, 500, 502, 503, 504}

// temporary reports whether the SDK retries after an error.
func temporary(err error) bool {
	var e genai.APIError
	return errors.As(err, &e) && slices.Contains(sdkCodes, e.Code)
}

// withRetries sends a call as the SDK does that retries.
func withRetries(ctx context.Context, send sender) error {
	delay := sdkDelay
	for attempt := 1; ; attempt++ {
		err := send.whole(ctx)
		if err == nil || attempt == sdkAttempts || !temporary(err) {
			return err
		}
		if err := sleep(ctx, delay+rand.N(sdkJitter)); err != nil {
			return err
		}
		delay = min(2*delay, sdkCap)
	}
}

// admit is an admission without an end.
type admit func(ctx context.Context, c *call, send sender) error

func (f admit) serve(ctx context.Context, c *call, send sender) error { return f(ctx, c, send) }
func (admit) close() error                                            { return nil }

func none() Policy {
	return Policy{
		Name: "none", Title: "No limit",
		Settings:  "Every call is sent at once, and once: the SDK's default.",
		unbounded: true,
		make: func(setting) (admission, error) {
			return admit(func(ctx context.Context, _ *call, send sender) error { return send.whole(ctx) }), nil
		},
	}
}

func sdkRetries() Policy {
	return Policy{
		Name: "sdk-retries", Title: "The SDK's retries",
		Settings: "Every call is sent at once, and up to 5 times: exponential backoff of 1, 2, 4, 8 s and up to a second more, " +
			"as HTTPRetryOptions of google.golang.org/genai say when they are set and empty.",
		unbounded: true,
		make: func(setting) (admission, error) {
			return admit(func(ctx context.Context, _ *call, send sender) error { return withRetries(ctx, send) }), nil
		},
	}
}

func semaphoreOnly() Policy {
	return Policy{
		Name: "semaphore", Title: "x/sync semaphore",
		Settings: "golang.org/x/sync/semaphore with the shape's slots around calls with the SDK's retries; " +
			"Acquire gives up after the shape's MaxWait.",
		make: func(s setting) (admission, error) {
			slots := semaphore.NewWeighted(int64(s.shape.Slots))
			return admit(func(ctx context.Context, _ *call, send sender) error {
				if err := within(ctx, s.shape, func(ctx context.Context) error { return slots.Acquire(ctx, 1) }); err != nil {
					return err
				}
				defer slots.Release(1)
				return withRetries(ctx, send)
			}), nil
		},
	}
}

func semaphoreRate() Policy {
	return Policy{
		Name: "semaphore-rate", Title: "x/sync semaphore and x/time/rate",
		Settings: "A semaphore as above, and two limiters of golang.org/x/time/rate at the published tokens and requests a minute, " +
			"which take the estimate before the slot. Burst: a minute's worth where the quota is a bucket, as that is what it is; " +
			"else the largest call, because more would be refused at the quota's edge.",
		make: func(s setting) (admission, error) {
			slots := semaphore.NewWeighted(int64(s.shape.Slots))
			largest, _ := s.estimates()
			tokens, requests := smooth(s, s.shape.TokensPerMinute, largest), smooth(s, s.shape.RequestsPerMinute, 1)
			return admit(func(ctx context.Context, c *call, send sender) error {
				err := within(ctx, s.shape, func(ctx context.Context) error {
					if err := requests.Wait(ctx); err != nil {
						return err
					}
					if err := tokens.WaitN(ctx, int(c.estimate)); err != nil {
						return err
					}
					return slots.Acquire(ctx, 1)
				})
				if err != nil {
					return err
				}
				defer slots.Release(1)
				return withRetries(ctx, send)
			}), nil
		},
	}
}

// smooth is a limiter for so much a minute.
func smooth(s setting, perMinute, largest int64) *rate.Limiter {
	burst := largest
	if s.window == bucketWindow {
		burst = max(perMinute, largest)
	}
	return rate.NewLimiter(rate.Limit(float64(perMinute)/minute.Seconds()), int(burst))
}

// within waits for something, at most as long as a call of the shape may wait.
func within(ctx context.Context, s *Shape, wait func(context.Context) error) error {
	if s.MaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.MaxWait)
		defer cancel()
	}
	return wait(ctx)
}
