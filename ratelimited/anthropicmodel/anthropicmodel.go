// Package anthropicmodel makes a client of
// github.com/anthropics/anthropic-sdk-go/v2 a model that package ratelimited can
// wrap.
//
//	model, err := anthropicmodel.New(client, "claude-sonnet-4-5")
//	…
//	llm, err := ratelimited.New(model, gate)
//	…
//	req := &anthropicmodel.Request{Params: anthropic.MessageNewParams{
//		MaxTokens: 1024,
//		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello"))},
//	}}
//	for resp, err := range llm.GenerateContent(ctx, req, true) {
//
// It speaks the Messages API, in one piece or streamed, through whatever the
// client was made for: Anthropic's own API, or Bedrock, Vertex AI and the others
// for which the SDK has an option. The profiles for the gate are
// ratelimited.Anthropic and ratelimited.Bedrock.
//
// What the API says beside its answers reaches the gate without further ado: an
// error says what it means and how long to wait ([Classify]), and the rate-limit
// headers of every response lower what the gate believes is left.
package anthropicmodel

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/ratelimited"
)

// Request is a request for a message.
type Request struct {
	// Params are those of the SDK. They are copied, never written to, and may be
	// shared between calls that run at the same time. An empty Model stands for
	// the name given to New.
	Params anthropic.MessageNewParams
	// Options apply to this request, after those of the client: a header, for
	// instance. Retries stay off whatever they say.
	Options []option.RequestOption
}

// Model is a model of an Anthropic client. It is safe for concurrent use.
type Model struct {
	client anthropic.Client
	name   string
	meter  meter
}

var _ ratelimited.Model[*Request, *Response] = (*Model)(nil)

// New returns the model of that name. It returns an error if the client was not
// made by anthropic.NewClient, if the name is empty, or if an option has a value
// that is of no use.
func New(client anthropic.Client, name string, opts ...Option) (*Model, error) {
	switch {
	case len(client.Options) == 0:
		return nil, errors.New("anthropicmodel: client has no options; make it with anthropic.NewClient")
	case name == "":
		return nil, errors.New("anthropicmodel: name is empty")
	}
	m := &Model{client: client, name: name, meter: meter{name: name}}
	for _, opt := range opts {
		if opt != nil {
			opt(&m.meter)
		}
	}
	if err := m.meter.validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Name is the name of the model.
func (m *Model) Name() string { return m.name }

// UsesTransport tells package ratelimited that the model reports when a request
// was written, as a retry.Transport does; the client needs none.
func (m *Model) UsesTransport() bool { return true }

// ReportsLimits tells package ratelimited that the model passes the rate-limit
// headers of responses on to the gate.
func (m *Model) ReportsLimits() bool { return true }

// GenerateContent returns the sequence of the answer's items: one message, or
// with stream each event as it arrives. Nothing is sent until it is ranged, and
// each range sends the request anew. The SDK drops the stream's pings.
//
// One call is one HTTP request: the SDK's own retries are off, because the gate
// owns them.
//
// An error is the last item. [errors.As] finds the SDK's *anthropic.Error in an
// error of the API, whose own text does not quote the answer, also where it came
// with the status 200, in a stream or in place of a message; otherwise it is
// the SDK's or net/http's own, or matches [ErrIncomplete] or [ErrUnreadable].
// Where nothing was sent, because the request is nil or the SDK refused it (it
// wants a large max_tokens to be streamed, for instance), the error says so to
// package ratelimited, and nothing is charged. The end of ctx ends the call with
// an error that matches the context's, also where ctx has a cause, which
// net/http reports instead.
func (m *Model) GenerateContent(ctx context.Context, req *Request, stream bool) iter.Seq2[*Response, error] {
	return func(yield func(*Response, error) bool) {
		if req == nil {
			yield(nil, &unsent{errors.New("anthropicmodel: request is nil")})
			return
		}
		params := req.Params
		if params.Model == "" {
			params.Model = m.name
		}
		x := &exchange{ctx: ctx}
		opts := slices.Concat(req.Options, []option.RequestOption{option.WithMaxRetries(0), option.WithMiddleware(x.roundTrip)})
		if stream {
			m.stream(x, params, opts, yield)
			return
		}
		message, err := m.client.Messages.New(ctx, params, opts...)
		if err == nil {
			err = x.insteadOf(message)
		}
		if err = x.reported(err); err == nil {
			err = readable(message)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		yield(&Response{Message: message, used: usageOf(message)}, nil)
	}
}

func (m *Model) stream(x *exchange, params anthropic.MessageNewParams, opts []option.RequestOption, yield func(*Response, error) bool) {
	events := m.client.Messages.NewStreaming(x.ctx, params, opts...)
	defer events.Close()
	var seen answer
	for events.Next() {
		event := events.Current()
		if !yield(seen.add(&event), nil) {
			return
		}
	}
	err := x.reported(events.Err())
	if err == nil && !seen.whole {
		err = x.reported(ErrIncomplete)
	}
	if err != nil {
		yield(nil, err)
	}
}
