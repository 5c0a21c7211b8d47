package wire

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// anthropicHeaders are the rate limits that responses of Anthropic's API report,
// each in three headers: -limit, -remaining and -reset (Anthropic docs, rate
// limits page). Those of the priority tier and of fast mode are other quotas and
// are not read.
//
// "tokens" is the tightest limit on tokens that is in force: the sum of input and
// output, or that of a workspace. The profile ratelimited.Anthropic has no such
// dimension, so a gate with it leaves this one out: where no workspace has a limit
// of its own, it says nothing that the two others do not. A profile that a
// dimension "tokens" was added to, with the workspace's limit, hears of it.
var anthropicHeaders = [...]struct {
	header    string
	dimension string
	resource  retry.Resource
}{
	{"Anthropic-Ratelimit-Requests", "requests", retry.Requests},
	{"Anthropic-Ratelimit-Input-Tokens", "input_tokens", retry.InputTokens},
	{"Anthropic-Ratelimit-Output-Tokens", "output_tokens", retry.OutputTokens},
	{"Anthropic-Ratelimit-Tokens", "tokens", retry.TotalTokens},
}

// maxReset is the longest time until a limit is replenished that is believed: the
// limits are per minute, and a header that says a day belongs to something else.
const maxReset = time.Hour

// AnthropicLimits is what the headers of a response say is left, for a request
// that was sent at sent and answered at now: of the dimensions "requests",
// "input_tokens", "output_tokens" and "tokens". The last is the tightest limit on
// tokens that is in force, which only a profile of one's own has.
//
// The reset is the instant at which the limit will be fully replenished, on the
// API's clock, so it is compared with the response's own Date; without one, with
// now. What is malformed or stale is left out: a number that is negative or none,
// a reset that is no RFC 3339 time, has passed, or is further away than an hour.
// The API rounds what remains of tokens to the nearest thousand, so it may be 500
// less or more than it says. It is taken as it is.
func AnthropicLimits(h http.Header, sent, now time.Time) (reports []ratelimited.LimitReport) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	for _, l := range anthropicHeaders {
		remaining, ok := parseCount(h.Get(l.header + "-Remaining"))
		if !ok {
			continue
		}
		var reset time.Duration
		if text := strings.TrimSpace(h.Get(l.header + "-Reset")); text != "" {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				continue
			}
			if reset = at.Sub(now); reset < 0 || reset > maxReset {
				continue
			}
		}
		reports = append(reports, ratelimited.LimitReport{Dimension: l.dimension, Remaining: remaining, Reset: reset, Sent: sent})
	}
	return reports
}

// anthropicWithout names the limits of which nothing remains.
func anthropicWithout(h http.Header) (found retry.Resource) {
	for _, l := range anthropicHeaders {
		if n, ok := parseCount(h.Get(l.header + "-Remaining")); ok && n == 0 {
			found |= l.resource
		}
	}
	if found&(retry.InputTokens|retry.OutputTokens) != 0 {
		found &^= retry.TotalTokens // it repeats the tighter of the other two
	}
	return found
}
