package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
	"github.com/headgate-go/headgate/retry"
)

// A refusal before the headers of an answer were handed out is tried again, with
// the same body and after the time that the provider asks for; the client sees
// nothing of it.
func TestRefusalIsTriedAgainUnseen(t *testing.T) {
	t.Parallel()
	for _, v := range vendors() {
		for _, status := range []int{429, 503, 529} {
			t.Run(fmt.Sprint(v.name, "/", status), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1})
					p := newProvider(t, func(n int, w http.ResponseWriter, r *http.Request) {
						if n == 1 {
							v.refuse(w, status, "20")
							return
						}
						w.Header().Set("Content-Type", "application/json")
						io.WriteString(w, v.answer("hi", 5, 3))
					})
					defer p.Close()
					l := &ledger{}
					start := time.Now()
					text, err := v.unary(t.Context(), newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}}))
					if err != nil || text != "hi" {
						t.Fatalf("got %q, %v", text, err)
					}
					if d := time.Since(start); d < 20*time.Second || d > 26*time.Second {
						t.Errorf("answered after %v, want 20s and a little", d)
					}
					if p.count() != 2 || p.bodies[0] != p.bodies[1] || p.bodies[0] == "" {
						t.Errorf("%d requests with bodies %q, want two of the same", p.count(), p.bodies)
					}
					l.expect(t, 0, 8)
					mustBeIdle(t, g)
				})
			})
		}
	}
}

// While a refused call waits for its next attempt, its slot is free, and it goes
// out before those that came after it.
func TestBackoffHoldsNoSlotAndKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := chatVendor()
		g := newGate(t, ratelimited.Config{Slots: 1})
		p := newProvider(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				refuseOpenAI(w, 429, "")
				return
			}
			wait(r.Context(), 2*time.Second)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, v.answer("hi", 5, 3))
		})
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{})
		ended := make(chan string, 3)
		call := func(name string) {
			if _, err := v.unary(ratelimited.WithFlow(t.Context(), "one"), rt); err != nil {
				t.Error(name, err)
			}
			ended <- name
		}
		go call("first")
		synctest.Wait()
		go call("second")
		synctest.Wait()
		go call("third")
		synctest.Wait()
		if p.count() != 2 || g.Stats().SlotsInUse != 1 {
			t.Errorf("%d requests, want a second one to use the slot of the first", p.count())
		}
		if order := fmt.Sprint(<-ended, " ", <-ended, " ", <-ended); order != "second first third" {
			t.Errorf("ended in the order %s: the refused call has lost its place", order)
		}
	})
}

// What is not worth another try reaches the client at once, as the provider sent
// it, and so does what was tried too often.
func TestFinalRefusalIsTheProvidersOwn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status   int
		body     string
		header   http.Header
		cfg      httpgate.Config
		policy   retry.Policy
		attempts int
	}{
		"bad request":       {400, `{"error":{"message":"no"}}`, nil, httpgate.Config{}, retry.Policy{}, 1},
		"not found":         {404, "nothing  here\n", nil, httpgate.Config{}, retry.Policy{}, 1},
		"server error":      {500, `{"error":{"message":"oops"}}`, nil, httpgate.Config{}, retry.Policy{}, 1},
		"redirect":          {307, "elsewhere", http.Header{"Location": {"/x"}}, httpgate.Config{}, retry.Policy{}, 1},
		"spend limit":       {429, `{"error":{"code":"insufficient_quota","message":"x"}}`, nil, httpgate.Config{}, retry.Policy{}, 1},
		"per day":           {429, `{"error":{"message":"Limit reached: tokens per day"}}`, nil, httpgate.Config{}, retry.Policy{}, 1},
		"too often":         {429, `{"error":{"message":"slow down"}}`, nil, httpgate.Config{}, retry.Policy{MaxAttempts: 2}, 2},
		"hint too long":     {429, `{"error":{}}`, http.Header{"Retry-After": {"4000"}}, httpgate.Config{}, retry.Policy{}, 1},
		"told not to retry": {429, `{"error":{}}`, http.Header{"X-Should-Retry": {"false"}}, httpgate.Config{}, retry.Policy{}, 1},
		"retries off":       {429, `{"error":{}}`, http.Header{"Retry-After": {"1"}}, httpgate.Config{NoRetries: true}, retry.Policy{}, 1},
		"large body":        {429, strings.Repeat("x", 3<<20), nil, httpgate.Config{NoRetries: true}, retry.Policy{}, 1},
		"no JSON":           {503, "<html>busy</html>", nil, httpgate.Config{}, retry.Policy{MaxAttempts: 3}, 3},
		"empty":             {529, "", nil, httpgate.Config{NoRetries: true}, retry.Policy{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := tokens(1000)
				cfg.Retry = test.policy
				g := newGate(t, cfg)
				l := &ledger{}
				test.cfg.Budgets = []budget.Budget{l}
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					for k, v := range test.header {
						w.Header()[k] = v
					}
					w.Header().Set("X-Request-Id", "r1")
					w.WriteHeader(test.status)
					io.WriteString(w, test.body)
				})
				defer p.Close()
				resp, err := newTransport(t, p.base(), g, test.cfg).RoundTrip(chatRequest(t, t.Context(), chatURL))
				if err != nil {
					t.Fatal(err)
				}
				mustBeIdle(t, g) // before the body is read
				body, err := io.ReadAll(resp.Body)
				if err != nil || string(body) != test.body || resp.StatusCode != test.status || resp.Header.Get("X-Request-Id") != "r1" {
					t.Errorf("got %d with %d bytes (%v), want %d with the %d bytes that came", resp.StatusCode, len(body), err, test.status, len(test.body))
				}
				resp.Body.Close()
				if p.count() != test.attempts {
					t.Errorf("%d requests, want %d", p.count(), test.attempts)
				}
				l.expect(t, 0, 0)
				if n := booked(t, g, "tokens"); n != 0 {
					t.Errorf("the gate counts %d tokens of a refused call", n)
				}
			})
		})
	}
}

// The gate hears of a refusal even where nobody tries again: the next call waits
// for the hinted time.
func TestRefusalSpeaksToTheOthersThoughRetriesAreOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := chatVendor()
		g := newGate(t, tokens(100_000))
		p := newProvider(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				refuseOpenAI(w, 429, "20")
				return
			}
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, v.answer("hi", 5, 3))
		})
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{NoRetries: true})
		if _, err := v.unary(t.Context(), rt); err == nil {
			t.Fatal("the refusal did not reach the client")
		}
		start := time.Now()
		if _, err := v.unary(t.Context(), rt); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 20*time.Second {
			t.Errorf("the next call went out after %v, before the hinted 20s", d)
		}
	})
}

// A body that cannot be had again and is too long to be kept is sent as it comes,
// once.
func TestBodyThatCannotBeReplayedIsNotRetried(t *testing.T) {
	t.Parallel()
	text := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 2000) + `"}]}`
	for name, test := range map[string]struct {
		most     int64
		getBody  bool
		attempts int
	}{
		"kept in memory":       {0, false, 2},
		"longer than the cap":  {1000, false, 1},
		"longer, but GetBody":  {1000, true, 2},
		"exactly at the bound": {int64(len(text)), false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				p := newProvider(t, func(n int, w http.ResponseWriter, _ *http.Request) {
					if n == 1 {
						refuseOpenAI(w, 429, "1")
					}
				})
				defer p.Close()
				closed := 0
				body := &counted{Reader: strings.NewReader(text), closed: &closed}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, body)
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = int64(len(text))
				if test.getBody {
					req.GetBody = func() (io.ReadCloser, error) {
						closed--
						return &counted{Reader: strings.NewReader(text), closed: &closed}, nil
					}
				}
				l := &ledger{}
				resp, err := newTransport(t, p.base(), g, httpgate.Config{MaxBuffered: test.most, Budgets: []budget.Budget{l}}).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				synctest.Wait()
				if p.count() != test.attempts {
					t.Errorf("%d requests, want %d", p.count(), test.attempts)
				}
				for i, b := range p.bodies {
					if b != text {
						t.Errorf("request %d had %d bytes, want the %d that were given", i+1, len(b), len(text))
					}
				}
				if n := l.last(t).Usage.Input; n < 1800 || n > 3500 {
					t.Errorf("2,000 words were estimated at %d tokens", n)
				}
				if closed != 1 {
					t.Errorf("bodies were closed %+d times too often", closed-1)
				}
			})
		})
	}
}

// counted is a body that counts how often it was closed the first time.
type counted struct {
	io.Reader
	closed *int
	once   bool
}

func (c *counted) Close() error {
	if !c.once {
		c.once = true
		*c.closed++
	}
	return nil
}

// Errors of the round tripper come back as they are, and a provider that cannot
// be reached is tried again.
func TestErrorsOfTheRoundTripperComeBackAsTheyAre(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	unsent := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x.invalid"}}
	for name, test := range map[string]struct {
		err      error
		attempts int
		charged  bool
	}{
		"broken":   {broken, 1, true},
		"not sent": {unsent, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, tokens(1000))
				n := 0
				l := &ledger{}
				rt := newTransport(t, roundTripper(func(req *http.Request) (*http.Response, error) {
					n++
					if _, err := io.ReadAll(req.Body); err != nil {
						t.Error(err)
					}
					req.Body.Close()
					return nil, test.err
				}), g, httpgate.Config{Budgets: []budget.Budget{l}})
				_, err := rt.RoundTrip(chatRequest(t, t.Context(), chatURL))
				if err != test.err || n != test.attempts {
					t.Errorf("%v after %d attempts, want %v after %d", err, n, test.err, test.attempts)
				}
				want := int64(0)
				if test.charged {
					want = l.last(t).Usage.Input
				}
				l.expect(t, 0, want)
				mustBeIdle(t, g)
			})
		})
	}
}

// After the headers of an answer were handed out nothing is sent again: what the
// reader has cannot be taken back.
func TestNothingIsRetriedAfterTheHeaders(t *testing.T) {
	t.Parallel()
	for _, v := range vendors() {
		t.Run(v.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 4})
				p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					sendEvents(w, r, 0, v.fail())
				})
				defer p.Close()
				l := &ledger{}
				start := time.Now()
				if text, err := v.collect(t.Context(), newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})); err == nil || text != "" {
					t.Errorf("got %q, %v; want the provider's error", text, err)
				}
				if p.count() != 1 || time.Since(start) != 0 {
					t.Errorf("%d requests in %v, want one without a wait", p.count(), time.Since(start))
				}
				if s := g.Stats(); s.Slots >= s.SlotLimit {
					t.Errorf("%d slots are in force: the gate was not told of the overload", s.Slots)
				}
				l.expect(t, 0, l.last(t).Usage.Input)
				mustBeIdle(t, g)
			})
		})
	}
}

// A wait that runs out while a refused call is in line is a refusal of our own,
// which knows why it came to that.
func TestWaitThatRunsOutInBackoffIsAnOwnRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) { refuseOpenAI(w, 429, "10") })
		defer p.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		_, err := newTransport(t, p.base(), g, httpgate.Config{Refusals: httpgate.AsResponse}).RoundTrip(chatRequest(t, ctx, chatURL))
		wait, ok := errors.AsType[*ratelimited.WaitError](err)
		if !ok || wait.Throttled == nil || retry.Classify(err).Class != retry.Denied {
			t.Errorf("got %v, want a WaitError that holds the refusal", err)
		}
	})
}
