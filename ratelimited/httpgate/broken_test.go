package httpgate_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
	"github.com/headgate-go/headgate/usage"
)

// A stream that is broken off is charged for the output that was delivered, at
// most what was held: also after a report of what came before, as every answer of
// Anthropic's begins with one that counts one token of output.
func TestBrokenOffStreamIsChargedForWhatWasDelivered(t *testing.T) {
	t.Parallel()
	const parts = 5
	words := strings.Repeat("some words of an answer ", 20)
	start := event("", `{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`)
	block := func(delta string) string {
		return event("", `{"type":"content_block_delta","index":0,"delta":{`+delta+`}}`)
	}
	chunk := func(delta string) string { return event("", `{"choices":[{"index":0,"delta":{`+delta+`}}]}`) }
	openai, anthropic := usage.OpenAI.Text(words), usage.Anthropic.Text(words)
	for name, c := range map[string]struct {
		path, first, part string
		input, output     int64 // input 0 is the estimate
	}{
		"message":          {"/v1/messages", start, block(`"type":"text_delta","text":"` + words + `"`), 10, 1 + parts*anthropic},
		"thinking":         {"/v1/messages", start, block(`"type":"thinking_delta","thinking":"` + words + `"`), 10, 1 + parts*anthropic},
		"a tool's input":   {"/v1/messages", start, block(`"type":"input_json_delta","partial_json":"` + words + `"`), 10, 1 + parts*anthropic},
		"beginning of one": {"/v1/messages", start, event("", `{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"`+words+`","input":{}}}`), 10, 1 + parts*anthropic},
		"hidden thinking":  {"/v1/messages", start, event("", `{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"`+strings.Repeat("QUJD", 100)+`"}}`), 10, 1 + parts*100},
		"reported later":   {"/v1/messages", start + block(`"text":"`+words+`"`) + event("", `{"type":"message_delta","usage":{"output_tokens":700}}`), block(`"text":"` + words + `"`), 10, 700 + parts*anthropic},
		"chat":             {"/v1/chat/completions", "", chunk(`"content":"` + words + `"`), 0, parts * openai},
		"chat, arguments":  {"/v1/chat/completions", "", chunk(`"tool_calls":[{"index":0,"function":{"arguments":"` + words + `"}}]`), 0, parts * openai},
		"chat, reported":   {"/v1/chat/completions", event("", `{"choices":[{"index":0,"delta":{"content":"`+words+`"}}],"usage":{"prompt_tokens":10,"completion_tokens":400}}`), chunk(`"content":"` + words + `"`), 10, 400 + parts*openai},
		"response":         {"/v1/responses", "", event("", `{"type":"response.output_text.delta","delta":"`+words+`"}`), 0, parts * openai},
		"gemini": {
			"/v1beta/models/m:streamGenerateContent", "",
			event("", `{"candidates":[{"content":{"parts":[{"text":"`+words+`"}]}}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":300}}`), 10, 300,
		},
	} {
		for _, how := range []string{"hung up", "broken"} {
			t.Run(fmt.Sprint(name, "/", how), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, tokens(10_000))
					l := &ledger{}
					p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "text/event-stream")
						io.WriteString(w, c.first+strings.Repeat(c.part, parts))
						w.(http.Flusher).Flush()
						if how == "broken" {
							panic(http.ErrAbortHandler)
						}
						wait(r.Context(), time.Hour)
					})
					defer p.Close()
					rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}, TypicalOutput: 5000})
					resp, err := rt.RoundTrip(post(t, p.URL+c.path, `{"model":"m","max_tokens":5000,"messages":[{"role":"user","content":"hi"}],"input":"hi"}`))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(resp.Body, make([]byte, len(c.first)+parts*len(c.part))); err != nil {
						t.Fatal(err)
					}
					if how == "broken" {
						if _, err := io.ReadAll(resp.Body); err == nil {
							t.Error("the broken connection did not reach the client")
						}
					}
					resp.Body.Close()
					input := c.input
					if input == 0 {
						input = l.last(t).Usage.Input
					}
					l.expect(t, 0, input+c.output)
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// A mark that tells the order of bytes may stand before a stream: the client gets
// it, and the first event, which reports the prompt, is read all the same.
func TestMarkBeforeAStreamHidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, tokens(10_000))
		l := &ledger{}
		text := "\ufeffdata: " + `{"type":"message_start","message":{"usage":{"input_tokens":1000,"output_tokens":1}}}` + "\n\n" +
			event("", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`) + event("", `{"type":"message_stop"}`)
		p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, text)
		})
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
		resp, err := rt.RoundTrip(post(t, p.URL+"/v1/messages", `{"model":"c","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != text {
			t.Errorf("read %q, %v; want the bytes that came", got, err)
		}
		l.expect(t, 0, 1009)
	})
}

// An error within an answer means what it means however much stands before it in
// its event, such as the instructions of the request.
func TestErrorBehindALongTextIsUnderstood(t *testing.T) {
	t.Parallel()
	const refused = `"error":{"code":"rate_limit_exceeded","message":"tokens per min"}`
	long := strings.Repeat("x", 2<<20)
	for name, c := range map[string]struct {
		path, event string
		cut         bool
	}{
		"short":            {"/v1/responses", `{"type":"response.failed","response":{"instructions":"",` + refused + `}}`, true},
		"response":         {"/v1/responses", `{"type":"response.failed","response":{"instructions":"` + long + `",` + refused + `,"tools":[]}}`, true},
		"type comes last":  {"/v1/responses", `{"response":{"instructions":"` + long + `",` + refused + `},"type":"response.failed"}`, true},
		"text behind it":   {"/v1/responses", `{"type":"response.failed","response":{` + refused + `,"instructions":"` + long + `"}}`, true},
		"chat":             {"/v1/chat/completions", `{"debug":"` + long + `",` + refused + `}`, true},
		"message":          {"/v1/messages", `{"type":"error","request":"` + long + `","error":{"type":"rate_limit_error","message":"m"}}`, true},
		"gemini":           {"/v1beta/models/m:streamGenerateContent", `{"debug":"` + long + `","error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, true},
		"that never ends":  {"/v1/responses", `{"type":"response.failed","response":{"error":{"message":"` + long + `","code":"rate_limit_exceeded"}}}`, false},
		"error of another": {"/v1/responses", `{"type":"response.failed","response":{"output":[{` + refused + `}],"error":{"code":"server_error"}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(10_000))
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, event("", c.event))
				})
				defer p.Close()
				drained(t, newTransport(t, p.base(), g, httpgate.Config{}), post(t, p.URL+c.path, `{"model":"m","input":"hi"}`))
				if share := g.Stats().Dimensions[0].Share; (share < 1) != c.cut {
					t.Errorf("the share of the limit in use is %v, want less than 1: %v", share, c.cut)
				}
				mustBeIdle(t, g)
			})
		})
	}
}
