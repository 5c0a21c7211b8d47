package quota

import (
	"mime"
	"net/http"
)

// Refuse answers a denial that came up while a request was served, such as the error
// of a model call, and reports whether it did. r is the request that the handler was
// given.
//
// If the response has not begun, it becomes that of [Middleware] to a denied request:
// 429 with a [Problem], and so on. Retry-After is then when another request may begin,
// which may be later than when the call would have passed. If a stream of server-sent events
// (text/event-stream) has begun, the report ends it as an event named "error", which
// is flushed; the handler must write nothing more. In browsers an EventSource gives
// it to the same listeners as its own errors, from which it differs by having data.
//
// It returns false, having written nothing, if err is no [*Denial], and if a response
// of another kind has begun: then the handler must tell the client in a way that
// suits it; see [Denial.Problem].
//
// Behind no [Middleware], nothing tells whether a response has begun; there, one whose
// Content-Type is text/event-stream is taken to have.
func Refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	d := denialIn(err)
	if d == nil {
		return false
	}
	g, turn, own := bare, (*Turn)(nil), tracked(w)
	if p, ok := r.Context().Value(edgeKey{}).(passage); ok {
		g, turn = p.edge, p.turn
		if own == nil { // others that cannot be unwrapped are around it
			own = p.writer
		}
	}
	stream := isEventStream(w.Header())
	begun := stream
	if own != nil {
		begun = own.begun.Load()
	}
	switch {
	case !begun:
		g.refuse(w, r, d, turn)
		return true
	case !stream:
		return false
	}
	if g.problem(r, d, turn).WriteEvent(w) == nil {
		_ = http.NewResponseController(w).Flush() // what cannot be flushed goes out at the end
	}
	return true
}

// isEventStream reports whether a response is a stream of server-sent events.
func isEventStream(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "text/event-stream"
}

// tracked finds the writer of the middleware below others; nil if there is none.
func tracked(w http.ResponseWriter) *responseWriter {
	for w != nil {
		if own, ok := w.(*responseWriter); ok {
			return own
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = outer.Unwrap()
	}
	return nil
}
