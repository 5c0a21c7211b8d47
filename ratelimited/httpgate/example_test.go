package httpgate_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// A client that is made somewhere else, by a framework for instance, is put behind
// the gate by its http.Client.
func Example() {
	double, err := gemini.New(gemini.Config{OutputTokens: 50})
	if err != nil {
		log.Fatal(err)
	}
	api := memhttp.New(double) // or the real one, with http.DefaultTransport
	defer api.Close()

	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots:   30,
		Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1_000_000}),
	})
	if err != nil {
		log.Fatal(err)
	}
	rt, err := httpgate.New(api.Client().Transport, gate, httpgate.Config{})
	if err != nil {
		log.Fatal(err)
	}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: "key", HTTPClient: &http.Client{Transport: rt},
		HTTPOptions: genai.HTTPOptions{BaseURL: api.URL},
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx := ratelimited.WithFlow(context.Background(), "user-1")
	for resp, err := range client.Models.GenerateContentStream(ctx, "gemini-2.5-flash", genai.Text("Hello"), nil) {
		if err != nil {
			log.Fatal(err)
		}
		if u := resp.UsageMetadata; resp.Candidates[0].FinishReason != "" {
			fmt.Println("answered with", u.CandidatesTokenCount, "tokens,", gate.Stats().SlotsInUse, "slots in use")
		}
	}
	// Output: answered with 50 tokens, 0 slots in use
}

// With AsResponse, own refusals look like the provider's, so that an SDK reads
// them.
func ExampleNew_asResponse() {
	gate, err := ratelimited.NewGate(ratelimited.Config{Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 10})})
	if err != nil {
		log.Fatal(err)
	}
	rt, err := httpgate.New(nil, gate, httpgate.Config{Refusals: httpgate.AsResponse})
	if err != nil {
		log.Fatal(err)
	}
	body := `{"contents":[{"parts":[{"text":"` + strings.Repeat("many words ", 50) + `"}]}]}`
	client := &http.Client{Transport: rt}
	resp, err := client.Post("https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent", "application/json", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 400 Bad Request
}
