package openaimodel

import (
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/respjson"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// chatMeter reads chat completions. It keeps no state.
type chatMeter struct {
	name    string
	typical int64
}

// Estimate implements [ratelimited.Meter]: messages, tools and schemas, images,
// files and audio; the answer is max_completion_tokens or max_tokens, or a
// typical one, times n. Params that were made of raw JSON are counted as text.
func (m *chatMeter) Estimate(req *ChatRequest) usage.Usage {
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
	for i := range p.Messages {
		t.chatMessage(&p.Messages[i])
	}
	for i := range p.Tools {
		t.json(&p.Tools[i])
	}
	for i := range p.Functions {
		t.json(&p.Functions[i])
	}
	if s := p.ResponseFormat.OfJSONSchema; s != nil {
		t.json(&s.JSONSchema)
	}
	return usage.Usage{Input: t.tokens, Output: outputOf(chatLimit(p), m.typical, p.N.Value), Flags: usage.Estimated}
}

// OutputLimit is the limit that the request sets on all its answers together; 0
// if it sets none. Package ratelimited asks.
func (m *chatMeter) OutputLimit(req *ChatRequest) int64 {
	if req == nil || chatLimit(&req.Params).Value <= 0 {
		return 0
	}
	return outputOf(chatLimit(&req.Params), 0, req.Params.N.Value)
}

// chatLimit is the limit that a request sets for each of its answers.
func chatLimit(p *openai.ChatCompletionNewParams) param.Opt[int64] {
	if p.MaxCompletionTokens.Value > 0 {
		return p.MaxCompletionTokens
	}
	return p.MaxTokens
}

// chatMessage adds a message.
func (t *tally) chatMessage(u *openai.ChatCompletionMessageParamUnion) {
	t.add(messageTokens)
	named := func(name param.Opt[string]) {
		if name.Value != "" {
			t.add(nameTokens)
			t.text(name.Value)
		}
	}
	texts := func(whole param.Opt[string], parts []openai.ChatCompletionContentPartTextParam) {
		t.optional(whole)
		for i := range parts {
			t.text(parts[i].Text)
		}
	}
	switch {
	case u.OfUser != nil:
		named(u.OfUser.Name)
		t.optional(u.OfUser.Content.OfString)
		for i := range u.OfUser.Content.OfArrayOfContentParts {
			t.chatPart(&u.OfUser.Content.OfArrayOfContentParts[i])
		}
	case u.OfAssistant != nil:
		named(u.OfAssistant.Name)
		t.chatAnswer(u.OfAssistant)
	case u.OfTool != nil:
		texts(u.OfTool.Content.OfString, u.OfTool.Content.OfArrayOfContentParts)
	case u.OfSystem != nil:
		named(u.OfSystem.Name)
		texts(u.OfSystem.Content.OfString, u.OfSystem.Content.OfArrayOfContentParts)
	case u.OfDeveloper != nil:
		named(u.OfDeveloper.Name)
		texts(u.OfDeveloper.Content.OfString, u.OfDeveloper.Content.OfArrayOfContentParts)
	case u.OfFunction != nil:
		t.text(u.OfFunction.Name)
		t.optional(u.OfFunction.Content)
	default:
		t.json(u)
	}
}

// chatPart adds a part of a user's message.
func (t *tally) chatPart(u *openai.ChatCompletionContentPartUnionParam) {
	switch {
	case u.OfText != nil:
		t.text(u.OfText.Text)
	case u.OfImageURL != nil:
		t.image(u.OfImageURL.ImageURL.URL, u.OfImageURL.ImageURL.Detail)
	case u.OfInputAudio != nil:
		t.audio(u.OfInputAudio.InputAudio.Data, u.OfInputAudio.InputAudio.Format)
	case u.OfFile != nil:
		t.file(u.OfFile.File.FileData.Value, u.OfFile.File.Filename.Value)
	}
}

// chatAnswer adds an earlier answer of the model.
func (t *tally) chatAnswer(a *openai.ChatCompletionAssistantMessageParam) {
	t.optional(a.Content.OfString)
	t.optional(a.Refusal)
	for i := range a.Content.OfArrayOfContentParts {
		part := &a.Content.OfArrayOfContentParts[i]
		if part.OfText != nil {
			t.text(part.OfText.Text)
		}
		if part.OfRefusal != nil {
			t.text(part.OfRefusal.Refusal)
		}
	}
	//lint:ignore SA1019 what is sent counts, deprecated or not
	call := a.FunctionCall
	t.text(call.Name)
	t.text(call.Arguments)
	for i := range a.ToolCalls {
		call := &a.ToolCalls[i]
		t.add(messageTokens)
		if call.OfFunction != nil {
			t.text(call.OfFunction.Function.Name)
			t.text(call.OfFunction.Function.Arguments)
		}
		if call.OfCustom != nil {
			t.text(call.OfCustom.Custom.Name)
			t.text(call.OfCustom.Custom.Input)
		}
	}
}

// Observe implements [ratelimited.Meter].
func (m *chatMeter) Observe(resp *ChatResponse) (usage.Usage, ratelimited.Progress) {
	if resp == nil {
		return usage.Usage{}, ratelimited.More
	}
	progress := ratelimited.More
	if resp.Done {
		progress = ratelimited.Done
	}
	switch {
	case resp.Completion != nil:
		if u := fromCompletion(&resp.Completion.Usage); !u.IsZero() {
			return u, progress
		}
		var t tally
		for i := range resp.Completion.Choices {
			message := &resp.Completion.Choices[i].Message
			t.text(message.Content)
			t.text(message.Refusal)
			t.thoughts(message.JSON.ExtraFields)
			//lint:ignore SA1019 what is generated counts, deprecated or not
			t.text(message.FunctionCall.Arguments)
			for j := range message.ToolCalls {
				call := &message.ToolCalls[j]
				t.text(call.Function.Name)
				t.text(call.Function.Arguments)
				t.text(call.Custom.Name)
				t.text(call.Custom.Input)
			}
		}
		return generated(t.tokens), progress
	case resp.Chunk != nil:
		if u := fromCompletion(&resp.Chunk.Usage); !u.IsZero() {
			return u, progress
		}
		var t tally
		for i := range resp.Chunk.Choices {
			delta := &resp.Chunk.Choices[i].Delta
			t.text(delta.Content)
			t.text(delta.Refusal)
			t.thoughts(delta.JSON.ExtraFields)
			//lint:ignore SA1019 what is generated counts, deprecated or not
			t.text(delta.FunctionCall.Arguments)
			for j := range delta.ToolCalls {
				call := &delta.ToolCalls[j]
				t.text(call.Function.Name)
				t.text(call.Function.Arguments)
				t.custom(call.JSON.ExtraFields["custom"].Raw())
			}
		}
		return generated(t.tokens), progress
	}
	return usage.Usage{}, progress
}

// thoughts adds what a model thought aloud. It is no part of OpenAI's API; servers
// that are compatible with it have it in reasoning_content (DeepSeek, vLLM,
// SGLang) or reasoning (OpenRouter, Ollama), or the same text in both.
func (t *tally) thoughts(extra map[string]respjson.Field) {
	t.add(max(usage.OpenAI.Text(textOf(extra["reasoning_content"].Raw())), usage.OpenAI.Text(textOf(extra["reasoning"].Raw()))))
}

// custom adds the piece of a custom tool's call that a chunk holds, for which the
// SDK has no field.
func (t *tally) custom(raw string) {
	var call struct{ Name, Input json.RawMessage }
	if raw != "" && json.Unmarshal([]byte(raw), &call) == nil {
		t.text(textOf(string(call.Name)))
		t.text(textOf(string(call.Input)))
	}
}

// textOf is a JSON string's content; "" for all else.
func textOf(raw string) (s string) {
	if raw == "" || json.Unmarshal([]byte(raw), &s) != nil {
		return ""
	}
	return s
}

func fromCompletion(u *openai.CompletionUsage) usage.Usage {
	return usage.FromOpenAI(usage.OpenAIReport{
		Prompt: u.PromptTokens, Completion: u.CompletionTokens, Total: u.TotalTokens,
		Cached: u.PromptTokensDetails.CachedTokens, CacheWrite: u.PromptTokensDetails.CacheWriteTokens,
		Reasoning: u.CompletionTokensDetails.ReasoningTokens,
	})
}

// Clamp implements [ratelimited.Meter]. It sets max_completion_tokens, or
// max_tokens where the request uses that, to its part for each of the answers.
func (m *chatMeter) Clamp(req *ChatRequest, maxOutput int64) (*ChatRequest, bool) {
	if req == nil {
		return req, false
	}
	if _, ok := req.Params.Overrides(); ok {
		return req, false // it is sent as it is, whatever its fields say
	}
	each := max(maxOutput/max(req.Params.N.Value, 1), 1)
	if limit := chatLimit(&req.Params).Value; limit > 0 && limit <= each {
		return req, false
	}
	clamped := *req
	if clamped.Params.MaxCompletionTokens.Value <= 0 && clamped.Params.MaxTokens.Value > 0 {
		clamped.Params.MaxTokens = param.NewOpt(each) // the API takes either, not both
	} else {
		clamped.Params.MaxCompletionTokens = param.NewOpt(each)
	}
	return &clamped, true
}
