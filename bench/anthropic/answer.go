package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Answer is an answer that is about to be given.
type Answer struct {
	// Latency is the total time of the call, before Speed; nil is drawn from
	// the configuration.
	Latency *time.Duration
	// Output is the number of output tokens, without thoughts.
	Output int
	// Text is the answer's text, spread evenly over the deltas; empty is filler
	// of the right length. It does not change Output; max_tokens cuts it in
	// proportion.
	Text string
	// Thoughts is the number of thought tokens.
	Thoughts int
	// ToolCalls are the calls that stand instead of text. Their length counts
	// as output, whatever Output says.
	ToolCalls []ToolCall
}

// ToolCall is one call of a declared tool.
type ToolCall struct {
	// Input is the JSON object of the arguments; what is not JSON becomes {}.
	Input json.RawMessage
	// Name is the tool's name.
	Name string
}

// Reasons for the end of an answer.
const (
	stopEnd       = "end_turn"
	stopMaxTokens = "max_tokens"
	stopToolUse   = "tool_use"
)

// plan makes the answer to a request, before max_tokens bounds it:
// configuration first, then the request's own wishes, then its headers, then the
// hook.
func (s *Server) plan(req Request, p *prompt, d demand, draw engine.Draw) Answer {
	a := Answer{Output: round(draw.LogNormal("output", float64(s.cfg.OutputTokens), s.cfg.OutputSigma)), Latency: d.latency}
	if p.thinking {
		a.Thoughts = round(draw.LogNormal("thoughts", float64(s.cfg.Thoughts), s.cfg.OutputSigma))
	}
	if p.thinkingBudget >= 0 {
		a.Thoughts = min(a.Thoughts, p.thinkingBudget)
	}
	names := d.calls
	if names == nil && !d.noCalls && !p.toolsOff && !p.endsInTools {
		names = p.callable(s.cfg.ToolCalls)
	}
	for i, name := range names {
		a.ToolCalls = append(a.ToolCalls, ToolCall{Name: name, Input: sampleInput(p.declared(name).schema, draw, i)})
	}
	if d.output != nil {
		a.Output = *d.output
	}
	if d.thoughts != nil {
		a.Thoughts = *d.thoughts
	}
	if s.cfg.Answer != nil {
		s.cfg.Answer(req, &a)
	}
	return a
}

// bound makes the answer one that can be given: lengths within range, and
// within max_tokens, thoughts first. It returns the stop reason.
func (a *Answer) bound(most int) (stop string) {
	a.Thoughts = min(max(a.Thoughts, 0), maxTokens)
	a.Output = min(max(a.Output, 0), maxTokens)
	stop = stopEnd
	if len(a.ToolCalls) > 0 {
		stop = stopToolUse
		a.Text, a.Output = "", 0
		for i, c := range a.ToolCalls {
			if !json.Valid(c.Input) {
				a.ToolCalls[i].Input = json.RawMessage("{}")
			}
			a.Output += callTokens(a.ToolCalls[i])
		}
	}
	if a.Thoughts+a.Output <= most {
		return stop
	}
	a.Thoughts = min(a.Thoughts, most)
	room := most - a.Thoughts
	if len(a.ToolCalls) > 0 { // a call is whole or not there
		whole, length := 0, 0
		for whole < len(a.ToolCalls) && length+callTokens(a.ToolCalls[whole]) <= room {
			length += callTokens(a.ToolCalls[whole])
			whole++
		}
		a.ToolCalls, room = a.ToolCalls[:whole], length
	}
	if a.Text != "" {
		a.Text = cut(a.Text, 0, room, a.Output)
	}
	a.Output = room
	return stopMaxTokens
}

// callTokens is the length of a tool call as output.
func callTokens(c ToolCall) int {
	return int(runes(c.Name)+runes(string(c.Input))+RunesPerToken-1) / RunesPerToken
}

// cut returns the part of a text that lies between two tokens, if it has so
// many in all, evenly long.
func cut(text string, from, to, tokens int) string {
	if tokens <= 0 {
		return text
	}
	all := []rune(text)
	return string(all[len(all)*from/tokens : len(all)*to/tokens])
}

// words are what answers are made of: each is a token.
var words = [...]string{
	"The ", "keep", "er  ", "wait", "s at", " the", " gat", "e.  ", "Each", " dit", "ch  ", "has ", "its ", "turn",
	", no", "ne m", "ore ", "than", " the", " riv", "er  ", "give", "s.  ",
}

// filler returns the tokens from the first to before the second.
func filler(from, to int) string {
	b := make([]byte, 0, max(to-from, 0)*RunesPerToken)
	for i := from; i < to; i++ {
		b = append(b, words[i%len(words)]...)
	}
	return string(b)
}

// sampleInput makes arguments that fit the schema of a tool: its required
// properties, or all where it names none. What it cannot read becomes an empty
// object. The ordinal keeps the numbers of several calls apart.
func sampleInput(schema json.RawMessage, draw engine.Draw, ordinal int) json.RawMessage {
	var s map[string]any
	if json.Unmarshal(schema, &s) != nil {
		return json.RawMessage("{}")
	}
	n := 0
	raw, err := json.Marshal(sampleObject(s, 8, func() int {
		n++
		return draw.IntN(fmt.Sprintf("argument %d of call %d", n, ordinal), 100)
	}))
	if err != nil { // cannot be: it is made of what was parsed
		return json.RawMessage("{}")
	}
	return raw
}

func sampleObject(schema map[string]any, depth int, number func() int) map[string]any {
	made := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	names, ok := schema["required"].([]any)
	if !ok {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		key, _ := name.(string)
		if property, ok := properties[key].(map[string]any); ok && depth > 0 {
			made[key] = sample(property, depth-1, number)
		}
	}
	return made
}

// sample makes a value of a JSON schema.
func sample(schema map[string]any, depth int, number func() int) any {
	if values, ok := schema["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	switch kind, _ := schema["type"].(string); kind {
	case "integer":
		return number()
	case "number":
		return float64(number()) + 0.5
	case "boolean":
		return true
	case "array":
		if items, ok := schema["items"].(map[string]any); ok && depth > 0 {
			return []any{sample(items, depth-1, number)}
		}
		return []any{}
	case "object":
		return sampleObject(schema, depth, number)
	case "null":
		return nil
	}
	return "sample"
}

// identifier is what the API calls a message, a call or a request by.
func identifier(kind string, draw engine.Draw, name string) string {
	const letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	random := draw.Bytes(name)
	id := make([]byte, 22)
	for i := range id {
		id[i] = letters[int(random[i])%len(letters)]
	}
	return kind + "_01" + string(id)
}

// signature is the opaque form of thoughts that comes with them, to be sent
// back.
func signature(draw engine.Draw, thoughts int) string {
	random := draw.Bytes("signature")
	raw := make([]byte, 0, thoughts+len(random))
	for len(raw) < thoughts {
		raw = append(raw, random[:]...)
	}
	return base64.StdEncoding.EncodeToString(append(raw, random[:]...))
}
