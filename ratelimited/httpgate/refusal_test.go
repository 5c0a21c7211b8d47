package httpgate_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
	"github.com/headgate-go/headgate/retry"
)

// refusing makes a transport that refuses every call for a reason, and sends
// none.
func refusing(t *testing.T, why string, form httpgate.Refusal) *httpgate.Transport {
	t.Helper()
	cfg := tokens(1000)
	cfg.MaxWait = new(time.Duration)
	var budgets []budget.Budget
	switch why {
	case "never fits":
		cfg.Profile.Dimensions[0].Limit = 1
	case "budget":
		budgets = append(budgets, &ledger{deny: &budget.DeniedError{Budget: "user", Unit: "tokens", Limit: 10, Used: 10, Requested: 5, RetryAfter: 90 * time.Second}})
	case "budget, for long":
		budgets = append(budgets, &ledger{deny: &budget.DeniedError{Budget: "user", Unit: "tokens", Limit: 10, Used: 10, Requested: 5}})
	}
	g := newGate(t, cfg)
	switch why {
	case "wait":
		p, err := g.Acquire(t.Context(), ratelimited.Call{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Release)
	case "closed":
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
		t.Error("a refused call was sent")
		return nil, errors.New("sent")
	}), g, httpgate.Config{Refusals: form, Budgets: budgets})
}

// Own refusals are errors that any layer can tell apart, through the SDKs too.
func TestOwnRefusalIsAnErrorThatCanBeMatched(t *testing.T) {
	t.Parallel()
	for why, match := range map[string]func(error) bool{
		"wait":             func(err error) bool { return errors.Is(err, ratelimited.ErrWait) },
		"closed":           func(err error) bool { return errors.Is(err, ratelimited.ErrClosed) },
		"never fits":       func(err error) bool { return errors.Is(err, ratelimited.ErrNeverFits) },
		"budget":           func(err error) bool { return errors.Is(err, budget.ErrDenied) },
		"budget, for long": func(err error) bool { return errors.Is(err, budget.ErrDenied) },
	} {
		for _, v := range vendors() {
			t.Run(why+"/"+v.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					_, err := v.unary(t.Context(), refusing(t, why, httpgate.AsError))
					if !match(err) {
						t.Errorf("got %v", err)
					}
					if c := retry.Classify(err).Class; c != retry.Denied && c != retry.NeverFits {
						t.Errorf("classified as %v, want an own refusal", c)
					}
					if strings.Contains(err.Error(), "hello there") {
						t.Errorf("the error quotes the prompt: %v", err)
					}
				})
			})
		}
	}
}

// As responses, own refusals have the provider's form: its SDK reads status, time
// and whether to try again.
func TestOwnRefusalIsAResponseOfTheProvidersForm(t *testing.T) {
	t.Parallel()
	for why, want := range map[string]struct {
		status       int
		after, again string
	}{
		"wait":             {429, "", "true"},
		"closed":           {503, "", "false"},
		"never fits":       {400, "", "false"},
		"budget":           {429, "90", "true"},
		"budget, for long": {429, "", "false"},
	} {
		for _, v := range vendors() {
			t.Run(why+"/"+v.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var header http.Header
					rt := refusing(t, why, httpgate.AsResponse)
					_, err := v.unary(t.Context(), roundTripper(func(req *http.Request) (*http.Response, error) {
						resp, err := rt.RoundTrip(req)
						if err == nil {
							header = resp.Header
						}
						return resp, err
					}))
					status, message := statusOf(err)
					if status != want.status || !strings.Contains(message, "ratelimited: ") && !strings.Contains(message, "budget ") {
						t.Errorf("the SDK made of it %d %q (%v), want %d and what was refused", status, message, err, want.status)
					}
					after, wantAfter := header.Get("Retry-After"), want.after
					if why == "wait" {
						wantAfter = after // a forecast
					}
					if after != wantAfter || header.Get("X-Should-Retry") != want.again {
						t.Errorf("Retry-After %q, X-Should-Retry %q; want %q and %q", after, header.Get("X-Should-Retry"), wantAfter, want.again)
					}
					v := retry.Classify(err)
					if hint := 90 * time.Second; want.after == "90" && status == 429 && v.HasHint && v.Hint != hint {
						t.Errorf("the hint is %v, want %v", v.Hint, hint)
					}
				})
			})
		}
	}
}

// statusOf is what an SDK's error says.
func statusOf(err error) (int, string) {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e.StatusCode, e.Message
	}
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return e.StatusCode, e.RawJSON()
	}
	if e, ok := errors.AsType[genai.APIError](err); ok {
		return e.Code, e.Message
	}
	return 0, ""
}

// The end of the caller's context is never dressed up as a response.
func TestEndOfTheContextStaysAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := refusing(t, "wait", httpgate.AsResponse).RoundTrip(chatRequest(t, ctx, chatURL))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the cancellation", err)
		}
	})
}

// The request's body is closed even if nothing is sent.
func TestBodyIsClosedWhateverHappens(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"refused by the gate": "/v1/chat/completions", "unknown": "/v1/batches", "live": "/v1/realtime",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				closed := 0
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.invalid"+path, &counted{Reader: strings.NewReader("{}"), closed: &closed})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := refusing(t, "wait", httpgate.AsError).RoundTrip(req); err == nil {
					t.Error("the request was not refused")
				}
				if closed != 1 {
					t.Errorf("the body was closed %d times, want once", closed)
				}
			})
		})
	}
}

// A body that fails while it is read fails the request, which was not sent.
func TestRequestWhoseBodyCannotBeReadIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			t.Error("it was sent")
			return nil, nil
		}), g, httpgate.Config{})
		broken := errors.New("disk")
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, chatURL, io.NopCloser(io.MultiReader(strings.NewReader("{"), failing{broken})))
		if _, err := rt.RoundTrip(req); !errors.Is(err, broken) {
			t.Errorf("got %v, want the body's error", err)
		}
		// And one that hangs ends with its context.
		r, w := io.Pipe()
		defer w.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, _ = http.NewRequestWithContext(ctx, http.MethodPost, chatURL, r)
		if _, err := rt.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		if _, err := rt.RoundTrip(&http.Request{}); err == nil {
			t.Error("a request without a URL was accepted")
		}
		mustBeIdle(t, g)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Behind an http.Client, an own refusal is inside of a url.Error, whose text must
// not show a key.
func TestRouteErrorDoesNotShowTheQuery(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 1})
	client := &http.Client{Transport: newTransport(t, nil, g, httpgate.Config{})}
	_, err := client.Post("http://x.invalid/v1/other?key=secret", "", nil)
	e, ok := errors.AsType[*httpgate.RouteError](err)
	if !ok || !errors.Is(err, httpgate.ErrRoute) || strings.Contains(e.Error(), "secret") || e.Live {
		t.Errorf("got %v, want a RouteError without the query", err)
	}
	if _, ok := errors.AsType[*url.Error](err); !ok || retry.Classify(err).Class != retry.Denied {
		t.Errorf("got %v, want an own refusal inside of a url.Error", err)
	}
}
