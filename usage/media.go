package usage

import (
	"math"
	"strings"
	"time"

	"google.golang.org/genai"
)

// What media cost, in tokens. The figures by resolution are in rateOf; their
// sources and the reasons for the assumptions in the manual of [Estimator].
const (
	audioPerSecond = 32

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

// rate is what one image, one page of a PDF and one frame of a video cost at a
// resolution, in tokens.
type rate struct{ image, page, frame int64 }

// rateOf gives the rates of a media resolution, which is that of the part or
// else that of the request; unknown ones are the default. p may be nil.
func (m *meter) rateOf(p *genai.Part) rate {
	resolution := m.resolution
	if p != nil && p.MediaResolution != nil {
		if n := p.MediaResolution.NumTokens; n != nil && *n > 0 {
			return rate{int64(*n), int64(*n), int64(*n)}
		}
		if level := p.MediaResolution.Level; level != "" && level != genai.PartMediaResolutionLevelMediaResolutionUnspecified {
			resolution = string(level)
		}
	}
	switch genai.PartMediaResolutionLevel(resolution) {
	case genai.PartMediaResolutionLevelMediaResolutionLow:
		return rate{image: 280, page: 280, frame: 70}
	case genai.PartMediaResolutionLevelMediaResolutionMedium:
		return rate{image: 560, page: 560, frame: 258}
	case genai.PartMediaResolutionLevelMediaResolutionHigh:
		return rate{image: 1120, page: 1120, frame: 280}
	case genai.PartMediaResolutionLevelMediaResolutionUltraHigh:
		return rate{image: 2240, page: 1120, frame: 280}
	}
	return rate{image: 1120, page: 560, frame: 258}
}

// blob adds media that are sent inline. p is the part that they are in, or nil.
func (m *meter) blob(mimeType string, data []byte, p *genai.Part) {
	size := int64(len(data))
	if size == 0 {
		return
	}
	switch mediumOf(mimeType) {
	case textMedium:
		m.add(textCost(data))
	case imageMedium:
		m.addTokens(m.rateOf(p).image)
	case audioMedium:
		m.addTokens(satMul(ceilDiv(size, audioSecondBytes), audioPerSecond))
	case rawAudioMedium:
		m.addTokens(satMul(ceilDiv(size, rawSecondBytes), audioPerSecond))
	case videoMedium:
		m.video(ceilDiv(size, videoSecondBytes), p)
	default:
		m.addTokens(satMul(min(ceilDiv(size, pdfPageBytes), pdfPagesMax), m.rateOf(p).page))
	}
}

// file adds media behind a URI. p is the part that they are in, or nil.
func (m *meter) file(mimeType string, p *genai.Part) {
	switch mediumOf(mimeType) {
	case imageMedium:
		m.addTokens(m.rateOf(p).image)
	case audioMedium, rawAudioMedium:
		m.addTokens(fileAudioSeconds * audioPerSecond)
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
