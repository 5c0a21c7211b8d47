package retry_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genai"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The genai SDK's credentials pull in opencensus, which starts one
		// goroutine for the life of the process.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// roundTripper makes a function an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a provider that always gives the same response.
func answer(status int, header http.Header, body string) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			r.Body.Close()
		}
		if header == nil {
			header = http.Header{}
		}
		return &http.Response{
			StatusCode:    status,
			Status:        fmt.Sprintf("%d %s", status, http.StatusText(status)),
			Proto:         "HTTP/1.1",
			ProtoMajor:    1,
			ProtoMinor:    1,
			Header:        header.Clone(),
			Body:          io.NopCloser(strings.NewReader(body)),
			ContentLength: int64(len(body)),
			Request:       r,
		}, nil
	}
}

// newGemini is a real genai client that speaks through rt, without credentials
// and without a network unless rt has one.
func newGemini(tb testing.TB, baseURL string, rt http.RoundTripper) *genai.Client {
	tb.Helper()
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey:      "test",
		Backend:     genai.BackendGeminiAPI,
		HTTPClient:  &http.Client{Transport: rt},
		HTTPOptions: genai.HTTPOptions{BaseURL: baseURL},
	})
	if err != nil {
		tb.Fatalf("genai.NewClient: %v", err)
	}
	return client
}

// unary makes one call that is not streamed and returns its error.
func unary(ctx context.Context, client *genai.Client) error {
	_, err := client.Models.GenerateContent(ctx, "gemini-2.5-flash", genai.Text("hi"), nil)
	return err
}

// stream makes one streamed call and returns how many items came before its
// first error, and that error.
func stream(ctx context.Context, client *genai.Client) (items int, err error) {
	for _, err := range client.Models.GenerateContentStream(ctx, "gemini-2.5-flash", genai.Text("hi"), nil) {
		if err != nil {
			return items, err
		}
		items++
	}
	return items, nil
}

// sdkError is the error that the genai SDK makes of such a response.
func sdkError(tb testing.TB, status int, body string) error {
	tb.Helper()
	err := unary(context.Background(), newGemini(tb, "http://gemini.invalid", answer(status, nil, body)))
	if err == nil {
		tb.Fatalf("status %d gave no error", status)
	}
	return err
}
