package openai_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-go/headgate/bench/openai"
)

// A call takes of the tokens per minute what its max_tokens say, however short
// its answer is. The third one does not fit any more, and is told when it will.
func Example() {
	double, err := openai.New(openai.Config{RPM: 500, TPM: 1000, OutputTokens: 100, Window: openai.Sliding})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(double)
	defer server.Close()

	for range 3 {
		resp, err := http.Post(server.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"gpt-5-mini","max_tokens":400,"messages":[{"role":"user","content":"Why do canals have gates?"}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Printf("%d: %s tokens left, to be retried: %v\n", resp.StatusCode,
			resp.Header.Get("X-Ratelimit-Remaining-Tokens"), resp.Header.Get("Retry-After") != "")
	}
	for _, u := range double.Stats().Windows[:2] {
		fmt.Printf("%s: largest use %d of %d\n", u.Name, u.Largest, u.Limit)
	}
	// Output:
	// 200: 600 tokens left, to be retried: false
	// 200: 200 tokens left, to be retried: false
	// 429: 200 tokens left, to be retried: true
	// rpm: largest use 2 of 500
	// tpm: largest use 800 of 1000
}

// A brown-out: between the tenth and the twentieth second half of all calls are
// refused, and one stream in a hundred reports an error in its middle.
func ExampleConfig_faults() {
	_, err := openai.New(openai.Config{
		Faults: []string{"503@10s-20s,p=0.5", "stream-error@p=0.01"},
	})
	fmt.Println(err)

	_, err = openai.New(openai.Config{Faults: []string{"503@20s-10s"}})
	fmt.Println(err)
	// Output:
	// <nil>
	// fault "503@20s-10s": "20s-10s": must end after it begins
}
