package anthropicmodel

import (
	"errors"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/headgate-go/headgate/internal/wire"
	"github.com/headgate-go/headgate/retry"
)

var _ retry.Classifier = Classify

// Classify says what an error of the SDK means; false if there is no
// *anthropic.Error in it. The errors of a [Model] carry their verdict, so only
// who uses the SDK by itself needs this, as one of retry.Policy.Classifiers.
//
// An error is judged by its type and error code, because that of a stream has
// the status of the response that it interrupts, 200; by its status where they
// do not tell (Anthropic docs, errors page):
//
//	a spend limit, by its code                  QuotaExhausted
//	billing_error, 402                          QuotaExhausted
//	429, whose message names a limit per day    QuotaExhausted, PerDay
//	rate_limit_error, 429                       Throttled, ramp_limit_exceeded included
//	overloaded_error, 503, 529                  Overloaded
//	a 5xx, or an error in a stream, that
//	says "overloaded"                           Overloaded
//	all others                                  NotRetryable
//
// 500 and 504 are among the others: the request may have been executed, and a
// repeated one is billed again. So is 400, with which the API also reports a
// spend limit that the organization has set for itself.
//
// The header x-should-retry of an error response overrules this for all but
// spend limits and billing. With true, which tells that a repetition is safe, an
// error that would not be retried becomes Overloaded; with false, a throttled
// call becomes QuotaExhausted and an overloaded one NotRetryable.
//
// The hint is that of the headers retry-after-ms and retry-after of an error
// response. A throttled call names the limits of which the headers say that
// nothing remains, or those that its message names; the API rounds tokens to
// thousands.
func Classify(err error) (retry.Verdict, bool) {
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok || e == nil {
		return retry.Verdict{}, false
	}
	f := wire.Fault{Status: e.StatusCode, Type: string(e.Type()), Code: string(e.ErrorCode()), Message: e.Message}
	switch {
	case f.Status < 400:
		f.Status = 0 // a stream was interrupted; its headers are of before
	case e.Response != nil:
		f.Header = e.Response.Header
	}
	return f.Anthropic(time.Now()), true
}
