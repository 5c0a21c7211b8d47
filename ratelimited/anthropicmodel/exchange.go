package anthropicmodel

import (
	"context"
	"net/http"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/internal/wire"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// exchange is one HTTP request and its response, as the middleware next to the
// HTTP client sees them.
type exchange struct {
	ctx  context.Context
	sent bool           // the request has left the SDK
	resp *http.Response // nil until there is one
}

// roundTrip is that middleware. It tells whoever asked by retry.WithWritten when
// the request was written, and the gate what the response's headers say is left
// of the rate limits. Those of a stream arrive before its first event.
func (x *exchange) roundTrip(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	x.sent = true
	sent := time.Now()
	resp, err := traced(req, next)
	if err != nil || resp == nil {
		return resp, err
	}
	x.resp = resp
	if resp.Request == nil { // or the SDK's error of a stream would quote its event
		resp.Request = req
	}
	if reports := wire.AnthropicLimits(resp.Header, sent, time.Now()); len(reports) > 0 {
		ratelimited.Report(x.ctx, reports...)
	}
	return resp, nil
}

// traced sends the request through a retry.Transport, of which only the trace of
// the request is wanted: what it does to responses is for SDKs that drop the
// headers of an error, and this one keeps them. So the response goes past it.
func traced(req *http.Request, next option.MiddlewareNext) (resp *http.Response, err error) {
	t := retry.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err = next(req)
		return nil, err
	})}
	_, _ = t.RoundTrip(req)
	return resp, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
