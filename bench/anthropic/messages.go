package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// parts are the fields that a block of each kind must have.
var parts = map[string][]string{
	"text":                                   {"text"},
	"image":                                  {"source"},
	"document":                               {"source"},
	"search_result":                          {"content", "source", "title"},
	"thinking":                               {"thinking", "signature"},
	"redacted_thinking":                      {"data"},
	"tool_use":                               {"id", "name", "input"},
	"tool_result":                            {"tool_use_id"},
	"server_tool_use":                        {"id", "name", "input"},
	"web_search_tool_result":                 {"tool_use_id", "content"},
	"web_fetch_tool_result":                  {"tool_use_id", "content"},
	"code_execution_tool_result":             {"tool_use_id", "content"},
	"bash_code_execution_tool_result":        {"tool_use_id", "content"},
	"text_editor_code_execution_tool_result": {"tool_use_id", "content"},
	"tool_search_tool_result":                {"tool_use_id", "content"},
	"container_upload":                       {"file_id"},
}

func (p *prompt) readMessages(top object) error {
	var messages []object
	if err := required(top, "messages", &messages); err != nil {
		return err
	}
	if len(messages) == 0 {
		return errors.New("messages: at least one message is required")
	}
	calls := map[string]bool{} // of the message before, that wait for a result
	for i, m := range messages {
		field := fmt.Sprintf("messages.%d", i)
		var role string
		if err := required(m, "role", &role); err != nil {
			return fmt.Errorf("%s.%w", field, err)
		}
		switch {
		case !slices.Contains([]string{"user", "assistant", "system"}, role):
			return fmt.Errorf("%s.role: Input should be 'user' or 'assistant'", field)
		case i == 0 && role == "assistant":
			return errors.New("messages: first message must use the \"user\" role")
		}
		for name := range m {
			if name != "role" && name != "content" {
				return fmt.Errorf("%s.%.40s: Extra inputs are not permitted", field, name)
			}
		}
		raw := m.get("content")
		if raw == nil {
			return fmt.Errorf("%s.content: Field required", field)
		}
		p.meter.role(role)
		var err error
		if calls, err = p.readContent(raw, role, field+".content", calls); err != nil {
			return err
		}
	}
	if len(calls) > 0 {
		return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after", len(messages)-1)
	}
	return nil
}

// readContent reads the blocks of a message, which must answer the calls of the
// message before, and returns its own calls.
func (p *prompt) readContent(raw json.RawMessage, role, field string, before map[string]bool) (calls map[string]bool, err error) {
	blocks, err := blocksOf(raw, field)
	if err != nil {
		return nil, err
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s: messages must have non-empty content", field)
	}
	open := maps.Clone(before)
	calls = map[string]bool{}
	p.endsInTools = false
	for i, b := range blocks {
		field := fmt.Sprintf("%s.%d", field, i)
		kind, err := typeOf(b, field)
		if err != nil {
			return nil, err
		}
		if parts[kind] == nil {
			return nil, fmt.Errorf("%s: Input tag %.40q does not match any of the expected tags", field, kind)
		}
		if err := p.readBlock(b, kind, field); err != nil {
			return nil, err
		}
		switch kind {
		case "tool_use":
			if role != "assistant" {
				return nil, fmt.Errorf("%s: `tool_use` blocks can only be in `assistant` messages", field)
			}
			calls[stringIn(b, "id")] = true
		case "tool_result":
			id := stringIn(b, "tool_use_id")
			if role != "user" || !before[id] {
				return nil, fmt.Errorf("%s: unexpected `tool_use_id` found in `tool_result` blocks", field)
			}
			delete(open, id)
			p.endsInTools = true
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("%s: `tool_use` ids were found without `tool_result` blocks immediately after", field)
	}
	return calls, nil
}

// readBlock checks one block and counts it.
func (p *prompt) readBlock(b object, kind, field string) error {
	for _, name := range parts[kind] {
		if b.get(name) == nil {
			return fmt.Errorf("%s.%s.%s: Field required", field, kind, name)
		}
	}
	switch kind {
	case "text":
		var text string
		if err := required(b, "text", &text); err != nil {
			return fmt.Errorf("%s.text.%w", field, err)
		}
		if blank(text) {
			return fmt.Errorf("%s: text content blocks must be non-empty", field)
		}
		return p.meter.block(b, field, textRunes)
	case "thinking":
		return p.meter.block(b, field, thinkingRunes)
	case "image", "document":
		source := object{}
		if err := required(b, "source", &source); err != nil {
			return fmt.Errorf("%s.%s.%w", field, kind, err)
		}
		if kind, err := typeOf(source, field+".source"); err != nil {
			return err
		} else if kind == "text" {
			return p.meter.block(b, field, func(object) int64 { return runes(stringIn(source, "data")) })
		}
		return p.meter.media(b, field)
	case "tool_result":
		return p.readResult(b, field)
	}
	return p.meter.block(b, field, jsonRunes)
}

// readResult checks and counts the result of a tool, which may hold images.
func (p *prompt) readResult(b object, field string) error {
	raw := b.get("content")
	if raw == nil {
		return p.meter.block(b, field, jsonRunes)
	}
	blocks, err := blocksOf(raw, field+".tool_result.content")
	if err != nil {
		return err
	}
	total := int64(0)
	for i, inner := range blocks {
		field := fmt.Sprintf("%s.tool_result.content.%d", field, i)
		kind, err := typeOf(inner, field)
		if err != nil {
			return err
		}
		switch kind {
		case "text":
			total += textRunes(inner)
		case "image", "document":
			p.meter.files++
		default:
			total += jsonRunes(inner)
		}
	}
	return p.meter.block(b, field, func(object) int64 { return total })
}

func runes(text string) int64 { return int64(utf8.RuneCountInString(text)) }

func textRunes(b object) int64 { return runes(stringIn(b, "text")) }

func thinkingRunes(b object) int64 { return runes(stringIn(b, "thinking")) }

func jsonRunes(b object) int64 { return int64(utf8.RuneCount(compact(b))) }
