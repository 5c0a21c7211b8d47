package usage

import (
	"fmt"

	"google.golang.org/genai"
)

// DefaultTypicalOutput is how many tokens an answer is expected to have where
// an [Estimator] is not told otherwise.
const DefaultTypicalOutput = 1024

// Estimator says what a request will probably use, before it is sent. It is a
// first guess, made in microseconds and without a call; whoever sees the real
// usage afterwards should correct for the ratio of the two.
//
// What it counts, in tokens, for Gemini, and for a model that is not known:
//
//   - text by [EstimateText], and 1 for each content and for the system
//     instruction; function calls and responses, code and its results, tool
//     declarations and response schemas as the JSON that they become
//   - an image: 1,120, the default of Gemini 3 (280 at low, 560 at medium,
//     2,240 at ultra high resolution). Earlier models charge 258 for each tile
//     of 768 pixels, so four tiles are covered
//   - a PDF: 560 a page (280 at low, 1,120 at high resolution). A file that is
//     sent inline has its [PDFPages], at most the 1,000 pages that the API
//     accepts; where it does not show them, a page for each 25,000 bytes
//   - audio: 32 a second. Inline audio has its [AudioSeconds]; where it does not
//     say, it is taken to have 8,000 bytes a second (64 kbit/s), WAV and other
//     raw formats 32,000 (16 bits, mono, 16 kHz)
//   - video: 258 a frame at one frame a second (70 at low, 280 at high
//     resolution) and 32 a second of sound; Gemini 3 charges 70 a frame by
//     default. Frame rate and clip are taken from the part's VideoMetadata; a
//     video without a clip that is sent inline has its [VideoSeconds], or else is
//     taken to have 125,000 bytes a second (1 Mbit/s)
//   - other text sent inline, such as CSV: as text; other types: like a PDF that
//     does not show its pages
//   - a file behind a URI, whose size the request does not tell: one image, 10
//     PDF pages, 5 minutes of audio, 1 minute of video or, for text and other
//     types, 10,000
//   - a thought signature: a quarter of its bytes, which stand for the thoughts
//     themselves, but only where it was made after the last message of the
//     user; the API drops older ones
//   - the answer: TypicalOutput or MaxOutputTokens, whichever is smaller, times
//     the number of candidates
//
// The figures for media are those of the Gemini API docs, pages "tokens",
// "media resolution", "video understanding" and "document understanding"; the
// sizes of files and the length of what lies behind a URI are assumptions.
// What tools that run on the provider's side (search, code execution, URL
// context) will add to the prompt is not counted, nor are thoughts beyond
// TypicalOutput.
//
// With a Model these figures are those of the model: images by
// [GeminiImageTokens], [OpenAIImageTokens] or [AnthropicImageTokens], with the
// size that their header shows; up to Gemini 2.5 a page is 258 and a frame 258,
// or 66 at low resolution; from Gemini 3 on a frame is 70; text and JSON by the
// model's [Family]. At OpenAI and Anthropic a content is 4, the request 3 more
// (by OpenAI's cookbook for chats; Anthropic's is not published and taken for
// the same), a page of a PDF is what OpenAI's guide makes of its image and 800
// for its text, or 2,350 at Anthropic, and audio is 10 a second at OpenAI.
//
// The zero Estimator is ready to use. It is a plain value and safe for
// concurrent use, if its Tokenizer is.
type Estimator struct {
	// Model is the name of the model that requests are for, such as
	// "gemini-2.5-flash", "gpt-5-mini" or "claude-opus-4-7"; case and a prefix of
	// the provider do not matter. "" or a name that [FamilyOf] does not know is
	// for requests to several or to unknown models of Gemini, and counts the
	// dearer of what those charge.
	Model string

	// Tokenizer counts the texts of requests exactly, where it is not nil: the
	// contents, the system instruction, and strings in arguments, schemas and
	// descriptions, of these the first megabyte; what JSON puts around strings,
	// and media, stay estimates. It is for the vocabulary of the Model, which is
	// not checked.
	Tokenizer Tokenizer

	// TypicalOutput is how many tokens one answer is expected to have, thoughts
	// inside. 0 means DefaultTypicalOutput.
	TypicalOutput int64

	// CachedContent is how many tokens the cached content is expected to have
	// where a request names one, which counts as input; the request does not
	// tell its size. 0 means that it is not counted.
	CachedContent int64

	known *known // of Model, if it is Prepared
}

// Validate reports a field that is negative, by name and value. The methods of
// an Estimator take a negative field for 0.
func (e Estimator) Validate() error {
	if e.TypicalOutput < 0 {
		return fmt.Errorf("usage: Estimator.TypicalOutput is %d, must not be negative", e.TypicalOutput)
	}
	if e.CachedContent < 0 {
		return fmt.Errorf("usage: Estimator.CachedContent is %d, must not be negative", e.CachedContent)
	}
	return nil
}

// GenAI estimates a request in the form of the Gemini API and Vertex AI, which
// agent frameworks also use for other providers' models. Nil contents, parts
// and config count as nothing; MaxOutputTokens and CandidateCount of 0
// and below count as unset. The result is flagged [Estimated].
//
// Text costs one pass and no allocation. Schemas and arguments are walked to a
// depth of 64 and for at most some tens of milliseconds; what lies beyond, in
// practice only a value that contains itself, is counted without being looked
// at. No method of a value is called. The request is only read.
func (e Estimator) GenAI(contents []*genai.Content, config *genai.GenerateContentConfig) Usage {
	m := e.meter()
	output, candidates := e.TypicalOutput, int64(1)
	if output <= 0 {
		output = DefaultTypicalOutput
	}
	var cached int64
	if config != nil {
		m.resolution = config.MediaResolution
		m.config(config)
		if config.CachedContent != "" {
			cached = max(e.CachedContent, 0)
		}
		if limit := int64(config.MaxOutputTokens); limit > 0 {
			output = min(output, limit)
		}
		candidates = max(int64(config.CandidateCount), 1)
	}
	m.history(contents)
	return Usage{
		Input:       satAdd(tokensOf(m.cost), cached),
		CachedInput: cached,
		Output:      satMul(output, candidates),
		Flags:       Estimated,
	}
}

// known is what the name of a model says.
type known struct {
	model      string
	family     Family
	generation int // of a model of Gemini, 0 if not known
}

func know(model string) known {
	k := known{model: model}
	if k.family, _ = FamilyOf(model); k.family == Gemini {
		k.generation = geminiGeneration(model)
	}
	return k
}

// Prepared is e with what its Model's name says looked up beforehand. It estimates
// the same, and takes a little less time for each request.
func (e Estimator) Prepared() Estimator {
	k := know(e.Model)
	e.known = &k
	return e
}

// meter is an empty meter for requests to the Model.
func (e Estimator) meter() meter {
	m := meter{work: maxWork, exactWork: maxExact, model: e.Model, tokenizer: e.Tokenizer}
	if e.known != nil && e.known.model == e.Model {
		m.family, m.generation = e.known.family, e.known.generation
	} else {
		k := know(e.Model)
		m.family, m.generation = k.family, k.generation
	}
	if m.family == Gemini {
		return m
	}
	m.add(requestCost)
	return m
}

// What OpenAI adds around a chat, in thousandths of a token: OpenAI's cookbook,
// "How to count tokens with tiktoken". The text of the role is one of them.
const (
	requestCost = 3 * token
	messageCost = 4 * token
)

// meter adds up the cost of one request, in thousandths of a token.
type meter struct {
	cost       int64
	work       int                   // what may still be spent on walking values; see enter
	resolution genai.MediaResolution // of media, for the whole request
	model      string
	family     Family // of the model
	generation int    // of a model of Gemini, 0 if not known
	tokenizer  Tokenizer
	exactWork  int // bytes of walked values that the tokenizer may still read
}

// add adds a cost.
func (m *meter) add(cost int64) { m.cost = satAdd(m.cost, cost) }

// addTokens adds a cost in whole tokens.
func (m *meter) addTokens(n int64) { m.add(satMul(n, token)) }

// text adds a text of the request.
func (m *meter) text(s string) {
	if m.tokenizer == nil || s == "" || !m.exact(s) {
		m.add(familyCost(m.family, s))
	}
}

// bytes adds a text of the request that is there as bytes.
func (m *meter) bytes(data []byte) {
	if m.tokenizer != nil {
		m.text(string(data))
		return
	}
	m.add(familyCost(m.family, data))
}

// exact adds what the tokenizer counts, and reports whether it could.
func (m *meter) exact(s string) bool {
	n, err := m.tokenizer.Count(s)
	if err != nil || n < 0 {
		return false
	}
	m.addTokens(n)
	return true
}

// config adds what a config sends beside the contents.
func (m *meter) config(c *genai.GenerateContentConfig) {
	m.content(c.SystemInstruction)
	for _, tool := range c.Tools {
		if tool == nil {
			continue
		}
		for _, f := range tool.FunctionDeclarations {
			m.declaration(f)
		}
	}
	m.schema(c.ResponseSchema, 0)
	if c.ResponseJsonSchema != nil {
		m.value(c.ResponseJsonSchema, 0)
	}
}

// history adds the contents of a conversation. Thought signatures are added
// for the current turn only: in recorded calls to gemini-2.5-flash,
// gemini-3-flash and gemini-3.1-pro the prompt rose by exactly the thoughts of
// the earlier calls of the turn, and fell by them at the user's next message.
func (m *meter) history(contents []*genai.Content) {
	var signatures int64
	for _, c := range contents {
		if c == nil {
			continue
		}
		m.content(c)
		if beginsTurn(c) {
			signatures = 0
		}
		for _, p := range c.Parts {
			if p != nil {
				signatures = satAdd(signatures, int64(len(p.ThoughtSignature)))
			}
		}
	}
	m.add(satMul(signatures, token/4))
}

// beginsTurn reports whether c is a message of the user, and not only the
// responses of functions that the model called.
func beginsTurn(c *genai.Content) bool {
	if c.Role == genai.RoleModel {
		return false
	}
	for _, p := range c.Parts {
		if p != nil && p.FunctionResponse == nil && p.ToolResponse == nil {
			return true
		}
	}
	return false
}

// content adds the parts of a content, and what the content itself costs.
func (m *meter) content(c *genai.Content) {
	if c == nil || len(c.Parts) == 0 {
		return
	}
	if m.family == Gemini {
		m.add(token)
	} else {
		m.add(messageCost)
	}
	for _, p := range c.Parts {
		if p != nil {
			m.part(p)
		}
	}
}

// part adds a part. A part should have one of the fields; all are added.
func (m *meter) part(p *genai.Part) {
	m.text(p.Text)
	if b := p.InlineData; b != nil {
		m.blob(b.MIMEType, b.Data, p)
	}
	if f := p.FileData; f != nil {
		m.file(f.MIMEType, p)
	}
	if f := p.FunctionCall; f != nil {
		m.call(f.Name, f.Args)
	}
	if f := p.FunctionResponse; f != nil {
		m.response(f.Name, f.Response)
		for _, part := range f.Parts {
			if part == nil {
				continue
			}
			if b := part.InlineData; b != nil {
				m.blob(b.MIMEType, b.Data, nil)
			}
			if d := part.FileData; d != nil {
				m.file(d.MIMEType, nil)
			}
		}
	}
	if c := p.ExecutableCode; c != nil {
		m.text(c.Code)
	}
	if r := p.CodeExecutionResult; r != nil {
		m.text(r.Output)
	}
	if c := p.ToolCall; c != nil {
		m.call(string(c.ToolType), c.Args)
	}
	if r := p.ToolResponse; r != nil {
		m.response(string(r.ToolType), r.Response)
	}
}

// What a function call and a function response cost beside their JSON, in
// thousandths of a token: in recorded calls to the three models above, a call
// with two one-letter arguments was 16 to 18 tokens, its response 9 to 12. Ids
// did not count.
const (
	callCost     = 10 * token
	responseCost = 5 * token
)

// call adds a call of a function.
func (m *meter) call(name string, args map[string]any) {
	m.add(callCost)
	m.text(name)
	if args != nil {
		m.value(args, 0)
	}
}

// response adds what a function returned.
func (m *meter) response(name string, fields map[string]any) {
	m.add(responseCost)
	m.text(name)
	if fields != nil {
		m.value(fields, 0)
	}
}

// declaration adds a function that the model may call.
func (m *meter) declaration(f *genai.FunctionDeclaration) {
	if f == nil {
		return
	}
	m.add(bracesCost)
	m.member("name", f.Name)
	m.member("description", f.Description)
	if f.Parameters != nil {
		m.key("parameters")
		m.schema(f.Parameters, 0)
	}
	if f.ParametersJsonSchema != nil {
		m.key("parametersJsonSchema")
		m.value(f.ParametersJsonSchema, 0)
	}
	if f.Response != nil {
		m.key("response")
		m.schema(f.Response, 0)
	}
	if f.ResponseJsonSchema != nil {
		m.key("responseJsonSchema")
		m.value(f.ResponseJsonSchema, 0)
	}
}
