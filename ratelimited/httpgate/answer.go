package httpgate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// report is what an answer has told since it was last asked.
type report struct {
	usage    usage.Usage          // the running total; zero if none was reported
	output   int64                // an estimate of what was generated since then, in tokens
	progress ratelimited.Progress // Done once the answer is complete
	failure  []byte               // the beginning of an error within the answer; nil if there is none
}

// answer reads the answer to a call from a copy of its body, in pieces that may
// be cut anywhere. It keeps numbers and the beginning of the document that it
// reads (an event, or the whole of an answer in one piece), and nothing that
// grows with the answer.
type answer struct {
	scan   scanner
	split  splitter
	unzip  *gunzip // nil if the body is not compressed
	reader reader
	out    textMeter // of the text that a document generates
	events bool      // the body is a stream of events
	opaque bool      // it is compressed in a way that is not read
	listed bool      // it is an array of documents
	word   text      // the string that is read

	piece    []byte // that is read
	raw      []byte // the beginning of the document, or of the error in it
	failing  bool   // an error was found in the document
	started  bool   // the document has begun
	complete bool   // the answer is
	read     bool   // a document was
	news     report
}

// reader is a format of answers. It is told of the values of each document, and
// then asked what the document means.
type reader interface {
	// str and num tell of a string and of a number; the answer's scanner has the
	// path. A string is cut off behind some bytes.
	str(a *answer, value []byte)
	num(a *answer, n int64)
	// enter tells of the beginning of an object.
	enter(a *answer)
	// generates reports whether the string at the scanner's path is a part of what
	// was generated.
	generates(a *answer) bool
	// document tells what the document means that ends here.
	document(a *answer) (u usage.Usage, done, failed bool)
	// drop forgets a document that was cut off: it means nothing, and must not mix
	// with the next.
	drop()
}

// Bounds of what is kept of an error within an answer, in bytes: of its document,
// which may have all of the request's instructions before the error, and of the
// error itself.
const (
	keepRaw   = 8 << 10
	keepError = 64 << 10
)

// newAnswer reads the body of a response of success.
func newAnswer(r *route, resp *http.Response, wanted int64) *answer {
	a := &answer{reader: r.reader(wanted), out: textMeter{estimate: r.api.estimator()}}
	a.scan.sink = a
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if a.events = kind == "text/event-stream"; a.events {
		a.split.data, a.split.event = a.eventData, a.eventEnd
	}
	switch codingOf(resp.Header) {
	case plainCoding:
	case gzipCoding:
		a.unzip = newGunzip(a.feedPlain)
	default:
		a.opaque = true
	}
	return a
}

// feed reads the next piece of the body.
func (a *answer) feed(p []byte) {
	switch {
	case a.opaque || len(p) == 0:
	case a.unzip != nil:
		a.unzip.feed(p)
	default:
		a.feedPlain(p)
	}
}

func (a *answer) feedPlain(p []byte) {
	if a.events {
		a.split.feed(p)
		return
	}
	if a.piece = p; a.started {
		a.keep(p)
	}
	a.scan.feed(p)
	a.piece = nil
}

// end tells that the body has ended; whole, that it did so as it should. Then an
// answer that could not be read is complete, and so is one in a single piece: what
// is not known of it is estimated. A stream of events that was read is complete
// only if it said so.
func (a *answer) end(whole bool) {
	if a.unzip != nil {
		a.unzip.end()
	}
	if a.events {
		a.split.end()
	} else {
		a.scan.end()
	}
	if whole && !a.complete && (!a.events && !a.listed || !a.read) {
		a.finish()
	}
}

// close ends what reads along.
func (a *answer) close() {
	if a.unzip != nil {
		a.unzip.end()
	}
}

// take returns what is new; false if nothing is.
func (a *answer) take() (report, bool) {
	n := a.news
	if n.usage == (usage.Usage{}) && n.output == 0 && n.progress == ratelimited.More && n.failure == nil {
		return n, false
	}
	a.news = report{}
	return n, true
}

func (a *answer) finish() {
	if !a.complete {
		a.complete = true
		a.news.progress = ratelimited.Done
	}
}

// eventData reads a piece of an event's data.
func (a *answer) eventData(p []byte) {
	if !a.started {
		a.started = true
		a.scan.reset()
		a.word = text{}
	}
	a.keep(p)
	a.piece = p
	a.scan.feed(p)
	a.piece = nil
}

// eventEnd ends an event.
func (a *answer) eventEnd() {
	a.scan.end()
	if string(a.raw) == "[DONE]" {
		a.read = true
		a.finish() // whatever was said before, nothing follows
	} else if !a.scan.ended {
		a.reader.drop()
	}
	a.started = false
	a.begin()
}

// begin makes ready for a document.
func (a *answer) begin() {
	a.raw, a.failing = a.raw[:0], false
	a.out.reset()
}

func (a *answer) keep(p []byte) {
	most := keepRaw
	if a.failing {
		most = keepError
	}
	if n := most - len(a.raw); n > 0 {
		a.raw = append(a.raw, p[:min(n, len(p))]...)
	}
}

// failure is what is known of the error that the document is: the error in it
// alone, which may have lain beyond what is kept of a document, or the document.
func (a *answer) failure() []byte {
	var inner json.RawMessage
	if !a.failing || json.NewDecoder(bytes.NewReader(a.raw)).Decode(&inner) != nil {
		return append([]byte{}, a.raw...)
	}
	return fmt.Appendf(nil, `{"error":%s}`, inner)
}

// open implements [sink].
func (a *answer) open(s *scanner, list bool) {
	if s.depth == 0 && list && !a.events {
		s.base, a.listed = 1, true
		return
	}
	if s.depth == s.base && !a.events {
		a.started = true
		a.keep(a.piece[len(a.piece)-s.left:])
	}
	if list {
		return
	}
	if s.last() == keyError && (s.at(keyError) || s.at(keyResponse, keyError)) {
		a.raw, a.failing = a.raw[:0], true
		a.keep(a.piece[len(a.piece)-s.left:])
	}
	a.reader.enter(a)
}

// shut implements [sink].
func (a *answer) shut(s *scanner) {
	if s.depth == s.base && !(a.listed && s.depth == 0) {
		a.document()
	}
}

func (a *answer) document() {
	u, done, failed := a.reader.document(a)
	a.read = true
	if failed {
		a.news.failure = a.failure()
	}
	if !u.IsZero() { // it tells of all that was generated until here
		a.news.usage, a.news.output = a.news.usage.Max(u), 0
	} else {
		a.news.output = plus(a.news.output, a.out.tokens())
	}
	if done || !a.events && !a.listed {
		a.finish()
	}
	if !a.events {
		a.started = false
		a.begin()
	}
}

// member implements [sink].
func (a *answer) member(*scanner, []byte) {}

// text implements [sink].
func (a *answer) text(s *scanner, piece []byte) {
	if a.word.n == 0 {
		a.word.generated = a.reader.generates(a)
	}
	a.word.add(piece)
	if a.word.generated {
		a.out.add(piece)
	}
}

// textEnd implements [sink].
func (a *answer) textEnd(*scanner) {
	if a.word.generated {
		a.out.endText()
	} else if a.word.n > 0 {
		a.reader.str(a, a.word.value())
	}
	a.word.n = 0
	a.word.generated = false
}

// literal implements [sink].
func (a *answer) literal(_ *scanner, word []byte) {
	if n, ok := number(word); ok {
		a.reader.num(a, n)
	}
}

// text is the beginning of a string.
type text struct {
	buf       [longest]byte
	n         int // length of the whole string
	generated bool
}

func (t *text) add(p []byte) {
	if t.n < len(t.buf) {
		copy(t.buf[t.n:], p)
	}
	t.n += len(p)
}

func (t *text) value() []byte { return t.buf[:min(t.n, len(t.buf))] }
