package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
)

func TestTheSynthesiserReadsAllReviewsInOrder(t *testing.T) {
	t.Parallel()
	model := scripted{func(_ context.Context, req *LLMRequest) (string, error) {
		instruction, text := textOf(req.Config.SystemInstruction), textOf(req.Contents[0])
		for i, r := range reviewers {
			if instruction == r {
				if !strings.HasPrefix(text, "Proposal ") {
					t.Errorf("reviewer %d reads %.40q", i, text)
				}
				return fmt.Sprint("finding ", i), nil
			}
		}
		at := -1
		for i := range reviewers {
			next := strings.Index(text, fmt.Sprintf("Review %d:\nfinding %d\n", i+1, i))
			if next <= at {
				t.Errorf("review %d is missing or out of order in %.200q", i+1, text)
			}
			at = next
		}
		if !strings.Contains(text, "The proposal:\nProposal ") {
			t.Error("the synthesiser does not see the proposal")
		}
		return "summary", nil
	}}
	if got, err := review(t.Context(), model, proposal(1, 0)); got != "summary" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestTheFirstErrorEndsTheOtherReviewersAndTheReview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := genai.APIError{Code: http.StatusTooManyRequests}
		var cutOff, asked atomic.Int32
		model := scripted{func(ctx context.Context, req *LLMRequest) (string, error) {
			asked.Add(1)
			if textOf(req.Config.SystemInstruction) == reviewers[2] {
				time.Sleep(time.Second)
				return "", refused
			}
			select {
			case <-ctx.Done():
				cutOff.Add(1)
				return "", errors.New("a consequence, not the reason")
			case <-time.After(time.Minute):
				return "finding", nil
			}
		}}
		start := time.Now()
		_, err := review(t.Context(), model, proposal(1, 0))
		if e, ok := errors.AsType[genai.APIError](err); !ok || e.Code != refused.Code {
			t.Errorf("got error %v, want the refusal", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("the review ended after %v, want 1s", took)
		}
		if asked.Load() != 4 || cutOff.Load() != 3 {
			t.Errorf("%d agents asked the model, %d were cut off; want 4 (no synthesiser) and 3", asked.Load(), cutOff.Load())
		}
	})
}

func TestAnErrorInAnAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"SAFETY":             "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\ndata: {\"usageMetadata\":{\"promptTokenCount\":2}}\n\n",
		"finish reason":      "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n",
		"cannot be read":     "data: {\"candidates\"\n\n",
		"Error 503, Message": "data: {\"error\":{\"code\":503}}\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := func(http.Handler) (hosted, error) {
				return memory(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) }))
			}
			o := options{model: "m", latency: time.Second, speed: 1}
			p, err := serve(host, o.model, o.config())
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if _, err := (agent{instruction: "x", model: p.llm}).run(t.Context(), "y"); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got error %v, want one with %q", err, name)
			}
		})
	}
}

func TestChunksArePartialAndTheWholeAnswerFollows(t *testing.T) {
	t.Parallel()
	o := options{model: "m", latency: time.Second, speed: 1000}
	p, err := serve(memory, o.model, o.config())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, stream := range []bool{true, false} {
		var done []request
		p.llm.done = func(_ context.Context, r request) { done = append(done, r) }
		req := &LLMRequest{Model: "m", Contents: genai.Text("hello")}
		partial, whole := "", []*LLMResponse(nil)
		for resp, err := range p.llm.GenerateContent(t.Context(), req, stream) {
			switch {
			case err != nil:
				t.Fatal(err)
			case resp.Partial && whole != nil:
				t.Error("a partial answer after the whole one")
			case resp.Partial:
				partial += textOf(resp.Content)
			default:
				whole = append(whole, resp)
			}
		}
		if len(whole) != 1 {
			t.Fatalf("stream=%v: %d whole answers, want 1", stream, len(whole))
		}
		text := textOf(whole[0].Content)
		if len(text) != 4*outputTokens || whole[0].FinishReason != genai.FinishReasonStop || whole[0].UsageMetadata.CandidatesTokenCount != outputTokens {
			t.Errorf("stream=%v: the whole answer has %d characters, finish reason %q, usage %+v", stream, len(text), whole[0].FinishReason, whole[0].UsageMetadata)
		}
		if stream && partial != text || !stream && partial != "" {
			t.Errorf("stream=%v: the partial answers do not make the whole one", stream)
		}
		if len(done) != 1 || done[0].err != nil || done[0].input != 2 || done[0].took <= 0 {
			t.Errorf("stream=%v: noted %+v, want one request of 2 tokens", stream, done)
		}
	}
	for range p.llm.GenerateContent(t.Context(), &LLMRequest{Model: "m", Contents: genai.Text("hello")}, true) {
		break
	}
}

// ratelimited.New infers its type arguments from a plain interface value, and
// what it returns is an LLM again.
func TestAnyLLMCanBeWrapped(t *testing.T) {
	t.Parallel()
	gate, err := ratelimited.NewGate(ratelimited.Config{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	var llm LLM = scripted{func(context.Context, *LLMRequest) (string, error) { return "answer", nil }}
	llm, err = ratelimited.New(llm, gate)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (agent{instruction: "x", model: llm}).run(t.Context(), "y"); got != "answer" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if s := gate.Stats(); s.Running != 0 || s.SlotsInUse != 0 {
		t.Errorf("the gate still holds %+v", s)
	}
}
