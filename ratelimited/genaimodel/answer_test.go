package genaimodel_test

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited/genaimodel"
)

// Items by what they hold.
const (
	firstOfTwo  = `{"candidates":[{"index":0,"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`
	secondOfTwo = `{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]}}]}`
	secondEnds  = `{"candidates":[{"index":1,"content":{"parts":[{"text":"c"}]},"finishReason":"STOP"}]}`
	blocked     = `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":2}}`
	usageOnly   = `{"usageMetadata":{"promptTokenCount":2,"totalTokenCount":2}}`
	overloaded  = `{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}`
)

// isAPIError matches what the API itself reports.
func isAPIError(code int) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[genai.APIError](err)
		return ok && e.Code == code
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func TestHowAStreamEnds(t *testing.T) {
	t.Parallel()
	secret := chunk("SECRET", "")
	for _, c := range []struct {
		name  string
		body  string
		items int
		// end must match the one error; nil is a whole answer.
		end func(error) bool
	}{
		{"finish reason", events(chunk("a", ""), chunk("b", "STOP")), 2, nil},
		{"any finish reason", events(chunk("a", "MAX_TOKENS")), 1, nil},
		{"usage after the finish reason", events(chunk("a", "STOP"), usageOnly), 2, nil},
		{"blocked prompt", events(blocked), 1, nil},
		{"both candidates finish", events(firstOfTwo, secondOfTwo, secondEnds), 3, nil},

		{"clean end in the middle", events(chunk("a", ""), chunk("b", "")), 2, is(genaimodel.ErrIncomplete)},
		{"the same, for io's sake", events(chunk("a", "")), 1, is(io.ErrUnexpectedEOF)},
		{"unspecified is no finish reason", events(chunk("a", "FINISH_REASON_UNSPECIFIED")), 1, is(genaimodel.ErrIncomplete)},
		{"no items", "", 0, is(genaimodel.ErrIncomplete)},
		{"a null item", events("null"), 1, is(genaimodel.ErrIncomplete)},
		{"usage only", events(usageOnly), 1, is(genaimodel.ErrIncomplete)},
		{"one of two candidates finishes", events(firstOfTwo, secondOfTwo), 2, is(genaimodel.ErrIncomplete)},

		{"cut within a chunk", events(chunk("a", "")) + events(secret)[:len(secret)/2], 1, is(genaimodel.ErrUnreadable)},
		{"cut within the first chunk", events(secret)[:len(secret)/2], 0, is(genaimodel.ErrUnreadable)},
		{"no event", events(chunk("a", "")) + "SECRET: this is no event\r\n\r\n", 1, is(genaimodel.ErrUnreadable)},
		{"an event that is no object", events(chunk("a", ""), `["SECRET"]`), 1, is(genaimodel.ErrUnreadable)},
		{"a field of the wrong type", events(chunk("a", ""), `{"usageMetadata":"SECRET"}`), 1, is(genaimodel.ErrUnreadable)},
		{"a field that makes the SDK panic", events(chunk("a", ""), `{"candidates":[null]}`), 1, is(genaimodel.ErrUnreadable)},

		{"error event", events(chunk("a", ""), overloaded), 1, isAPIError(503)},
		{"bare error", events(chunk("a", "")) + overloaded + "\r\n\r\n", 1, isAPIError(503)},
		{"error event first", events(overloaded), 0, isAPIError(503)},
		{"nothing follows an error", events(chunk("a", ""), overloaded, chunk("b", "STOP")), 1, isAPIError(503)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, c.body)
			})
			last := error(nil)
			got := collected{}
			for resp, err := range newModel(t, newClient(t, srv)).GenerateContent(t.Context(), hello(), true) {
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
	for _, c := range []struct {
		name string
		code int
		body string
		end  func(error) bool
	}{
		{"whole", 200, chunk("a", "STOP"), nil},
		{"blocked prompt", 200, blocked, nil},
		{"cut", 200, chunk("SECRET", "STOP")[:70], is(genaimodel.ErrUnreadable)},
		{"no JSON", 200, "<html>SECRET</html>", is(genaimodel.ErrUnreadable)},
		{"no object", 200, `["SECRET"]`, is(genaimodel.ErrUnreadable)},
		{"null", 200, "null", is(genaimodel.ErrUnreadable)},
		{"a field that makes the SDK panic", 200, `{"candidates":[null]}`, is(genaimodel.ErrUnreadable)},
		{"refused", 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, isAPIError(429)},
		{"a proxy's page", 502, "<html>bad gateway</html>", isAPIError(502)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.code)
				io.WriteString(w, c.body)
			})
			got := collect(newModel(t, newClient(t, srv)).GenerateContent(t.Context(), hello(), false))
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

func TestTheErrorOfTheSDKCanBeUnwrapped(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "data: {\r\n\r\n") })
	got := collect(newModel(t, newClient(t, srv)).GenerateContent(t.Context(), hello(), true))
	if len(got.errs) != 1 {
		t.Fatalf("errors %v, want one", got.errs)
	}
	if inner := errors.Unwrap(got.errs[0]); inner == nil || !strings.HasPrefix(inner.Error(), "iterateResponseStream") {
		t.Errorf("unwrapped %v, want the SDK's own error", inner)
	}
}

func TestBreakingOffEndsTheRequestAndYieldsNothingMore(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, events(chunk("a", "")))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	n := 0
	for range newModel(t, newClient(t, srv)).GenerateContent(t.Context(), hello(), true) {
		n++
		break
	}
	<-gone
	if n != 1 {
		t.Errorf("%d items, want 1", n)
	}
}

// The SDK's failed conversions panic with the same type as a type assertion of
// the consumer's.
func TestAPanicOfTheConsumerIsItsOwn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		m := newModel(t, newClient(t, serve(t, reply(chunk("a", "STOP")))))
		items := 0
		defer func() {
			if p, ok := recover().(*runtime.TypeAssertionError); !ok || items != 1 {
				t.Errorf("recovered %v after %d items, want the consumer's panic after 1", p, items)
			}
		}()
		for range m.GenerateContent(t.Context(), hello(), stream) {
			items++
			_ = any("text").(int)
		}
		t.Error("the panic was swallowed")
	})
}

// A round tripper that panics is a defect of the program, not of the answer.
func TestOtherPanicsGoOn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		client := newClient(t, serve(t, reply(chunk("a", "STOP"))), func(c *genai.ClientConfig) {
			c.HTTPClient = &http.Client{Transport: panicking{}}
		})
		defer func() {
			if p, ok := recover().(runtime.Error); !ok {
				t.Errorf("recovered %v, want the round tripper's panic", p)
			}
		}()
		collect(newModel(t, client).GenerateContent(t.Context(), hello(), stream))
		t.Error("the panic was swallowed")
	})
}

type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) {
	var nothing *http.Response
	nothing.StatusCode = http.StatusOK
	return nothing, nil
}
