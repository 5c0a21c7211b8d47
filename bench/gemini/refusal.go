package gemini

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// quota is how the API names a quota. The names are those of the free tier, as
// they are seen in its errors; the one of concurrency is this double's own.
type quota struct{ metric, id string }

var quotas = map[string]quota{
	quotaRPM: {
		"generativelanguage.googleapis.com/generate_content_free_tier_requests",
		"GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
	},
	quotaTPM: {
		"generativelanguage.googleapis.com/generate_content_free_tier_input_token_count",
		"GenerateContentInputTokensPerModelPerMinute-FreeTier",
	},
	quotaRPD: {
		"generativelanguage.googleapis.com/generate_content_free_tier_requests",
		"GenerateRequestsPerDayPerProjectPerModel-FreeTier",
	},
	engine.Concurrency: {
		"generativelanguage.googleapis.com/concurrent_requests",
		"ConcurrentRequestsPerProjectPerModel",
	},
}

const limitsURL = "https://ai.google.dev/gemini-api/docs/rate-limits"

// refusal is a refusal by a quota, or by a fault that acts one.
type refusal struct {
	violations []engine.Violation
	form       Form
	retry      time.Duration // 0: none is advised
	model      string
	vertex     bool
}

// Figures that faults report for quotas that are not configured.
const (
	actedRPM = 10
	actedRPD = 250
)

// actedRetry is the delay that faults advise where nothing else does.
const actedRetry = 30 * time.Second

// refuse answers a call that the engine turned away.
func (s *Server) refuse(w http.ResponseWriter, r *engine.Refusal, req Request, array bool) {
	ref := refusal{violations: r.Violations, form: s.cfg.RefusalForm, retry: r.Retry, model: req.Model, vertex: req.Vertex}
	if ref.form == FormAuto {
		ref.form = FormDetails
		if req.Vertex {
			ref.form = FormBare
		}
	}
	kind := r.Fault.Kind.Name
	if kind == fault402 {
		writeError(w, errorBody{Code: http.StatusPaymentRequired, Status: statusExhausted,
			Message: "The prepaid credits of the project are used up."}, array)
		return
	}
	if kind != "" {
		s.act(&ref, kind)
	}
	ref.write(w, array)
}

// act fills in what the fault pretends.
func (s *Server) act(ref *refusal, kind string) {
	minute := engine.Violation{Name: quotaRPM, Limit: s.cfg.RPM}
	if minute.Limit == 0 {
		minute.Limit = actedRPM
	}
	day := engine.Violation{Name: quotaRPD, Limit: s.cfg.RPD}
	if day.Limit == 0 {
		day.Limit = actedRPD
	}
	ref.violations = []engine.Violation{minute}
	switch kind {
	case fault429Day:
		ref.violations, ref.form = []engine.Violation{day}, FormDetails
	case fault429Both:
		ref.violations, ref.form = []engine.Violation{minute, day}, FormDetails
	case fault429Zero:
		minute.Limit, day.Limit = 0, 0
		ref.violations, ref.form = []engine.Violation{minute, day}, FormDetails
	case fault429Help:
		ref.form = FormHelp
	case fault429Header:
		ref.form = FormHeader
	case fault429Bare:
		ref.form = FormBare
	}
	if ref.retry == 0 {
		ref.retry = s.engine.Shorten(actedRetry)
	}
}

func (ref refusal) write(w http.ResponseWriter, array bool) {
	body := errorBody{Code: http.StatusTooManyRequests, Status: statusExhausted, Message: ref.message()}
	helpDetail := help{Type: typePrefix + "Help",
		Links: []helpLink{{Description: "Rate limits of the Gemini API", URL: limitsURL}}}
	switch ref.form {
	case FormDetails:
		body.Details = []any{ref.quotaFailure(), helpDetail}
		if ref.retry > 0 {
			body.Details = append(body.Details, retryInfo{Type: typePrefix + "RetryInfo", RetryDelay: protoDuration(ref.retry)})
		}
	case FormHelp:
		body.Details = []any{helpDetail}
	case FormHeader:
		if ref.retry > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((ref.retry-1)/time.Second)+1, 10))
		}
	}
	writeError(w, body, array)
}

// message is the text of the error. With details it repeats them, as clients
// that read nothing else need; Vertex AI only says that it is busy.
func (ref refusal) message() string {
	if ref.form != FormDetails {
		if ref.vertex {
			return "Resource exhausted, please try again later."
		}
		return "Resource has been exhausted (e.g. check quota)."
	}
	text := "You exceeded your current quota. See " + limitsURL + "."
	for _, v := range ref.violations {
		text += fmt.Sprintf("\n* Quota exceeded for metric: %s, limit: %d, model: %s", quotas[v.Name].metric, v.Limit, ref.model)
	}
	if ref.retry > 0 {
		text += "\nPlease retry in " + protoDuration(ref.retry) + "."
	}
	return text
}

func (ref refusal) quotaFailure() quotaFailure {
	f := quotaFailure{Type: typePrefix + "QuotaFailure"}
	for _, v := range ref.violations {
		f.Violations = append(f.Violations, quotaViolation{
			QuotaMetric:     quotas[v.Name].metric,
			QuotaID:         quotas[v.Name].id,
			QuotaDimensions: quotaDimensions{Location: "global", Model: ref.model},
			QuotaValue:      strconv.FormatInt(v.Limit, 10),
		})
	}
	return f
}

const statusExhausted = "RESOURCE_EXHAUSTED"

// statusOf is the name of google.rpc.Code that goes with an HTTP status.
func statusOf(code int) string {
	switch code {
	case http.StatusBadRequest:
		return "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusPaymentRequired, http.StatusTooManyRequests:
		return statusExhausted
	case 499: // what Google's APIs use for a call that the client gave up
		return "CANCELLED"
	case http.StatusInternalServerError:
		return "INTERNAL"
	case http.StatusNotImplemented:
		return "UNIMPLEMENTED"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	case http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	return "UNKNOWN"
}

// failure is the error of a fault.
func failure(code int) errorBody {
	message := fmt.Sprintf("The service failed with code %d. Please try again later.", code)
	switch code {
	case http.StatusServiceUnavailable:
		message = "The model is overloaded. Please try again later."
	case http.StatusTooManyRequests:
		message = "Resource has been exhausted (e.g. check quota)."
	}
	return errorBody{Code: code, Message: message, Status: statusOf(code)}
}

// writeError answers with an error. A stream that is not one of events has it
// in an array, as its chunks would be.
func writeError(w http.ResponseWriter, body errorBody, array bool) {
	if array {
		writeJSON(w, body.Code, []errorResponse{{body}})
		return
	}
	writeJSON(w, body.Code, errorResponse{body})
}

// asRefusal returns the refusal in an error, or nil.
func asRefusal(err error) *engine.Refusal {
	var r *engine.Refusal
	errors.As(err, &r)
	return r
}
