package retry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/retry"
)

// The error of the genai SDK has no headers. With a Transport below the SDK, the
// delay that was in a header arrives all the same.
func ExampleTransport() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}))
	defer provider.Close()

	ctx := context.Background()
	for _, transport := range []http.RoundTripper{http.DefaultTransport, &retry.Transport{}} {
		client, err := genai.NewClient(ctx, &genai.ClientConfig{
			APIKey:      "test",
			Backend:     genai.BackendGeminiAPI,
			HTTPClient:  &http.Client{Transport: transport},
			HTTPOptions: genai.HTTPOptions{BaseURL: provider.URL},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = client.Models.GenerateContent(ctx, "gemini-2.5-flash", genai.Text("hi"), nil)
		v := retry.Classify(err)
		fmt.Println(v.Class, v.HasHint, v.Hint)
	}
	// Output:
	// throttled false 0s
	// throttled true 7s
}
