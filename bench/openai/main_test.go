package openai_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/internal/memhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a double behind an in-memory connection. It is made inside a bubble.
type rig struct {
	t      *testing.T
	double *openai.Server
	http   *memhttp.Server
}

func newRig(t *testing.T, cfg openai.Config) *rig {
	t.Helper()
	double, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, double: double, http: memhttp.New(double)}
	t.Cleanup(r.http.Close)
	return r
}

// client is the real SDK, which does not retry here.
func (r *rig) client() *sdk.Client {
	c := sdk.NewClient(option.WithBaseURL(r.http.URL+"/v1"), option.WithAPIKey("any"),
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

// post sends a body to a path, with headers in pairs.
func (r *rig) post(path, body string, headers ...string) answer {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(got), err}
}

// Paths, bodies and params that many tests use.
const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	hello         = `{"model":"gpt-5-mini","messages":[{"role":"user","content":"hello"}]}`
)

func chat() sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{Model: "gpt-5-mini", Messages: []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage("hello")}}
}

func response() responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "gpt-5-mini", Input: responses.ResponseNewParamsInputUnion{OfString: sdk.String("hello")}}
}

// with demands things of the double by headers, in pairs.
func with(headers ...string) (opts []option.RequestOption) {
	for i := 0; i+1 < len(headers); i += 2 {
		opts = append(opts, option.WithHeader(headers[i], headers[i+1]))
	}
	return opts
}
