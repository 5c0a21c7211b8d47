package ratelimited_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/ratelimited"
	"google.golang.org/genai"
)

// An agent framework cancels the siblings of a failed branch, with its error as
// the cause; a model may return that cause.
func TestTheCauseOfACancelIsNoThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := ratelimited.NewGate(ratelimited.Config{
			Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 100, InputTokensPerMinute: 100_000}),
		})
		if err != nil {
			t.Fatal(err)
		}
		sibling := genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{{
			"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20s",
		}}}
		ctx, cancel := context.WithCancelCause(t.Context())
		attempts := 0
		llm, err := ratelimited.New(&fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
			attempts++
			cancel(sibling)
			yield(nil, context.Cause(ctx))
		}}, g)
		if err != nil {
			t.Fatal(err)
		}
		for range llm.GenerateContent(ctx, &LLMRequest{Contents: genai.Text("hello")}, true) {
		}
		if attempts != 1 {
			t.Errorf("%d attempts, want 1", attempts)
		}
		for _, d := range g.Stats().Dimensions {
			if d.Share != 1 || !d.ClosedUntil.IsZero() {
				t.Errorf("%s was cut to %v or closed until %v by a sibling's refusal", d.Name, d.Share, d.ClosedUntil)
			}
		}
	})
}
