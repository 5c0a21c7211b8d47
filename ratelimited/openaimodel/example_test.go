package openaimodel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	double "github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/openaimodel"
	"github.com/headgate-go/headgate/retry"
)

// provider stands for OpenAI in the examples.
func provider(cfg double.Config) *httptest.Server {
	d, err := double.New(cfg)
	if err != nil {
		panic(err)
	}
	return httptest.NewServer(d)
}

func Example() {
	server := provider(double.Config{RPM: 500, TPM: 200_000, OutputTokens: 30})
	defer server.Close()
	client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("key"))

	model, err := openaimodel.NewChat(client, "gpt-5-mini")
	if err != nil {
		fmt.Println(err)
		return
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots:   30,
		Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 500, TokensPerMinute: 200_000}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	llm, err := ratelimited.New(model, gate)
	if err != nil {
		fmt.Println(err)
		return
	}

	req := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Why do canals have gates?")},
	}}
	characters := 0
	for resp, err := range llm.GenerateContent(context.Background(), req, true) {
		if err != nil {
			fmt.Println(err)
			return
		}
		characters += len(resp.Text())
		if resp.Chunk.Usage.TotalTokens > 0 { // comes after the answer, although nobody asked for it
			fmt.Println(resp.Chunk.Usage.CompletionTokens, "tokens of output")
		}
	}
	fmt.Println(characters, "characters")
	// Output:
	// 30 tokens of output
	// 120 characters
}

func ExampleNewResponses() {
	server := provider(double.Config{OutputTokens: 30, Reasoning: 100})
	defer server.Close()
	client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("key"))

	model, err := openaimodel.NewResponses(client, "gpt-5-mini", openaimodel.WithTypicalOutput(400))
	if err != nil {
		fmt.Println(err)
		return
	}
	req := &openaimodel.ResponsesRequest{Params: responses.ResponseNewParams{
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Why do canals have gates?")},
	}}
	for resp, err := range model.GenerateContent(context.Background(), req, false) {
		if err != nil {
			fmt.Println(err)
			return
		}
		used, _ := model.Meter().Observe(resp)
		fmt.Println(resp.Response.Status, used)
	}
	// Output:
	// completed input=7 output=130 thoughts=100 total=137
}

// Two refusals with the same status: one passes, the other waits for somebody
// who pays. The text of an error tells no more than that.
func ExampleError() {
	for _, fault := range []string{"429-tokens@n=1,retry=6s", "429-spend@n=1"} {
		server := provider(double.Config{Faults: []string{fault}})
		client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("key"),
			option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
				resp, err := next(req)
				if err == nil {
					resp.Header.Set("X-Request-Id", "req_1")
				}
				return resp, err
			}))
		model, err := openaimodel.NewChat(client, "gpt-5-mini")
		if err != nil {
			fmt.Println(err)
			return
		}
		req := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
		}}
		for _, err := range model.GenerateContent(context.Background(), req, false) {
			v := retry.Classify(err)
			fmt.Println(err)
			fmt.Println(v.Class, v.Resources, v.Hint)
			var sdk *openai.Error
			fmt.Println(errors.As(err, &sdk))
		}
		server.Close()
	}
	// Output:
	// openaimodel: the API answered 429 Too Many Requests, rate_limit_exceeded (request req_1)
	// throttled total_tokens 6s
	// true
	// openaimodel: the API answered 429 Too Many Requests, organization_spend_limit_exceeded (request req_1)
	// quota_exhausted none 0s
	// true
}
