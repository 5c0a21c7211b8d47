package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// RunesPerToken is the number of characters that make a token, by the rule of
	// thumb of OpenAI's help on tokens.
	RunesPerToken = 4
	// TokensPerMedia is the number of tokens of every picture, file or sound: a
	// picture at low detail (OpenAI docs, images and vision guide). Real ones may
	// have more.
	TokensPerMedia = 85
)

// Request is a request as the double understands it, for Config.Answer.
type Request struct {
	// Body is the body as it came.
	Body []byte
	// Functions are the names of the functions that the model may call.
	Functions []string
	// Header has the request's headers.
	Header http.Header
	// MaxOutputTokens is the limit that the request sets for each answer; 0
	// where it sets none.
	MaxOutputTokens int
	// Model is the model's name, or that of the deployment.
	Model string
	// PromptTokens is the length of the prompt.
	PromptTokens int64
	// Responses tells that the Responses API was asked, not chat completions.
	Responses bool
	// Stream tells that the answer is streamed.
	Stream bool
}

// prompt is a request's body, as far as the double understands it.
type prompt struct {
	model     string
	textRunes int64
	media     int64

	functions       []declaration
	functionsOff    bool // tool_choice is "none"
	answersFunction bool // the last message or item is a function's result

	choices      int // n; at least 1
	inputs       int // of embeddings
	maxOutput    int // 0: not given
	stream       bool
	includeUsage bool
}

// declaration is a function that the model may call.
type declaration struct {
	name   string
	schema json.RawMessage // of its parameters; may be nil
}

// tokens returns the length of the prompt.
func (p *prompt) tokens() int64 {
	return (p.textRunes+RunesPerToken-1)/RunesPerToken + p.media*TokensPerMedia
}

// text adds a text to the prompt.
func (p *prompt) text(s string) { p.textRunes += int64(utf8.RuneCountInString(s)) }

// compact adds JSON to the prompt, without the space between its tokens.
func (p *prompt) compact(raw json.RawMessage) {
	var b bytes.Buffer
	if raw != nil && json.Compact(&b, raw) == nil {
		p.textRunes += int64(utf8.RuneCount(b.Bytes()))
	}
}

// invalid is what is wrong with a request, as the API tells it.
type invalid struct{ message, param, code string }

func (e *invalid) Error() string { return e.message }

func missing(param string) error {
	return &invalid{fmt.Sprintf("Missing required parameter: '%s'.", param), param, "missing_required_parameter"}
}

func wrongType(param, want string) error {
	return &invalid{fmt.Sprintf("Invalid type for '%s': expected %s.", param, want), param, "invalid_type"}
}

func wrongValue(param, want string) error {
	return &invalid{fmt.Sprintf("Invalid value for '%s': %s.", param, want), param, "invalid_value"}
}

// readBody reads a request's body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, &invalid{message: fmt.Sprintf("The body cannot be read, or is above %d bytes.", maxBody)}
	}
	return body, nil
}

// parsePrompt reads the body of a request. Its errors name the parameter that is
// wrong and never quote a prompt.
func parsePrompt(t target, body []byte) (*prompt, error) {
	var o object
	if json.Unmarshal(body, &o) != nil || o == nil {
		return nil, &invalid{message: "We could not parse the JSON body of your request. " +
			"(HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload.)"}
	}
	p := &prompt{choices: 1, model: t.deployment}
	if p.model == "" {
		if err := o.value("model", &p.model, "a string"); err != nil {
			return nil, err
		}
		if p.model == "" {
			return nil, &invalid{message: "you must provide a model parameter"}
		}
	}
	switch t.endpoint {
	case endpointChat:
		return p, p.readChat(o)
	case endpointResponses:
		return p, p.readResponses(o)
	default:
		return p, p.readEmbeddings(o)
	}
}

// readChat reads a request for a chat completion.
func (p *prompt) readChat(o object) error {
	messages, err := o.list("messages")
	switch {
	case err != nil:
		return err
	case o["messages"] == nil:
		return missing("messages")
	case len(messages) == 0:
		return &invalid{"Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.", "messages", "empty_array"}
	}
	for i, raw := range messages {
		m, err := objectOf(raw, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return err
		}
		if err := p.readMessage(m, fmt.Sprintf("messages[%d]", i)); err != nil {
			return err
		}
	}
	var legacy int
	for _, err := range []error{
		p.readTools(o, "tools", "function"),
		o.value("stream", &p.stream, "a boolean"),
		o.integer("n", &p.choices, 1, 128),
		o.integer("max_tokens", &legacy, 1, maxInt),
		o.integer("max_completion_tokens", &p.maxOutput, 1, maxInt),
		p.readStreamOptions(o),
	} {
		if err != nil {
			return err
		}
	}
	if legacy > 0 && p.maxOutput > 0 {
		return &invalid{"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", "max_tokens", "invalid_parameter_combination"}
	}
	p.maxOutput = max(p.maxOutput, legacy)
	p.compact(o["response_format"])
	return nil
}

// readStreamOptions reads what a streamed completion is to hold.
func (p *prompt) readStreamOptions(o object) error {
	raw := o["stream_options"]
	if isNull(raw) {
		return nil
	}
	if !p.stream {
		return &invalid{"The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", ""}
	}
	options, err := objectOf(raw, "stream_options")
	if err != nil {
		return err
	}
	return options.value("include_usage", &p.includeUsage, "a boolean")
}

// roles are those of messages.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// readMessage reads a message of a chat.
func (p *prompt) readMessage(m object, field string) error {
	var role string
	if err := m.value("role", &role, "a string"); err != nil {
		return err
	}
	if !slices.Contains(roles, role) {
		return wrongValue(field+".role", "supported values are: '"+strings.Join(roles, "', '")+"'")
	}
	p.answersFunction = role == "tool" || role == "function"
	if err := p.readContent(m["content"], field+".content"); err != nil {
		return err
	}
	p.compact(m["tool_calls"])
	return nil
}

// readContent reads a text, or a list of parts.
func (p *prompt) readContent(raw json.RawMessage, field string) error {
	if isNull(raw) {
		return nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		p.text(s)
		return nil
	}
	parts, err := listOf(raw, field)
	if err != nil {
		return wrongType(field, "a string or an array of objects")
	}
	for i, raw := range parts {
		field := fmt.Sprintf("%s[%d]", field, i)
		part, err := objectOf(raw, field)
		if err != nil {
			return err
		}
		var kind, text string
		if err := part.value("type", &kind, "a string"); err != nil {
			return err
		}
		switch kind {
		case "text", "input_text", "output_text", "summary_text", "reasoning_text":
			if err := part.value("text", &text, "a string"); err != nil {
				return err
			}
		case "refusal":
			if err := part.value("refusal", &text, "a string"); err != nil {
				return err
			}
		case "image_url", "input_image", "input_audio", "file", "input_file":
			p.media++
		default:
			return wrongValue(field+".type", "there is no such type of content")
		}
		p.text(text)
	}
	return nil
}

// readTools reads the tools of a request. Those of chat completions are in an
// object of their own.
func (p *prompt) readTools(o object, name, inner string) error {
	tools, err := o.list(name)
	if err != nil {
		return err
	}
	p.compact(o[name])
	for i, raw := range tools {
		field := fmt.Sprintf("%s[%d]", name, i)
		tool, err := objectOf(raw, field)
		if err != nil {
			return err
		}
		var kind string
		if err := tool.value("type", &kind, "a string"); err != nil {
			return err
		}
		if kind == "" {
			return missing(field + ".type")
		}
		if kind != "function" {
			continue
		}
		if inner != "" {
			if tool, err = objectOf(tool[inner], field+"."+inner); err != nil {
				return err
			}
		}
		d := declaration{schema: tool["parameters"]}
		if err := tool.value("name", &d.name, "a string"); err != nil {
			return err
		}
		if d.name == "" {
			return missing(field + ".name")
		}
		p.functions = append(p.functions, d)
	}
	var choice string
	p.functionsOff = json.Unmarshal(o["tool_choice"], &choice) == nil && choice == "none"
	return nil
}

// leastOutput is the smallest max_output_tokens of the Responses API.
const leastOutput = 16

// readResponses reads a request to the Responses API.
func (p *prompt) readResponses(o object) error {
	var instructions string
	for _, err := range []error{
		o.value("instructions", &instructions, "a string"),
		p.readTools(o, "tools", ""),
		o.value("stream", &p.stream, "a boolean"),
		o.integer("max_output_tokens", &p.maxOutput, leastOutput, maxInt),
	} {
		if err != nil {
			return err
		}
	}
	p.text(instructions)
	p.compact(o["text"])
	raw := o["input"]
	if isNull(raw) {
		return missing("input")
	}
	var whole string
	if json.Unmarshal(raw, &whole) == nil {
		p.text(whole)
		return nil
	}
	items, err := listOf(raw, "input")
	if err != nil {
		return wrongType("input", "a string or an array of objects")
	}
	for i, raw := range items {
		if err := p.readItem(raw, fmt.Sprintf("input[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// readItem reads an item of a response's input. A message needs no type.
func (p *prompt) readItem(raw json.RawMessage, field string) error {
	item, err := objectOf(raw, field)
	if err != nil {
		return err
	}
	var kind string
	if err := item.value("type", &kind, "a string"); err != nil {
		return err
	}
	p.answersFunction = kind == "function_call_output" || kind == "custom_tool_call_output"
	if kind == "" || kind == "message" {
		return p.readContent(item["content"], field+".content")
	}
	p.compact(raw)
	return nil
}

// readEmbeddings reads a request for embeddings: a text, a list of texts, a list
// of tokens, or a list of such lists.
func (p *prompt) readEmbeddings(o object) error {
	raw := o["input"]
	if isNull(raw) {
		return missing("input")
	}
	p.inputs = 1
	var one string
	if json.Unmarshal(raw, &one) == nil {
		p.text(one)
		return nil
	}
	var texts []string
	var tokens []int64
	var lists [][]int64
	switch {
	case json.Unmarshal(raw, &texts) == nil:
		p.inputs = len(texts)
		for _, s := range texts {
			p.text(s)
		}
	case json.Unmarshal(raw, &tokens) == nil:
		p.textRunes = RunesPerToken * int64(len(tokens))
	case json.Unmarshal(raw, &lists) == nil:
		p.inputs = len(lists)
		for _, l := range lists {
			p.textRunes += RunesPerToken * int64(len(l))
		}
	default:
		return wrongType("input", "a string, an array of strings, or tokens")
	}
	if p.inputs == 0 || len(texts)+len(tokens)+len(lists) == 0 {
		return &invalid{"Invalid 'input': empty array.", "input", "empty_array"}
	}
	return nil
}

// maxInt is the largest number that a parameter takes here.
const maxInt = 1<<31 - 1

// object is a JSON object whose fields have not been read yet.
type object map[string]json.RawMessage

// value reads a string or a boolean into v; an absent one leaves it as it is.
func (o object) value(name string, v any, want string) error {
	if raw := o[name]; !isNull(raw) && json.Unmarshal(raw, v) != nil {
		return wrongType(name, want)
	}
	return nil
}

// integer reads a whole number; an absent one leaves v as it is.
func (o object) integer(name string, v *int, least, most int) error {
	raw := o[name]
	if isNull(raw) {
		return nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case err != nil:
		return wrongType(name, "an integer")
	case n < int64(least):
		return &invalid{fmt.Sprintf("Invalid '%s': integer below minimum value. Expected a value >= %d.", name, least), name, "integer_below_min_value"}
	case n > int64(most):
		return &invalid{fmt.Sprintf("Invalid '%s': integer above maximum value. Expected a value <= %d.", name, most), name, "integer_above_max_value"}
	}
	*v = int(n)
	return nil
}

// list reads an array; an absent one is empty.
func (o object) list(name string) ([]json.RawMessage, error) {
	if isNull(o[name]) {
		return nil, nil
	}
	return listOf(o[name], name)
}

func listOf(raw json.RawMessage, field string) (list []json.RawMessage, err error) {
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return nil, wrongType(field, "an array of objects")
	}
	return list, nil
}

func objectOf(raw json.RawMessage, field string) (o object, err error) {
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return nil, wrongType(field, "an object")
	}
	return o, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
