package genaimodel_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited/genaimodel"
)

// answering is a round tripper that gives every request the same answer.
type answering struct{ body []byte }

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r,
	}, nil
}

// Whatever comes back, the SDK's panics included, is items and at most one
// error, which is the last.
func FuzzAnyAnswerIsItemsAndAtMostOneError(f *testing.F) {
	for _, body := range []string{
		events(chunk("a", ""), chunk("b", "STOP")), chunk("a", "STOP"), events(blocked, usageOnly), events(overloaded), overloaded,
		events(firstOfTwo, secondOfTwo), events(`{"candidates":[null]}`), events(`{"candidates":[{"content":{"parts":[null]}}]}`),
		events(`{"candidates":[{"content":null,"citationMetadata":{"citations":[{}]},"tokenCount":"x"}]}`),
		events(`{"createTime":"SECRET","promptFeedback":{"safetyRatings":[3]}}`), "\r\n\r\n", "data: ", ": comment\n\n", "[]", "null", events("null"),
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, stream bool) {
		client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
			APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: &http.Client{Transport: answering{body}},
			HTTPOptions: genai.HTTPOptions{BaseURL: "http://genaimodel.invalid"},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := genaimodel.New(client, modelName)
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
			failed = err != nil
		}
		if items == 0 {
			t.Fatal("neither an item nor an error")
		}
		if !stream && items != 1 {
			t.Fatalf("an answer in one piece came as %d items", items)
		}
	})
}
