package httpgate

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/retry"
)

// maxErrorBody is how much of the body of an error response is read to learn
// what it means, in bytes: 1 MiB.
const maxErrorBody = 1 << 20

// refusedError is a response that is no success. The gate reads what it means;
// if it is not tried again, RoundTrip returns it, as it came.
type refusedError struct {
	resp    *http.Response
	read    []byte // of its body
	rest    error  // what ended the reading; nil at the body's end
	more    bool   // there may be more of the body
	verdict retry.Verdict
	taken   bool // RoundTrip returns the response
}

func newRefusedError(x *exchange, resp *http.Response) *refusedError {
	r := &refusedError{resp: resp}
	if resp.StatusCode >= 400 {
		r.read, r.rest = io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		r.more = r.rest == nil && len(r.read) == maxErrorBody
	} else {
		r.more = true
	}
	var text []byte
	if coding := resp.Header.Get("Content-Encoding"); coding == "" || strings.EqualFold(coding, "identity") {
		text = r.read
	}
	r.verdict = judge(x.route.api, resp.StatusCode, resp.Header, text)
	return r
}

// Error tells the status, and nothing that the provider put into words: it may
// quote the request.
func (r *refusedError) Error() string {
	return "httpgate: the provider answered " + strconv.Itoa(r.resp.StatusCode)
}

// StatusCode tells package ratelimited that the provider has answered and did not
// execute the call. That holds for a redirection as well.
func (r *refusedError) StatusCode() int { return max(r.resp.StatusCode, 400) }

// RetryVerdict says what the response means. [retry.Classify] asks.
func (r *refusedError) RetryVerdict() retry.Verdict { return r.verdict }

// response is the response as it came.
func (r *refusedError) response() *http.Response {
	parts := []io.Reader{bytes.NewReader(r.read)}
	if r.rest != nil {
		parts = append(parts, failing{r.rest})
	} else if r.more {
		parts = append(parts, r.resp.Body)
	}
	r.resp.Body = &rejoined{Reader: io.MultiReader(parts...), Closer: r.resp.Body}
	return r.resp
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// eventError is an error within an answer.
type eventError struct{ verdict retry.Verdict }

func newEventError(x *exchange, text []byte) *eventError {
	return &eventError{judge(x.route.api, 0, nil, text)}
}

func (*eventError) Error() string {
	return "httpgate: the provider reported an error within its answer"
}

// RetryVerdict says what the error means. [retry.Classify] asks.
func (e *eventError) RetryVerdict() retry.Verdict { return e.verdict }

// judge says what an error of an API means: by its status, 0 within an answer,
// its headers and its body.
func judge(a api, status int, h http.Header, text []byte) retry.Verdict {
	var v retry.Verdict
	if a == geminiAPI {
		v = judgeGoogle(status, text)
	} else {
		v = readFault(text).verdict(status)
	}
	if hint, ok := retry.ParseRetryAfter(h, time.Now()); ok && !v.HasHint {
		v.Hint, v.HasHint = hint, true
	}
	if h.Get("X-Should-Retry") == "false" {
		switch v.Class {
		case retry.Throttled:
			v.Class = retry.QuotaExhausted
		case retry.Overloaded:
			v.Class = retry.NotRetryable
		}
	}
	if v.Class == retry.Throttled && v.Resources == 0 {
		v.Resources = a.exhausted(h)
	}
	return v
}

// judgeGoogle leaves the judgement to package retry, which knows Google's errors
// as the SDK reports them: an array, or what is no JSON, becomes the message.
func judgeGoogle(status int, text []byte) retry.Verdict {
	e := genai.APIError{Code: status, Message: string(text)}
	if status != 0 {
		e.Status = strconv.Itoa(status)
	}
	var top struct {
		Error *struct {
			Code    int              `json:"code"`
			Message string           `json:"message"`
			Status  string           `json:"status"`
			Details []map[string]any `json:"details"`
		} `json:"error"`
	}
	if json.NewDecoder(bytes.NewReader(text)).Decode(&top) == nil && top.Error != nil {
		e = genai.APIError{Code: top.Error.Code, Message: top.Error.Message, Status: top.Error.Status, Details: top.Error.Details}
		if status != 0 && e.Code == 0 {
			e.Code = status
		}
	}
	return retry.Classify(e)
}

// fault is what an error of OpenAI's or Anthropic's API says of itself. What it
// does not say is "".
type fault struct{ code, kind, message string }

// readFault reads an error:
//
//	{"error": {"code": …, "message": …, "type": …, "details": {"error_code": …}}}
//	{"type": "error", "code": …, "message": …}
//	{"type": "response.failed", "response": {"error": {…}}}
func readFault(text []byte) fault {
	type object struct {
		Code    any `json:"code"`
		Message any `json:"message"`
		Type    any `json:"type"`
		Details any `json:"details"`
	}
	var top struct {
		object
		Error    json.RawMessage `json:"error"`
		Response struct {
			Error json.RawMessage `json:"error"`
		} `json:"response"`
	}
	// Decode fills what it can; what it cannot read says nothing.
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&top)
	o := top.object
	for _, raw := range []json.RawMessage{top.Error, top.Response.Error} {
		var inner object
		if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &inner) == nil {
			o = inner
		} else if len(raw) > 0 && raw[0] == '"' {
			_ = json.Unmarshal(raw, &o.Message)
		}
	}
	f := fault{code: word(o.Code), kind: word(o.Type), message: word(o.Message)}
	if f.kind == "error" {
		f.kind = "" // of the event, not of the error
	}
	if details, ok := o.Details.(map[string]any); ok && f.code == "" {
		f.code = word(details["error_code"])
	}
	return f
}

// word is a text or a whole number; "" for all else.
func word(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		if v >= 0 && v < 1<<31 {
			return strconv.Itoa(int(v))
		}
	}
	return ""
}

// verdict is what the error means, by OpenAI's error codes guide and Anthropic's
// docs, errors page.
func (f fault) verdict(status int) retry.Verdict {
	v := retry.Verdict{Class: f.class(status)}
	if v.Class != retry.Throttled {
		return v
	}
	text := strings.ToLower(f.message)
	switch {
	case f.kind == "tokens", strings.Contains(text, "tokens per "), strings.Contains(text, "token rate limit"):
		v.Resources = retry.TotalTokens
	case f.kind == "requests", strings.Contains(text, "requests per "), strings.Contains(text, "call rate limit"):
		v.Resources = retry.Requests
	}
	if strings.Contains(text, "input tokens per ") {
		v.Resources = retry.InputTokens
	}
	if strings.Contains(text, "output tokens per ") {
		v.Resources = retry.OutputTokens
	}
	if strings.Contains(text, "per day") {
		v.Class, v.PerDay = retry.QuotaExhausted, true
	}
	return v
}

func (f fault) class(status int) retry.Class {
	if exhausted(f.code) || exhausted(f.kind) {
		return retry.QuotaExhausted
	}
	if n, err := strconv.Atoi(f.code); status == 0 && err == nil {
		status = n // within an answer, some servers send it as the code
	}
	switch {
	case status != 0 && status < 500, retry.ClassOf(status) != retry.NotRetryable:
		return retry.ClassOf(status)
	case f.kind == "overloaded_error", strings.Contains(strings.ToLower(f.code+" "+f.message), "overloaded"):
		return retry.Overloaded
	case status != 0:
		return retry.NotRetryable
	}
	switch f.code {
	case "rate_limit_exceeded", "slow_down", "too_many_requests":
		return retry.Throttled
	}
	switch f.kind {
	case "rate_limit_error", "too_many_requests", "tokens", "requests":
		return retry.Throttled
	}
	return retry.NotRetryable
}

// exhausted reports whether a code or type means that waiting does not help.
func exhausted(code string) bool {
	switch code {
	case "insufficient_quota", "credit_balance_exhausted", "billing_error", "linked_organization_billing_unavailable":
		return true
	}
	return strings.HasPrefix(code, "billing_") ||
		strings.HasSuffix(code, "_spend_limit_exceeded") || strings.HasSuffix(code, "_usage_limit_exceeded") ||
		strings.HasSuffix(code, "_spend_limit_reached")
}
