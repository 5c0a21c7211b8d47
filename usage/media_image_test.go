package usage_test

import (
	"math"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// The first four are the worked examples of OpenAI's guide.
func TestOpenAIImagesCostWhatTheGuideSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model  string
		w, h   int
		detail string
		want   int64
	}{
		{"gpt-4o", 1024, 1024, "high", 765},
		{"gpt-4o", 2048, 4096, "high", 1105},
		{"gpt-4o", 4096, 8192, "low", 85},
		{"gpt-4.1-mini", 1800, 2400, "high", 2353}, // 1,452 patches × 1.62

		{"gpt-4.1-mini", 1024, 1024, "high", 1659}, // 1,024 patches
		{"gpt-4o", 512, 512, "", 255},
		{"gpt-4o", 513, 512, "auto", 425},
		{"gpt-4o", 1, 1, "auto", 255},
		{"gpt-4o", 4096, 1, "auto", 85 + 4*170},
		{"openai/GPT-4o-2024-08-06", 1024, 1024, "high", 765},
		{"gpt-4o-mini", 1024, 1024, "high", 2833 + 4*5667},
		{"gpt-4o-mini", 1024, 1024, "low", 2833},
		{"gpt-4.1", 1024, 1024, "high", 765},
		{"o1", 1024, 1024, "high", 675},
		{"o3", 1024, 1024, "high", 675},
		{"gpt-5", 1024, 1024, "high", 630},
		{"gpt-5-chat-latest", 1024, 1024, "high", 630},
		{"gpt-5.1", 1024, 1024, "high", 630},
		{"gpt-5-mini", 1024, 1024, "high", 1659},
		{"gpt-5-nano", 1024, 1024, "high", 2520},
		{"o4-mini", 1024, 1024, "high", 1762},
		{"gpt-5-mini", 33, 32, "high", 4}, // 2 patches
		{"gpt-5-mini", 1024, 1024, "low", 415},
		{"gpt-5-mini", 100_000, 1, "high", 2489}, // the 1,536 that there may be
		{"computer-use-preview", 1024, 1024, "high", 65 + 4*129},

		{"gpt-5.6", 1024, 1024, "auto", 1229}, // 1,024 patches × 1.2
		{"gpt-5.6", 4096, 4096, "high", 3000},
		{"gpt-5.6", 4096, 4096, "original", 12_000},
		{"gpt-5.6", 4096, 4096, "auto", 12_000},
		{"gpt-5.6", 4096, 4096, "low", 308},
		{"", 1024, 1024, "", 1229},
		{"a-model-of-next-year", 1024, 1024, "", 1229},

		{"gpt-4o", 0, 0, "high", 765},
		{"gpt-5.6", -1, 5, "high", 1229},
		{"gpt-4o", math.MaxInt, math.MaxInt, "high", 765},
		{"gpt-5.6", math.MaxInt, math.MaxInt, "high", 3000},
		{"gpt-5.6", math.MaxInt, 1, "high", 3000},
	} {
		if got := usage.OpenAIImageTokens(c.model, c.w, c.h, c.detail); got != c.want {
			t.Errorf("%s, %d × %d, %s: %d tokens, want %d", c.model, c.w, c.h, c.detail, got, c.want)
		}
	}
}

func TestAnthropicImagesCostAPatchEach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model string
		w, h  int
		want  int64
	}{
		{"claude-opus-4-7", 28, 28, 1},
		{"claude-opus-4-7", 29, 28, 2},
		{"claude-opus-4-7", 1000, 1000, 1296},
		{"claude-opus-4-7", 1920, 1080, 2691},
		{"claude-opus-4-7", 4000, 4000, 4784},
		{"claude-opus-4-7", 8000, 400, 92 * 5},
		{"claude-opus-5", 4000, 4000, 4784},
		{"claude-opus-5@20270101", 4000, 4000, 4784},
		{"claude-5-5-sonnet", 4000, 4000, 4784},
		{"claude-opus-4-10", 4000, 4000, 4784},
		{"claude-opus-4-6", 1000, 1000, 1296},
		{"claude-opus-4-6", 1920, 1080, 1568},
		{"claude-sonnet-4-20250514", 4000, 4000, 1568},
		{"claude-3-5-haiku-20241022", 4000, 4000, 1568},
		{"us.anthropic.claude-sonnet-4-5-20250929-v1:0", 4000, 4000, 1568},
		{"claude-opus-4.6", 4000, 4000, 1568},
		{"claude", 4000, 4000, 4784},
		{"", 4000, 4000, 4784},
		{"claude-opus-latest", 4000, 4000, 4784},
		{"claude-opus-4-6", 0, 0, 1369},
		{"claude-opus-4-7", -5, 7, 1369},
		{"claude-opus-4-7", 1, 1, 1},
		{"claude-opus-4-7", math.MaxInt, math.MaxInt, 4784},
		{"claude-opus-4-7", math.MaxInt, 1, 92},
	} {
		if got := usage.AnthropicImageTokens(c.model, c.w, c.h); got != c.want {
			t.Errorf("%s, %d × %d: %d tokens, want %d", c.model, c.w, c.h, got, c.want)
		}
	}
}

func TestGeminiImagesCostTilesOrByResolution(t *testing.T) {
	t.Parallel()
	const ultra = genai.MediaResolution("MEDIA_RESOLUTION_ULTRA_HIGH")
	for _, c := range []struct {
		model      string
		w, h       int
		resolution genai.MediaResolution
		want       int64
	}{
		{"gemini-2.5-flash", 384, 384, "", 258},
		{"gemini-2.5-flash", 385, 384, "", 258},
		{"gemini-2.5-flash", 768, 768, "", 258},
		{"gemini-2.5-flash", 769, 768, "", 516},
		{"gemini-2.5-flash", 1920, 1080, "", 6 * 258},
		{"gemini-2.5-flash", 1920, 1080, genai.MediaResolutionHigh, 6 * 258},
		{"gemini-2.5-flash", 1920, 1080, genai.MediaResolutionMedium, 258},
		{"gemini-2.5-flash", 1920, 1080, genai.MediaResolutionLow, 66},
		{"gemini-2.5-flash", 0, 0, "", 1032},
		{"gemini-2.5-flash", 100, 0, "", 1032},
		{"models/gemini-1.5-pro-002", 768, 768, "", 258},
		{"gemini-2.5-flash", math.MaxInt, math.MaxInt, "", math.MaxInt64},
		{"gemini-3-pro-preview", 1920, 1080, "", 1120},
		{"gemini-3.1-pro", 1920, 1080, genai.MediaResolutionHigh, 1120},
		{"gemini-3.1-pro", 0, 0, genai.MediaResolutionMedium, 560},
		{"Gemini-3.8-Flash", 10, 10, genai.MediaResolutionLow, 280},
		{"gemini-3-pro-preview", 1920, 1080, ultra, 2240},
		{"gemini-10-ultra", 1920, 1080, "", 1120},
		{"gemini-flash-latest", 1920, 1080, "", 1120},
		{"", 100, 100, "", 1120},
		{"", 100, 100, "COSMIC", 1120},
	} {
		if got := usage.GeminiImageTokens(c.model, c.w, c.h, c.resolution); got != c.want {
			t.Errorf("%s, %d × %d, %s: %d tokens, want %d", c.model, c.w, c.h, c.resolution, got, c.want)
		}
	}
}

func TestImageTokensDoNotAllocate(t *testing.T) {
	data := encoded(t, "jpeg", 1000, 500)
	if n := testing.AllocsPerRun(100, func() {
		w, h, _ := usage.ImageSize(data)
		usage.OpenAIImageTokens("openai/gpt-5-mini", w, h, "auto")
		usage.AnthropicImageTokens("claude-opus-4-7", w, h)
		usage.GeminiImageTokens("gemini-2.5-flash", w, h, "")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzImageTokens(f *testing.F) {
	f.Add("gpt-4o", 1024, 1024, "high")
	f.Add("gpt-4.1-mini", 1800, 2400, "low")
	f.Add("claude-3-5-haiku-20241022", 1, math.MaxInt, "auto")
	f.Add("claude-@-4.7", -1, 0, "original")
	f.Add("gemini-2.5-flash", 1<<31, 3, "")
	f.Fuzz(func(t *testing.T, model string, w, h int, detail string) {
		for name, n := range map[string]int64{
			"openai":    usage.OpenAIImageTokens(model, w, h, detail),
			"anthropic": usage.AnthropicImageTokens(model, w, h),
			"gemini":    usage.GeminiImageTokens(model, w, h, genai.MediaResolution(detail)),
		} {
			if n < 1 || name != "gemini" && n > 100_000 {
				t.Fatalf("%s: %d tokens", name, n)
			}
		}
		// Which side is the longer one does not matter.
		if a, b := usage.OpenAIImageTokens(model, w, h, detail), usage.OpenAIImageTokens(model, h, w, detail); a != b {
			t.Fatalf("%d tokens, lying on its side %d", a, b)
		}
		if a, b := usage.AnthropicImageTokens(model, w, h), usage.AnthropicImageTokens(model, h, w); a != b {
			t.Fatalf("%d tokens, lying on its side %d", a, b)
		}
	})
}
