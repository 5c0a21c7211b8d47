package ratelimited_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// units are what a call counts in a dimension when it is admitted by its
// estimate, and what it has counted in the end if that was its usage.
type units struct{ admitted, settled int64 }

func unitsOf(p ratelimited.Profile, u usage.Usage) map[string]units {
	counted := map[string]units{}
	for _, d := range p.Dimensions {
		settle := d.Settle
		if settle == nil {
			settle = d.Count
		}
		counted[d.Name] = units{d.Count(u), settle(u)}
	}
	return counted
}

func TestAnthropicAndBedrockCountAsTheirDocsSay(t *testing.T) {
	t.Parallel()
	cached := usage.Usage{Input: 10_000, CachedInput: 8000, CacheWrite: 1500, Output: 300, Thoughts: 200}
	anthropic := ratelimited.AnthropicQuota{RequestsPerMinute: 50, InputTokensPerMinute: 30_000, OutputTokensPerMinute: 8000}
	old := anthropic
	old.CachedInputCounts = true
	bedrock := ratelimited.BedrockQuota{RequestsPerMinute: 50, TokensPerMinute: 100_000, TokensPerDay: 144_000_000}
	steep := ratelimited.BedrockQuota{TokensPerMinute: 100_000, Burndown: 15}
	for _, c := range []struct {
		name    string
		profile ratelimited.Profile
		u       usage.Usage
		want    map[string]units
	}{
		{
			"what is read from the cache is free, what is written to it is not", ratelimited.Anthropic(anthropic), cached,
			map[string]units{"requests": {1, 1}, "input_tokens": {2000, 2000}, "output_tokens": {300, 300}},
		},
		{
			"unless the model is an older one", ratelimited.Anthropic(old), cached,
			map[string]units{"requests": {1, 1}, "input_tokens": {10_000, 10_000}, "output_tokens": {300, 300}},
		},
		{
			"Bedrock sets all input and max_tokens aside, and takes the output five times", ratelimited.Bedrock(bedrock), cached,
			map[string]units{
				"requests": {1, 1}, "tokens": {10_300, 2000 + 5*300}, "tokens_per_day": {10_300, 2000 + 5*300},
			},
		},
		{
			"or as often as it says", ratelimited.Bedrock(steep), cached,
			map[string]units{"tokens": {10_300, 2000 + 15*300}},
		},
		{
			"more cached than prompt is none", ratelimited.Anthropic(anthropic), usage.Usage{Input: 5, CachedInput: 8},
			map[string]units{"requests": {1, 1}, "input_tokens": {0, 0}, "output_tokens": {0, 0}},
		},
		{
			"counts do not overflow", ratelimited.Bedrock(steep), usage.Usage{Input: math.MaxInt64, Output: math.MaxInt64},
			map[string]units{"tokens": {math.MaxInt64, math.MaxInt64}},
		},
	} {
		got := unitsOf(c.profile, c.u)
		if len(got) != len(c.want) {
			t.Errorf("%s: dimensions %v, want %v", c.name, got, c.want)
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%s: %s counts %+v, want %+v", c.name, name, got[name], want)
			}
		}
	}
}

// A refusal's resources must find the dimension that they mean.
func TestEveryDimensionOfAnthropicAndBedrockHasItsResource(t *testing.T) {
	t.Parallel()
	want := map[string]retry.Resource{
		"requests": retry.Requests, "input_tokens": retry.InputTokens, "output_tokens": retry.OutputTokens,
		"tokens": retry.TotalTokens, "tokens_per_day": retry.TotalTokens,
	}
	for _, p := range []ratelimited.Profile{
		ratelimited.Anthropic(ratelimited.AnthropicQuota{RequestsPerMinute: 1, InputTokensPerMinute: 1, OutputTokensPerMinute: 1}),
		ratelimited.Bedrock(ratelimited.BedrockQuota{RequestsPerMinute: 1, TokensPerMinute: 1, TokensPerDay: 1}),
	} {
		for _, d := range p.Dimensions {
			if d.Resource != want[d.Name] {
				t.Errorf("%s: %s stands for %v, want %v", p.Name, d.Name, d.Resource, want[d.Name])
			}
		}
	}
}

func TestANegativeQuotaOfAnthropicOrBedrockIsReportedByNameAndValue(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]ratelimited.Profile{
		`-1 (dimension "requests")`:       ratelimited.Anthropic(ratelimited.AnthropicQuota{RequestsPerMinute: -1}),
		`-2 (dimension "input_tokens")`:   ratelimited.Anthropic(ratelimited.AnthropicQuota{InputTokensPerMinute: -2}),
		`-3 (dimension "output_tokens")`:  ratelimited.Anthropic(ratelimited.AnthropicQuota{OutputTokensPerMinute: -3}),
		`-4 (dimension "tokens")`:         ratelimited.Bedrock(ratelimited.BedrockQuota{TokensPerMinute: -4}),
		`-5 (dimension "tokens_per_day")`: ratelimited.Bedrock(ratelimited.BedrockQuota{TokensPerDay: -5}),
		`-6 (dimension "burndown")`:       ratelimited.Bedrock(ratelimited.BedrockQuota{TokensPerMinute: 1, Burndown: -6}),
	} {
		if _, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Profile: p}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %s", err, want)
		}
	}
	for _, p := range []ratelimited.Profile{
		ratelimited.Anthropic(ratelimited.AnthropicQuota{}), ratelimited.Bedrock(ratelimited.BedrockQuota{}),
	} {
		if len(p.Dimensions) != 0 {
			t.Errorf("%s without quotas limits %+v", p.Name, p.Dimensions)
		}
	}
}

// starts tells when each of n calls that come together is admitted.
func starts(t *testing.T, p ratelimited.Profile, n int, u usage.Usage) (at []time.Duration) {
	t.Helper()
	g := newGate(t, ratelimited.Config{Slots: 100, Headroom: 1, Profile: p})
	start := time.Now()
	for range n {
		permit, err := g.Acquire(t.Context(), ratelimited.Call{Usage: u})
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, time.Since(start))
		permit.End(u)
	}
	return at
}

func TestRequestsAreSpreadOverTheMinuteUnlessToldOtherwise(t *testing.T) {
	quota := ratelimited.AnthropicQuota{RequestsPerMinute: 60}
	t.Run("by default", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			at := starts(t, ratelimited.Anthropic(quota), 10, usage.Usage{Input: 1})
			for i := 1; i < len(at); i++ {
				if gap := at[i] - at[i-1]; gap < time.Second || gap > 1100*time.Millisecond {
					t.Errorf("call %d came %v after the one before, want a second and a little", i, gap)
				}
			}
		})
	})
	t.Run("unpaced", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			quota := quota
			quota.Unpaced = true
			at := starts(t, ratelimited.Anthropic(quota), 61, usage.Usage{Input: 1})
			if at[59] != 0 || at[60] != time.Second {
				t.Errorf("the 60th call came after %v, the 61st after %v; want none and 1s", at[59], at[60])
			}
		})
	})
}

// Anthropic admits an answer of any length, and makes the next ones wait.
func TestAnAnswerLongerThanAMinutesOutputRunsAndIsMadeGoodByWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := ratelimited.Anthropic(ratelimited.AnthropicQuota{OutputTokensPerMinute: 1000})
		at := starts(t, p, 2, usage.Usage{Input: 1, Output: 2000})
		if at[0] != 0 || at[1] != 2*time.Minute {
			t.Errorf("calls of two minutes' output came after %v, want none and 2m", at)
		}
	})
}
