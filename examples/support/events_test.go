package main

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watcher reads the stream of events.
type watcher struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Reader
}

func (w *world) watch() *watcher {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", w.srv.URL+"/events", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.srv.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return &watcher{w.t, resp, bufio.NewReader(resp.Body)}
}

// block is the next event, or comment; "" at the end.
func (w *watcher) block() string {
	w.t.Helper()
	var b strings.Builder
	for {
		line, err := w.lines.ReadString('\n')
		if err != nil || line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

// until reads states until one is as wanted.
func (w *watcher) until(what string, want func(state) bool) {
	w.t.Helper()
	for range 1000 {
		block := w.block()
		if block == "" {
			break
		}
		if data, ok := strings.CutPrefix(block, "event: state\ndata: "); ok && want(decodeState(w.t, []byte(data))) {
			return
		}
	}
	w.t.Fatalf("no state had %s", what)
}

func TestAnEventTellsWhatAnotherUserDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		events := w.watch()
		if got := events.resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("the type is %q", got)
		}
		events.until("nothing", func(s state) bool { return len(s.Log) == 0 && len(s.People) == 3 && len(s.Shared) == 3 })
		go w.chat("alice", "my secret question")
		events.until("a turn under way, with money held", func(s state) bool {
			return s.Turns.UnderWay == 1 && s.Gate.InUse == 1 && s.budget(t, "alice", "daily").Reserved > 0
		})
		events.until("an answer that was charged", func(s state) bool {
			return s.Turns.Answered == 1 && len(s.Log) == 1 && s.Log[0].Who == "alice" && s.budget(t, "acme", "company").Used > 0
		})
		began := time.Now()
		w.chat("alice", "two")
		w.chat("alice", "three")
		w.chat("alice", "four")
		events.until("a denial", func(s state) bool {
			last := s.Log[len(s.Log)-1]
			return s.Turns.Denied == 1 && last.Kind == "denial" && strings.Contains(last.Text, "daily")
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("that took %v", took)
		}
	})
}

func TestEventsHoldNoTextOfMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for range 4 {
			w.chat("alice", "xyzzy where is it")
		}
		if err := w.app.bus.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		body, err := w.app.board.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"xyzzy", "parcel"} {
			if strings.Contains(string(body), text) || strings.Contains(w.log.String(), text) {
				t.Errorf("%q is told to others, or in the log", text)
			}
		}
	})
}

func TestOnlyTheLastEntriesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		for range 3 {
			w.chat("alice", "hello")
		}
		for range 2 * maxEntries {
			w.chat("alice", "hello")
		}
		s := w.now()
		if len(s.Log) != maxEntries {
			t.Fatalf("%d entries are kept, want %d", len(s.Log), maxEntries)
		}
		for i := range len(s.Log) - 1 {
			if s.Log[i+1].ID != s.Log[i].ID+1 {
				t.Errorf("entry %d stands before %d", s.Log[i].ID, s.Log[i+1].ID)
			}
		}
		if s.Turns.Denied != 2*maxEntries {
			t.Errorf("%d denials are counted", s.Turns.Denied)
		}
	})
}

func TestAnIdleStreamIsKeptAliveAndSendsNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		events := w.watch()
		began := time.Now()
		var got []string
		for range 4 {
			got = append(got, strings.SplitN(events.block(), "\n", 2)[0])
		}
		if want := "retry: 1000|event: state|: still here|: still here"; strings.Join(got, "|") != want {
			t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
		}
		if took := time.Since(began); took < 2*heartbeat || took > 2*heartbeat+2*refresh {
			t.Errorf("that took %v", took)
		}
	})
}

func TestViewersAreBoundedAndMakeRoomWhenTheyLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		var all []*watcher
		for range maxViewers {
			all = append(all, w.watch())
		}
		if got := w.do("GET", "/events", ""); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
			t.Errorf("one more got %d", got.status)
		}
		_ = all[0].resp.Body.Close()
		time.Sleep(time.Second)
		if got := w.watch(); got.resp.StatusCode != http.StatusOK {
			t.Errorf("after one had left, one more got %d", got.resp.StatusCode)
		}
	})
}

func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, memory)
		events := w.watch()
		events.until("anything", func(state) bool { return true })
		w.app.board.end()
		if got := events.block(); got != "" {
			t.Errorf("after the end came %q", got)
		}
		if got := w.do("GET", "/events", ""); got.status != http.StatusServiceUnavailable {
			t.Errorf("after the end, one more got %d", got.status)
		}
	})
}
