package anthropicmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/headgate-go/headgate/retry"
)

// ErrIncomplete is yielded after the last event of a stream that ended cleanly
// before it had a stop reason: the connection was closed early and the answer is
// not whole. The SDK takes it for a normal end. It also matches
// io.ErrUnexpectedEOF.
var ErrIncomplete = fmt.Errorf("anthropicmodel: the stream ended without a stop reason: %w", io.ErrUnexpectedEOF)

// ErrUnreadable is matched by the error for an answer that is no answer of the
// Messages API: JSON that is cut or malformed, or something else with a status
// of success. Its text does not quote the answer. Where the SDK had an error, it
// can be unwrapped.
var ErrUnreadable = errors.New("anthropicmodel: the answer cannot be read")

// unreadable is an error that matches ErrUnreadable.
type unreadable struct {
	why string
	sdk error // the SDK's error, or nil
}

func (e *unreadable) Error() string { return ErrUnreadable.Error() + ": " + e.why }

func (e *unreadable) Is(target error) bool { return target == ErrUnreadable }

func (e *unreadable) Unwrap() error { return e.sdk }

// unsent is the error of a request that never left the SDK, which would refuse
// it again.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// Denied tells package ratelimited that nothing was sent, so that nothing is
// charged or tried again.
func (e *unsent) Denied() bool { return true }

// apiError is an error of the API. The SDK's own text holds the whole body,
// which may quote the prompt.
type apiError struct {
	sdk     *anthropic.Error
	verdict retry.Verdict
}

func (e *apiError) Error() string {
	text := "anthropicmodel: the API answered " + strconv.Itoa(e.sdk.StatusCode)
	for _, name := range []string{string(e.sdk.Type()), string(e.sdk.ErrorCode())} {
		if isName(name) {
			text += " " + name
		}
	}
	if isName(e.sdk.RequestID) {
		text += " (request " + e.sdk.RequestID + ")"
	}
	return text
}

func (e *apiError) Unwrap() error { return e.sdk }

// RetryVerdict tells retry.Classify what the error means.
func (e *apiError) RetryVerdict() retry.Verdict { return e.verdict }

// StatusCode is the HTTP status of the response, 200 if the error came as an
// event of a stream.
func (e *apiError) StatusCode() int { return e.sdk.StatusCode }

// isName reports whether s is what the API calls things by, and not a text.
func isName(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !letter {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// reported is an error of the SDK as it is passed on; nil stays nil.
//
// The cause of a context that has ended is often the error of a sibling: a 429
// that another call met, for instance. Without the context's own error beside it
// it would be taken for an answer to this call.
func (x *exchange) reported(err error) error {
	if err == nil {
		return nil
	}
	ended := x.ctx.Err()
	if ended != nil && errors.Is(err, ended) {
		return err
	}
	switch e, isAPI := errors.AsType[*anthropic.Error](err); {
	case isAPI && e != nil:
		verdict, _ := Classify(err)
		err = &apiError{sdk: e, verdict: verdict}
	case !x.sent:
		if retry.Classify(err).Class != retry.NotSent { // fetching a token may fail like that
			err = &unsent{err}
		}
	default:
		err = withoutQuotes(err)
	}
	if ended != nil {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// withoutQuotes replaces an error of the SDK that comes from decoding an answer;
// others it returns as they are.
func withoutQuotes(err error) error {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &unreadable{"it is no JSON", err}
	}
	for _, prefix := range decoding {
		if strings.HasPrefix(err.Error(), prefix) {
			return &unreadable{"it is no message", err}
		}
	}
	return err
}

// decoding are the beginnings of the SDK's errors about an answer that it
// cannot decode. They have no type of their own.
var decoding = []string{
	"apijson: ", "error parsing response json: ", "expected destination type of ", "json: ", "received error while streaming: ",
}

// readable reports what is wrong with a message that the SDK has read, if it is
// none: it is lenient.
func readable(m *anthropic.Message) error {
	switch {
	case m == nil:
		return &unreadable{why: "it is null"}
	case !strings.HasPrefix(strings.TrimSpace(m.RawJSON()), "{"):
		return &unreadable{why: "it is no object"}
	case m.Type != "" && m.Type != "message":
		return &unreadable{why: "its type is not that of a message"}
	}
	return nil
}
