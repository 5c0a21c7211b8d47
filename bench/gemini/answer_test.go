package gemini

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// drawFor is the source of randomness of some call.
func drawFor(content string) engine.Draw {
	e, err := engine.New(engine.Config{})
	if err != nil {
		panic(err)
	}
	c, err := e.Admit(context.Background(), engine.Arrival{Digest: engine.DigestOf([]byte(content))})
	if err != nil {
		panic(err)
	}
	return c.Draw()
}

func TestHeadersAreReadOrRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	p, err := parsePrompt([]byte(`{"contents":[{}],"tools":[{"functionDeclarations":[{"name":"sum"},{"name":"zoom"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ header, value, want string }{
		{HeaderOutput, "0", "output 0"},
		{HeaderOutput, "800", "output 800"},
		{HeaderThoughts, "1200", "thoughts 1200"},
		{HeaderRise, "45", "rise 45"},
		{HeaderLatency, "8s", "latency 8s"},
		{HeaderLatency, "0s", "latency 0s"},
		{HeaderCalls, "3", "calls [sum zoom sum]"},
		{HeaderCalls, "0", "no calls"},
		{HeaderCalls, "zoom, zoom", "calls [zoom zoom]"},
		{HeaderFault, "hang@for=3s", "fault hang@for=3s"},

		{HeaderOutput, "-1", "must be a whole number from 0 to 1048576"},
		{HeaderOutput, "many", "must be a whole number"},
		{HeaderOutput, "1048577", "must be a whole number"},
		{HeaderThoughts, "1.5", "must be a whole number"},
		{HeaderRise, "-45", "must be a whole number"},
		{HeaderLatency, "-8s", "must be a duration"},
		{HeaderLatency, "8", "must be a duration"},
		{HeaderCalls, "-1", "must be from 0 to 128"},
		{HeaderCalls, "129", "must be from 0 to 128"},
		{HeaderCalls, "sum,product", `declares no function "product"`},
		{HeaderCalls, strings.Repeat("sum,", 128) + "sum", "must be at most 128"},
		{HeaderFault, "503@p=2", "p=2"},
	}
	for _, tt := range tests {
		h := http.Header{}
		h.Set(tt.header, tt.value)
		d, err := parseDemand(h, p)
		got := fmt.Sprint(err)
		if err == nil {
			got = describe(d)
		} else if !strings.Contains(got, tt.header) || !strings.Contains(got, fmt.Sprintf("%q", tt.value)) {
			t.Errorf("error %q does not name %s and %s", got, tt.header, tt.value)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s: got %s, want %s", tt.header, tt.value, got, tt.want)
		}
	}
	h := http.Header{}
	h.Set(HeaderCalls, "1")
	if _, err := parseDemand(h, &prompt{}); err == nil || !strings.Contains(err.Error(), "declares no functions") {
		t.Errorf("calls without functions: %v", err)
	}
	if d, err := parseDemand(http.Header{}, &prompt{}); err != nil || describe(d) != "" {
		t.Errorf("no headers: %s, %v", describe(d), err)
	}
}

func describe(d demand) string {
	var parts []string
	for name, n := range map[string]*int{"output": d.output, "thoughts": d.thoughts, "rise": d.rise} {
		if n != nil {
			parts = append(parts, fmt.Sprint(name, " ", *n))
		}
	}
	if d.latency != nil {
		parts = append(parts, fmt.Sprint("latency ", *d.latency))
	}
	if d.calls != nil {
		parts = append(parts, fmt.Sprint("calls ", d.calls))
	}
	if d.noCalls {
		parts = append(parts, "no calls")
	}
	if d.fault != nil {
		parts = append(parts, fmt.Sprint("fault ", d.fault))
	}
	return strings.Join(parts, ", ")
}

func TestMaxOutputTokensBoundsThoughtsFirst(t *testing.T) {
	t.Parallel()
	calls := []FunctionCall{{Name: "sum", Args: json.RawMessage(`{"a":1}`)}, {Name: "sum", Args: json.RawMessage(`{"a":2}`)}}
	each := callTokens(calls[0])
	tests := []struct {
		name                     string
		answer                   Answer
		max                      int
		thoughts, output, called int
		text, finish             string
	}{
		{"no bound", Answer{Output: 50, Thoughts: 30}, 0, 30, 50, 0, "", finishStop},
		{"just enough", Answer{Output: 50, Thoughts: 30}, 80, 30, 50, 0, "", finishStop},
		{"one too few", Answer{Output: 50, Thoughts: 30}, 79, 30, 49, 0, "", finishMaxTokens},
		{"thoughts only", Answer{Output: 50, Thoughts: 30}, 30, 30, 0, 0, "", finishMaxTokens},
		{"not even all thoughts", Answer{Output: 50, Thoughts: 30}, 20, 20, 0, 0, "", finishMaxTokens},
		{"text in proportion", Answer{Output: 10, Text: "0123456789"}, 5, 0, 5, 0, "01234", finishMaxTokens},
		{"text with thoughts", Answer{Output: 10, Thoughts: 2, Text: "äöüäöüäöüä"}, 7, 2, 5, 0, "äöüäö", finishMaxTokens},
		{"calls set the length", Answer{Output: 1, Calls: calls}, 0, 0, 2 * each, 2, "", finishStop},
		{"a call is whole or not there", Answer{Calls: calls}, 2*each - 1, 0, each, 1, "", finishMaxTokens},
		{"no call fits", Answer{Calls: calls}, each - 1, 0, 0, 0, "", finishMaxTokens},
		{"below zero", Answer{Output: -5, Thoughts: -5, Rise: -5}, 0, 0, 0, 0, "", finishStop},
		{"beyond memory", Answer{Output: 1 << 40}, 0, 0, maxTokens, 0, "", finishStop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := tt.answer
			a.Calls = append([]FunctionCall(nil), a.Calls...)
			finish := a.bound(tt.max)
			if a.Thoughts != tt.thoughts || a.Output != tt.output || len(a.Calls) != tt.called || a.Text != tt.text || finish != tt.finish {
				t.Errorf("got %+v and %s", a, finish)
			}
		})
	}
}

func TestArgumentsFitTheirSchema(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, want string }{
		{"no schema", ``, `{}`},
		{"no object", `{"type":"string"}`, `{}`},
		{"every type, required ones only", `{"type":"object","required":["s","b","e","l","o","n"],"properties":{
			"s":{"type":"string"},"b":{"type":"BOOLEAN"},"e":{"type":"string","enum":["red","blue"]},
			"l":{"type":"array","items":{"type":"string"}},"o":{"type":"OBJECT","properties":{"x":{"type":"string"}}},
			"n":{"type":"null"},"left":{"type":"string"}}}`,
			`{"b":true,"e":"red","l":["sample"],"n":null,"o":{"x":"sample"},"s":"sample"}`},
		{"all where none is required", `{"properties":{"x":{"type":"string"},"y":{"type":"array"}}}`, `{"x":"sample","y":[]}`},
		{"required but not described", `{"required":["x", 3],"properties":{}}`, `{}`},
		{"deeper than deep", strings.Repeat(`{"properties":{"x":`, 50) + `{}` + strings.Repeat(`}}`, 50),
			strings.Repeat(`{"x":`, maxDepth) + `{}` + strings.Repeat(`}`, maxDepth)},
	}
	for _, tt := range tests {
		if got := string(sampleArgs(json.RawMessage(tt.schema), drawFor("x"), 0)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	numbers := json.RawMessage(`{"properties":{"i":{"type":"integer"},"f":{"type":"number"}}}`)
	var args struct {
		I int
		F float64
	}
	first := sampleArgs(numbers, drawFor("x"), 0)
	if err := json.Unmarshal(first, &args); err != nil || args.F == float64(int(args.F)) {
		t.Errorf("numbers %s: %v, want an integer and a fraction", first, err)
	}
	if string(sampleArgs(numbers, drawFor("x"), 1)) == string(first) {
		t.Error("two calls of one answer have the same numbers")
	}
}

func TestFillerIsAsLongAsItsTokensAndGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	f := newFiller(drawFor("x"), "text")
	whole := f.text(0, 1000)
	if len(whole) != 1000*RunesPerToken || textLength(whole) != 1000 {
		t.Errorf("1000 tokens have %d characters", len(whole))
	}
	if parts := f.text(0, 7) + f.text(7, 500) + f.text(500, 500) + f.text(500, 1000); parts != whole {
		t.Error("the parts do not make the whole")
	}
	if first := whole[:1]; strings.ContainsAny(first, " ") || !strings.Contains(passage, " "+strings.Fields(whole)[0]+" ") &&
		!strings.HasPrefix(passage, strings.Fields(whole)[0]) {
		t.Errorf("the text begins within a word: %.20q", whole)
	}
	if strings.Contains(whole, "  ") {
		t.Error("the passage does not join its end to its beginning")
	}
}

func TestDurationsAreWrittenAsProtobufDoes(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		26 * time.Second:          "26s",
		0:                         "0s",
		45837906927:               "45.837906927s",
		500 * time.Millisecond:    "0.500s",
		1000001 * time.Nanosecond: "0.001000001s",
		12345 * time.Microsecond:  "0.012345s",
		100 * time.Hour:           "360000s",
	} {
		if got := protoDuration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestRetryAfterIsRoundedUpToWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "", 1: "1", time.Second: "1", time.Second + 1: "2", 59*time.Second + 999*time.Millisecond: "60", time.Hour: "3600",
	} {
		w := httptest.NewRecorder()
		refusal{form: FormHeader, retry: d}.write(w, false)
		if got := w.Header().Get("Retry-After"); got != want || w.Code != 429 {
			t.Errorf("%v: Retry-After %q and %d, want %q and 429", d, got, w.Code, want)
		}
	}
}

func TestEveryStatusOfAFaultHasItsName(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
		429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
		504: "DEADLINE_EXCEEDED", 418: "UNKNOWN",
	} {
		if e := failure(code); e.Status != want || e.Code != code || e.Message == "" {
			t.Errorf("%d: %+v, want status %s", code, e, want)
		}
	}
}
