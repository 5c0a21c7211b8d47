package anthropicmodel_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"reflect"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/usage"
)

// estimate is what a request with these blocks is taken to use.
func estimate(t *testing.T, edit func(*anthropic.MessageNewParams), opts ...anthropicmodel.Option) usage.Usage {
	t.Helper()
	req := hello()
	if edit != nil {
		edit(&req.Params)
	}
	m, err := anthropicmodel.New(anthropic.NewClient(option.WithoutEnvironmentDefaults()), modelName, opts...)
	if err != nil {
		t.Fatal(err)
	}
	u := m.Meter().Estimate(req)
	if !u.Has(usage.Estimated) || u.Clamp() != u {
		t.Errorf("an estimate of %+v", u)
	}
	return u
}

func blocks(list ...anthropic.ContentBlockParamUnion) func(*anthropic.MessageNewParams) {
	return func(p *anthropic.MessageNewParams) {
		p.Messages = append(p.Messages, anthropic.NewUserMessage(list...))
	}
}

func assistant(list ...anthropic.ContentBlockParamUnion) func(*anthropic.MessageNewParams) {
	return func(p *anthropic.MessageNewParams) {
		p.Messages = append(p.Messages, anthropic.NewAssistantMessage(list...))
	}
}

// picture is a PNG of that size, in base64.
func picture(t *testing.T, w, h int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// Every part of a request costs what it says, and what a part of its size costs
// at least and at most.
func TestAllPartsOfARequestAreCounted(t *testing.T) {
	t.Parallel()
	essay := strings.Repeat("Every field takes its share of the river. ", 100)
	words := usage.Anthropic.Text(essay)
	pdf := base64.StdEncoding.EncodeToString([]byte("%PDF-1.4\n" + strings.Repeat("<< /Type /Page /MediaBox [0 0 612 792] /Parent 2 0 R /Contents 4 0 R >>\n", 3)))
	schema := map[string]any{"essay": map[string]any{"type": "string", "description": essay}}
	base := estimate(t, nil).Input
	if base < 4 || base > 20 {
		t.Errorf("hello is taken for %d tokens", base)
	}
	for _, c := range []struct {
		name        string
		edit        func(*anthropic.MessageNewParams)
		least, most int64
	}{
		{"system", func(p *anthropic.MessageNewParams) { p.System = []anthropic.TextBlockParam{{Text: essay}} }, words, words + 5},
		{"text", blocks(anthropic.NewTextBlock(essay)), words, words + 10},
		{"an answer of before", assistant(anthropic.NewTextBlock(essay)), words, words + 10},
		{"a message of the system", func(p *anthropic.MessageNewParams) {
			p.Messages = append(p.Messages, anthropic.MessageParam{OfSystem: &anthropic.SystemMessageParam{Content: []anthropic.TextBlockParam{{Text: essay}}}})
		}, words, words + 10},
		{"two texts", blocks(anthropic.NewTextBlock(essay), anthropic.NewTextBlock(essay)), 2 * words, 2*words + 10},

		{"an image", blocks(anthropic.NewImageBlockBase64("image/png", picture(t, 560, 280))), 200, 210},
		{"a large image", blocks(anthropic.NewImageBlockBase64("image/png", picture(t, 1600, 1568))), 1568, 1580},
		{"an image behind a URL", blocks(anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: "https://example.invalid/a.png"})), 1300, 1600},
		{"an image that is none", blocks(anthropic.NewImageBlockBase64("image/png", "!!!")), 1300, 1600},

		{"a PDF", blocks(anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: pdf})), 3 * 1500, 3 * 3200},
		{"a PDF that is none", blocks(anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: "!!!"})), 1500, 100_000},
		{"a PDF behind a URL", blocks(anthropic.NewDocumentBlock(anthropic.URLPDFSourceParam{URL: "https://example.invalid/a.pdf"})), 1500, 100_000},
		{"a document of text", blocks(anthropic.NewDocumentBlock(anthropic.PlainTextSourceParam{Data: essay})), words, words + 10},
		{"a document of blocks", blocks(anthropic.NewDocumentBlock(anthropic.ContentBlockSourceParam{
			Content: anthropic.ContentBlockSourceContentUnionParam{OfContentBlockSourceContent: []anthropic.ContentBlockSourceContentItemUnionParam{
				anthropic.ContentBlockSourceContentItemParamOfText(essay),
				anthropic.ContentBlockSourceContentItemParamOfImage(anthropic.Base64ImageSourceParam{Data: picture(t, 560, 280)}),
			}},
		})), words + 200, words + 220},

		{"a tool", func(p *anthropic.MessageNewParams) {
			p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "write", Description: anthropic.String(essay)}}}
		}, words + 300, words + 400},
		{"a schema", func(p *anthropic.MessageNewParams) {
			p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "write", InputSchema: anthropic.ToolInputSchemaParam{Properties: schema}}}}
		}, words*8/10 + 300, words*12/10 + 450},
		{"a tool of the API's own", func(p *anthropic.MessageNewParams) {
			p.Tools = []anthropic.ToolUnionParam{{OfWebSearchTool20250305: &anthropic.WebSearchTool20250305Param{}}}
		}, 400, 2000},
		{"a schema of the output", func(p *anthropic.MessageNewParams) {
			p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: schema}
		}, words * 8 / 10, words*12/10 + 50},
		{"a tool's call", assistant(anthropic.NewToolUseBlock("t1", schema, "write")), words * 8 / 10, words*12/10 + 50},
		{"a call in raw JSON", assistant(anthropic.NewToolUseBlock("t1", json.RawMessage(`{"a":"`+essay+`"}`), "write")), words * 8 / 10, words*12/10 + 50},
		{"a tool's result", blocks(anthropic.NewToolResultBlock("t1", essay, false)), words, words + 30},
		{"a picture as a result", blocks(anthropic.ContentBlockParamUnion{OfToolResult: &anthropic.ToolResultBlockParam{
			Content: []anthropic.ToolResultBlockParamContentUnion{{OfImage: &anthropic.ImageBlockParam{
				Source: anthropic.ImageBlockParamSourceUnion{OfBase64: &anthropic.Base64ImageSourceParam{Data: picture(t, 560, 280)}},
			}}},
		}}), 200, 230},
		{"a result of a search", blocks(anthropic.NewSearchResultBlock([]anthropic.TextBlockParam{{Text: essay}}, "https://example.invalid", "Rivers")), words, words + 40},
		{"thinking", assistant(anthropic.NewThinkingBlock("", essay)), words, words + 10},
		{"thinking that is not shown", assistant(anthropic.NewThinkingBlock(strings.Repeat("s", 4000), "")), 1000, 1010},
		{"thinking that nobody may read", assistant(anthropic.NewRedactedThinkingBlock(strings.Repeat("s", 4000))), 1000, 1010},
		{"a page that was fetched", assistant(anthropic.ContentBlockParamUnion{OfWebFetchToolResult: &anthropic.WebFetchToolResultBlockParam{
			Content: anthropic.WebFetchToolResultBlockParamContentUnion{OfRequestWebFetchResultBlock: &anthropic.WebFetchBlockParam{
				Content: anthropic.DocumentBlockParam{Source: anthropic.DocumentBlockParamSourceUnion{OfText: &anthropic.PlainTextSourceParam{Data: essay}}},
			}},
		}}), words, words + 40},
		{"a block in raw JSON", blocks(param.Override[anthropic.ContentBlockParamUnion](json.RawMessage(`{"type":"text","text":"` + essay + `"}`))), words * 8 / 10, words*12/10 + 60},

		{"nothing", blocks(), 0, 10},
		{"an empty block", blocks(anthropic.ContentBlockParamUnion{}), 0, 30},
		{"an empty message", func(p *anthropic.MessageNewParams) { p.Messages = append(p.Messages, anthropic.MessageParam{}) }, 0, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := estimate(t, c.edit).Input - base; got < c.least || got > c.most {
				t.Errorf("counted %d tokens, want %d to %d", got, c.least, c.most)
			}
		})
	}
	raw := hello()
	raw.Params = param.Override[anthropic.MessageNewParams](json.RawMessage(`{"messages":[{"role":"user","content":"` + essay + `"}]}`))
	if got := newModel(t, anthropic.NewClient(option.WithoutEnvironmentDefaults())).Meter().Estimate(raw).Input; got < words*8/10 || got > words*12/10+60 {
		t.Errorf("raw JSON of %d tokens: counted %d", words, got)
	}
	if u := newModel(t, anthropic.NewClient(option.WithoutEnvironmentDefaults())).Meter().Estimate(nil); !u.IsZero() {
		t.Errorf("no request: %v", u)
	}
}

func TestTheOutputIsATypicalAnswerWithItsThinkingWithinMaxTokens(t *testing.T) {
	t.Parallel()
	with := func(most, budget int64) func(*anthropic.MessageNewParams) {
		return func(p *anthropic.MessageNewParams) {
			p.MaxTokens = most
			if budget > 0 {
				p.Thinking = anthropic.ThinkingConfigParamOfEnabled(budget)
			}
		}
	}
	typical, reserve := anthropicmodel.WithTypicalOutput(300), anthropicmodel.WithMaxTokensReserved()
	for _, c := range []struct {
		most, budget int64
		opts         []anthropicmodel.Option
		want         int64
	}{
		{64_000, 0, nil, usage.DefaultTypicalOutput},
		{100, 0, nil, 100},
		{0, 0, nil, 0},
		{-1, 0, nil, 0},
		{64_000, 0, []anthropicmodel.Option{typical}, 300},
		{64_000, 2048, []anthropicmodel.Option{typical}, 2348},
		{2100, 2048, []anthropicmodel.Option{typical}, 2100},
		{64_000, 0, []anthropicmodel.Option{typical, reserve}, 64_000},
		{64_000, 2048, []anthropicmodel.Option{reserve}, 64_000},
	} {
		if got := estimate(t, with(c.most, c.budget), c.opts...); got.Output != c.want {
			t.Errorf("max_tokens %d, budget %d, %d options: %v, want an output of %d", c.most, c.budget, len(c.opts), got, c.want)
		}
	}
}

func TestAnAnswerIsDoneAtItsStopReason(t *testing.T) {
	t.Parallel()
	srv := serve(t, reply)
	meter := newModel(t, newClient(srv)).Meter()
	for _, c := range []struct {
		event    string
		progress ratelimited.Progress
		used     usage.Usage
	}{
		{started, ratelimited.More, usage.Usage{Input: 123, CachedInput: 100, CacheWrite: 20, Output: 1}},
		{blockStarts, ratelimited.More, usage.Usage{}},
		{text("Hello there, keeper."), ratelimited.More, usage.Usage{Output: usage.Anthropic.Text("Hello there, keeper."), Flags: usage.Estimated}},
		{`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Hello"}}`, ratelimited.More, usage.Usage{Output: usage.Anthropic.Text("Hello"), Flags: usage.Estimated}},
		{`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`, ratelimited.More, usage.Usage{Output: usage.Anthropic.Text(`{"a"`), Flags: usage.Estimated}},
		{blockStops, ratelimited.More, usage.Usage{}},
		{withoutStop, ratelimited.More, usage.Usage{Output: 7}},
		{ended, ratelimited.Done, usage.Usage{Output: 7}},
		{stopped, ratelimited.Done, usage.Usage{}},
		{unknownEvent, ratelimited.More, usage.Usage{}},
	} {
		var e anthropic.MessageStreamEventUnion
		if err := json.Unmarshal([]byte(c.event), &e); err != nil {
			t.Fatal(err)
		}
		if u, p := meter.Observe(&response{Event: &e}); u != c.used || p != c.progress {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.event, u, p, c.used, c.progress)
		}
	}
	var m anthropic.Message
	if err := json.Unmarshal([]byte(whole("hi")), &m); err != nil {
		t.Fatal(err)
	}
	want := usage.Usage{Input: 123, CachedInput: 100, CacheWrite: 20, Output: 7}
	if u, p := meter.Observe(&response{Message: &m}); u != want || p != ratelimited.Done {
		t.Errorf("a message: %+v, %v", u, p)
	}
	for _, r := range []*response{nil, {}} {
		if u, p := meter.Observe(r); !u.IsZero() || p != ratelimited.More || r.Text() != "" || !r.Usage().IsZero() {
			t.Errorf("nothing: %+v, %v", u, p)
		}
	}
}

func TestClampLowersMaxTokensOnACopyIfThatIsPossible(t *testing.T) {
	t.Parallel()
	meter := newModel(t, anthropic.NewClient(option.WithoutEnvironmentDefaults())).Meter()
	extra := hello()
	extra.Params.SetExtraFields(map[string]any{"max_tokens": 9})
	raw := hello()
	raw.Params = param.Override[anthropic.MessageNewParams](json.RawMessage(`{}`))
	raw.Params.MaxTokens = 1000
	thinks := hello()
	thinks.Params.MaxTokens = 4000
	thinks.Params.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
	none := hello()
	none.Params.MaxTokens = 0
	for _, c := range []struct {
		name string
		req  *request
		most int64
		want int64 // 0 where it is not possible
	}{
		{"lower", hello(), 300, 300},
		{"to nothing at all is to one", hello(), 0, 1},
		{"below that, too", hello(), -5, 1},
		{"the same", hello(), 1000, 0},
		{"limited to less already", hello(), 2000, 0},
		{"above the thinking budget", thinks, 2049, 2049},
		{"at the thinking budget", thinks, 2048, 0},
		{"a request that only fills the cache", none, 100, 0},
		{"raw JSON", raw, 100, 0},
		{"a field that says otherwise", extra, 100, 0},
		{"no request", nil, 100, 0},
	} {
		before := int64(0)
		if c.req != nil {
			before = c.req.Params.MaxTokens
		}
		got, ok := meter.Clamp(c.req, c.most)
		switch {
		case ok != (c.want > 0):
			t.Errorf("%s: clamped: %v", c.name, ok)
		case !ok && got != c.req:
			t.Errorf("%s: another request came back", c.name)
		case ok && (got == c.req || got.Params.MaxTokens != c.want || !reflect.DeepEqual(got.Params.Messages, c.req.Params.Messages)):
			t.Errorf("%s: %+v", c.name, got.Params)
		}
		if c.req != nil && c.req.Params.MaxTokens != before {
			t.Errorf("%s: the caller's request was changed", c.name)
		}
	}
}

func TestEstimatingATextDoesNotAllocate(t *testing.T) {
	meter := newModel(t, anthropic.NewClient(option.WithoutEnvironmentDefaults())).Meter()
	req := says(strings.Repeat("Every field takes its share of the river. ", 100))
	if n := testing.AllocsPerRun(100, func() { meter.Estimate(req) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
