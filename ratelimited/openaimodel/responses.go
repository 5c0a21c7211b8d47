package openaimodel

import (
	"context"
	"iter"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/headgate-go/headgate/ratelimited"
)

// ResponsesRequest is a request to the Responses API.
type ResponsesRequest struct {
	// Params of the request. An empty Model is the name given to NewResponses.
	// The same Params may be used by calls that run at the same time: they are
	// only read.
	//
	// A request with Background set is answered at once with a response that is
	// still queued. The call ends with that, so the gate neither holds a slot for
	// what the API then does, nor learns what it used.
	Params responses.ResponseNewParams
	// Options of this request, such as a header; they come after the client's.
	// The SDK's retries stay off whatever they say.
	Options []option.RequestOption
}

// ResponsesResponse is an item of an answer: the whole response, or an event of
// a streamed one.
type ResponsesResponse struct {
	// Response is the answer of a call that was not streamed, and that of the
	// event which completes a streamed one; else nil.
	Response *responses.Response
	// Event is an item of a streamed answer, else nil.
	Event *responses.ResponseStreamEventUnion
	// Done tells that the answer is complete. With response.failed, or the status
	// "failed", it is no success: Response.Error says why.
	Done bool
}

// Text is the text of the response, or what the event adds to it. It is empty
// where the item has none.
func (r *ResponsesResponse) Text() string {
	switch {
	case r == nil:
	case r.Event != nil:
		if r.Event.Type == "response.output_text.delta" {
			return r.Event.Delta
		}
	case r.Response != nil:
		return r.Response.OutputText()
	}
	return ""
}

// Responses makes responses with a client. It is safe for concurrent use.
type Responses struct {
	client openai.Client
	name   string
	options
}

var _ ratelimited.Model[*ResponsesRequest, *ResponsesResponse] = (*Responses)(nil)

// NewResponses returns the model of that name; at Azure, the deployment's. It
// returns an error if the client was not made by openai.NewClient, if the name
// is empty, or if an option has an unusable value.
func NewResponses(client openai.Client, name string, opts ...Option) (*Responses, error) {
	o, err := collect(name, opts)
	switch {
	case len(client.Options) == 0:
		return nil, errNoClient
	case err != nil:
		return nil, err
	}
	return &Responses{client: client, name: name, options: o}, nil
}

// Name is the name of the model.
func (m *Responses) Name() string { return m.name }

// ReportsLimits reports that the model tells the gate what rate-limit headers
// say. Package ratelimited asks.
func (m *Responses) ReportsLimits() bool { return true }

// UsesTransport reports that the model tells the gate when a request was
// written. Package ratelimited asks.
func (m *Responses) UsesTransport() bool { return true }

// Meter reads the requests and answers of this model; see [ratelimited.New].
func (m *Responses) Meter() ratelimited.Meter[*ResponsesRequest, *ResponsesResponse] {
	return &responsesMeter{name: m.name, typical: m.typical}
}

// GenerateContent returns the sequence of the answer's items: the response, or
// with stream each event as it arrives. Nothing is sent until it is ranged, and
// each range sends the request anew, once.
//
// An error is the last item; errors are those of [Chat.GenerateContent]. An
// event of the type "error" is no item but an [Error], as is an error that a
// server sends in place of a response. A response that failed is an item, because
// the API answers it as one.
func (m *Responses) GenerateContent(ctx context.Context, req *ResponsesRequest, stream bool) iter.Seq2[*ResponsesResponse, error] {
	if req == nil {
		return failed[ResponsesResponse](errNilRequest)
	}
	return func(yield func(*ResponsesResponse, error) bool) {
		params := req.Params
		if params.Model == "" {
			params.Model = m.name
		}
		x := &exchange{}
		opts := x.options(ctx, req.Options)
		if !stream {
			resp, err := m.client.Responses.New(ctx, params, opts...)
			switch {
			case err != nil:
				yield(nil, x.reported(ctx, err))
			case resp == nil:
				yield(nil, &unreadable{why: "it is null"})
			case isBareError(resp):
				yield(nil, x.reported(ctx, eventError([]byte(resp.RawJSON()), nil)))
			default:
				yield(&ResponsesResponse{Response: resp, Done: true}, nil)
			}
			return
		}
		done := false
		pull(ctx, x, m.client.Responses.NewStreaming(ctx, params, opts...),
			func(event *responses.ResponseStreamEventUnion) (*ResponsesResponse, error) {
				if event.Type == "error" {
					return nil, eventError([]byte(event.RawJSON()), nil)
				}
				resp := &ResponsesResponse{Event: event}
				if ends(event.Type) {
					done = true
					resp.Response = &event.Response
				}
				resp.Done = done
				return resp, nil
			}, func() bool { return done }, yield)
	}
}

// isBareError reports whether an answer with a status of success is an error and
// nothing else, which some proxies send. A response that failed has an id and a
// status.
func isBareError(r *responses.Response) bool {
	raw := r.JSON.Error.Raw()
	return raw != "" && raw != "null" && r.ID == "" && r.Status == "" && len(r.Output) == 0
}

// ends reports whether an event of that type completes a response.
func ends(event string) bool {
	switch event {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return true
	}
	return false
}

// addsOutput reports whether the delta of an event of that type is text that was
// generated: of the answer, of its reasoning, or of the arguments of a call.
func addsOutput(event string) bool {
	return strings.HasSuffix(event, ".delta") && !strings.HasPrefix(event, "response.audio.")
}
