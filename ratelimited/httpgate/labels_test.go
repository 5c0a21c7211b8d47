package httpgate_test

import (
	"context"
	"io"
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

// framework is a context that answers for itself, as those of agent frameworks
// do.
type framework struct{ context.Context }

func (framework) AgentName() string    { return "planner" }
func (framework) UserID() string       { return "user" }
func (framework) InvocationID() string { return "click" }

// Who calls is told by the request's context, and which model by path or body.
func TestBudgetIsToldAgentAndModel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ctx          func(context.Context) context.Context
		path         string
		agent, model string
	}{
		"label":     {func(ctx context.Context) context.Context { return ratelimited.WithAgent(ctx, "writer") }, "/v1/chat/completions", "writer", "gpt-5"},
		"framework": {func(ctx context.Context) context.Context { return framework{ctx} }, "/v1/chat/completions", "planner", "gpt-5"},
		"azure":     {func(ctx context.Context) context.Context { return ctx }, "/openai/deployments/mine/chat/completions", "", "mine"},
		"gemini":    {func(ctx context.Context) context.Context { return ctx }, "/v1beta/models/gemini-3-pro:generateContent", "", "gemini-3-pro"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				l := &ledger{}
				rt := newTransport(t, roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
				}), g, httpgate.Config{Budgets: []budget.Budget{l}})
				resp, err := rt.RoundTrip(chatRequest(t, c.ctx(t.Context()), "http://x.invalid"+c.path))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if call := l.last(t); call.Agent != c.agent || call.Model != c.model || call.ID == "" {
					t.Errorf("told agent %q and model %q, want %q and %q", call.Agent, call.Model, c.agent, c.model)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// Flows share a gate fairly, whichever client they use: one that floods it does
// not keep another one waiting behind all of its calls.
func TestFlowsShareTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := chatVendor()
		g := newGate(t, ratelimited.Config{Slots: 1})
		p := newProvider(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			wait(r.Context(), time.Second)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, v.answer("hi", 5, 3))
		})
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{})
		for range 20 {
			go v.unary(ratelimited.WithFlow(t.Context(), "flood"), rt)
		}
		synctest.Wait()
		start := time.Now()
		if _, err := v.unary(ratelimited.WithFlow(t.Context(), "other"), rt); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("another flow's call took %v behind 20 of one second", d)
		}
		time.Sleep(time.Minute)
		mustBeIdle(t, g)
	})
}

// Estimates are corrected by what calls of the same model and label have used.
func TestEstimatesLearnFromAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := chatVendor()
		g := newGate(t, ratelimited.Config{Slots: 1})
		l := &ledger{}
		p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, v.answer("hi", 100, 3))
		})
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
		var first int64
		for i := range 30 {
			if _, err := v.unary(t.Context(), rt); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = l.last(t).Usage.Input
			}
		}
		if n := l.last(t).Usage.Input; first > 50 || n < 80 || n > 200 {
			t.Errorf("estimated at %d tokens first and at %d after 30 answers of 100", first, n)
		}
	})
}

// What the provider says is left lowers what the gate believes is left.
func TestReportedLimitsReachTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := chatVendor()
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: ratelimited.Profile{Dimensions: []ratelimited.Dimension{
			{Name: "requests", Limit: 1000, Count: ratelimited.OneRequest, Resource: retry.Requests},
		}}})
		p := newProvider(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Ratelimit-Remaining-Requests", "7")
			w.Header().Set("X-Ratelimit-Reset-Requests", "30s")
			io.WriteString(w, v.answer("hi", 5, 3))
		})
		defer p.Close()
		if _, err := v.unary(t.Context(), newTransport(t, p.base(), g, httpgate.Config{})); err != nil {
			t.Fatal(err)
		}
		if level := g.Stats().Dimensions[0].Level; level > 7 {
			t.Errorf("the gate believes that %d requests are left, the provider says 7", level)
		}
	})
}

// A reader that is closed while it waits for bytes is woken, and the call ends.
func TestCloseWakesAReadThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		p := newProvider(t, held("null"))
		defer p.Close()
		resp, err := newTransport(t, p.base(), g, httpgate.Config{}).RoundTrip(chatRequest(t, t.Context(), chatURL))
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := io.ReadAll(resp.Body)
			read <- err
		}()
		synctest.Wait()
		if s := g.Stats(); s.SlotsInUse != 1 {
			t.Errorf("%d slots in use, want 1", s.SlotsInUse)
		}
		for range 3 {
			_ = resp.Body.Close()
		}
		if s := g.Stats(); s.SlotsInUse != 0 {
			t.Errorf("%d slots in use after Close, want none", s.SlotsInUse)
		}
		if err := <-read; err == nil {
			t.Error("the read ended without an error")
		}
		mustBeIdle(t, g)
	})
}
