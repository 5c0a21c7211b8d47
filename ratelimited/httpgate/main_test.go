package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
	"github.com/headgate-go/headgate/retry"
)

// A package that an SDK pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // genai logs every stream that breaks
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newGate(t testing.TB, cfg ratelimited.Config) *ratelimited.Gate {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	g, err := ratelimited.NewGate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tokens is a profile with one limit on input tokens, which knows no headroom.
func tokens(limit int64) ratelimited.Config {
	return ratelimited.Config{Slots: 1, Headroom: 1, Profile: ratelimited.Profile{Name: "test", Dimensions: []ratelimited.Dimension{
		{Name: "tokens", Limit: limit, Count: ratelimited.InputTokens, Resource: retry.InputTokens | retry.TotalTokens},
	}}}
}

func newTransport(t testing.TB, base http.RoundTripper, g *ratelimited.Gate, cfg httpgate.Config) *httpgate.Transport {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	rt, err := httpgate.New(base, g, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// provider is an API in memory whose answers are scripted. Requests are numbered
// from 1.
type provider struct {
	*memhttp.Server
	play func(n int, w http.ResponseWriter, r *http.Request)

	mu       sync.Mutex
	requests int
	bodies   []string
	starts   []time.Time
}

func newProvider(t testing.TB, play func(n int, w http.ResponseWriter, r *http.Request)) *provider {
	t.Helper()
	p := &provider{play: play}
	p.Server = memhttp.New(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.requests++
	n, play := p.requests, p.play
	p.bodies = append(p.bodies, string(body))
	p.starts = append(p.starts, time.Now())
	p.mu.Unlock()
	play(n, w, r)
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *provider) set(play func(n int, w http.ResponseWriter, r *http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.play = play
}

// base is the round tripper that leads to the provider.
func (p *provider) base() http.RoundTripper { return p.Client().Transport }

// mustBeIdle checks that the gate holds nothing.
func mustBeIdle(t *testing.T, g *ratelimited.Gate) {
	t.Helper()
	synctest.Wait()
	if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
		t.Errorf("after all calls: %d slots in use, %d running, %d waiting; want none", s.SlotsInUse, s.Running, s.Waiting)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if p, err := g.Acquire(ctx, ratelimited.Call{}); err != nil {
		t.Errorf("the next call was not admitted: %v", err)
	} else {
		p.Release()
	}
}

// booked is what a sliding dimension of a gate with a headroom of 1 has on its
// books for the current window.
func booked(t *testing.T, g *ratelimited.Gate, name string) int64 {
	t.Helper()
	for _, d := range g.Stats().Dimensions {
		if d.Name == name {
			return int64(math.Ceil(float64(d.Limit)*d.Share)) - d.Level
		}
	}
	t.Fatalf("no dimension %q", name)
	return 0
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// vendor is one of the APIs, spoken to by its own SDK, whose retries are off.
type vendor struct {
	name string
	// stream makes a streamed call and gives each piece of text to use; false
	// ends it.
	stream func(ctx context.Context, rt http.RoundTripper, use func(text string) bool) error
	// unary makes a call that is answered in one piece.
	unary func(ctx context.Context, rt http.RoundTripper) (string, error)
	// part, last and fail are events of a stream; answer is an answer in one
	// piece. last reports in and out tokens.
	part   func(text string) string
	last   func(in, out int) []string
	fail   func() string
	answer func(text string, in, out int) string
	// refuse is an error response.
	refuse func(w http.ResponseWriter, status int, after string)
}

func vendors() []vendor {
	return []vendor{geminiVendor(), chatVendor(), responsesVendor(), anthropicVendor()}
}

const prompt = "hello there, how are you today?"

func geminiVendor() vendor {
	client := func(rt http.RoundTripper) *genai.Client {
		c, err := genai.NewClient(context.Background(), &genai.ClientConfig{
			APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: &http.Client{Transport: rt},
			HTTPOptions: genai.HTTPOptions{BaseURL: memhttp.URL},
		})
		if err != nil {
			panic(err)
		}
		return c
	}
	config := func() *genai.GenerateContentConfig {
		return &genai.GenerateContentConfig{MaxOutputTokens: 10, AutomaticContinuation: genai.Ptr(false)}
	}
	return vendor{
		name: "gemini",
		stream: func(ctx context.Context, rt http.RoundTripper, use func(string) bool) error {
			for resp, err := range client(rt).Models.GenerateContentStream(ctx, "gemini-2.5-flash", genai.Text(prompt), config()) {
				if err != nil {
					return err
				}
				if !use(resp.Text()) {
					return nil
				}
			}
			return nil
		},
		unary: func(ctx context.Context, rt http.RoundTripper) (string, error) {
			resp, err := client(rt).Models.GenerateContent(ctx, "gemini-2.5-flash", genai.Text(prompt), config())
			if err != nil {
				return "", err
			}
			return resp.Text(), nil
		},
		part: func(text string) string {
			return event("", fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]}}]}`, text))
		},
		last: func(in, out int) []string {
			return []string{event("", fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[{"text":"end"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d}}`, in, out, in+out))}
		},
		fail: func() string { return event("", `{"error":{"code":503,"status":"UNAVAILABLE","message":"busy"}}`) },
		answer: func(text string, in, out int) string {
			return fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d}}`, text, in, out, in+out)
		},
		refuse: func(w http.ResponseWriter, status int, after string) {
			details := ""
			if after != "" {
				details = `,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"` + after + `s"}]`
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"code":%d,"message":"no","status":"X"%s}}`, status, details)
		},
	}
}

func newOpenAI(rt http.RoundTripper) openai.Client {
	return openai.NewClient(openaioption.WithAPIKey("key"), openaioption.WithBaseURL(memhttp.URL+"/v1"),
		openaioption.WithMaxRetries(0), openaioption.WithHTTPClient(&http.Client{Transport: rt}))
}

func refuseOpenAI(w http.ResponseWriter, status int, after string) {
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, `{"error":{"message":"no","type":"error","code":"x"}}`)
}

func chatVendor() vendor {
	params := func() openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{
			Model: "gpt-5", MaxCompletionTokens: openai.Int(10),
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		}
	}
	return vendor{
		name: "openai chat",
		stream: func(ctx context.Context, rt http.RoundTripper, use func(string) bool) error {
			p := params()
			p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
			client := newOpenAI(rt)
			s := client.Chat.Completions.NewStreaming(ctx, p)
			defer s.Close()
			for s.Next() {
				for _, c := range s.Current().Choices {
					if !use(c.Delta.Content) {
						return nil
					}
				}
			}
			return s.Err()
		},
		unary: func(ctx context.Context, rt http.RoundTripper) (string, error) {
			client := newOpenAI(rt)
			resp, err := client.Chat.Completions.New(ctx, params())
			if err != nil {
				return "", err
			}
			return resp.Choices[0].Message.Content, nil
		},
		part: func(text string) string {
			return event("", fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}],"usage":null}`, text))
		},
		last: func(in, out int) []string {
			return []string{
				event("", `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"end"},"finish_reason":"stop"}],"usage":null}`),
				event("", fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)),
				event("", "[DONE]"),
			}
		},
		fail: func() string {
			return event("", `{"error":{"message":"The server is overloaded","type":"server_error","code":null}}`)
		},
		answer: func(text string, in, out int) string {
			return fmt.Sprintf(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, text, in, out, in+out)
		},
		refuse: refuseOpenAI,
	}
}

func responsesVendor() vendor {
	body := func(text string, in, out int, status string) string {
		return fmt.Sprintf(`{"id":"r","object":"response","status":%q,"error":null,"output":[{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}],"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}}`, status, text, in, out, in+out)
	}
	params := func() responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: "gpt-5", MaxOutputTokens: openai.Int(10), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)}}
	}
	return vendor{
		name: "openai responses",
		stream: func(ctx context.Context, rt http.RoundTripper, use func(string) bool) error {
			client := newOpenAI(rt)
			s := client.Responses.NewStreaming(ctx, params())
			defer s.Close()
			for s.Next() {
				e := s.Current()
				switch e.Type {
				case "response.output_text.delta":
					if !use(e.Delta) {
						return nil
					}
				case "response.completed":
					if !use("end") {
						return nil
					}
				case "error":
					return errors.New(e.Message)
				}
			}
			return s.Err()
		},
		unary: func(ctx context.Context, rt http.RoundTripper) (string, error) {
			client := newOpenAI(rt)
			resp, err := client.Responses.New(ctx, params())
			if err != nil {
				return "", err
			}
			return resp.OutputText(), nil
		},
		part: func(text string) string {
			return event("response.output_text.delta", fmt.Sprintf(`{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":%q}`, text))
		},
		last: func(in, out int) []string {
			return []string{event("response.completed", fmt.Sprintf(`{"type":"response.completed","response":%s}`, body("end", in, out, "completed")))}
		},
		fail: func() string {
			return event("error", `{"type":"error","code":"server_is_overloaded","message":"overloaded","param":null}`)
		},
		answer: func(text string, in, out int) string { return body(text, in, out, "completed") },
		refuse: refuseOpenAI,
	}
}

func anthropicVendor() vendor {
	client := func(rt http.RoundTripper) anthropic.Client {
		return anthropic.NewClient(anthropicoption.WithAPIKey("key"), anthropicoption.WithBaseURL(memhttp.URL),
			anthropicoption.WithMaxRetries(0), anthropicoption.WithHTTPClient(&http.Client{Transport: rt}))
	}
	params := func() anthropic.MessageNewParams {
		return anthropic.MessageNewParams{
			Model: "claude-sonnet-5", MaxTokens: 10,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
		}
	}
	return vendor{
		name: "anthropic",
		stream: func(ctx context.Context, rt http.RoundTripper, use func(string) bool) error {
			c := client(rt)
			s := c.Messages.NewStreaming(ctx, params())
			defer s.Close()
			for s.Next() {
				e := s.Current()
				switch e.Type {
				case "content_block_delta":
					if !use(e.Delta.Text) {
						return nil
					}
				case "message_delta":
					if !use("end") {
						return nil
					}
				}
			}
			return s.Err()
		},
		unary: func(ctx context.Context, rt http.RoundTripper) (string, error) {
			c := client(rt)
			m, err := c.Messages.New(ctx, params())
			if err != nil {
				return "", err
			}
			return m.Content[0].Text, nil
		},
		part: func(text string) string {
			return event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, text))
		},
		last: func(in, out int) []string {
			return []string{
				event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":%d,"output_tokens":%d}}`, in, out)),
				event("message_stop", `{"type":"message_stop"}`),
			}
		},
		fail: func() string {
			return event("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		},
		answer: func(text string, in, out int) string {
			return fmt.Sprintf(`{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-5","content":[{"type":"text","text":%q}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":%d}}`, text, in, out)
		},
		refuse: func(w http.ResponseWriter, status int, after string) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"type":"error","error":{"type":"x","message":"no"}}`)
		},
	}
}

// event is a server-sent event.
func event(name, data string) string {
	if name != "" {
		return "event: " + name + "\ndata: " + data + "\n\n"
	}
	return "data: " + data + "\n\n"
}

// sendEvents sends events, with a pause before each but the first.
func sendEvents(w http.ResponseWriter, r *http.Request, pause time.Duration, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, e := range events {
		if i > 0 {
			wait(r.Context(), pause)
		}
		if r.Context().Err() != nil {
			return
		}
		io.WriteString(w, e)
		w.(http.Flusher).Flush()
	}
}

// collect makes a streamed call and returns its text.
func (v *vendor) collect(ctx context.Context, rt http.RoundTripper) (string, error) {
	var b strings.Builder
	err := v.stream(ctx, rt, func(text string) bool { b.WriteString(text); return true })
	return b.String(), err
}

// requestFor is a request to generate an answer, as the vendor's SDK sends it.
func requestFor(t *testing.T, ctx context.Context, v vendor) *http.Request {
	t.Helper()
	var req *http.Request
	_, _ = v.unary(ctx, roundTripper(func(r *http.Request) (*http.Response, error) {
		req = r
		return nil, errors.New("caught")
	}))
	if req == nil {
		t.Fatal("the SDK sent nothing")
	}
	return req.WithContext(ctx) // the SDK's own has ended
}
