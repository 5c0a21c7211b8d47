package openaimodel

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

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
