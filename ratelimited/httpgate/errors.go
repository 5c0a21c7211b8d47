package httpgate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// ErrRoute is matched by every [RouteError].
var ErrRoute = errors.New("httpgate: request is not let through")

// RouteError says that a request was refused because of what it asks for: it
// opens a live session, which would go round the gate, or a [Transport] does not
// know what it uses. Nothing was sent. It matches [ErrRoute]; retry.Classify
// takes it for an own refusal, which is never retried.
type RouteError struct {
	// Live is true if the request opens a live session.
	Live bool
	// Method and Path of the request; the query, which may hold a key, is not
	// kept.
	Method, Path string
}

// Error says what was refused and what can be done.
func (e *RouteError) Error() string {
	if e.Live {
		return fmt.Sprintf("httpgate: %s %s opens a live session, which would go round the gate; use a client without it", e.Method, e.Path)
	}
	return fmt.Sprintf("httpgate: %s %s is not known: nothing would count it; see Config.Free and Config.Unknown", e.Method, e.Path)
}

// Is matches [ErrRoute].
func (e *RouteError) Is(target error) bool { return target == ErrRoute }

// Denied tells retry layers that this is an own refusal, not the provider's.
func (e *RouteError) Denied() bool { return true }

// ownRefusal is a refusal of Headgate's as a client of the provider sees it.
type ownRefusal struct {
	status  int
	message string
	after   time.Duration // when to try again; 0 if that is not known
	again   bool          // another try makes sense
}

// refusalOf tells which response an error becomes; false if it stays an error.
func refusalOf(err error) (o ownRefusal, ok bool) {
	switch retry.Classify(err).Class {
	case retry.NeverFits:
		return ownRefusal{status: http.StatusBadRequest, message: err.Error()}, true
	case retry.Denied:
	default:
		return o, false
	}
	o = ownRefusal{status: http.StatusTooManyRequests, message: err.Error()}
	if e, is := errors.AsType[*budget.DeniedError](err); is {
		o.after = e.RetryAfter
	} else if e, is := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); is {
		o.after = e.RetryAfter()
	}
	_, waited := errors.AsType[*ratelimited.WaitError](err)
	o.again = waited || o.after > 0
	if errors.Is(err, ratelimited.ErrClosed) {
		o.status, o.again = http.StatusServiceUnavailable, false
	}
	return o, true
}

// synthetic is the response that an own refusal becomes; false if it stays an
// error.
func (x *exchange) synthetic(err error) (*http.Response, bool) {
	o, ok := refusalOf(err)
	if !ok || x.req.Context().Err() != nil { // the caller is gone
		return nil, false
	}
	text, err := json.Marshal(o.body(x.route.api))
	if err != nil {
		return nil, false
	}
	h := http.Header{
		"Content-Type":   {"application/json; charset=utf-8"},
		"Content-Length": {strconv.Itoa(len(text))},
		"X-Should-Retry": {strconv.FormatBool(o.again)},
	}
	if o.after > 0 && o.again {
		h.Set("Retry-After", strconv.FormatInt(retry.AfterSeconds(o.after), 10))
	}
	return &http.Response{
		Status:     strconv.Itoa(o.status) + " " + http.StatusText(o.status),
		StatusCode: o.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, ContentLength: int64(len(text)), Request: x.req,
		Body: io.NopCloser(strings.NewReader(string(text))),
	}, true
}

// body is the refusal in the error format of an API.
func (o ownRefusal) body(a api) any {
	type object = map[string]any
	pick := func(tooMany, invalid, unavailable string) string {
		switch o.status {
		case http.StatusBadRequest:
			return invalid
		case http.StatusServiceUnavailable:
			return unavailable
		}
		return tooMany
	}
	switch a {
	case geminiAPI:
		e := object{
			"code": o.status, "message": o.message,
			"status": pick("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNAVAILABLE"),
		}
		if o.after > 0 && o.again {
			e["details"] = []any{object{
				"@type":      "type.googleapis.com/google.rpc.RetryInfo",
				"retryDelay": strconv.FormatInt(retry.AfterSeconds(o.after), 10) + "s",
			}}
		}
		return object{"error": e}
	case anthropicAPI:
		return object{"type": "error", "error": object{
			"type":    pick("rate_limit_error", "invalid_request_error", "overloaded_error"),
			"message": o.message,
		}}
	default:
		return object{"error": object{
			"code":    pick("rate_limit_exceeded", "request_too_large", "service_unavailable"),
			"message": o.message, "param": nil,
			"type": pick("rate_limit_error", "invalid_request_error", "server_error"),
		}}
	}
}
