package retry

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxErrorBody is the largest body of an error response that Transport reads
// and rewrites, in bytes: 1 MiB.
const maxErrorBody = 1 << 20

// Transport is an [http.RoundTripper] that lets what a provider says in headers
// about waiting reach [Classify] through SDKs that keep no headers of an error,
// as google.golang.org/genai. The zero value is ready to use:
//
//	client, err := genai.NewClient(ctx, &genai.ClientConfig{
//		HTTPClient: &http.Client{Transport: &retry.Transport{}},
//	})
//
// In a response with a status of 400 or above and a usable Retry-After or
// retry-after-ms header ([ParseRetryAfter]; a date is compared with the local
// clock), the JSON body gets a google.rpc.RetryInfo with that delay among the
// details of its error, unless a usable one is there already. In detail:
//
//   - {"error": {…}}: the detail is appended; a missing code is set to the
//     status code; everything else stays as it is. Details that are no list
//     are not an error of this API: the response is left alone.
//   - [{"error": {…}}]: the first element takes the place of the array, which
//     the SDK could not decode.
//   - JSON objects without an error object get one, whose message is the body.
//   - Anything else is replaced by an error object with the status code, the
//     status line and the body as message (at most 8 KiB of it).
//
// Content-Length, Content-Type and Transfer-Encoding are made to fit, the
// original body is closed, all other headers stay. Bodies that are larger than
// 1 MiB, that break off, or that are compressed although the caller did not
// leave compression to net/http, are passed on as they came, byte for byte.
// Responses below 400, streams among them, are not touched.
//
// Transport also tells when a request has been written; see [WithWritten].
//
// A Transport is safe for concurrent use if its Base is. It does not modify
// requests, and cancellation is Base's: a cancelled request ends the reading of
// an error body too, and its reader then meets the error.
type Transport struct {
	// Base makes the calls. Defaults to http.DefaultTransport.
	Base http.RoundTripper
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base().RoundTrip(traced(req))
	if err != nil || resp == nil || resp.StatusCode < 400 || req.Method == http.MethodHead {
		return resp, err
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return resp, nil
	}
	hint, ok := ParseRetryAfter(resp.Header, time.Now())
	if !ok {
		return resp, nil
	}
	return withRetryInfo(resp, hint), nil
}

// CloseIdleConnections closes the idle connections of Base, if it has such a
// method. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// withRetryInfo is resp with the hint in its body, or resp with a body that
// reads exactly as before.
func withRetryInfo(resp *http.Response, hint time.Duration) *http.Response {
	original := resp.Body
	if original == nil {
		original = http.NoBody
	}
	body, err := io.ReadAll(io.LimitReader(original, maxErrorBody+1))

	out := *resp
	if err != nil {
		out.Body = readCloser{io.MultiReader(bytes.NewReader(body), failingReader{err}), original}
		return &out
	}
	if len(body) > maxErrorBody {
		out.Body = readCloser{io.MultiReader(bytes.NewReader(body), original), original}
		return &out
	}
	original.Close()
	changed, ok := addRetryInfo(body, resp.StatusCode, resp.Status, hint)
	if !ok {
		out.Body = io.NopCloser(bytes.NewReader(body))
		return &out
	}
	out.Body = io.NopCloser(bytes.NewReader(changed))
	out.ContentLength = int64(len(changed))
	out.TransferEncoding = nil
	out.Header = resp.Header.Clone()
	out.Header.Del("Transfer-Encoding")
	out.Header.Set("Content-Length", strconv.Itoa(len(changed)))
	out.Header.Set("Content-Type", "application/json; charset=utf-8")
	return &out
}

// readCloser reads from one and closes the other.
type readCloser struct {
	io.Reader
	io.Closer
}

// failingReader always fails with err.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// writtenKey is the context key of WithWritten's function.
type writtenKey struct{}

// WithWritten returns a context for a request, or for a call that makes
// requests, whose [Transport] calls f as soon as a request has been written
// completely, headers and body, without an error. From then on the provider may
// have counted the call, whatever becomes of the answer.
//
// f is called at most once for each request that passes through the Transport,
// also if net/http writes it again on another connection. A call that makes
// several requests (a redirect, an SDK that retries or continues by itself)
// calls f for each. f runs on a goroutine of the HTTP client and must not block:
// net/http flushes the last bytes of an HTTP/1 request, at most its write
// buffer, right after f, so f can also be called for a request whose flush then
// fails. f may be called after the call has returned. It is never called if Base
// does not report to [net/http/httptrace]; [http.Transport] does, and so does
// what wraps one and keeps the request's context.
//
// A trace that is already in ctx goes on working, and so does a function of an
// earlier WithWritten: f runs before it. A nil f changes nothing.
func WithWritten(ctx context.Context, f func()) context.Context {
	if f == nil {
		return ctx
	}
	if earlier, ok := ctx.Value(writtenKey{}).(func()); ok {
		own := f
		f = func() {
			own()
			earlier()
		}
	}
	return context.WithValue(ctx, writtenKey{}, f)
}

// traced is req with a trace that calls the function of WithWritten; req itself
// if its context has none.
func traced(req *http.Request) *http.Request {
	written, ok := req.Context().Value(writtenKey{}).(func())
	if !ok {
		return req
	}
	var once sync.Once
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				once.Do(written)
			}
		},
	}))
}
