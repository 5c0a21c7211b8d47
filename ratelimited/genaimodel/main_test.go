package genaimodel_test

import (
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
)

// A package that the SDK pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const modelName = "gemini-2.5-flash"

// serve starts a server in memory, which ends with the test. It is called
// outside of bubbles; inside of one, the bubble's test ends the server.
func serve(t *testing.T, handler http.HandlerFunc) *memhttp.Server {
	t.Helper()
	srv := memhttp.New(handler)
	t.Cleanup(srv.Close)
	return srv
}

// newClient returns a real client of the SDK whose requests reach srv. The
// options may be changed before it is made.
func newClient(t *testing.T, srv *memhttp.Server, edit ...func(*genai.ClientConfig)) *genai.Client {
	t.Helper()
	cfg := &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: srv.Client(),
		HTTPOptions: genai.HTTPOptions{BaseURL: srv.URL},
	}
	for _, e := range edit {
		e(cfg)
	}
	client, err := genai.NewClient(t.Context(), cfg)
	if err != nil {
		t.Fatalf("genai.NewClient: %v", err)
	}
	return client
}

func newModel(t *testing.T, client *genai.Client) *genaimodel.Model {
	t.Helper()
	m, err := genaimodel.New(client, modelName)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return m
}

func hello() *genaimodel.Request { return &genaimodel.Request{Contents: genai.Text("hello")} }

// collected is what a sequence yielded.
type collected struct {
	items []*genai.GenerateContentResponse
	text  string
	errs  []error
}

// collect ranges a sequence to its end, past any error.
func collect(seq iter.Seq2[*genai.GenerateContentResponse, error]) (c collected) {
	for resp, err := range seq {
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		c.items = append(c.items, resp)
		if resp != nil {
			c.text += resp.Text()
		}
	}
	return c
}

// chunk is an item of an answer; finish may be empty.
func chunk(text, finish string) string {
	if finish != "" {
		finish = fmt.Sprintf(`,"finishReason":%q`, finish)
	}
	return fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]}%s}],"usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":1,"totalTokenCount":3}}`, text, finish)
}

// events frames chunks as the API streams them.
func events(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString("data: " + c + "\r\n\r\n")
	}
	return b.String()
}

// reply answers every request with what fits its method: chunks as events, or
// the last of them.
func reply(chunks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ":streamGenerateContent") {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(chunks...))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, chunks[len(chunks)-1])
	}
}

// both runs a test for answers in one piece and for streamed ones.
func both(t *testing.T, test func(t *testing.T, stream bool)) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			t.Parallel()
			test(t, stream)
		})
	}
}
