package anthropic

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// statusOverloaded is the API's status for an overload.
const statusOverloaded = 529

// failure is an error of the API.
type failure struct {
	status  int
	kind    string // error.type
	code    string // error.details.error_code
	message string
	retry   time.Duration // 0: none is advised
	should  string        // x-should-retry
	id      string
}

func (f failure) body() errorResponse {
	body := errorResponse{Type: "error", Error: errorBody{Type: f.kind, Message: f.message}, RequestID: f.id}
	if f.code != "" {
		body.Error.Details = &errorDetails{ErrorCode: f.code}
	}
	return body
}

func (f failure) write(w http.ResponseWriter) {
	h := w.Header()
	if f.id == "" {
		f.id = "req_double"
	}
	h.Set("Request-Id", f.id)
	if f.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((f.retry-1)/time.Second)+1, 10))
	}
	if f.should != "" {
		h.Set("X-Should-Retry", f.should)
	}
	writeJSON(w, f.status, f.body())
}

func invalidRequest(format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, kind: "invalid_request_error", message: fmt.Sprintf(format, args...)}
}

// failureOf is the error that goes with a status (Anthropic docs, errors page).
func failureOf(status int) failure {
	f := failure{status: status, kind: "api_error", message: "Internal server error"}
	switch status {
	case http.StatusTooManyRequests:
		f.kind, f.message = "rate_limit_error", "This request would exceed your organization's rate limit."
	case http.StatusPaymentRequired:
		f.kind, f.message = "billing_error", "There is a problem with the billing of your organization."
	case http.StatusGatewayTimeout:
		f.kind, f.message = "timeout_error", "The request timed out."
	case statusOverloaded, http.StatusServiceUnavailable:
		f.kind, f.message = "overloaded_error", "Overloaded"
	default:
		if status < 500 {
			f.kind, f.message = "invalid_request_error", "The request is invalid."
		}
	}
	return f
}

// what a refusal says of a quota.
var quotaNames = map[string]string{
	quotaRPM: "requests per minute", quotaBurst: "requests per minute", quotaITPM: "input tokens per minute",
	quotaOTPM: "output tokens per minute", engine.Concurrency: "concurrent connections",
}

// actedRetry is the delay that faults advise where nothing else does.
const actedRetry = 30 * time.Second

// refuse answers a call that the engine turned away.
func (s *Server) refuse(w http.ResponseWriter, r *engine.Refusal) {
	s.setLimits(w)
	if kind := r.Fault.Kind.Name; kind != "" {
		s.acted(kind, r.Retry).write(w)
		return
	}
	f := failureOf(http.StatusTooManyRequests)
	f.message = fmt.Sprintf("This request would exceed your organization's rate limit of %d %s.",
		r.Violations[0].Limit, quotaNames[r.Violations[0].Name])
	f.retry, f.should = r.Retry, "true"
	f.write(w)
}

// acted is the error that a fault pretends.
func (s *Server) acted(kind string, retry time.Duration) failure {
	f := failureOf(http.StatusTooManyRequests)
	advised := retry
	if advised == 0 {
		advised = s.engine.Shorten(actedRetry)
	}
	switch kind {
	case fault429:
		f.retry, f.should = advised, "true"
	case fault429Bare:
		f.should = "true"
	case faultRamp:
		f.retry, f.code, f.message = advised, "ramp_limit_exceeded", "Your traffic has grown too fast."
	case faultSpend:
		f.code, f.message = "enforced_spend_limit_reached", "Your organization has reached its monthly spend limit."
	case faultContract:
		f.code, f.message = "contract_spend_limit_reached", "Your organization has reached the spend limit of its contract."
	case fault402:
		f = failureOf(http.StatusPaymentRequired)
		f.code = "linked_organization_spend_limit_reached"
	case faultOwnLimit:
		f = failureOf(http.StatusBadRequest)
		f.message, f.should = "You have reached your specified API usage limits.", "false"
	case fault529:
		f = failureOf(statusOverloaded)
		f.retry, f.should = retry, "true"
	}
	return f
}

// asRefusal returns the refusal in an error, or nil.
func asRefusal(err error) *engine.Refusal {
	r, _ := errors.AsType[*engine.Refusal](err)
	return r
}
