package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
)

// Request is what a hook may know about a request before it is answered.
type Request struct {
	// Body is the request's JSON. It must not be changed.
	Body json.RawMessage
	// Functions are the names of the declared functions, in order.
	Functions []string
	// Header are the request's headers. They must not be changed.
	Header http.Header
	// IncludeThoughts tells that the client wants to see thoughts.
	IncludeThoughts bool
	// MaxOutputTokens bounds answer and thoughts; 0 where it is not given.
	MaxOutputTokens int
	// Model is the model's name.
	Model string
	// PromptTokens is the length of the prompt.
	PromptTokens int64
	// Stream tells that the answer is streamed.
	Stream bool
	// Vertex tells that the request came on a path of Vertex AI.
	Vertex bool
}

// prompt is a request's body, as far as the double understands it.
type prompt struct {
	textRunes int64
	media     int64

	functions       []declaration
	functionsOff    bool // function calling mode NONE
	answersFunction bool // the last content holds function responses

	maxOutputTokens int // 0: not given
	includeThoughts bool
	thinkingBudget  int // -1: not given, or left to the model
}

// declaration is a function that the model may call.
type declaration struct {
	name   string
	schema json.RawMessage // of its parameters; may be nil
}

// parsePrompt reads the body of a request for content or for a token count.
// Its errors name the field that is wrong and never quote a prompt.
func parsePrompt(body []byte) (*prompt, error) {
	top, err := parseObject(body, "body")
	if err != nil {
		return nil, err
	}
	// A request for a token count may wrap a whole request for content.
	if inner := top.get("generateContentRequest"); inner != nil {
		if top, err = parseObject(inner, "generateContentRequest"); err != nil {
			return nil, err
		}
	}
	p := &prompt{thinkingBudget: -1}
	for _, field := range []struct {
		name string
		read func(json.RawMessage) error
	}{
		{"contents", p.readContents},
		{"systemInstruction", p.readSystemInstruction},
		{"tools", p.readTools},
		{"toolConfig", p.readToolConfig},
		{"generationConfig", p.readGenerationConfig},
	} {
		if err := field.read(top.get(field.name)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *prompt) readContents(raw json.RawMessage) error {
	list, err := parseList(raw, "contents")
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("contents: must hold at least one content")
	}
	for i, item := range list {
		p.answersFunction = false // the last content decides
		if err := p.readContent(item, fmt.Sprintf("contents[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (p *prompt) readSystemInstruction(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	return p.readContent(raw, "systemInstruction")
}

// readContent counts the parts of one content.
func (p *prompt) readContent(raw json.RawMessage, field string) error {
	o, err := parseObject(raw, field)
	if err != nil {
		return err
	}
	parts, err := parseList(o.get("parts"), field+".parts")
	if err != nil {
		return err
	}
	for i, item := range parts {
		field := fmt.Sprintf("%s.parts[%d]", field, i)
		o, err := parseObject(item, field)
		if err != nil {
			return err
		}
		if err := p.countPart(o, field); err != nil {
			return err
		}
	}
	return nil
}

func (p *prompt) readTools(raw json.RawMessage) error {
	tools, err := parseList(raw, "tools")
	if err != nil {
		return err
	}
	p.textRunes += compactRunes(raw)
	for i, item := range tools {
		field := fmt.Sprintf("tools[%d]", i)
		o, err := parseObject(item, field)
		if err != nil {
			return err
		}
		if err := p.readDeclarations(o.get("functionDeclarations"), field+".functionDeclarations"); err != nil {
			return err
		}
	}
	return nil
}

func (p *prompt) readDeclarations(raw json.RawMessage, field string) error {
	list, err := parseList(raw, field)
	if err != nil {
		return err
	}
	for i, item := range list {
		field := fmt.Sprintf("%s[%d]", field, i)
		o, err := parseObject(item, field)
		if err != nil {
			return err
		}
		var d declaration
		if err := parseValue(o.get("name"), &d.name, field+".name"); err != nil {
			return err
		}
		if d.schema = o.get("parametersJsonSchema"); d.schema == nil {
			d.schema = o.get("parameters")
		}
		p.functions = append(p.functions, d)
	}
	return nil
}

func (p *prompt) readToolConfig(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	o, err := parseObject(raw, "toolConfig")
	if err != nil {
		return err
	}
	calling, err := parseObject(o.get("functionCallingConfig"), "toolConfig.functionCallingConfig")
	if err != nil {
		return err
	}
	var mode string
	err = parseValue(calling.get("mode"), &mode, "toolConfig.functionCallingConfig.mode")
	p.functionsOff = mode == "NONE"
	return err
}

func (p *prompt) readGenerationConfig(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	o, err := parseObject(raw, "generationConfig")
	if err != nil {
		return err
	}
	if p.maxOutputTokens, err = parseInt(o.get("maxOutputTokens"), 0, 0, "generationConfig.maxOutputTokens"); err != nil {
		return err
	}
	thinking, err := parseObject(o.get("thinkingConfig"), "generationConfig.thinkingConfig")
	if err != nil {
		return err
	}
	if p.thinkingBudget, err = parseInt(thinking.get("thinkingBudget"), -1, -1, "generationConfig.thinkingConfig.thinkingBudget"); err != nil {
		return err
	}
	return parseValue(thinking.get("includeThoughts"), &p.includeThoughts, "generationConfig.thinkingConfig.includeThoughts")
}

// object is a JSON object whose fields have not been read yet.
type object map[string]json.RawMessage

// get returns a field by its camelCase name, or by the snake_case name that the
// API takes as well; nil where it is absent or null.
func (o object) get(name string) json.RawMessage {
	raw, ok := o[name]
	if !ok {
		raw = o[snake(name)]
	}
	if isNull(raw) {
		return nil
	}
	return raw
}

func snake(camel string) string {
	var b strings.Builder
	for _, r := range camel {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

// parseObject reads an object; an absent one is empty.
func parseObject(raw json.RawMessage, field string) (object, error) {
	var o object
	return o, parseAs(raw, &o, field, "an object")
}

// parseList reads an array; an absent one is empty.
func parseList(raw json.RawMessage, field string) ([]json.RawMessage, error) {
	var l []json.RawMessage
	return l, parseAs(raw, &l, field, "an array")
}

// parseValue reads a string or a boolean into v; an absent one leaves it as it
// is.
func parseValue[T string | bool](raw json.RawMessage, v *T, field string) error {
	return parseAs(raw, v, field, fmt.Sprintf("a %T", *v))
}

func parseAs(raw json.RawMessage, v any, field, what string) error {
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("%s: not JSON, at byte %d", field, syntax.Offset)
		}
		return fmt.Errorf("%s: must be %s", field, what)
	}
	return nil
}

// parseInt reads an integer, which protobuf's JSON may write as a string.
func parseInt(raw json.RawMessage, absent, least int, field string) (int, error) {
	if raw == nil {
		return absent, nil
	}
	text := strings.Trim(string(bytes.TrimSpace(raw)), `"`)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || int(n) < least {
		return 0, fmt.Errorf("%s %.20s: must be a whole number, at least %d", field, text, least)
	}
	return int(n), nil
}
