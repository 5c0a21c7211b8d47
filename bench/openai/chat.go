package openai

import (
	"context"
	"fmt"
)

// The shapes of chat completions and embeddings, with the fields in the order of
// the API reference.

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int     `json:"index"`
	Message      message `json:"message"`
	Logprobs     *int    `json:"logprobs"` // null
	FinishReason string  `json:"finish_reason"`
}

type message struct {
	Role        string     `json:"role,omitempty"`
	Content     *string    `json:"content"`
	Refusal     *string    `json:"refusal"`
	Annotations []string   `json:"annotations,omitempty"`
	ToolCalls   []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams only
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
	Usage   *usage        `json:"usage"` // null but in the last chunk
}

// plainChunk is a chunk of a stream that was not asked for its usage.
type plainChunk struct {
	chunk
	Usage *usage `json:"usage,omitempty"`
}

type chunkChoice struct {
	Index        int     `json:"index"`
	Delta        delta   `json:"delta"`
	Logprobs     *int    `json:"logprobs"` // null
	FinishReason *string `json:"finish_reason"`
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type usage struct {
	PromptTokens            int64             `json:"prompt_tokens"`
	CompletionTokens        int64             `json:"completion_tokens"`
	TotalTokens             int64             `json:"total_tokens"`
	PromptTokensDetails     promptDetails     `json:"prompt_tokens_details"`
	CompletionTokensDetails completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
	AudioTokens  int64 `json:"audio_tokens"`
}

type completionDetails struct {
	ReasoningTokens          int64 `json:"reasoning_tokens"`
	AudioTokens              int64 `json:"audio_tokens"`
	AcceptedPredictionTokens int64 `json:"accepted_prediction_tokens"`
	RejectedPredictionTokens int64 `json:"rejected_prediction_tokens"`
}

// usage is that of the whole call; nil where a fault leaves it out.
func (r *reply) usage() *usage {
	if r.call.Fault().Kind.Name == faultNoUsage {
		return nil
	}
	generated := int64(r.generated())
	return &usage{
		PromptTokens: r.req.PromptTokens, CompletionTokens: generated, TotalTokens: r.req.PromptTokens + generated,
		PromptTokensDetails:     promptDetails{CachedTokens: r.answer.Cached},
		CompletionTokensDetails: completionDetails{ReasoningTokens: int64(r.answer.Reasoning * r.prompt.choices)},
	}
}

// completion is the whole answer.
func (r *reply) completion() completion {
	c := completion{
		ID: r.id("chatcmpl-", "completion"), Object: "chat.completion", Created: r.began.Unix(), Model: r.req.Model, Usage: r.usage(),
	}
	m := message{Role: "assistant"}
	text := ""
	for i, p := range r.pieces {
		text += p.text
		if p.call != nil {
			m.ToolCalls = append(m.ToolCalls, r.toolCall(p.call, i))
		}
	}
	if len(m.ToolCalls) == 0 {
		m.Content = &text
	}
	for i := range r.prompt.choices {
		c.Choices = append(c.Choices, choice{Index: i, Message: m, FinishReason: r.finish})
	}
	return c
}

func (r *reply) toolCall(c *FunctionCall, i int) toolCall {
	return toolCall{
		ID: r.callID(i), Type: "function", Function: functionCall{Name: c.Name, Arguments: string(c.Args)},
	}
}

func (r *reply) callID(i int) string { return r.id("call_", fmt.Sprint("call ", i)) }

// streamChat sends a completion in chunks: for each choice its role, its pieces
// and its end, and then the usage of all.
func (r *reply) streamChat(ctx context.Context) {
	var events []event
	add := func(tokens int, choices []chunkChoice, u *usage) {
		c := chunk{
			ID: r.id("chatcmpl-", "completion"), Object: "chat.completion.chunk", Created: r.began.Unix(), Model: r.req.Model,
			Choices: choices, Usage: u,
		}
		var data any = c
		if !r.prompt.includeUsage {
			data = plainChunk{chunk: c}
		}
		events = append(events, event{data: data, tokens: tokens})
	}
	n := r.prompt.choices
	for i := range n {
		add(-1, []chunkChoice{{Index: i, Delta: delta{Role: "assistant", Content: new("")}}}, nil)
	}
	for j, p := range r.pieces {
		d := delta{Content: &p.text}
		if p.call != nil {
			call := r.toolCall(p.call, j)
			call.Index = &j
			d = delta{ToolCalls: []toolCall{call}}
		}
		for i := range n {
			add(p.tokens*n, []chunkChoice{{Index: i, Delta: d}}, nil)
		}
	}
	for i := range n {
		add(r.generated(), []chunkChoice{{Index: i, FinishReason: &r.finish}}, nil)
	}
	if u := r.usage(); r.prompt.includeUsage && u != nil {
		add(r.generated(), []chunkChoice{}, u)
	}
	events[len(events)-1].final = "data: [DONE]\n\n"
	r.stream(ctx, events)
}

type embeddings struct {
	Object string          `json:"object"`
	Data   []embedding     `json:"data"`
	Model  string          `json:"model"`
	Usage  *embeddingUsage `json:"usage,omitempty"`
}

type embedding struct {
	Object    string    `json:"object"`
	Index     int       `json:"index"`
	Embedding []float64 `json:"embedding"`
}

type embeddingUsage struct {
	PromptTokens int64 `json:"prompt_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// dimensions is the length of the double's embeddings.
const dimensions = 8

// embeddings is the answer to a request for embeddings.
func (r *reply) embeddings() embeddings {
	e := embeddings{Object: "list", Model: r.req.Model}
	if r.usage() != nil {
		e.Usage = &embeddingUsage{PromptTokens: r.req.PromptTokens, TotalTokens: r.req.PromptTokens}
	}
	for i := range r.prompt.inputs {
		random := r.call.Draw().Bytes(fmt.Sprint("embedding ", i))
		v := make([]float64, dimensions)
		for j := range v {
			v[j] = float64(int(random[j])-128) / 128
		}
		e.Data = append(e.Data, embedding{Object: "embedding", Index: i, Embedding: v})
	}
	return e
}
