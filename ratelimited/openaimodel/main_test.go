package openaimodel_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"go.uber.org/goleak"

	double "github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/openaimodel"
)

// A package that genai pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const modelName = "gpt-5-mini"

// serve starts a server in memory, which ends with the test. It is called
// outside of bubbles; inside of one, the bubble's test ends the server.
func serve(t *testing.T, handler http.HandlerFunc) *memhttp.Server {
	t.Helper()
	srv := memhttp.New(handler)
	t.Cleanup(srv.Close)
	return srv
}

// newClient returns a real client of the SDK, which retries twice by default,
// whose requests reach srv.
func newClient(srv *memhttp.Server, opts ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(srv.URL + "/v1"), option.WithAPIKey("key"), option.WithHTTPClient(srv.Client()),
	}, opts...)...)
}

func newDouble(t *testing.T, cfg double.Config) *double.Server {
	t.Helper()
	d, err := double.New(cfg)
	if err != nil {
		t.Fatalf("double.New: %v", err)
	}
	return d
}

func newGate(t *testing.T, cfg ratelimited.Config) *ratelimited.Gate {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	gate, err := ratelimited.NewGate(cfg)
	if err != nil {
		t.Fatalf("NewGate: %v", err)
	}
	return gate
}

// idle fails unless the gate holds nothing.
func idle(t *testing.T, g *ratelimited.Gate) {
	t.Helper()
	if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
		t.Errorf("the gate still has %d slots in use, %d calls running, %d waiting", s.SlotsInUse, s.Running, s.Waiting)
	}
}

// item is what tests look at of an item of either API.
type item struct {
	text string
	done bool
}

// knobs are what tests change of a request.
type knobs struct {
	prompt string // "hello" if empty
	max    int64  // of output tokens; 0 is no limit
	opts   []option.RequestOption
}

// call makes one call of either API.
type call func(ctx context.Context, stream bool, edit ...func(*knobs)) iter.Seq2[item, error]

// api is one of the two APIs that the package speaks.
type api struct {
	name string
	path string
	// bare is a model by itself; gated is one behind a gate.
	bare  func(t *testing.T, c openai.Client) call
	gated func(t *testing.T, c openai.Client, g *ratelimited.Gate, opts ...ratelimited.Option) call
	// unary and events are answers of one piece and of streams.
	unary  func(text string) string
	events func(texts ...string) string
}

var apis = []api{
	{
		name: "chat", path: "/v1/chat/completions",
		bare: func(t *testing.T, c openai.Client) call {
			m, err := openaimodel.NewChat(c, modelName)
			return chatCall(t, m, err)
		},
		gated: func(t *testing.T, c openai.Client, g *ratelimited.Gate, opts ...ratelimited.Option) call {
			inner, err := openaimodel.NewChat(c, modelName)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ratelimited.New(inner, g, opts...)
			return chatCall(t, m, err)
		},
		unary:  func(text string) string { return completion(text) },
		events: func(texts ...string) string { return chunks(texts...) },
	},
	{
		name: "responses", path: "/v1/responses",
		bare: func(t *testing.T, c openai.Client) call {
			m, err := openaimodel.NewResponses(c, modelName)
			return responsesCall(t, m, err)
		},
		gated: func(t *testing.T, c openai.Client, g *ratelimited.Gate, opts ...ratelimited.Option) call {
			inner, err := openaimodel.NewResponses(c, modelName)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ratelimited.New(inner, g, opts...)
			return responsesCall(t, m, err)
		},
		unary:  func(text string) string { return response("completed", text) },
		events: func(texts ...string) string { return responseEvents(texts...) },
	},
}

func chatCall(t *testing.T, m ratelimited.Model[*openaimodel.ChatRequest, *openaimodel.ChatResponse], err error) call {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, stream bool, edit ...func(*knobs)) iter.Seq2[item, error] {
		k := turned(edit)
		req := &openaimodel.ChatRequest{Options: k.opts, Params: openai.ChatCompletionNewParams{
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(k.prompt)},
		}}
		if k.max > 0 {
			req.Params.MaxCompletionTokens = openai.Int(k.max)
		}
		return items(m.GenerateContent(ctx, req, stream), func(r *openaimodel.ChatResponse) item { return item{r.Text(), r.Done} })
	}
}

func responsesCall(t *testing.T, m ratelimited.Model[*openaimodel.ResponsesRequest, *openaimodel.ResponsesResponse], err error) call {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, stream bool, edit ...func(*knobs)) iter.Seq2[item, error] {
		k := turned(edit)
		req := &openaimodel.ResponsesRequest{Options: k.opts, Params: responses.ResponseNewParams{
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(k.prompt)},
		}}
		if k.max > 0 {
			req.Params.MaxOutputTokens = openai.Int(k.max)
		}
		return items(m.GenerateContent(ctx, req, stream), func(r *openaimodel.ResponsesResponse) item { return item{r.Text(), r.Done} })
	}
}

func turned(edit []func(*knobs)) knobs {
	k := knobs{prompt: "hello"}
	for _, e := range edit {
		e(&k)
	}
	return k
}

// items is a sequence of one API's items as tests look at it.
func items[R any](seq iter.Seq2[*R, error], read func(*R) item) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for r, err := range seq {
			i := item{}
			if r != nil {
				i = read(r)
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

// demanding has the double do something by a header.
func demanding(header, value string) func(*knobs) {
	return func(k *knobs) { k.opts = append(k.opts, option.WithHeader(header, value)) }
}

// collected is what a sequence yielded.
type collected struct {
	items []item
	text  string
	errs  []error
}

// collect ranges a sequence to its end, past any error.
func collect(seq iter.Seq2[item, error]) (c collected) {
	for i, err := range seq {
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		c.items = append(c.items, i)
		c.text += i.text
	}
	return c
}

// each runs a test for both APIs, for answers in one piece and for streamed
// ones.
func each(t *testing.T, test func(t *testing.T, a api, stream bool)) {
	t.Helper()
	for _, a := range apis {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream=%v", a.name, stream), func(t *testing.T) {
				t.Parallel()
				test(t, a, stream)
			})
		}
	}
}

const usageJSON = `{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}`

func completion(text string) string {
	return fmt.Sprintf(`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`, text, usageJSON)
}

// chunk is an item of a streamed completion; finish may be empty.
func chunk(index int, text, finish string) string {
	reason := "null"
	if finish != "" {
		reason = fmt.Sprintf("%q", finish)
	}
	return fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":%d,"delta":{"content":%q},"finish_reason":%s}],"usage":null}`, index, text, reason)
}

const usageChunk = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":` + usageJSON + `}`

// data frames events as chat completions are streamed.
func data(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

// chunks is a whole streamed completion.
func chunks(texts ...string) string {
	var list []string
	for _, text := range texts {
		list = append(list, chunk(0, text, ""))
	}
	return data(append(list, chunk(0, "", "stop"), usageChunk, "[DONE]")...)
}

func response(status, text string) string {
	return fmt.Sprintf(`{"id":"r","object":"response","created_at":1,"model":"m","status":%q,"output":[{"id":"m","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}],"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":13}}`, status, text)
}

// responseEvent frames an event of a streamed response.
func responseEvent(kind, more string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, more)
}

func textDelta(text string) string {
	return responseEvent("response.output_text.delta", fmt.Sprintf(`,"delta":%q,"item_id":"m","output_index":0,"content_index":0`, text))
}

// responseEvents is a whole streamed response.
func responseEvents(texts ...string) string {
	body := responseEvent("response.created", `,"response":{"id":"r","status":"in_progress","error":null}`)
	for _, text := range texts {
		body += textDelta(text)
	}
	return body + responseEvent("response.completed", `,"response":`+response("completed", strings.Join(texts, "")))
}

// reply answers every request with what fits it.
func (a api) reply(texts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, a.events(texts...))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, a.unary(strings.Join(texts, "")))
	}
}
