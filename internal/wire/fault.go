// Package wire reads what the APIs of OpenAI and Anthropic say beside their
// answers: what an error means for a retry, and what the headers of a response
// tell of rate limits. The adapters of their SDKs and the gate at the HTTP layer
// have it in common, so that one error means one thing, however it came.
//
// All functions are pure, take whatever a server may send, and never panic.
package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// Fault is what an error of an API says of itself. What it does not say is the
// zero value.
type Fault struct {
	// Status of the response; 0 for an error within an answer of a status of
	// success.
	Status int
	// Code is the API's code for the error: "rate_limit_exceeded" at OpenAI,
	// "enforced_spend_limit_reached" in the details of Anthropic's.
	Code string
	// Type of the error: "tokens" at OpenAI, "rate_limit_error" at Anthropic.
	Type string
	// Message is meant for people. It may quote the request, so that it must not
	// get into logs.
	Message string
	// Header of the response; nil for an error within an answer, whose headers
	// are of before.
	Header http.Header
}

// ReadFault reads the JSON of an error: the body of a response, or an event of a
// stream. It understands the forms
//
//	{"error": {"code": …, "message": …, "type": …, "details": {"error_code": …}}}
//	{"error": "message"}
//	{"type": "error", "code": …, "message": …}
//	{"type": "response.failed", "response": {"error": {…}}}
//	{"code": …, "message": …, "type": …}
//
// and takes from others what it can. What follows the first value is not looked
// at; a text that is no JSON, or ends within that value, says nothing.
func ReadFault(text []byte) Fault {
	type object struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Type    json.RawMessage `json:"type"`
		Details json.RawMessage `json:"details"`
	}
	var top struct {
		object
		Error    json.RawMessage `json:"error"`
		Response json.RawMessage `json:"response"`
	}
	// Decode fills what it can; what it cannot read says nothing.
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&top)
	var response struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(top.Response, &response)
	o := top.object
	for _, raw := range []json.RawMessage{top.Error, response.Error} {
		var inner object
		switch {
		case len(raw) == 0 || string(raw) == "null":
		case json.Unmarshal(raw, &inner) == nil:
			o = inner
		case word(raw) != "":
			o.Message = raw
		}
	}
	f := Fault{Code: word(o.Code), Type: word(o.Type), Message: word(o.Message)}
	if f.Type == "error" {
		f.Type = "" // of the event, not of the error
	}
	var details struct {
		Code json.RawMessage `json:"error_code"`
	}
	if f.Code == "" && json.Unmarshal(o.Details, &details) == nil {
		f.Code = word(details.Code)
	}
	return f
}

// word is a JSON string's content, or the digits of a JSON number; "" for all
// else.
func word(raw json.RawMessage) string {
	var s string
	switch {
	case len(raw) == 0:
	case raw[0] == '"':
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
	default:
		if _, err := strconv.ParseUint(string(raw), 10, 32); err == nil {
			return string(raw)
		}
	}
	return s
}

// overloaded reports whether the error says so, where its status leaves that
// open: it has none, or is that of a failure of the server.
func (f Fault) overloaded() bool {
	return (f.Status == 0 || f.Status >= 500) &&
		strings.Contains(strings.ToLower(f.Code+" "+f.Type+" "+f.Message), "overloaded")
}

// perDay reports whether the message names a limit per day.
func (f Fault) perDay() bool { return strings.Contains(strings.ToLower(f.Message), "per day") }

// phrase is how a message names a limit.
type phrase struct {
	text     string
	resource retry.Resource
}

// named are the limits that the message names.
func (f Fault) named(phrases []phrase) (r retry.Resource) {
	text := strings.ToLower(f.Message)
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			r |= p.resource
		}
	}
	return r
}

// verdict completes what an error means: by its class and, if that is Throttled,
// by the limits that it was about.
func (f Fault) verdict(class retry.Class, limits func() retry.Resource, now time.Time) retry.Verdict {
	v := retry.Verdict{Class: class}
	if class == retry.Throttled {
		v.Resources = limits()
		if v.PerDay = f.perDay(); v.PerDay {
			v.Class = retry.QuotaExhausted
		}
	}
	v.Class = Advised(v.Class, f.Header)
	if v.Class != retry.NotRetryable {
		v.Hint, v.HasHint = retry.ParseRetryAfter(f.Header, now)
	}
	return v
}

// Advised is the class of an error with what its sender says of retries in the
// header x-should-retry, which both SDKs heed: "false" makes of Throttled a
// QuotaExhausted and of Overloaded a NotRetryable; "true", which tells that
// another try is safe, makes of NotRetryable an Overloaded, whose retries are
// bounded by a budget. Spent quotas stay spent. h may be nil.
func Advised(c retry.Class, h http.Header) retry.Class {
	switch advice := h.Get("X-Should-Retry"); {
	case advice == "true" && c == retry.NotRetryable:
		return retry.Overloaded
	case advice == "false" && c == retry.Throttled:
		return retry.QuotaExhausted
	case advice == "false" && c == retry.Overloaded:
		return retry.NotRetryable
	}
	return c
}
