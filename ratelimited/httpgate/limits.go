package httpgate

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// limit is a rate limit that a response reports: what remains of it, and when it
// will be whole again.
type limit struct {
	remaining, reset string // headers
	dimension        string // of the profile
	resource         retry.Resource
	rounded          bool // what remains is told to the nearest thousand
}

// openaiLimits are those of OpenAI's and Azure's APIs (OpenAI docs, rate limits
// guide); the reset is the time until then, such as "6m0s".
var openaiLimits = []limit{
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "requests", retry.Requests, false},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "tokens", retry.TotalTokens, false},
	{"X-Ratelimit-Remaining-Project-Tokens", "X-Ratelimit-Reset-Project-Tokens", "tokens", retry.TotalTokens, false},
}

// anthropicLimits are those of Anthropic's API (Anthropic docs, rate limits
// page); the reset is an instant. The limit on tokens without distinction repeats
// the tightest one.
var anthropicLimits = []limit{
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", "requests", retry.Requests, false},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", "input_tokens", retry.InputTokens, true},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", "output_tokens", retry.OutputTokens, true},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", "total_tokens", retry.TotalTokens, true},
}

// Bounds of what is believed.
const (
	maxRemaining = 1 << 50
	maxReset     = time.Hour // limits are per minute; a day belongs to something else
)

func (a api) limits() []limit {
	switch a {
	case openaiAPI:
		return openaiLimits
	case anthropicAPI:
		return anthropicLimits
	}
	return nil // Google reports none
}

// limits reads what the headers of a response say remains, for a request that
// was sent at sent and answered at now. What is malformed or has passed is left
// out. The counts of tokens by another method than the one that was called
// belong to another quota, so those of countTokens are not read.
func (r *route) limits(h http.Header, sent, now time.Time) (reports []ratelimited.LimitReport) {
	if r.method == countTokens {
		return nil
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // an instant is one of the provider's clock
	}
	for _, l := range r.api.limits() {
		remaining, ok := l.left(h)
		if !ok {
			continue
		}
		reset, ok := l.until(h, now)
		if !ok {
			continue
		}
		if l.rounded && remaining%1000 == 0 {
			remaining += 499 // less is not certain
		}
		reports = append(reports, ratelimited.LimitReport{
			Dimension: l.dimension, Remaining: remaining, Reset: reset, Sent: sent,
		})
	}
	return reports
}

// left is what remains of the limit.
func (l *limit) left(h http.Header) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(h.Get(l.remaining)), 10, 64)
	return n, err == nil && n >= 0 && n <= maxRemaining
}

// until is the time until the limit is whole again; 0 if that is not told.
func (l *limit) until(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get(l.reset))
	if text == "" {
		return 0, true
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
			d = time.Duration(seconds) * time.Second
		} else if at, err := time.Parse(time.RFC3339, text); err == nil {
			d = at.Sub(now)
		} else {
			return 0, false
		}
	}
	return d, d >= 0 && d <= maxReset
}

// exhausted names the limits of which nothing remains.
func (a api) exhausted(h http.Header) (found retry.Resource) {
	for _, l := range a.limits() {
		if n, ok := l.left(h); ok && n == 0 {
			found |= l.resource
		}
	}
	if found&(retry.InputTokens|retry.OutputTokens) != 0 {
		found &^= retry.TotalTokens // it repeats the tighter of the two
	}
	return found
}
