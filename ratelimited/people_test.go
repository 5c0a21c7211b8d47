package ratelimited_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
)

// people is an enforcer over a ledger in memory.
func people(t *testing.T, cfg quota.Config, limits ...quota.Limit) *quota.Enforcer {
	t.Helper()
	l, err := quota.NewLimits(quota.LimitsConfig{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Ledger, cfg.Limits, cfg.Logger = ledger, l, slog.New(slog.DiscardHandler)
	e, err := quota.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func person(t *testing.T, name string) context.Context {
	return quota.WithSubject(t.Context(), quota.Subject{Tenant: "acme", User: name})
}

// mustStand checks what is spent and reserved of a limit.
func mustStand(t *testing.T, e *quota.Enforcer, ctx context.Context, limit string, u quota.Unit, spent, reserved int64) {
	t.Helper()
	s, _ := quota.SubjectFrom(ctx)
	all, err := e.Status(context.WithoutCancel(ctx), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		if st.Limit == limit && st.Unit == u {
			if st.Committed != spent || st.Reserved != reserved {
				t.Errorf("%s stands at %d spent and %d reserved, want %d and %d", limit, st.Committed, st.Reserved, spent, reserved)
			}
			return
		}
	}
	t.Errorf("%s is not limited by %v: %+v", limit, u, all)
}

func tokensADay(n int64) quota.Limit {
	return quota.Limit{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: n, quota.Calls: 1000}}
}

// However a call ends, the person is charged for what the provider has bought, and
// nothing stays reserved.
func TestAPersonIsChargedWhatTheProviderHasServed(t *testing.T) {
	for name, c := range map[string]struct {
		play  func(ctx context.Context, call int, yield yields)
		stop  bool // after the first item
		spent int64
		calls int
	}{
		"served":                       {func(_ context.Context, _ int, y yields) { y(final(30, 20), nil) }, false, 50, 1},
		"refused, then served":         {func(_ context.Context, n int, y yields) { refuseFirst(n, y) }, false, 50, 2},
		"refused for good":             {func(_ context.Context, _ int, y yields) { y(nil, badRequest()) }, false, 0, 1},
		"not sent":                     {func(_ context.Context, _ int, y yields) { y(nil, notSent()) }, false, 0, 3},
		"cut off after a usage report": {func(_ context.Context, _ int, y yields) { cutOff(y) }, false, 37, 1},
	} {
		bubbleRun(t, "call", name, func(t *testing.T) {
			e := people(t, quota.Config{}, tokensADay(10_000))
			g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini, MaxWait: ptr(time.Hour)})
			f := &fakeLLM{play: c.play}
			ctx := person(t, "ann")
			_ = call(ctx, wrap(t, f, g, ratelimited.WithBudgets(e.Budget())), hello())
			if f.count() != c.calls {
				t.Errorf("%d attempts, want %d", f.count(), c.calls)
			}
			mustStand(t, e, ctx, "day", quota.Tokens, c.spent, 0)
			mustBeIdle(t, g)
		})
	}
}

func refuseFirst(n int, yield yields) {
	if n == 1 {
		yield(nil, throttled())
		return
	}
	yield(final(30, 20), nil)
}

// cutOff is a stream that breaks after it has reported 37 tokens.
func cutOff(yield yields) {
	first := part("once upon")
	first.UsageMetadata = used(30, 7)
	if yield(first, nil) {
		yield(nil, errBroken)
	}
}

// While a call waits in line it holds what it reserved, and nothing once its
// context has ended.
func TestACallThatGivesUpInLineCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, quota.Config{}, tokensADay(100_000))
		g := newGate(t, ratelimited.Config{Slots: 1, MaxWait: ptr(time.Hour)})
		llm := wrap(t, answers(time.Minute, final(30, 20)), g, ratelimited.WithBudgets(e.Budget()))
		ctx := person(t, "ann")
		var all sync.WaitGroup
		all.Go(func() { _ = call(ctx, llm, hello()) })
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := call(short, llm, hello()); err == nil {
			t.Error("two calls had one slot")
		}
		all.Wait()
		mustStand(t, e, ctx, "day", quota.Tokens, 50, 0)
		mustStand(t, e, ctx, "day", quota.Calls, 1, 0)
		mustBeIdle(t, g)
	})
}

// The provider's 429 is none of a customer's quota, and the other way round.
func TestWhoRefusesIsToldApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, quota.Config{}, tokensADay(100))
		g := newGate(t, ratelimited.Config{Slots: 1, MaxWait: ptr(time.Second)})
		f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) { yield(nil, throttled(retryInfo("3600s"))) }}
		llm := wrap(t, f, g, ratelimited.WithBudgets(e.Budget()))
		req := hello()
		req.Config = &genai.GenerateContentConfig{MaxOutputTokens: 50}
		if err := call(person(t, "ann"), llm, req); err == nil || errors.Is(err, budget.ErrDenied) || errors.As(err, new(*quota.Denial)) {
			t.Errorf("throttled by the provider: %v", err)
		}
		req.Config.MaxOutputTokens = 5000
		var d *quota.Denial
		if err := call(person(t, "ann"), llm, req); !errors.As(err, &d) || d.Limit != "day" || f.count() != 1 {
			t.Errorf("above the person's limit: %v after %d calls", err, f.count())
		}
		mustBeIdle(t, g)
	})
}

// The last call of a budget is shortened to what is left, in the request that the
// provider gets.
func TestTheLastCallOfAPersonIsShortened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, quota.Config{FinalOutput: 20}, tokensADay(1000))
		g := newGate(t, ratelimited.Config{Slots: 2})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) { yield(final(100, int32(500/n)), nil) }}
		llm := wrap(t, f, g, ratelimited.WithBudgets(e.Budget()))
		ctx := person(t, "ann")
		req := func() *LLMRequest {
			r := prompt("hello")
			r.Config = &genai.GenerateContentConfig{MaxOutputTokens: 800}
			return r
		}
		if err := call(ctx, llm, req()); err != nil {
			t.Fatal(err)
		}
		mustStand(t, e, ctx, "day", quota.Tokens, 600, 0)
		if err := call(ctx, llm, req()); err != nil {
			t.Fatal(err)
		}
		first, last := f.requests[0].Config.MaxOutputTokens, f.requests[1].Config.MaxOutputTokens
		if first != 800 || last <= 0 || last > 400 {
			t.Errorf("calls were limited to %d and %d tokens of output, want 800 and what is left of 400", first, last)
		}
		mustStand(t, e, ctx, "day", quota.Tokens, 950, 0)
		mustBeIdle(t, g)
	})
}

// A turn's calls are bounded over sub-agents that run side by side, also where a
// sub-agent makes a context of its own.
func TestATurnsCallsAreBoundedOverItsSubAgents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, quota.Config{Turn: quota.TurnLimits{Calls: 5}}, tokensADay(1_000_000))
		g := newGate(t, ratelimited.Config{Slots: 3, MaxWait: ptr(time.Hour)})
		f := answers(time.Second, final(30, 20))
		llm := wrap(t, f, g, ratelimited.WithBudgets(e.Budget()))
		agent := func(ctx context.Context) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				var all sync.WaitGroup
				var mu sync.Mutex
				var denied int
				for range 4 {
					all.Go(func() {
						sub, cancel := context.WithTimeout(ctx, time.Hour)
						defer cancel()
						for range 2 {
							if err := call(sub, llm, hello()); errors.Is(err, budget.ErrDenied) {
								mu.Lock()
								denied++
								mu.Unlock()
							}
						}
					})
				}
				all.Wait()
				if denied != 3 {
					t.Errorf("%d of 8 calls were denied, want 3", denied)
				}
				yield("done", nil)
			}
		}
		ctx := person(t, "ann")
		for _, err := range quota.Run(ctx, e, agent) {
			if err != nil {
				t.Error(err)
			}
		}
		if f.count() != 5 {
			t.Errorf("the provider got %d calls, want 5", f.count())
		}
		mustStand(t, e, ctx, "day", quota.Tokens, 250, 0)
		mustBeIdle(t, g)
	})
}

// An agent ends with a last word instead of an error.
func TestADeniedCallIsAnsweredInItsStead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := people(t, quota.Config{}, tokensADay(60))
		g := newGate(t, ratelimited.Config{Slots: 1})
		f := answers(0, final(30, 20))
		req := func() *LLMRequest {
			r := prompt("hello")
			r.Config = &genai.GenerateContentConfig{MaxOutputTokens: 20}
			return r
		}
		polite := quota.AnswerModel[*LLMRequest, *LLMResponse](wrap(t, f, g, ratelimited.WithBudgets(e.Budget())), func(d *quota.Denial) (*LLMResponse, error) {
			return &LLMResponse{Content: genai.NewContentFromText("I had to stop early ("+string(d.Reason)+").", genai.RoleModel)}, nil
		})
		ctx := person(t, "ann")
		var last string
		for range 3 {
			items, err := collect(polite.GenerateContent(ctx, req(), false))
			if err != nil || len(items) != 1 {
				t.Fatal(items, err)
			}
			if c := items[0].Content; c != nil {
				last = c.Parts[0].Text
			}
		}
		if want := "I had to stop early (exhausted)."; last != want || f.count() != 1 {
			t.Errorf("the last word is %q after %d calls, want %q after 1", last, f.count(), want)
		}
		mustStand(t, e, ctx, "day", quota.Tokens, 50, 0)
		mustBeIdle(t, g)
	})
}
