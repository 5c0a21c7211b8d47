package servers

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// heldChunks is how many chunks of bytes one direction of a link holds back
	// before its sender must wait, as it would for a real network.
	heldChunks = 256
	chunkSize  = 32 << 10
	// keptBytes is how much of a request is remembered, for a text that is cut
	// in two by the network.
	keptBytes = 1 << 10
)

// link is a connection of a client and the one to the server that belongs to
// it.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	gone           <-chan struct{} // closed when the link is
	cancel         context.CancelFunc
	once           sync.Once
	// asked says that the next reply is to be dropped.
	asked atomic.Bool
	// dropping says that it has come, and that the client is hung up on.
	dropping atomic.Bool
}

// chunk is a piece of what one side has sent.
type chunk struct {
	data []byte
	due  time.Time // when it may be passed on; the zero time is now
	drop bool      // it is a reply that must not arrive
}

// close breaks both connections at once.
func (l *link) close() {
	l.once.Do(func() {
		l.cancel()
		_ = l.client.Close()
	})
}

func (l *link) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// run passes bytes in both directions until both are at their end.
func (l *link) run() {
	var wg sync.WaitGroup
	requests, replies := make(chan chunk, heldChunks), make(chan chunk, heldChunks)
	wg.Go(func() { l.read(l.client, requests, func(*chunk) {}) })
	wg.Go(func() { l.sendRequests(requests) })
	wg.Go(func() { l.read(l.server, replies, l.judgeReply) })
	wg.Go(func() { l.sendReplies(replies) })
	wg.Wait()
}

// read cuts what comes from a side into chunks, and closes the channel at its
// end. A side that is broken breaks the link.
func (l *link) read(from *net.TCPConn, to chan<- chunk, judge func(*chunk)) {
	defer close(to)
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			c := chunk{data: append([]byte(nil), buf[:n]...)}
			judge(&c)
			select {
			case to <- c:
			case <-l.gone:
				return
			}
		}
		switch {
		case err == io.EOF, err != nil && l.dropping.Load() && from == l.client:
			return
		case err != nil:
			l.close()
			return
		}
	}
}

// judgeReply says what becomes of a reply when it comes from the server, so
// that one that is still held back is not taken for the reply to a later
// request.
func (l *link) judgeReply(c *chunk) {
	if l.dropping.Load() {
		return // the rest of it
	}
	c.due = l.proxy.due()
	c.drop = l.proxy.dropsReply(l.asked.Swap(false))
	l.dropping.Store(c.drop)
}

func (l *link) sendRequests(from <-chan chunk) {
	var before []byte
	for c := range from {
		if !l.proxy.pass(l) {
			return
		}
		// Before the server has it, and can answer.
		if l.proxy.isAsked(before, c.data) {
			l.asked.Store(true)
			before = nil
		} else {
			before = append(before, c.data...)
			before = before[max(0, len(before)-keptBytes):]
		}
		if _, err := l.server.Write(c.data); err != nil {
			l.close()
			return
		}
	}
	l.end(l.server)
}

func (l *link) sendReplies(from <-chan chunk) {
	for c := range from {
		if !l.sleepUntil(c.due) || !l.proxy.pass(l) {
			return
		}
		if c.drop {
			l.dropReplies(from)
			return
		}
		if _, err := l.client.Write(c.data); err != nil {
			l.close()
			return
		}
	}
	l.end(l.client)
}

// end passes on that one side has sent all.
func (l *link) end(to *net.TCPConn) {
	if l.proxy.pass(l) {
		_ = to.CloseWrite() // fails if it is broken, which its reader finds out
	}
}

// dropReplies hangs up on the client and lets the server finish: when it hangs
// up, too, it has read and done all that the client had sent. A connection that
// is closed with unread replies in it is reset, and the server might lose what
// it has not read.
func (l *link) dropReplies(from <-chan chunk) {
	_ = l.client.Close() // which ends its reader, and then what is sent to the server
	for range from {
	}
	l.close()
}

// sleepUntil reports whether the link lived until then.
func (l *link) sleepUntil(due time.Time) bool {
	d := time.Until(due)
	if due.IsZero() || d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.gone:
		return false
	}
}
