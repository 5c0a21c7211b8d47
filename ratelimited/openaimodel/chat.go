package openaimodel

import (
	"context"
	"iter"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/headgate-go/headgate/ratelimited"
)

// ChatRequest is a request for a chat completion.
type ChatRequest struct {
	// Params of the request. An empty Model is the name given to NewChat. The
	// same Params may be used by calls that run at the same time: they are only
	// read.
	Params openai.ChatCompletionNewParams
	// Options of this request, such as a header; they come after the client's.
	// The SDK's retries stay off whatever they say.
	Options []option.RequestOption
}

// ChatResponse is an item of an answer: the whole completion, or a chunk of a
// streamed one.
type ChatResponse struct {
	// Completion is the answer of a call that was not streamed, else nil.
	Completion *openai.ChatCompletion
	// Chunk is an item of a streamed answer, else nil. The last one of OpenAI has
	// no choices, but the usage.
	Chunk *openai.ChatCompletionChunk
	// Done tells that the answer is complete: all choices have finished, with
	// this item or before it.
	Done bool
}

// Text is the text of the first choice: the message's, or what the chunk adds to
// it. It is empty where the item has none.
func (r *ChatResponse) Text() string {
	switch {
	case r == nil:
	case r.Completion != nil && len(r.Completion.Choices) > 0:
		return r.Completion.Choices[0].Message.Content
	case r.Chunk != nil:
		for _, c := range r.Chunk.Choices {
			if c.Index == 0 {
				return c.Delta.Content
			}
		}
	}
	return ""
}

// Chat makes chat completions with a client. It is safe for concurrent use.
type Chat struct {
	client openai.Client
	name   string
	options
}

var _ ratelimited.Model[*ChatRequest, *ChatResponse] = (*Chat)(nil)

// NewChat returns the model of that name; at Azure, the deployment's. It returns
// an error if the client was not made by openai.NewClient, if the name is empty,
// or if an option has an unusable value.
func NewChat(client openai.Client, name string, opts ...Option) (*Chat, error) {
	o, err := collect(name, opts)
	switch {
	case len(client.Options) == 0:
		return nil, errNoClient
	case err != nil:
		return nil, err
	}
	return &Chat{client: client, name: name, options: o}, nil
}

// Name is the name of the model.
func (m *Chat) Name() string { return m.name }

// ReportsLimits reports that the model tells the gate what rate-limit headers
// say. Package ratelimited asks.
func (m *Chat) ReportsLimits() bool { return true }

// UsesTransport reports that the model tells the gate when a request was
// written. Package ratelimited asks.
func (m *Chat) UsesTransport() bool { return true }

// Meter reads the requests and answers of this model; see [ratelimited.New].
func (m *Chat) Meter() ratelimited.Meter[*ChatRequest, *ChatResponse] {
	return &chatMeter{name: m.name, typical: m.typical}
}

// GenerateContent returns the sequence of the answer's items: the completion, or
// with stream each chunk as it arrives. Nothing is sent until it is ranged, and
// each range sends the request anew, once.
//
// An error is the last item. It is an [Error] if the API answered with one; it
// matches [ErrIncomplete] if a stream ended early, and [ErrUnreadable] if the
// answer is none of this API. A nil request, and one that cannot be encoded, is
// not sent. The end of ctx ends the call with an error that matches the
// context's, also where ctx has a cause.
func (m *Chat) GenerateContent(ctx context.Context, req *ChatRequest, stream bool) iter.Seq2[*ChatResponse, error] {
	if req == nil {
		return failed[ChatResponse](errNilRequest)
	}
	return func(yield func(*ChatResponse, error) bool) {
		params := req.Params
		if params.Model == "" {
			params.Model = m.name
		}
		x := &exchange{}
		if !stream {
			resp, err := m.unary(ctx, x, params, req.Options)
			yield(resp, err)
			return
		}
		opts := append(x.options(ctx, req.Options), option.WithJSONSet("stream_options.include_usage", true))
		seen := choices{wanted: params.N.Or(1)}
		pull(ctx, x, m.client.Chat.Completions.NewStreaming(ctx, params, opts...),
			func(chunk *openai.ChatCompletionChunk) (*ChatResponse, error) {
				seen.add(chunk)
				return &ChatResponse{Chunk: chunk, Done: seen.done}, nil
			}, seen.whole, yield)
	}
}

func (m *Chat) unary(ctx context.Context, x *exchange, params openai.ChatCompletionNewParams, opts []option.RequestOption) (*ChatResponse, error) {
	completion, err := m.client.Chat.Completions.New(ctx, params, x.options(ctx, opts)...)
	switch {
	case err != nil:
		return nil, x.reported(ctx, err)
	case completion == nil:
		return nil, &unreadable{why: "it is null"}
	}
	// Some proxies report an error with the status 200.
	if raw := completion.JSON.ExtraFields["error"].Raw(); len(completion.Choices) == 0 && raw != "" && raw != "null" {
		return nil, x.reported(ctx, eventError([]byte(completion.RawJSON()), nil))
	}
	return &ChatResponse{Completion: completion, Done: true}, nil
}

// maxChoices is the largest n that the API takes.
const maxChoices = 128

// choices knows which choices of a streamed answer have begun and which have
// finished, a bit for each.
type choices struct {
	wanted          int64
	begun, finished [maxChoices / 64]uint64
	count           int64 // that have finished
	done            bool
}

// add reads a chunk. Where a server makes fewer choices than were asked for, the
// chunk with the usage ends the answer.
func (a *choices) add(chunk *openai.ChatCompletionChunk) {
	for _, c := range chunk.Choices {
		word, bit := uint64(c.Index)%maxChoices/64, uint64(1)<<(uint64(c.Index)%64)
		a.begun[word] |= bit
		if c.FinishReason != "" && a.finished[word]&bit == 0 {
			a.finished[word] |= bit
			a.count++
		}
	}
	a.done = a.done || a.count > 0 && a.count >= a.wanted ||
		len(chunk.Choices) == 0 && chunk.JSON.Usage.Valid() && a.whole()
}

// whole reports whether nothing is missing of what has begun.
func (a *choices) whole() bool { return a.count > 0 && a.begun == a.finished }
