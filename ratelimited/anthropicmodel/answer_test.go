package anthropicmodel_test

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/shared"

	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// isAPIError matches what the API itself reports.
func isAPIError(status int, kind shared.ErrorType) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*anthropic.Error](err)
		return ok && e.StatusCode == status && e.Type() == kind
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func TestHowAStreamEnds(t *testing.T) {
	t.Parallel()
	half := func(s string) string { return s[:len(s)/2] }
	for _, c := range []struct {
		name  string
		body  string
		items int
		// end must match the one error; nil is a whole answer.
		end func(error) bool
	}{
		{"stop reason and stop", answer("a"), 6, nil},
		{"stop reason only", events(started, blockStarts, text("a"), blockStops, ended), 5, nil},
		{"stop only", events(started, stopped), 2, nil},
		{"usage after the stop", answer("a") + events(lateUsage), 7, nil},
		{"events that nobody knows", events(started, unknownEvent, ended), 3, nil},

		{"clean end in the middle", events(started, blockStarts, text("a")), 3, is(anthropicmodel.ErrIncomplete)},
		{"the same, for io's sake", events(started), 1, is(io.ErrUnexpectedEOF)},
		{"usage without a stop reason", events(started, withoutStop), 2, is(anthropicmodel.ErrIncomplete)},
		{"no items", "", 0, is(anthropicmodel.ErrIncomplete)},
		{"pings only", events(ping, ping), 0, is(anthropicmodel.ErrIncomplete)},
		{"no event stream", "<html>SECRET</html>", 0, is(anthropicmodel.ErrIncomplete)},
		{"cut within an event", events(started) + half(events(text("SECRET"))), 1, is(anthropicmodel.ErrIncomplete)},
		{"cut within the first event", half(events(started)), 0, is(anthropicmodel.ErrIncomplete)},

		{"an event that is no JSON", events(started) + "event: content_block_delta\ndata: SECRET\n\n", 1, is(anthropicmodel.ErrUnreadable)},
		{"an event whose JSON is cut", events(started) + "event: content_block_delta\ndata: {\"type\":\"SECRET\n\n", 1, is(anthropicmodel.ErrUnreadable)},

		{"error event", events(started, overloaded, text("b")), 1, isAPIError(200, "overloaded_error")},
		{"error event first", events(overloaded), 0, isAPIError(200, "overloaded_error")},
		{"error event after the end", answer("a") + events(overloaded), 6, isAPIError(200, "overloaded_error")},
		{"error event without JSON", events(started) + "event: error\ndata: SECRET\n\n", 1, isAPIError(200, "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, c.body)
			})
			last := error(nil)
			got := collected{}
			for resp, err := range newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), true) {
				if last != nil {
					t.Errorf("an item after the error: %v, %v", resp, err)
				}
				if (resp == nil) == (err == nil) {
					t.Errorf("item %v with error %v, want one of the two", resp, err)
				}
				if last = err; err == nil {
					got.items = append(got.items, resp)
				}
			}
			if len(got.items) != c.items {
				t.Errorf("%d items, want %d", len(got.items), c.items)
			}
			switch {
			case c.end == nil && last != nil:
				t.Errorf("a whole answer ended with %v", last)
			case c.end != nil && (last == nil || !c.end(last)):
				t.Errorf("it ended with error %v", last)
			case last != nil && strings.Contains(last.Error(), "SECRET"):
				t.Errorf("the error quotes the answer: %v", last)
			}
		})
	}
}

func TestHowAnAnswerInOnePieceEnds(t *testing.T) {
	t.Parallel()
	const json = "application/json"
	for _, c := range []struct {
		name string
		code int
		kind string
		body string
		end  func(error) bool
	}{
		{"whole", 200, json, whole("a"), nil},
		{"cut", 200, json, whole("SECRET")[:100], is(anthropicmodel.ErrUnreadable)},
		{"no JSON", 200, json, "<html>SECRET</html>", is(anthropicmodel.ErrUnreadable)},
		{"a page", 200, "text/html", "<html>SECRET</html>", is(anthropicmodel.ErrUnreadable)},
		{"empty", 200, json, "", is(anthropicmodel.ErrUnreadable)},
		{"no object", 200, json, `["SECRET"]`, is(anthropicmodel.ErrUnreadable)},
		{"null", 200, json, "null", is(anthropicmodel.ErrUnreadable)},
		{"an error with a status of success", 200, json, overloaded, isAPIError(200, "overloaded_error")},
		{"the same, bare", 200, json, `{"error":{"type":"overloaded_error","message":"SECRET"}}`, isAPIError(200, "overloaded_error")},
		{"the same, as a text", 200, json, `{"error":"SECRET"}`, isAPIError(200, "")},
		{"an error of no kind", 200, json, `{"type":"error","error":7}`, isAPIError(200, "")},
		{"another object", 200, json, `{"type":"SECRET"}`, is(anthropicmodel.ErrUnreadable)},
		{"a message beside which there is no error", 200, json, strings.Replace(whole("a"), "{", `{"error":null,`, 1), nil},
		{"a message with an error beside it", 200, json, strings.Replace(whole("a"), "{", `{"error":{"type":"api_error"},`, 1), nil},
		{"refused", 429, json, `{"type":"error","error":{"type":"rate_limit_error","message":"SECRET"}}`, isAPIError(429, "rate_limit_error")},
		{"a bad request that is quoted", 400, json, `{"type":"error","error":{"type":"invalid_request_error","message":"SECRET"}}`, isAPIError(400, "invalid_request_error")},
		{"a proxy's page", 502, "text/html", "<html>SECRET</html>", isAPIError(502, "")},
		{"an error of another kind", 500, json, `{"error":"SECRET"}`, isAPIError(500, "")},
		{"a type that is a text", 500, json, `{"error":{"type":"SECRET is a text","details":{"error_code":"SECRET, too"}}}`, isAPIError(500, "SECRET is a text")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.code)
				io.WriteString(w, c.body)
			})
			got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), false))
			if c.end == nil {
				if got.errs != nil || len(got.items) != 1 || got.items[0] == nil {
					t.Errorf("got items %v, errors %v; want one item", got.items, got.errs)
				}
				return
			}
			if got.items != nil || len(got.errs) != 1 || !c.end(got.errs[0]) {
				t.Fatalf("got items %v, errors %v", got.items, got.errs)
			}
			if strings.Contains(got.errs[0].Error(), "SECRET") {
				t.Errorf("the error quotes the answer: %v", got.errs[0])
			}
		})
	}
}

// What an error with the status 200 means is in its body only: the headers are
// those of a success.
func TestWhatAnErrorWithAStatusOfSuccessMeans(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]retry.Class{
		"overloaded_error": retry.Overloaded, "rate_limit_error": retry.Throttled, "billing_error": retry.QuotaExhausted,
		"api_error": retry.NotRetryable, "something_else": retry.NotRetryable,
	} {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Request-Id", "req_011CUbKz")
			w.Header().Set("X-Should-Retry", "true")
			io.WriteString(w, `{"type":"error","error":{"type":"`+kind+`","message":"SECRET"}}`)
		})
		got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), false))
		text := "anthropicmodel: the API answered 200 " + kind + " (request req_011CUbKz)"
		if got.items != nil || len(got.errs) != 1 || got.errs[0].Error() != text {
			t.Errorf("%s: items %v, errors %v", kind, got.items, got.errs)
			continue
		}
		if v := retry.Classify(got.errs[0]); v != (retry.Verdict{Class: want}) {
			t.Errorf("%s: %+v, want %v", kind, v, want)
		}
	}
}

func TestAnErrorNamesItsStatusTypeCodeAndRequest(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Request-Id", "req_011CUbKz")
			w.WriteHeader(429)
			io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"SECRET","details":{"error_code":"ramp_limit_exceeded"}}}`)
		})
		got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), stream))
		const want = "anthropicmodel: the API answered 429 rate_limit_error ramp_limit_exceeded (request req_011CUbKz)"
		if len(got.errs) != 1 || got.errs[0].Error() != want {
			t.Errorf("errors %v, want %q", got.errs, want)
		}
	})
}

func TestItemsReportUsageAsRunningTotals(t *testing.T) {
	t.Parallel()
	prompt := usage.Usage{Input: 123, CachedInput: 100, CacheWrite: 20}
	with := func(output, thoughts int64) usage.Usage {
		u := prompt
		u.Output, u.Thoughts = output, thoughts
		return u
	}
	zeros := `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":7}}`
	corrected := `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":43,"output_tokens":7}}`
	for _, c := range []struct {
		name string
		list []string
		want []usage.Usage
	}{
		{"prompt first, output last", []string{started, text("a"), ended, stopped}, []usage.Usage{with(1, 0), with(1, 0), with(7, 0), with(7, 0)}},
		{"more after the end", []string{started, ended, stopped, lateUsage}, []usage.Usage{with(1, 0), with(7, 0), with(7, 0), with(12, 4)}},
		{"zeros for the prompt", []string{started, zeros}, []usage.Usage{with(1, 0), with(7, 0)}},
		{
			"a larger prompt, without the parts that stay", []string{started, corrected},
			[]usage.Usage{with(1, 0), {Input: 163, CachedInput: 100, CacheWrite: 20, Output: 7}},
		},
		{"no message_start", []string{text("a"), ended}, []usage.Usage{{}, {Output: 7}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, events(c.list...)) })
			got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), true))
			if len(got.items) != len(c.want) || got.errs != nil {
				t.Fatalf("%d items, errors %v", len(got.items), got.errs)
			}
			for i, item := range got.items {
				if u := item.Usage(); u != c.want[i] {
					t.Errorf("item %d: %v, want %v", i, u, c.want[i])
				}
			}
		})
	}
	srv := serve(t, reply)
	got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), false))
	if len(got.items) != 1 || got.items[0].Usage() != with(7, 0) || got.text != "hi" {
		t.Errorf("in one piece: %+v", got)
	}
}

func TestBreakingOffEndsTheRequestAndYieldsNothingMore(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, events(started))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	n := 0
	for range newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), true) {
		n++
		break
	}
	<-gone
	if n != 1 {
		t.Errorf("%d items, want 1", n)
	}
}

func TestAPanicOfTheConsumerOrOfARoundTripperGoesOn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		srv := serve(t, reply)
		func() {
			defer func() {
				if _, ok := recover().(*runtime.TypeAssertionError); !ok {
					t.Error("the consumer's panic was swallowed")
				}
			}()
			for range newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), stream) {
				_ = any("text").(int)
			}
		}()
		client := newClient(srv)
		client.Messages.Options = append(client.Messages.Options, withHTTP(func(*http.Request) (*http.Response, error) { panic("mine") }))
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("recovered %v, want the round tripper's panic", p)
			}
		}()
		collect(newModel(t, client).GenerateContent(t.Context(), hello(), stream))
		t.Error("the panic was swallowed")
	})
}
