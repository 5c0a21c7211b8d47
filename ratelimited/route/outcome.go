package route

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// outcome is what came of an attempt at a route; its names are the values of the
// metrics' label "outcome".
type outcome uint8

const (
	outcomeOK          outcome = iota // the route began to answer
	outcomeThrottled                  // these four are refusals of the provider
	outcomeQuota                      //
	outcomeOverload                   //
	outcomeNotSent                    // or of the network
	outcomeNotAdmitted                // by the route's gate
	outcomeDiverted                   // it left the line
	outcomeDenied                     // by a budget of a customer
	outcomeFailed                     // any other error
	outcomeCancelled                  // its context had ended
	outcomeBroken                     // it ended with nothing
	outcomePanicked                   // in the model's code
	outcomes
)

func (o outcome) String() string {
	return [...]string{
		"ok", "throttled", "quota_exhausted", "overloaded", "not_sent", "not_admitted",
		"diverted", "denied", "failed", "cancelled", "broken", "panicked",
	}[o]
}

// verdict is what an error of an attempt means before its first item.
type verdict struct {
	outcome outcome
	blow    blow
	hint    time.Duration
	// reason is why the call may go to another route, a value of the metrics' label;
	// "" if it may not.
	reason string
	// despair orders errors of several routes: the more, the less there is to hope
	// for.
	despair int
}

// judge tells what an error of an attempt means. A context that has ended is for
// the caller to see first.
func judge(p *retry.Policy, err error) verdict {
	if errors.Is(err, budget.ErrDenied) {
		return verdict{outcome: outcomeDenied} // the same customer asks at every route
	}
	if w, ok := errors.AsType[*ratelimited.WaitError](err); ok {
		switch {
		case errors.Is(w.Err, ratelimited.ErrDiverted):
			return verdict{outcome: outcomeDiverted, reason: "line"}
		case errors.Is(w.Err, ratelimited.ErrClosed):
			return verdict{outcome: outcomeNotAdmitted, reason: "closed", despair: 1}
		case errors.Is(w.Err, ratelimited.ErrLineFull):
			return verdict{outcome: outcomeNotAdmitted, reason: "line_full"}
		}
		return verdict{outcome: outcomeNotAdmitted, reason: "max_wait"}
	}
	if _, ok := errors.AsType[*ratelimited.NeverFitsError](err); ok {
		return verdict{outcome: outcomeNotAdmitted, reason: "never_fits", despair: 2}
	}
	v := p.Classify(err)
	told := verdict{hint: v.Hint, reason: v.Class.String()}
	switch v.Class {
	case retry.Throttled:
		told.outcome, told.blow = outcomeThrottled, refused
	case retry.QuotaExhausted:
		told.outcome, told.blow, told.despair = outcomeQuota, exhausted, 1
	case retry.Overloaded:
		told.outcome, told.blow = outcomeOverload, failed
	case retry.NotSent:
		told.outcome, told.blow = outcomeNotSent, failed
	case retry.Denied, retry.NeverFits: // by something else of ours further in
		return verdict{outcome: outcomeDenied}
	default:
		return verdict{outcome: outcomeFailed, blow: blowOf(err)}
	}
	return told
}

// blowOf tells what an error says of the route after which the call must not be
// sent again.
func blowOf(err error) blow {
	switch status := statusOf(err); {
	case status >= 500, status == http.StatusRequestTimeout:
		return failed
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		return failed // as every call will, until somebody mends the key or the name of the model
	case status >= 400:
		return answered // the request is wrong, and the route works
	}
	var broken net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded): // the client's own limit, for the caller's context lives
		return failed
	case errors.As(err, &broken), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return failed
	}
	return neutral
}

// statusOf is the HTTP status of an error, or 0.
func statusOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return e.StatusCode()
	}
	if e, ok := errors.AsType[*genai.APIError](err); ok && e != nil {
		return e.Code
	}
	if e, ok := errors.AsType[genai.APIError](err); ok {
		return e.Code
	}
	return 0
}
