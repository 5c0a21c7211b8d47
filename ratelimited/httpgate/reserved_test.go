package httpgate_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// post is a request with that body.
func post(t testing.TB, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// drained sends a request and reads the answer to its end.
func drained(t testing.TB, rt http.RoundTripper, req *http.Request) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
}

// completion is an answer of n tokens.
func completion(n int) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"x"}}],"usage":{"prompt_tokens":5,"completion_tokens":%d}}`, n)
}

// OpenAI counts max_tokens when it admits a request, so that the gate has no room
// for two whose limits exceed its quota together; Azure counts the prompt as well.
func TestLimitOfTheRequestIsHeldWhereTheProviderCountsIt(t *testing.T) {
	t.Parallel()
	for name, profile := range map[string]ratelimited.Profile{
		"openai": ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: 10_000}),
		"azure":  ratelimited.Azure(ratelimited.AzureQuota{TokensPerMinute: 10_000}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: profile})
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					wait(r.Context(), 5*time.Second)
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, completion(5))
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{})
				done := make(chan struct{}, 3)
				for range 3 {
					go func() {
						drained(t, rt, post(t, p.URL+"/v1/chat/completions", `{"model":"gpt-5","max_completion_tokens":8000,"messages":[{"role":"user","content":"hi"}]}`))
						done <- struct{}{}
					}()
				}
				synctest.Wait()
				if n := p.count(); n != 1 {
					t.Errorf("%d requests with a limit of 8,000 were sent at once into a quota of 10,000, want 1", n)
				}
				for range 3 {
					<-done
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// What was learned of long answers is never held beyond what a request allows.
func TestLearnedOutputIsBoundedByTheRequestsLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, long, short, answer string }{
		"chat": {
			"/v1/chat/completions",
			`{"model":"gpt-5","n":2,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"gpt-5","n":2,"max_completion_tokens":50,"messages":[{"role":"user","content":"hi"}]}`,
			completion(9000),
		},
		"message": {
			"/v1/messages",
			`{"model":"c","max_tokens":10000,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"c","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`,
			`{"type":"message","stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":9000}}`,
		},
		"gemini": {
			"/v1beta/models/m:generateContent",
			`{"contents":[{"parts":[{"text":"hi"}]}]}`,
			`{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":50,"candidateCount":2}}`,
			`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":9000}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				l := &ledger{}
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, c.answer)
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
				for range 20 {
					drained(t, rt, post(t, p.URL+c.path, c.long))
				}
				if n := l.last(t).Usage.Output; n < 4000 {
					t.Fatalf("after long answers %d tokens are expected: nothing was learned", n)
				}
				drained(t, rt, post(t, p.URL+c.path, c.short))
				if n := l.last(t).Usage.Output; n > 100 || n < 50 {
					t.Errorf("a request that allows 100 tokens was reserved with %d", n)
				}
			})
		})
	}
}

// With MaxTokensReserved the limit of a request is held, and stays so whatever
// is learned; without it a typical answer is.
func TestReservedMaxTokensStayWhateverIsLearned(t *testing.T) {
	t.Parallel()
	const (
		limited = `{"model":"c","max_tokens":8000,"messages":[{"role":"user","content":"hi"}]}`
		open    = `{"model":"c","messages":[{"role":"user","content":"hi"}]}`
	)
	for name, c := range map[string]struct {
		reserved    bool
		body        string
		first, last int64 // at most; and at least where it is reserved
	}{
		"reserved":            {true, limited, 8000, 8000},
		"not reserved":        {false, limited, 700, 200},
		"reserved, unlimited": {true, open, 700, 200},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// The gate takes the output that Bedrock sets aside.
				g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: ratelimited.Bedrock(ratelimited.BedrockQuota{TokensPerMinute: 100_000})})
				l := &ledger{}
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, `{"type":"message","stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":10}}`)
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}, MaxTokensReserved: c.reserved, TypicalOutput: 600})
				var held []int64
				for range 30 {
					drained(t, rt, post(t, p.URL+"/v1/messages", c.body))
					held = append(held, l.last(t).Usage.Output)
					time.Sleep(time.Minute)
				}
				for i, most := range map[int]int64{0: c.first, 29: c.last} {
					if n := held[i]; n > most || c.first == c.last && n != most {
						t.Errorf("call %d was reserved with %d tokens of output, want %d", i+1, n, most)
					}
				}
				l.expect(t, 0, 30*15)
			})
		})
	}
}
