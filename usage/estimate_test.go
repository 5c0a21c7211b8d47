package usage_test

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// user is a message of the user, made of parts.
func user(parts ...*genai.Part) *genai.Content {
	return &genai.Content{Role: genai.RoleUser, Parts: parts}
}

// model is an answer of the model, made of parts.
func model(parts ...*genai.Part) *genai.Content {
	return &genai.Content{Role: genai.RoleModel, Parts: parts}
}

// input estimates the input of contents without a config.
func input(contents ...*genai.Content) int64 {
	return usage.Estimator{}.GenAI(contents, nil).Input
}

func TestAnEstimateIsFlaggedAndConsistent(t *testing.T) {
	t.Parallel()
	got := usage.Estimator{}.GenAI([]*genai.Content{user(genai.NewPartFromText("Where is the gate?"))}, nil)
	if !got.Has(usage.Estimated) || got.IsZero() || got.Clamp() != got {
		t.Errorf("got %v", got)
	}
}

func TestNilCountsAsNothing(t *testing.T) {
	t.Parallel()
	empty := usage.Usage{Output: usage.DefaultTypicalOutput, Flags: usage.Estimated}
	for name, got := range map[string]usage.Usage{
		"nothing":       usage.Estimator{}.GenAI(nil, nil),
		"nil content":   usage.Estimator{}.GenAI([]*genai.Content{nil}, &genai.GenerateContentConfig{}),
		"no parts":      usage.Estimator{}.GenAI([]*genai.Content{{}}, nil),
		"empty content": usage.Estimator{}.GenAI(nil, &genai.GenerateContentConfig{SystemInstruction: &genai.Content{}}),
		"nil tools": usage.Estimator{}.GenAI(nil, &genai.GenerateContentConfig{
			Tools: []*genai.Tool{nil, {}, {FunctionDeclarations: []*genai.FunctionDeclaration{nil}}},
		}),
	} {
		if got != empty {
			t.Errorf("%s: got %v, want %v", name, got, empty)
		}
	}
	hollow := user(
		nil, &genai.Part{},
		&genai.Part{InlineData: &genai.Blob{}},
		&genai.Part{FunctionResponse: &genai.FunctionResponse{Parts: []*genai.FunctionResponsePart{
			nil, {}, {InlineData: &genai.FunctionResponseBlob{}},
		}}},
		&genai.Part{FunctionCall: &genai.FunctionCall{}},
		&genai.Part{ExecutableCode: &genai.ExecutableCode{}, CodeExecutionResult: &genai.CodeExecutionResult{}},
		&genai.Part{ToolCall: &genai.ToolCall{}, ToolResponse: &genai.ToolResponse{}},
		&genai.Part{VideoMetadata: &genai.VideoMetadata{}, MediaResolution: &genai.PartMediaResolution{}},
	)
	if got := input(hollow); got > 50 {
		t.Errorf("parts with nothing in them have %d tokens", got)
	}
}

func TestOutputIsTheSmallerOfLimitAndTypicalAnswerForEachCandidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typical         int64
		max, candidates int32
		want            int64
	}{
		{0, 0, 0, 1024},
		{0, 500, 0, 500},
		{0, 5000, 0, 1024},
		{200, 0, 0, 200},
		{200, 100, 0, 100},
		{5000, 8192, 0, 5000},
		{-1, 0, 0, 1024},
		{0, -1, -1, 1024},
		{0, 0, 1, 1024},
		{0, 0, 3, 3072},
		{0, 500, 3, 1500},
		{math.MaxInt64, 0, 2, math.MaxInt64},
		{math.MaxInt64, math.MaxInt32, math.MaxInt32, math.MaxInt32 * math.MaxInt32},
	} {
		got := usage.Estimator{TypicalOutput: c.typical}.GenAI(nil, &genai.GenerateContentConfig{
			MaxOutputTokens: c.max, CandidateCount: c.candidates,
		})
		if got.Output != c.want {
			t.Errorf("typical %d, limit %d, candidates %d: %d, want %d", c.typical, c.max, c.candidates, got.Output, c.want)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    usage.Estimator
		want string // in the error; "" for none
	}{
		{usage.Estimator{}, ""},
		{usage.Estimator{TypicalOutput: 1, CachedContent: 1}, ""},
		{usage.Estimator{TypicalOutput: -7}, "TypicalOutput is -7"},
		{usage.Estimator{CachedContent: -8}, "CachedContent is -8"},
	} {
		err := c.e.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.e, err, c.want)
		}
	}
}

func TestCachedContentCountsOnlyWhereTheRequestNamesIt(t *testing.T) {
	t.Parallel()
	e := usage.Estimator{CachedContent: 4096}
	contents := []*genai.Content{user(genai.NewPartFromText("Where is the gate?"))}
	without := e.GenAI(contents, &genai.GenerateContentConfig{})
	with := e.GenAI(contents, &genai.GenerateContentConfig{CachedContent: "cachedContents/abc"})
	if without.CachedInput != 0 || with.CachedInput != 4096 || with.Input != without.Input+4096 {
		t.Errorf("without %v, with %v", without, with)
	}
}

func TestTextCountsWhereverItStands(t *testing.T) {
	t.Parallel()
	text := readSample(t, "en_prose")
	want := usage.EstimateText(text)
	args := map[string]any{"text": text}
	e := usage.Estimator{}
	for name, got := range map[string]int64{
		"text":          input(user(genai.NewPartFromText(text))),
		"thought":       input(model(&genai.Part{Text: text, Thought: true})),
		"code":          input(model(&genai.Part{ExecutableCode: &genai.ExecutableCode{Code: text}})),
		"result":        input(model(&genai.Part{CodeExecutionResult: &genai.CodeExecutionResult{Output: text}})),
		"call":          input(model(genai.NewPartFromFunctionCall("f", args))),
		"response":      input(user(genai.NewPartFromFunctionResponse("f", args))),
		"tool call":     input(model(&genai.Part{ToolCall: &genai.ToolCall{Args: args}})),
		"tool response": input(user(&genai.Part{ToolResponse: &genai.ToolResponse{Response: args}})),
		"inline text":   input(user(genai.NewPartFromBytes([]byte(text), "text/csv"))),
		"system": e.GenAI(nil, &genai.GenerateContentConfig{
			SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: text}}},
		}).Input,
		"function": e.GenAI(nil, &genai.GenerateContentConfig{Tools: []*genai.Tool{{
			FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f", Description: text}},
		}}}).Input,
		"response schema": e.GenAI(nil, &genai.GenerateContentConfig{
			ResponseSchema: &genai.Schema{Description: text},
		}).Input,
		"response JSON schema": e.GenAI(nil, &genai.GenerateContentConfig{
			ResponseJsonSchema: map[string]any{"description": text},
		}).Input,
	} {
		if got < want || got > want+20 {
			t.Errorf("%s: %d tokens, as plain text %d", name, got, want)
		}
	}
}

func TestPartsAndContentsAddUp(t *testing.T) {
	t.Parallel()
	text := genai.NewPartFromText(readSample(t, "en_chat"))
	one := input(user(text))
	if got := input(user(text), model(text), user(text)); got < 3*one-3 || got > 3*one {
		t.Errorf("three contents have %d tokens, one has %d", got, one)
	}
	if got := input(user(text, text, text)); got < 3*one-5 || got > 3*one {
		t.Errorf("three parts have %d tokens, one has %d", got, one)
	}
}

// Signatures stand for the thoughts of the current turn, which begins with the
// user's last message.
func TestThoughtSignaturesCountInTheTurnThatTheyWereMadeIn(t *testing.T) {
	t.Parallel()
	question := user(genai.NewPartFromText("What is 2 + 3?"))
	call := genai.NewPartFromFunctionCall("sum", map[string]any{"a": 2, "b": 3})
	signed := *call
	signed.ThoughtSignature = make([]byte, 400)
	result := user(genai.NewPartFromFunctionResponse("sum", map[string]any{"sum": 5}))
	answer := model(genai.NewPartFromText("It is 5."))

	for _, c := range []struct {
		name          string
		plain, signed []*genai.Content
		want          int64
	}{
		{
			"in the current turn",
			[]*genai.Content{question, model(call), result},
			[]*genai.Content{question, model(&signed), result}, 100,
		},
		{
			"twice in the current turn",
			[]*genai.Content{question, model(call), result, model(call), result},
			[]*genai.Content{question, model(&signed), result, model(&signed), result}, 200,
		},
		{
			"in an earlier turn",
			[]*genai.Content{question, model(call), result, answer, question},
			[]*genai.Content{question, model(&signed), result, answer, question}, 0,
		},
		{
			"in both",
			[]*genai.Content{question, model(call), result, answer, question, model(call), result},
			[]*genai.Content{question, model(&signed), result, answer, question, model(&signed), result}, 100,
		},
	} {
		if got := input(c.signed...) - input(c.plain...); got != c.want {
			t.Errorf("%s: %d tokens, want %d", c.name, got, c.want)
		}
	}
}

// The same function, declared in the forms that the API takes.
func TestSchemasCostTheSameInEveryForm(t *testing.T) {
	t.Parallel()
	const source = `{"type":"object","properties":{
		"city":{"type":"string","description":"The city and country, for example Lisbon, Portugal"},
		"unit":{"type":"string","enum":["celsius","fahrenheit"]},
		"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"]}`
	var decoded map[string]any
	if err := json.Unmarshal([]byte(source), &decoded); err != nil {
		t.Fatal(err)
	}
	var typed genai.Schema
	if err := json.Unmarshal([]byte(source), &typed); err != nil {
		t.Fatal(err)
	}
	type property struct {
		Type        string   `json:"type"`
		Description string   `json:"description,omitempty"`
		Enum        []string `json:"enum,omitempty"`
		Minimum     *int     `json:"minimum,omitempty"`
		Maximum     *int     `json:"maximum,omitzero"`
		Internal    string   `json:"-"`
		private     string
	}
	type meta struct {
		Type string `json:"type"`
	}
	type object struct {
		meta
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	var structs object
	if err := json.Unmarshal([]byte(source), &structs); err != nil {
		t.Fatal(err)
	}
	city := structs.Properties["city"]
	city.Internal, city.private = strings.Repeat("never sent ", 100), strings.Repeat("never sent ", 100)
	structs.Properties["city"] = city
	structs.Type = "object"

	declare := func(f *genai.FunctionDeclaration) int64 {
		f.Name, f.Description = "forecast", "Says what the weather will be"
		return usage.Estimator{}.GenAI(nil, &genai.GenerateContentConfig{
			Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{f}}},
		}).Input
	}
	want := declare(&genai.FunctionDeclaration{ParametersJsonSchema: decoded})
	for name, got := range map[string]int64{
		"genai.Schema":           declare(&genai.FunctionDeclaration{Parameters: &typed}),
		"genai.Schema, as any":   declare(&genai.FunctionDeclaration{ParametersJsonSchema: &typed}),
		"genai.Schema, by value": declare(&genai.FunctionDeclaration{ParametersJsonSchema: typed}),
		"structs":                declare(&genai.FunctionDeclaration{ParametersJsonSchema: &structs}),
		"response":               declare(&genai.FunctionDeclaration{ResponseJsonSchema: decoded}),
		"typed response":         declare(&genai.FunctionDeclaration{Response: &typed}),
		"raw JSON":               declare(&genai.FunctionDeclaration{ParametersJsonSchema: json.RawMessage(source)}),
	} {
		if ratio := float64(got) / float64(want); ratio < 0.9 || ratio > 1.6 {
			t.Errorf("%s: %d tokens, as a map %d", name, got, want)
		}
	}
}

// The truth is what the Gemma 3 vocabulary makes of the compact JSON.
func TestJSONIsEstimatedLikeItsText(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]int64{"json_compact": 115, "json_pretty": 65, "json_schema": 67} {
		var v map[string]any
		if err := json.Unmarshal([]byte(readSample(t, name)), &v); err != nil {
			t.Fatal(err)
		}
		without := input(user(genai.NewPartFromFunctionResponse("f", nil)))
		got := input(user(genai.NewPartFromFunctionResponse("f", v))) - without
		if ratio := float64(got) / float64(tokens); ratio < 0.9 || ratio > 1.2 {
			t.Errorf("%s: %d for %d tokens, ratio %.2f", name, got, tokens, ratio)
		}
	}
}

func TestPlainTextIsEstimatedWithoutAllocating(t *testing.T) {
	contents := []*genai.Content{
		user(genai.NewPartFromText(readSample(t, "en_prose"))),
		model(genai.NewPartFromText(readSample(t, "zh"))),
		user(genai.NewPartFromText(readSample(t, "emoji"))),
		user(genai.NewPartFromBytes([]byte(readSample(t, "ru")), "text/plain; charset=utf-8")),
	}
	config := &genai.GenerateContentConfig{
		SystemInstruction: user(genai.NewPartFromText(readSample(t, "en_system"))),
		MaxOutputTokens:   100,
	}
	if n := testing.AllocsPerRun(100, func() { usage.Estimator{}.GenAI(contents, config) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestARequestIsOnlyReadAndMayBeShared(t *testing.T) {
	t.Parallel()
	contents, config := toolRequest(t)
	before, err := json.Marshal([]any{contents, config})
	if err != nil {
		t.Fatal(err)
	}
	want := usage.Estimator{}.GenAI(contents, config)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := (usage.Estimator{}).GenAI(contents, config); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	wg.Wait()
	after, err := json.Marshal([]any{contents, config})
	if err != nil || string(after) != string(before) {
		t.Errorf("the request was changed (%v)", err)
	}
}

// toolRequest is a request of an agent with ten tools, in the middle of a turn.
func toolRequest(tb testing.TB) ([]*genai.Content, *genai.GenerateContentConfig) {
	var functions []*genai.FunctionDeclaration
	for _, name := range strings.Fields("search fetch list open read write delete copy move rename") {
		functions = append(functions, &genai.FunctionDeclaration{
			Name: name, Description: "Does what its name says, to one file of the project.",
			ParametersJsonSchema: map[string]any{
				"type": "object",
				"properties": map[string]any{
					"path":  map[string]any{"type": "string", "description": "The path of the file, from the root."},
					"limit": map[string]any{"type": "integer", "minimum": 1.0},
				},
				"required": []any{"path"},
			},
		})
	}
	contents := []*genai.Content{
		user(genai.NewPartFromText(readSample(tb, "en_chat"))),
		model(genai.NewPartFromFunctionCall("read", map[string]any{"path": "README.md"})),
		user(genai.NewPartFromFunctionResponse("read", map[string]any{"output": readSample(tb, "en_technical")})),
	}
	return contents, &genai.GenerateContentConfig{
		SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: readSample(tb, "en_system")}}},
		Tools:             []*genai.Tool{{FunctionDeclarations: functions}},
	}
}

func BenchmarkEstimateRequest(b *testing.B) {
	contents, config := toolRequest(b)
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			usage.Estimator{}.GenAI(contents[:1], nil)
		}
	})
	b.Run("tools", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			usage.Estimator{}.GenAI(contents, config)
		}
	})
}
