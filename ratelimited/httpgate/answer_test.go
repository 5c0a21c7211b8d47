package httpgate

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/ratelimited"
)

// progressOf tells of each piece of an answer whether it was complete by
// the end of it.
func progressOf(r *route, kind, coding string, pieces ...string) (done []bool) {
	a := newAnswer(r, &http.Response{Header: http.Header{"Content-Type": {kind}, "Content-Encoding": {coding}}}, 1)
	defer a.close()
	complete := false
	for _, p := range pieces {
		a.feed([]byte(p))
		if news, ok := a.take(); ok && news.progress == ratelimited.Done {
			complete = true
		}
		done = append(done, complete)
	}
	return done
}

// An answer is complete with the piece that completes it, neither sooner nor
// later, and what cannot be read does not get into the way.
func TestAnswerIsCompleteWithThePieceThatCompletesIt(t *testing.T) {
	t.Parallel()
	const sse = "text/event-stream"
	for name, c := range map[string]struct {
		route  route
		kind   string
		pieces []string // the last one completes it
	}{
		"event":                  {google, sse, []string{"data: {\"candidates\":[{}]}\n\n", "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]", "}"}},
		"unspecified reason":     {google, sse, []string{"data: {\"candidates\":[{\"finishReason\":\"FINISH_REASON_UNSPECIFIED\"}]}\n\n", "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\r\n\r\n"}},
		"one of two candidates":  {google, sse, []string{"data: {\"candidates\":[{\"finishReason\":\"STOP\"},{}]}\n\n", "data: {\"promptFeedback\":{\"blockReason\":\"X\"}}\n\n"}},
		"after one cut off":      {google, sse, []string{"data: {\"candidates\":[{\"content\":\"ab\n\n", "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n"}},
		"after one of no JSON":   {google, sse, []string{"data: <busy>\n\n", "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n"}},
		"array":                  {google, "application/json", []string{"[{\"candidates\":[{}]}", ",{\"candidates\":[{\"finishReason\":\"STOP\"}]", "}"}},
		"one piece":              {google, "", []string{"{\"candidates\":[]", "}"}},
		"chat":                   {chat, sse, []string{"data: {\"choices\":[]}\n\n", "data: {\"choices\":[{\"finish_reason\":null}]}\n\n", "data: {\"choices\":[{\"finish_reason\":\"length\"}]}\n\n"}},
		"chat, without a reason": {chat, sse, []string{"data: {\"choices\":[{}]}\n\n", "data: [DONE]\n\n"}},
		"response":               {responses, sse, []string{"data: {\"type\":\"response.created\"}\n\n", "data: {\"type\":\"response.completed\"}\n\n"}},
		"message":                {messages, sse, []string{"data: {\"type\":\"message_start\",\"message\":{\"stop_reason\":null}}\n\n", "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"}},
		"message, stop only":     {messages, sse, []string{"data: {\"type\":\"ping\"}\n\n", "data: {\"type\":\"message_stop\"}\n\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pieces := c.pieces
			for i, done := range progressOf(&c.route, c.kind, "", pieces...) {
				if done != (i == len(pieces)-1) {
					t.Errorf("complete after piece %d of %d: %v", i+1, len(pieces), done)
				}
			}
			// Compressed, each piece is known as soon as it is there.
			var zipped bytes.Buffer
			z := gzip.NewWriter(&zipped)
			var parts []string
			for _, p := range pieces {
				z.Write([]byte(p))
				z.Flush()
				parts = append(parts, zipped.String())
				zipped.Reset()
			}
			for i, done := range progressOf(&c.route, c.kind, "gzip", parts...) {
				if done != (i == len(parts)-1) {
					t.Errorf("compressed, complete after piece %d of %d: %v", i+1, len(parts), done)
				}
			}
		})
	}
}

// What says that it is compressed and is not ends no goroutine too late and
// stops nobody.
func TestWhatIsNoGzipIsNotRead(t *testing.T) {
	t.Parallel()
	for _, pieces := range [][]string{{}, {"plain text"}, {"\x1f"}, {"\x1f\x8b\x08\x00", strings.Repeat("x", 10_000), "more"}} {
		for _, done := range progressOf(&google, "text/event-stream", "gzip", pieces...) {
			if done {
				t.Errorf("%.10q completes an answer", pieces)
			}
		}
	}
}
