package usage

import (
	"math"
	"strings"
	"time"

	"google.golang.org/genai"
)

// What media cost, in tokens, beside what is in media_image.go. The sources of
// what is not explained here, and the reasons for the assumptions, are in the
// manual of [Estimator].
const (
	audioPerSecond   = 32
	gemini3Frame     = 70
	gemini3FrameHigh = 280

	// OpenAI: a token for each 100 ms of what a user says (guide "Realtime
	// costs"); a page of a PDF is sent as its text and as an image, here of
	// 600 words and of A4 at 124 dpi, which are assumptions.
	openAIAudioPerSecond = 10
	openAIPageText       = 800
	openAIPageWidth      = 1024
	openAIPageHeight     = 1448

	// Anthropic: a page of a PDF, text and image; a public measurement over
	// many files with Claude 5.5. Anthropic's page "PDF support" says 1,500 to
	// 3,000 for the text.
	claudePage = 2350

	// Assumptions about what is sent inline, in bytes.
	pdfPageBytes      = 25_000
	audioSecondBytes  = 8_000
	rawSecondBytes    = 32_000
	videoSecondBytes  = 125_000
	pdfPagesMax       = 1_000
	videoFrameRateMax = 24

	// Assumptions about what lies behind a URI.
	filePages        = 10
	fileAudioSeconds = 300
	fileVideoSeconds = 60
	fileOtherTokens  = 10_000
)

// medium is a kind of media that is charged in its own way.
type medium uint8

const (
	otherMedium medium = iota
	textMedium
	imageMedium
	audioMedium
	rawAudioMedium
	videoMedium
	pdfMedium
)

// mediumOf tells the kind of an IANA media type, whatever its case and
// parameters.
func mediumOf(mimeType string) medium {
	mimeType, _, _ = strings.Cut(mimeType, ";")
	mimeType = strings.ToLower(strings.TrimSpace(mimeType))
	kind, sub, _ := strings.Cut(mimeType, "/")
	switch kind {
	case "text":
		return textMedium
	case "image":
		return imageMedium
	case "video":
		return videoMedium
	case "audio":
		switch sub {
		case "wav", "x-wav", "wave", "vnd.wave", "aiff", "x-aiff", "l16", "pcm", "basic":
			return rawAudioMedium
		}
		return audioMedium
	case "application":
		if sub == "pdf" || sub == "x-pdf" {
			return pdfMedium
		}
		for _, word := range [...]string{"json", "xml", "javascript", "typescript", "python", "yaml", "sql", "csv", "rtf"} {
			if strings.Contains(sub, word) {
				return textMedium
			}
		}
	}
	return otherMedium
}

// rate is what one page of a PDF and one frame of a video cost, in tokens.
type rate struct{ page, frame int64 }

// resolutionOf is the media resolution of a part, or else of the request, and
// the number of tokens that the part asks for, or 0. p may be nil.
func (m *meter) resolutionOf(p *genai.Part) (resolution genai.MediaResolution, tokens int64) {
	if p != nil && p.MediaResolution != nil {
		if n := p.MediaResolution.NumTokens; n != nil && *n > 0 {
			tokens = int64(*n)
		}
		if level := p.MediaResolution.Level; level != "" && level != genai.PartMediaResolutionLevelMediaResolutionUnspecified {
			return genai.MediaResolution(level), tokens
		}
	}
	return m.resolution, tokens
}

// rateOf gives the rates of a part; unknown resolutions are the default. p may
// be nil.
func (m *meter) rateOf(p *genai.Part) rate {
	resolution, tokens := m.resolutionOf(p)
	if tokens > 0 {
		return rate{tokens, tokens}
	}
	r := rate{page: gemini3Medium, frame: geminiTile}
	switch resolution {
	case genai.MediaResolutionLow:
		r = rate{page: gemini3Low, frame: gemini3Frame}
	case genai.MediaResolutionHigh, ultraHigh:
		r = rate{page: gemini3High, frame: gemini3FrameHigh}
	}
	switch {
	case m.family == OpenAI:
		r.page = openAIPageText + OpenAIImageTokens(m.model, openAIPageWidth, openAIPageHeight, detailOf(resolution))
	case m.family == Anthropic:
		r.page = claudePage
	case m.generation >= 3 && r.frame == geminiTile:
		r.frame = gemini3Frame
	case m.generation > 0 && m.generation < 3:
		r = rate{page: geminiTile, frame: geminiTile}
		if resolution == genai.MediaResolutionLow {
			r.frame = geminiLow
		}
	}
	return r
}

// detailOf is a media resolution as OpenAI's detail.
func detailOf(resolution genai.MediaResolution) string {
	switch resolution {
	case genai.MediaResolutionLow:
		return "low"
	case genai.MediaResolutionMedium, genai.MediaResolutionHigh:
		return "high"
	case ultraHigh:
		return "original"
	}
	return "auto"
}

// image adds an image of w × h pixels, 0 if the size is not known.
func (m *meter) image(w, h int, p *genai.Part) {
	resolution, tokens := m.resolutionOf(p)
	switch {
	case tokens > 0:
	case m.family == OpenAI:
		tokens = OpenAIImageTokens(m.model, w, h, detailOf(resolution))
	case m.family == Anthropic:
		tokens = AnthropicImageTokens(m.model, w, h)
	default:
		tokens = GeminiImageTokens(m.model, w, h, resolution)
	}
	m.addTokens(tokens)
}

// sound adds sound of a length in seconds, begun ones included.
func (m *meter) sound(seconds int64) {
	perSecond := int64(audioPerSecond)
	if m.family == OpenAI {
		perSecond = openAIAudioPerSecond
	}
	m.addTokens(satMul(seconds, perSecond))
}

// blob adds media that are sent inline. p is the part that they are in, or nil.
func (m *meter) blob(mimeType string, data []byte, p *genai.Part) {
	size := int64(len(data))
	if size == 0 {
		return
	}
	switch medium := mediumOf(mimeType); medium {
	case textMedium:
		m.bytes(data)
	case imageMedium:
		w, h, _ := ImageSize(data)
		m.image(w, h, p)
	case audioMedium, rawAudioMedium:
		if seconds, ok := AudioSeconds(data, mimeType); ok {
			m.sound(int64(math.Ceil(seconds)))
		} else if medium == rawAudioMedium {
			m.sound(ceilDiv(size, rawSecondBytes))
		} else {
			m.sound(ceilDiv(size, audioSecondBytes))
		}
	case videoMedium:
		seconds, ok := VideoSeconds(data)
		if !ok {
			seconds = float64(ceilDiv(size, videoSecondBytes))
		}
		m.video(int64(math.Ceil(seconds)), p)
	case pdfMedium:
		m.addTokens(satMul(min(PDFPages(data), pdfPagesMax), m.rateOf(p).page))
	default:
		m.addTokens(satMul(min(ceilDiv(size, pdfPageBytes), pdfPagesMax), m.rateOf(p).page))
	}
}

// file adds media behind a URI. p is the part that they are in, or nil.
func (m *meter) file(mimeType string, p *genai.Part) {
	switch mediumOf(mimeType) {
	case imageMedium:
		m.image(0, 0, p)
	case audioMedium, rawAudioMedium:
		m.sound(fileAudioSeconds)
	case videoMedium:
		m.video(fileVideoSeconds, p)
	case pdfMedium:
		m.addTokens(satMul(filePages, m.rateOf(p).page))
	default:
		m.addTokens(fileOtherTokens)
	}
}

// video adds a video of a length in seconds, unless the part says which clip of
// it is meant, and at which frame rate.
func (m *meter) video(seconds int64, p *genai.Part) {
	framesPerSecond := 1.0
	if p != nil && p.VideoMetadata != nil {
		v := p.VideoMetadata
		if start := max(v.StartOffset, 0); v.EndOffset > start {
			seconds = ceilDiv(int64(v.EndOffset-start), int64(time.Second))
		}
		if v.FPS != nil && *v.FPS > 0 && *v.FPS <= videoFrameRateMax {
			framesPerSecond = *v.FPS
		}
	}
	// Even 300 years at 24 frames a second are far below 2⁶³.
	frames := int64(math.Ceil(float64(seconds) * framesPerSecond))
	m.addTokens(satAdd(satMul(frames, m.rateOf(p).frame), satMul(seconds, audioPerSecond)))
}

// ceilDiv is a / b, rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return a/b + min(a%b, 1) }
