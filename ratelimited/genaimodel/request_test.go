package genaimodel_test

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
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	client := newClient(t, serve(t, reply(chunk("hi", "STOP"))))
	for _, c := range []struct {
		want   string
		client *genai.Client
		name   string
	}{
		{"client is nil", nil, modelName},
		{"client.Models is nil", &genai.Client{}, modelName},
		{"name is empty", client, ""},
	} {
		if m, err := genaimodel.New(c.client, c.name); m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%v, %q) = %v, %v; want an error with %q", c.client, c.name, m, err, c.want)
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
			reply(chunk("a", ""), chunk("b", "STOP"))(w, r)
		})
		seq := newModel(t, newClient(t, srv)).GenerateContent(t.Context(), hello(), stream)
		if n := requests.Load(); n != 0 {
			t.Fatalf("%d requests before the sequence was ranged", n)
		}
		first, second := collect(seq), collect(seq)
		if n := requests.Load(); n != 2 {
			t.Errorf("two ranges sent %d requests, want 2", n)
		}
		want := "b"
		if stream {
			want = "ab"
		}
		if first.text != want || second.text != want || first.errs != nil || second.errs != nil {
			t.Errorf("the ranges got %q %v and %q %v, want %q twice", first.text, first.errs, second.text, second.errs, want)
		}
	})
}

// The SDK retries these five times if it is told to, at the client or in the
// request.
func TestOneCallIsOneRequestWhateverTheSDKIsToldToRetry(t *testing.T) {
	t.Parallel()
	eager := &genai.HTTPRetryOptions{Attempts: genai.Ptr[int32](5), InitialDelay: genai.Ptr(0.0), Jitter: genai.Ptr(0.0)}
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, 0} {
		name := http.StatusText(code)
		if code == 0 {
			name = "connection lost"
		}
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				var requests atomic.Int32
				srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					if code == 0 {
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(code)
				})
				client := newClient(t, srv, func(c *genai.ClientConfig) { c.HTTPOptions.RetryOptions = eager })
				for _, req := range []*genaimodel.Request{
					hello(),
					{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{RetryOptions: eager}}},
				} {
					requests.Store(0)
					got := collect(newModel(t, client).GenerateContent(t.Context(), req, stream))
					if n := requests.Load(); n != 1 || len(got.errs) != 1 {
						t.Errorf("%d requests and errors %v, want 1 and 1", n, got.errs)
					}
				}
				requests.Store(0)
				client.Models.GenerateContent(t.Context(), modelName, genai.Text("hello"), nil)
				if n := requests.Load(); n != 5 {
					t.Errorf("the SDK itself sent %d requests, want 5: this test proves nothing", n)
				}
			})
		})
	}
}

func TestAnAnswerThatWantsToBeContinuedIsPassedOnAfterOneRequest(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		var requests atomic.Int32
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			half := strings.Replace(chunk("half", "CONTINUATION"), `"finishReason"`, `"continuationToken":"bmV4dA==","finishReason"`, 1)
			if requests.Add(1) > 1 {
				half = chunk("the rest", "STOP")
			}
			reply(half)(w, r)
		})
		client := newClient(t, srv)
		got := collect(newModel(t, client).GenerateContent(t.Context(), hello(), stream))
		if n := requests.Load(); n != 1 || got.text != "half" || got.errs != nil {
			t.Fatalf("%d requests, text %q, errors %v; want 1, half, none", n, got.text, got.errs)
		}
		if reason := got.items[0].Candidates[0].FinishReason; reason != genai.FinishReasonContinuation {
			t.Errorf("finish reason %q, want %q", reason, genai.FinishReasonContinuation)
		}
		requests.Store(0)
		if _, err := client.Models.GenerateContent(t.Context(), modelName, genai.Text("hello"), nil); err != nil || requests.Load() != 2 {
			t.Errorf("the SDK itself sent %d requests (%v), want 2: this test proves nothing", requests.Load(), err)
		}
	})
}

func TestASharedConfigIsNeverWrittenTo(t *testing.T) {
	t.Parallel()
	// Each makes the same config anew, so that it can be compared.
	for name, config := range map[string]func() *genai.GenerateContentConfig{
		"nil":   func() *genai.GenerateContentConfig { return nil },
		"empty": func() *genai.GenerateContentConfig { return &genai.GenerateContentConfig{} },
		"options without headers": func() *genai.GenerateContentConfig {
			return &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{}}
		},
		"header with spare capacity": func() *genai.GenerateContentConfig {
			agents := append(make([]string, 0, 4), "mine")
			return &genai.GenerateContentConfig{HTTPOptions: &genai.HTTPOptions{Headers: http.Header{"User-Agent": agents, "X-Mine": {"1"}}}}
		},
		"instruction without a role": func() *genai.GenerateContentConfig {
			return &genai.GenerateContentConfig{SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: "be brief"}}}}
		},
		"retries and continuation on": func() *genai.GenerateContentConfig {
			return &genai.GenerateContentConfig{
				AutomaticContinuation: genai.Ptr(true),
				HTTPOptions: &genai.HTTPOptions{
					RetryOptions: &genai.HTTPRetryOptions{}, ExtraBody: map[string]any{"labels": map[string]any{"a": "b"}},
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, newClient(t, serve(t, reply(chunk("hi", "STOP")))))
			shared := config()
			var wg sync.WaitGroup
			for i := range 16 { // the race detector watches
				wg.Go(func() {
					got := collect(m.GenerateContent(t.Context(), &genaimodel.Request{Contents: genai.Text("hello"), Config: shared}, i%2 == 0))
					if got.errs != nil || got.text != "hi" {
						t.Errorf("got %q, %v", got.text, got.errs)
					}
				})
			}
			wg.Wait()
			if !reflect.DeepEqual(shared, config()) {
				t.Errorf("the config was changed: %+v", shared)
			}
			if shared != nil && shared.HTTPOptions != nil {
				for _, values := range shared.HTTPOptions.Headers {
					for _, hidden := range values[len(values):cap(values)] {
						if hidden != "" {
							t.Errorf("%q was written behind the caller's header values", hidden)
						}
					}
				}
			}
		})
	}
}

func TestOptionsOfClientAndRequestReachTheServer(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		var got *http.Request
		var body struct {
			SystemInstruction genai.Content
			GenerationConfig  struct{ MaxOutputTokens int }
		}
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.Clone(context.Background())
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Errorf("body: %v", err)
			}
			reply(chunk("hi", "STOP"))(w, r)
		})
		client := newClient(t, srv, func(c *genai.ClientConfig) {
			c.HTTPOptions.BaseURL += "/proxy"
			c.HTTPOptions.Headers = http.Header{"X-Client": {"c"}, "X-Both": {"c"}}
		})
		collect(newModel(t, client).GenerateContent(t.Context(), &genaimodel.Request{
			Model: "gemini-2.5-pro", Contents: genai.Text("hello"),
			Config: &genai.GenerateContentConfig{
				MaxOutputTokens:   7,
				SystemInstruction: &genai.Content{Parts: []*genai.Part{{Text: "be brief"}}},
				HTTPOptions:       &genai.HTTPOptions{Headers: http.Header{"X-Request": {"r"}, "X-Both": {"r"}}, Timeout: genai.Ptr(9 * time.Second)},
			},
		}, stream))
		wantPath := "/proxy/v1beta/models/gemini-2.5-pro:generateContent"
		if stream {
			wantPath = "/proxy/v1beta/models/gemini-2.5-pro:streamGenerateContent"
		}
		if got.URL.Path != wantPath {
			t.Errorf("path %s, want %s", got.URL.Path, wantPath)
		}
		for name, want := range map[string]string{
			"X-Client": "c", "X-Request": "r", "X-Both": "r", "X-Server-Timeout": "9", "X-Goog-Api-Key": "key",
		} {
			if v := got.Header.Get(name); v != want {
				t.Errorf("header %s is %q, want %q", name, v, want)
			}
		}
		if body.GenerationConfig.MaxOutputTokens != 7 || body.SystemInstruction.Parts[0].Text != "be brief" {
			t.Errorf("the body lost its config: %+v", body)
		}
	})
}

func TestARequestWithANilInItIsNamedAndNotSent(t *testing.T) {
	t.Parallel()
	part, text := &genai.Part{Text: "SECRET"}, genai.Text("SECRET")
	for want, req := range map[string]*genaimodel.Request{
		"request is nil":                              nil,
		"Contents[1] is nil":                          {Contents: append(genai.Text("SECRET"), nil)},
		"Contents[0].Parts[1] is nil":                 {Contents: []*genai.Content{{Parts: []*genai.Part{part, nil}}}},
		"Config.SystemInstruction.Parts[0] is nil":    {Contents: text, Config: &genai.GenerateContentConfig{SystemInstruction: &genai.Content{Parts: []*genai.Part{nil}}}},
		"Config.Tools[0] is nil":                      {Contents: text, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{nil}}},
		"Tools[0].FunctionDeclarations[1] is nil":     {Contents: text, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f"}, nil}}}}},
		"genaimodel: Config.SafetySettings[0] is nil": {Contents: text, Config: &genai.GenerateContentConfig{SafetySettings: []*genai.SafetySetting{nil}}},
	} {
		t.Run(want, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				srv := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
				got := collect(newModel(t, newClient(t, srv)).GenerateContent(t.Context(), req, stream))
				if got.items != nil || len(got.errs) != 1 || !strings.Contains(got.errs[0].Error(), want) {
					t.Fatalf("got items %v, errors %v; want one error with %q", got.items, got.errs, want)
				}
				if strings.Contains(got.errs[0].Error(), "SECRET") {
					t.Errorf("the error quotes the prompt: %v", got.errs[0])
				}
			})
		})
	}
}

func TestTheEndOfTheContextEndsTheCallWithItsError(t *testing.T) {
	t.Parallel()
	sibling := genai.APIError{Code: http.StatusTooManyRequests, Status: "RESOURCE_EXHAUSTED"}
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
								io.WriteString(w, events(chunk("a", "")))
								_ = http.NewResponseController(w).Flush()
							}
							cancel(cause)
							<-r.Context().Done()
							close(gone)
						})
						got := collect(newModel(t, newClient(t, srv)).GenerateContent(ctx, hello(), stream))
						if len(got.errs) != 1 || !errors.Is(got.errs[0], context.Canceled) {
							t.Fatalf("errors %v, want one that is context.Canceled", got.errs)
						}
						if v := retry.Classify(got.errs[0]); v.Class != retry.NotRetryable {
							t.Errorf("the end of the context is taken for %v", v.Class)
						}
						if _, ok := errors.AsType[genai.APIError](got.errs[0]); cause != nil && !ok {
							t.Errorf("the cause is lost: %v", got.errs[0])
						}
						<-gone
					})
				})
			}
		})
	}
}

func TestAVertexClientSpeaksToVertexAndSaysSo(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		var path string
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			path = r.URL.Path
			reply(chunk("hi", "STOP"))(w, r)
		})
		client := newClient(t, srv, func(c *genai.ClientConfig) {
			c.APIKey, c.Backend, c.Project, c.Location = "", genai.BackendVertexAI, "p", "europe-west4"
		})
		m := newModel(t, client)
		if v := m.GetGoogleLLMVariant(); v != genai.BackendVertexAI {
			t.Errorf("variant %v, want %v", v, genai.BackendVertexAI)
		}
		if got := collect(m.GenerateContent(t.Context(), hello(), stream)); got.errs != nil || got.text != "hi" {
			t.Errorf("got %q, %v", got.text, got.errs)
		}
		want := "/v1beta1/projects/p/locations/europe-west4/publishers/google/models/" + modelName + ":generateContent"
		if stream {
			want = strings.Replace(want, ":generate", ":streamGenerate", 1)
		}
		if path != want {
			t.Errorf("path %s, want %s", path, want)
		}
	})
	m := newModel(t, newClient(t, serve(t, reply(chunk("hi", "STOP")))))
	if v := m.GetGoogleLLMVariant(); v != genai.BackendGeminiAPI {
		t.Errorf("variant of a Gemini API client: %v", v)
	}
}
