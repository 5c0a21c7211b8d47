// Package openaimodel makes a client of github.com/openai/openai-go/v3 a model
// that package ratelimited can wrap: [Chat] for chat completions, [Responses]
// for the Responses API. Both serve OpenAI, Azure OpenAI and servers that speak
// as they do.
//
//	model, err := openaimodel.NewChat(client, "gpt-5-mini")
//	…
//	gate, err := ratelimited.NewGate(ratelimited.Config{
//		Slots:   30,
//		Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 500, TokensPerMinute: 200_000}),
//	})
//	…
//	llm, err := ratelimited.New(model, gate)
//	…
//	req := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{
//		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
//	}}
//	for resp, err := range llm.GenerateContent(ctx, req, true) {
//
// # What the adapters see to
//
// One call is one HTTP request: the SDK's own retries are off, because the gate
// owns them. Streamed chat completions are asked for their usage
// (stream_options.include_usage), which OpenAI sends in a chunk of its own after
// the last one that holds output; the gate books it although the call's slot is
// back by then.
//
// Errors of the API come as an [Error], which says what it means for a retry
// ([Classify] tells the same of the SDK's errors). The rate-limit headers of
// every answer, errors and streams among them, are reported to the gate as soon
// as they arrive, and the gate is told when the request was written.
//
// Errors never quote a prompt or an answer.
package openaimodel

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/headgate-go/headgate/usage"
)

// Option changes how a model reads its requests.
type Option func(*options)

type options struct {
	typical int64
}

// WithTypicalOutput sets the number of tokens, reasoning inside, that an answer
// is expected to have where the request does not limit it and nothing was
// learned about it. Defaults to usage.DefaultTypicalOutput.
func WithTypicalOutput(tokens int64) Option {
	return func(o *options) { o.typical = tokens }
}

// collect reads what both constructors are given.
func collect(name string, opts []Option) (options, error) {
	o := options{typical: usage.DefaultTypicalOutput}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	switch {
	case name == "":
		return o, errors.New("openaimodel: name is empty")
	case o.typical < 1:
		return o, fmt.Errorf("openaimodel: WithTypicalOutput: tokens is %d, must be at least 1", o.typical)
	}
	return o, nil
}

// errNoClient is the error for a client without options, which is none: the SDK
// reads even the address of the API from them.
var errNoClient = errors.New("openaimodel: client has no options; make it with openai.NewClient")

// pull yields the items of a stream to its end. item makes an item of an event,
// or the error that the event reports; whole tells whether nothing is missing.
func pull[Event, Resp any](
	ctx context.Context, x *exchange, s *ssestream.Stream[Event],
	item func(*Event) (*Resp, error), whole func() bool, yield func(*Resp, error) bool,
) {
	defer s.Close() // the connection is of no further use; there is nobody to tell
	for s.Next() {
		event := s.Current()
		resp, err := item(&event)
		if err != nil {
			yield(nil, x.reported(ctx, err))
			return
		}
		if !yield(resp, nil) {
			return
		}
	}
	if err := s.Err(); err != nil {
		yield(nil, x.reported(ctx, err))
		return
	}
	if !whole() {
		yield(nil, x.reported(ctx, ErrIncomplete))
	}
}

// failed is a sequence that yields nothing but an error.
func failed[Resp any](err error) iter.Seq2[*Resp, error] {
	return func(yield func(*Resp, error) bool) { yield(nil, err) }
}
