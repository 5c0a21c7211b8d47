package quota

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// responseWriter knows whether a response has begun. All that the server's own writer
// can do is still possible, by [http.ResponseController] or by the old interfaces.
type responseWriter struct {
	http.ResponseWriter
	begun atomic.Bool
}

// Unwrap is for [http.ResponseController].
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the response, unless it only informs (1xx): after those another
// one follows, but for 101, which ends HTTP.
func (w *responseWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begun.Store(true)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write begins the response.
func (w *responseWriter) Write(b []byte) (int, error) {
	w.begun.Store(true)
	return w.ResponseWriter.Write(b)
}

// ReadFrom begins the response. It keeps the way by which files go out without being
// copied through the program.
func (w *responseWriter) ReadFrom(from io.Reader) (int64, error) {
	w.begun.Store(true)
	return io.Copy(w.ResponseWriter, from)
}

// FlushError begins the response, if it can be flushed.
func (w *responseWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if err == nil {
		w.begun.Store(true)
	}
	return err
}

// Flush is for handlers that do not use a [http.ResponseController].
func (w *responseWriter) Flush() { _ = w.FlushError() }

// Hijack takes the connection over, after which there is no response.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begun.Store(true)
	}
	return conn, rw, err
}

// Push is for handlers that push by HTTP/2, which begins no response.
func (w *responseWriter) Push(target string, opts *http.PushOptions) error {
	for outer := w.ResponseWriter; ; {
		if p, ok := outer.(http.Pusher); ok {
			return p.Push(target, opts)
		}
		u, ok := outer.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return http.ErrNotSupported
		}
		outer = u.Unwrap()
	}
}
