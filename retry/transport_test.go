package retry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/retry"
)

func TestRetryAfterHeaderReachesClassifyThroughTheSDK(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, value, body string
		want                retry.Verdict
	}{
		"error without details": {"Retry-After", "7", `{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED"}}`,
			hinted(retry.Throttled, 7*time.Second, 0)},
		"error with other details": {"Retry-After", "7", errorBody(429, "RESOURCE_EXHAUSTED", overQuota, helpOnly, quotaFailure(requestsPerMinute)),
			hinted(retry.Throttled, 7*time.Second, retry.Requests)},
		"error with a hint of its own": {"Retry-After", "7", errorBody(429, "RESOURCE_EXHAUSTED", overQuota, retryInfo("3s")),
			hinted(retry.Throttled, 3*time.Second, 0)},
		"error in an array":   {"Retry-After", "7", "[" + errorBody(429, "RESOURCE_EXHAUSTED", vertexShared) + "]", hinted(retry.Throttled, 7*time.Second, 0)},
		"error without code":  {"Retry-After", "7", `{"error":{"message":"slow down"}}`, hinted(retry.Throttled, 7*time.Second, 0)},
		"plain text":          {"Retry-After", "7", "slow down", hinted(retry.Throttled, 7*time.Second, 0)},
		"no body":             {"Retry-After", "7", "", hinted(retry.Throttled, 7*time.Second, 0)},
		"milliseconds":        {"retry-after-ms", "1250.5", "", hinted(retry.Throttled, 1250500*time.Microsecond, 0)},
		"zero":                {"Retry-After", "0", "", hinted(retry.Throttled, 0, 0)},
		"unusable":            {"Retry-After", "-5", "slow down", retry.Verdict{Class: retry.Throttled}},
		"beyond every window": {"Retry-After", "9999999999", "", hinted(retry.Throttled, 1<<63-1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(c.header, c.value)
				w.WriteHeader(http.StatusTooManyRequests)
				io.WriteString(w, c.body)
			}))
			defer server.Close()
			client := newGemini(t, server.URL, &retry.Transport{Base: server.Client().Transport})

			if got := retry.Classify(unary(t.Context(), client)); got != c.want {
				t.Errorf("unary: verdict %+v, want %+v", got, c.want)
			}
			items, err := stream(t.Context(), client)
			if got := retry.Classify(err); items != 0 || got != c.want {
				t.Errorf("stream: %d items, verdict %+v, want none and %+v", items, got, c.want)
			}
		})
	}
}

func TestHeaderBecomesARetryInfoDetail(t *testing.T) {
	t.Parallel()
	rt := &retry.Transport{Base: answer(429, http.Header{"Retry-After": {"7"}}, errorBody(429, "RESOURCE_EXHAUSTED", overQuota, helpOnly))}
	err := unary(t.Context(), newGemini(t, "http://gemini.invalid", rt))
	e, ok := errors.AsType[genai.APIError](err)
	if !ok {
		t.Fatalf("%T, want a genai.APIError", err)
	}
	want := map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
	if len(e.Details) != 2 || !reflect.DeepEqual(e.Details[1], want) || e.Code != 429 || e.Message != overQuota {
		t.Errorf("error %+v, want the original with one more detail, %v", e, want)
	}
}

func TestEveryDelayPassesThroughABodyUnchanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.StringMatching(`[0-9]{1,12}(\.[0-9]{1,6})?`).Draw(t, "milliseconds")
		header := http.Header{"Retry-After-Ms": {ms}}
		want, _ := retry.ParseRetryAfter(header, time.Time{})
		resp := roundTrip(t, answer(503, header, ""), http.MethodPost)
		var body struct{ Error genai.APIError }
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if got := retry.Classify(body.Error); got != hinted(retry.Overloaded, want, 0) {
			t.Fatalf("retry-after-ms %s: verdict %+v, want a hint of %v", ms, got, want)
		}
	})
}

// fatal is what *testing.T and *rapid.T share.
type fatal interface {
	Helper()
	Fatalf(string, ...any)
}

// roundTrip sends one request through a Transport around base.
func roundTrip(t fatal, base http.RoundTripper, method string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, "http://gemini.invalid/v1beta/models/m:generateContent", strings.NewReader("{}"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	resp, err := (&retry.Transport{Base: base}).RoundTrip(req)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return resp
}

func TestErrorBodiesAreCompletedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	const info = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}`
	long := strings.Repeat("é", 5000) // 10,000 bytes
	for name, c := range map[string]struct {
		status     int
		body, want string
	}{
		"unknown members stay": {429,
			`{"error":{"code":429,"errors":[{"reason":"rateLimitExceeded","n":12345678901234567890}],"details":[{"a":1}]},"id":"<x>"}`,
			`{"error":{"code":429,"errors":[{"reason":"rateLimitExceeded","n":12345678901234567890}],"details":[{"a":1},` + info + `]},"id":"<x>"}`},
		"null details": {429,
			`{"error":{"code":429,"details":null}}`, `{"error":{"code":429,"details":[` + info + `]}}`},
		"unusable hint is joined by a usable one": {429,
			`{"error":{"code":429,"details":["x",{"@type":"google.rpc.RetryInfo","retryDelay":"-1s"}]}}`,
			`{"error":{"code":429,"details":["x",{"@type":"google.rpc.RetryInfo","retryDelay":"-1s"},` + info + `]}}`},
		"code in the body wins": {503,
			`{"error":{"code":429}}`, `{"error":{"code":429,"details":[` + info + `]}}`},
		"code 0 is filled in": {503,
			`{"error":{"code":0}}`, `{"error":{"code":503,"details":[` + info + `]}}`},
		"code of another type stays": {429,
			`{"error":{"code":"rate_limit_exceeded"}}`, `{"error":{"code":"rate_limit_exceeded","details":[` + info + `]}}`},
		"array, with a hint of its own": {429,
			`[{"error":{"code":429,"details":[{"@type":"google.rpc.RetryInfo","retryDelay":"1s"}]}}, {}]`,
			`{"error":{"code":429,"details":[{"@type":"google.rpc.RetryInfo","retryDelay":"1s"}]}}`},
		"array of something else": {429,
			`["busy"]`, `{"error":{"code":429,"message":"[\"busy\"]","status":"429 Too Many Requests","details":[` + info + `]}}`},
		"array of another object": {429,
			`[{"detail":"busy"}]`, `{"error":{"code":429,"message":"[{\"detail\":\"busy\"}]","status":"429 Too Many Requests","details":[` + info + `]}}`},
		"empty array": {429,
			`[]`, `{"error":{"code":429,"message":"[]","status":"429 Too Many Requests","details":[` + info + `]}}`},
		"object without an error": {429,
			`{"detail":"busy"}`, `{"detail":"busy","error":{"code":429,"message":"{\"detail\":\"busy\"}","status":"429 Too Many Requests","details":[` + info + `]}}`},
		"error that is a text": {429,
			`{"error":"busy"}`, `{"error":{"code":429,"message":"{\"error\":\"busy\"}","status":"429 Too Many Requests","details":[` + info + `]}}`},
		"error that is null": {429,
			`{"error":null}`, `{"error":{"code":429,"message":"{\"error\":null}","status":"429 Too Many Requests","details":[` + info + `]}}`},
		"JSON null": {503,
			`null`, `{"error":{"code":503,"message":"null","status":"503 Service Unavailable","details":[` + info + `]}}`},
		"HTML": {503,
			"<html>busy</html>\n", `{"error":{"code":503,"message":"<html>busy</html>","status":"503 Service Unavailable","details":[` + info + `]}}`},
		"cut JSON": {503,
			`{"error":{"code":5`, `{"error":{"code":503,"message":"{\"error\":{\"code\":5","status":"503 Service Unavailable","details":[` + info + `]}}`},
		"long text is cut between runes": {503,
			"x" + long, `{"error":{"code":503,"message":"x` + long[:8190] + `","status":"503 Service Unavailable","details":[` + info + `]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{"Retry-After": {"7"}, "Content-Type": {"text/plain"}, "Transfer-Encoding": {"chunked"}, "X-Request-Id": {"r1"}}
			resp := roundTrip(t, answer(c.status, header, c.body), http.MethodPost)
			got, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !sameJSON(t, got, []byte(c.want)) {
				t.Errorf("body %s\nwant %s", got, c.want)
			}
			if strings.Contains(c.want, "<") != bytes.Contains(got, []byte("<")) {
				t.Errorf("body %s: characters were escaped", got)
			}
			if resp.ContentLength != int64(len(got)) || resp.Header.Get("Content-Length") != fmt.Sprint(len(got)) || resp.Header.Get("Transfer-Encoding") != "" {
				t.Errorf("%d bytes, but ContentLength %d, headers %v", len(got), resp.ContentLength, resp.Header)
			}
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
				t.Errorf("Content-Type %q for a JSON body", resp.Header.Get("Content-Type"))
			}
			if resp.StatusCode != c.status || resp.Header.Get("Retry-After") != "7" || resp.Header.Get("X-Request-Id") != "r1" {
				t.Errorf("status %d, headers %v: more than the body was changed", resp.StatusCode, resp.Header)
			}
		})
	}
}

// sameJSON compares two JSON texts without regard to the order of members.
// Numbers are compared digit by digit.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	decode := func(text []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Errorf("%v in %s", err, text)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func TestResponsesThatNeedNothingPassUntouched(t *testing.T) {
	t.Parallel()
	after7 := http.Header{"Retry-After": {"7"}}
	big := `{"error":{"code":429,"message":"` + strings.Repeat("x", 1<<20) + `"}}`
	own := errorBody(429, "RESOURCE_EXHAUSTED", overQuota, retryInfo("3s")) + "\n "
	for name, c := range map[string]struct {
		method string
		status int
		header http.Header
		body   string
	}{
		"success":               {"POST", 200, after7, `{"candidates":[]}`},
		"redirect":              {"POST", 307, after7, "elsewhere"},
		"no header":             {"POST", 429, nil, "slow  down"},
		"no header, array":      {"POST", 429, nil, "[" + own + "]"},
		"unusable header":       {"POST", 429, http.Header{"Retry-After": {"soon"}}, "slow  down"},
		"hint in the body":      {"POST", 429, after7, own},
		"details of other kind": {"POST", 429, after7, `{"type":"error", "error":{"details":{"error_code":"x"}}}`},
		"compressed":            {"POST", 429, http.Header{"Retry-After": {"7"}, "Content-Encoding": {"gzip"}}, "\x1f\x8b\x08"},
		"HEAD":                  {"HEAD", 429, after7, ""},
		"larger than 1 MiB":     {"POST", 429, after7, big},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := roundTrip(t, answer(c.status, c.header, c.body), c.method)
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != c.body {
				t.Errorf("%d bytes, error %v; want the %d bytes that came", len(got), err, len(c.body))
			}
			if resp.ContentLength != int64(len(c.body)) || len(resp.Header) != len(c.header) {
				t.Errorf("ContentLength %d, headers %v; want %d, %v", resp.ContentLength, resp.Header, len(c.body), c.header)
			}
		})
	}
}

func TestSuccessIsTheResponseThatBaseGave(t *testing.T) {
	t.Parallel()
	want := &http.Response{StatusCode: 200, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody}
	base := roundTripper(func(*http.Request) (*http.Response, error) { return want, nil })
	if got := roundTrip(t, base, http.MethodPost); got != want {
		t.Errorf("a successful response was replaced: %+v", got)
	}
}

func TestBodyThatBreaksOffFailsForItsReaderAsBefore(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection lost")
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := answer(429, http.Header{"Retry-After": {"7"}}, "")(r)
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"error":`), failing{broken}))
		return resp, err
	})
	resp := roundTrip(t, base, http.MethodPost)
	got, err := io.ReadAll(resp.Body)
	if string(got) != `{"error":` || !errors.Is(err, broken) {
		t.Errorf("read %q, %v; want what came and then the error", got, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// watched is a body that knows whether it was closed.
type watched struct {
	io.Reader
	closed *int
}

func (w watched) Close() error { *w.closed++; return nil }

func TestOriginalBodyIsClosed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"rewritten":      "slow down",
		"kept":           errorBody(429, "", "", retryInfo("3s")),
		"too large":      strings.Repeat("x", 1<<20+1),
		"larger by much": strings.Repeat("x", 3<<20),
	} {
		closed := 0
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := answer(429, http.Header{"Retry-After": {"7"}}, "")(r)
			resp.Body = watched{strings.NewReader(body), &closed}
			return resp, err
		})
		resp := roundTrip(t, base, http.MethodPost)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		resp.Body.Close()
		if closed == 0 {
			t.Errorf("%s: the original body was left open", name)
		}
	}
}

func TestNilBodyIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 429, Status: "429 Too Many Requests", Header: http.Header{"Retry-After": {"7"}}}, nil
	})
	body, err := io.ReadAll(roundTrip(t, base, http.MethodPost).Body)
	if err != nil || !strings.Contains(string(body), `"7s"`) {
		t.Errorf("body %q, %v; want an error object with the hint", body, err)
	}
}

func TestRequestIsNotModified(t *testing.T) {
	t.Parallel()
	ctx := retry.WithWritten(t.Context(), func() {})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gemini.invalid/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Goog-Api-Key", "test")
	before := *req
	header := req.Header.Clone()
	resp, err := (&retry.Transport{Base: answer(429, http.Header{"Retry-After": {"7"}}, "")}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if req.Context() != ctx || req.URL != before.URL || req.Body != before.Body || !reflect.DeepEqual(req.Header, header) {
		t.Error("the request was modified")
	}
}

func TestResponseOfBaseIsNotModified(t *testing.T) {
	t.Parallel()
	header := http.Header{"Retry-After": {"7"}, "Content-Type": {"text/plain"}, "Content-Length": {"9"}}
	given := &http.Response{StatusCode: 429, Header: header, ContentLength: 9, Body: io.NopCloser(strings.NewReader("slow down"))}
	before, headerBefore := *given, header.Clone()
	roundTrip(t, roundTripper(func(*http.Request) (*http.Response, error) { return given, nil }), http.MethodPost)
	if given.ContentLength != before.ContentLength || given.Body != before.Body || !reflect.DeepEqual(given.Header, headerBefore) {
		t.Errorf("Base's response became %+v", given)
	}
}

func TestErrorsOfBaseComeBackAsTheyAre(t *testing.T) {
	t.Parallel()
	want := &net.AddrError{Err: "x", Addr: "y"}
	base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, want })
	req := httptest.NewRequest(http.MethodPost, "http://gemini.invalid/x", nil)
	if resp, err := (&retry.Transport{Base: base}).RoundTrip(req); resp != nil || err != error(want) {
		t.Errorf("%v, %v; want the error of Base itself", resp, err)
	}
}

func TestDateIsComparedWithTheLocalClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		header := http.Header{
			"Retry-After": {time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)},
			"Date":        {time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)},
		}
		rt := &retry.Transport{Base: answer(503, header, "")}
		err := unary(t.Context(), newGemini(t, "http://gemini.invalid", rt))
		if got := retry.Classify(err); got != hinted(retry.Overloaded, 3*time.Second, 0) {
			t.Errorf("verdict %+v, want a hint of 3s", got)
		}
	})
}

func TestCancellationEndsTheReadingOfAnErrorBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := answer(429, http.Header{"Retry-After": {"7"}}, "")(r)
			body, end := io.Pipe() // never written: a server that hangs
			context.AfterFunc(r.Context(), func() { end.CloseWithError(context.Cause(r.Context())) })
			resp.Body = body
			return resp, err
		})
		err := unary(ctx, newGemini(t, "http://gemini.invalid", &retry.Transport{Base: base}))
		if got := retry.Classify(err); !errors.Is(err, context.DeadlineExceeded) || got != (retry.Verdict{}) {
			t.Errorf("%v: verdict %+v; want the caller's deadline, not retryable", err, got)
		}
	})
}

func TestZeroTransportUsesTheDefaultOne(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	client := &http.Client{Transport: &retry.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"retryDelay":"7s"`) {
		t.Errorf("body %s, want a RetryInfo of 7s", body)
	}
}

// closer is a Base that counts CloseIdleConnections.
type closer struct {
	roundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestIdleConnectionsOfBaseCanBeClosed(t *testing.T) {
	t.Parallel()
	base := &closer{}
	(&http.Client{Transport: &retry.Transport{Base: base}}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("Base was asked %d times, want once", base.closed)
	}
	(&http.Client{Transport: &retry.Transport{Base: answer(200, nil, "")}}).CloseIdleConnections()
}
