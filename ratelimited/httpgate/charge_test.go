package httpgate_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// Every answer is charged what it reports, in each format, and what it does not
// report is estimated and never free.
func TestEndedCallIsCharged(t *testing.T) {
	t.Parallel()
	const asHeld, inputOnly = -1, -2
	const (
		generate = "/v1beta/models/gemini-2.5-flash:generateContent"
		stream   = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
		vertex   = "/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent"
		chat     = "/v1/chat/completions"
		azure    = "/openai/deployments/d/chat/completions"
		reply    = "/openai/v1/responses"
		message  = "/v1/messages"
		claude   = "/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict"
		vectors  = "/v1/embeddings"
		count    = "/v1/messages/count_tokens"
	)
	used := func(prompt, candidates string) string {
		return `"usageMetadata":{"promptTokenCount":` + prompt + `,"candidatesTokenCount":` + candidates + `}`
	}
	for name, test := range map[string]struct {
		path, kind, body string
		input, total     int64
		cut              bool // the connection breaks after the body
	}{
		"gemini": {path: generate, kind: "application/json",
			body:  `{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":800,"toolUsePromptTokenCount":50,"candidatesTokenCount":100,"thoughtsTokenCount":400,"totalTokenCount":1550}}`,
			input: 1050, total: 1550},
		"gemini, no usage": {path: generate, kind: "application/json", body: `{"candidates":[{"finishReason":"STOP"}]}`, input: asHeld, total: asHeld},
		"gemini, negative": {path: generate, kind: "application/json", body: `{"candidates":[{"finishReason":"STOP"}],` + used("-5", "10") + `}`, input: 0, total: 10},
		"gemini, blocked":  {path: generate, kind: "application/json", body: `{"promptFeedback":{"blockReason":"SAFETY"},` + used("30", "0") + `}`, input: 30, total: 30},
		"no JSON":          {path: generate, kind: "text/html", body: `<html>hi</html>`, input: asHeld, total: asHeld},
		"empty":            {path: generate, kind: "application/json", body: ``, input: asHeld, total: asHeld},
		"gemini, running total": {path: stream, kind: "text/event-stream",
			body: event("", `{"candidates":[{}],`+used("25", "1")+`}`) + event("", `{"candidates":[{}],`+used("25", "8")+`}`) +
				event("", `{"candidates":[{"finishReason":"STOP"}],`+used("70", "15")+`}`),
			input: 70, total: 85},
		"gemini, after an event that is cut off": {path: stream, kind: "text/event-stream",
			body: event("", `{"candidates":[{"content":{"parts":[{"text":"abc`) +
				event("", `{"candidates":[{"finishReason":"STOP"}],`+used("50", "7")+`}`),
			input: 50, total: 57},
		"gemini, usage after the end": {path: stream, kind: "text/event-stream",
			body:  event("", `{"candidates":[{"finishReason":"STOP"}]}`) + event("", `{`+used("50", "7")+`}`),
			input: 50, total: 57},
		"gemini, array": {path: vertex, kind: "application/json",
			body:  "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]}}]}\n,\r\n{\"candidates\":[{\"finishReason\":\"STOP\"}]," + used("50", "7") + "}\n]",
			input: 50, total: 57},
		"gemini, array that ends early": {path: vertex, kind: "application/json", cut: true,
			body:  "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"12345678\"}]}}]}\n,\r\n{",
			input: inputOnly, total: inputOnly},
		"gemini, stream that ends early": {path: stream, kind: "text/event-stream",
			body: event("", `{"candidates":[{"content":{"parts":[{"text":"12345678"}]}}]}`), input: inputOnly, total: inputOnly},
		"chat": {path: chat, kind: "application/json",
			body:  `{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":5}}}`,
			input: 30, total: 39},
		"chat, several answers": {path: azure, kind: "text/event-stream",
			body: event("", `{"choices":[{"index":0,"finish_reason":"stop"}]}`) + event("", `{"choices":[{"index":1,"finish_reason":"stop"}]}`) +
				event("", `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":9}}`) + event("", "[DONE]"),
			input: 30, total: 39},
		"chat, usage not asked for": {path: chat, kind: "text/event-stream",
			body: event("", `{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`) + event("", "[DONE]"), input: asHeld, total: asHeld},
		"response": {path: reply, kind: "application/json",
			body: `{"object":"response","status":"completed","error":null,"usage":{"input_tokens":30,"output_tokens":9,"total_tokens":39}}`, input: 30, total: 39},
		"response, streamed": {path: reply, kind: "text/event-stream",
			body: event("response.created", `{"type":"response.created","response":{"usage":null,"error":null}}`) +
				event("response.incomplete", `{"type":"response.incomplete","response":{"usage":{"input_tokens":30,"output_tokens":9,"total_tokens":39}}}`),
			input: 30, total: 39},
		"response that failed": {path: reply, kind: "text/event-stream",
			body:  event("response.failed", `{"type":"response.failed","response":{"error":{"code":"server_error"},"usage":{"input_tokens":30,"output_tokens":9,"total_tokens":39}}}`),
			input: 30, total: 39},
		"message": {path: message, kind: "application/json",
			body:  `{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":15,"output_tokens":9}}`,
			input: 30, total: 39},
		"message, streamed": {path: claude, kind: "text/event-stream; charset=utf-8",
			body: event("message_start", `{"type":"message_start","message":{"stop_reason":null,"usage":{"input_tokens":10,"cache_read_input_tokens":20,"output_tokens":1}}}`) +
				event("ping", `{"type":"ping"}`) +
				event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`) +
				event("message_stop", `{"type":"message_stop"}`),
			input: 30, total: 39},
		"embeddings": {path: vectors, kind: "application/json",
			body: `{"data":[{"embedding":[0.1,-2e-3],"index":0}],"usage":{"prompt_tokens":30,"total_tokens":30}}`, input: 30, total: 30},
		"count of tokens": {path: count, kind: "application/json", body: `{"input_tokens":5000}`, input: 0, total: 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(10_000))
				l := &ledger{}
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", test.kind)
					io.WriteString(w, test.body)
					if test.cut {
						w.(http.Flusher).Flush()
						panic(http.ErrAbortHandler)
					}
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
				resp, err := rt.RoundTrip(manyFormats(t, p.URL+test.path))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != test.body || (err != nil) != test.cut {
					t.Errorf("read %q, %v; want the body", got, err)
				}
				mustBeIdle(t, g)
				held := l.last(t).Usage
				switch test.input {
				case asHeld:
					test.input, test.total = held.Input, held.Total()
				case inputOnly: // and the output that was seen
					test.input, test.total = held.Input, held.Input+8
				}
				if n := booked(t, g, "tokens"); n != test.input {
					t.Errorf("the gate counts %d tokens, want %d", n, test.input)
				}
				l.expect(t, 0, test.total)
			})
		})
	}
}

// manyFormats is a request that has two answers and some text in each format.
func manyFormats(t testing.TB, url string) *http.Request {
	t.Helper()
	body := `{"model":"m","n":2,"max_tokens":10,"generationConfig":{"maxOutputTokens":20},` +
		`"contents":[{"parts":[{"text":"hello"}]}],"messages":[{"role":"user","content":"hello"}],"input":"hello"}`
	if !strings.Contains(url, "deployments") {
		body = strings.Replace(body, `"n":2,`, "", 1)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// A compressed answer passes as it is and is read all the same; how one is
// compressed that cannot be read does not matter to the client.
func TestCompressedAnswersPassAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		coding string
		known  bool
	}{"gzip": {"gzip", true}, "other": {"br", false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				v := chatVendor()
				events := append([]string{v.part("a")}, v.last(30, 5)...)
				g := newGate(t, tokens(10_000))
				l := &ledger{}
				var sent []byte
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Content-Encoding", test.coding)
					z := gzip.NewWriter(writer(func(p []byte) (int, error) {
						sent = append(sent, p...)
						return w.Write(p)
					}))
					for _, e := range events {
						io.WriteString(z, e)
						z.Flush()
						w.(http.Flusher).Flush()
					}
					z.Close()
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
				req := chatRequest(t, t.Context(), chatURL)
				req.Header.Set("Accept-Encoding", "gzip, br")
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != string(sent) || resp.Header.Get("Content-Encoding") != test.coding {
					t.Errorf("read %d bytes (%v), want the %d that were sent", len(got), err, len(sent))
				}
				mustBeIdle(t, g)
				held := l.last(t).Usage
				in, total := held.Input, held.Total()
				if test.known {
					in, total = 30, 35
				}
				l.expect(t, 0, total)
				if n := booked(t, g, "tokens"); n != in {
					t.Errorf("the gate counts %d tokens, want %d", n, in)
				}
			})
		})
	}
}

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// An answer of any size is read with the same memory: what it reports may come
// after megabytes of a picture.
func TestUsageIsFoundBehindAPictureOfAnySize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, tokens(10_000))
		picture := strings.Repeat("iVBORw0KGgo/", 300_000)
		rt := newTransport(t, roundTripper(func(req *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, req.Body)
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(
				`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + picture + `"}}]},"finishReason":"STOP"}],` +
					`"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":1290}}`))}, nil
		}), g, httpgate.Config{})
		resp, err := rt.RoundTrip(manyFormats(t, "http://x.invalid/v1beta/models/m:generateContent"))
		if err != nil {
			t.Fatal(err)
		}
		buf, n := make([]byte, 64<<10), 0
		for {
			k, err := resp.Body.Read(buf)
			if n += k; err != nil {
				break
			}
		}
		if n < len(picture) || booked(t, g, "tokens") != 30 {
			t.Errorf("read %d bytes, and the gate counts %d tokens, want 30", n, booked(t, g, "tokens"))
		}
		mustBeIdle(t, g)
	})
}

// Bytes are handed out as they come: each event before the next is made.
func TestEventsPassUntouchedAndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		next := make(chan struct{})
		p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			for range next {
				io.WriteString(w, "data: {\"x\":1}\n\n")
				w.(http.Flusher).Flush()
			}
		})
		defer p.Close()
		resp, err := newTransport(t, p.base(), g, httpgate.Config{}).RoundTrip(chatRequest(t, t.Context(), chatURL))
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000)
		for range 5 {
			next <- struct{}{}
			n, err := resp.Body.Read(buf)
			if err != nil || string(buf[:n]) != "data: {\"x\":1}\n\n" {
				t.Fatalf("read %q, %v; want the event", buf[:n], err)
			}
		}
		close(next)
		resp.Body.Close()
		mustBeIdle(t, g)
	})
}
