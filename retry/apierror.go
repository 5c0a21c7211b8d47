package retry

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genai"
)

// statusOverloaded is the status code that some providers and proxies use for
// "the service is overloaded", beside 503.
const statusOverloaded = 529

// ClassOf says what an HTTP status code by itself means: 402 QuotaExhausted, 429
// Throttled, 503 and 529 Overloaded, and NotRetryable for all others. It is the
// table that [Classify] starts from, exported for a [Classifier] of errors of
// another SDK.
func ClassOf(statusCode int) Class {
	switch statusCode {
	case http.StatusPaymentRequired:
		return QuotaExhausted
	case http.StatusTooManyRequests:
		return Throttled
	case http.StatusServiceUnavailable, statusOverloaded:
		return Overloaded
	}
	return NotRetryable
}

// apiVerdict judges an error that the API answered.
func apiVerdict(e genai.APIError) Verdict {
	e = insideBody(e)
	q := readDetails(e.Details)
	v := Verdict{
		Class:     classOfAPI(e),
		Hint:      q.hint,
		HasHint:   q.hasHint,
		Resources: q.resources,
		PerDay:    q.perDay,
	}
	if v.Class == Throttled && (q.perDay || q.zero || saysExhausted(e.Message)) {
		v.Class = QuotaExhausted
	}
	return v
}

// classOfAPI is the class that code, status and, where these two leave it open,
// message give.
func classOfAPI(e genai.APIError) Class {
	code := e.Code
	if code < 400 || code > 599 {
		switch e.Status {
		case "RESOURCE_EXHAUSTED":
			code = http.StatusTooManyRequests
		case "UNAVAILABLE":
			code = http.StatusServiceUnavailable
		default:
			code = 0
		}
	}
	class := ClassOf(code)
	if class == NotRetryable && (code == 0 || code >= 500) && saysOverloaded(e) {
		return Overloaded
	}
	return class
}

// saysOverloaded reports whether an error that its code does not explain names
// an overload as the cause. A 4xx is not asked, because the message of a refused
// request may quote the request.
func saysOverloaded(e genai.APIError) bool {
	return e.Status == "UNAVAILABLE" ||
		strings.Contains(strings.ToLower(e.Status), "overloaded") ||
		strings.Contains(strings.ToLower(e.Message), "overloaded")
}

// saysExhausted reports whether the message of a 429 speaks of a refusal that
// waiting does not mend. These cases come without details, so the text is all
// there is:
//
//   - "limit: 0" in the list of exceeded metrics: the model is not part of the
//     project's tier (Gemini API, free tier);
//   - prepaid credits that are depleted: 429 before it became 402;
//   - a project's monthly spending cap.
func saysExhausted(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "prepayment credits") ||
		strings.Contains(message, "spending cap") ||
		saysZeroLimit(message)
}

// saysZeroLimit finds "limit: 0", but not "limit: 0.5" or "limit: 07".
func saysZeroLimit(message string) bool {
	const phrase = "limit: 0"
	for {
		_, rest, found := strings.Cut(message, phrase)
		if !found {
			return false
		}
		more := strings.TrimPrefix(rest, ".")
		if more == "" || more[0] < '0' || more[0] > '9' {
			return true
		}
		message = rest
	}
}

// details is what the details of an API error say.
type details struct {
	hint      time.Duration
	hasHint   bool
	resources Resource
	perDay    bool
	zero      bool // a limit of 0 is among those hit
}

// readDetails reads the google.rpc messages that matter here: RetryInfo,
// QuotaFailure, and ErrorInfo where its metadata names a quota. All three are
// defined in google/rpc/error_details.proto.
func readDetails(list []map[string]any) details {
	var q details
	for _, d := range list {
		switch messageName(d) {
		case "google.rpc.RetryInfo":
			if hint, ok := retryDelay(d); ok {
				q.hint, q.hasHint = max(q.hint, hint), true
			}
		case "google.rpc.QuotaFailure":
			for _, v := range objects(d["violations"]) {
				q.add(v["quotaId"], v["quotaMetric"], v["quotaValue"])
			}
		case "google.rpc.ErrorInfo":
			if m, ok := d["metadata"].(map[string]any); ok {
				q.add(m["quota_limit"], m["quota_metric"], m["quota_limit_value"])
			}
		}
	}
	return q
}

// add notes one limit: its name, such as
// "GenerateRequestsPerDayPerProjectPerModel-FreeTier", its metric, such as
// "generativelanguage.googleapis.com/generate_content_free_tier_requests", and
// its value.
func (q *details) add(id, metric, value any) {
	name, unit := normal(id), normal(metric)
	resources := resourcesIn(name)
	if resources == 0 {
		resources = resourcesIn(unit)
	}
	q.resources |= resources
	q.perDay = q.perDay || perDay(name) || perDay(unit)
	if name != "" || unit != "" {
		q.zero = q.zero || value == "0" || value == float64(0)
	}
}

// normal is a quota's name in lower case and without separators, so that
// "input_token_count" and "InputTokens" have the same beginning; "" for what is
// not text.
func normal(name any) string {
	s, _ := name.(string)
	return separators.Replace(strings.ToLower(s))
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// resourcesIn tells what a limit of that name counts.
func resourcesIn(name string) Resource {
	switch {
	case strings.Contains(name, "concurrent"):
		return Concurrency
	case strings.Contains(name, "inputtoken"), strings.Contains(name, "prompttoken"):
		return InputTokens
	case strings.Contains(name, "outputtoken"):
		return OutputTokens
	case strings.Contains(name, "token"):
		return TotalTokens
	case strings.Contains(name, "request"):
		return Requests
	}
	return 0
}

// perDay reports whether a limit of that name is per day or longer.
func perDay(name string) bool {
	for _, period := range [...]string{"perday", "perweek", "permonth", "daily", "weekly", "monthly"} {
		if strings.Contains(name, period) {
			return true
		}
	}
	return false
}

// messageName is the full name of the protobuf message that a detail holds.
func messageName(detail map[string]any) string {
	url, _ := detail["@type"].(string)
	return url[strings.LastIndexByte(url, '/')+1:]
}

// retryDelay reads the delay of a google.rpc.RetryInfo.
func retryDelay(detail map[string]any) (time.Duration, bool) {
	s, _ := detail["retryDelay"].(string)
	return parseProtoDuration(s)
}

// objects is the list of JSON objects in v, which comes from encoding/json or
// from a test that spelt it in Go.
func objects(v any) []map[string]any {
	switch v := v.(type) {
	case []map[string]any:
		return v
	case []any:
		var list []map[string]any
		for _, e := range v {
			if m, ok := e.(map[string]any); ok {
				list = append(list, m)
			}
		}
		return list
	}
	return nil
}

// insideBody returns the error that the response body holds, where the SDK could
// not decode it. The SDK then passes the body on as the message and the HTTP
// status line as the status. This happens to bodies that are a JSON array, as
// the streaming endpoints of Vertex AI answer, and to those with a field of an
// unexpected type.
func insideBody(e genai.APIError) genai.APIError {
	plain := e.Status == "" || strings.HasPrefix(e.Status, strconv.Itoa(e.Code))
	if !plain || len(e.Details) > 0 || len(e.Message) > maxErrorBody {
		return e
	}
	body := []byte(e.Message)
	if first, ok := firstOfArray(body); ok {
		body = first
	}
	var top struct {
		Error map[string]any `json:"error"`
	}
	// Unmarshal fills what it can; a body that is no JSON leaves Error nil.
	_ = json.Unmarshal(body, &top)
	if top.Error == nil {
		return e
	}
	inner := genai.APIError{Code: e.Code, Details: objects(top.Error["details"])}
	inner.Status, _ = top.Error["status"].(string)
	inner.Message, _ = top.Error["message"].(string)
	switch code := top.Error["code"].(type) {
	case float64:
		inner.Code = int(max(0, min(code, 1<<20)))
	case string:
		if n, err := strconv.Atoi(code); err == nil {
			inner.Code = n
		}
	}
	return inner
}

// firstOfArray returns the first element of a JSON array, and false for
// anything else.
func firstOfArray(body []byte) ([]byte, bool) {
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || len(list) == 0 {
		return nil, false
	}
	return list[0], true
}
