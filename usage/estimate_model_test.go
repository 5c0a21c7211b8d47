package usage_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// inputOf estimates the input of contents for a model, at a resolution.
func inputOf(model string, resolution genai.MediaResolution, contents ...*genai.Content) int64 {
	return usage.Estimator{Model: model}.GenAI(contents, &genai.GenerateContentConfig{MediaResolution: resolution}).Input
}

func TestMediaCostWhatTheirModelCharges(t *testing.T) {
	t.Parallel()
	const (
		old, current = "gemini-2.5-flash", "gemini-3.1-pro"
		gpt, claude  = "gpt-4o", "claude-opus-4-7"
		low, high    = genai.MediaResolutionLow, genai.MediaResolutionHigh
	)
	picture := func(format string, w, h int) *genai.Part {
		return genai.NewPartFromBytes(encoded(t, format, w, h), "image/"+format)
	}
	behind := func(mime string) *genai.Part { return genai.NewPartFromURI("gs://bucket/file", mime) }
	document := genai.NewPartFromBytes(pdf(0, "/Type /Page /Parent 1 0 R", "/Type /Page /Parent 1 0 R"), "application/pdf")
	speech := genai.NewPartFromBytes(wav(64_000, 64_000), "audio/wav")
	film := genai.NewPartFromBytes(mp4(mvhd0(600, 6000), 100_000), "video/mp4")
	for _, c := range []struct {
		name       string
		model      string
		resolution genai.MediaResolution
		part       *genai.Part
		want       int64
	}{
		{"image, two tiles", old, "", picture("png", 1000, 500), 516},
		{"image, low", old, low, picture("png", 1000, 500), 66},
		{"image behind a URI", old, "", behind("image/png"), 1032},
		{"image", current, "", picture("png", 1000, 500), 1120},
		{"image, low", current, low, picture("jpeg", 1000, 500), 280},
		{"image that cannot be read", old, "", genai.NewPartFromBytes([]byte("no image"), "image/heic"), 1032},
		{"image", gpt, "", picture("gif", 1024, 1024), 765},
		{"image, low", gpt, low, picture("gif", 1024, 1024), 85},
		{"image behind a URI", gpt, "", behind("image/png"), 765},
		{"image", claude, "", picture("png", 1000, 1000), 1296},
		{"image behind a URI", claude, "", behind("image/png"), 1369},

		{"two pages", old, "", document, 2 * 258},
		{"two pages", current, "", document, 2 * 560},
		{"two pages, high", current, high, document, 2 * 1120},
		{"two pages", claude, "", document, 2 * 2350},
		{"two pages", gpt, "", document, 2 * (800 + 85 + 6*170)},
		{"ten pages behind a URI", old, "", behind("application/pdf"), 2580},

		{"two seconds of sound", old, "", speech, 64},
		{"two seconds of sound", current, "", speech, 64},
		{"two seconds of sound", gpt, "", speech, 20},
		{"sound behind a URI", gpt, "", behind("audio/wav"), 3000},

		{"ten seconds of film", old, "", film, 10 * (258 + 32)},
		{"ten seconds of film, low", old, low, film, 10 * (66 + 32)},
		{"ten seconds of film", current, "", film, 10 * (70 + 32)},
		{"ten seconds of film, medium", current, genai.MediaResolutionMedium, film, 10 * (70 + 32)},
		{"ten seconds of film, high", current, high, film, 10 * (280 + 32)},

		// A model that is not known is charged the dearer of what there is,
		// but what a file says of itself counts.
		{"image", "", "", picture("png", 10, 10), 1120},
		{"two pages", "", "", document, 2 * 560},
		{"two seconds of sound", "", "", speech, 64},
		{"ten seconds of film", "", "", film, 10 * (258 + 32)},
	} {
		t.Run(c.model+" "+c.name, func(t *testing.T) {
			t.Parallel()
			nothing := inputOf(c.model, c.resolution, user(&genai.Part{Text: "x"}))
			got := inputOf(c.model, c.resolution, user(&genai.Part{Text: "x"}, c.part)) - nothing
			if got != c.want {
				t.Errorf("%d tokens, want %d", got, c.want)
			}
		})
	}
}

// What OpenAI's cookbook counts around a chat: 3 for the request, 4 for a message.
func TestMessagesOfOpenAIHaveTheirFrame(t *testing.T) {
	t.Parallel()
	hello := user(&genai.Part{Text: "hello"}) // a token
	for _, model := range []string{"gpt-5", "openai/o3"} {
		one, two := inputOf(model, "", hello), inputOf(model, "", hello, hello)
		if one != 3+4+1 || two != one+5 {
			t.Errorf("%s: %d tokens for one message, %d for two", model, one, two)
		}
	}
	if known, unknown := inputOf("gemini-3.1-pro", "", hello), inputOf("", "", hello); known != unknown {
		t.Errorf("gemini: %d tokens, without a name %d", known, unknown)
	}
}

// A request with everything that has a text in it.
func wordy(word string) ([]*genai.Content, *genai.GenerateContentConfig) {
	schema := &genai.Schema{Type: genai.TypeObject, Description: word, Properties: map[string]*genai.Schema{"p": {Description: word}}}
	return []*genai.Content{
			user(genai.NewPartFromText(word), genai.NewPartFromBytes([]byte(word), "text/csv")),
			model(genai.NewPartFromFunctionCall("f", map[string]any{"a": word, "b": []any{word}})),
			user(genai.NewPartFromFunctionResponse("f", map[string]any{"r": json.Number("17"), "s": word})),
			model(genai.NewPartFromExecutableCode(word, genai.LanguagePython), genai.NewPartFromCodeExecutionResult(genai.OutcomeOK, word)),
		}, &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText(word, genai.RoleUser),
			Tools:             []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f", Description: word, Parameters: schema}}}},
			ResponseSchema:    schema,
		}
}

// Of all the texts of a request, 13 are the same here.
func TestAllTextsOfARequestAreOfTheModelsFamily(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("слово и дело ", 40)
	for _, c := range []struct {
		model string
		of    usage.Family
	}{
		{"gemini-3.1-pro", usage.Gemini},
		{"gpt-5", usage.OpenAI},
		{"claude-opus-4-7", usage.Anthropic},
	} {
		e := usage.Estimator{Model: c.model}
		one, two := e.GenAI(wordy(word)).Input, e.GenAI(wordy(word+word)).Input
		want := 13 * (c.of.Text(word+word) - c.of.Text(word))
		if diff := two - one - want; diff < -26 || diff > 26 { // each is rounded where it is counted alone
			t.Errorf("%s: %d tokens more for twice the texts, want %d", c.model, two-one, want)
		}
	}
}

func TestATokenizerCountsTheTexts(t *testing.T) {
	t.Parallel()
	var read []string
	e := usage.Estimator{Model: "gpt-5", Tokenizer: usage.TokenizerFunc(func(text string) (int64, error) {
		read = append(read, text)
		if strings.HasPrefix(text, "word") {
			return 1_000_000, nil
		}
		return 0, nil
	})}
	got := e.GenAI(wordy("word")).Input
	if got < 13_000_000 || got > 13_000_200 {
		t.Errorf("%d tokens", got)
	}
	words := 0
	for _, text := range read {
		if text == "" {
			t.Error("it was asked for the empty text")
		}
		if text == "word" {
			words++
		}
	}
	if words != 13 {
		t.Errorf("it was asked for %d of 13 texts", words)
	}
}

func TestTheEstimateStandsInForATokenizerThatFails(t *testing.T) {
	t.Parallel()
	want := usage.Estimator{Model: "gpt-5"}.GenAI(wordy("word"))
	for name, count := range map[string]usage.TokenizerFunc{
		"error":    func(string) (int64, error) { return 5_000_000, errors.New("down") },
		"negative": func(string) (int64, error) { return -1, nil },
	} {
		if got := (usage.Estimator{Model: "gpt-5", Tokenizer: count}).GenAI(wordy("word")); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A value of many megabytes must not keep a slow tokenizer busy for minutes.
func TestATokenizerReadsAMegabyteOfArgumentsAtMost(t *testing.T) {
	t.Parallel()
	bytes := 0
	e := usage.Estimator{Tokenizer: usage.TokenizerFunc(func(text string) (int64, error) {
		bytes += len(text)
		return int64(len(text)), nil
	})}
	list := make([]any, 3000)
	for i := range list {
		list[i] = strings.Repeat("x", 1000)
	}
	got := e.GenAI([]*genai.Content{model(genai.NewPartFromFunctionCall("", map[string]any{"": list}))}, nil).Input
	if bytes > 1<<20 || bytes < 1<<20-1000 {
		t.Errorf("%d bytes were read", bytes)
	}
	if got < 1<<20 || got > 4_000_000 {
		t.Errorf("%d tokens", got)
	}
}

func TestEstimatingForAModelDoesNotAllocate(t *testing.T) {
	contents := []*genai.Content{user(genai.NewPartFromText("Where is the gate?"), genai.NewPartFromBytes(encoded(t, "png", 640, 480), "image/png"))}
	config := &genai.GenerateContentConfig{SystemInstruction: genai.NewContentFromText("Be brief.", genai.RoleUser)}
	for _, model := range []string{"", "gemini-2.5-flash", "openai/gpt-5-mini", "anthropic/claude-opus-4-7"} {
		if n := testing.AllocsPerRun(100, func() { usage.Estimator{Model: model}.GenAI(contents, config) }); n != 0 {
			t.Errorf("%q: %v allocations", model, n)
		}
	}
}

func TestAPreparedEstimatorEstimatesTheSame(t *testing.T) {
	t.Parallel()
	contents := []*genai.Content{{Role: "user", Parts: []*genai.Part{{Text: "Wie spät ist es?"},
		{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte("no image")}}}}}
	for _, model := range []string{"", "gemini-2.5-flash", "gemini-3-pro", "gpt-5", "claude-opus-4", "o3"} {
		e := usage.Estimator{Model: model}
		if got, want := e.Prepared().GenAI(contents, nil), e.GenAI(contents, nil); got != want {
			t.Errorf("%q: %v when prepared, else %v", model, got, want)
		}
		other := e.Prepared()
		other.Model = "gpt-4o"
		if got, want := other.GenAI(contents, nil), (usage.Estimator{Model: "gpt-4o"}).GenAI(contents, nil); got != want {
			t.Errorf("prepared for %q and then changed: %v, want %v", model, got, want)
		}
	}
}
