package httpgate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// transcript is a sink that writes down what it is told, strings in one piece.
type transcript struct {
	lines  []string
	pieces []byte
}

func (r *transcript) open(_ *scanner, list bool)      { r.note("open", list) }
func (r *transcript) shut(*scanner)                   { r.note("shut") }
func (r *transcript) member(_ *scanner, name []byte)  { r.note("member", string(name)) }
func (r *transcript) text(_ *scanner, piece []byte)   { r.pieces = append(r.pieces, piece...) }
func (r *transcript) literal(_ *scanner, word []byte) { r.note("literal", string(word)) }
func (r *transcript) note(what ...any)                { r.lines = append(r.lines, fmt.Sprintf("%q", what)) }
func (r *transcript) textEnd(*scanner)                { r.note("text", string(r.pieces)); r.pieces = nil }
func (r *transcript) scan(data []byte, rnd *rand.Rand) *scanner {
	s := &scanner{sink: r}
	inPieces(data, rnd, s.feed)
	s.end()
	return s
}

// inPieces gives data in pieces of random lengths; in one without rnd.
func inPieces(data []byte, rnd *rand.Rand, feed func([]byte)) {
	for len(data) > 0 {
		n := len(data)
		if rnd != nil {
			n = 1 + rnd.IntN(min(n, 9))
		}
		feed(bytes.Clone(data[:n]))
		data = data[n:]
	}
}

// told is what encoding/json finds in a text, as a transcript.
func told(t *testing.T, data []byte) (lines []string, ok bool) {
	t.Helper()
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, false // encoding/json replaces what is no UTF-8
	}
	var r transcript
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	type frame struct {
		list  bool
		names int
	}
	var stack []frame
	for {
		token, err := d.Token()
		if err == io.EOF {
			return r.lines, true
		}
		if err != nil {
			t.Fatalf("a valid text: %v", err)
		}
		isName := len(stack) > 0 && !stack[len(stack)-1].list && stack[len(stack)-1].names%2 == 0
		if delim, is := token.(json.Delim); is && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			r.note("shut")
			continue
		}
		if len(stack) > 0 {
			stack[len(stack)-1].names++
		}
		switch v := token.(type) {
		case json.Delim:
			if len(stack) >= maxDepth {
				return nil, false
			}
			r.note("open", v == '[')
			stack = append(stack, frame{list: v == '['})
		case string:
			if isName {
				r.note("member", v[:min(len(v), longest)])
			} else {
				r.note("text", v)
			}
		case json.Number:
			r.note("literal", v.String()[:min(len(v), longest)])
		default:
			r.note("literal", strings.TrimSuffix(fmt.Sprint(v), "l>")) // nil is <nil>
		}
	}
}

// A text is understood as encoding/json understands it, however it is cut.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e3,true,null,"x\"\\\u00e9\ud83d\ude00\ud83d"],"b":{}}`, `[]`, ` "x" `, `12`, `{"a"`, `{"a":1}}`, `[1,]`, `{,}`,
		strings.Repeat("[", 300), `{"\u0061bc":0}`, `"\ud800\u0041"`, `{"` + strings.Repeat("k", 100) + `":` + strings.Repeat("1", 100) + `}`,
		"<html>", "", `{"a" 1}`, `nul`, `[1 2]`, `"\x"`, `"\uZZZZ"`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		var whole, cut transcript
		s := whole.scan(data, nil)
		c := cut.scan(data, rand.New(rand.NewPCG(seed, 1)))
		if !reflect.DeepEqual(whole.lines, cut.lines) || s.broken != c.broken || s.ended != c.ended {
			t.Fatalf("in one piece: %v\ncut: %v", whole.lines, cut.lines)
		}
		want, ok := told(t, data)
		if !ok {
			return
		}
		for i, line := range want { // null is <nil> there
			want[i] = strings.ReplaceAll(line, `"<ni"`, `"null"`)
		}
		if s.broken || !s.ended {
			t.Fatalf("a valid text: broken %v, ended %v", s.broken, s.ended)
		}
		if !reflect.DeepEqual(whole.lines, want) {
			t.Fatalf("got %v\nwant %v", whole.lines, want)
		}
	})
}

// The events of a stream are found as the HTML standard says, however it is cut.
func FuzzSplitter(f *testing.F) {
	for _, s := range []string{
		"data: {}\n\n", "event: x\r\ndata:a\r\ndata: b\r\n\r\n: comment\r\rdata\n\n", "data", "data: x", "\n\n\n", "dataset: x\n\n",
		"data:\r\ndata:  two\n\nid: 1\n\n", "retry: 1\rdata: a\r\r\ndata: b\n\n", "data: [DONE]\n\n", "\ufeffdata: x\n\n",
		"\ufeff\ufeffdata: x\n\n", "\xef\xbbdata: x\n\n", "\xef\xbb", "\n\ufeffdata: x\n\n", "\ufeff: x\ndata: y\n\n",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		split := func(rnd *rand.Rand) (events []string) {
			var event []byte
			s := splitter{
				data:  func(p []byte) { event = append(event, p...) },
				event: func() { events = append(events, string(event)); event = nil },
			}
			inPieces(data, rnd, s.feed)
			s.end()
			return events
		}
		whole, cut := split(nil), split(rand.New(rand.NewPCG(seed, 1)))
		if want := eventsIn(string(data)); !reflect.DeepEqual(whole, want) || !reflect.DeepEqual(cut, want) {
			t.Fatalf("got %q, cut %q; want %q", whole, cut, want)
		}
	})
}

// eventsIn are the data of the events in a stream, found line by line.
func eventsIn(stream string) (events []string) {
	stream = strings.TrimPrefix(stream, "\ufeff") // one mark may stand before a stream
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var lines []string
	end := func() {
		if lines != nil {
			events = append(events, strings.Join(lines, "\n"))
		}
		lines = nil
	}
	for line := range strings.SplitSeq(stream, "\n") {
		if line == "" {
			end()
			continue
		}
		if name, value, _ := strings.Cut(line, ":"); name == "data" {
			lines = append(lines, strings.TrimPrefix(value, " "))
		}
	}
	end()
	return events
}

// The body of an answer passes byte for byte whatever it is and however it comes,
// nothing panics, and what it tells of the call does not depend on where it is
// cut and is never less than nothing.
func FuzzAnswer(f *testing.F) {
	const part, last = `{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3}}`
	for _, s := range []string{
		"[" + part + ",\r\n" + last + "]", part, last, "data: " + part + "\n\ndata: " + last + "\n\n",
		`data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
		`data: {"type":"message_delta","delta":{"stop_reason":"x"},"usage":{"output_tokens":-9223372036854775808}}` + "\n\n",
		`data: {"error":{"code":"x"}}` + "\n\n", `[{"error":{"code":429}}]`, "[]", "[[{}]]", "",
		`data: {"type":"response.completed","response":{"usage":{"input_tokens":1e300}}}` + "\n\n",
	} {
		for api := range uint8(3) {
			f.Add([]byte(s), uint64(1), api, api == 0)
			f.Add([]byte(s), uint64(1), api, api != 0)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, which uint8, events bool) {
		r := route{api: api(which % 3)}
		resp := &http.Response{Header: http.Header{}}
		if events {
			resp.Header.Set("Content-Type", "text/event-stream")
		}
		var seen [2]string
		for i, rnd := range []*rand.Rand{nil, rand.New(rand.NewPCG(seed, 1))} {
			resp.Body = io.NopCloser(&chopped{data: data, rnd: rnd})
			x := &exchange{t: &Transport{}, route: r, done: make(chan struct{})}
			close(x.done)
			var total usage.Usage
			var estimated int64
			failed, done := false, false
			b := newBody(x, resp, func(e *event, err error) bool {
				if err != nil {
					failed = true
					return true
				}
				if e.usage.Clamp().Flags&^usage.Mismatch != e.usage.Flags&^usage.Mismatch || e.usage.Total() < 0 {
					t.Fatalf("reported %v", e.usage)
				}
				if e.usage.Has(usage.Estimated) {
					estimated += e.usage.Output
				} else {
					total = total.Max(e.usage)
				}
				done = done || e.progress == ratelimited.Done
				return true
			})
			got, err := io.ReadAll(b)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("read %d bytes (%v), want the %d that came", len(got), err, len(data))
			}
			_ = b.Close()
			seen[i] = fmt.Sprint(total, done, failed)
		}
		if seen[0] != seen[1] {
			t.Fatalf("in one piece: %s; cut: %s", seen[0], seen[1])
		}
	})
}

// chopped is a reader that gives random pieces.
type chopped struct {
	data []byte
	rnd  *rand.Rand
}

func (c *chopped) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	if c.rnd != nil {
		p = p[:1+c.rnd.IntN(len(p))%9]
	}
	n := copy(p, c.data)
	c.data = c.data[n:]
	return n, nil
}

// The estimate of a request never panics, is never negative, never overflows, and
// hardly depends on where the body is cut.
func FuzzEstimate(f *testing.F) {
	for _, s := range []string{
		`{"contents":[{"parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}]}]}`,
		`{"messages":[{"content":[{"image_url":{"url":"data:;base64,"}},{"file":{"file_id":"file-1"}}]}],"n":99999999999999999999}`,
		`{"messages":[{"content":[{"type":"image","source":{"data":"` + strings.Repeat("A", 100) + `"}}]}],"max_tokens":-1}`,
		`{"input":[[1,2,3],"x"]}`, `{"tools":` + strings.Repeat("[", 200), "", "\x00", `{"contents":"`,
	} {
		for api := range uint8(3) {
			f.Add([]byte(s), uint64(1), api, api)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, which, what uint8) {
		r := route{api: api(which % 3), method: method(what % 4)}
		var seen [2]usage.Usage
		for i, rnd := range []*rand.Rand{nil, rand.New(rand.NewPCG(seed, 1))} {
			e := newEstimator(&r)
			inPieces(data, rnd, e.feed)
			size := int64(len(data))
			if what&4 != 0 {
				size *= 1000
			}
			seen[i] = e.usage(int64(what), int64(len(data)), size)
		}
		if seen[0] != seen[1] {
			t.Fatalf("in one piece %v, cut %v", seen[0], seen[1])
		}
		if u := seen[0]; u.Input < 0 || u.Output < 0 || u.Input > most || u.Output > most || u.Total() < 0 || !u.Has(usage.Estimated) {
			t.Fatalf("estimated at %v", u)
		}
	})
}
