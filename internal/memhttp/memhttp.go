// Package memhttp serves HTTP without a network, so that a client and a server
// can talk inside a testing/synctest bubble, in virtual time.
//
// A goroutine that waits for a socket is not durably blocked, so virtual time
// stands still while real connections are open. The connections of this
// package are made with [net.Pipe]: they block on channels of the bubble, and
// time moves on as soon as everybody waits.
//
//	synctest.Test(t, func(t *testing.T) {
//		srv := memhttp.New(handler)
//		defer srv.Close()
//		resp, err := srv.Client().Get(srv.URL + "/path")
//		…
//	})
//
// Everything is HTTP/1.1 as net/http speaks it, chunked streams, flushes,
// cancellation and keep-alive included.
package memhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// URL is the base of every server's address. No name server knows it (the
// top-level domain "invalid" is reserved by RFC 2606), so a client that goes
// past the server's own [http.Client] fails instead of reaching the network.
const URL = "http://memhttp.invalid"

// ErrClosed is what dialling a closed server returns.
var ErrClosed = errors.New("memhttp: server closed")

// Server is an HTTP server that listens in memory. Make it with [New], inside
// the bubble in which it is used. Its methods may be called from several
// goroutines.
type Server struct {
	// URL is the address for requests through [Server.Client], without a
	// slash at its end.
	URL string

	listener  *listener
	server    *http.Server
	transport *http.Transport
	client    *http.Client
	served    chan struct{}
	closeOnce sync.Once

	// handlers counts running handlers; it grows only under mu and while
	// closed is false, so that Close can wait for it.
	handlers sync.WaitGroup
	// mu guards closed.
	mu     sync.Mutex
	closed bool
}

// New starts a server for handler. It must be closed.
func New(handler http.Handler) *Server {
	s := &Server{URL: URL, listener: newListener(), served: make(chan struct{})}
	s.server = &http.Server{Handler: s.counted(handler)}
	s.transport = &http.Transport{
		DialContext: s.listener.dial,
		// The default of 2 idle connections would have a burst of calls dial
		// anew for every one.
		MaxIdleConnsPerHost: 1024,
	}
	s.client = &http.Client{Transport: s.transport}
	go func() {
		defer close(s.served)
		// Serve returns when the listener closes; there is nobody to tell.
		_ = s.server.Serve(s.listener)
	}()
	return s
}

// Client returns the client whose connections lead to this server, whatever
// host a request names. It is always the same one; it has no time-out.
func (s *Server) Client() *http.Client { return s.client }

// Close breaks all connections, which cancels the contexts of running
// handlers, and returns when every handler has returned. A second Close does
// nothing. Requests after Close fail with an error that wraps [ErrClosed].
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		_ = s.server.Close()
		<-s.served
		s.transport.CloseIdleConnections()
		s.handlers.Wait()
	})
}

// counted lets Close know when the last handler has returned, which
// http.Server.Close does not wait for.
func (s *Server) counted(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler) // the way to drop a connection
		}
		defer s.handlers.Done()
		handler.ServeHTTP(w, r)
	})
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// listener hands one end of a pipe to the server for each dial.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	err := ErrClosed
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = client.Close()
	_ = server.Close()
	return nil, err
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "memhttp.invalid:80" }
