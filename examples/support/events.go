package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	// maxViewers is how many can watch at a time.
	maxViewers = 64
	// refresh is how often it is looked for what has changed. However much happens, a
	// viewer costs no more than that.
	refresh = 100 * time.Millisecond
	// heartbeat is how often something is sent, so that nothing between takes the
	// stream for dead.
	heartbeat = 15 * time.Second
	// slowest is how long a viewer may take to be told.
	slowest = 5 * time.Second
)

// serve is a stream of server-sent events named "state".
func (b *board) serve(w http.ResponseWriter, r *http.Request) {
	if !b.enter() {
		w.Header().Set("Retry-After", strconv.Itoa(int(slowest/time.Second)))
		http.Error(w, "too many are watching, or the server is about to stop", http.StatusServiceUnavailable)
		return
	}
	defer b.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not collect it

	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of the server would end the stream
	send := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(slowest)) // where there is none, the client is not slow
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !send("retry: 1000\n\n") {
		return
	}
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	var shown []byte
	var sent time.Time
	for {
		now, err := b.state(r.Context())
		switch {
		case err != nil: // the ledger cannot be reached; what is shown stays
		case !bytes.Equal(now, shown):
			if !send("event: state\ndata: %s\n\n", now) {
				return
			}
			shown, sent = now, time.Now()
		}
		if time.Since(sent) >= heartbeat {
			if !send(": still here\n\n") {
				return
			}
			sent = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-b.done:
			return
		case <-tick.C:
		}
	}
}

// enter lets a viewer in, if there is room.
func (b *board) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.viewers == maxViewers {
		return false
	}
	b.viewers++
	return true
}

func (b *board) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.viewers--
}

// end ends all streams, for good.
func (b *board) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.done)
	}
}
