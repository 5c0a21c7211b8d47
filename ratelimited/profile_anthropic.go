package ratelimited

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// AnthropicQuota holds the published numbers of an Anthropic organization for
// one class of models. 0 means that this dimension is not limited.
type AnthropicQuota struct {
	// CachedInputCounts is true for the older models for which tokens that are
	// read from the cache count against InputTokensPerMinute (Anthropic docs, rate
	// limits page, marks them in its tables).
	CachedInputCounts bool
	// InputTokensPerMinute is the limit on uncached input tokens ("ITPM"): those
	// that are written to the cache count, those that are read from it do not.
	InputTokensPerMinute int64
	// OutputTokensPerMinute is the limit on generated tokens ("OTPM").
	OutputTokensPerMinute int64
	// RequestsPerMinute is the limit on requests ("RPM").
	RequestsPerMinute int64
	// Unpaced lets a burst of requests out at once, up to a minute's worth. By
	// default requests are spread over the minute, second by second, because a
	// limit of 60 a minute may be enforced as one a second (Anthropic docs, rate
	// limits page).
	Unpaced bool
}

// Anthropic is the profile of Anthropic's own API: limits on requests, input
// tokens and output tokens, which refill continuously up to a minute's worth
// (Anthropic docs, rate limits page). A negative number is reported by [NewGate].
//
// Anthropic counts output as it is produced, and max_tokens not at all: it admits
// a call whatever its answer will be, and refuses the following ones once the
// answers have exceeded the limit. The gate knows of an answer when it is there,
// so it takes the expected output when it admits a call and settles to the real
// one. An answer that is longer than expected is made good by waiting; so is one
// that is longer than a minute's worth. The models of package anthropicmodel
// estimate a typical answer, which is then corrected by what was learned.
//
// Nothing is known of the cache before a call, so it is admitted as if nothing
// were cached, and gets back what was read from the cache when its usage is
// reported. It is not documented whether refused requests count; here they do.
func Anthropic(q AnthropicQuota) Profile {
	p := Profile{Name: "anthropic"}
	requests := Dimension{
		Name: "requests", Limit: q.RequestsPerMinute, Resource: retry.Requests,
		Count: OneRequest, FailuresCount: true, Shape: Bucket,
	}
	if !q.Unpaced {
		requests.Burst = time.Second
	}
	input := UncachedInputTokens
	if q.CachedInputCounts {
		input = InputTokens
	}
	p.add(requests)
	p.add(Dimension{
		Name: "input_tokens", Limit: q.InputTokensPerMinute, Resource: retry.InputTokens, Count: input, Shape: Bucket,
	})
	p.add(Dimension{
		Name: "output_tokens", Limit: q.OutputTokensPerMinute, Resource: retry.OutputTokens, Count: OutputTokens, Shape: Bucket,
	})
	return p
}

// DefaultBurndown is how many tokens of its quota Bedrock takes for a generated
// one of Anthropic's models up to Claude 4.7 (Amazon Bedrock docs, token burndown
// page).
const DefaultBurndown = 5

// BedrockQuota holds the quotas of an AWS account for one model in one region.
// 0 means that this dimension is not limited.
type BedrockQuota struct {
	// Burndown is how many tokens of the quota a generated token costs: 5 for
	// Anthropic's models up to Claude 4.7, 10 or 15 for some newer ones, 1 for
	// those of most other makers (Amazon Bedrock docs, token burndown page).
	// Defaults to DefaultBurndown.
	Burndown int64
	// RequestsPerMinute is the limit on requests, which some models have.
	RequestsPerMinute int64
	// TokensPerDay is the limit on tokens per day, by default 1,440 times that per
	// minute. It is mirrored as any 24 hours.
	TokensPerDay int64
	// TokensPerMinute is the limit on tokens ("TPM").
	TokensPerMinute int64
}

// Bedrock is the profile of a model at Amazon Bedrock's runtime. A negative
// number is reported by [NewGate].
//
// When Bedrock admits a call it sets aside all of its input, cached or not, and
// max_tokens. In the end it takes the input without what was read from the
// cache, and the output times Burndown, and gives the rest back (Amazon Bedrock
// docs, token burndown page). So must the gate, whose estimate of the output has
// to be max_tokens then: make the model with
// anthropicmodel.WithMaxTokensReserved. With an estimate of a typical answer the
// gate would send calls that Bedrock refuses. A small max_tokens lets more calls
// through at a time; a call whose input and max_tokens exceed a limit never fits.
//
// The shape of Bedrock's windows is not documented; they are mirrored as sliding
// ones, which is safe for any.
func Bedrock(q BedrockQuota) Profile {
	burndown := q.Burndown
	if burndown == 0 {
		burndown = DefaultBurndown
	}
	settle := func(u usage.Usage) int64 {
		return sum(UncachedInputTokens(u), times(OutputTokens(u), burndown))
	}
	p := Profile{Name: "bedrock"}
	if burndown < 0 { // NewGate reports it by this name
		p.add(Dimension{Name: "burndown", Limit: burndown, Count: OneRequest})
	}
	p.add(Dimension{
		Name: "requests", Limit: q.RequestsPerMinute, Resource: retry.Requests, Count: OneRequest, FailuresCount: true,
	})
	tokens := Dimension{
		Name: "tokens", Limit: q.TokensPerMinute, Resource: retry.TotalTokens, Count: TotalTokens, Settle: settle,
	}
	p.add(tokens)
	tokens.Limit, tokens.Window = q.TokensPerDay, day
	p.add(tokens)
	return p
}

// UncachedInputTokens counts the prompt tokens that were not read from the
// provider's cache; it is a value for Dimension.Count.
func UncachedInputTokens(u usage.Usage) int64 { return max(u.Input-max(u.CachedInput, 0), 0) }

// sum is a + b for numbers that are not negative, at most math.MaxInt64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// times is a × b for numbers that are not negative, at most math.MaxInt64.
func times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
