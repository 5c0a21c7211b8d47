package openai

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// quota is how the API names a quota in its messages, and the type of the error
// of one that is hit.
type quota struct{ words, kind string }

var quotas = map[string]quota{
	quotaRPM:           {"requests per min (RPM)", "requests"},
	quotaTPM:           {"tokens per min (TPM)", "tokens"},
	quotaRPD:           {"requests per day (RPD)", "requests"},
	quotaTPD:           {"tokens per day (TPD)", "tokens"},
	engine.Concurrency: {"concurrent requests", "requests"},
}

// Figures that faults report for quotas that are not configured, and the delay
// that they advise where nothing else does.
const (
	actedLimit = 10
	actedRetry = 30 * time.Second
)

// exhausted are the codes of faults that waiting does not mend, and their
// messages.
var exhausted = map[string]apiError{
	fault429Quota: {
		Message: "You exceeded your current quota, please check your plan and billing details.",
		Type:    "insufficient_quota", Code: orNull("insufficient_quota"),
	},
	fault429Credit: {
		Message: "Your credit balance is used up. Add credits to go on.",
		Type:    "insufficient_quota", Code: orNull("credit_balance_exhausted"),
	},
	fault429Spend: {
		Message: "Your organization has reached its spend limit.",
		Type:    "insufficient_quota", Code: orNull("organization_spend_limit_exceeded"),
	},
	fault402: {
		Message: "Payment is required.", Type: "invalid_request_error",
	},
}

// refuse answers a call that the engine turned away.
func (s *Server) refuse(w http.ResponseWriter, r *engine.Refusal, req Request, asked int64) {
	kind := r.Fault.Kind.Name
	if e, ok := exhausted[kind]; ok {
		status := http.StatusTooManyRequests
		if kind == fault402 {
			status = http.StatusPaymentRequired
		}
		writeError(w, status, e)
		return
	}
	name, limit, retry := quotaRPM, int64(actedLimit), r.Retry
	acted := ""
	switch kind {
	case fault429Tokens:
		name, acted = quotaTPM, "Tokens"
	case fault429Day:
		name = quotaRPD
	case fault429, fault429Never:
		acted = "Requests"
	}
	never := false
	if kind == "" {
		v := r.Violations[0]
		name, limit = v.Name, v.Limit
		never = retry == 0 && name != engine.Concurrency
	} else if retry == 0 {
		retry = s.engine.Shorten(actedRetry)
	}
	h := w.Header()
	if s.cfg.RefusalForm == FormBare {
		removeLimits(h)
	} else if acted != "" { // the limit itself has room
		setLimit(h, acted, engine.Left{Limit: limit, Full: retry * time.Duration(limit)})
	}
	if retry > 0 && s.cfg.RefusalForm == FormFull {
		h.Set("Retry-After-Ms", strconv.FormatInt(int64((retry-1)/time.Millisecond)+1, 10))
	}
	if retry > 0 && (s.cfg.RefusalForm == FormFull || s.cfg.RefusalForm == FormSeconds) {
		h.Set("Retry-After", strconv.FormatInt(int64((retry-1)/time.Second)+1, 10))
	}
	if kind == fault429Never {
		h.Set("X-Should-Retry", "false")
	}
	q := quotas[name]
	e := apiError{Type: q.kind, Code: orNull("rate_limit_exceeded")}
	switch {
	case kind == fault429Slow:
		e = apiError{Message: "Your request rate rose too quickly. Slow down.", Type: "requests", Code: orNull("slow_down")}
	case never:
		e.Message = fmt.Sprintf("Request too large for %s in organization org-double on %s: Limit %d, Requested %d. "+
			"The input or output tokens must be reduced in order to run successfully.", req.Model, q.words, limit, asked)
	default:
		e.Message = fmt.Sprintf("Rate limit reached for %s in organization org-double on %s: Limit %d. Please try again in %v.",
			req.Model, q.words, limit, retry.Round(time.Millisecond))
	}
	writeError(w, http.StatusTooManyRequests, e)
}

// limitHeaders are the resources that the x-ratelimit headers name, by quota.
var limitHeaders = map[string]string{quotaRPM: "Requests", quotaTPM: "Tokens"}

// setLimits tells in headers what is left of the quotas.
func (s *Server) setLimits(h http.Header) {
	for _, l := range s.engine.Left() {
		if resource, ok := limitHeaders[l.Name]; ok {
			setLimit(h, resource, l)
		}
	}
}

func setLimit(h http.Header, resource string, l engine.Left) {
	h.Set("X-Ratelimit-Limit-"+resource, strconv.FormatInt(l.Limit, 10))
	h.Set("X-Ratelimit-Remaining-"+resource, strconv.FormatInt(l.Remaining, 10))
	full := l.Full
	if full > 0 { // never reported as there when it is not
		full = (full-1)/time.Millisecond*time.Millisecond + time.Millisecond
	}
	h.Set("X-Ratelimit-Reset-"+resource, full.String())
}

func removeLimits(h http.Header) {
	for _, resource := range limitHeaders {
		for _, what := range []string{"Limit-", "Remaining-", "Reset-"} {
			h.Del("X-Ratelimit-" + what + resource)
		}
	}
}
