package openaimodel_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/openaimodel"
	"github.com/headgate-go/headgate/usage"
)

func meters(t *testing.T, opts ...openaimodel.Option) (ratelimited.Meter[*openaimodel.ChatRequest, *openaimodel.ChatResponse], ratelimited.Meter[*openaimodel.ResponsesRequest, *openaimodel.ResponsesResponse]) {
	t.Helper()
	client := newClient(serve(t, apis[0].reply("hi")))
	chat, err := openaimodel.NewChat(client, "gpt-4o", opts...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := openaimodel.NewResponses(client, "gpt-4o", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return chat.Meter(), own.Meter()
}

// prose is 200 tokens or so, by any count.
var prose = strings.Repeat("Every field takes its share of the river, and never more than the river gives. ", 12)

var schema = map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string", "description": prose}}}

// picture is a data URL of a PNG of that size.
func picture(t *testing.T, w, h int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// A part of a request is seen if the estimate rises by what the part is worth
// when it is added.
func TestEveryPartOfAChatIsInTheEstimate(t *testing.T) {
	t.Parallel()
	meter, _ := meters(t)
	text := usage.OpenAI.Text(prose)
	message := func(m openai.ChatCompletionMessageParamUnion) func(*openai.ChatCompletionNewParams) {
		return func(p *openai.ChatCompletionNewParams) { p.Messages = append(p.Messages, m) }
	}
	part := func(c openai.ChatCompletionContentPartUnionParam) func(*openai.ChatCompletionNewParams) {
		return message(openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{c}))
	}
	for name, c := range map[string]struct {
		add   func(*openai.ChatCompletionNewParams)
		worth int64
		slack int64 // more than that is framing and JSON
	}{
		"system message":            {message(openai.SystemMessage(prose)), text, 5},
		"developer message":         {message(openai.DeveloperMessage(prose)), text, 5},
		"user message":              {message(openai.UserMessage(prose)), text, 5},
		"assistant message":         {message(openai.AssistantMessage(prose)), text, 5},
		"tool message":              {message(openai.ToolMessage(prose, "id")), text, 5},
		"function message":          {message(openai.ChatCompletionMessageParamOfFunction(prose, "f")), text, 5},
		"part of a message":         {part(openai.TextContentPart(prose)), text, 5},
		"parts of a system message": {message(openai.SystemMessage([]openai.ChatCompletionContentPartTextParam{{Text: prose}})), text, 5},
		"call of a tool": {message(openai.ChatCompletionMessageParamUnion{OfAssistant: &openai.ChatCompletionAssistantMessageParam{
			ToolCalls: []openai.ChatCompletionMessageToolCallUnionParam{{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: "f", Arguments: prose},
			}}},
		}}), text, 10},
		"refusal": {message(openai.ChatCompletionMessageParamUnion{OfAssistant: &openai.ChatCompletionAssistantMessageParam{Refusal: openai.String(prose)}}), text, 5},
		"tool": {func(p *openai.ChatCompletionNewParams) {
			p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "f", Parameters: schema}))
		}, text, 50},
		"schema of the answer": {func(p *openai.ChatCompletionNewParams) {
			p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "n", Schema: schema}}
		}, text, 50},
		"image of a known size": {
			part(openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: picture(t, 700, 300)})),
			usage.OpenAIImageTokens("gpt-4o", 700, 300, ""), 3,
		},
		"image at low detail": {
			part(openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: picture(t, 700, 300), Detail: "low"})), 85, 3,
		},
		"image behind an address": {
			part(openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "https://example.com/a.png"})),
			usage.OpenAIImageTokens("gpt-4o", 0, 0, ""), 3,
		},
		"text file": {
			part(openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{FileData: openai.String(base64.StdEncoding.EncodeToString([]byte(prose)))})), text, 3,
		},
		"PDF of two pages": {
			part(openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{FileData: openai.String("data:application/pdf;base64," + base64.StdEncoding.EncodeToString([]byte("%PDF-1.4\n<< /Type /Page >>\n<< /Type /Page >>\n"+strings.Repeat(" ", 200))))})),
			2 * (600 + usage.OpenAIImageTokens("gpt-4o", 768, 1024, "")), 3,
		},
		"file behind an identifier": {
			part(openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{FileID: openai.String("file-1")})),
			10 * (600 + usage.OpenAIImageTokens("gpt-4o", 768, 1024, "")), 3,
		},
		"two seconds of sound": {
			part(openai.InputAudioContentPart(openai.ChatCompletionContentPartInputAudioInputAudioParam{Data: base64.StdEncoding.EncodeToString(wav(2)), Format: "wav"})), 20, 3,
		},
		"sound that is none, by its bytes": {
			part(openai.InputAudioContentPart(openai.ChatCompletionContentPartInputAudioInputAudioParam{Data: strings.Repeat("!", 16000/3*4), Format: "mp3"})), 20, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}}
			before := meter.Estimate(req)
			c.add(&req.Params)
			after := meter.Estimate(req)
			if rise := after.Input - before.Input; rise < c.worth || rise > c.worth+c.slack {
				t.Errorf("the estimate rose by %d, want %d and at most %d more", rise, c.worth, c.slack)
			}
			if !after.Has(usage.Estimated) || after.Output != usage.DefaultTypicalOutput {
				t.Errorf("estimate %v", after)
			}
		})
	}
}

// wav is silence of that length, 8,000 samples a second of one byte.
func wav(seconds int) []byte {
	n := 8000 * seconds
	le := func(v, size int) (b []byte) {
		for range size {
			b, v = append(b, byte(v)), v>>8
		}
		return b
	}
	return bytes.Join([][]byte{
		[]byte("RIFF"), le(36+n, 4), []byte("WAVEfmt "), le(16, 4), le(1, 2), le(1, 2), le(8000, 4), le(8000, 4), le(1, 2), le(8, 2),
		[]byte("data"), le(n, 4), make([]byte, n),
	}, nil)
}

func TestEveryPartOfAResponseRequestIsInTheEstimate(t *testing.T) {
	t.Parallel()
	_, meter := meters(t)
	text := usage.OpenAI.Text(prose)
	input := func(i responses.ResponseInputItemUnionParam) func(*responses.ResponseNewParams) {
		return func(p *responses.ResponseNewParams) { p.Input.OfInputItemList = append(p.Input.OfInputItemList, i) }
	}
	content := func(c responses.ResponseInputContentUnionParam) func(*responses.ResponseNewParams) {
		return input(responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{c}, "user"))
	}
	for name, c := range map[string]struct {
		add   func(*responses.ResponseNewParams)
		worth int64
		slack int64
	}{
		"instructions":    {func(p *responses.ResponseNewParams) { p.Instructions = openai.String(prose) }, text, 5},
		"text":            {func(p *responses.ResponseNewParams) { p.Input.OfString = openai.String(prose) }, text, 5},
		"message":         {input(responses.ResponseInputItemParamOfMessage(prose, "user")), text, 5},
		"part of one":     {content(responses.ResponseInputContentParamOfInputText(prose)), text, 5},
		"input message":   {input(responses.ResponseInputItemParamOfInputMessage(responses.ResponseInputMessageContentListParam{responses.ResponseInputContentParamOfInputText(prose)}, "user")), text, 5},
		"earlier answer":  {input(responses.ResponseInputItemParamOfOutputMessage([]responses.ResponseOutputMessageContentUnionParam{{OfOutputText: &responses.ResponseOutputTextParam{Text: prose}}}, "msg_1", "completed")), text, 5},
		"function call":   {input(responses.ResponseInputItemParamOfFunctionCall(prose, "call_1", "f")), text, 5},
		"function result": {input(responses.ResponseInputItemParamOfFunctionCallOutput(prose)), text, 5},
		"other item":      {input(responses.ResponseInputItemParamOfCustomToolCall("call_1", prose, "f")), text, 40},
		"reasoning, encrypted": {input(responses.ResponseInputItemUnionParam{OfReasoning: &responses.ResponseReasoningItemParam{
			ID: "rs_1", EncryptedContent: openai.String(strings.Repeat("x", 4000)),
		}}), 1000, 5},
		"reasoning, told": {input(responses.ResponseInputItemUnionParam{OfReasoning: &responses.ResponseReasoningItemParam{
			ID: "rs_1", Summary: []responses.ResponseReasoningItemSummaryParam{{Text: prose}},
		}}), text, 5},
		"reference": {input(responses.ResponseInputItemParamOfItemReference("msg_1")), 0, 5},
		"tool": {func(p *responses.ResponseNewParams) {
			p.Tools = append(p.Tools, responses.ToolParamOfFunction("f", schema, true))
		}, text, 50},
		"schema of the answer": {func(p *responses.ResponseNewParams) {
			p.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("n", schema)
		}, text, 50},
		"image": {content(responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{ImageURL: openai.String(picture(t, 1200, 1200))}}),
			usage.OpenAIImageTokens("gpt-4o", 1200, 1200, ""), 5},
		"file": {content(responses.ResponseInputContentUnionParam{OfInputFile: &responses.ResponseInputFileParam{FileURL: openai.String("https://example.com/a.pdf")}}),
			10 * (600 + usage.OpenAIImageTokens("gpt-4o", 768, 1024, "")), 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := &openaimodel.ResponsesRequest{}
			before := meter.Estimate(req)
			c.add(&req.Params)
			after := meter.Estimate(req)
			if rise := after.Input - before.Input; rise < c.worth || rise > c.worth+c.slack {
				t.Errorf("the estimate rose by %d, want %d and at most %d more", rise, c.worth, c.slack)
			}
			if !after.Has(usage.Estimated) || after.Output != usage.DefaultTypicalOutput {
				t.Errorf("estimate %v", after)
			}
		})
	}
}

func TestParamsMadeOfRawJSONAreCountedAsText(t *testing.T) {
	t.Parallel()
	chat, own := meters(t)
	body := json.RawMessage(`{"model":"m","messages":[{"role":"user","content":"` + prose + `"}]}`)
	text := usage.OpenAI.Text(string(body))
	if got := chat.Estimate(&openaimodel.ChatRequest{Params: param.Override[openai.ChatCompletionNewParams](body)}); got.Input < text {
		t.Errorf("chat: %v, want at least %d", got, text)
	}
	if got := own.Estimate(&openaimodel.ResponsesRequest{Params: param.Override[responses.ResponseNewParams](body)}); got.Input < text {
		t.Errorf("responses: %v, want at least %d", got, text)
	}
}

// limiter is a meter that tells the limit of a request's output.
type limiter[Req any] interface{ OutputLimit(Req) int64 }

func TestTheExpectedOutputIsTheLimitOrATypicalAnswer(t *testing.T) {
	t.Parallel()
	chat, own := meters(t, openaimodel.WithTypicalOutput(300))
	for name, c := range map[string]struct {
		max, legacy, n int64
		want           int64
	}{
		"typical":                  {0, 0, 0, 300},
		"limit":                    {4000, 0, 0, 4000},
		"older limit":              {0, 20, 0, 20},
		"the newer one of two":     {30, 20, 0, 30},
		"times the answers":        {100, 0, 3, 300},
		"typical times answers":    {0, 0, 2, 600},
		"negative limits are none": {-5, -5, -5, 300},
		"no overflow":              {1 << 62, 0, 128, 1<<63 - 1},
	} {
		req := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{
			MaxCompletionTokens: openai.Int(c.max), MaxTokens: openai.Int(c.legacy), N: openai.Int(c.n),
		}}
		if got := chat.Estimate(req).Output; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		limited := c.want
		if c.max <= 0 && c.legacy <= 0 {
			limited = 0
		}
		if got := chat.(limiter[*openaimodel.ChatRequest]).OutputLimit(req); got != limited {
			t.Errorf("%s: limit %d, want %d", name, got, limited)
		}
		if c.legacy == 0 && c.n == 0 {
			if got := own.Estimate(&openaimodel.ResponsesRequest{Params: responses.ResponseNewParams{MaxOutputTokens: openai.Int(c.max)}}).Output; got != c.want {
				t.Errorf("%s, responses: %d, want %d", name, got, c.want)
			}
		}
	}
	if got := own.(limiter[*openaimodel.ResponsesRequest]).OutputLimit(&openaimodel.ResponsesRequest{Params: responses.ResponseNewParams{MaxOutputTokens: openai.Int(70)}}); got != 70 {
		t.Errorf("responses: limit %d, want 70", got)
	}
	if chat.Estimate(nil).Input != 0 || own.Estimate(nil).Input != 0 {
		t.Error("a nil request has an estimate")
	}
}

func TestClampLimitsACopy(t *testing.T) {
	t.Parallel()
	chat, own := meters(t)
	type params = openai.ChatCompletionNewParams
	for name, c := range map[string]struct {
		params params
		max    int64
		want   params
		ok     bool
	}{
		"no limit":                {params{}, 100, params{MaxCompletionTokens: openai.Int(100)}, true},
		"a larger limit":          {params{MaxCompletionTokens: openai.Int(500)}, 100, params{MaxCompletionTokens: openai.Int(100)}, true},
		"a smaller limit":         {params{MaxCompletionTokens: openai.Int(50)}, 100, params{MaxCompletionTokens: openai.Int(50)}, false},
		"the older limit":         {params{MaxTokens: openai.Int(500)}, 100, params{MaxTokens: openai.Int(100)}, true},
		"a smaller older limit":   {params{MaxTokens: openai.Int(50)}, 100, params{MaxTokens: openai.Int(50)}, false},
		"shared by three answers": {params{N: openai.Int(3)}, 100, params{N: openai.Int(3), MaxCompletionTokens: openai.Int(33)}, true},
		"nothing left":            {params{}, 0, params{MaxCompletionTokens: openai.Int(1)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := &openaimodel.ChatRequest{Params: c.params}
			got, ok := chat.Clamp(req, c.max)
			if ok != c.ok || !reflect.DeepEqual(got.Params, c.want) {
				t.Errorf("%+v, %v; want %+v, %v", got.Params, ok, c.want, c.ok)
			}
			if ok == (got == req) || !reflect.DeepEqual(req.Params, c.params) {
				t.Error("the request was changed, or copied for nothing")
			}
		})
	}
	for _, c := range []struct {
		limit, max, want int64
		ok               bool
	}{{0, 100, 100, true}, {500, 100, 100, true}, {50, 100, 50, false}, {0, 15, 0, false}} {
		req := &openaimodel.ResponsesRequest{}
		if c.limit > 0 {
			req.Params.MaxOutputTokens = openai.Int(c.limit)
		}
		got, ok := own.Clamp(req, c.max)
		if ok != c.ok || got.Params.MaxOutputTokens.Value != c.want || ok == (got == req) || req.Params.MaxOutputTokens.Value != c.limit {
			t.Errorf("limit %d clamped to %d: %v, %v; want %d, %v", c.limit, c.max, got.Params.MaxOutputTokens, ok, c.want, c.ok)
		}
	}
	if _, ok := chat.Clamp(nil, 5); ok {
		t.Error("a nil request was clamped")
	}
	if _, ok := chat.Clamp(&openaimodel.ChatRequest{Params: param.Override[params](json.RawMessage(`{}`))}, 5); ok {
		t.Error("params that are sent as they are were clamped")
	}
}

func TestUsageOfAnItemIsReadOrEstimated(t *testing.T) {
	t.Parallel()
	chat, own := meters(t)
	decode := func(t *testing.T, raw string, v any) {
		t.Helper()
		if err := json.Unmarshal([]byte(raw), v); err != nil {
			t.Fatal(err)
		}
	}
	var whole openai.ChatCompletion
	decode(t, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1000,"completion_tokens":500,"total_tokens":1500,"prompt_tokens_details":{"cached_tokens":700,"cache_write_tokens":100},"completion_tokens_details":{"reasoning_tokens":400}}}`, &whole)
	if u, p := chat.Observe(&openaimodel.ChatResponse{Completion: &whole, Done: true}); p != ratelimited.Done ||
		u != (usage.Usage{Input: 1000, CachedInput: 700, CacheWrite: 100, Output: 500, Thoughts: 400}) {
		t.Errorf("completion: %v, %v", u, p)
	}
	var bare openai.ChatCompletion
	decode(t, `{"choices":[{"message":{"content":"`+prose+`","tool_calls":[{"type":"function","function":{"name":"f","arguments":"`+prose+`"}}]}}]}`, &bare)
	if u, _ := chat.Observe(&openaimodel.ChatResponse{Completion: &bare, Done: true}); u.Output < 2*usage.OpenAI.Text(prose) || !u.Has(usage.Estimated) {
		t.Errorf("a completion without usage: %v", u)
	}
	var delta openai.ChatCompletionChunk
	decode(t, chunk(0, "Hello world", ""), &delta)
	if u, p := chat.Observe(&openaimodel.ChatResponse{Chunk: &delta}); p != ratelimited.More || u != (usage.Usage{Output: usage.OpenAI.Text("Hello world"), Flags: usage.Estimated}) {
		t.Errorf("chunk: %v, %v", u, p)
	}
	hello := usage.Usage{Output: usage.OpenAI.Text("Hello world"), Flags: usage.Estimated}
	for name, field := range map[string]string{
		"reasoning":                     `"reasoning_content":"Hello world"`,
		"reasoning by another name":     `"reasoning":"Hello world"`,
		"the same reasoning twice":      `"content":null,"reasoning_content":"Hello world","reasoning":"Hello world"`,
		"a custom tool's input":         `"tool_calls":[{"index":0,"custom":{"input":"Hello world"}}]`,
		"a custom tool's name":          `"tool_calls":[{"index":0,"type":"custom","id":"c","custom":{"name":"Hello world","input":""}}]`,
		"a function's arguments":        `"tool_calls":[{"index":0,"function":{"arguments":"Hello world"}}]`,
		"what is nothing beside a text": `"content":"Hello world","reasoning_content":null,"reasoning":7,"tool_calls":[{"index":0,"custom":7},{"index":1,"custom":{"input":null}}]`,
	} {
		var c openai.ChatCompletionChunk
		decode(t, `{"choices":[{"index":0,"delta":{`+field+`}}]}`, &c)
		if u, p := chat.Observe(&openaimodel.ChatResponse{Chunk: &c}); p != ratelimited.More || u != hello {
			t.Errorf("%s in a chunk: %v, %v", name, u, p)
		}
		var whole openai.ChatCompletion
		decode(t, `{"choices":[{"index":0,"message":{`+field+`}}]}`, &whole)
		if u, p := chat.Observe(&openaimodel.ChatResponse{Completion: &whole, Done: true}); p != ratelimited.Done || u != hello {
			t.Errorf("%s in one piece: %v, %v", name, u, p)
		}
	}
	var empty openai.ChatCompletionChunk
	decode(t, chunk(0, "", ""), &empty)
	if u, p := chat.Observe(&openaimodel.ChatResponse{Chunk: &empty}); p != ratelimited.More || u != (usage.Usage{}) {
		t.Errorf("an empty chunk: %v, %v", u, p)
	}
	for _, kind := range []string{"response.output_text.delta", "response.function_call_arguments.delta", "response.reasoning_text.delta", "response.refusal.delta"} {
		var event responses.ResponseStreamEventUnion
		decode(t, `{"type":"`+kind+`","delta":"Hello world"}`, &event)
		if u, p := own.Observe(&openaimodel.ResponsesResponse{Event: &event}); p != ratelimited.More || u != (usage.Usage{Output: usage.OpenAI.Text("Hello world"), Flags: usage.Estimated}) {
			t.Errorf("%s: %v, %v", kind, u, p)
		}
	}
	var sound responses.ResponseStreamEventUnion
	decode(t, `{"type":"response.audio.delta","delta":"AAAAAAAA"}`, &sound)
	if u, _ := own.Observe(&openaimodel.ResponsesResponse{Event: &sound}); u != (usage.Usage{}) {
		t.Errorf("sound is taken for text: %v", u)
	}
	if u, p := chat.Observe(nil); u != (usage.Usage{}) || p != ratelimited.More {
		t.Errorf("nil: %v, %v", u, p)
	}
	if u, p := own.Observe(nil); u != (usage.Usage{}) || p != ratelimited.More {
		t.Errorf("nil: %v, %v", u, p)
	}
}
