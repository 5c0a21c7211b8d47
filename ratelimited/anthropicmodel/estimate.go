package anthropicmodel

import (
	"encoding/base64"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/usage"
)

// What a request costs beside the texts in it, in tokens. Anthropic docs, token
// counting page: a system prompt of 4 tokens and a message of 3 are 14; pages
// "tool use", "bash tool", "text editor tool" and "computer use tool": the
// instructions that come with tools, for the current models.
const (
	promptOverhead  = 3
	messageOverhead = 4
	toolUseOverhead = 346 // once, if there is any tool
	toolOverhead    = 12  // the frame of a tool, a call or a result
	bashTool        = 245
	editorTool      = 700
	computerTool    = 735
	serverTool      = 500 // assumed for others of the API's own
)

// What media cost whose size the request does not tell, or only roughly.
const (
	// pdfPage is what a page of a PDF costs: 1,500 to 3,000 tokens of text by the
	// docs' page on PDF support, and its image; 2,350 is a measured mean.
	pdfPage = 2350
	// unknownPages are assumed of a document behind a URL or a file id.
	unknownPages = 10
)

// Estimate implements ratelimited.Meter.
func (m *meter) Estimate(req *Request) usage.Usage {
	if req == nil {
		return usage.Usage{Flags: usage.Estimated}
	}
	p := &req.Params
	c := counter{model: string(p.Model)}
	if c.model == "" {
		c.model = m.name
	}
	if raw, ok := p.Overrides(); ok {
		c.value(raw)
	} else {
		c.params(p)
	}
	u := usage.Usage{Input: c.tokens, Flags: usage.Estimated}
	limit := max(p.MaxTokens, 0)
	if m.reserve {
		u.Output, u.Thoughts = limit, limit
		return u
	}
	typical := m.typical
	if typical <= 0 {
		typical = usage.DefaultTypicalOutput
	}
	u.Output = min(add(typical, thinkingBudget(p)), limit)
	return u
}

// counter adds up the tokens of one request.
type counter struct {
	model  string
	tokens int64
}

func (c *counter) add(n int64) { c.tokens = add(c.tokens, n) }

func (c *counter) text(s string) { c.add(textTokens(s)) }

// value adds a value as the JSON that it becomes.
func (c *counter) value(v any) {
	if v != nil {
		c.add(valueTokens(v))
	}
}

func (c *counter) params(p *anthropic.MessageNewParams) {
	c.add(promptOverhead)
	c.texts(p.System)
	for i := range p.Messages {
		c.message(&p.Messages[i])
	}
	if len(p.Tools) > 0 {
		c.add(toolUseOverhead)
	}
	for i := range p.Tools {
		c.tool(&p.Tools[i])
	}
	if s := p.OutputConfig.Format.Schema; len(s) > 0 {
		c.value(s)
	}
}

func (c *counter) message(m *anthropic.MessageParam) {
	c.add(messageOverhead)
	switch {
	case m.OfUser != nil:
		c.blocks(m.OfUser.Content)
	case m.OfAssistant != nil:
		c.blocks(m.OfAssistant.Content)
	case m.OfSystem != nil:
		c.texts(m.OfSystem.Content)
	default:
		if raw, ok := m.Overrides(); ok {
			c.value(raw)
		}
	}
}

func (c *counter) texts(list []anthropic.TextBlockParam) {
	for i := range list {
		c.text(list[i].Text)
	}
}

func (c *counter) blocks(list []anthropic.ContentBlockParamUnion) {
	for i := range list {
		c.block(&list[i])
	}
}

func (c *counter) block(b *anthropic.ContentBlockParamUnion) {
	switch {
	case b.OfText != nil:
		c.text(b.OfText.Text)
	case b.OfImage != nil:
		c.image(b.OfImage)
	case b.OfDocument != nil:
		c.document(b.OfDocument)
	case b.OfSearchResult != nil:
		c.searchResult(b.OfSearchResult)
	case b.OfThinking != nil:
		// The signature stands for all of the thinking, the text perhaps for a
		// summary of it.
		c.add(max(textTokens(b.OfThinking.Thinking), signatureTokens(b.OfThinking.Signature)))
	case b.OfRedactedThinking != nil:
		c.add(signatureTokens(b.OfRedactedThinking.Data))
	case b.OfToolUse != nil:
		c.call(b.OfToolUse.Name, b.OfToolUse.Input)
	case b.OfServerToolUse != nil:
		c.call(string(b.OfServerToolUse.Name), b.OfServerToolUse.Input)
	case b.OfToolResult != nil:
		c.result(b.OfToolResult)
	case b.OfWebFetchToolResult != nil:
		c.add(toolOverhead)
		if page := b.OfWebFetchToolResult.Content.OfRequestWebFetchResultBlock; page != nil {
			c.text(page.URL)
			c.document(&page.Content)
		}
	default:
		c.rest(b)
	}
}

// rest adds what is left: results of tools that ran on the API's side, and raw
// JSON.
func (c *counter) rest(b *anthropic.ContentBlockParamUnion) {
	c.add(toolOverhead)
	switch {
	case b.OfWebSearchToolResult != nil:
		for i := range b.OfWebSearchToolResult.Content.OfWebSearchToolResultBlockItem {
			item := &b.OfWebSearchToolResult.Content.OfWebSearchToolResultBlockItem[i]
			c.text(item.Title)
			c.text(item.URL)
			c.add(signatureTokens(item.EncryptedContent))
		}
	case b.OfCodeExecutionToolResult != nil:
		c.value(b.OfCodeExecutionToolResult.Content)
	case b.OfBashCodeExecutionToolResult != nil:
		c.value(b.OfBashCodeExecutionToolResult.Content)
	case b.OfTextEditorCodeExecutionToolResult != nil:
		c.value(b.OfTextEditorCodeExecutionToolResult.Content)
	case b.OfToolSearchToolResult != nil:
		c.value(b.OfToolSearchToolResult.Content)
	default:
		if raw, ok := b.Overrides(); ok {
			c.value(raw)
		}
	}
}

func (c *counter) call(name string, input any) {
	c.add(toolOverhead)
	c.text(name)
	c.value(input)
}

func (c *counter) result(r *anthropic.ToolResultBlockParam) {
	c.add(toolOverhead)
	for i := range r.Content {
		switch b := &r.Content[i]; {
		case b.OfText != nil:
			c.text(b.OfText.Text)
		case b.OfImage != nil:
			c.image(b.OfImage)
		case b.OfDocument != nil:
			c.document(b.OfDocument)
		case b.OfSearchResult != nil:
			c.searchResult(b.OfSearchResult)
		case b.OfToolReference != nil:
			c.text(b.OfToolReference.ToolName)
		case b.OfBrowserState != nil:
			c.value(b.OfBrowserState)
		}
	}
}

func (c *counter) searchResult(r *anthropic.SearchResultBlockParam) {
	c.text(r.Source)
	c.text(r.Title)
	c.texts(r.Content)
}

func (c *counter) tool(t *anthropic.ToolUnionParam) {
	switch {
	case t.OfTool != nil:
		c.add(toolOverhead)
		c.text(t.OfTool.Name)
		c.text(t.OfTool.Description.Value)
		c.value(t.OfTool.InputSchema.Properties)
		for _, name := range t.OfTool.InputSchema.Required {
			c.text(name)
		}
		if extra := t.OfTool.InputSchema.ExtraFields; len(extra) > 0 {
			c.value(extra)
		}
		for _, example := range t.OfTool.InputExamples {
			c.value(example)
		}
	case t.OfBashTool20250124 != nil:
		c.add(bashTool)
	case t.OfTextEditor20250124 != nil, t.OfTextEditor20250429 != nil, t.OfTextEditor20250728 != nil:
		c.add(editorTool)
	case t.OfComputerToolset20260801 != nil:
		c.add(computerTool)
	default:
		if raw, ok := t.Overrides(); ok {
			c.value(raw)
			return
		}
		c.add(serverTool)
	}
}

func (c *counter) image(b *anthropic.ImageBlockParam) {
	var width, height int // unknown
	if s := b.Source.OfBase64; s != nil {
		width, height, _ = imageSize(s.Data)
	}
	c.add(usage.AnthropicImageTokens(c.model, width, height))
}

// imageHead is how much of an image is looked at for its size. What a camera
// writes before it, a thumbnail in the Exif data at most, is within 64 KiB.
const imageHead = 96 << 10

// imageSize is the size of an image in base64. Most tell it in the first bytes.
func imageSize(data string) (width, height int, ok bool) {
	for _, n := range [...]int{64, 4 << 10, imageHead} {
		head := data[:min(n, len(data))&^3]
		if decoded, err := base64.StdEncoding.DecodeString(head); err == nil {
			if width, height, ok = usage.ImageSize(decoded); ok {
				return width, height, true
			}
		}
		if n >= len(data) {
			break
		}
	}
	return 0, 0, false
}

func (c *counter) document(d *anthropic.DocumentBlockParam) {
	c.text(d.Title.Value)
	c.text(d.Context.Value)
	switch s := &d.Source; {
	case s.OfText != nil:
		c.text(s.OfText.Data)
	case s.OfContent != nil:
		c.text(s.OfContent.Content.OfString.Value)
		for i := range s.OfContent.Content.OfContentBlockSourceContent {
			switch item := &s.OfContent.Content.OfContentBlockSourceContent[i]; {
			case item.OfText != nil:
				c.text(item.OfText.Text)
			case item.OfImage != nil:
				c.image(item.OfImage)
			}
		}
	case s.OfBase64 != nil:
		pages := int64(unknownPages)
		if pdf, err := base64.StdEncoding.DecodeString(s.OfBase64.Data); err == nil {
			pages = max(usage.PDFPages(pdf), 1)
		}
		c.add(multiply(pages, pdfPage))
	default:
		c.add(unknownPages * pdfPage)
	}
}

// textTokens estimates a text.
func textTokens(s string) int64 { return usage.Anthropic.Text(s) }

// signatureTokens estimates opaque data that stands for text, by the rule of
// usage.Estimator: a quarter of its bytes.
func signatureTokens(s string) int64 { return int64(len(s)) / 4 }

// valueTokens estimates any value as the JSON that it becomes. The walk over
// values is that of usage.Estimator; a response schema is one that is walked and
// nothing else, but for what is added for the request.
func valueTokens(v any) int64 {
	config := genai.GenerateContentConfig{ResponseJsonSchema: v}
	return max(usage.Estimator{Model: "claude"}.GenAI(nil, &config).Input-promptOverhead, 0)
}

// add is a + b for numbers that are not negative, at most maxCount.
func add(a, b int64) int64 { return min(min(a, maxCount)+min(b, maxCount), maxCount) }

// multiply is a × b for numbers that are not negative, at most maxCount.
func multiply(a, b int64) int64 {
	if a > 0 && b > maxCount/a {
		return maxCount
	}
	return a * b
}

// maxCount is far above what any request can have.
const maxCount = 1 << 50
