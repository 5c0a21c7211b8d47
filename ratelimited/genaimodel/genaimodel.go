// Package genaimodel makes a client of google.golang.org/genai a model that
// package ratelimited can wrap.
//
//	model, err := genaimodel.New(client, "gemini-2.5-flash")
//	…
//	llm, err := ratelimited.New(model, gate)
//	…
//	for resp, err := range llm.GenerateContent(ctx, &genaimodel.Request{Contents: genai.Text("Hello")}, true) {
//
// Give the client an HTTP client that sends through retry.Transport: the SDK
// drops the headers of an error, and with them a Retry-After; the transport
// keeps it.
package genaimodel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"google.golang.org/genai"
)

// ErrIncomplete is yielded after the last item of a stream that ended cleanly
// but without a finish reason: the connection was closed early and the answer is
// not whole. The SDK takes it for a normal end. It also matches
// io.ErrUnexpectedEOF.
var ErrIncomplete = fmt.Errorf("genaimodel: the stream ended without a finish reason: %w", io.ErrUnexpectedEOF)

// Request is a request to generate content.
type Request struct {
	// Model overrides the model's name; "" is the name given to New.
	Model string
	// Contents of the request.
	Contents []*genai.Content
	// Config of the request, or nil. It may be shared between calls that run at
	// the same time: it is copied, never written to.
	Config *genai.GenerateContentConfig
}

// Model is a model of a genai client. It is safe for concurrent use.
type Model struct {
	client *genai.Client
	name   string
}

var _ ratelimited.Model[*Request, *genai.GenerateContentResponse] = (*Model)(nil)

// New returns the model of that name. It returns an error if the client is nil
// or the name is empty.
func New(client *genai.Client, name string) (*Model, error) {
	switch {
	case client == nil:
		return nil, errors.New("genaimodel: client is nil")
	case name == "":
		return nil, errors.New("genaimodel: name is empty")
	}
	return &Model{client: client, name: name}, nil
}

// Name is the name of the model.
func (m *Model) Name() string { return m.name }

// GetGoogleLLMVariant tells which Google API the client speaks to.
func (m *Model) GetGoogleLLMVariant() genai.Backend { return m.client.ClientConfig().Backend }

// UsesTransport reports whether the client sends through a retry.Transport.
// Package ratelimited asks.
func (m *Model) UsesTransport() bool {
	c := m.client.ClientConfig().HTTPClient
	if c == nil {
		return false
	}
	_, ok := c.Transport.(*retry.Transport)
	return ok
}

// GenerateContent returns the sequence of the answer's items: one item, or with
// stream each chunk as it arrives. Nothing is sent until it is ranged, and each
// range sends the request anew.
//
// One call is one HTTP request: the SDK's own retries are off, because the gate
// owns them, and so is its automatic continuation, which would send further
// requests that nobody counts. An answer that asks to be continued is passed on
// with its finish reason.
//
// A nil request is an error. Errors are the SDK's, and [ErrIncomplete].
func (m *Model) GenerateContent(ctx context.Context, req *Request, stream bool) iter.Seq2[*genai.GenerateContentResponse, error] {
	return func(yield func(*genai.GenerateContentResponse, error) bool) {
		if req == nil {
			yield(nil, errors.New("genaimodel: request is nil"))
			return
		}
		name := req.Model
		if name == "" {
			name = m.name
		}
		config := private(req.Config)
		if !stream {
			resp, err := m.client.Models.GenerateContent(ctx, name, req.Contents, config)
			yield(resp, err)
			return
		}
		whole := false
		for resp, err := range m.client.Models.GenerateContentStream(ctx, name, req.Contents, config) {
			whole = whole || err != nil || finished(resp)
			if !yield(resp, err) {
				return
			}
		}
		if !whole {
			yield(nil, ErrIncomplete)
		}
	}
}

// finished reports whether a chunk ends the answer: a candidate has a reason to
// have finished, or the prompt was blocked.
func finished(resp *genai.GenerateContentResponse) bool {
	if resp == nil {
		return false
	}
	if resp.PromptFeedback != nil && resp.PromptFeedback.BlockReason != "" {
		return true
	}
	for _, c := range resp.Candidates {
		if c != nil && c.FinishReason != "" {
			return true
		}
	}
	return false
}

// private returns a copy of everything that the SDK writes to: it sets the
// headers of HTTPOptions and the role of SystemInstruction.
func private(shared *genai.GenerateContentConfig) *genai.GenerateContentConfig {
	config := &genai.GenerateContentConfig{}
	if shared != nil {
		*config = *shared
	}
	options := &genai.HTTPOptions{}
	if config.HTTPOptions != nil {
		*options = *config.HTTPOptions
	}
	options.Headers = maps.Clone(options.Headers)
	if options.Headers == nil {
		options.Headers = http.Header{}
	}
	options.RetryOptions = &genai.HTTPRetryOptions{Attempts: genai.Ptr[int32](1)}
	config.HTTPOptions = options
	if config.SystemInstruction != nil {
		instruction := *config.SystemInstruction
		config.SystemInstruction = &instruction
	}
	config.AutomaticContinuation = genai.Ptr(false)
	return config
}
