package httpgate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// zipped is a text in gzip.
func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

const (
	spent    = `{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"You exceeded your current quota"}}`
	tooLarge = `{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"Request too large for gpt-5 in organization org on tokens per min (TPM): Limit 30000, Requested 60000."}}`
)

// An error is understood however its body is compressed, or else judged as if it
// had none, and passes as it came.
func TestErrorIsUnderstoodHoweverItIsSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		coding   string
		header   http.Header
		body     string
		attempts int
		cuts     bool // the gate takes it for a limit that is lower than configured
	}{
		"spent":                            {429, "", nil, spent, 1, false},
		"spent, compressed":                {429, "gzip", nil, zipped(spent), 1, false},
		"spent, compressed, as of old":     {429, " X-Gzip ", nil, zipped(spent), 1, false},
		"compressed and cut off":           {429, "gzip", nil, zipped(spent)[:len(zipped(spent))-8], 1, false},
		"compressed, behind megabytes":     {429, "gzip", nil, zipped(strings.Repeat(" ", 2<<20) + spent), 3, true},
		"too large for the limit":          {429, "", nil, tooLarge, 1, false},
		"too large, compressed":            {429, "gzip", nil, zipped(tooLarge), 1, false},
		"said to be compressed":            {429, "gzip", nil, "slow down", 3, true},
		"empty":                            {429, "", nil, "", 3, true},
		"in a coding that is not read":     {429, "br", nil, spent, 3, true},
		"and told not to retry":            {429, "br", http.Header{"X-Should-Retry": {"false"}}, spent, 1, false},
		"in two codings":                   {429, "gzip, br", nil, spent, 3, true},
		"a conflict":                       {409, "", nil, "{}", 1, false},
		"a conflict that is safe to retry": {409, "", http.Header{"X-Should-Retry": {"true"}}, "{}", 3, false},
		"a failure that is safe to retry":  {500, "", http.Header{"X-Should-Retry": {"true"}}, "{}", 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(10_000))
				p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
					for k, v := range c.header {
						w.Header()[k] = v
					}
					w.Header().Set("Content-Type", "application/json")
					if c.coding != "" {
						w.Header().Set("Content-Encoding", c.coding)
					}
					w.WriteHeader(c.status)
					io.WriteString(w, c.body)
				})
				defer p.Close()
				req := chatRequest(t, t.Context(), chatURL)
				req.Header.Set("Accept-Encoding", "gzip, br")
				resp, err := newTransport(t, p.base(), g, httpgate.Config{}).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(body) != c.body || resp.Header.Get("Content-Encoding") != strings.TrimSpace(c.coding) {
					t.Errorf("read %d bytes (%v), want the %d that came", len(body), err, len(c.body))
				}
				if n := p.count(); n != c.attempts {
					t.Errorf("sent %d times, want %d", n, c.attempts)
				}
				if s := g.Stats().Dimensions[0].Share; (s < 1) != c.cuts {
					t.Errorf("the share of the limit in use is %v, want less than 1: %v", s, c.cuts)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// An error whose body comes late, or never ends, holds neither the client nor the
// slot: it is judged by what is there, and the rest is handed on as it comes.
func TestErrorBodyThatDoesNotEndHoldsNobody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    string
		attempts int
	}{
		"nothing of it is there":         {"", 3},
		"what there is says enough":      {spent, 1},
		"what there is says not enough":  {spent[:30], 3},
		"more than is read, and no end":  {strings.Repeat(" ", 1<<20+5), 3},
		"exactly as much, and no end":    {strings.Repeat(" ", 1<<20), 3},
		"compressed, what there is does": {zipped(spent), 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(10_000))
				rest := make(chan string)
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					if strings.HasPrefix(c.first, "\x1f") {
						w.Header().Set("Content-Encoding", "gzip")
					}
					w.WriteHeader(429)
					io.WriteString(w, c.first)
					w.(http.Flusher).Flush()
					select {
					case text := <-rest:
						io.WriteString(w, text)
					case <-r.Context().Done():
					}
				})
				defer p.Close()
				req := chatRequest(t, t.Context(), chatURL)
				req.Header.Set("Accept-Encoding", "gzip")
				start := time.Now()
				resp, err := newTransport(t, p.base(), g, httpgate.Config{}).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d > 30*time.Second {
					t.Errorf("the headers were there at once, RoundTrip returned after %v", d)
				}
				mustBeIdle(t, g)
				if n := p.count(); n != c.attempts {
					t.Errorf("sent %d times, want %d", n, c.attempts)
				}
				got := make([]byte, len(c.first))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != c.first {
					t.Errorf("read %.40q, %v; want what was there", got, err)
				}
				rest <- "and the rest"
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "and the rest" {
					t.Errorf("read %q, %v; want the rest", got, err)
				}
				resp.Body.Close()
			})
		})
	}
}

// A client that closes such a body, or whose context ends, leaves nothing behind.
func TestErrorBodyThatDoesNotEndCanBeLeft(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before it is returned": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(500)
					io.WriteString(w, "a")
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				})
				defer p.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if before {
					time.AfterFunc(time.Second, cancel)
				}
				start := time.Now()
				resp, err := newTransport(t, p.base(), g, httpgate.Config{}).RoundTrip(chatRequest(t, ctx, chatURL))
				if err == nil {
					if !before {
						resp.Body.Close()
						cancel()
					}
					if _, err := io.ReadAll(resp.Body); err == nil {
						t.Error("the body ended, though it was cut off")
					}
					resp.Body.Close()
				}
				if d := time.Since(start); before != (d == time.Second) || d > 10*time.Second {
					t.Errorf("returned after %v", d)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// What a foreign body does while an error is read reaches the client: its error
// after the bytes before it, its panic as a panic.
func TestFailureOfAnErrorBodyReachesTheClient(t *testing.T) {
	t.Parallel()
	broken := errors.New("reset by peer")
	for name, c := range map[string]struct {
		body io.Reader
		want any
	}{
		"error": {io.MultiReader(strings.NewReader("abc"), failing{broken}), broken},
		"panic": {io.MultiReader(strings.NewReader("abc"), panicking{}), "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				rt := newTransport(t, roundTripper(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(c.body)}, nil
				}), g, httpgate.Config{})
				var read []byte
				got := func() (got any) {
					defer func() {
						if p := recover(); p != nil {
							got = p
						}
					}()
					resp, err := rt.RoundTrip(chatRequest(t, t.Context(), chatURL))
					if err != nil {
						return err
					}
					read, err = io.ReadAll(resp.Body)
					return err
				}()
				if got != c.want || c.want == broken && string(read) != "abc" {
					t.Errorf("read %q and got %v, want %v", read, got, c.want)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// slow is a foreign body that knows nothing of contexts: each of its pieces takes
// some time, and it never ends by itself.
type slow struct {
	piece []byte
	pause time.Duration

	mu     sync.Mutex
	reads  int
	closed chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	if s.pause > 0 {
		select {
		case <-time.After(s.pause):
		case <-s.closed:
			return 0, io.ErrClosedPipe
		}
	}
	return copy(p, s.piece), nil
}

func (s *slow) Close() error { close(s.closed); return nil }

// Of an error that never ends no more is read than the bounds on size and time
// allow, or the context, until the client reads on.
func TestErrorBodyIsNotReadBeyondItsBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		piece  int
		pause  time.Duration
		cancel time.Duration // after which the context ends; 0 is never
		took   time.Duration
		reads  int // at most
	}{
		"size":    {4 << 10, 0, 0, 0, 256},
		"time":    {1, 700 * time.Millisecond, 0, 3 * time.Second, 5},
		"context": {1, time.Hour, time.Second, time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				body := &slow{piece: make([]byte, c.piece), pause: c.pause, closed: make(chan struct{})}
				rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 400, Header: http.Header{}, Body: body}, nil
				}), g, httpgate.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				start := time.Now()
				resp, err := rt.RoundTrip(chatRequest(t, ctx, chatURL))
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d != c.took {
					t.Errorf("returned after %v, want %v", d, c.took)
				}
				mustBeIdle(t, g)
				time.Sleep(time.Minute)
				body.mu.Lock()
				reads := body.reads
				body.mu.Unlock()
				if reads > c.reads {
					t.Errorf("the body was read %d times, want %d at most", reads, c.reads)
				}
				resp.Body.Close()
			})
		})
	}
}
