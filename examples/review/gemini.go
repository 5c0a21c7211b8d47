package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited/genaimodel"
)

// geminiLLM is a Gemini model for agents, with the answers of ADK Go's: each
// chunk of a stream as a partial one, and after the last the whole answer.
type geminiLLM struct {
	model *genaimodel.Model
	// done is told of every request when it has ended. It may be nil.
	done func(context.Context, request)
}

// request is one request that was sent.
type request struct {
	begun time.Time
	err   error
	input int64 // prompt tokens, as reported
	took  time.Duration
}

var errBrokenOff = errors.New("broken off")

// Name implements LLM.
func (g *geminiLLM) Name() string { return g.model.Name() }

// UsesTransport lets the gate know that it will be told when a request was
// written.
func (g *geminiLLM) UsesTransport() bool { return g.model.UsesTransport() }

// GenerateContent implements LLM.
func (g *geminiLLM) GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		r := request{begun: time.Now(), err: errBrokenOff}
		whole, ok := g.answer(ctx, req, stream, &r, yield)
		if r.took = time.Since(r.begun); g.done != nil {
			g.done(ctx, r)
		}
		switch {
		case !ok:
		case r.err != nil:
			yield(nil, r.err)
		default:
			yield(whole, nil)
		}
	}
}

// answer reads one answer, passes its chunks on and returns the whole. It
// reports false if the consumer wants no more.
func (g *geminiLLM) answer(ctx context.Context, req *LLMRequest, stream bool, r *request, yield func(*LLMResponse, error) bool) (*LLMResponse, bool) {
	whole := &LLMResponse{Content: genai.NewContentFromText("", genai.RoleModel)}
	sent := &genaimodel.Request{Model: req.Model, Contents: req.Contents, Config: req.Config}
	for resp, err := range g.model.GenerateContent(ctx, sent, stream) {
		if err != nil {
			r.err = err
			return nil, true
		}
		chunk := converted(resp)
		whole.add(chunk)
		if chunk.Partial = stream; stream && chunk.ErrorCode == "" && !yield(chunk, nil) {
			return nil, false
		}
	}
	r.err = nil
	if u := whole.UsageMetadata; u != nil {
		r.input = int64(u.PromptTokenCount)
	}
	return whole, true
}

// add adds a chunk to the whole answer. What a chunk does not say stays.
func (whole *LLMResponse) add(chunk *LLMResponse) {
	whole.Content.Parts[0].Text += textOf(chunk.Content)
	if chunk.UsageMetadata != nil {
		whole.UsageMetadata = chunk.UsageMetadata
	}
	if chunk.FinishReason != "" {
		whole.FinishReason = chunk.FinishReason
	}
	if chunk.ErrorCode != "" {
		whole.ErrorCode, whole.ErrorMessage = chunk.ErrorCode, chunk.ErrorMessage
	}
}

// converted is a response of the SDK as agents read it.
func converted(resp *genai.GenerateContentResponse) *LLMResponse {
	r := &LLMResponse{UsageMetadata: resp.UsageMetadata}
	if f := resp.PromptFeedback; f != nil && f.BlockReason != "" {
		r.ErrorCode, r.ErrorMessage = string(f.BlockReason), f.BlockReasonMessage
	}
	if len(resp.Candidates) > 0 && resp.Candidates[0] != nil {
		r.Content, r.FinishReason = resp.Candidates[0].Content, resp.Candidates[0].FinishReason
	}
	return r
}
