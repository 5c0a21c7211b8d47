package usage_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

func TestMediaCostWhatTheManualSays(t *testing.T) {
	t.Parallel()
	const (
		low    = genai.PartMediaResolutionLevelMediaResolutionLow
		medium = genai.PartMediaResolutionLevelMediaResolutionMedium
		high   = genai.PartMediaResolutionLevelMediaResolutionHigh
		ultra  = genai.PartMediaResolutionLevelMediaResolutionUltraHigh
	)
	level := func(l genai.PartMediaResolutionLevel) *genai.PartMediaResolution {
		return &genai.PartMediaResolution{Level: l}
	}
	exactly := func(n int32) *genai.PartMediaResolution {
		return &genai.PartMediaResolution{Level: low, NumTokens: &n}
	}
	clip := func(from, to time.Duration, fps float64) *genai.VideoMetadata {
		return &genai.VideoMetadata{StartOffset: from, EndOffset: to, FPS: &fps}
	}
	inline := func(mime string, size int) *genai.Part {
		return &genai.Part{InlineData: &genai.Blob{MIMEType: mime, Data: make([]byte, size)}}
	}
	behind := func(mime string) *genai.Part {
		return &genai.Part{FileData: &genai.FileData{MIMEType: mime, FileURI: "gs://bucket/file"}}
	}
	at := func(p *genai.Part, r *genai.PartMediaResolution) *genai.Part {
		p.MediaResolution = r
		return p
	}
	of := func(p *genai.Part, v *genai.VideoMetadata) *genai.Part {
		p.VideoMetadata = v
		return p
	}
	for _, c := range []struct {
		name string
		part *genai.Part
		all  genai.MediaResolution // of the request
		want int64
	}{
		{"image", inline("image/png", 100), "", 1120},
		{"image, however large", inline("image/jpeg", 5_000_000), "", 1120},
		{"image behind a URI", behind("image/png"), "", 1120},
		{"image, low", at(inline("image/png", 100), level(low)), "", 280},
		{"image, medium", at(inline("image/png", 100), level(medium)), "", 560},
		{"image, high", at(inline("image/png", 100), level(high)), "", 1120},
		{"image, ultra high", at(inline("image/png", 100), level(ultra)), "", 2240},
		{"image, low by request", inline("image/png", 100), genai.MediaResolutionLow, 280},
		{"the part overrides the request", at(inline("image/png", 100), level(high)), genai.MediaResolutionLow, 1120},
		{
			"a part without a level does not",
			at(inline("image/png", 100), level(genai.PartMediaResolutionLevelMediaResolutionUnspecified)),
			genai.MediaResolutionLow, 280,
		},
		{"unknown resolution", inline("image/png", 100), "MEDIA_RESOLUTION_COSMIC", 1120},
		{"a number of tokens", at(inline("image/png", 100), exactly(77)), "", 77},
		{"a number that is none", at(inline("image/png", 100), exactly(-77)), "", 280},
		{"no data", inline("image/png", 0), "", 0},
		{"case and parameters do not matter", inline(" Image/PNG; q=1", 100), "", 1120},

		{"PDF of a page", inline("application/pdf", 1), "", 560},
		{"PDF of two pages", inline("application/pdf", 25_001), "", 1120},
		{"PDF, low", inline("application/pdf", 25_000), genai.MediaResolutionLow, 280},
		{"PDF, high", inline("application/pdf", 25_000), genai.MediaResolutionHigh, 1120},
		{"PDF of more pages than are accepted", inline("application/pdf", 30_000_000), "", 560_000},
		{"PDF behind a URI", behind("application/pdf"), "", 5_600},

		{"audio of a second", inline("audio/mp3", 8_000), "", 32},
		{"audio of a bit more", inline("audio/ogg", 8_001), "", 64},
		{"raw audio of a second", inline("audio/wav", 32_000), "", 32},
		{"audio has one rate at all resolutions", inline("audio/mp3", 8_000), genai.MediaResolutionHigh, 32},
		{"audio behind a URI", behind("audio/flac"), "", 9_600},

		{"video of a second", inline("video/mp4", 125_000), "", 258 + 32},
		{"video of ten seconds", inline("video/mp4", 1_250_000), "", 2_900},
		{"video, low", inline("video/mp4", 125_000), genai.MediaResolutionLow, 70 + 32},
		{"video, high", inline("video/mp4", 125_000), genai.MediaResolutionHigh, 280 + 32},
		{"video behind a URI", behind("video/mp4"), "", 60 * 290},
		{"a clip", of(behind("video/mp4"), clip(5*time.Second, 15*time.Second, 1)), "", 10 * 290},
		{"a clip, to the second", of(inline("video/mp4", 1), clip(0, 1500*time.Millisecond, 1)), "", 2 * 290},
		{"frames of a clip", of(behind("video/mp4"), clip(0, 10*time.Second, 4)), "", 40*258 + 10*32},
		{"half a frame a second", of(behind("video/mp4"), clip(0, 10*time.Second, 0.5)), "", 5*258 + 10*32},
		{"a clip that ends before it begins", of(behind("video/mp4"), clip(9*time.Second, 5*time.Second, 1)), "", 60 * 290},
		{"a negative start", of(behind("video/mp4"), clip(-9*time.Second, 5*time.Second, 1)), "", 5 * 290},
		{"a frame rate of 0", of(behind("video/mp4"), clip(0, 5*time.Second, 0)), "", 5 * 290},
		{"a frame rate that is no number", of(behind("video/mp4"), clip(0, 5*time.Second, math.NaN())), "", 5 * 290},
		{"a frame rate without end", of(behind("video/mp4"), clip(0, 5*time.Second, math.Inf(1))), "", 5 * 290},

		{"unknown type", inline("application/octet-stream", 25_000), "", 560},
		{"no type", inline("", 25_000), "", 560},
		{"unknown type behind a URI", behind(""), "", 10_000},
		{"text behind a URI", behind("text/plain"), "", 10_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := usage.Estimator{}.GenAI([]*genai.Content{user(c.part)}, &genai.GenerateContentConfig{MediaResolution: c.all})
			if got.Input != c.want+1 { // and one for the content
				t.Errorf("%d tokens, want %d", got.Input-1, c.want)
			}
		})
	}
}

func TestTextTypesAreReadAsText(t *testing.T) {
	t.Parallel()
	text := readSample(t, "json_pretty")
	want := input(user(genai.NewPartFromText(text)))
	for _, mime := range []string{
		"text/plain", "text/html; charset=utf-8", "TEXT/CSV", "application/json", "application/ld+json",
		"application/xml", "application/x-javascript", "application/x-python-code", "application/yaml",
	} {
		if got := input(user(genai.NewPartFromBytes([]byte(text), mime))); got != want {
			t.Errorf("%s: %d tokens, as text %d", mime, got, want)
		}
	}
}

func TestMediaInFunctionResponsesCount(t *testing.T) {
	t.Parallel()
	respond := func(parts ...*genai.FunctionResponsePart) int64 {
		return input(user(genai.NewPartFromFunctionResponseWithParts("f", nil, parts)))
	}
	got := respond(
		&genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: make([]byte, 9)}},
		&genai.FunctionResponsePart{FileData: &genai.FunctionResponseFileData{MIMEType: "audio/mp3"}},
	) - respond()
	if got != 1120+9600 {
		t.Errorf("%d tokens, want %d", got, 1120+9600)
	}
}

func TestTheLongestClipSaturates(t *testing.T) {
	t.Parallel()
	fps, tokens := 24.0, int32(math.MaxInt32)
	part := &genai.Part{
		FileData:        &genai.FileData{MIMEType: "video/mp4"},
		VideoMetadata:   &genai.VideoMetadata{EndOffset: math.MaxInt64, FPS: &fps},
		MediaResolution: &genai.PartMediaResolution{NumTokens: &tokens},
	}
	one := input(user(part))
	if two := input(user(part, part)); one <= 0 || two < one {
		t.Errorf("one such clip has %d tokens, two have %d", one, two)
	}
}
