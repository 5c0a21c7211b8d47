package openaimodel_test

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

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/headgate-go/headgate/ratelimited/openaimodel"
	"github.com/headgate-go/headgate/retry"
)

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	client := newClient(serve(t, apis[0].reply("hi")))
	for _, c := range []struct {
		want   string
		client openai.Client
		name   string
		opts   []openaimodel.Option
	}{
		{"client has no options", openai.Client{}, modelName, nil},
		{"name is empty", client, "", nil},
		{"tokens is 0", client, modelName, []openaimodel.Option{openaimodel.WithTypicalOutput(0)}},
		{"tokens is -5", client, modelName, []openaimodel.Option{nil, openaimodel.WithTypicalOutput(-5)}},
	} {
		if m, err := openaimodel.NewChat(c.client, c.name, c.opts...); m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("NewChat: %v, %v; want an error with %q", m, err, c.want)
		}
		if m, err := openaimodel.NewResponses(c.client, c.name, c.opts...); m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("NewResponses: %v, %v; want an error with %q", m, err, c.want)
		}
	}
	chat, err := openaimodel.NewChat(client, modelName)
	if err != nil || chat.Name() != modelName {
		t.Errorf("NewChat: %v, %v", chat, err)
	}
}

func TestNothingIsSentBeforeRangingAndEachRangeSendsAnew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		var requests atomic.Int32
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			a.reply("a", "b")(w, r)
		})
		seq := a.bare(t, newClient(srv))(t.Context(), stream)
		if n := requests.Load(); n != 0 {
			t.Fatalf("%d requests before the sequence was ranged", n)
		}
		first, second := collect(seq), collect(seq)
		if n := requests.Load(); n != 2 {
			t.Errorf("two ranges sent %d requests, want 2", n)
		}
		if first.text != "ab" || second.text != "ab" || first.errs != nil || second.errs != nil {
			t.Errorf("the ranges got %q %v and %q %v, want ab twice", first.text, first.errs, second.text, second.errs)
		}
	})
}

// The SDK retries all of these twice.
func TestOneCallIsOneRequestWhateverTheSDKIsToldToRetry(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, 0} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				var requests atomic.Int32
				srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					if code == 0 {
						panic(http.ErrAbortHandler)
					}
					w.Header().Set("Retry-After-Ms", "1")
					w.WriteHeader(code)
					io.WriteString(w, `{"error":{"message":"no","type":"x"}}`)
				})
				client := newClient(srv, option.WithMaxRetries(4))
				eager := func(k *knobs) { k.opts = append(k.opts, option.WithMaxRetries(3)) }
				got := collect(a.bare(t, client)(t.Context(), stream, eager))
				if n := requests.Load(); n != 1 || len(got.errs) != 1 {
					t.Errorf("%d requests and errors %v, want 1 and 1", n, got.errs)
				}
			})
		})
	}
}

func TestParamsAreCompletedOnTheWayAndNeverChanged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		var mu sync.Mutex
		var bodies []string
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			bodies = append(bodies, string(body))
			mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			a.reply("hi")(w, r)
		})
		client := newClient(srv)
		chat := &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{
			Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
			StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeObfuscation: openai.Bool(false)},
		}, Options: append(make([]option.RequestOption, 0, 8), option.WithHeader("X-Mine", "1"))}
		if !stream {
			chat.Params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
		}
		own := &openaimodel.ResponsesRequest{Params: responses.ResponseNewParams{
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")},
		}, Options: chat.Options}
		before, ownBefore := chat.Params, own.Params
		var wg sync.WaitGroup
		for range 8 { // the race detector watches
			wg.Go(func() {
				if a.name == "chat" {
					m, err := openaimodel.NewChat(client, modelName)
					if err != nil {
						t.Error(err)
						return
					}
					for _, err := range m.GenerateContent(t.Context(), chat, stream) {
						if err != nil {
							t.Error(err)
						}
					}
					return
				}
				m, err := openaimodel.NewResponses(client, modelName)
				if err != nil {
					t.Error(err)
					return
				}
				for _, err := range m.GenerateContent(t.Context(), own, stream) {
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if !reflect.DeepEqual(chat.Params, before) || !reflect.DeepEqual(own.Params, ownBefore) {
			t.Error("the params were changed")
		}
		for _, hidden := range chat.Options[1:cap(chat.Options)] {
			if hidden != nil {
				t.Error("an option was written behind the caller's")
			}
		}
		for _, body := range bodies {
			var got struct {
				Model         string
				Stream        bool
				StreamOptions *struct {
					IncludeUsage       *bool `json:"include_usage"`
					IncludeObfuscation *bool `json:"include_obfuscation"`
				} `json:"stream_options"`
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if got.Model != modelName || got.Stream != stream {
				t.Errorf("body %s", body)
			}
			asked := got.StreamOptions != nil && got.StreamOptions.IncludeUsage != nil && *got.StreamOptions.IncludeUsage
			if asked != (stream && a.name == "chat") {
				t.Errorf("asked for the usage: %v; body %s", asked, body)
			}
			if asked && got.StreamOptions.IncludeObfuscation == nil {
				t.Errorf("a stream option was lost: %s", body)
			}
		}
	})
}

func TestModelOfTheRequestAndOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		var header http.Header
		var path, body string
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			header, path, body = r.Header.Clone(), r.URL.Path, string(raw)
			r.Body = io.NopCloser(strings.NewReader(body))
			a.reply("hi")(w, r)
		})
		got := collect(a.bare(t, newClient(srv, option.WithHeader("X-Both", "c")))(t.Context(), stream, demanding("X-Both", "r"),
			func(k *knobs) { k.max = 99; k.opts = append(k.opts, option.WithJSONSet("model", "other")) }))
		if got.errs != nil || path != a.path || header.Get("X-Both") != "r" || header.Get("Authorization") != "Bearer key" {
			t.Errorf("%s with %v: %v", path, header, got.errs)
		}
		if !strings.Contains(body, `"other"`) || !strings.Contains(body, "99") {
			t.Errorf("body %s", body)
		}
	})
}

func TestARequestThatCannotBeMadeIsNotSent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
		own := errors.New("no key today")
		refusing := func(*http.Request, option.MiddlewareNext) (*http.Response, error) { return nil, own }
		for name, err := range map[string]error{
			"a middleware of the client refuses": collect(a.bare(t, newClient(srv, option.WithMiddleware(refusing)))(t.Context(), stream)).errs[0],
			"an option cannot be applied": collect(a.bare(t, newClient(srv))(t.Context(), stream, func(k *knobs) {
				k.opts = append(k.opts, option.WithBaseURL(":"))
			})).errs[0],
		} {
			if v := retry.Classify(err); v.Class != retry.Denied {
				t.Errorf("%s: %v is taken for %v", name, err, v.Class)
			}
			if name == "a middleware of the client refuses" && !errors.Is(err, own) {
				t.Errorf("%v does not wrap the middleware's error", err)
			}
		}
		client := newClient(srv)
		chat, err := openaimodel.NewChat(client, modelName)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range chat.GenerateContent(t.Context(), nil, stream) {
			if err == nil || !strings.Contains(err.Error(), "nil") || retry.Classify(err).Class != retry.Denied {
				t.Errorf("a nil request: %v", err)
			}
		}
		own2, err := openaimodel.NewResponses(client, modelName)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range own2.GenerateContent(t.Context(), nil, stream) {
			if err == nil || !strings.Contains(err.Error(), "nil") || retry.Classify(err).Class != retry.Denied {
				t.Errorf("a nil request: %v", err)
			}
		}
	})
}

func TestAServerThatCannotBeReachedIsNotSentTo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		client := openai.NewClient(option.WithBaseURL("http://127.0.0.1:1/v1"), option.WithAPIKey("key"), option.WithHTTPClient(&http.Client{Transport: &http.Transport{}}))
		got := collect(a.bare(t, client)(t.Context(), stream))
		if len(got.errs) != 1 || retry.Classify(got.errs[0]).Class != retry.NotSent {
			t.Errorf("errors %v, want one that was not sent", got.errs)
		}
	})
}

func TestTheEndOfTheContextEndsTheCallWithItsError(t *testing.T) {
	t.Parallel()
	sibling := &openai.Error{StatusCode: http.StatusTooManyRequests}
	for name, cause := range map[string]error{"no cause": nil, "the cause is a sibling's 429": sibling} {
		for _, when := range []string{"before the answer", "within the answer"} {
			t.Run(name+", "+when, func(t *testing.T) {
				each(t, func(t *testing.T, a api, stream bool) {
					ctx, cancel := context.WithCancelCause(t.Context())
					gone := make(chan struct{})
					srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
						io.Copy(io.Discard, r.Body)
						if when == "within the answer" {
							w.Header().Set("Content-Type", "text/event-stream")
							first, _, _ := strings.Cut(a.events("a"), "\n\n")
							io.WriteString(w, first+"\n\n")
							_ = http.NewResponseController(w).Flush()
						}
						cancel(cause)
						<-r.Context().Done()
						close(gone)
					})
					got := collect(a.bare(t, newClient(srv))(ctx, stream))
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
	}
}
