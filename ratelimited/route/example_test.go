package route_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// provider stands for a model of an agent framework; it may be overloaded.
type provider struct {
	name string
	down bool
}

func (p provider) Name() string { return p.name }

func (p provider) GenerateContent(_ context.Context, req *LLMRequest, _ bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		if p.down {
			yield(nil, genai.APIError{Code: http.StatusServiceUnavailable})
			return
		}
		yield(&LLMResponse{Content: genai.NewContentFromText(fmt.Sprintf("%s, asked for %s: Hello.", p.name, req.Model), genai.RoleModel)}, nil)
	}
}

// behindGate is what a program has for each of its models anyhow.
func behindGate(p provider, quota ratelimited.Quota) *ratelimited.RateLimitedModel[*LLMRequest, *LLMResponse] {
	gate, err := ratelimited.NewGate(ratelimited.Config{Name: p.name, Slots: 30, Profile: ratelimited.GeminiAPI(quota)})
	if err != nil {
		panic(err)
	}
	llm, err := ratelimited.New(p, gate)
	if err != nil {
		panic(err)
	}
	return llm
}

// A large model, and a small one for when the large one is out of reach.
func ExampleNew() {
	large := behindGate(provider{name: "large", down: true}, ratelimited.Quota{RequestsPerMinute: 300})
	small := behindGate(provider{name: "small"}, ratelimited.Quota{RequestsPerMinute: 3000})
	pool, err := route.New(route.Config{Name: "chat"}, []route.Route[*LLMRequest, *LLMResponse]{
		{Name: "large", Model: large},
		{Name: "small", Model: small, Tier: 1, Rewrite: func(req *LLMRequest) *LLMRequest {
			copied := *req
			copied.Model = "small"
			return &copied
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A framework puts the model's name into the request, and takes the pool for it.
	req := &LLMRequest{Model: pool.Name(), Contents: genai.Text("Hello?")}
	ctx := route.Sticky(context.Background(), "session 42") // its prompts begin alike
	for resp, err := range pool.GenerateContent(ctx, req, false) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.Content.Parts[0].Text)
	}
	// Output: small, asked for small: Hello.
}
