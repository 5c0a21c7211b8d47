package openaimodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/headgate-go/headgate/retry"
)

// ErrIncomplete is yielded after the last item of a stream that ended cleanly
// before its answer was complete: a choice without a finish reason, a response
// without the event that completes it. The SDK takes that for a normal end. It
// also matches io.ErrUnexpectedEOF.
var ErrIncomplete = fmt.Errorf("openaimodel: the stream ended before the answer was complete: %w", io.ErrUnexpectedEOF)

// ErrUnreadable is matched by the error for an answer that is no answer of this
// API: JSON that is cut or malformed, another content type. Unlike the SDK's own
// error, which it wraps, its text does not quote the answer.
var ErrUnreadable = errors.New("openaimodel: the answer cannot be read")

// unreadable is an error that matches ErrUnreadable.
type unreadable struct {
	why string
	sdk error // the SDK's error, or nil
}

func (e *unreadable) Error() string { return ErrUnreadable.Error() + ": " + e.why }

func (e *unreadable) Is(target error) bool { return target == ErrUnreadable }

func (e *unreadable) Unwrap() error { return e.sdk }

// unsentError is a request that was not sent because it could not be made.
type unsentError struct{ cause error }

var errNilRequest error = &unsentError{errors.New("it is nil")}

func (e *unsentError) Error() string {
	return "openaimodel: the request was not sent: " + e.cause.Error()
}

func (e *unsentError) Unwrap() error { return e.cause }

// Denied tells package ratelimited that nothing was sent, so that nothing is
// charged.
func (e *unsentError) Denied() bool { return true }

// Error is what the API answered in place of an answer, or reported in the
// middle of one. It wraps the SDK's error, an *openai.Error or an
// *ssestream.StreamError, which holds the message; the text of an Error does not,
// because messages may quote the request.
type Error struct {
	status  int
	code    string
	request string
	verdict retry.Verdict
	sdk     error
}

// StatusCode is the HTTP status of the answer; 0 for an error within an answer
// of the status 200.
func (e *Error) StatusCode() int { return e.status }

// Code is the API's code for the error, such as "rate_limit_exceeded", or its
// type where it has no code; "" where it has neither.
func (e *Error) Code() string { return e.code }

// RequestID is the API's identifier of the request, for its support; "" if it
// sent none.
func (e *Error) RequestID() string { return e.request }

// RetryVerdict says what the error means for a retry. [retry.Classify] asks.
func (e *Error) RetryVerdict() retry.Verdict { return e.verdict }

// Unwrap is the SDK's error. For an answer that the SDK takes for a normal one,
// such as an event of the type "error" of the Responses API, it is an
// *ssestream.StreamError that holds it.
func (e *Error) Unwrap() error { return e.sdk }

// Error tells status, code and request, and nothing that the API put into words.
func (e *Error) Error() string {
	text := "openaimodel: the API reported an error within its answer"
	if e.status != 0 {
		text = strings.TrimSuffix(fmt.Sprintf("openaimodel: the API answered %d %s", e.status, http.StatusText(e.status)), " ")
	}
	if e.code != "" {
		text += ", " + e.code
	}
	if e.request != "" {
		text += " (request " + e.request + ")"
	}
	return text
}

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
	f := fault{status: e.StatusCode, code: word(e.JSON.Code.Raw()), kind: e.Type, message: e.Message}
	if f.code == "" {
		f.code = e.Code
	}
	if e.Response != nil {
		f.header = e.Response.Header
	}
	return f.error(err)
}

// answeredError is the error of an answer whose body the SDK cannot read.
func answeredError(resp *http.Response, err error) *Error {
	return fault{status: resp.StatusCode, header: resp.Header}.error(err)
}

// eventError reads an error that came within an answer, as an event of a stream
// or in place of a whole answer:
//
//	{"error": {"code": …, "message": …, "type": …}}
//	{"type": "error", "code": …, "message": …}
//
// err is the SDK's error, or nil where it took this for an answer.
func eventError(data []byte, err error) *Error {
	if err == nil {
		err = &ssestream.StreamError{Message: "error event", Event: ssestream.Event{Type: "error", Data: data}}
	}
	type object struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Type    json.RawMessage `json:"type"`
	}
	var top struct {
		object
		Error json.RawMessage `json:"error"`
	}
	// Unmarshal fills what it can; what it cannot read says nothing.
	_ = json.Unmarshal(data, &top)
	o := top.object
	var inner object
	if json.Unmarshal(top.Error, &inner) == nil && len(top.Error) > 0 && string(top.Error) != "null" {
		o = inner
	} else if word(string(top.Error)) != "" {
		o.Message = top.Error
	}
	f := fault{code: word(string(o.Code)), kind: word(string(o.Type)), message: word(string(o.Message))}
	if f.kind == "error" {
		f.kind = "" // of the event, not of the error
	}
	return f.error(err)
}

// word is a JSON string's content, or the digits of a JSON number; "" for all
// else.
func word(raw string) string {
	raw = strings.TrimSpace(raw)
	var s string
	if strings.HasPrefix(raw, `"`) {
		if json.Unmarshal([]byte(raw), &s) != nil {
			return ""
		}
		return s
	}
	if _, err := strconv.ParseUint(raw, 10, 32); err == nil {
		return raw
	}
	return ""
}

// error makes the error of a fault.
func (f fault) error(sdk error) *Error {
	e := &Error{status: f.status, request: requestID(f.header), verdict: f.verdict(time.Now()), sdk: sdk}
	if e.code = identifier(f.code); e.code == "" {
		e.code = identifier(f.kind)
	}
	return e
}

// requestID is what the API calls the request: x-request-id at OpenAI,
// apim-request-id at Azure.
func requestID(h http.Header) string {
	if id := identifier(h.Get("X-Request-Id")); id != "" {
		return id
	}
	return identifier(h.Get("Apim-Request-Id"))
}

// identifier is s if it has the form of an identifier, so that it can go into
// logs whatever it is; else "".
func identifier(s string) string {
	if len(s) > 64 {
		return ""
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return ""
		}
	}
	return s
}
