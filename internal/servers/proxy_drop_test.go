package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// isHungUp reports whether a client saw its connection closed.
func isHungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// freshKey returns a key of the shared Redis that nobody has used, this test
// included.
func freshKey(t *testing.T) string { return t.Name() + rand.Text() }

func TestADroppedReplyIsOfARequestThatWasExecuted(t *testing.T) {
	t.Parallel()
	r := SharedRedis(t)
	direct := r.Client()
	p := NewProxy(t, r.Addr())
	key := freshKey(t)
	// Both are connected, so that the next replies are those to their calls.
	clients := []*redis.Client{once(t, p.Addr()), once(t, p.Addr())}
	for _, c := range clients {
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p.DropReplies(len(clients))
	for i, c := range clients {
		if n, err := c.Incr(t.Context(), key).Result(); !isHungUp(err) {
			t.Errorf("call %d got %d (%v), want a closed connection", i, n, err)
		}
		if n, err := direct.Get(t.Context(), key).Int(); err != nil || n != i+1 {
			t.Errorf("after call %d the server has %d (%v), want %d", i, n, err, i+1)
		}
	}
	if n, err := clients[0].Incr(t.Context(), key).Result(); err != nil || n != 3 {
		t.Errorf("the third reply is %d (%v), want 3", n, err)
	}
	if p.Dropped() != len(clients) {
		t.Errorf("%d replies were dropped, want %d", p.Dropped(), len(clients))
	}
}

func TestAClientThatRepeatsADroppedCallDoesItTwice(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, SharedRedis(t).Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaintNotificationsConfig: noNotifications()})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.DropReplies(1)
	if n, err := c.Incr(t.Context(), freshKey(t)).Result(); err != nil || n != 2 {
		t.Errorf("the answer is %d (%v), want 2: the first one was done, too", n, err)
	}
}

func TestOnlyTheReplyToTheNamedRequestIsDropped(t *testing.T) {
	t.Parallel()
	pg := SharedPostgres(t)
	dsn := pg.NewDatabase(t)
	p := NewProxy(t, pg.Addr())
	through := strings.Replace(dsn, pg.Addr(), p.Addr(), 1)
	if _, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	p.DropRepliesTo(1, "commit")

	// Nothing of all that comes before is dropped.
	c := connect(t, through)
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE counter SET n = n + $1", 1); err != nil {
		t.Fatal(err)
	}
	if p.Dropped() != 0 {
		t.Fatalf("%d replies were dropped before the commit", p.Dropped())
	}
	if err := tx.Commit(t.Context()); err == nil || !c.IsClosed() {
		t.Errorf("commit: %v, want a closed connection", err)
	}
	if n := query[int64](t, dsn, "SELECT n FROM counter"); n != 1 {
		t.Errorf("the counter is %d, want 1: the commit was done", n)
	}
	tx, err = connect(t, through).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("the second commit: %v", err)
	}
	if p.Dropped() != 1 {
		t.Errorf("%d replies were dropped, want 1", p.Dropped())
	}
}

// lineServer answers every line "x" with "<x>".
func lineServer(t *testing.T) string {
	return serveTCP(t, func(c *net.TCPConn) {
		var line []byte
		for b := make([]byte, 1); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			if b[0] != '\n' {
				line = append(line, b[0])
				continue
			}
			if _, err := fmt.Fprintf(c, "<%s>\n", line); err != nil {
				return
			}
			line = nil
		}
	})
}

func TestANameIsFoundHoweverTheNetworkCutsIt(t *testing.T) {
	t.Parallel()
	const name = "settle-17"
	for cut := range len(name) {
		p := NewProxy(t, lineServer(t))
		p.DropRepliesTo(1, name)
		c := dial(t, p.Addr())
		for _, part := range []string{"settle-", "16\n", "before " + name[:cut], name[cut:] + " after\n"} {
			if part == name[cut:]+" after\n" {
				// What was sent before it is a packet of its own.
				if got := readLine(t, c); got != "<settle-16>" {
					t.Fatalf("the first answer is %q", got)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if _, err := io.WriteString(c, part); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || !isHungUp(err) {
			t.Errorf("cut at %d: read %d bytes (%v), want a closed connection", cut, n, err)
		}
		if p.Dropped() != 1 {
			t.Errorf("cut at %d: %d replies were dropped, want 1", cut, p.Dropped())
		}
	}
}

func TestATextThatCannotBeLookedForFailsTheTest(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", strings.Repeat("x", keptBytes+1)} {
		r := record(t, func(t testing.TB) { NewProxy(t, "127.0.0.1:1").DropRepliesTo(1, text) })
		if !r.failed || !strings.Contains(r.text(), fmt.Sprintf("%d bytes", len(text))) {
			t.Errorf("failed: %v, said %q", r.failed, r.text())
		}
	}
}

func readLine(t *testing.T, c io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

func TestAReplyThatIsHeldBackIsNotTakenForALaterOne(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, lineServer(t))
	c := dial(t, p.Addr())
	p.Delay(200 * time.Millisecond)
	if _, err := io.WriteString(c, "first\n"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // the answer is under way
	p.DropReplies(1)
	if _, err := io.WriteString(c, "second\n"); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, c); got != "<first>" {
		t.Errorf("the first answer is %q", got)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || !isHungUp(err) {
		t.Errorf("read %d bytes of the second answer (%v), want a closed connection", n, err)
	}
}

func TestAServerWhoseReplyIsDroppedFinishesUndisturbed(t *testing.T) {
	t.Parallel()
	const length = 4 << 20
	outcome := make(chan error, 1)
	p := NewProxy(t, serveTCP(t, func(c *net.TCPConn) {
		outcome <- func() error {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return err
			}
			if _, err := c.Write([]byte("first byte")); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond) // it has more to do
			if _, err := c.Write(bytes.Repeat([]byte("more"), length/4)); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, c); err != nil { // until the client hangs up
				return err
			}
			return nil
		}()
	}))
	p.DropReplies(2)
	c := dial(t, p.Addr())
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || !isHungUp(err) {
		t.Errorf("read %d bytes (%v), want a closed connection", n, err)
	}
	if err := <-outcome; err != nil {
		t.Errorf("the server saw %v", err)
	}
	p.awaitNoLink(t)
	if p.Dropped() != 1 {
		t.Errorf("%d replies were dropped: the rest of one counts as another", p.Dropped())
	}
}

// awaitNoLink waits until all connections through the proxy are at their end.
func (p *Proxy) awaitNoLink(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	err := poll(ctx, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.links); n > 0 {
			return fmt.Errorf("%d connections are left", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestADelayLengthensARoundTripAndNotAStream(t *testing.T) {
	t.Parallel()
	r := SharedRedis(t)
	p := NewProxy(t, r.Addr())
	c := once(t, p.Addr())
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const delay = 150 * time.Millisecond
	p.Delay(delay)
	began := time.Now()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("a round trip took %v, want %v or more", took, delay)
	}

	// Who gave up is too late: what was sent is done.
	ctx, cancel := context.WithTimeout(t.Context(), delay/3)
	defer cancel()
	key := freshKey(t)
	if err := c.Set(ctx, key, 1, time.Minute).Err(); err == nil {
		t.Error("a call with a shorter time-out succeeded")
	}
	if n, err := r.Client().Get(t.Context(), key).Int(); err != nil || n != 1 {
		t.Errorf("the server has %d (%v), want 1", n, err)
	}

	// Ten answers, sent one after another, are delayed together.
	lines := NewProxy(t, lineServer(t))
	lines.Delay(delay)
	conn := dial(t, lines.Addr())
	began = time.Now()
	for i := range 10 {
		if _, err := fmt.Fprintf(conn, "%d\n", i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay / 20) // a packet of its own
	}
	for i := range 10 {
		if got, want := readLine(t, conn), fmt.Sprintf("<%d>", i); got != want {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
	if took := time.Since(began); took < delay || took > 5*delay {
		t.Errorf("ten answers took %v, want little more than %v", took, delay)
	}
	p.Delay(0)
	if err := once(t, p.Addr()).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
