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
	"iter"
	"net/http"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"google.golang.org/genai"
)

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
// or was not made by genai.NewClient, or if the name is empty.
func New(client *genai.Client, name string) (*Model, error) {
	switch {
	case client == nil:
		return nil, errors.New("genaimodel: client is nil")
	case client.Models == nil:
		return nil, errors.New("genaimodel: client.Models is nil; make the client with genai.NewClient")
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
// Package ratelimited asks. It does not look into round trippers that wrap one;
// say so then with ratelimited.WithTransport.
func (m *Model) UsesTransport() bool {
	c := m.client.ClientConfig().HTTPClient
	if c == nil {
		return false
	}
	_, ok := c.Transport.(*retry.Transport)
	return ok
}

// ReportsLimits is true: the context of a call tells its gate, so that a gate at
// the HTTP layer of the same client lets the request pass. The Gemini API itself
// reports nothing of its limits.
func (m *Model) ReportsLimits() bool { return true }

// GenerateContent returns the sequence of the answer's items: one item, or with
// stream each chunk as it arrives. Nothing is sent until it is ranged, and each
// range sends the request anew.
//
// One call is one HTTP request: the SDK's own retries are off, because the gate
// owns them, and so is its automatic continuation, which would send further
// requests that nobody counts. An answer that asks to be continued is passed on
// with its finish reason.
//
// An error is the last item. It is the SDK's own, or matches [ErrIncomplete] or
// [ErrUnreadable]; a request that is nil, or that has a nil where the SDK needs
// a value, is not sent, and the error names the field. The end of ctx ends the
// call with an error that matches the context's, also where ctx has a cause,
// which net/http reports instead.
func (m *Model) GenerateContent(ctx context.Context, req *Request, stream bool) iter.Seq2[*genai.GenerateContentResponse, error] {
	return func(yield func(*genai.GenerateContentResponse, error) bool) {
		if err := req.validate(); err != nil {
			yield(nil, err)
			return
		}
		name := req.Model
		if name == "" {
			name = m.name
		}
		if stream {
			m.stream(ctx, name, req, yield)
			return
		}
		resp, err := m.unary(ctx, name, req)
		yield(resp, err)
	}
}

func (m *Model) unary(ctx context.Context, name string, req *Request) (resp *genai.GenerateContentResponse, err error) {
	defer func() {
		if misread := recovered(recover()); misread != nil {
			resp, err = nil, misread
		}
	}()
	resp, err = m.client.Models.GenerateContent(ctx, name, req.Contents, private(req.Config))
	return resp, reported(ctx, err)
}

func (m *Model) stream(ctx context.Context, name string, req *Request, yield func(*genai.GenerateContentResponse, error) bool) {
	var seen answer
	yielding := false // the consumer is at work: a panic is its own
	defer func() {
		if yielding {
			return
		}
		if misread := recovered(recover()); misread != nil {
			yield(nil, misread)
		}
	}()
	for resp, err := range m.client.Models.GenerateContentStream(ctx, name, req.Contents, private(req.Config)) {
		seen.add(resp)
		yielding = true
		more := yield(resp, reported(ctx, err))
		if !more || err != nil {
			return
		}
		yielding = false
	}
	if !seen.whole() {
		yielding = true
		yield(nil, ErrIncomplete)
	}
}

// private returns a copy of everything that the SDK writes to: it sets the role
// of SystemInstruction and the headers of HTTPOptions, and may append to a list
// of values that the caller's headers hold.
func private(shared *genai.GenerateContentConfig) *genai.GenerateContentConfig {
	config := &genai.GenerateContentConfig{}
	if shared != nil {
		*config = *shared
	}
	options := &genai.HTTPOptions{}
	if config.HTTPOptions != nil {
		*options = *config.HTTPOptions
	}
	if options.Headers = options.Headers.Clone(); options.Headers == nil {
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
