package ratelimited_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

func TestProfilesOfOpenAIAndAzureCountAsTheirProvidersDo(t *testing.T) {
	t.Parallel()
	type dimension struct {
		name            string
		limit           int64
		window, burst   time.Duration
		shape           ratelimited.Window
		resource        retry.Resource
		count, settled  int64 // of the call below
		failuresCounted bool
	}
	// A prompt of 3,000 tokens with max_tokens of 1,000; of the answer 200 came.
	estimate := usage.Usage{Input: 3000, Output: 1000, Flags: usage.Estimated}
	actual := usage.Usage{Input: 3100, CachedInput: 2048, Output: 200}
	const minute, day = time.Duration(0), 24 * time.Hour
	for name, c := range map[string]struct {
		profile ratelimited.Profile
		want    []dimension
	}{
		"OpenAI": {
			ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 500, TokensPerMinute: 200_000, RequestsPerDay: 10_000, TokensPerDay: 2_000_000}),
			[]dimension{
				{"requests", 500, minute, 0, ratelimited.Bucket, retry.Requests, 1, 1, true},
				{"tokens", 200_000, minute, 0, ratelimited.Bucket, retry.TotalTokens, 3000, 3300, false},
				{"requests_per_day", 10_000, day, 0, ratelimited.Sliding, retry.Requests, 1, 1, true},
				{"tokens_per_day", 2_000_000, day, 0, ratelimited.Sliding, retry.TotalTokens, 3000, 3300, false},
			},
		},
		"OpenAI, one limit": {
			ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: 1000}),
			[]dimension{{"tokens", 1000, minute, 0, ratelimited.Bucket, retry.TotalTokens, 3000, 3300, false}},
		},
		"Azure": {
			ratelimited.Azure(ratelimited.AzureQuota{RequestsPerMinute: 600, TokensPerMinute: 100_000}),
			[]dimension{
				{"requests", 600, minute, time.Second, ratelimited.Sliding, retry.Requests, 1, 1, true},
				{"tokens", 100_000, minute, 0, ratelimited.Sliding, retry.TotalTokens, 4000, 3300, false},
			},
		},
		"Azure, checked every ten seconds": {
			ratelimited.Azure(ratelimited.AzureQuota{RequestsPerMinute: 600, Burst: 10 * time.Second}),
			[]dimension{{"requests", 600, minute, 10 * time.Second, ratelimited.Sliding, retry.Requests, 1, 1, true}},
		},
		"no limits": {ratelimited.OpenAI(ratelimited.OpenAIQuota{}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []dimension
			for _, d := range c.profile.Dimensions {
				settle := d.Settle
				if settle == nil {
					settle = d.Count
				}
				got = append(got, dimension{
					d.Name, d.Limit, d.Window, d.Burst, d.Shape, d.Resource, d.Count(estimate), settle(actual), d.FailuresCount,
				})
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d dimensions, want %d", len(got), len(c.want))
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("got  %+v\nwant %+v", got[i], c.want[i])
				}
			}
			if _, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Profile: c.profile}); err != nil {
				t.Errorf("NewGate: %v", err)
			}
		})
	}
}

func TestNegativeQuotasOfOpenAIAndAzureAreNamed(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]ratelimited.Profile{
		`Limit is -1 (dimension "requests")`:         ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: -1}),
		`Limit is -2 (dimension "tokens")`:           ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: -2}),
		`Limit is -3 (dimension "requests_per_day")`: ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerDay: -3}),
		`Limit is -4 (dimension "tokens_per_day")`:   ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerDay: -4}),
		`Limit is -5 (dimension "tokens")`:           ratelimited.Azure(ratelimited.AzureQuota{TokensPerMinute: -5}),
		`Burst is -1s (dimension "requests")`:        ratelimited.Azure(ratelimited.AzureQuota{RequestsPerMinute: 6, Burst: -time.Second}),
	} {
		if _, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Profile: p}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewGate: %v, want an error with %q", err, want)
		}
	}
}

func TestLargerTokensCountsTheLargerSide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ input, output, want int64 }{{10, 20, 20}, {20, 10, 20}, {0, 0, 0}, {-5, -3, 0}} {
		if got := ratelimited.LargerTokens(usage.Usage{Input: c.input, Output: c.output}); got != c.want {
			t.Errorf("%d and %d: %d, want %d", c.input, c.output, got, c.want)
		}
	}
}
