package counttokens_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/counttokens"
)

// Anthropic's count_tokens, by its SDK. A double of the API answers here.
func ExampleNew_anthropic() {
	double, err := anthropic.New(anthropic.Config{})
	if err != nil {
		log.Fatal(err)
	}
	srv := memhttp.New(double)
	defer srv.Close()
	client := sdk.NewClient(
		option.WithAPIKey("key"),
		option.WithHTTPClient(srv.Client()), option.WithBaseURL(srv.URL), // leave these out to reach the API itself
	)

	type params = sdk.MessageCountTokensParams
	body := func(p params) json.RawMessage {
		data, _ := json.Marshal(p) // a request that is no JSON is never counted
		return data
	}
	counter, err := counttokens.New(counttokens.Config[params]{
		Count: func(ctx context.Context, p params) (int64, error) {
			// The count is of all input, whether it will be cached or not.
			n, err := client.Messages.CountTokens(ctx, p, option.WithMaxRetries(0))
			if err != nil {
				return 0, err
			}
			return n.InputTokens, nil
		},
		// The copy is the request as it will be sent.
		Clone: func(p params) params { return param.Override[params](body(p)) },
		Estimate: func(p params) usage.Usage {
			return usage.Usage{Input: usage.Anthropic.Text(string(body(p))), Output: 200, Flags: usage.Estimated}
		},
		Timeout: 2 * time.Second,
		Failure: func(err error) bool { // not of the request
			e, ok := errors.AsType[*sdk.Error](err)
			return !ok || e.StatusCode != http.StatusBadRequest && e.StatusCode != http.StatusRequestEntityTooLarge
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counter.Estimate(context.Background(), params{
		Model:    "claude-sonnet-4-5",
		System:   sdk.MessageCountTokensParamsSystemUnion{OfString: sdk.String("Answer in one word.")},
		Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("Where is the gate, and who may open it?"))},
	}))
	// Output: input=15 output=200 total=215 estimated true
}
