package ratelimited_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"google.golang.org/genai"
)

// Agent frameworks run tools, sub-agents and transfers while they hold the last
// item of a call. A call inside the yield of that item must not wait for its
// own slot: at a limit of 1 it would wait for ever.
func TestCallInsideTheLastItemDoesNotDeadlock(t *testing.T) {
	unary := func(_ context.Context, _ int, yield yields) { yield(final(10, 5), nil) }
	open := func(_ context.Context, _ int, yield yields) { yield(part("a"), nil) }
	stream := func(_ context.Context, _ int, yield yields) {
		_ = yield(part("a"), nil) && yield(final(10, 5), nil)
	}
	// The provider reports the usage in an item of its own, after the last one.
	late := func(_ context.Context, _ int, yield yields) {
		done := final(0, 0)
		done.UsageMetadata = nil
		_ = yield(part("a"), nil) && yield(done, nil) && yield(&LLMResponse{UsageMetadata: used(10, 5)}, nil)
	}
	coded := func(_ context.Context, _ int, yield yields) {
		yield(&LLMResponse{ErrorCode: "SAFETY", ErrorMessage: "blocked"}, nil)
	}
	failing := func(_ context.Context, _ int, yield yields) { yield(nil, badRequest()) }
	broken := func(_ context.Context, _ int, yield yields) {
		_ = yield(part("a"), nil) && yield(nil, errBroken)
	}
	for name, test := range map[string]struct {
		play   func(context.Context, int, yields)
		stream bool
	}{
		"one item":              {unary, false},
		"one item, not marked":  {open, false}, // without a stream nothing follows it
		"one item, streamed":    {unary, true},
		"stream":                {stream, true},
		"usage after the end":   {late, true},
		"item with error code":  {coded, true},
		"error before any item": {failing, true},
		"error after an item":   {broken, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1, MaxWait: ptr(time.Duration(0))})
				f := &fakeLLM{play: test.play}
				l := &ledger{}
				llm := wrap(t, f, g, ratelimited.WithBudgets(l))
				var depth func(n int)
				depth = func(n int) {
					if n == 0 {
						return
					}
					for item, err := range llm.GenerateContent(t.Context(), hello(), test.stream) {
						if f.count() == 0 {
							t.Fatalf("level %d was not admitted: %v", n, err)
						}
						if err != nil || !test.stream || !item.Partial && item.Content != nil || item.ErrorCode != "" {
							before := f.count()
							depth(n - 1)
							if n > 1 && f.count() == before {
								t.Errorf("the call inside level %d did not reach the model", n)
							}
						}
					}
				}
				depth(4)
				if f.count() != 4 {
					t.Errorf("%d calls reached the model, want 4", f.count())
				}
				mustBeIdle(t, g)
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.held != 0 {
					t.Errorf("%d tokens held, want none", l.held)
				}
			})
		})
	}
}

// What is settled at the last item is settled once, though the call goes on.
func TestUsageAfterTheLastItemIsBookedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		items  []*LLMResponse
		gate   int64 // input tokens
		ledger int64 // total
		ops    string
	}{
		"none follows": {
			items: []*LLMResponse{part("a"), final(30, 5)},
			gate:  30, ledger: 35, ops: "[settle]",
		},
		"repeated": {
			items: []*LLMResponse{final(30, 5), {UsageMetadata: used(30, 5)}, {UsageMetadata: used(30, 5)}},
			gate:  30, ledger: 35, ops: "[settle]",
		},
		"raised": {
			items: []*LLMResponse{final(30, 5), {UsageMetadata: used(50, 7)}},
			gate:  50, ledger: 57, ops: "[settle adjust]",
		},
		"raised twice": {
			items: []*LLMResponse{final(30, 5), {UsageMetadata: used(40, 7)}, {UsageMetadata: used(50, 7)}},
			gate:  50, ledger: 57, ops: "[settle adjust]",
		},
		"lowered": {
			items: []*LLMResponse{final(30, 5), {UsageMetadata: used(20, 5)}},
			gate:  30, ledger: 35, ops: "[settle]",
		},
		"only after it": {
			items: []*LLMResponse{{Content: genai.NewContentFromText("end", genai.RoleModel)}, {UsageMetadata: used(50, 7)}},
			gate:  50, ledger: 57, ops: "[settle]",
		},
	} {
		for kind := range ledgers("", 0, 0) {
			t.Run(name+" "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
					l := ledgers("", 0, 0)[kind]
					llm := wrap(t, answers(0, test.items...), g, ratelimited.WithBudgets(l))
					if err := call(t.Context(), llm, hello()); err != nil {
						t.Fatal(err)
					}
					if n := booked(t, g, "tokens"); n != test.gate {
						t.Errorf("the gate counts %d tokens, want %d", n, test.gate)
					}
					time.Sleep(time.Second)
					l.expect(t, 0, test.ledger)
					if got := fmt.Sprint(l.ops); got != test.ops {
						t.Errorf("the ledger was told %s, want %s", got, test.ops)
					}
					mustBeIdle(t, g)
				})
			})
		}
	}
}
