package anthropicmodel

import (
	"fmt"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// Option changes how the calls of a [Model] are estimated.
type Option func(*meter)

// WithTypicalOutput sets the number of tokens that an answer is expected to
// have, without its thinking, before anything was learned about it. 0 means
// usage.DefaultTypicalOutput.
func WithTypicalOutput(tokens int64) Option { return func(m *meter) { m.typical = tokens } }

// WithMaxTokensReserved makes the estimate of a call's output its max_tokens, in
// place of a typical answer, and keeps it there whatever is learned about
// answers. It belongs to a provider that sets aside max_tokens when it admits a
// call, as Bedrock does: with a smaller estimate the gate would send calls that
// are refused there. Anthropic's own API does not count max_tokens.
//
// A gate never lowers the output of an estimate below the part of it that is
// marked as thoughts, so the estimate marks all of it. Budgets of customers hold
// max_tokens then, too, until the call has ended.
func WithMaxTokensReserved() Option { return func(m *meter) { m.reserve = true } }

// meter reads requests and responses for a gate.
type meter struct {
	name    string
	typical int64
	reserve bool
}

var _ ratelimited.Meter[*Request, *Response] = (*meter)(nil)

func (m *meter) validate() error {
	if m.typical < 0 {
		return fmt.Errorf("anthropicmodel: WithTypicalOutput: tokens is %d, must not be negative", m.typical)
	}
	return nil
}

// Meter reads the model's requests and items for a gate; ratelimited.New asks
// for it.
//
// Its Estimate counts, in tokens, what the request says: text, tools and their
// schemas, tool calls and results, images by their size, PDF pages, and as
// output a typical answer and the thinking budget, at most max_tokens. Nothing is
// known of the cache before the call, so all input counts as uncached. Tokens
// that tools of the API's side will add are not counted.
//
// Its Observe takes an answer for complete at the stop reason; message_stop, and
// usage that comes late, may follow. Thinking that is not shown is in the usage
// only.
//
// Its Clamp lowers max_tokens on a copy, and refuses where the thinking budget
// would not stay below it, which the API demands; where max_tokens is 0, which
// only fills the cache; and where the parameters were replaced by raw JSON.
func (m *Model) Meter() ratelimited.Meter[*Request, *Response] { return &m.meter }

// Observe implements ratelimited.Meter.
func (m *meter) Observe(r *Response) (usage.Usage, ratelimited.Progress) {
	switch {
	case r == nil:
		return usage.Usage{}, ratelimited.More
	case r.Message != nil:
		return r.reported(), ratelimited.Done
	case r.Event == nil:
		return usage.Usage{}, ratelimited.More
	}
	progress := ratelimited.More
	switch r.Event.Type {
	case eventStart:
		return r.reported(), ratelimited.More
	case eventDelta:
		if r.Event.Delta.StopReason != "" {
			progress = ratelimited.Done
		}
		return r.reported(), progress
	case eventStop:
		return usage.Usage{}, ratelimited.Done
	}
	if n := outputIn(r.Event); n > 0 {
		return usage.Usage{Output: n, Flags: usage.Estimated}, progress
	}
	return usage.Usage{}, progress
}

// reported is the usage that the item reports: with that of the items before it,
// if it came from a model.
func (r *Response) reported() usage.Usage {
	switch {
	case !r.used.IsZero():
		return r.used
	case r.Message != nil:
		return usageOf(r.Message)
	}
	var a answer
	return a.add(r.Event).used
}

// outputIn estimates what an event adds to the output.
func outputIn(e *anthropic.MessageStreamEventUnion) int64 {
	switch e.Type {
	case eventBlockStart:
		b := &e.ContentBlock
		return textTokens(b.Text) + textTokens(b.Thinking) + textTokens(b.Name) + signatureTokens(b.Data)
	case eventBlockDelta:
		d := &e.Delta
		return textTokens(d.Text) + textTokens(d.Thinking) + textTokens(d.PartialJSON)
	}
	return 0
}

// Clamp implements ratelimited.Meter.
func (m *meter) Clamp(req *Request, maxOutput int64) (*Request, bool) {
	if req == nil || req.Params.MaxTokens <= 0 {
		return req, false
	}
	if _, raw := req.Params.Overrides(); raw {
		return req, false
	}
	if _, extra := req.Params.ExtraFields()["max_tokens"]; extra {
		return req, false
	}
	maxOutput = max(maxOutput, 1)
	if maxOutput >= req.Params.MaxTokens || maxOutput <= thinkingBudget(&req.Params) {
		return req, false
	}
	clamped := *req
	clamped.Params.MaxTokens = maxOutput
	return &clamped, true
}

// thinkingBudget is how many tokens the request lets the model think; 0 where it
// does not say.
func thinkingBudget(p *anthropic.MessageNewParams) int64 {
	if t := p.Thinking.OfEnabled; t != nil {
		return max(t.BudgetTokens, 0)
	}
	return 0
}
