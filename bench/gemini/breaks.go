package gemini

import (
	"context"
	"io"
	"net/http"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// slowness is the factor by which a fault makes a call slower.
func slowness(f engine.Fault) float64 {
	switch {
	case f.Kind.Name != faultSlow:
		return 1
	case f.X > 0:
		return f.X
	}
	return 10
}

// breaks tells whether the call's fault breaks the answer, and before which
// chunk. The last chunk is never sent then.
func (r *reply) breaks() (kind string, before int) {
	f := r.call.Fault()
	switch f.Kind.Name {
	case faultError, faultErrorRaw, faultCutJSON, faultCut, faultDrop:
		before = len(r.list) / 2
	case faultHang:
		before = 0
	default:
		return "", len(r.list)
	}
	if f.After >= 0 {
		before = f.After
	}
	return f.Kind.Name, min(before, len(r.list)-1)
}

// broken sends what a fault leaves of a stream, from the i-th chunk on.
func (r *reply) broken(kind string, f frame, c chunk, i int) {
	data := f.chunk(r.marshal(c, false), i)
	switch kind {
	case faultError:
		r.send(append(f.chunk(marshal(errorResponse{r.eventError()}), i), f.end...))
	case faultErrorRaw:
		f.before = "" // an array has no other form
		r.send(append(f.chunk(marshal(errorResponse{r.eventError()}), i), f.end...))
	case faultCutJSON:
		r.send(data[:len(data)/2])
	case faultCut:
		if i == 0 {
			r.send([]byte(f.empty))
			return
		}
		r.send([]byte(f.end))
	case faultDrop:
		r.send(data[:len(data)/2])
		r.abort()
	}
}

// eventError is the error that comes inside an answer.
func (r *reply) eventError() errorBody {
	if code := r.call.Fault().Code; code > 0 {
		return failure(code)
	}
	return failure(http.StatusServiceUnavailable)
}

// hang says nothing until the client goes, the double closes, or the fault's
// time is up; then the connection breaks.
func (r *reply) hang(ctx context.Context) {
	if r.call.Hang(ctx) != nil {
		r.gone(ctx)
		return
	}
	r.end(Failed)
	r.abort()
}

// abort breaks the connection, in the way that net/http provides.
func (r *reply) abort() { panic(http.ErrAbortHandler) }

// fail answers with an error instead of the answer.
func (r *reply) fail(e errorBody) {
	r.last(Failed)
	writeError(r.w, e, r.req.Stream && !r.events)
}

// page answers as a proxy between client and API does when it has lost the API.
func (r *reply) page() {
	r.last(Failed)
	r.w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	r.w.WriteHeader(http.StatusBadGateway)
	io.WriteString(r.w, "<html><head><title>502 Server Error</title></head><body><h1>Bad gateway</h1></body></html>\n")
}
