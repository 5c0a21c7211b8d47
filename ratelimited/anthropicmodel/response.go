package anthropicmodel

import (
	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/headgate-go/headgate/usage"
)

// Response is an item of an answer. One of Message and Event is set.
type Response struct {
	// Message is the answer of a call that was not streamed.
	Message *anthropic.Message
	// Event is an event of a streamed answer. Accumulate of the SDK's Message
	// makes the message of all of them.
	Event *anthropic.MessageStreamEventUnion

	used usage.Usage // reported until here
}

// Text is the text of the item: all of a message's text, or what a
// content_block_start or content_block_delta event adds to it. Thinking and
// the input of tools are not part of it.
func (r *Response) Text() string {
	switch {
	case r == nil:
	case r.Message != nil:
		text := ""
		for i := range r.Message.Content {
			if block := &r.Message.Content[i]; block.Type == "text" {
				text += block.Text
			}
		}
		return text
	case r.Event != nil && r.Event.Type == eventBlockStart && r.Event.ContentBlock.Type == "text":
		return r.Event.ContentBlock.Text
	case r.Event != nil && r.Event.Type == eventBlockDelta && r.Event.Delta.Type == "text_delta":
		return r.Event.Delta.Text
	}
	return ""
}

// Usage is what the answer has reported up to this item, the zero Usage if it
// has not reported yet. In a stream the prompt is reported by the first event
// and the output by one of the last; each is a running total.
func (r *Response) Usage() usage.Usage {
	if r == nil {
		return usage.Usage{}
	}
	return r.used
}

// insteadOf is the error that a server sent with a status of success in place of
// a message, as some proxies do: an object of the type "error", or one that has
// nothing but an error. It is nil if m is something else.
func (x *exchange) insteadOf(m *anthropic.Message) error {
	if m == nil {
		return nil
	}
	inner := m.JSON.ExtraFields["error"].Raw()
	bare := m.Type == "" && len(m.Content) == 0 && inner != "" && inner != "null"
	if m.Type != "error" && !bare {
		return nil
	}
	e := &anthropic.Error{}
	if x.resp != nil {
		e.Request, e.Response, e.StatusCode = x.resp.Request, x.resp, x.resp.StatusCode
		e.RequestID = x.resp.Header.Get("Request-Id")
	}
	_ = e.UnmarshalJSON([]byte(m.RawJSON())) // what it cannot read says nothing
	return e
}

// Types of events (Anthropic docs, streaming messages page).
const (
	eventStart      = "message_start"
	eventBlockStart = "content_block_start"
	eventBlockDelta = "content_block_delta"
	eventDelta      = "message_delta"
	eventStop       = "message_stop"
)

// answer follows a streamed answer.
type answer struct {
	report usage.AnthropicReport // the last number of each kind
	used   usage.Usage
	whole  bool
}

// add makes the item of an event.
func (a *answer) add(event *anthropic.MessageStreamEventUnion) *Response {
	switch event.Type {
	case eventStart:
		a.merge(reportOf(&event.Message.Usage))
	case eventDelta:
		a.merge(a.overlaid(&event.Usage))
		a.whole = a.whole || event.Delta.StopReason != ""
	case eventStop:
		a.whole = true
	}
	return &Response{Event: event, used: a.used}
}

func (a *answer) merge(r usage.AnthropicReport) {
	a.report = r
	a.used = a.used.Max(usage.FromAnthropic(r))
}

// overlaid is the last report with what a message_delta event says. Its numbers
// are totals of the whole message, but those that have not changed may be left
// out, and some servers send zeros for the prompt: without what was read from
// the cache, what is left of the prompt would be too little.
func (a *answer) overlaid(u *anthropic.MessageDeltaUsage) usage.AnthropicReport {
	r := a.report
	if u.InputTokens != 0 || u.CacheCreationInputTokens != 0 || u.CacheReadInputTokens != 0 {
		if u.JSON.InputTokens.Valid() {
			r.Input = u.InputTokens
		}
		if u.JSON.CacheCreationInputTokens.Valid() {
			r.CacheCreation = u.CacheCreationInputTokens
		}
		if u.JSON.CacheReadInputTokens.Valid() {
			r.CacheRead = u.CacheReadInputTokens
		}
	}
	if u.JSON.OutputTokens.Valid() {
		r.Output = u.OutputTokens
	}
	if u.OutputTokensDetails.JSON.ThinkingTokens.Valid() {
		r.Thinking = u.OutputTokensDetails.ThinkingTokens
	}
	return r
}

func reportOf(u *anthropic.Usage) usage.AnthropicReport {
	return usage.AnthropicReport{
		Input: u.InputTokens, CacheCreation: u.CacheCreationInputTokens, CacheRead: u.CacheReadInputTokens,
		Output: u.OutputTokens, Thinking: u.OutputTokensDetails.ThinkingTokens,
	}
}

func usageOf(m *anthropic.Message) usage.Usage { return usage.FromAnthropic(reportOf(&m.Usage)) }
