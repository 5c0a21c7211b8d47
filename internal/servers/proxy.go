package servers

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy between clients and a server that breaks what passes
// through it in known ways. Make it with [NewProxy]. Faults are set at any time
// and hold for the connections that there are and for those to come.
type Proxy struct {
	t      testing.TB
	target string
	port   *port
	// running counts the goroutines of the proxy.
	running sync.WaitGroup

	mu       sync.Mutex   // guards all below
	listener net.Listener // nil while cut
	closed   bool         // for good
	links    map[*link]bool
	flows    chan struct{} // closed while bytes pass
	delay    time.Duration
	drops    int    // replies to drop, whatever was asked
	asks     int    // replies to drop of requests that hold ask
	ask      []byte // never changed in place
	dropped  int
}

// NewProxy starts a proxy to target, host:port, for this test, which ends with
// it. A client whose connection cannot be passed on, since nobody listens at
// target, is hung up on.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, links: map[*link]bool{}, flows: make(chan struct{})}
	close(p.flows)
	var err error
	for range 5 { // another program may be faster on a port
		if p.port, err = claimPort(); err != nil {
			break
		}
		if err = p.mend(); err == nil {
			break
		}
		p.port.release()
	}
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(p.close)
	return p
}

// Addr returns host:port for clients to connect to, which stays the same for
// the proxy's life.
func (p *Proxy) Addr() string { return p.port.addr() }

// Cut closes all connections, with what was under way in them, and refuses new
// ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
}

// Mend ends a [Proxy.Cut]: new connections are taken.
func (p *Proxy) Mend() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := poll(ctx, func(context.Context) error { return p.mend() }); err != nil {
		p.t.Errorf("mend the proxy: %v", err)
	}
}

func (p *Proxy) mend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := net.Listen("tcp4", p.port.addr())
	if err != nil {
		return err
	}
	p.listener = listener
	p.running.Go(func() { p.accept(listener) })
	return nil
}

// Stall has nothing pass any more, in either direction, neither bytes nor the
// end of a connection, and has all that was held back pass when it ends. New
// connections come about. What is sent after Stall has returned is held.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	isStalled := true
	select {
	case <-p.flows:
		isStalled = false
	default:
	}
	switch {
	case on && !isStalled:
		p.flows = make(chan struct{})
	case !on && isStalled:
		close(p.flows)
	}
}

// Delay has whatever the server sends from now on arrive d later, so that a
// round trip takes d longer. Replies that follow each other are not slowed
// further.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// DropReplies has the next n replies that come back, on whichever connections,
// not arrive: the request was passed on and executed, and then the connection
// is closed before any byte of the reply. Replies to what a client sends when
// it connects count too; see [Proxy.DropRepliesTo] for a certain request. A
// second call replaces the first.
//
// The connection to the server stays open until the server has read all that
// was sent, so that the server does execute the request to its end.
func (p *Proxy) DropReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = n
}

// DropRepliesTo does the same to the next n requests that hold the text,
// "COMMIT" or the id of a reservation for instance, as it stands in the bytes
// of the protocol. It counts on a client that waits for one reply before it
// sends the next request on a connection. A second call replaces the first. The
// text has 1 to 1024 bytes.
func (p *Proxy) DropRepliesTo(n int, text string) {
	p.t.Helper()
	if len(text) == 0 || len(text) > keptBytes {
		p.t.Errorf("DropRepliesTo a text of %d bytes, want 1 to %d", len(text), keptBytes)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks, p.ask = n, []byte(text)
}

// Dropped returns how many replies were dropped so far.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// accept takes connections until the listener is closed.
func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Such as no free file: the client is gone, others may come.
			time.Sleep(time.Millisecond)
			continue
		}
		p.running.Go(func() { p.serve(listener, client.(*net.TCPConn)) })
	}
}

// serve passes bytes between a client and the server until both have hung up,
// or one of them is broken.
func (p *Proxy) serve(listener net.Listener, client *net.TCPConn) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{proxy: p, client: client, gone: ctx.Done(), cancel: cancel}
	defer p.forget(l)
	if !p.register(listener, l) {
		return // cut since it was taken
	}
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	l.server = server.(*net.TCPConn)
	defer l.server.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.server.Close() })
	defer stop()
	l.run()
}

func (p *Proxy) register(listener net.Listener, l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		return false
	}
	p.links[l] = true
	return true
}

func (p *Proxy) forget(l *link) {
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// close ends the proxy and waits for its goroutines.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.cut()
	p.mu.Unlock()
	p.running.Wait()
	p.port.release()
}

// pass waits until bytes pass; it returns false if the link was closed first.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	flows := p.flows
	p.mu.Unlock()
	select {
	case <-flows:
	case <-l.gone:
	}
	return !l.isGone()
}

// due returns when what the server has sent now is to arrive.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay <= 0 {
		return time.Time{}
	}
	return time.Now().Add(p.delay)
}

// isAsked reports whether bytes that are about to be passed on end a request
// whose reply is to be dropped. before are the last bytes that were passed on.
func (p *Proxy) isAsked(before, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asks <= 0 {
		return false
	}
	before = before[max(0, len(before)-len(p.ask)+1):]
	if !bytes.Contains(append(bytes.Clone(before), data...), p.ask) {
		return false
	}
	p.asks--
	return true
}

// dropsReply reports whether a reply is to be dropped. asked says that it is
// one to a request for which isAsked has said so.
func (p *Proxy) dropsReply(asked bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case asked:
	case p.drops > 0:
		p.drops--
	default:
		return false
	}
	p.dropped++
	return true
}
