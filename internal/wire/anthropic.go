package wire

import (
	"strings"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// Anthropic is what an error of Anthropic's API means: by its type and the error
// code in its details, because an error within a stream has no status; by its
// status where they do not tell (Anthropic docs, errors page); and by
// x-should-retry (see [Advised]). The documentation of anthropicmodel.Classify has
// the table. now is the time that a date is compared with.
func (f Fault) Anthropic(now time.Time) retry.Verdict {
	return f.verdict(f.anthropicClass(), f.anthropicLimits, now)
}

func (f Fault) anthropicClass() retry.Class {
	if anthropicSpent(f.Code) {
		return retry.QuotaExhausted
	}
	switch f.Type {
	case "billing_error":
		return retry.QuotaExhausted
	case "rate_limit_error":
		return retry.Throttled
	case "overloaded_error":
		return retry.Overloaded
	}
	if class := retry.ClassOf(f.Status); class != retry.NotRetryable || !f.overloaded() {
		return class
	}
	return retry.Overloaded
}

// anthropicSpent reports whether an error code is that of a limit on money, which
// waiting does not mend before the month is over. They come as rate limits, too.
func anthropicSpent(code string) bool {
	return strings.HasSuffix(code, "_spend_limit_reached") || code == "linked_organization_billing_unavailable"
}

// Messages name a limit as "40,000 input tokens per minute".
var anthropicPhrases = []phrase{
	{"input tokens per ", retry.InputTokens},
	{"output tokens per ", retry.OutputTokens},
	{"requests per ", retry.Requests},
}

// anthropicLimits tells which limits a refusal was about.
func (f Fault) anthropicLimits() retry.Resource {
	if r := anthropicWithout(f.Header); r != 0 {
		return r
	}
	return f.named(anthropicPhrases)
}
