package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Request is what a hook may know about a request before it is answered.
type Request struct {
	// Body is the request's JSON. It must not be changed.
	Body json.RawMessage
	// Header are the request's headers. They must not be changed.
	Header http.Header
	// MaxTokens bounds answer and thoughts.
	MaxTokens int
	// Model is the model's name.
	Model string
	// PromptTokens is the length of the prompt, what is cached of it included.
	PromptTokens int64
	// Stream tells that the answer is streamed.
	Stream bool
	// Thinking tells that thinking is on.
	Thinking bool
	// Tools are the names of the declared tools that the client runs, in order.
	Tools []string
}

// prompt is a request's body, as far as the double understands it.
type prompt struct {
	model  string
	stream bool

	maxTokens      int
	thinking       bool
	thinkingBudget int // -1: not given, or left to the model

	tools       []declaration
	toolsOff    bool // tool_choice none
	endsInTools bool // the last message holds results of tools

	meter meter
}

// declaration is a tool that the client runs.
type declaration struct {
	name   string
	schema json.RawMessage
}

// object is a JSON object whose fields have not been read yet.
type object map[string]json.RawMessage

// get returns a field; nil where it is absent or null.
func (o object) get(name string) json.RawMessage {
	if raw := o[name]; !bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return raw
	}
	return nil
}

// fields are all that a request for a message may have at its top.
var fields = []string{
	"cache_control", "container", "context_management", "diagnostics", "inference_geo", "max_tokens", "mcp_servers",
	"messages", "metadata", "model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system",
	"temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
}

// readPrompt reads a request; that of a token count has no max_tokens. What is
// wrong with it is answered in the words of the API, with the field and without
// the prompt.
func readPrompt(w http.ResponseWriter, r *http.Request, counting bool) ([]byte, *prompt, *failure) {
	if r.Header.Get("X-Api-Key") == "" && r.Header.Get("Authorization") == "" {
		return nil, nil, &failure{status: http.StatusUnauthorized, kind: "authentication_error", message: "x-api-key header is required"}
	}
	if r.Header.Get("Anthropic-Version") == "" {
		return nil, nil, invalidRequest("anthropic-version: header is required")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, nil, &failure{status: http.StatusRequestEntityTooLarge, kind: "request_too_large", message: "Request exceeds the maximum size"}
		}
		return nil, nil, invalidRequest("body: cannot be read")
	}
	p, err := parsePrompt(body, counting)
	if err != nil {
		return nil, nil, invalidRequest("%v", err)
	}
	return body, p, nil
}

func parsePrompt(body []byte, counting bool) (*prompt, error) {
	var top object
	if json.Unmarshal(body, &top) != nil || top == nil {
		return nil, errors.New("body: not valid JSON")
	}
	for name := range top {
		if !slices.Contains(fields, name) {
			return nil, fmt.Errorf("%.40s: Extra inputs are not permitted", name)
		}
	}
	p := &prompt{thinkingBudget: -1}
	if err := required(top, "model", &p.model); err != nil {
		return nil, err
	}
	p.meter = newMeter(p.model)
	if err := optional(top, "stream", &p.stream); err != nil {
		return nil, err
	}
	if !counting {
		if err := required(top, "max_tokens", &p.maxTokens); err != nil {
			return nil, err
		}
		if p.maxTokens < 0 {
			return nil, fmt.Errorf("max_tokens: %d: must be at least 0", p.maxTokens)
		}
	}
	for _, step := range []func(object) error{p.readThinking, p.readTools, p.readSystem, p.readMessages} {
		if err := step(top); err != nil {
			return nil, err
		}
	}
	if p.thinkingBudget >= p.maxTokens && !counting {
		return nil, errors.New("max_tokens must be greater than thinking.budget_tokens")
	}
	if top.get("cache_control") != nil {
		if err := p.meter.mark(top.get("cache_control"), "cache_control"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// required reads a field that must be there.
func required[T any](o object, name string, v *T) error {
	raw := o.get(name)
	if raw == nil {
		return fmt.Errorf("%s: Field required", name)
	}
	return read(raw, name, v)
}

func optional[T any](o object, name string, v *T) error {
	raw := o.get(name)
	if raw == nil {
		return nil
	}
	return read(raw, name, v)
}

func read[T any](raw json.RawMessage, field string, v *T) error {
	if json.Unmarshal(raw, v) != nil {
		return fmt.Errorf("%s: Input should be a valid %s", field, kindOf(v))
	}
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case *string:
		return "string"
	case *bool:
		return "boolean"
	case *int:
		return "integer"
	case *[]json.RawMessage, *[]object:
		return "list"
	}
	return "object"
}

func (p *prompt) readThinking(top object) error {
	var thinking object
	if err := optional(top, "thinking", &thinking); err != nil || thinking == nil {
		return err
	}
	var kind string
	if err := required(thinking, "type", &kind); err != nil {
		return fmt.Errorf("thinking.%w", err)
	}
	switch kind {
	case "enabled":
		p.thinking = true
		if err := required(thinking, "budget_tokens", &p.thinkingBudget); err != nil {
			return fmt.Errorf("thinking.enabled.%w", err)
		}
		if p.thinkingBudget < 1024 {
			return errors.New("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
		}
	case "adaptive", "between_tools":
		p.thinking = true
	case "disabled":
	default:
		return fmt.Errorf("thinking: Input tag %.40q does not match any of the expected tags", kind)
	}
	return nil
}

func (p *prompt) readTools(top object) error {
	var tools []object
	if err := optional(top, "tools", &tools); err != nil {
		return err
	}
	for i, tool := range tools {
		field := fmt.Sprintf("tools.%d", i)
		var name, kind string
		if err := required(tool, "name", &name); err != nil && tool.get("type") == nil {
			return fmt.Errorf("%s.%w", field, err)
		}
		if err := optional(tool, "type", &kind); err != nil {
			return fmt.Errorf("%s.%w", field, err)
		}
		if kind == "" || kind == "custom" {
			schema := object{}
			if err := required(tool, "input_schema", &schema); err != nil {
				return fmt.Errorf("%s.custom.%w", field, err)
			}
			p.tools = append(p.tools, declaration{name, tool["input_schema"]})
		}
		if err := p.meter.block(tool, field, jsonRunes); err != nil {
			return err
		}
	}
	var choice object
	if err := optional(top, "tool_choice", &choice); err != nil || choice == nil {
		return err
	}
	var kind string
	if err := required(choice, "type", &kind); err != nil {
		return fmt.Errorf("tool_choice.%w", err)
	}
	if !slices.Contains([]string{"auto", "any", "tool", "none"}, kind) {
		return fmt.Errorf("tool_choice: Input tag %.40q does not match any of the expected tags", kind)
	}
	p.toolsOff = kind == "none"
	return nil
}

func (p *prompt) readSystem(top object) error {
	raw := top.get("system")
	if raw == nil {
		return nil
	}
	blocks, err := blocksOf(raw, "system")
	if err != nil {
		return err
	}
	for i, b := range blocks {
		field := fmt.Sprintf("system.%d", i)
		kind, err := typeOf(b, field)
		if err != nil {
			return err
		}
		if kind != "text" {
			return fmt.Errorf("%s.type: Input should be 'text'", field)
		}
		if err := p.readBlock(b, "text", field); err != nil {
			return err
		}
	}
	return nil
}

// blocksOf reads content, which may be a string for one block of text.
func blocksOf(raw json.RawMessage, field string) ([]object, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		quoted, err := json.Marshal(text)
		if err != nil {
			return nil, fmt.Errorf("%s: Input should be a valid string", field)
		}
		return []object{{"type": json.RawMessage(`"text"`), "text": quoted}}, nil
	}
	var blocks []object
	return blocks, read(raw, field, &blocks)
}

func typeOf(b object, field string) (kind string, err error) {
	if err := required(b, "type", &kind); err != nil {
		return "", fmt.Errorf("%s.%w", field, err)
	}
	return kind, nil
}

// compact is JSON without the space between its tokens, and with the keys in
// order at its top.
func compact(o object) []byte {
	raw, err := json.Marshal(o)
	if err != nil { // cannot be: its parts were parsed
		return nil
	}
	return raw
}

func stringIn(o object, name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

// blank tells whether a text is one that the API takes for none.
func blank(text string) bool { return strings.TrimSpace(text) == "" }
