package ratelimited_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// greeter stands for a model of an agent framework.
type greeter struct{}

func (greeter) Name() string { return "greeter" }

func (greeter) GenerateContent(_ context.Context, req *LLMRequest, _ bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		yield(&LLMResponse{
			Content:       genai.NewContentFromText("Hello, "+req.Contents[0].Parts[0].Text+".", genai.RoleModel),
			UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 2, CandidatesTokenCount: 4, TotalTokenCount: 6},
		}, nil)
	}
}

// Wrap the one shared model once, and hand the wrapper to every agent.
func ExampleNew() {
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots:   30,
		Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1_000_000}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	llm, err := ratelimited.New(greeter{}, gate)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := ratelimited.WithFlow(context.Background(), "ada")
	for resp, err := range llm.GenerateContent(ctx, &LLMRequest{Contents: genai.Text("Ada")}, false) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.Content.Parts[0].Text)
	}
	// Output: Hello, Ada.
}

// A program whose models have another shape uses the gate directly.
func ExampleGate_Acquire() {
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots: 30,
		Profile: ratelimited.Profile{Name: "example", Dimensions: []ratelimited.Dimension{
			{Name: "tokens", Limit: 10_000, Count: ratelimited.TotalTokens},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := gate.Acquire(context.Background(), ratelimited.Call{
		Flow:  "ada",
		Usage: usage.Usage{Input: 800, Output: 200},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release() // if it is not sent after all
	// … send it …
	permit.End(usage.Usage{Input: 790, Output: 110})

	tokens := gate.Stats().Dimensions[0]
	fmt.Printf("%d of %d tokens left this minute\n", tokens.Level, tokens.Limit)
	// Output: 8100 of 10000 tokens left this minute
}

// A call that does not want to wait is told when to come back.
func ExampleWithMaxWait() {
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots: 1, Headroom: 1,
		Profile: ratelimited.Profile{Name: "example", Dimensions: []ratelimited.Dimension{
			{Name: "requests", Limit: 60, Shape: ratelimited.Bucket, Window: time.Hour, Burst: time.Minute, Count: ratelimited.OneRequest},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := ratelimited.WithMaxWait(context.Background(), 0)
	for range 2 {
		permit, err := gate.Acquire(ctx, ratelimited.Call{})
		if refused, ok := errors.AsType[*ratelimited.WaitError](err); ok {
			fmt.Println("not now, but in", refused.RetryAfter().Round(time.Minute))
			return
		}
		fmt.Println("sent")
		permit.End(usage.Usage{})
	}
	// Output:
	// sent
	// not now, but in 1m0s
}
