package httpgate

import (
	"net/http"
	"time"

	"github.com/headgate-go/headgate/internal/wire"
	"github.com/headgate-go/headgate/ratelimited"
)

// limits reads what the headers of a response say remains, for a request that
// was sent at sent and answered at now. Google reports none. Counts of tokens are
// another quota than that of the method which makes answers, so those of
// countTokens are not read.
func (r *route) limits(h http.Header, sent, now time.Time) []ratelimited.LimitReport {
	switch {
	case r.method == countTokens:
	case r.api == openaiAPI:
		return wire.OpenAILimits(h, sent)
	case r.api == anthropicAPI:
		return wire.AnthropicLimits(h, sent, now)
	}
	return nil
}
