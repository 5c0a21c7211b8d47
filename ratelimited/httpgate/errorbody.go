package httpgate

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// How much of the body of an error response is read, before the response is
// returned, to learn what it means.
const (
	// maxErrorBody is in bytes: 1 MiB.
	maxErrorBody = 1 << 20
	// errorBodyWait is for how long: an error is written in one piece, and what
	// comes later than that is no error of an API.
	errorBodyWait = 3 * time.Second
)

// readHead reads the beginning of a body, as far as it is there within the bounds
// and before the end of ctx. rest is a reader of what follows: reading both gives
// the body as it came, its error included. Closing the body ends the reading.
//
// A Read that is under way cannot be called off, so a goroutine reads. It ends with
// the body, with the bounds, or with the Read that was under way when the time was
// over, which the closing of the body ends.
func readHead(ctx context.Context, body io.Reader) (read []byte, rest io.Reader) {
	h := &head{body: body, done: make(chan struct{})}
	go h.run()
	timer := time.NewTimer(errorBodyWait)
	defer timer.Stop()
	select {
	case <-h.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.enough = true
	h.raise()
	return h.read, &tail{head: h, from: len(h.read)}
}

// head is the beginning of a body.
type head struct {
	body io.Reader
	done chan struct{} // closed when the goroutine has ended

	mu sync.Mutex
	// mu guards what follows. It is not needed any more when done is closed.
	read   []byte
	err    error // what ended the reading, the body's end included; nil if there may be more
	enough bool
	panic  any // of somebody's code; nil if there was none
}

func (h *head) run() {
	returned := false
	defer func() {
		if !returned {
			h.mu.Lock()
			if h.panic = recover(); h.panic == nil { // it called runtime.Goexit
				h.err = errors.New("httpgate: the response's body ended the goroutine of its reader")
			}
			h.mu.Unlock()
		}
		close(h.done)
	}()
	buf := make([]byte, 4<<10)
	for more := true; more; {
		n, err := h.body.Read(buf)
		h.mu.Lock()
		h.read = append(h.read, buf[:max(0, min(n, len(buf)))]...)
		h.err = err
		more = err == nil && !h.enough && len(h.read) < maxErrorBody
		h.mu.Unlock()
	}
	returned = true
}

// raise passes a panic of the goroutine on. mu is held, or done is closed.
func (h *head) raise() {
	if h.panic != nil {
		panic(h.panic)
	}
}

// tail is what follows the beginning of a body that was taken.
type tail struct {
	head *head
	from int // how much was taken
}

// Read implements [io.Reader].
func (t *tail) Read(p []byte) (int, error) {
	h := t.head
	<-h.done
	h.raise()
	if t.from < len(h.read) {
		n := copy(p, h.read[t.from:])
		t.from += n
		return n, nil
	}
	if h.err != nil {
		return 0, h.err
	}
	return h.body.Read(p)
}
