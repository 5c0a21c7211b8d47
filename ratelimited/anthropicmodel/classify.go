package anthropicmodel

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/shared"

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
//	a spend limit, by its code    QuotaExhausted
//	billing_error, 402            QuotaExhausted
//	rate_limit_error, 429         Throttled, ramp_limit_exceeded included
//	overloaded_error, 503, 529    Overloaded
//	all others                    NotRetryable
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
// nothing remains; the API rounds tokens to thousands.
func Classify(err error) (retry.Verdict, bool) {
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok || e == nil {
		return retry.Verdict{}, false
	}
	v := retry.Verdict{Class: classOf(e)}
	if e.Response == nil || e.Response.StatusCode < 400 {
		return v, true // a stream was interrupted; its headers are of before
	}
	h := e.Response.Header
	if v.Class != retry.QuotaExhausted {
		v.Class = advised(v.Class, h.Get("X-Should-Retry"))
	}
	if v.Class != retry.NotRetryable {
		v.Hint, v.HasHint = retry.ParseRetryAfter(h, time.Now())
	}
	if v.Class == retry.Throttled {
		v.Resources = exhausted(h)
	}
	return v, true
}

// spendLimits are the error codes of limits on money, which waiting does not
// mend before the month is over. They come as rate limits, too.
var spendLimits = map[anthropic.ErrorCode]bool{
	anthropic.ErrorCodeContractSpendLimitReached:            true,
	anthropic.ErrorCodeEnforcedSpendLimitReached:            true,
	anthropic.ErrorCodeLinkedOrganizationBillingUnavailable: true,
	anthropic.ErrorCodeLinkedOrganizationSpendLimitReached:  true,
}

// classOf is the class by type, code and status.
func classOf(e *anthropic.Error) retry.Class {
	if spendLimits[e.ErrorCode()] {
		return retry.QuotaExhausted
	}
	switch e.Type() {
	case shared.ErrorTypeBillingError:
		return retry.QuotaExhausted
	case shared.ErrorTypeRateLimitError:
		return retry.Throttled
	case shared.ErrorTypeOverloadedError:
		return retry.Overloaded
	}
	return retry.ClassOf(e.StatusCode)
}

// advised is the class with the API's own word on retries.
func advised(c retry.Class, shouldRetry string) retry.Class {
	switch {
	case shouldRetry == "true" && c == retry.NotRetryable:
		return retry.Overloaded
	case shouldRetry == "false" && c == retry.Throttled:
		return retry.QuotaExhausted
	case shouldRetry == "false":
		return retry.NotRetryable
	}
	return c
}

// exhausted names the limits of which nothing remains.
func exhausted(h http.Header) retry.Resource {
	var found retry.Resource
	for _, l := range limits {
		if n, err := strconv.ParseInt(strings.TrimSpace(h.Get(l.header+"-Remaining")), 10, 64); err == nil && n <= 0 {
			found |= l.resource
		}
	}
	if found&(retry.InputTokens|retry.OutputTokens) != 0 {
		found &^= retry.TotalTokens // it repeats the tighter of the other two
	}
	return found
}
