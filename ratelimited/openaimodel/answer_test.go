package openaimodel_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/openaimodel"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// raw answers every request with a body as it is.
func raw(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// chatItems makes one streamed call and keeps the items as they came.
func chatItems(t *testing.T, body string, n int64) (items []*openaimodel.ChatResponse, err error) {
	t.Helper()
	m, err := openaimodel.NewChat(newClient(serve(t, raw(200, "text/event-stream", body))), modelName)
	if err != nil {
		t.Fatal(err)
	}
	req := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}}
	if n > 0 {
		req.Params.N = openai.Int(n)
	}
	for resp, e := range m.GenerateContent(t.Context(), req, true) {
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		items = append(items, resp)
	}
	return items, err
}

func TestACompletionIsDoneWhenAllItsChoicesHaveFinished(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n      int64
		events []string
		done   int // the first item that is; -1 for none
		err    error
	}{
		"one choice": {0, []string{chunk(0, "a", ""), chunk(0, "", "stop"), usageChunk, "[DONE]"}, 1, nil},
		"text and reason together, without a usage or an end marker": {
			0, []string{chunk(0, "a", "length")}, 0, nil,
		},
		"two choices, the second one last": {
			2, []string{chunk(0, "a", ""), chunk(0, "", "stop"), chunk(1, "b", ""), chunk(1, "", "tool_calls"), usageChunk, "[DONE]"}, 3, nil,
		},
		"a reason that is told twice counts once": {
			2, []string{chunk(0, "a", "stop"), chunk(0, "", "stop"), chunk(1, "b", "stop")}, 2, nil,
		},
		"fewer choices than were asked for: with the usage": {
			3, []string{chunk(0, "a", "stop"), usageChunk, "[DONE]"}, 1, nil,
		},
		"Azure's chunk of filter results comes first": {
			0, []string{`{"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[]}`, chunk(0, "a", "stop")}, 1, nil,
		},
		"the last choices": {
			128, []string{chunk(126, "a", "stop"), chunk(127, "b", "stop"), usageChunk}, 2, nil,
		},
		"no reason":                        {0, []string{chunk(0, "a", ""), chunk(0, "b", "")}, -1, openaimodel.ErrIncomplete},
		"no reason, but an end marker":     {0, []string{chunk(0, "a", ""), "[DONE]"}, -1, openaimodel.ErrIncomplete},
		"no reason of the second choice":   {2, []string{chunk(0, "a", "stop"), chunk(1, "b", ""), usageChunk}, -1, openaimodel.ErrIncomplete},
		"nothing at all":                   {0, nil, -1, openaimodel.ErrIncomplete},
		"nothing but an end marker":        {0, []string{"[DONE]"}, -1, openaimodel.ErrIncomplete},
		"a usage before there is a choice": {0, []string{usageChunk, chunk(0, "a", "stop")}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			items, err := chatItems(t, data(c.events...), c.n)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			done := -1
			for i, r := range items {
				if r.Done && done < 0 {
					done = i
				}
				if !r.Done && done >= 0 {
					t.Errorf("item %d is not done any more", i)
				}
			}
			if done != c.done {
				t.Errorf("item %d of %d is the first that is done, want %d", done, len(items), c.done)
			}
			if c.err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v does not match io.ErrUnexpectedEOF", err)
			}
		})
	}
}

func TestAResponseIsDoneWithTheEventThatCompletesIt(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		status   string
		progress ratelimited.Progress
	}{
		"response.completed":  {"completed", ratelimited.Done},
		"response.incomplete": {"incomplete", ratelimited.Done},
		"response.failed":     {"failed", ratelimited.Failed},
		"response.cancelled":  {"cancelled", ratelimited.Failed},
		"response.queued":     {"queued", ratelimited.More},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			body := responseEvent("response.created", `,"response":{"id":"r","status":"in_progress"}`) + textDelta("a") +
				responseEvent(kind, `,"response":`+response(c.status, "a"))
			m, err := openaimodel.NewResponses(newClient(serve(t, raw(200, "text/event-stream", body))), modelName)
			if err != nil {
				t.Fatal(err)
			}
			meter := m.Meter()
			var last ratelimited.Progress
			var used usage.Usage
			var errs []error
			for resp, err := range m.GenerateContent(t.Context(), &openaimodel.ResponsesRequest{}, true) {
				if err != nil {
					errs = append(errs, err)
					continue
				}
				used, last = meter.Observe(resp)
				if resp.Done != (last != ratelimited.More) || resp.Done != (resp.Response != nil) {
					t.Errorf("%s: done %v, progress %v, response %v", resp.Event.Type, resp.Done, last, resp.Response)
				}
			}
			if last != c.progress {
				t.Errorf("progress %v, want %v", last, c.progress)
			}
			if c.progress == ratelimited.More {
				if len(errs) != 1 || !errors.Is(errs[0], openaimodel.ErrIncomplete) {
					t.Errorf("errors %v, want ErrIncomplete", errs)
				}
			} else if errs != nil || used != (usage.Usage{Input: 9, Output: 4}) {
				t.Errorf("errors %v, usage %v", errs, used)
			}
		})
	}
}

func TestAnAnswerOfOnePieceThatFailedIsAnItemThatSaysSo(t *testing.T) {
	t.Parallel()
	m, err := openaimodel.NewResponses(newClient(serve(t, raw(200, "application/json", response("failed", "")))), modelName)
	if err != nil {
		t.Fatal(err)
	}
	for resp, err := range m.GenerateContent(t.Context(), &openaimodel.ResponsesRequest{}, false) {
		if err != nil {
			t.Fatal(err)
		}
		if u, p := m.Meter().Observe(resp); p != ratelimited.Failed || u.Output != 4 || !resp.Done {
			t.Errorf("%v, %v, done %v", u, p, resp.Done)
		}
	}
}

// Whatever a server answers, the call ends with one error, which does not quote
// the answer.
func TestAnAnswerThatIsNoneIsOneErrorThatDoesNotQuoteIt(t *testing.T) {
	t.Parallel()
	const secret = "SECRET"
	for name, c := range map[string]struct {
		status      int
		contentType string
		body        string
		is          error // in one piece
		streamed    error // nil: the same
	}{
		"cut JSON":         {200, "application/json", `{"id":"SECRET","choices":[{"mess`, openaimodel.ErrUnreadable, openaimodel.ErrIncomplete},
		"null":             {200, "application/json", `null`, openaimodel.ErrUnreadable, openaimodel.ErrIncomplete},
		"no body":          {200, "application/json", ``, openaimodel.ErrUnreadable, openaimodel.ErrIncomplete},
		"a page":           {200, "text/html", `<html>SECRET</html>`, openaimodel.ErrUnreadable, openaimodel.ErrIncomplete},
		"a malformed item": {200, "text/event-stream", "data: {\"SECRET\"\n\n", openaimodel.ErrUnreadable, openaimodel.ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				got := collect(a.bare(t, newClient(serve(t, raw(c.status, c.contentType, c.body))))(t.Context(), stream))
				want := c.is
				if stream {
					want = c.streamed
				}
				if len(got.items) != 0 || len(got.errs) != 1 || !errors.Is(got.errs[0], want) {
					t.Fatalf("%d items, errors %v; want none and %v", len(got.items), got.errs, want)
				}
				if strings.Contains(got.errs[0].Error(), secret) {
					t.Errorf("the error quotes the answer: %v", got.errs[0])
				}
				if v := retry.Classify(got.errs[0]); v != (retry.Verdict{}) {
					t.Errorf("verdict %+v", v)
				}
			})
		})
	}
}

func TestAConnectionThatBreaksWithinTheAnswerIsNoUnreadableAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[stream])
			io.WriteString(w, a.events("a")[:100])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		got := collect(a.bare(t, newClient(srv))(t.Context(), stream))
		if len(got.errs) != 1 || errors.Is(got.errs[0], openaimodel.ErrUnreadable) || !errors.Is(got.errs[0], io.ErrUnexpectedEOF) {
			t.Errorf("errors %v, want the connection's", got.errs)
		}
		if v := retry.Classify(got.errs[0]); v != (retry.Verdict{}) {
			t.Errorf("verdict %+v", v)
		}
	})
}

// Some proxies report errors with the status 200.
func TestAnErrorInPlaceOfAnAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want retry.Class
	}{
		"throttled":  {`{"error":{"message":"SECRET","type":"tokens","code":"rate_limit_exceeded"}}`, retry.Throttled},
		"no credit":  {`{"error":{"message":"SECRET","type":"insufficient_quota","code":"insufficient_quota"}}`, retry.QuotaExhausted},
		"overloaded": {`{"error":{"message":"SECRET: overloaded","type":"server_error","code":null}}`, retry.Overloaded},
		"a text":     {`{"error":"SECRET"}`, retry.NotRetryable},
		"a number":   {`{"error":7,"SECRET":0}`, retry.NotRetryable},
	} {
		for _, a := range apis {
			t.Run(name+", "+a.name, func(t *testing.T) {
				t.Parallel()
				got := collect(a.bare(t, newClient(serve(t, raw(200, "application/json", c.body))))(t.Context(), false))
				if len(got.items) != 0 || len(got.errs) != 1 || retry.Classify(got.errs[0]).Class != c.want || strings.Contains(got.errs[0].Error(), "SECRET") {
					t.Fatalf("%d items, errors %v; want one that is %v", len(got.items), got.errs, c.want)
				}
				if _, ok := errors.AsType[*openaimodel.Error](got.errs[0]); !ok {
					t.Errorf("%v is no Error", got.errs[0])
				}
				e, ok := errors.AsType[*ssestream.StreamError](got.errs[0])
				if !ok || !strings.Contains(string(e.Event.Data), "SECRET") {
					t.Errorf("the answer is lost: %+v", e)
				}
			})
		}
	}
	// One that has an error beside what was asked for is an answer.
	for _, a := range apis {
		for _, extra := range []string{`"error":null`, `"error":{"code":"server_error","message":"m"}`} {
			body := strings.Replace(a.unary("hi"), "{", "{"+extra+",", 1)
			got := collect(a.bare(t, newClient(serve(t, raw(200, "application/json", body))))(t.Context(), false))
			if got.errs != nil || got.text != "hi" {
				t.Errorf("%s with %s: text %q, errors %v", a.name, extra, got.text, got.errs)
			}
		}
	}
}

func TestTextIsWhatTheItemAdds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		got := collect(a.bare(t, newClient(serve(t, a.reply("Hello, ", "world"))))(t.Context(), stream))
		if got.errs != nil || got.text != "Hello, world" {
			t.Errorf("text %q, errors %v", got.text, got.errs)
		}
	})
	var chat *openaimodel.ChatResponse
	var own *openaimodel.ResponsesResponse
	if chat.Text() != "" || own.Text() != "" || (&openaimodel.ChatResponse{}).Text() != "" || (&openaimodel.ResponsesResponse{}).Text() != "" {
		t.Error("an item that is nothing has a text")
	}
}
