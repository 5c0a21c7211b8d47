package gemini

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// maxDepth bounds the nesting of sample arguments.
const maxDepth = 8

// sampleArgs makes arguments that fit the schema of a function's parameters:
// its required properties, or all where it names none. What it cannot read
// becomes an empty object. The ordinal keeps the numbers of several calls
// apart.
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
	raw, err := json.Marshal(args)
	if err != nil { // cannot be: it is made of what was parsed
		return json.RawMessage("{}")
	}
	return raw
}

// sample makes a value of a schema, in either of the forms that the API takes:
// OpenAPI with capital type names, or JSON Schema.
func sample(schema map[string]any, depth int, number func() int) any {
	if values, ok := schema["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	switch kind, _ := schema["type"].(string); strings.ToLower(kind) {
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

// callTokens is the length of a function call as output.
func callTokens(c FunctionCall) int {
	raw, err := json.Marshal(functionCall{Name: c.Name, Args: c.Args})
	if err != nil { // cannot be: bound has checked Args
		return 1
	}
	return textLength(string(raw))
}

// callID is the identifier of a function call, which Gemini 3 sends.
func callID(draw engine.Draw, ordinal int) string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	random := draw.Bytes(fmt.Sprintf("id of call %d", ordinal))
	id := make([]byte, 8)
	for i := range id {
		id[i] = letters[int(random[i])%len(letters)]
	}
	return string(id)
}

// signature is the opaque form of thoughts that comes with the first function
// call, to be sent back.
func signature(draw engine.Draw) string {
	random := draw.Bytes("thought signature")
	return base64.StdEncoding.EncodeToString(random[:])
}

// responseID is the identifier that all chunks of an answer carry.
func responseID(draw engine.Draw) string {
	random := draw.Bytes("response")
	return base64.RawURLEncoding.EncodeToString(random[:17])
}
