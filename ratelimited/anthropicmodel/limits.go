package anthropicmodel

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// limits are the rate limits that responses report, each in three headers:
// -limit, -remaining and -reset (Anthropic docs, rate limits page). "tokens" is
// the tightest limit on tokens that is in force, be it of a workspace, on input
// and output together. Those of the priority tier and of fast mode are other
// quotas and are not read.
var limits = [...]struct {
	header    string
	dimension string
	resource  retry.Resource
}{
	{"Anthropic-Ratelimit-Requests", "requests", retry.Requests},
	{"Anthropic-Ratelimit-Input-Tokens", "input_tokens", retry.InputTokens},
	{"Anthropic-Ratelimit-Output-Tokens", "output_tokens", retry.OutputTokens},
	{"Anthropic-Ratelimit-Tokens", "tokens", retry.TotalTokens},
}

// maxReset is the longest time until a limit is replenished that is believed:
// the limits are per minute, and a header that says a day belongs to something
// else.
const maxReset = time.Hour

// limitsIn reads what the headers of a response say is left, for a request that
// was sent at sent and answered at now. The reset is the instant at which the
// limit will be fully replenished, on the API's clock, so it is compared with
// the response's own Date; without one, with now.
//
// What is malformed or stale is left out: a number that is negative or none, a
// reset that is no RFC 3339 time, has passed, or is further away than an hour.
// The API rounds what remains of tokens to the nearest thousand, so it may be
// 500 less or more than it says. It is taken as it is.
func limitsIn(h http.Header, sent, now time.Time) (reports []ratelimited.LimitReport) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	for _, l := range limits {
		remaining, err := strconv.ParseInt(strings.TrimSpace(h.Get(l.header+"-Remaining")), 10, 64)
		if err != nil || remaining < 0 || remaining > maxRemaining {
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

// maxRemaining bounds what is believed to remain, far above every limit.
const maxRemaining = 1 << 50
