package gemini

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAPromptHasAQuarterOfItsCharactersAndItsFiles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       int64
	}{
		{"one character", `{"contents":[{"parts":[{"text":"a"}]}]}`, 1},
		{"four characters", `{"contents":[{"parts":[{"text":"abcd"}]}]}`, 1},
		{"five characters", `{"contents":[{"parts":[{"text":"abcde"}]}]}`, 2},
		{"no text", `{"contents":[{"parts":[{"text":""}]}]}`, 0},
		{"no parts", `{"contents":[{"role":"user"}]}`, 0},
		{"characters, not bytes", `{"contents":[{"parts":[{"text":"日本語で"}]}]}`, 1},
		{"parts are added before they are rounded", `{"contents":[{"parts":[{"text":"ab"},{"text":"c"}]},{"parts":[{"text":"d"}]}]}`, 1},
		{"system instruction", `{"contents":[{"parts":[{"text":"abcd"}]}],"systemInstruction":{"parts":[{"text":"efgh"}]}}`, 2},
		{"snake case", `{"contents":[{"parts":[{"text":"abcd"}]}],"system_instruction":{"parts":[{"text":"efgh"}]}}`, 2},
		{"inline file", `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAAAAAAAAAA"}}]}]}`, 258},
		{"linked file, snake case", `{"contents":[{"parts":[{"file_data":{"file_uri":"gs://b/f"}},{"text":"abcd"}]}]}`, 259},
		{"tools, compacted", `{"contents":[{"parts":[{"text":""}]}],"tools": [ {"googleSearch": {} } ]}`, 6},   // [{"googleSearch":{}}]
		{"function call", `{"contents":[{"parts":[{"functionCall":{"name": "f", "args": {}}}]}]}`, 6},          // {"name":"f","args":{}}
		{"function response", `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{}}}]}]}`, 7}, // {"name":"f","response":{}}
		{"thoughts that come back", `{"contents":[{"parts":[{"text":"abcd","thoughtSignature":"AAAAAAAA"}]}]}`, 1},
		{"null is absent", `{"contents":[{"parts":[{"text":"abcd","inlineData":null}]}],"tools":null}`, 1},
		{"wrapped for a count", `{"generateContentRequest":{"contents":[{"parts":[{"text":"abcd"}]}]}}`, 1},
	}
	for _, tt := range tests {
		p, err := parsePrompt([]byte(tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := p.tokens(); got != tt.want {
			t.Errorf("%s: %d tokens, want %d", tt.name, got, tt.want)
		}
		var sum int64
		for _, d := range p.details(3) {
			sum += d.TokenCount
		}
		if sum != tt.want+3 {
			t.Errorf("%s: details add up to %d, want prompt and rise, %d", tt.name, sum, tt.want+3)
		}
	}
}

func TestOptionsOfARequestAreRead(t *testing.T) {
	t.Parallel()
	p, err := parsePrompt([]byte(`{
		"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}, {"parts": [{"text": "x"}]}],
		"generation_config": {"maxOutputTokens": "77", "thinking_config": {"include_thoughts": true, "thinkingBudget": 9}},
		"tools": [{"function_declarations": [{"name": "f"}]}, {"functionDeclarations": [{"name": "g", "parameters": {"type": "OBJECT"}}]}],
		"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if p.maxOutputTokens != 77 || !p.includeThoughts || p.thinkingBudget != 9 || !p.functionsOff {
		t.Errorf("options %+v", p)
	}
	if p.answersFunction {
		t.Error("the last content is text, but the request passes for function responses")
	}
	if len(p.functions) != 2 || p.functions[0].name != "f" || p.declared("g") == nil || p.declared("h") != nil {
		t.Errorf("functions %+v", p.functions)
	}
	p, err = parsePrompt([]byte(`{"contents":[{"parts":[{"text":"x"}]},{"parts":[{"functionResponse":{"name":"f"}}]}],"systemInstruction":{"parts":[{"text":"s"}]}}`))
	if err != nil || !p.answersFunction || p.thinkingBudget != -1 || p.maxOutputTokens != 0 {
		t.Errorf("options %+v, %v", p, err)
	}
}

func TestAWrongRequestIsRefusedByTheNameOfItsField(t *testing.T) {
	t.Parallel()
	const good = `"contents":[{"parts":[{"text":"x"}]}]`
	tests := []struct{ body, want string }{
		{``, "body: not JSON"},
		{`{`, "body: not JSON"},
		{`[]`, "body: must be an object"},
		{`null`, "contents: must hold at least one content"},
		{`{}`, "contents: must hold at least one content"},
		{`{"contents":"x"}`, "contents: must be an array"},
		{`{"contents":["x"]}`, "contents[0]: must be an object"},
		{`{"contents":[{"parts":{"text":"x"}}]}`, "contents[0].parts: must be an array"},
		{`{"contents":[{"parts":[{"text":"x"},3]}]}`, "contents[0].parts[1]: must be an object"},
		{`{"contents":[{"parts":[{"text":["secret"]}]}]}`, "contents[0].parts[0].text: must be a string"},
		{`{"generateContentRequest":[]}`, "generateContentRequest: must be an object"},
		{`{` + good + `,"systemInstruction":"x"}`, "systemInstruction: must be an object"},
		{`{` + good + `,"tools":{}}`, "tools: must be an array"},
		{`{` + good + `,"tools":[3]}`, "tools[0]: must be an object"},
		{`{` + good + `,"tools":[{"functionDeclarations":{}}]}`, "tools[0].functionDeclarations: must be an array"},
		{`{` + good + `,"tools":[{"functionDeclarations":[3]}]}`, "tools[0].functionDeclarations[0]: must be an object"},
		{`{` + good + `,"tools":[{"functionDeclarations":[{"name":3}]}]}`, "tools[0].functionDeclarations[0].name: must be a string"},
		{`{` + good + `,"toolConfig":3}`, "toolConfig: must be an object"},
		{`{` + good + `,"toolConfig":{"functionCallingConfig":3}}`, "toolConfig.functionCallingConfig: must be an object"},
		{`{` + good + `,"toolConfig":{"functionCallingConfig":{"mode":3}}}`, "toolConfig.functionCallingConfig.mode: must be a string"},
		{`{` + good + `,"generationConfig":[]}`, "generationConfig: must be an object"},
		{`{` + good + `,"generationConfig":{"maxOutputTokens":-1}}`, "generationConfig.maxOutputTokens -1: must be a whole number, at least 0"},
		{`{` + good + `,"generationConfig":{"maxOutputTokens":1.5}}`, "generationConfig.maxOutputTokens 1.5"},
		{`{` + good + `,"generationConfig":{"thinkingConfig":{"thinkingBudget":-2}}}`, "generationConfig.thinkingConfig.thinkingBudget -2"},
		{`{` + good + `,"generationConfig":{"thinkingConfig":{"includeThoughts":3}}}`, "generationConfig.thinkingConfig.includeThoughts: must be a bool"},
	}
	for _, tt := range tests {
		_, err := parsePrompt([]byte(tt.body))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one that says %q", tt.body, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("error %q quotes the prompt", err)
		}
	}
}

func FuzzAnyBodyIsReadOrRefused(f *testing.F) {
	for _, seed := range []string{
		`{"contents":[{"parts":[{"text":"hello"}]}]}`, `{"contents":[{"parts":[{"inline_data":{}}]}],"tools":[{}]}`,
		`{"contents":[{"parts":[{"functionCall":{"name":"f"}}]}],"generationConfig":{"maxOutputTokens":"1"}}`,
		`{"contents":[{}],"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"array","items":{"type":"object"}}}]}]}`,
		`{"generateContentRequest":{"contents":[{"parts":[]}]}}`, `[`, "\xff", `{"contents":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := parsePrompt(body)
		if err != nil {
			if p != nil || err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("refused with %q and %v", err, p)
			}
			return
		}
		if !json.Valid(body) {
			t.Error("not JSON, but read")
		}
		// No more text than there are characters. (An escape like \n is shorter
		// when it is read, never longer.)
		if runes := int64(utf8.RuneCount(body)); p.textRunes < 0 || p.textRunes > runes || p.media < 0 || p.media > runes {
			t.Errorf("%d characters and %d files in %d characters", p.textRunes, p.media, runes)
		}
		if p.maxOutputTokens < 0 || p.thinkingBudget < -1 {
			t.Errorf("options %+v", p)
		}
		for i, name := range p.callable(3) {
			if args := sampleArgs(p.declared(name).schema, drawFor("fuzz"), i); !json.Valid(args) {
				t.Errorf("arguments %s", args)
			}
		}
	})
}

func TestPathsOfBothAPIsAreKnown(t *testing.T) {
	t.Parallel()
	const vertex = "/v1beta1/projects/p/locations/us-central1"
	tests := []struct {
		path   string
		ok     bool
		model  string
		method string
		vertex bool
	}{
		{"/v1beta/models/gemini-2.5-flash:generateContent", true, "gemini-2.5-flash", "generateContent", false},
		{"/v1/models/m:streamGenerateContent", true, "m", "streamGenerateContent", false},
		{"/v1alpha/tunedModels/t:countTokens", true, "t", "countTokens", false},
		{"/v1beta/models/m:1:generateContent", true, "m:1", "generateContent", false},
		{vertex + "/publishers/google/models/m:generateContent", true, "m", "generateContent", true},
		{vertex + "/endpoints/123:generateContent", true, "123", "generateContent", true},
		{"/v1/publishers/google/models/m:countTokens", true, "m", "countTokens", true},
		{"/v1beta/models/m", false, "", "", false},
		{"/v1beta/models/:generateContent", false, "", "", false},
		{"/models/m:generateContent", false, "", "", false},
		{"/vx/models/m:generateContent", false, "", "", false},
		{"/v1beta/files/f:generateContent", false, "", "", false},
		{"/v1beta/models/a/b:generateContent", false, "", "", false},
		{"/v1/projects//locations/l/endpoints/e:generateContent", false, "", "", false},
		{"/", false, "", "", false},
		{"", false, "", "", false},
	}
	for _, tt := range tests {
		got, ok := parsePath(tt.path)
		if want := (target{method: tt.method, model: tt.model, vertex: tt.vertex}); ok != tt.ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.path, got, ok, want, tt.ok)
		}
	}
}
