package openaimodel

import (
	"bytes"
	"encoding/base64"
	"math"
	"strings"

	"github.com/headgate-go/headgate/usage"
)

// Assumptions about media whose size the request does not tell.
const (
	unknownPages  = 10    // pages of a file behind an address or an identifier
	secondsTokens = 10    // of audio: OpenAI docs, a token for each 100 ms of the user's
	bytesPerAudio = 8_000 // of audio a second, where its length cannot be read: 64 kbit/s
	pageTokens    = 600   // of a page's text, beside its picture (OpenAI docs, PDF files: both are given to the model)
	pageWidth     = 768   // of that picture
	pageHeight    = 1024
)

// headBytes is how much of an image is decoded to find its size: the headers of
// a photo can hold a preview of up to 64 kB.
const headBytes = 128 << 10

// image adds an image behind an address, or in a data URL.
func (t *tally) image(url, detail string) {
	w, h := 0, 0 // not known
	if _, data, ok := dataURL(url); ok {
		if head, ok := decode(data[:min(len(data), headBytes/3*4)]); ok {
			w, h, _ = usage.ImageSize(head)
		}
	}
	t.add(usage.OpenAIImageTokens(t.model, w, h, detail))
}

// file adds a file: one that is sent along, as a data URL or as base64, or one
// behind an address or an identifier.
func (t *tally) file(data, name string) {
	if data == "" {
		t.pages(unknownPages)
		return
	}
	mime := ""
	if m, d, ok := dataURL(data); ok {
		mime, data = m, d
	}
	decoded, ok := decode(data)
	switch {
	case !ok:
		t.text(data)
	case strings.HasPrefix(mime, "image/"):
		w, h, _ := usage.ImageSize(decoded)
		t.add(usage.OpenAIImageTokens(t.model, w, h, "auto"))
	case mime == "application/pdf", bytes.HasPrefix(decoded, []byte("%PDF-")), strings.HasSuffix(strings.ToLower(name), ".pdf"):
		t.pages(usage.PDFPages(decoded))
	default:
		t.text(string(decoded))
	}
}

// pages adds pages of a document, each as a text and a picture.
func (t *tally) pages(n int64) {
	page := pageTokens + usage.OpenAIImageTokens(t.model, pageWidth, pageHeight, "auto")
	if n > math.MaxInt64/max(page, 1) {
		t.add(math.MaxInt64)
		return
	}
	t.add(n * page)
}

// audio adds audio that is sent along as base64, "wav" or "mp3".
func (t *tally) audio(data, format string) {
	seconds := float64(len(data)) * 3 / 4 / bytesPerAudio
	if decoded, ok := decode(data); ok {
		if s, ok := usage.AudioSeconds(decoded, "audio/"+format); ok {
			seconds = s
		}
	}
	t.add(int64(min(math.Ceil(max(seconds, 0)*secondsTokens), 1<<40)))
}

// dataURL takes a data URL (RFC 2397) apart; false for all else, and for one
// that is not in base64.
func dataURL(url string) (mime, data string, ok bool) {
	if len(url) < len("data:") || !strings.EqualFold(url[:len("data:")], "data:") {
		return "", "", false
	}
	head, data, ok := strings.Cut(url[len("data:"):], ",")
	mime, isBase64 := strings.CutSuffix(head, ";base64")
	mime, _, _ = strings.Cut(strings.ToLower(mime), ";")
	return mime, data, ok && isBase64
}

// decode decodes base64, padded or not; a rest that is too short for a byte is
// left out. False where it is not base64.
func decode(data string) ([]byte, bool) {
	data = strings.TrimRight(data, "=")
	if len(data)%4 == 1 {
		data = data[:len(data)-1]
	}
	decoded, err := base64.RawStdEncoding.DecodeString(data)
	return decoded, err == nil && len(decoded) > 0
}
