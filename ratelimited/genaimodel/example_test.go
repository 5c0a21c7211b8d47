package genaimodel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

// A client of the SDK behind a gate. A double of the Gemini API answers here.
func Example() {
	double, err := gemini.New(gemini.Config{
		Answer: func(_ gemini.Request, a *gemini.Answer) { a.Text = "Hello to you, too." },
	})
	if err != nil {
		log.Fatal(err)
	}
	srv := memhttp.New(double)
	defer srv.Close()

	ctx := context.Background()
	client, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI,
		HTTPClient:  &http.Client{Transport: &retry.Transport{Base: srv.Client().Transport}},
		HTTPOptions: genai.HTTPOptions{BaseURL: srv.URL}, // leave it out to reach the API itself
	})
	if err != nil {
		log.Fatal(err)
	}
	model, err := genaimodel.New(client, "gemini-2.5-flash")
	if err != nil {
		log.Fatal(err)
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots:   30,
		Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1_000_000}),
	})
	if err != nil {
		log.Fatal(err)
	}
	llm, err := ratelimited.New(model, gate)
	if err != nil {
		log.Fatal(err)
	}
	for resp, err := range llm.GenerateContent(ctx, &genaimodel.Request{Contents: genai.Text("Hello")}, true) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(resp.Text())
	}
	fmt.Println()
	// Output: Hello to you, too.
}
