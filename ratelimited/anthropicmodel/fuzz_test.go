package anthropicmodel_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/retry"
)

// Whatever comes back is items and at most one error, which is the last; meter
// and classifier read all of it.
func FuzzAnyAnswerIsItemsAndAtMostOneError(f *testing.F) {
	for _, body := range []string{
		answer("a"), whole("a"), events(started, overloaded), overloaded, events(lateUsage, unknownEvent), body("rate_limit_error", "ramp_limit_exceeded"),
		`{"type":"message","content":[null],"usage":null}`, `{"content":{"a":1},"usage":[],"stop_reason":7}`, "[]", "null", "\n\n",
		events(`{"type":"message_start","message":null}`), events(`{"type":"message_delta","delta":[],"usage":{"output_tokens":"9"}}`),
		events(`{"type":"content_block_start","index":-1,"content_block":{"type":"tool_use","input":[],"content":[{}]}}`),
		events(`{"type":"message_delta","usage":{"output_tokens":1e300,"output_tokens_details":3}}`),
		"event: error\ndata: null\n\n", "data\n\n", ": comment\n\n", "event: message_stop\ndata: [1]\n\n",
	} {
		for _, status := range []int{200, 429, 529} {
			f.Add([]byte(body), status, true, "0", "7")
			f.Add([]byte(body), status, false, "-1", "x")
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, status int, stream bool, remaining, after string) {
		if status < 200 || status > 599 {
			return
		}
		client := anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithAPIKey("key"), option.WithBaseURL("http://anthropicmodel.invalid"),
			withHTTP(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
					Header: http.Header{
						"Content-Type": {"application/json"}, "Retry-After": {after},
						"Anthropic-Ratelimit-Requests-Remaining": {remaining}, "Anthropic-Ratelimit-Tokens-Remaining": {remaining},
					},
				}, nil
			}))
		m, err := anthropicmodel.New(client, modelName)
		if err != nil {
			t.Fatal(err)
		}
		items, failed := 0, false
		for resp, err := range m.GenerateContent(t.Context(), hello(), stream) {
			if failed {
				t.Fatalf("an item after the error: %v, %v", resp, err)
			}
			if (resp == nil) == (err == nil) {
				t.Fatalf("item %v with error %v, want one of the two", resp, err)
			}
			items++
			if failed = err != nil; failed {
				if v := retry.Classify(err); v.Hint < 0 || v.Class == retry.Denied || v.Class == retry.NotSent {
					t.Fatalf("%v means %+v", err, v)
				}
				continue
			}
			u, progress := m.Meter().Observe(resp)
			if u.Clamp() != u || u.Output < 0 || progress > ratelimited.Failed {
				t.Fatalf("observed %+v, %v", u, progress)
			}
			resp.Text()
		}
		if items == 0 {
			t.Fatal("neither an item nor an error")
		}
		if !stream && items != 1 {
			t.Fatalf("an answer in one piece came as %d items", items)
		}
	})
}
