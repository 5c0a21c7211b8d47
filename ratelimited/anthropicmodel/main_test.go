package anthropicmodel_test

import (
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
)

// A package that genai pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const modelName = "claude-sonnet-4-5"

type (
	request  = anthropicmodel.Request
	response = anthropicmodel.Response
)

// serve starts a server in memory, which ends with the test. It is called
// outside of bubbles; inside of one, the bubble's test ends the server.
func serve(t *testing.T, handler http.HandlerFunc) *memhttp.Server {
	t.Helper()
	srv := memhttp.New(handler)
	t.Cleanup(srv.Close)
	return srv
}

// newClient returns a real client of the SDK whose requests reach srv.
func newClient(srv *memhttp.Server, opts ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithoutEnvironmentDefaults(), option.WithAPIKey("key"), option.WithBaseURL(srv.URL), option.WithHTTPClient(srv.Client()),
	}, opts...)...)
}

func newModel(t *testing.T, client anthropic.Client, opts ...anthropicmodel.Option) *anthropicmodel.Model {
	t.Helper()
	m, err := anthropicmodel.New(client, modelName, opts...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return m
}

func says(text string) *request {
	return &request{Params: anthropic.MessageNewParams{
		MaxTokens: 1000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}}
}

func hello() *request { return says("hello") }

// demanding is a request that demands something of the double, by headers in
// pairs.
func demanding(headers ...string) *request {
	req := hello()
	for i := 0; i+1 < len(headers); i += 2 {
		req.Options = append(req.Options, option.WithHeader(headers[i], headers[i+1]))
	}
	return req
}

// collected is what a sequence yielded.
type collected struct {
	items []*response
	text  string
	errs  []error
}

// collect ranges a sequence to its end, past any error.
func collect(seq iter.Seq2[*response, error]) (c collected) {
	for resp, err := range seq {
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		c.items = append(c.items, resp)
		c.text += resp.Text()
	}
	return c
}

// An answer in one piece.
func whole(text string) string {
	return fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":%q}],`+
		`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":20,"cache_read_input_tokens":100,"output_tokens":7}}`, text)
}

// The events of a streamed answer.
const (
	started = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],` +
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":20,"cache_read_input_tokens":100,"output_tokens":1}}}`
	ping         = `{"type":"ping"}`
	blockStarts  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	blockStops   = `{"type":"content_block_stop","index":0}`
	ended        = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}`
	stopped      = `{"type":"message_stop"}`
	overloaded   = `{"type":"error","error":{"details":null,"type":"overloaded_error","message":"SECRET"},"request_id":"req_1"}`
	lateUsage    = `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":12,"output_tokens_details":{"thinking_tokens":4}}}`
	withoutStop  = `{"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null},"usage":{"output_tokens":7}}`
	unknownEvent = `{"type":"content_block_paused","index":0}`
)

func text(s string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, s)
}

// events frames events as the API streams them.
func events(list ...string) string {
	var b strings.Builder
	for _, e := range list {
		kind, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, e)
	}
	return b.String()
}

// answer is all the events of an answer of one text.
func answer(s string) string {
	return events(started, ping, blockStarts, text(s), blockStops, ended, stopped)
}

// reply answers every request with "hi", streamed if it asks for that.
func reply(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, answer("hi"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, whole("hi"))
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
