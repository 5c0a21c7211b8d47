package httpgate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/internal/wire"
	"github.com/headgate-go/headgate/retry"
)

// refusedError is a response that is no success. The gate reads what it means;
// if it is not tried again, RoundTrip returns it, as it came.
type refusedError struct {
	resp    *http.Response
	read    []byte    // of its body
	rest    io.Reader // of it
	verdict retry.Verdict
	taken   bool // RoundTrip returns the response
}

func newRefusedError(ctx context.Context, x *exchange, resp *http.Response) *refusedError {
	r := &refusedError{resp: resp, rest: resp.Body}
	if resp.StatusCode >= 400 {
		r.read, r.rest = readHead(ctx, resp.Body)
	}
	r.verdict = judge(x.route.api, resp.StatusCode, resp.Header, uncompressed(resp.Header, r.read))
	return r
}

// uncompressed is the body of an error response, or its beginning, without its
// compression; "" if that cannot be undone. Then status and headers alone tell
// what the error means, as with an empty body.
func uncompressed(h http.Header, body []byte) []byte {
	switch codingOf(h) {
	case plainCoding:
		return body
	case gzipCoding:
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil
		}
		// What was there is judged, even if it is cut off.
		text, _ := io.ReadAll(io.LimitReader(z, maxErrorBody))
		return text
	}
	return nil
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
	r.resp.Body = &rejoined{Reader: io.MultiReader(bytes.NewReader(r.read), r.rest), Closer: r.resp.Body}
	return r.resp
}

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
	now := time.Now()
	if a == geminiAPI {
		v := judgeGoogle(status, text)
		if hint, ok := retry.ParseRetryAfter(h, now); ok && !v.HasHint {
			v.Hint, v.HasHint = hint, true
		}
		v.Class = wire.Advised(v.Class, h)
		return v
	}
	f := wire.ReadFault(text)
	f.Status, f.Header = status, h
	if a == anthropicAPI {
		return f.Anthropic(now)
	}
	return f.OpenAI(now)
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
