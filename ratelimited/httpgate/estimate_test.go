package httpgate

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/usage"
)

// estimated is the estimate of a request of the route, read in pieces of n bytes.
func estimated(t testing.TB, r route, body string, n int) (usage.Usage, *estimator) {
	t.Helper()
	e := newEstimator(&r)
	for rest := []byte(body); len(rest) > 0; {
		k := min(n, len(rest))
		e.feed(rest[:k])
		rest = rest[k:]
	}
	return e.usage(0, int64(len(body)), int64(len(body))), e
}

var (
	google    = route{api: geminiAPI, model: "gemini-2.5-flash"}
	chat      = route{api: openaiAPI}
	responses = route{api: openaiAPI, method: respond}
	messages  = route{api: anthropicAPI}
)

const essay = "The keeper of the sluice looked at the water and let a little more of it through, for the fields below had been dry. "

// A text weighs the same wherever a format has it, and what is no prompt weighs
// nothing.
func TestTextIsCountedWhereverAFormatHasIt(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(essay, 20)
	quoted := fmt.Sprintf("%q", text)
	vector := func(r route) route { r.method = embed; return r }
	for name, c := range map[string]struct {
		route route
		body  string
		texts int64 // how often the text goes to the model
	}{
		"gemini":             {google, `{"contents":[{"role":"user","parts":[{"text":` + quoted + `},{"text":` + quoted + `}]}],"systemInstruction":{"parts":[{"text":` + quoted + `}]},"labels":{"x":` + quoted + `}}`, 3},
		"gemini, snake case": {google, `{"contents":[{"parts":[{"text":` + quoted + `}]}],"system_instruction":{"parts":[{"text":` + quoted + `}]},"generation_config":{"stop_sequences":[` + quoted + `]}}`, 2},
		"gemini, functions":  {google, `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":` + quoted + `}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"b":[` + quoted + `]}}}]}],"tools":[{"functionDeclarations":[{"name":"f","description":` + quoted + `}]}]}`, 3},
		"gemini, code":       {google, `{"contents":[{"parts":[{"executableCode":{"language":"PYTHON","code":` + quoted + `}},{"codeExecutionResult":{"output":` + quoted + `}}]}]}`, 2},
		"gemini, schema":     {google, `{"contents":[],"generationConfig":{"responseSchema":{"description":` + quoted + `}}}`, 1},
		"gemini, embedding":  {vector(google), `{"content":{"parts":[{"text":` + quoted + `}]},"title":"x"}`, 1},
		"gemini, embeddings": {vector(google), `{"requests":[{"model":"m","content":{"parts":[{"text":` + quoted + `}]}},{"content":{"parts":[{"text":` + quoted + `}]}}]}`, 2},
		"vertex, embeddings": {vector(google), `{"instances":[{"content":` + quoted + `,"task_type":"X"},{"content":` + quoted + `}]}`, 2},
		"chat":               {chat, `{"messages":[{"role":"system","content":` + quoted + `},{"role":"user","content":[{"type":"text","text":` + quoted + `}]},{"role":"assistant","tool_calls":[{"id":"` + strings.Repeat("x", 900) + `","function":{"name":"f","arguments":` + quoted + `}}]},{"role":"tool","tool_call_id":"y","content":` + quoted + `}],"model":"m","user":` + quoted + `,"metadata":{"content":` + quoted + `}}`, 4},
		"chat, tools":        {chat, `{"tools":[{"type":"function","function":{"name":"f","description":` + quoted + `}}],"response_format":{"json_schema":{"x":` + quoted + `}}}`, 2},
		"completion":         {chat, `{"prompt":` + quoted + `,"suffix":"x"}`, 1},
		"response":           {responses, `{"input":` + quoted + `,"instructions":` + quoted + `,"previous_response_id":"x"}`, 2},
		"response, items":    {responses, `{"input":[{"role":"user","content":[{"type":"input_text","text":` + quoted + `}]},{"type":"function_call","call_id":"c","name":"f","arguments":` + quoted + `},{"type":"function_call_output","call_id":"c","output":` + quoted + `},{"type":"reasoning","encrypted_content":"","summary":[{"text":` + quoted + `}]}],"text":{"format":{"schema":{"d":` + quoted + `}}}}`, 5},
		"openai, embeddings": {vector(chat), `{"input":[` + quoted + `,` + quoted + `],"model":"m"}`, 2},
		"message":            {messages, `{"system":` + quoted + `,"messages":[{"role":"user","content":` + quoted + `},{"role":"assistant","content":[{"type":"thinking","thinking":` + quoted + `,"signature":"c2ln"},{"type":"tool_use","id":"t","name":"f","input":{"a":` + quoted + `}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":` + quoted + `}]}]}],"metadata":{"user_id":` + quoted + `}}`, 5},
		"message, parts":     {messages, `{"system":[{"type":"text","text":` + quoted + `,"cache_control":{"type":"ephemeral"}}],"tools":[{"name":"f","description":` + quoted + `,"input_schema":{}}],"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":` + quoted + `}]}}]}]}`, 3},
		"escaped":            {chat, `{"messages":[{"content":"` + escaped(text) + `"}]}`, 1},
		"count of tokens":    {route{api: anthropicAPI, method: countTokens}, `{"messages":[{"role":"user","content":` + quoted + `}]}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := c.route.api.estimator()(text)
			got, _ := estimated(t, c.route, c.body, len(c.body))
			want := c.texts * one
			frame := int64(40) // braces, names, roles, the frame of a call
			if c.route.api == anthropicAPI && strings.Contains(c.body, `"tools"`) {
				frame += toolUseCost / token
			}
			if got.Input < want || got.Input > want+want/50+frame {
				t.Errorf("estimated at %d, want %d × %d and a little", got.Input, c.texts, one)
			}
			if c.texts == 0 && got != (usage.Usage{Flags: usage.Estimated}) {
				t.Errorf("estimated at %v, want nothing", got)
			}
			for _, n := range []int{1, 7, 4096} {
				if again, _ := estimated(t, c.route, c.body, n); again != got {
					t.Errorf("in pieces of %d bytes it is %v, in one %v", n, again, got)
				}
			}
		})
	}
}

// escaped is a text as JSON that is ASCII only.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// The estimate of a Gemini request from its JSON agrees with that of package
// usage from its values.
func TestEstimateAgreesWithPackageUsage(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(essay, 3)
	contents := []*genai.Content{
		genai.NewContentFromText(text, genai.RoleUser),
		{Role: genai.RoleModel, Parts: []*genai.Part{{
			FunctionCall:     &genai.FunctionCall{Name: "look_up", Args: map[string]any{"field": "north", "depth": 3.0}},
			ThoughtSignature: bytes.Repeat([]byte{1}, 400),
		}}},
		{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{Name: "look_up", Response: map[string]any{"water": "low"}}}}},
	}
	want := usage.Estimator{}.GenAI(contents, nil).Input
	body := fmt.Sprintf(`{"contents":[{"parts":[{"text":%q}],"role":"user"},`+
		`{"parts":[{"functionCall":{"name":"look_up","args":{"field":"north","depth":3}},"thoughtSignature":%q}],"role":"model"},`+
		`{"parts":[{"functionResponse":{"name":"look_up","response":{"water":"low"}}}],"role":"user"}]}`,
		text, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 400)))
	got, _ := estimated(t, google, body, len(body))
	if got.Input < want*9/10 || got.Input > want*12/10 {
		t.Errorf("estimated at %d, by package usage at %d", got.Input, want)
	}
	// The user's next message drops the thoughts.
	later := strings.TrimSuffix(body, "]}") + `,{"role":"user","parts":[{"text":"go on"}]}]}`
	if next, _ := estimated(t, google, later, len(later)); next.Input > got.Input-80 {
		t.Errorf("estimated at %d after the turn and at %d within it: the thoughts were not dropped", next.Input, got.Input)
	}
}

// What an answer may have is what the request allows, or a typical answer and the
// thinking that is asked for if that is less; at OpenAI, which counts the limit,
// the limit in any case; times the answers that it asks for.
func TestOutputIsBoundedByTheRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		route route
		body  string
		want  int64
	}{
		{google, `{"generationConfig":{"maxOutputTokens":50,"candidateCount":3}}`, 150},
		{google, `{"generationConfig":{"maxOutputTokens":50000}}`, usage.DefaultTypicalOutput},
		{google, `{"maxOutputTokens":50}`, usage.DefaultTypicalOutput}, // not where it belongs
		{chat, `{"max_completion_tokens":50,"n":2}`, 100},
		{chat, `{"max_tokens":1e1}`, 10},
		{chat, `{"max_tokens":-5,"n":-5}`, usage.DefaultTypicalOutput},
		{chat, `{"metadata":{"max_tokens":5}}`, usage.DefaultTypicalOutput},
		{chat, `{"max_completion_tokens":50000}`, 50_000}, // OpenAI counts the limit
		{responses, `{"max_output_tokens":50000}`, 50_000},
		{chat, `{"max_tokens":99999999999999999999,"n":99999999999999999999}`, most},
		{chat, `{"n":3}`, 3 * usage.DefaultTypicalOutput},
		{chat, `{"prompt":["a","","c"],"max_tokens":10,"n":2}`, 60},
		{chat, `{"prompt":[[1,2],[3]],"max_tokens":10}`, 20},
		{chat, `{"prompt":[1,2,3],"max_tokens":10}`, 10},
		{chat, `{"prompt":"a","max_tokens":10}`, 10},
		{responses, `{"max_output_tokens":50}`, 50},
		{messages, `{"max_tokens":50}`, 50},
		{messages, `{"max_tokens":50000,"thinking":{"type":"enabled","budget_tokens":40000}}`, 40_000 + usage.DefaultTypicalOutput},
		{messages, `{"thinking":{"type":"enabled","budget_tokens":40000},"max_tokens":40100}`, 40_100},
		{messages, `{"max_tokens":50000,"thinking":{"type":"enabled","budget_tokens":-5}}`, usage.DefaultTypicalOutput},
		{messages, `{"max_tokens":50000,"metadata":{"budget_tokens":40000}}`, usage.DefaultTypicalOutput},
		{route{api: openaiAPI, method: embed}, `{"max_tokens":50,"input":"x"}`, 0},
	} {
		if got, _ := estimated(t, c.route, c.body, 3); got.Output != c.want {
			t.Errorf("%s: output %d, want %d", c.body, got.Output, c.want)
		}
	}
}

// Reasoning that is sent back encrypted weighs what the adapters of the SDKs take
// it for, a quarter of its bytes, wherever in its item it stands.
func TestEncryptedReasoningWeighsAQuarterOfItsBytes(t *testing.T) {
	t.Parallel()
	sealed := strings.Repeat("QUJD", 10_000)
	text := strings.Repeat(essay, 20)
	short, long := usage.OpenAI.Text(text), usage.Anthropic.Text(strings.Repeat(text, 20))
	thinking := func(block string) string {
		return `{"messages":[{"role":"assistant","content":[` + block + `]}]}`
	}
	for name, c := range map[string]struct {
		route route
		body  string
		want  int64
	}{
		"response":                      {responses, `{"input":[{"type":"reasoning","encrypted_content":"` + sealed + `"}]}`, 10_000},
		"response, with its summary":    {responses, `{"input":[{"type":"reasoning","summary":[{"text":"` + text + `"}],"encrypted_content":"` + sealed + `"}]}`, 10_000},
		"response, and a summary later": {responses, `{"input":[{"encrypted_content":"` + sealed + `","type":"reasoning"},{"type":"reasoning","summary":[{"text":"` + text + `"}]}]}`, 10_000 + short},
		"response, and a text before":   {responses, `{"input":[{"role":"user","content":"` + text + `"},{"encrypted_content":"` + sealed + `","type":"reasoning","summary":[]}]}`, 10_000 + short},
		"response, elsewhere":           {responses, `{"input":[],"metadata":{"encrypted_content":"` + sealed + `"}}`, 0},
		"signature":                     {messages, thinking(`{"type":"thinking","thinking":"","signature":"` + sealed + `"}`), 10_000},
		"signature and its summary":     {messages, thinking(`{"type":"thinking","thinking":"` + text + `","signature":"` + sealed + `"}`), 10_000},
		"signature of a longer text":    {messages, thinking(`{"type":"thinking","signature":"` + sealed[:400] + `","thinking":"` + strings.Repeat(text, 20) + `"}`), long},
		"redacted":                      {messages, thinking(`{"type":"redacted_thinking","data":"` + sealed + `"},{"type":"redacted_thinking","data":"` + sealed + `"}`), 20_000},
		"a page that was found":         {messages, thinking(`{"type":"web_search_tool_result","content":[{"type":"web_search_result","encrypted_content":"` + sealed + `"}]}`), 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{len(c.body), 1000, 13} {
				if got, _ := estimated(t, c.route, c.body, n); got.Input < c.want || got.Input > c.want+c.want/100+25 {
					t.Errorf("in pieces of %d: estimated at %d, want %d and a little", n, got.Input, c.want)
				}
			}
		})
	}
}

// Files are charged as their provider does, and never by the length of their
// base64.
func TestFilesAreChargedByTheirKind(t *testing.T) {
	t.Parallel()
	png := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), make([]byte, 300_000)...)
	binary.BigEndian.PutUint32(png[16:], 1000)
	binary.BigEndian.PutUint32(png[20:], 600)
	data := base64.StdEncoding.EncodeToString(png)
	inURL := base64.URLEncoding.EncodeToString(png)
	onePDF := base64.StdEncoding.EncodeToString(make([]byte, 100_000))
	for name, c := range map[string]struct {
		route route
		body  string
		want  int64
	}{
		"gemini, image":           {google, `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]}]}`, usage.GeminiImageTokens(google.model, 1000, 600, "")},
		"gemini, other order":     {google, `{"contents":[{"parts":[{"inline_data":{"data":"` + inURL + `","mime_type":"image/png"}}]}]}`, usage.GeminiImageTokens(google.model, 1000, 600, "")},
		"gemini, low resolution":  {google, `{"generationConfig":{"mediaResolution":"MEDIA_RESOLUTION_LOW"},"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]}]}`, usage.GeminiImageTokens(google.model, 1000, 600, genai.MediaResolutionLow)},
		"gemini, file of a video": {google, `{"contents":[{"parts":[{"fileData":{"mimeType":"video/mp4","fileUri":"gs://b/v.mp4"}}]}]}`, 60 * 290},
		"gemini, PDF":             {google, `{"contents":[{"parts":[{"inlineData":{"mimeType":"application/pdf","data":"` + onePDF + `"}}]}]}`, 5 * geminiPage},
		"gemini, text":            {google, `{"contents":[{"parts":[{"inlineData":{"mimeType":"text/csv","data":"` + onePDF + `"}}]}]}`, 25_000},
		"gemini, audio":           {google, `{"contents":[{"parts":[{"inlineData":{"mimeType":"audio/mp3","data":"` + onePDF + `"}}]}]}`, 400},
		"chat, image":             {chat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `","detail":"low"}}]}],"model":"gpt-4o"}`, usage.OpenAIImageTokens("gpt-4o", 1000, 600, "low")},
		"chat, address":           {chat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x.invalid/i.png"}}]}],"model":"gpt-4o"}`, usage.OpenAIImageTokens("gpt-4o", 1024, 1024, "")},
		"chat, audio":             {chat, `{"messages":[{"content":[{"type":"input_audio","input_audio":{"format":"wav","data":"` + onePDF + `"}}]}]}`, 32},
		"chat, file":              {chat, `{"messages":[{"content":[{"type":"file","file":{"file_id":"file-abc"}}]}]}`, 10 * openaiPage},
		"response, image":         {responses, `{"model":"gpt-4o","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,` + data + `"}]}]}`, usage.OpenAIImageTokens("gpt-4o", 1000, 600, "")},
		"response, file":          {responses, `{"input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,` + onePDF + `"}]}]}`, 5 * openaiPage},
		"message, image":          {messages, `{"model":"claude-sonnet-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}]}]}`, usage.AnthropicImageTokens("claude-sonnet-5", 1000, 600)},
		"message, document":       {messages, `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + onePDF + `"}}]}]}`, 5 * anthropicPage},
		"message, image address":  {messages, `{"model":"claude-sonnet-5","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x.invalid/a"}}]}]}`, usage.AnthropicImageTokens("claude-sonnet-5", hugeSide, hugeSide)},
		"message, address":        {messages, `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://x.invalid/a.pdf"}}]}]}`, 10 * anthropicPage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{len(c.body), 1000, 13} {
				got, _ := estimated(t, c.route, c.body, n)
				if got.Input < c.want || got.Input > c.want+c.want/50+25 {
					t.Errorf("in pieces of %d: estimated at %d, want %d and a little", n, got.Input, c.want)
				}
			}
		})
	}
}

// A body that was read in part is estimated by the part; one that cannot be read
// by its size.
func TestPartOfABodyStandsForTheWhole(t *testing.T) {
	t.Parallel()
	text := `{"messages":[{"role":"user","content":"` + strings.Repeat(essay, 400)
	whole := `{"messages":[{"role":"user","content":"` + strings.Repeat(essay, 4000)
	picture := `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBO", 1000)
	want, _ := estimated(t, chat, whole, len(whole))
	for name, c := range map[string]struct {
		read        string
		size        int64
		least, most int64
	}{
		"text":          {text, int64(len(whole)), want.Input * 9 / 10, want.Input * 11 / 10},
		"size unknown":  {text, -1, want.Input * 9 / 100, want.Input * 11 / 100},
		"in a picture":  {picture, 10_000_000, 500, 15_000},
		"no JSON":       {"<xml>", 4000, 1000, 1000},
		"nothing known": {"", -1, 0, 0},
	} {
		e := newEstimator(&chat)
		e.feed([]byte(c.read))
		if got := e.usage(0, int64(len(c.read)), c.size); got.Input < c.least || got.Input > c.most {
			t.Errorf("%s: estimated at %d, want %d to %d", name, got.Input, c.least, c.most)
		}
	}
}

// The model's name comes from the path or the body, and the number of answers
// from the body.
func TestModelIsReadFromTheBody(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"messages":[{"model":"no"}],"model":"gpt-5"}`: "gpt-5",
		`{"model":7}`: "", `{}`: "", `[{"model":"x"}]`: "",
		`{"model":"` + strings.Repeat("m", maxName) + `"}`:         strings.Repeat("m", maxName),
		`{"model":"` + strings.Repeat("m", maxName+1) + `"}`:       "", // not the name of another
		`{"model":"` + strings.Repeat("\\u00e9", maxName/2) + `"}`: strings.Repeat("é", maxName/2),
	} {
		if _, e := estimated(t, chat, body, 2); e.model != want {
			t.Errorf("%.40s: model %q, want %q", body, e.model, want)
		}
	}
	if _, e := estimated(t, google, `{"model":"x"}`, 2); e.model != google.model {
		t.Errorf("the path's model became %q", e.model)
	}
}
