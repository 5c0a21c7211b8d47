package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// maxCalls bounds the function calls of one answer, as the API bounds its tools.
const maxCalls = 128

// callable returns the names of n functions to call, going round the declared
// ones; none where none is declared.
func (p *prompt) callable(n int) (names []string) {
	for i := range n {
		if len(p.functions) == 0 {
			return nil
		}
		names = append(names, p.functions[i%len(p.functions)].name)
	}
	return names
}

// declared returns the declaration of a function, or nil.
func (p *prompt) declared(name string) *declaration {
	for i := range p.functions {
		if p.functions[i].name == name {
			return &p.functions[i]
		}
	}
	return nil
}

// maxDepth bounds the nesting of sample arguments.
const maxDepth = 8

// sampleArgs makes arguments that fit the JSON Schema of a function's
// parameters: its required properties, or all where it names none. What it
// cannot read becomes an empty object. The ordinal keeps the numbers of several
// calls apart.
func sampleArgs(schema json.RawMessage, draw engine.Draw, ordinal int) json.RawMessage {
	var s map[string]any
	if json.Unmarshal(schema, &s) != nil {
		return json.RawMessage("{}")
	}
	n := 0
	args, ok := sample(s, maxDepth, func() int {
		n++
		return draw.IntN(fmt.Sprintf("argument %d of call %d", n, ordinal), 100)
	}).(map[string]any)
	if !ok {
		return json.RawMessage("{}")
	}
	return marshal(args)
}

// sample makes a value of a schema. Of several types it takes the first.
func sample(schema map[string]any, depth int, number func() int) any {
	if values, ok := schema["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok && len(kinds) > 0 {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "integer":
		return number()
	case "number":
		return float64(number()) + 0.5
	case "boolean":
		return true
	case "string":
		return "sample"
	case "array":
		items, ok := schema["items"].(map[string]any)
		if !ok || depth == 0 {
			return []any{}
		}
		return []any{sample(items, depth-1, number)}
	case "object", "":
		return sampleObject(schema, depth, number)
	}
	return nil
}

func sampleObject(schema map[string]any, depth int, number func() int) any {
	object := map[string]any{}
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
			object[key] = sample(property, depth-1, number)
		}
	}
	return object
}
