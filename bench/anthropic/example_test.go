package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/bench/anthropic"
)

// A double with a quota of 1,000 output tokens a minute: an answer of any length
// is admitted, and the next call is refused until it has been made good. The
// minute is a tenth as long, and so is the advised delay.
func Example() {
	double, err := anthropic.New(anthropic.Config{OutputTPM: 1000, OutputTokens: 1500, Speed: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(double)
	defer server.Close()
	client := sdk.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("any"), option.WithMaxRetries(0))

	for range 2 {
		m, err := client.Messages.New(context.Background(), sdk.MessageNewParams{
			Model: "claude-sonnet-4-5", MaxTokens: 4000,
			Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("Why do canals have gates?"))},
		})
		if e, ok := errors.AsType[*sdk.Error](err); ok {
			fmt.Println(e.StatusCode, e.Type(), "retry after", e.Response.Header.Get("Retry-After"))
			continue
		}
		fmt.Println(m.Usage.InputTokens, "in,", m.Usage.OutputTokens, "out")
	}
	// Output:
	// 7 in, 1500 out
	// 429 rate_limit_error retry after 3
}
