package anthropic_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/internal/memhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const model = "claude-sonnet-4-5"

// rig is a double behind an in-memory connection. It is made inside a bubble.
type rig struct {
	t      *testing.T
	double *anthropic.Server
	http   *memhttp.Server
}

func newRig(t *testing.T, cfg anthropic.Config) *rig {
	t.Helper()
	double, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, double: double, http: memhttp.New(double)}
	t.Cleanup(r.http.Close)
	return r
}

// client is the real SDK, without its retries.
func (r *rig) client() *sdk.Client {
	c := sdk.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(r.http.URL), option.WithAPIKey("any"),
		option.WithHTTPClient(r.http.Client()), option.WithMaxRetries(0))
	return &c
}

// answer is what came back over HTTP.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// post sends a body to a path, with headers in pairs. An empty value takes a
// header away.
func (r *rig) post(path, body string, headers ...string) answer {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

func (r *rig) get(path string) answer {
	r.t.Helper()
	return r.do(http.MethodGet, path, "")
}

func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "any")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(got), err}
}

// Bodies and a path that many tests use.
const (
	path      = "/v1/messages"
	hello     = `{"model":"m","max_tokens":1000,"messages":[{"role":"user","content":"hello"}]}`
	helloLive = `{"model":"m","max_tokens":1000,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
)

// says is a request of one message.
func says(text string) sdk.MessageNewParams {
	return sdk.MessageNewParams{
		Model: model, MaxTokens: 1000, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock(text))},
	}
}

// collect reads a stream to its end. The message is what the SDK makes of it.
func collect(t *testing.T, c *sdk.Client, params sdk.MessageNewParams, opts ...option.RequestOption) (kinds []string, m sdk.Message, err error) {
	t.Helper()
	stream := c.Messages.NewStreaming(t.Context(), params, opts...)
	defer stream.Close()
	for stream.Next() {
		event := stream.Current()
		if err := m.Accumulate(event); err != nil {
			t.Fatal(err)
		}
		if n := len(kinds); n == 0 || kinds[n-1] != event.Type {
			kinds = append(kinds, event.Type)
		}
	}
	return kinds, m, stream.Err()
}
