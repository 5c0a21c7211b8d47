package openaimodel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/headgate-go/headgate/internal/wire"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// exchange is one request and its answer, as the innermost middleware sees them.
// It belongs to the goroutine that makes the call.
type exchange struct {
	sent   bool
	resp   *http.Response // nil until there is one
	broken error          // what ended the reading of the answer, other than its end
}

// options are those of one call: the caller's, and then what must hold.
func (x *exchange) options(ctx context.Context, own []option.RequestOption) []option.RequestOption {
	return append(slices.Clone(own),
		option.WithMaxRetries(0),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			return x.send(ctx, req, next)
		}))
}

// send passes the request on and reads the head of its answer.
func (x *exchange) send(ctx context.Context, req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	x.sent = true
	sent := time.Now()
	resp, err := traced(req, next)
	if resp == nil {
		return resp, err
	}
	x.resp = resp
	if reports := wire.OpenAILimits(resp.Header, sent); len(reports) > 0 {
		ratelimited.Report(ctx, reports...)
	}
	if resp.StatusCode < 400 && resp.Body != nil {
		resp.Body = &watched{ReadCloser: resp.Body, broken: &x.broken}
	}
	return resp, err
}

// traced passes the request on through a retry.Transport, which tells the gate
// when it was written. That transport also rewrites the bodies of errors for
// SDKs that drop their headers; this one keeps them, so it is shown no answer.
func traced(req *http.Request, next option.MiddlewareNext) (resp *http.Response, err error) {
	t := retry.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err = next(req)
		return &http.Response{StatusCode: http.StatusOK}, nil
	})}
	_, _ = t.RoundTrip(req) // what it returns is the one line above
	return resp, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// watched is the body of an answer that notes why it could not be read to its
// end, so that a broken connection and an answer that makes no sense can be told
// apart.
type watched struct {
	io.ReadCloser
	broken *error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		*w.broken = err
	}
	return n, err
}

// header is that of the answer; nil if there is none.
func (x *exchange) header() http.Header {
	if x.resp == nil {
		return nil
	}
	return x.resp.Header
}

// reported is an error of the SDK as it is passed on.
//
// The cause of a context that has ended is often the error of a sibling: a 429
// that another call met, for instance. Without the context's own error beside it
// it would be taken for an answer to this call.
func (x *exchange) reported(ctx context.Context, err error) error {
	err = x.explained(err)
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// explained says what an error of the SDK means, without quoting the answer.
func (x *exchange) explained(err error) error {
	if known, ok := explain(err); ok {
		if known.request == "" {
			known.request = requestID(x.header())
		}
		return known
	}
	switch {
	case !x.sent && retry.Classify(err) == (retry.Verdict{}) && !endedByContext(err):
		return &unsentError{err}
	case x.resp == nil:
		return err // the connection's
	case x.resp.StatusCode >= 400: // the SDK cannot read the body, as that of a proxy
		return answeredError(x.resp, err)
	case x.broken != nil, errors.Is(err, ErrIncomplete), endedByContext(err):
		return err
	}
	return &unreadable{why: "it is no answer of this API", sdk: err}
}

func endedByContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// explain makes an [Error] of the SDK's two types of errors, and keeps those
// that are one already.
func explain(err error) (*Error, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e, true
	}
	if e, ok := errors.AsType[*openai.Error](err); ok && e != nil {
		return apiError(e, err), true
	}
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok && e != nil {
		return eventError(e.Event.Data, err), true
	}
	return nil, false
}
