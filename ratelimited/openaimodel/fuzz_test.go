package openaimodel_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/headgate-go/headgate/ratelimited/openaimodel"
	"github.com/headgate-go/headgate/retry"
)

// answering is a transport that answers without a connection.
type answering struct {
	status            int
	contentType, body string
}

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {a.contentType}}, Request: req,
		Body: io.NopCloser(strings.NewReader(a.body)),
	}, nil
}

// Whatever a server answers, nothing panics, an error is the last item, and it
// does not quote the answer.
func FuzzForeignAnswers(f *testing.F) {
	for _, body := range []string{
		completion("marker"), chunks("marker", "b"), response("failed", "marker"), responseEvents("marker"),
		"null", "[]", "{", `{"choices":[null],"usage":null}`, `{"choices":{"0":5}}`, `{"error":{"message":"marker","code":429}}`,
		"data: {\"choices\":[{\"index\":-1,\"finish_reason\":\"stop\",\"delta\":null}],\"usage\":{\"prompt_tokens\":-5}}\n\n",
		"data: {\"type\":\"response.completed\",\"response\":null}\n\n", "data: {\"type\":\"error\"}\n\n", "data: {\"type\":5,\"delta\":[]}\n\n",
		"event: x\ndata\n\n:\n\ndata: [DONE]", `{"output":[{"type":"message","content":[{"type":"output_text"}]}]}`,
		`{"usage":{"input_tokens":9223372036854775807,"output_tokens":1e400,"total_tokens":"x"}}`,
	} {
		for _, status := range []int{200, 429, 500} {
			f.Add(status, "application/json", body)
			f.Add(status, "text/event-stream", body)
		}
	}
	f.Fuzz(func(t *testing.T, status int, contentType, body string) {
		if status < 200 || status > 599 {
			return
		}
		client := openai.NewClient(option.WithBaseURL("http://memhttp.invalid/v1"), option.WithAPIKey("key"),
			option.WithHTTPClient(&http.Client{Transport: answering{status, contentType, body}}))
		chat, err := openaimodel.NewChat(client, modelName)
		if err != nil {
			t.Fatal(err)
		}
		own, err := openaimodel.NewResponses(client, modelName)
		if err != nil {
			t.Fatal(err)
		}
		ended := func(api string, failed bool, err error) {
			if failed {
				t.Errorf("%s: an item after the error", api)
			}
			if err == nil {
				return
			}
			if strings.Contains(err.Error(), "marker") {
				t.Errorf("%s: the error quotes the answer: %v", api, err)
			}
			if v := retry.Classify(err); v.Class > retry.Overloaded || v.Hint < 0 {
				t.Errorf("%s: verdict %+v", api, v)
			}
			if e, ok := errors.AsType[*openaimodel.Error](err); status >= 400 && (!ok || e.StatusCode() != status) {
				t.Errorf("%s: the status %d is lost: %v", api, status, err)
			}
		}
		for _, stream := range []bool{false, true} {
			failed := false
			for resp, err := range chat.GenerateContent(t.Context(), &openaimodel.ChatRequest{}, stream) {
				ended("chat", failed, err)
				failed = err != nil
				if u, _ := chat.Meter().Observe(resp); u.Clamp() != u && err == nil {
					t.Errorf("chat: usage %+v", u)
				}
				_ = resp.Text()
			}
			if status >= 400 && !failed {
				t.Errorf("chat: %d is no error", status)
			}
			failed = false
			for resp, err := range own.GenerateContent(t.Context(), &openaimodel.ResponsesRequest{}, stream) {
				ended("responses", failed, err)
				failed = err != nil
				if u, _ := own.Meter().Observe(resp); u.Clamp() != u && err == nil {
					t.Errorf("responses: usage %+v", u)
				}
				_ = resp.Text()
			}
			if status >= 400 && !failed {
				t.Errorf("responses: %d is no error", status)
			}
		}
	})
}
