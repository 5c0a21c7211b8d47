package usage

import (
	"math"
	"strings"

	"google.golang.org/genai"
)

// unknownSide is the width and height that an image is taken to have where its
// size is not known, for OpenAI and Anthropic.
const unknownSide = 1024

// sides are the width and height to count with.
func sides(w, h int) (float64, float64) {
	if w <= 0 || h <= 0 {
		return unknownSide, unknownSide
	}
	return float64(w), float64(h)
}

// What Gemini charges for media, in tokens: Gemini API docs, pages "tokens"
// (258 for a tile of 768 × 768, and for a page of a PDF), "video understanding"
// (258 a frame, 66 at low resolution) and "media resolution" (Gemini 3).
const (
	geminiTile     = 258
	geminiTileSide = 768
	geminiOneTile  = 384 // an image with no side longer than this is one tile
	geminiLow      = 66
	geminiTiles    = 4 // of an image of unknown size

	gemini3Low       = 280
	gemini3Medium    = 560
	gemini3High      = 1120
	gemini3UltraHigh = 2240
)

// GeminiImageTokens is what an image of w × h pixels costs at a media resolution
// with a model of Gemini, in tokens. A size of 0 or less is unknown.
//
// Up to Gemini 2.5: 258 for each tile of 768 × 768 pixels, one tile if no side is
// longer than 384, four if the size is unknown; 258 at medium and 66 at low
// resolution, whatever the size. From Gemini 3 on, and for a name that does not
// tell the generation: 1,120 by default and at high resolution, 560 at medium,
// 280 at low, and 2,240 at "MEDIA_RESOLUTION_ULTRA_HIGH", whatever the size. A
// resolution of any other name is the default. By the Gemini API docs, pages
// "tokens" and "media resolution".
func GeminiImageTokens(model string, w, h int, resolution genai.MediaResolution) int64 {
	if generation := geminiGeneration(model); generation == 0 || generation >= 3 {
		switch resolution {
		case genai.MediaResolutionLow:
			return gemini3Low
		case genai.MediaResolutionMedium:
			return gemini3Medium
		case ultraHigh:
			return gemini3UltraHigh
		}
		return gemini3High
	}
	switch {
	case resolution == genai.MediaResolutionLow:
		return geminiLow
	case resolution == genai.MediaResolutionMedium:
		return geminiTile
	case w <= 0 || h <= 0:
		return geminiTiles * geminiTile
	case w <= geminiOneTile && h <= geminiOneTile:
		return geminiTile
	}
	return satMul(geminiTile, satMul(ceilDiv(int64(w), geminiTileSide), ceilDiv(int64(h), geminiTileSide)))
}

// ultraHigh is the resolution that only parts can have.
const ultraHigh = genai.MediaResolution(genai.PartMediaResolutionLevelMediaResolutionUltraHigh)

// geminiGeneration is the number in a name such as "gemini-2.5-flash", here 2,
// or 0.
func geminiGeneration(model string) int {
	const mark = "gemini-"
	for i := 0; i+len(mark) < len(model); i++ {
		if strings.EqualFold(model[i:i+len(mark)], mark) {
			n, _ := leadingNumber(model[i+len(mark):])
			return n
		}
	}
	return 0
}

// leadingNumber reads the number below 100 that s begins with, and what comes
// after it; without one, or with a longer one such as a date, it is 0.
func leadingNumber(s string) (n int, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		if i < 2 {
			n = 10*n + int(s[i]-'0')
		}
		i++
	}
	if i > 2 {
		n = 0
	}
	return n, s[i:]
}

// openAIImages says how a model of OpenAI counts images.
type openAIImages struct {
	name       string // of the model, or how it begins
	base, tile int64  // of tile models
	multiplier int64  // of patch models, in thousandths; 0 for tile models
}

// openAIModels are the rules of OpenAI's guide "Images and vision", section
// "Calculating costs". The first name that fits counts.
var openAIModels = [...]openAIImages{
	{name: "gpt-4o-mini", base: 2833, tile: 5667},
	{name: "gpt-4.1-mini", multiplier: 1620},
	{name: "gpt-4.1-nano", multiplier: 2460},
	{name: "gpt-5-mini", multiplier: 1620},
	{name: "gpt-5-nano", multiplier: 2460},
	{name: "gpt-5.4-mini", multiplier: 1620},
	{name: "gpt-5.4-nano", multiplier: 2460},
	{name: "o4-mini", multiplier: 1720},
	{name: "gpt-4", base: 85, tile: 170}, // 4o, 4.1, 4.5, 4-turbo
	{name: "chatgpt-4o", base: 85, tile: 170},
	{name: "gpt-5.1", base: 70, tile: 140},
	{name: "gpt-5.2", base: 70, tile: 140},
	{name: "gpt-5.3", base: 70, tile: 140},
	{name: "gpt-5-", base: 70, tile: 140},
	{name: "o1", base: 75, tile: 150},
	{name: "o3", base: 75, tile: 150},
	{name: "computer-use-preview", base: 65, tile: 129},
}

// Patches that an image may have: those of the small patch models, and at newer
// models those by detail. Newer models count each patch 1.2 times.
const (
	patchSide        = 32
	smallPatches     = 1536
	lowPatches       = 256
	highPatches      = 2500
	originalPatches  = 10_000
	newestMultiplier = 1200
)

// OpenAIImageTokens is what an image of w × h pixels costs with a model of
// OpenAI, in tokens. Detail is "low", "high", "original" or "auto"; "" and
// anything else is "auto". A size of 0 or less is taken for 1,024 × 1,024.
//
// By OpenAI's guide "Images and vision": tile models (GPT-4o, 4.1, 5 to 5.3, o1,
// o3) fit the image into 2,048 × 2,048, then its short side to 768, and charge a
// base and each tile of 512 × 512, or at low detail the base alone; the small
// patch models charge each patch of 32 × 32, of which there may be 1,536, by a
// multiplier. Newer models, and names that are not known, are taken to be patch
// models with a multiplier of 1.2 that keep 2,500 patches at high detail,
// 10,000 at original detail, which is also that of auto, and 256 at low detail.
func OpenAIImageTokens(model string, w, h int, detail string) int64 {
	name := model[strings.LastIndexAny(model, "/:")+1:]
	width, height := sides(w, h)
	for i := range openAIModels {
		m := &openAIModels[i]
		if !hasPrefixFold(name, m.name) && !(m.name == "gpt-5-" && strings.EqualFold(name, "gpt-5")) {
			continue
		}
		if m.multiplier == 0 {
			if detail == "low" {
				return m.base
			}
			return m.base + m.tile*tilesOf(width, height)
		}
		limit := smallPatches
		if detail == "low" {
			limit = lowPatches
		}
		return ceilDiv(patchesOf(width, height, float64(limit))*m.multiplier, token)
	}
	limit := originalPatches
	switch detail {
	case "low":
		limit = lowPatches
	case "high":
		limit = highPatches
	}
	return ceilDiv(patchesOf(width, height, float64(limit))*newestMultiplier, token)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// tilesOf is the number of tiles of 512 × 512.
func tilesOf(w, h float64) int64 {
	if scale := 2048 / max(w, h); scale < 1 {
		w, h = w*scale, h*scale
	}
	if scale := 768 / min(w, h); scale < 1 {
		w, h = w*scale, h*scale
	}
	// Rounding must not make another tile of 512.0000001.
	up := func(side float64) int64 { return max(1, int64(math.Ceil(math.Round(side)/512))) }
	return up(w) * up(h)
}

// patchesOf is the number of patches of 32 × 32. An image of more than the limit
// is scaled down until it has fewer, to whole patches on the side that is nearer
// to them.
func patchesOf(w, h, limit float64) int64 {
	pw, ph := w/patchSide, h/patchSide
	if math.Ceil(pw)*math.Ceil(ph) > limit {
		scale := math.Sqrt(limit / (pw * ph))
		pw, ph = pw*scale, ph*scale
		scale = min(math.Floor(pw)/pw, math.Floor(ph)/ph)
		if scale > 0 { // a side of less than a patch stays as it is
			pw, ph = pw*scale, ph*scale
		}
	}
	const rounding = 1e-9
	patches := max(1, math.Ceil(pw-rounding)) * max(1, math.Ceil(ph-rounding))
	return int64(min(patches, limit))
}

// What Claude charges for images: platform.claude.com, page "Vision".
const (
	claudePatch     = 28
	claudeOldTokens = 1568 // before 4.7
	claudeOldSide   = 1568
	claudeNewTokens = 4784 // from 4.7 on
	claudeNewSide   = 2576
)

// AnthropicImageTokens is what an image of w × h pixels costs with a model of
// Anthropic, in tokens: one for each patch of 28 × 28, after the image was scaled
// to a long side of at most 2,576 pixels and at most 4,784 tokens; before Claude
// 4.7 to 1,568 pixels and 1,568 tokens. A name that does not tell its version
// counts as a new one. A size of 0 or less is taken for 1,024 × 1,024. By
// Anthropic's docs, page "Vision".
func AnthropicImageTokens(model string, w, h int) int64 {
	width, height := sides(w, h)
	side, most := float64(claudeNewSide), int64(claudeNewTokens)
	if major, minor := claudeVersion(model); major > 0 && (major < 4 || major == 4 && minor < 7) {
		side, most = claudeOldSide, claudeOldTokens
	}
	if scale := side / max(width, height); scale < 1 {
		width, height = width*scale, height*scale
	}
	const rounding = 1e-9
	up := func(side float64) float64 { return max(1, math.Ceil(side/claudePatch-rounding)) }
	return int64(min(up(width)*up(height), float64(most)))
}

// claudeVersion reads the version from a name such as "claude-3-5-haiku-20241022",
// "claude-opus-4-7" or "anthropic.claude-opus-5-v1:0"; 0, 0 if it has none.
func claudeVersion(model string) (major, minor int) {
	const mark = "claude"
	i := 0
	for i+len(mark) <= len(model) && !strings.EqualFold(model[i:i+len(mark)], mark) {
		i++
	}
	if i+len(mark) > len(model) {
		return 0, 0
	}
	for rest := model[i+len(mark):]; rest != ""; {
		if rest[0] != '-' && rest[0] != '.' || len(rest) < 2 || rest[1] < '0' || rest[1] > '9' {
			if rest[0] == '@' || rest[0] == ':' {
				return 0, 0
			}
			rest = rest[1:]
			continue
		}
		major, rest = leadingNumber(rest[1:])
		if major > 0 && len(rest) > 1 && (rest[0] == '-' || rest[0] == '.') {
			minor, _ = leadingNumber(rest[1:])
		}
		return major, minor
	}
	return 0, 0
}
