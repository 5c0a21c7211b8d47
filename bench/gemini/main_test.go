package gemini_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The SDK's authentication library starts it when it is linked in.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const flash = "gemini-2.5-flash"

// rig is a double behind an in-memory connection. It is made inside a bubble.
type rig struct {
	t      *testing.T
	double *gemini.Server
	http   *memhttp.Server
}

func newRig(t *testing.T, cfg gemini.Config) *rig {
	t.Helper()
	double, err := gemini.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, double: double, http: memhttp.New(double)}
	t.Cleanup(r.http.Close)
	return r
}

// client is the real SDK, on the Gemini API.
func (r *rig) client() *genai.Client { return r.connect(&genai.ClientConfig{APIKey: "any"}) }

// vertex is the real SDK, on Vertex AI.
func (r *rig) vertex() *genai.Client {
	return r.connect(&genai.ClientConfig{Backend: genai.BackendVertexAI, Project: "p", Location: "global"})
}

func (r *rig) connect(cfg *genai.ClientConfig) *genai.Client {
	r.t.Helper()
	if cfg.Backend == genai.BackendUnspecified {
		cfg.Backend = genai.BackendGeminiAPI
	}
	cfg.HTTPClient, cfg.HTTPOptions = r.http.Client(), genai.HTTPOptions{BaseURL: r.http.URL}
	c, err := genai.NewClient(context.Background(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
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

// Paths and bodies that many tests use.
const (
	unaryPath  = "/v1beta/models/gemini-2.5-flash:generateContent"
	streamPath = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
	hello      = `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`
)

// with demands things of the double by headers, in pairs.
func with(headers ...string) *genai.GenerateContentConfig {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{Headers: h}}
}

// collect ranges a stream to its end.
func collect(t *testing.T, c *genai.Client, cfg *genai.GenerateContentConfig) (chunks []*genai.GenerateContentResponse, errs []error) {
	t.Helper()
	for chunk, err := range c.Models.GenerateContentStream(t.Context(), flash, genai.Text("hello"), cfg) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		chunks = append(chunks, chunk)
	}
	return chunks, errs
}
