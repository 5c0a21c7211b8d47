package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/internal/servers"
)

// A package that the SDK pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // as main does
	goleak.VerifyTestMain(servers.StopAfter(m), goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// memory serves without a network, so that all that is waited for is virtual time.
func memory(handler http.Handler) (hosted, error) {
	srv := memhttp.New(handler)
	return hosted{srv.Client().Transport, srv.URL, srv.Close}, nil
}

const testToken = "secret"

// world is a server in memory, in a bubble of virtual time.
type world struct {
	t   *testing.T
	app *app
	srv *memhttp.Server
	log *bytes.Buffer
}

// begin begins a server whose double is served by host.
func begin(t *testing.T, host host) *world {
	t.Helper()
	return beginWith(t, host, limitsFile)
}

// beginWith begins one with other limits.
func beginWith(t *testing.T, host host, limits []byte) *world {
	t.Helper()
	w := &world{t: t, log: &bytes.Buffer{}}
	var err error
	w.app, err = newApp(appConfig{
		adminToken: testToken, host: host, latency: 800 * time.Millisecond, limits: limits,
		logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.srv = memhttp.New(w.app.handler)
	t.Cleanup(func() {
		w.app.board.end()
		w.srv.Close()
		if err := w.app.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// answer is what a request was answered with.
type answer struct {
	status int
	text   string // of the status
	header http.Header
	body   string
}

// problem reads the answer as a problem report.
func (a answer) problem(t *testing.T) quota.Problem {
	t.Helper()
	var p quota.Problem
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("the answer is %q: %s", got, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Errorf("%v in %q", err, a.body)
	}
	return p
}

// do sends a request. headers are names and values in turn.
func (w *world) do(method, path, body string, headers ...string) answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.srv.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := w.srv.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Status, resp.Header, string(got)}
}

// chat sends a message of a user.
func (w *world) chat(user, text string) answer {
	w.t.Helper()
	return w.do("POST", "/chat", text, userHeader, user)
}

// now is what the page would show now.
func (w *world) now() state {
	w.t.Helper()
	if err := w.app.bus.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	body, err := w.app.board.state(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return decodeState(w.t, body)
}

func decodeState(t *testing.T, body []byte) state {
	t.Helper()
	var s state
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return s
}

// budget is how a limit of a holder stands.
func (s state) budget(t *testing.T, name, limit string) budgetStatus {
	t.Helper()
	for _, h := range append(s.People, s.Shared...) {
		for _, b := range h.Budgets {
			if h.Name == name && b.Limit == limit {
				return b
			}
		}
	}
	t.Fatalf("there is no limit %q of %q", limit, name)
	return budgetStatus{}
}
