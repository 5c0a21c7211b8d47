package openaimodel

import (
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// responsesMeter reads the Responses API. It keeps no state.
type responsesMeter struct {
	name    string
	typical int64
}

// Estimate implements [ratelimited.Meter]: instructions, input items, tools and
// schemas, images and files; the answer is max_output_tokens or a typical one.
// What the API adds by itself is not in the request and is not counted: the
// conversation or response that it goes on from, a stored prompt, the results of
// tools on the provider's side. Params that were made of raw JSON are counted as
// text.
func (m *responsesMeter) Estimate(req *ResponsesRequest) usage.Usage {
	if req == nil {
		return usage.Usage{Flags: usage.Estimated}
	}
	p := &req.Params
	t := tally{model: p.Model, tokens: replyTokens}
	if t.model == "" {
		t.model = m.name
	}
	if raw, ok := p.Overrides(); ok {
		t.json(raw)
	}
	if p.Instructions.Value != "" {
		t.add(messageTokens)
		t.text(p.Instructions.Value)
	}
	if s := p.Input.OfString.Value; s != "" {
		t.add(messageTokens)
		t.text(s)
	}
	for i := range p.Input.OfInputItemList {
		t.inputItem(&p.Input.OfInputItemList[i])
	}
	for _, v := range p.Prompt.Variables {
		t.json(&v)
	}
	for i := range p.Tools {
		t.json(&p.Tools[i])
	}
	if s := p.Text.Format.OfJSONSchema; s != nil {
		t.json(s)
	}
	return usage.Usage{Input: t.tokens, Output: outputOf(p.MaxOutputTokens, m.typical, 1), Flags: usage.Estimated}
}

// OutputLimit is the limit that the request sets on its answer; 0 if it sets
// none. Package ratelimited asks.
func (m *responsesMeter) OutputLimit(req *ResponsesRequest) int64 {
	if req == nil {
		return 0
	}
	return max(req.Params.MaxOutputTokens.Value, 0)
}

// inputItem adds an item of the input.
func (t *tally) inputItem(u *responses.ResponseInputItemUnionParam) {
	t.add(messageTokens)
	switch {
	case u.OfMessage != nil:
		t.optional(u.OfMessage.Content.OfString)
		for i := range u.OfMessage.Content.OfInputItemContentList {
			t.inputContent(&u.OfMessage.Content.OfInputItemContentList[i])
		}
	case u.OfInputMessage != nil:
		for i := range u.OfInputMessage.Content {
			t.inputContent(&u.OfInputMessage.Content[i])
		}
	case u.OfOutputMessage != nil:
		for i := range u.OfOutputMessage.Content {
			if c := &u.OfOutputMessage.Content[i]; c.OfOutputText != nil {
				t.text(c.OfOutputText.Text)
			} else if c.OfRefusal != nil {
				t.text(c.OfRefusal.Refusal)
			}
		}
	case u.OfFunctionCall != nil:
		t.text(u.OfFunctionCall.Name)
		t.text(u.OfFunctionCall.Arguments)
	case u.OfFunctionCallOutput != nil:
		t.optional(u.OfFunctionCallOutput.Output.OfString)
		for i := range u.OfFunctionCallOutput.Output.OfResponseFunctionCallOutputItemArray {
			t.callOutput(&u.OfFunctionCallOutput.Output.OfResponseFunctionCallOutputItemArray[i])
		}
	case u.OfReasoning != nil:
		t.reasoning(u.OfReasoning)
	case u.OfItemReference != nil:
		// What it refers to is not in the request.
	default:
		t.json(u)
	}
}

// inputContent adds a part of a message.
func (t *tally) inputContent(u *responses.ResponseInputContentUnionParam) {
	switch {
	case u.OfInputText != nil:
		t.text(u.OfInputText.Text)
	case u.OfInputImage != nil:
		t.image(u.OfInputImage.ImageURL.Value, string(u.OfInputImage.Detail))
	case u.OfInputFile != nil:
		t.file(u.OfInputFile.FileData.Value, u.OfInputFile.Filename.Value)
	}
}

// callOutput adds a part of what a function returned.
func (t *tally) callOutput(u *responses.ResponseFunctionCallOutputItemUnionParam) {
	switch {
	case u.OfInputText != nil:
		t.text(u.OfInputText.Text)
	case u.OfInputImage != nil:
		t.image(u.OfInputImage.ImageURL.Value, string(u.OfInputImage.Detail))
	case u.OfInputFile != nil:
		t.file(u.OfInputFile.FileData.Value, u.OfInputFile.Filename.Value)
	}
}

// reasoning adds reasoning that is sent back: its text where it is told, else a
// quarter of its encrypted form, which stands for the reasoning itself.
func (t *tally) reasoning(r *responses.ResponseReasoningItemParam) {
	if n := len(r.EncryptedContent.Value); n > 0 {
		t.add(int64(n) / 4)
		return
	}
	for i := range r.Summary {
		t.text(r.Summary[i].Text)
	}
	for i := range r.Content {
		t.text(r.Content[i].Text)
	}
}

// Observe implements [ratelimited.Meter].
func (m *responsesMeter) Observe(resp *ResponsesResponse) (usage.Usage, ratelimited.Progress) {
	if resp == nil {
		return usage.Usage{}, ratelimited.More
	}
	progress := ratelimited.More
	if resp.Done {
		progress = ratelimited.Done
	}
	if r := resp.Response; r != nil {
		if r.Status == responses.ResponseStatusFailed || r.Status == responses.ResponseStatusCancelled {
			progress = ratelimited.Failed
		}
		if u := fromResponse(&r.Usage); !u.IsZero() {
			return u, progress
		}
	}
	if e := resp.Event; e != nil && addsOutput(e.Type) {
		return generated(usage.OpenAI.Text(e.Delta)), progress
	}
	return usage.Usage{}, progress
}

func fromResponse(u *responses.ResponseUsage) usage.Usage {
	return usage.FromOpenAI(usage.OpenAIReport{
		Prompt: u.InputTokens, Completion: u.OutputTokens, Total: u.TotalTokens,
		Cached: u.InputTokensDetails.CachedTokens, CacheWrite: u.InputTokensDetails.CacheWriteTokens,
		Reasoning: u.OutputTokensDetails.ReasoningTokens,
	})
}

// leastOutput is the smallest max_output_tokens that the API takes (OpenAI API
// reference, responses).
const leastOutput = 16

// Clamp implements [ratelimited.Meter]. It sets max_output_tokens.
func (m *responsesMeter) Clamp(req *ResponsesRequest, maxOutput int64) (*ResponsesRequest, bool) {
	if req == nil || maxOutput < leastOutput {
		return req, false
	}
	if _, ok := req.Params.Overrides(); ok {
		return req, false // it is sent as it is, whatever its fields say
	}
	if limit := req.Params.MaxOutputTokens.Value; limit > 0 && limit <= maxOutput {
		return req, false
	}
	clamped := *req
	clamped.Params.MaxOutputTokens = param.NewOpt(maxOutput)
	return &clamped, true
}
