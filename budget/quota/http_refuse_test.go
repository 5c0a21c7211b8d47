package quota_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// threeCalls lets a user make three model calls a day.
var threeCalls = quota.LimitsConfig{Limits: []quota.Limit{
	{Name: "calls", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: 3}},
}}

// fourCalls makes model calls until one is denied, which is the fourth, and lets say
// do something before each.
func (w *world) fourCalls(r *http.Request, say func(call int)) error {
	for i := range 4 {
		say(i)
		res, err := w.try(r.Context(), tokens(10))
		if err != nil {
			return fmt.Errorf("agent: model: %w", err)
		}
		w.settle(res, tokens(10))
	}
	return nil
}

func TestADenialBeforeTheFirstByteIsARealStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeCalls)
	got := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		rw.Header().Set("Content-Length", "5")
		if err := w.fourCalls(r, func(int) {}); !quota.Refuse(rw, r, err) {
			t.Errorf("%v is not answered", err)
		}
	}), quota.MiddlewareConfig{}).get("alice")
	p := problemOf(t, got)
	if got.Code != 429 || p.Stage != "mid_turn" || p.Reason != quota.ReasonExhausted || *p.Used != 3 || *p.Remaining != 0 {
		t.Errorf("status %d, report %s", got.Code, got.Body)
	}
	if got.Header().Get("RateLimit-Policy") != `"calls";q=3;qu="calls";w=86400` || got.Header().Get("Retry-After") == "" {
		t.Errorf("header %v", got.Header())
	}
}

func TestADenialInTheMiddleOfAStreamEndsItInBand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeCalls)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		flusher := rw.(http.Flusher)
		err := w.fourCalls(r, func(i int) { _, _ = fmt.Fprintf(rw, "data: step %d\n\n", i); flusher.Flush() })
		flushed := 0
		if !quota.Refuse(wrapped{rw, &flushed}, r, err) || flushed == 0 {
			t.Errorf("%v is not answered, or not flushed", err)
		}
	}), quota.MiddlewareConfig{})
	got := s.get("alice")
	events := parseEvents(got.Body.String())
	if got.Code != 200 || !got.Flushed || len(events) != 5 {
		t.Fatalf("status %d, events %q", got.Code, events)
	}
	for i, e := range events[:4] {
		if e.name != "" || e.data != fmt.Sprintf("step %d", i) {
			t.Errorf("event %d is %q", i, e)
		}
	}
	var p quota.Problem
	if err := json.Unmarshal([]byte(events[4].data), &p); err != nil {
		t.Fatal(err)
	}
	if events[4].name != "error" || p.Status != 429 || p.Stage != "mid_turn" || !strings.Contains(p.Detail, "stopped early") || p.Instance == "" {
		t.Errorf("the last event is %q", events[4])
	}
}

// A call may wait for a limit in debt, and a turn does not: who was refused in the
// middle of one and comes back as told must not be refused again at the beginning.
func TestWhoIsRefusedInTheMiddleIsToldWhenTheNextTurnMayBegin(t *testing.T) {
	t.Parallel()
	for _, room := range []int64{0, 3_000} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, limitsOf(quota.Limit{
				Name: "rate", Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Tokens: 60_000}, MaxWait: wait(10 * time.Second),
			}), func(c *quota.Config) { c.Turn.Room = quota.Max{quota.Tokens: room} })
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				for range 2 { // the first empties the bucket, and more; nobody waits for its debt
					res, err := w.try(r.Context(), tokens(4_000))
					if err != nil {
						quota.Refuse(rw, r, err)
						return
					}
					w.settle(res, tokens(68_000))
				}
			}), quota.MiddlewareConfig{})
			got := s.get("alice")
			p := problemOf(t, got)
			seconds, err := strconv.Atoi(got.Header().Get("Retry-After"))
			if err != nil || p.Stage != "mid_turn" || p.RetryAfter != int64(seconds) {
				t.Fatalf("status %d, Retry-After %v, report %+v", got.Code, got.Header()["Retry-After"], p)
			}
			if !strings.Contains(got.Header().Get("RateLimit"), fmt.Sprintf(";t=%d", seconds)) {
				t.Errorf("RateLimit is %q, and Retry-After %d", got.Header().Get("RateLimit"), seconds)
			}
			if want := (8_000 + max(room, 1) + 999) / 1000; int64(seconds) != want {
				t.Errorf("a turn that needs %d tokens is told to wait %d s for a debt of 8,000, want %d", room, seconds, want)
			}
			time.Sleep(time.Duration(seconds) * time.Second)
			w.admit(as("alice")).End()
		})
	}
}

// wrapped is a handler's own writer around that of the middleware. It counts flushes.
type wrapped struct {
	http.ResponseWriter
	flushed *int
}

func (w wrapped) FlushError() error {
	*w.flushed++
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestOnlyADenialIsRefusedAndOnlyWhereItCanBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, threeCalls)
	got := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for _, err := range []error{nil, errors.New("429 from the provider"), io.EOF} {
			if quota.Refuse(rw, r, err) {
				t.Errorf("%v is refused", err)
			}
		}
		_, _ = io.WriteString(rw, "half a")
		if err := w.fourCalls(r, func(int) {}); err == nil || quota.Refuse(rw, r, err) {
			t.Errorf("%v is refused in the middle of a text", err)
		}
		_, _ = io.WriteString(rw, " loaf")
	}), quota.MiddlewareConfig{}).get("alice")
	if got.Code != 200 || got.Body.String() != "half a loaf" {
		t.Errorf("status %d, body %q", got.Code, got.Body)
	}
}

func TestACopyAndAnUpgradeBeginAResponse(t *testing.T) {
	t.Parallel()
	e := newWorld(t, quota.LimitsConfig{})
	for name, begin := range map[string]func(http.ResponseWriter){
		"copy":    func(w http.ResponseWriter) { _, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied")) },
		"upgrade": func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) },
	} {
		s := e.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if begin(w); quota.Refuse(w, r, deniedUntil(time.Hour)) {
				t.Errorf("%s: a response that has begun is answered", name)
			}
		}), quota.MiddlewareConfig{})
		s.get("alice")
	}
}

// The fields of a response that was to be another one must not stay with a denial by
// something else.
func TestADenialByNoLimitHasNoFields(t *testing.T) {
	t.Parallel()
	e := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 5}},
	}})
	s := e.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Get("RateLimit") == "" {
			t.Error("there are no fields to take back")
		}
		quota.Refuse(w, r, &quota.Denial{Reason: quota.ReasonTurnCalls, Stage: quota.MidTurn, Unit: quota.Calls, Max: 5, Used: 5, Requested: 1})
	}), quota.MiddlewareConfig{})
	got := s.get("alice")
	if h := got.Header(); got.Code != 429 || h.Get("RateLimit") != "" || h.Get("RateLimit-Policy") != "" {
		t.Errorf("status %d, fields %v", got.Code, h)
	}
}

// Many writers that count, log or compress cannot be unwrapped.
func TestARefusalKnowsWhatHasBegunBelowOtherWriters(t *testing.T) {
	t.Parallel()
	e := newWorld(t, quota.LimitsConfig{})
	for _, c := range []struct {
		name, media, write string
		refused            bool
		status             int
		body               string // what it begins with
	}{
		{"text that has begun", "text/plain", "half", false, 200, "half"},
		{"nothing has begun", "text/plain", "", true, 429, `{"type":`},
		{"a stream that has begun", "text/event-stream", "data: a\n\n", true, 200, "data: a\n\n\n\nevent: error"},
		{"a stream that has not", "text/event-stream", "", true, 429, `{"type":`},
	} {
		s := e.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w = struct{ http.ResponseWriter }{w}
			w.Header().Set("Content-Type", c.media)
			if c.write != "" {
				_, _ = io.WriteString(w, c.write)
			}
			if got := quota.Refuse(w, r, deniedUntil(time.Hour)); got != c.refused {
				t.Errorf("%s: Refuse is %v", c.name, got)
			}
		}), quota.MiddlewareConfig{})
		got := s.get("alice")
		if body := got.Body.String(); got.Code != c.status || !strings.HasPrefix(body, c.body) || !c.refused && body != c.body {
			t.Errorf("%s: status %d, body %q", c.name, got.Code, body)
		}
	}
}

func TestRefuseBehindNoMiddleware(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := httptest.NewRecorder()
	if !quota.Refuse(w, r, deniedUntil(time.Hour)) || w.Code != 429 || problemOf(t, w).Instance != "" {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	w.Header().Set("Content-Type", "text/event-stream")
	if !quota.Refuse(w, r, deniedUntil(time.Hour)) || w.Code != 200 || len(parseEvents(w.Body.String())) != 1 {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	if !quota.Refuse(w, r, &quota.Denial{Reason: quota.ReasonNoSubject, Scope: quota.User}) || w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("status %d, header %v", w.Code, w.Header())
	}
}

// In a real server, a handler can do behind the middleware what it can without.
func TestTheWriterCanDoWhatTheServersOwnCan(t *testing.T) {
	t.Parallel()
	e := newWorld(t, quota.LimitsConfig{})
	next := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		<-next
		_, _ = io.WriteString(w, "b\n")
		w.(http.Flusher).Flush()
		<-next
	})
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetWriteDeadline(time.Now().Add(time.Hour)), c.SetReadDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex()); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints) // which is no beginning
		if !quota.Refuse(w, r, deniedUntil(time.Hour)) {
			t.Error("it is not answered")
		}
	})
	mux.HandleFunc("/copy", func(w http.ResponseWriter, _ *http.Request) {
		if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied")); n != 6 || err != nil {
			t.Errorf("ReadFrom: %d, %v", n, err)
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		if quota.Refuse(w, r, deniedUntil(time.Hour)) {
			t.Error("a connection that was taken over is answered")
		}
		_, _ = rw.WriteString("HTTP/1.1 418 Mine\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = rw.Flush()
	})
	srv := httptest.NewServer(e.serve(mux, quota.MiddlewareConfig{}).handler)
	defer srv.Close()
	get := func(path string) *http.Response {
		t.Helper()
		res, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	res := get("/flush")
	lines := bufio.NewScanner(res.Body)
	for _, want := range []string{"a", "b"} { // each before the handler goes on
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("read %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
		next <- struct{}{}
	}
	if res := get("/deadline"); res.StatusCode != 200 {
		t.Errorf("/deadline has status %d", res.StatusCode)
	}
	if body, err := io.ReadAll(get("/copy").Body); string(body) != "copied" {
		t.Errorf("/copy has %q (%v)", body, err)
	}
	if res := get("/hints"); res.StatusCode != 429 {
		t.Errorf("/hints has status %d", res.StatusCode)
	}
	if res := get("/hijack"); res.StatusCode != 418 {
		t.Errorf("/hijack has status %d", res.StatusCode)
	}
}

// Where the server cannot do something, asking says so and the response has not begun.
func TestWhatTheServerCannotDoBeginsNoResponse(t *testing.T) {
	t.Parallel()
	s := newWorld(t, quota.LimitsConfig{}).serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush: %v", err)
		}
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if err := w.(http.Pusher).Push("/page.css", nil); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Push: %v", err)
		}
		if !quota.Refuse(w, r, deniedUntil(time.Hour)) {
			t.Error("it is not answered")
		}
	}), quota.MiddlewareConfig{})
	w := &plainWriter{header: http.Header{}}
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.status != 429 {
		t.Errorf("status %d", w.status)
	}
}

func TestWhatIsPushedGoesThroughAndBeginsNoResponse(t *testing.T) {
	t.Parallel()
	e := newWorld(t, quota.LimitsConfig{})
	s := e.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := w.(http.Pusher).Push("/page.css", nil); err != nil {
			t.Errorf("Push: %v", err)
		}
		if !quota.Refuse(w, r, deniedUntil(time.Hour)) {
			t.Error("it is not answered")
		}
	}), quota.MiddlewareConfig{})
	w := &pushingWriter{plainWriter: plainWriter{header: http.Header{}}}
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.pushed != "/page.css" || w.status != 429 {
		t.Errorf("%q was pushed, and the status is %d", w.pushed, w.status)
	}
}

// pushingWriter can push, too.
type pushingWriter struct {
	plainWriter
	pushed string
}

func (w *pushingWriter) Push(target string, _ *http.PushOptions) error {
	w.pushed = target
	return nil
}

// plainWriter can do nothing but write.
type plainWriter struct {
	header http.Header
	status int
}

func (w *plainWriter) Header() http.Header         { return w.header }
func (w *plainWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *plainWriter) WriteHeader(status int)      { w.status = status }
