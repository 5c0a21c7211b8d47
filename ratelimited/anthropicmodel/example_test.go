package anthropicmodel_test

import (
	"context"
	"fmt"
	"log"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
)

// A client of the SDK behind a gate. A double of the API answers here.
func Example() {
	double, err := anthropic.New(anthropic.Config{
		Answer: func(_ anthropic.Request, a *anthropic.Answer) { a.Text = "Hello to you, too." },
	})
	if err != nil {
		log.Fatal(err)
	}
	srv := memhttp.New(double)
	defer srv.Close()

	client := sdk.NewClient(
		option.WithAPIKey("key"),
		option.WithHTTPClient(srv.Client()), option.WithBaseURL(srv.URL), // leave these out to reach the API itself
	)
	model, err := anthropicmodel.New(client, "claude-sonnet-4-5")
	if err != nil {
		log.Fatal(err)
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots: 30,
		Profile: ratelimited.Anthropic(ratelimited.AnthropicQuota{
			RequestsPerMinute: 1000, InputTokensPerMinute: 450_000, OutputTokensPerMinute: 90_000,
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	llm, err := ratelimited.New(model, gate)
	if err != nil {
		log.Fatal(err)
	}
	req := &anthropicmodel.Request{Params: sdk.MessageNewParams{
		MaxTokens: 1024,
		Messages:  []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("Hello"))},
	}}
	for resp, err := range llm.GenerateContent(context.Background(), req, true) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(resp.Text())
	}
	fmt.Println()
	// Output: Hello to you, too.
}

// At Bedrock max_tokens is set aside when a call is admitted, so the gate does
// the same.
func ExampleWithMaxTokensReserved() {
	client := sdk.NewClient(option.WithAPIKey("key")) // for Bedrock itself, with the SDK's option for it
	model, err := anthropicmodel.New(client, "anthropic.claude-sonnet-4-5", anthropicmodel.WithMaxTokensReserved())
	if err != nil {
		log.Fatal(err)
	}
	profile := ratelimited.Bedrock(ratelimited.BedrockQuota{TokensPerMinute: 200_000})
	estimate := model.Meter().Estimate(&anthropicmodel.Request{Params: sdk.MessageNewParams{
		MaxTokens: 4096,
		Messages:  []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("Hello"))},
	}})
	fmt.Println(estimate.Output, profile.Dimensions[0].Count(estimate) > 4096)
	// Output: 4096 true
}
