package openaimodel

import (
	"net/http"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/headgate-go/headgate/internal/wire"
	"github.com/headgate-go/headgate/retry"
)

// Classify says what an error of the SDK, or an [Error], means for a retry; false
// for all others, those of the connection among them. It is a [retry.Classifier]
// for programs that use the SDK by itself:
//
//	policy := retry.Policy{Classifiers: []retry.Classifier{openaimodel.Classify}}
//
// By OpenAI's error codes guide and what the SDK's own retries look at:
//
//	insufficient_quota, credit_balance_exhausted, *_spend_limit_exceeded,
//	*_usage_limit_exceeded, billing_*, or 402   QuotaExhausted
//	429, whose message names a limit per day    QuotaExhausted, PerDay
//	429 "Request too large": never fits         NotRetryable
//	429; rate_limit_exceeded or slow_down       Throttled
//	503, 529; a 5xx that says "overloaded"      Overloaded
//	all others                                  NotRetryable
//
// The header x-should-retry comes after that: "false" makes of Throttled a
// QuotaExhausted and of Overloaded a NotRetryable, "true" makes of any other
// error Overloaded, which is retried within a budget.
//
// The limits that a 429 was about are told by the error's type ("requests",
// "tokens"), by its message, or by which of the x-ratelimit-remaining headers has
// no room left. The hint is retry-after-ms or Retry-After; where a 429 has
// neither, the time after which the limit has room again by the
// x-ratelimit-reset headers. A message's "Please try again in 6s" is not read,
// because texts are not an interface.
func Classify(err error) (retry.Verdict, bool) {
	e, ok := explain(err)
	if !ok {
		return retry.Verdict{}, false
	}
	return e.verdict, true
}

// apiError reads an error that the SDK could decode. err is it, wrapped or not.
func apiError(e *openai.Error, err error) *Error {
	f := wire.ReadFault([]byte(e.RawJSON())) // the SDK drops a code that is a number
	f.Status, f.Type, f.Message = e.StatusCode, e.Type, e.Message
	if f.Code == "" {
		f.Code = e.Code
	}
	if e.Response != nil {
		f.Header = e.Response.Header
	}
	return newError(f, err)
}

// answeredError is the error of an answer whose body the SDK cannot read.
func answeredError(resp *http.Response, err error) *Error {
	return newError(wire.Fault{Status: resp.StatusCode, Header: resp.Header}, err)
}

// eventError reads an error that came within an answer, as an event of a stream
// or in place of a whole answer. err is the SDK's error, or nil where it took this
// for an answer.
func eventError(data []byte, err error) *Error {
	if err == nil {
		err = &ssestream.StreamError{Message: "error event", Event: ssestream.Event{Type: "error", Data: data}}
	}
	return newError(wire.ReadFault(data), err)
}

// newError makes the error of a fault; sdk is the SDK's.
func newError(f wire.Fault, sdk error) *Error {
	e := &Error{status: f.Status, request: requestID(f.Header), verdict: f.OpenAI(time.Now()), sdk: sdk}
	if e.code = identifier(f.Code); e.code == "" {
		e.code = identifier(f.Type)
	}
	return e
}
