package ratelimited

import (
	"time"

	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// OpenAIQuota holds the published numbers of an OpenAI project for one model, or
// for the models that share a limit. 0 means that this dimension is not limited.
type OpenAIQuota struct {
	// RequestsPerDay is the limit on requests per day ("RPD"). It is mirrored as
	// any 24 hours.
	RequestsPerDay int64
	// RequestsPerMinute is the limit on requests ("RPM"). Requests that fail
	// count (OpenAI docs, rate limits guide).
	RequestsPerMinute int64
	// TokensPerDay is the limit on tokens per day ("TPD"), counted as those per
	// minute. It is mirrored as any 24 hours.
	TokensPerDay int64
	// TokensPerMinute is the limit on tokens ("TPM"). A request takes the larger
	// of its max_tokens and its prompt as OpenAI estimates it (OpenAI docs, rate
	// limits guide); cached tokens count.
	TokensPerMinute int64
}

// OpenAI is the profile of OpenAI's API: limits per project and model on
// requests and tokens. A negative number is reported by [NewGate].
//
// Limits per minute refill continuously, up to a minute's worth, and those per
// day are mirrored as any 24 hours. OpenAI does not document the shape; its
// headers do: of a limit of 60 requests a minute, one request is there again
// after a second (OpenAI docs, rate limits guide).
//
// Of the tokens a call takes what OpenAI counts when it admits it: the larger of
// the limit that the request sets on its output and the prompt. A shorter answer
// gives nothing back (Dimension.KeepsLimit). A call larger than a whole limit per
// minute waits until the limit is whole, and is then refused by OpenAI.
func OpenAI(q OpenAIQuota) Profile {
	p := Profile{Name: "openai"}
	p.add(requestLimit(q.RequestsPerMinute, Bucket))
	p.add(tokenLimit(q.TokensPerMinute, Bucket, LargerTokens))
	p.add(requestLimit(q.RequestsPerDay, Sliding).perDay())
	p.add(tokenLimit(q.TokensPerDay, Sliding, LargerTokens).perDay())
	return p
}

// DefaultAzureBurst is the time over which Azure OpenAI checks the limit on
// requests, the shorter of the two that it names.
const DefaultAzureBurst = time.Second

// AzureQuota holds the numbers of one deployment at Azure OpenAI. 0 means that
// this dimension is not limited.
type AzureQuota struct {
	// Burst is the time over which the limit on requests is checked besides its
	// minute: 1 or 10 seconds (Azure docs, manage Azure OpenAI quota). Defaults to
	// DefaultAzureBurst.
	Burst time.Duration
	// RequestsPerMinute is the limit on requests ("RPM"). Azure derives it from
	// the tokens per minute.
	RequestsPerMinute int64
	// TokensPerMinute is the limit on tokens ("TPM"). A request takes its prompt,
	// as Azure estimates it, and its max_tokens together when it is admitted;
	// that is no count for billing (Azure docs, manage Azure OpenAI quota).
	TokensPerMinute int64
}

// Azure is the profile of a deployment at Azure OpenAI: limits on requests,
// which are paced over Burst, and on tokens. Azure's counters start anew every
// minute, of whatever phase; they are mirrored as sliding windows. A negative
// number is reported by [NewGate].
func Azure(q AzureQuota) Profile {
	if q.Burst == 0 {
		q.Burst = DefaultAzureBurst
	}
	p := Profile{Name: "azure"}
	requests := requestLimit(q.RequestsPerMinute, Sliding)
	requests.Burst = q.Burst
	p.add(requests)
	p.add(tokenLimit(q.TokensPerMinute, Sliding, TotalTokens))
	return p
}

// LargerTokens counts the larger of a call's prompt tokens and generated tokens;
// it is a value for Dimension.Count.
func LargerTokens(u usage.Usage) int64 { return max(u.Input, u.Output, 0) }

const day = 24 * time.Hour

// requestLimit is a limit on requests a minute, failed ones inside.
func requestLimit(limit int64, shape Window) Dimension {
	return Dimension{
		Name: "requests", Limit: limit, Shape: shape, Resource: retry.Requests, Count: OneRequest, FailuresCount: true,
	}
}

// tokenLimit is a limit on tokens a minute. A call takes count of its estimate,
// and in the end all tokens that it used.
func tokenLimit(limit int64, shape Window, count func(usage.Usage) int64) Dimension {
	return Dimension{
		Name: "tokens", Limit: limit, Shape: shape, Resource: retry.TotalTokens, Count: count, Settle: TotalTokens, KeepsLimit: true,
	}
}

// perDay is the same limit over a day.
func (d Dimension) perDay() Dimension {
	d.Window = day
	return d
}

// add adds a dimension, unless its limit is 0. One whose window is a day is named
// so, and mirrored in quarters of an hour.
func (p *Profile) add(d Dimension) {
	if d.Limit == 0 {
		return
	}
	if d.Window == day {
		d.Name += "_per_day"
		d.Cell = 15 * time.Minute
	}
	p.Dimensions = append(p.Dimensions, d)
}
