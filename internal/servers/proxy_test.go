package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serveTCP runs a server for the test that serves each connection with f.
func serveTCP(t *testing.T, f func(c *net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// echo is a server that sends back what it gets.
func echo(t *testing.T) (addr string) {
	return serveTCP(t, func(c *net.TCPConn) {
		// Between two sockets alone io.Copy would go through a pipe of the
		// kernel, which stays open for later.
		_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	})
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func TestWithoutAFaultEverythingPasses(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, echo(t))
	var wg sync.WaitGroup
	for range 4 {
		c := dial(t, p.Addr())
		wg.Go(func() {
			sent := make([]byte, 1<<20)
			_, _ = rand.Read(sent)
			go func() {
				_, _ = c.Write(sent)
				_ = c.CloseWrite() // has to pass, too: the echo ends with it
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes (%v), want the %d that were sent", len(got), err, len(sent))
			}
		})
	}
	wg.Wait()
}

func TestWhenNobodyListensTheClientIsHungUpOn(t *testing.T) {
	t.Parallel()
	nobody, err := claimPort()
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.release()
	c := dial(t, NewProxy(t, nobody.addr()).Addr())
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("there was an answer")
	}
}

func TestACutConnectionIsClosedAndNewOnesAreRefusedUntilMended(t *testing.T) {
	t.Parallel()
	r := SharedRedis(t)
	p := NewProxy(t, r.Addr())
	addr := p.Addr()
	c := once(t, addr)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	raw := dial(t, addr)
	for range 3 {
		p.Cut()
		p.Cut() // a second one changes nothing
		if _, err := raw.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("an open connection: %v, want it closed", err)
		}
		if _, err := net.Dial("tcp4", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection: %v, want it refused", err)
		}
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Error("a client gets through")
		}
		p.Mend()
		p.Mend()
		if p.Addr() != addr {
			t.Errorf("mended at %s, was at %s", p.Addr(), addr)
		}
		if err := r.Client().Ping(t.Context()).Err(); err != nil {
			t.Errorf("the server itself: %v", err)
		}
		if err := once(t, addr).Ping(t.Context()).Err(); err != nil {
			t.Errorf("after it was mended: %v", err)
		}
		raw = dial(t, addr)
	}
}

func TestWhatIsStalledPassesLaterAndWhole(t *testing.T) {
	t.Parallel()
	r := SharedRedis(t)
	direct := r.Client()
	p := NewProxy(t, r.Addr())
	c := once(t, p.Addr())
	key := freshKey(t)
	if err := c.Set(t.Context(), key, 0, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	p.Stall(true)
	p.Stall(true)
	answers := make(chan error, 2)
	go func() { answers <- c.Incr(context.Background(), key).Err() }()
	go func() { answers <- once(t, p.Addr()).Incr(context.Background(), key).Err() }()
	select {
	case err := <-answers:
		t.Fatalf("a stalled call ended with %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if n, err := direct.Get(t.Context(), key).Int(); err != nil || n != 0 {
		t.Errorf("the server has %d (%v): a request has passed", n, err)
	}
	p.Stall(false)
	for range 2 {
		if err := <-answers; err != nil {
			t.Errorf("a call that was stalled: %v", err)
		}
	}
	if n, err := direct.Get(t.Context(), key).Int(); err != nil || n != 2 {
		t.Errorf("the server has %d (%v), want 2", n, err)
	}
}

func TestTheEndOfAConnectionIsStalledToo(t *testing.T) {
	t.Parallel()
	hangUp, gone := make(chan struct{}), make(chan struct{})
	p := NewProxy(t, serveTCP(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		<-hangUp
		_ = c.Close()
		close(gone)
	}))
	c := dial(t, p.Addr())
	if n, err := c.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Fatalf("read %d bytes (%v), want 1", n, err)
	}
	p.Stall(true)
	close(hangUp)
	<-gone
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("while stalled: %v, want a time-out", err)
	}
	p.Stall(false)
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("afterwards: %v, want %v", err, io.EOF)
	}
}
