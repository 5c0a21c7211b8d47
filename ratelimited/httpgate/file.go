package httpgate

import (
	"bytes"
	"encoding/base64"
	"math"
	"strings"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// Bounds of what is kept of the files in a request.
const (
	// headBytes of a file's data are kept while it is read, as they stand in the
	// request: a photo may have a preview of 64 kB before its size.
	headBytes = 128 << 10
	// maxFiles are told apart; more are taken to be like the last of them. The
	// Gemini API takes 3,600 images, the others fewer.
	maxFiles = 4096
)

// Assumptions about files, as in package usage: about those whose data are too
// long, or not of a kind, to be looked into, and about those behind an address.
const (
	pdfPageBytes       = 25_000
	maxPages           = 1_000
	audioSecondBytes   = 8_000
	rawSecondBytes     = 32_000
	videoSecondBytes   = 125_000
	remotePages        = 10
	remoteAudioSeconds = 300
	remoteVideoSeconds = 60
)

// file is a file of a request while it is read.
type file struct {
	mime, detail string
	picture      bool   // it is an image, whatever its type
	head         []byte // the beginning of its data
	n            int64  // length of its data
}

func (f *file) begin(picture bool) { *f = file{head: f.head[:0], picture: picture} }

// data takes a piece of the file's data: base64, a data URL, an address, an
// identifier, or text.
func (f *file) data(p []byte) {
	f.n += int64(len(p))
	if room := headBytes - len(f.head); room > 0 {
		f.head = append(f.head, p[:min(room, len(p))]...)
	}
}

// describe takes what stands beside the data.
func (f *file) describe(k key, value []byte) {
	switch k {
	case keyMediaType:
		f.mime = strings.ToLower(string(value))
	case keyFormat:
		f.mime = "audio/" + strings.ToLower(string(value))
	case keyDetail:
		f.detail = string(value)
	}
}

// attachment is what was learned of a file. What it costs is told by the model,
// whose name may come last in a request.
type attachment struct {
	kind     medium
	w, h     int     // of an image; 0 if not known
	detail   string  // in which it is to be seen
	pages    int64   // of a document
	seconds  float64 // of audio or video
	textSize int64   // bytes of a text
}

// medium is a kind of file that is charged in its own way.
type medium uint8

const (
	document medium = iota
	image
	audio
	video
	plainText
)

// mediumOf tells the kind by the media type, and by the beginning where there is
// none.
func mediumOf(mime string, head []byte) medium {
	kind, sub, _ := strings.Cut(mime, "/")
	switch kind {
	case "image":
		return image
	case "audio":
		return audio
	case "video":
		return video
	case "text":
		return plainText
	case "application":
		for _, word := range [...]string{"json", "xml", "javascript", "typescript", "python", "yaml", "sql", "csv", "rtf"} {
			if strings.Contains(sub, word) {
				return plainText
			}
		}
	case "":
		if _, _, ok := usage.ImageSize(head); ok {
			return image
		}
	}
	return document
}

// attachment ends the file; false if it has no data.
func (f *file) attachment() (a attachment, ok bool) {
	if f.n == 0 {
		return a, false
	}
	data, remote := f.head, false
	mime, inBase64 := f.mime, true
	size := f.n
	switch {
	case bytes.HasPrefix(data, []byte("data:")):
		var head []byte
		var found bool
		head, data, found = bytes.Cut(data[len("data:"):], []byte{','})
		size -= int64(len("data:") + len(head) + 1)
		var params string
		mime, params, _ = strings.Cut(strings.ToLower(string(head)), ";")
		inBase64 = found && strings.HasSuffix(params, "base64")
	case f.n < 8<<10 && (bytes.Contains(data, []byte("://")) || bytes.HasPrefix(data, []byte("file-")) || bytes.HasPrefix(data, []byte("files/"))):
		remote = true
	}
	whole := int64(len(data)) >= size
	if inBase64 && !remote {
		if decoded, ok := decode(data); ok {
			data, size = decoded, size/4*3
		}
	}
	a.kind, a.detail = mediumOf(mime, data), f.detail
	if f.picture && mime == "" {
		a.kind = image
	}
	switch a.kind {
	case image:
		a.w, a.h, _ = usage.ImageSize(data)
		if remote {
			a.w, a.h = 0, 0
		}
	case audio:
		a.seconds = remoteAudioSeconds
		if !remote {
			a.seconds = audioSeconds(data, mime, size, whole)
		}
	case video:
		a.seconds = remoteVideoSeconds
		if !remote {
			a.seconds = math.Ceil(float64(size) / videoSecondBytes)
		}
	case plainText:
		if a.textSize = size; remote {
			a.textSize = 4 * 10_000
		}
	default:
		switch pages := int64(0); {
		case remote:
			a.pages = remotePages
		default:
			if whole {
				pages = usage.PDFPages(data)
			}
			if pages <= 0 {
				pages = size/pdfPageBytes + 1
			}
			a.pages = min(pages, maxPages)
		}
	}
	return a, true
}

// audioSeconds is the length of a recording: as its container says, if all of it
// is there, or by its size.
func audioSeconds(data []byte, mime string, size int64, whole bool) float64 {
	if whole {
		if s, ok := usage.AudioSeconds(data, mime); ok && s >= 0 && s < math.MaxInt32 {
			return s
		}
	}
	rate := float64(audioSecondBytes)
	for _, raw := range [...]string{"wav", "aiff", "l16", "pcm", "basic"} {
		if strings.Contains(mime, raw) {
			rate = rawSecondBytes
		}
	}
	return float64(size) / rate
}

// decode decodes base64 of either alphabet, padded or not, up to where it is
// cut off.
func decode(data []byte) ([]byte, bool) {
	data = bytes.TrimRight(data, "=")
	data = data[:len(data)-len(data)%4]
	encoding := base64.RawStdEncoding
	if bytes.ContainsAny(data, "-_") {
		encoding = base64.RawURLEncoding
	}
	decoded := make([]byte, encoding.DecodedLen(len(data)))
	n, err := encoding.Decode(decoded, data)
	return decoded[:n], err == nil && n > 0
}

// What a file costs, in tokens.
const (
	geminiAudioSecond = 32  // Gemini API docs, tokens page
	geminiFrame       = 258 // of a video, one a second; the same page
	geminiPage        = 560 // of a PDF: Gemini API docs, media resolution page
	geminiPageLow     = 280
	geminiPageHigh    = 1120
	openaiAudioSecond = 10   // OpenAI docs: a token for each 100 ms of the user's audio
	openaiPage        = 1400 // text and picture of a page, assumed
	anthropicPage     = 2350 // a measured mean; the docs' page on PDF support has 1,500 to 3,000 and the picture
	hugeSide          = 8000 // of an image of unknown size at Anthropic, where it is scaled down
	openaiSide        = 1024 // at OpenAI
)

// tokens is what the file costs.
func (a *attachment) tokens(e *estimator) int64 {
	switch a.kind {
	case image:
		return a.imageTokens(e)
	case audio:
		second := float64(geminiAudioSecond)
		if e.route.api == openaiAPI {
			second = openaiAudioSecond
		}
		return int64(min(math.Ceil(a.seconds*second), most))
	case video:
		return int64(min(a.seconds*(geminiFrame+geminiAudioSecond), most))
	case plainText:
		return a.textSize/4 + 1
	}
	page := int64(geminiPage)
	switch {
	case e.route.api == openaiAPI:
		page = openaiPage
	case e.route.api == anthropicAPI:
		page = anthropicPage
	case e.resolution == string(genai.MediaResolutionLow):
		page = geminiPageLow
	case e.resolution == string(genai.MediaResolutionHigh):
		page = geminiPageHigh
	}
	return a.pages * page
}

func (a *attachment) imageTokens(e *estimator) int64 {
	w, h := a.w, a.h
	switch e.route.api {
	case geminiAPI:
		return usage.GeminiImageTokens(e.model, w, h, genai.MediaResolution(e.resolution))
	case anthropicAPI:
		if w <= 0 || h <= 0 {
			w, h = hugeSide, hugeSide
		}
		return usage.AnthropicImageTokens(e.model, w, h)
	default:
		if w <= 0 || h <= 0 {
			w, h = openaiSide, openaiSide
		}
		return usage.OpenAIImageTokens(e.model, w, h, a.detail)
	}
}

// estimator is how the tokens of a text are estimated.
func (a api) estimator() func(string) int64 {
	switch a {
	case geminiAPI:
		return usage.EstimateText
	case anthropicAPI:
		return usage.Anthropic.Text
	default:
		return usage.OpenAI.Text
	}
}
