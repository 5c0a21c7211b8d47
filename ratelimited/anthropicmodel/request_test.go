package anthropicmodel_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/retry"
)

// withHTTP sends requests by a function.
func withHTTP(f roundTripper) option.RequestOption {
	return option.WithHTTPClient(&http.Client{Transport: f})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	client := newClient(serve(t, reply))
	for _, c := range []struct {
		want   string
		client anthropic.Client
		name   string
		opt    anthropicmodel.Option
	}{
		{"client has no options", anthropic.Client{}, modelName, nil},
		{"name is empty", client, "", nil},
		{"WithTypicalOutput: tokens is -1", client, modelName, anthropicmodel.WithTypicalOutput(-1)},
	} {
		if m, err := anthropicmodel.New(c.client, c.name, c.opt); m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v; want an error with %q", m, err, c.want)
		}
	}
	if m := newModel(t, client); m.Name() != modelName {
		t.Errorf("Name() = %q, want %q", m.Name(), modelName)
	}
}

func TestNothingIsSentBeforeRangingAndEachRangeSendsAnew(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		var requests atomic.Int32
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			reply(w, r)
		})
		seq := newModel(t, newClient(srv)).GenerateContent(t.Context(), hello(), stream)
		if n := requests.Load(); n != 0 {
			t.Fatalf("%d requests before the sequence was ranged", n)
		}
		first, second := collect(seq), collect(seq)
		if n := requests.Load(); n != 2 {
			t.Errorf("two ranges sent %d requests, want 2", n)
		}
		if first.text != "hi" || second.text != "hi" || first.errs != nil || second.errs != nil {
			t.Errorf("the ranges got %q %v and %q %v", first.text, first.errs, second.text, second.errs)
		}
	})
}

// The SDK retries these if it is told to, at the client or in the request.
func TestOneCallIsOneRequestWhateverTheSDKIsToldToRetry(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, 529, 0} {
		both(t, func(t *testing.T, stream bool) {
			var requests atomic.Int32
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if code == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After-Ms", "1")
				w.WriteHeader(code)
			})
			client := newClient(srv, option.WithMaxRetries(3))
			req := hello()
			req.Options = []option.RequestOption{option.WithMaxRetries(3)}
			got := collect(newModel(t, client).GenerateContent(t.Context(), req, stream))
			if n := requests.Load(); n != 1 || len(got.errs) != 1 {
				t.Errorf("%d: %d requests and errors %v, want 1 and 1", code, n, got.errs)
			}
			if code == 0 {
				return // its own delay is long
			}
			requests.Store(0)
			_, _ = client.Messages.New(t.Context(), hello().Params)
			if n := requests.Load(); n != 4 {
				t.Errorf("%d: the SDK itself sent %d requests, want 4: this test proves nothing", code, n)
			}
		})
	}
}

func TestTheRequestArrivesWithTheModelsNameAndIsNeverWrittenTo(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		var mu sync.Mutex
		var models, headers []string
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Model string }
			raw, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(raw, &body); err != nil {
				t.Errorf("body: %v", err)
			}
			mu.Lock()
			models, headers = append(models, body.Model), append(headers, r.Header.Get("X-Mine"))
			mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(raw)))
			reply(w, r)
		})
		m := newModel(t, newClient(srv))
		shared := hello()
		shared.Options = append(make([]option.RequestOption, 0, 8), option.WithHeader("X-Mine", "1"))
		var calls sync.WaitGroup
		for range 8 { // the race detector watches
			calls.Go(func() { collect(m.GenerateContent(t.Context(), shared, stream)) })
		}
		calls.Wait()
		want := hello()
		want.Options = shared.Options
		if !reflect.DeepEqual(shared.Params, want.Params) {
			t.Errorf("the request was changed: %+v", shared.Params)
		}
		for _, hidden := range shared.Options[1:cap(shared.Options)] {
			if hidden != nil {
				t.Error("an option was written behind the caller's own")
			}
		}
		for i := range models {
			if models[i] != modelName || headers[i] != "1" {
				t.Errorf("request for %q with header %q, want %q and 1", models[i], headers[i], modelName)
			}
		}
		other := hello()
		other.Params.Model = "claude-haiku-4-5"
		collect(m.GenerateContent(t.Context(), other, stream))
		if last := models[len(models)-1]; last != "claude-haiku-4-5" {
			t.Errorf("a request that names its model went to %q", last)
		}
	})
}

// What is refused on this side is our own denial: it costs nothing and is not
// tried again.
func TestWhatTheSDKRefusesIsNotSent(t *testing.T) {
	t.Parallel()
	long := hello()
	long.Params.MaxTokens = 64_000
	broken := hello()
	broken.Params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "f", InputSchema: anthropic.ToolInputSchemaParam{Properties: func() {}},
	}}}
	for _, c := range []struct {
		name   string
		req    *request
		stream bool
		want   string
	}{
		{"nil", nil, false, "request is nil"},
		{"nil, streamed", nil, true, "request is nil"},
		{"a large max_tokens that is not streamed", long, false, "streaming is required"},
		{"what is no JSON", broken, true, "func()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
			got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), c.req, c.stream))
			if got.items != nil || len(got.errs) != 1 || !strings.Contains(got.errs[0].Error(), c.want) {
				t.Fatalf("got items %v, errors %v; want one error with %q", got.items, got.errs, c.want)
			}
			if v := retry.Classify(got.errs[0]); v.Class != retry.Denied {
				t.Errorf("verdict %v, want a denial", v.Class)
			}
		})
	}
	srv := serve(t, reply)
	if got := collect(newModel(t, newClient(srv)).GenerateContent(t.Context(), long, true)); got.errs != nil {
		t.Errorf("streamed, a large max_tokens is sent: %v", got.errs)
	}
}

func TestANetworkThatIsNotThereIsNotSentAndMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		client := newClient(serve(t, reply), option.WithHTTPClient(&http.Client{Transport: &http.Transport{}}))
		got := collect(newModel(t, client).GenerateContent(t.Context(), hello(), stream))
		if len(got.errs) != 1 || retry.Classify(got.errs[0]).Class != retry.NotSent {
			t.Errorf("errors %v, want one that is not sent", got.errs)
		}
	})
}

func TestTheEndOfTheContextEndsTheCallWithItsError(t *testing.T) {
	t.Parallel()
	sibling := &anthropic.Error{StatusCode: http.StatusTooManyRequests}
	for name, cause := range map[string]error{"no cause": nil, "the cause is a sibling's 429": sibling} {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"before the answer", "within the answer"} {
				t.Run(when, func(t *testing.T) {
					both(t, func(t *testing.T, stream bool) {
						ctx, cancel := context.WithCancelCause(t.Context())
						gone := make(chan struct{})
						srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
							io.Copy(io.Discard, r.Body)
							if when == "within the answer" {
								io.WriteString(w, events(started))
								_ = http.NewResponseController(w).Flush()
							}
							cancel(cause)
							<-r.Context().Done()
							close(gone)
						})
						got := collect(newModel(t, newClient(srv)).GenerateContent(ctx, hello(), stream))
						if len(got.errs) != 1 || !errors.Is(got.errs[0], context.Canceled) {
							t.Fatalf("errors %v, want one that is context.Canceled", got.errs)
						}
						if v := retry.Classify(got.errs[0]); v.Class != retry.NotRetryable {
							t.Errorf("the end of the context is taken for %v", v.Class)
						}
						<-gone
					})
				})
			}
		})
	}
}
