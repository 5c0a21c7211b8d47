package httpgate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
	"github.com/headgate-go/headgate/usage"
)

const chatURL = "http://memhttp.invalid/v1/chat/completions"

// chatRequest is a request whose output is limited to 10 tokens.
func chatRequest(t testing.TB, ctx context.Context, url string) *http.Request {
	t.Helper()
	body := `{"model":"gpt-5","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// held is an answer of which the first event reports usage, and whose end comes
// much later.
func held(used string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, r *http.Request) {
		sendEvents(w, r, time.Hour, event("", `{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":`+used+`}`), event("", "[DONE]"))
	}
}

// A body that is neither read to its end nor closed holds a slot only as long as
// the request's context lives. What was known of its usage by then is charged.
func TestForgottenBodyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read        bool
		used        string
		gate, spent int64 // 0 is the estimate of the input
	}{
		"never read":                {false, "null", 0, 0},
		"read, usage was known":     {true, `{"prompt_tokens":25,"completion_tokens":8,"total_tokens":33}`, 25, 33},
		"read, usage was not known": {true, "null", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(1000))
				l := &ledger{}
				p := newProvider(t, held(test.used))
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				resp, err := rt.RoundTrip(chatRequest(t, ctx, chatURL))
				if err != nil {
					t.Fatal(err)
				}
				input := l.last(t).Usage.Input
				if test.gate == 0 {
					test.gate, test.spent = input, input
				}
				if test.read {
					if test.used == "null" {
						test.spent++ // and the output that was seen
					}
					if _, err := resp.Body.Read(make([]byte, 1000)); err != nil {
						t.Fatal(err)
					}
				}
				if s := g.Stats(); s.SlotsInUse != 1 {
					t.Fatalf("%d slots in use, want 1", s.SlotsInUse)
				}
				waited := time.Now()
				permit, err := g.Acquire(t.Context(), ratelimited.Call{})
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(waited); d != time.Second {
					t.Errorf("the slot came back after %v, want 1s: with the context", d)
				}
				permit.Release()
				mustBeIdle(t, g)
				l.expect(t, 0, test.spent)
				if n := booked(t, g, "tokens"); n != test.gate {
					t.Errorf("the gate counts %d tokens, want %d", n, test.gate)
				}
				if err := g.Close(t.Context()); err != nil {
					t.Errorf("Close waits for a forgotten call: %v", err)
				}
				if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("reading after the context ended gives %v, want its error", err)
				}
				_ = resp.Body.Close()
				l.expect(t, 0, test.spent)
			})
		})
	}
}

// A request whose headers never come: the context ends it in line, in backoff and
// in flight as well.
func TestRequestEndsWithItsContextWhereverItIs(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(int, http.ResponseWriter, *http.Request){
		"in line":    nil,
		"in backoff": func(_ int, w http.ResponseWriter, _ *http.Request) { refuseOpenAI(w, 429, "30") },
		"in flight":  func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				l := &ledger{}
				p := newProvider(t, play)
				defer p.Close()
				if play == nil {
					permit, err := g.Acquire(t.Context(), ratelimited.Call{})
					if err != nil {
						t.Fatal(err)
					}
					defer permit.Release()
				}
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				time.AfterFunc(time.Second, cancel)
				_, err := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}}).RoundTrip(chatRequest(t, ctx, chatURL))
				if !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
					t.Errorf("got %v after %v, want the cancellation after 1s", err, time.Since(start))
				}
				synctest.Wait()
				spent := int64(0)
				if name == "in flight" {
					spent = l.last(t).Usage.Input // it may have been executed
				}
				l.expect(t, 0, spent)
				if s := g.Stats(); s.Waiting != 0 {
					t.Errorf("%d calls wait, want none", s.Waiting)
				}
			})
		})
	}
}

// A body that is left at the event that completes the answer holds nothing any
// more: nobody waits for it, Close neither.
func TestBodyLeftAtItsLastEventHoldsNothing(t *testing.T) {
	t.Parallel()
	for _, v := range vendors() {
		t.Run(v.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					sendEvents(w, r, 0, append([]string{v.part("a")}, v.last(25, 15)...)...)
					<-r.Context().Done()
				})
				defer p.Close()
				rt := newTransport(t, p.base(), g, httpgate.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := v.stream(ctx, rt, func(text string) bool {
					if text == "end" {
						if s := g.Stats(); s.SlotsInUse != 0 {
							t.Errorf("%d slots in use at the last event, want none", s.SlotsInUse)
						}
						cancel()
						synctest.Wait()
						ctx, stop := context.WithTimeout(t.Context(), time.Minute)
						defer stop()
						if err := g.Close(ctx); err != nil {
							t.Errorf("Close waits for a forgotten call: %v", err)
						}
						return false
					}
					return true
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// foreign is a context of somebody's own making: package context has to start a
// goroutine for everyone who waits for its end.
type foreign struct{ context.Context }

func (foreign) Value(any) any { return nil }

// A context that outlives many calls, a session's say, does not collect them: a
// goroutine that waited for its end would outlive the bubble, which fails then.
func TestNothingStaysWithTheCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		answer := event("", `{"choices":[{"index":0,"delta":{"content":"a"}}]}`) + event("", "[DONE]")
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(answer))}, nil
		}), g, httpgate.Config{})
		base, never := context.WithCancel(context.Background())
		_ = never
		for i := range 50 {
			resp, err := rt.RoundTrip(chatRequest(t, foreign{base}, chatURL))
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_, _ = io.ReadAll(resp.Body)
			} else {
				_, _ = resp.Body.Read(make([]byte, 10))
			}
			_ = resp.Body.Close()
		}
		mustBeIdle(t, g)
	})
}

// roundTripper is a round tripper made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A panic of anybody's code reaches the client where it can, and loses nothing.
func TestEverythingIsBackAfterAPanic(t *testing.T) {
	t.Parallel()
	body := func(r io.Reader) *http.Response {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(r)}
	}
	part := event("", `{"choices":[{"index":0,"delta":{"content":"a"}}]}`)
	for name, base := range map[string]roundTripper{
		"round tripper": func(*http.Request) (*http.Response, error) { panic("theirs") },
		"body":          func(*http.Request) (*http.Response, error) { return body(panicking{}), nil },
		"body, later": func(*http.Request) (*http.Response, error) {
			return body(io.MultiReader(strings.NewReader(part), panicking{})), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(1000))
				l := &ledger{}
				rt := newTransport(t, base, g, httpgate.Config{Budgets: []budget.Budget{l}})
				passed := func() (p any) {
					defer func() { p = recover() }()
					resp, err := rt.RoundTrip(chatRequest(t, t.Context(), chatURL))
					if err != nil {
						return err
					}
					_, err = io.ReadAll(resp.Body)
					return err
				}()
				if passed != "theirs" {
					t.Errorf("the client saw the panic %v, want theirs", passed)
				}
				mustBeIdle(t, g)
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.held != 0 || l.settled != 1 || l.spent < l.calls[0].Usage.Input {
					t.Errorf("held %d, settled %d times, spent %d; want the input, settled once", l.held, l.settled, l.spent)
				}
			})
		})
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("theirs") }

// A function of the profile that panics where nobody could meet it is logged.
func TestAPanicWhileAForgottenCallIsEndedIsLoggedAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := tokens(1000)
		var boom atomic.Bool
		cfg.Profile.Dimensions[0].Settle = func(u usage.Usage) int64 {
			if boom.Load() {
				panic("settle")
			}
			return u.Input
		}
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		cfg.Logger = logger
		g := newGate(t, cfg)
		p := newProvider(t, held("null"))
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{Logger: logger})
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := rt.RoundTrip(chatRequest(t, ctx, chatURL))
		if err != nil {
			t.Fatal(err)
		}
		boom.Store(true)
		cancel()
		synctest.Wait()
		boom.Store(false)
		_ = resp.Body.Close()
		mustBeIdle(t, g)
		if !strings.Contains(log.String(), "panicked") {
			t.Errorf("nothing was logged: %q", log.String())
		}
	})
}
