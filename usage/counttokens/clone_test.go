package counttokens_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/counttokens"
	"google.golang.org/genai"
)

// A caller that stops waiting has its request back, and writes to it while it is
// still being counted.
func TestARequestIsCountedAsItWasWhenItsCallerCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := counttokens.GenAI(connect(t, genai.BackendGeminiAPI, double(t)), usage.Estimator{})
		count := cfg.Count
		cfg.Count = func(ctx context.Context, req counttokens.Request) (int64, error) {
			time.Sleep(100 * time.Millisecond) // dialling, say, before the request is read
			return count(ctx, req)
		}
		c, err := counttokens.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		req := request()
		if _, exact := c.Estimate(ctx, req); exact {
			t.Error("a count came before its time")
		}
		req.Contents[0].Parts[0].Text = "another text"
		req.Contents[0].Parts = append(req.Contents[0].Parts, &genai.Part{Text: "and one more"})
		req.Config.SystemInstruction.Role = genai.RoleUser
		req.Config.SystemInstruction.Parts = nil
		time.Sleep(time.Second)
		if u, exact := c.Estimate(t.Context(), request()); u.Input != 15 || !exact {
			t.Errorf("the request is counted as %v, exact %v, want an input of 15", u, exact)
		}
		if got := c.Stats(); got.Asked != 1 || got.Remembered != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// words is a request that its caller can write to.
type words struct{ Words []string }

func TestCountIsGivenTheClone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clones := 0
		c, err := counttokens.New(counttokens.Config[words]{
			Count: func(_ context.Context, req words) (int64, error) {
				time.Sleep(100 * time.Millisecond)
				return int64(len(req.Words[0])), nil
			},
			Clone: func(req words) words {
				clones++
				return words{slices.Clone(req.Words)}
			},
			Estimate: func(words) usage.Usage { return offline },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		req := words{[]string{"four"}}
		c.Estimate(ctx, req)
		req.Words[0] = "something longer"
		time.Sleep(time.Second)
		for range 3 {
			if u, exact := c.Estimate(t.Context(), words{[]string{"four"}}); u.Input != 4 || !exact {
				t.Errorf("four bytes are counted as %v, exact %v", u, exact)
			}
		}
		if clones != 1 {
			t.Errorf("%d clones for one count", clones)
		}
	})
}

func TestAPanicOfCloneIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, func(cfg *counttokens.Config[string]) {
			cfg.Failures, cfg.Pause = 1, 10*time.Second
			cfg.Clone = func(req string) string {
				if req == "bad" {
					panic(req)
				}
				return req
			}
		})
		expect(t, c, "bad", false, 0)
		if got := c.Stats(); !got.Paused || got.Failed != 1 || e.calls.Load() != 0 {
			t.Errorf("%+v, %d calls", got, e.calls.Load())
		}
		// A try that ends so is over, too.
		time.Sleep(10 * time.Second)
		expect(t, c, "bad", false, 0)
		synctest.Wait()
		time.Sleep(20 * time.Second)
		expect(t, c, "good", false, 0)
		time.Sleep(time.Second)
		expect(t, c, "good", true, 0)
	})
}

// What a Counter sends of a copy is what Count sends of the request itself.
func TestACopyIsSentAsTheRequestIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		schema := map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string", "maxLength": 1 << 53}}}
		req := counttokens.Request{
			Model: "gemini-2.5-flash",
			Contents: []*genai.Content{
				genai.NewContentFromText("a < b & c \u2028 \x00 слово 😀", genai.RoleUser),
				{Role: genai.RoleModel, Parts: []*genai.Part{
					{FunctionCall: &genai.FunctionCall{ID: "1", Name: "f", Args: map[string]any{"n": 1.5, "list": []any{nil, true, "x"}}}, ThoughtSignature: []byte{0, 255, 7}},
					{Text: "hm", Thought: true},
				}},
				{Role: genai.RoleUser, Parts: []*genai.Part{
					{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "f", Response: map[string]any{"output": "o"}}},
					genai.NewPartFromBytes(bytes.Repeat([]byte{1, 2, 3}, 1000), "image/png"),
					{
						FileData:      &genai.FileData{FileURI: "gs://a/b.mp4", MIMEType: "video/mp4"},
						VideoMetadata: &genai.VideoMetadata{StartOffset: 1500 * time.Millisecond, EndOffset: 3 * time.Minute, FPS: genai.Ptr(0.5)},
					},
				}},
			},
			Config: &genai.GenerateContentConfig{
				SystemInstruction: genai.NewContentFromText("Answer in one word.", ""),
				Tools: []*genai.Tool{
					{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "f", ParametersJsonSchema: schema}, {Name: "g", Parameters: &genai.Schema{
						Type: genai.TypeObject, Properties: map[string]*genai.Schema{"b": {Type: genai.TypeInteger, Minimum: genai.Ptr(1.0), Nullable: genai.Ptr(true)}},
					}}}},
				},
				ResponseJsonSchema: schema, Temperature: genai.Ptr[float32](0.3), MaxOutputTokens: 77,
			},
		}
		for _, backend := range []genai.Backend{genai.BackendGeminiAPI, genai.BackendVertexAI} {
			var bodies []string
			cfg := counttokens.GenAI(connect(t, backend, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				bodies = append(bodies, string(body))
				io.WriteString(w, `{"totalTokens":5}`)
			})), usage.Estimator{})
			direct, err := cfg.Count(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			c, err := counttokens.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			u, exact := c.Estimate(t.Context(), req)
			if !exact || u.Input != direct {
				t.Errorf("%v: an input of %d, exact %v, want %d", backend, u.Input, exact, direct)
			}
			if len(bodies) != 2 || bodies[0] != bodies[1] || len(bodies[0]) < 4000 {
				t.Errorf("%v: sent were %q", backend, bodies)
			}
		}
	})
}

// Package encoding/json writes values that it does not read again.
func TestARequestThatCannotBeCopiedSpeaksNotAgainstTheEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var deep any = "bottom"
		for range 20_000 {
			deep = []any{deep}
		}
		req := request()
		req.Config.ResponseJsonSchema = deep
		cfg := counttokens.GenAI(connect(t, genai.BackendGeminiAPI, double(t)), usage.Estimator{})
		cfg.Failures = 1
		c, err := counttokens.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, exact := c.Estimate(t.Context(), req); exact {
				t.Error("the request has a count")
			}
		}
		if got := c.Stats(); got.Paused || got.Asked != 1 || got.Failed != 1 {
			t.Errorf("%+v", got)
		}
		if u, exact := c.Estimate(t.Context(), request()); u.Input != 15 || !exact {
			t.Errorf("the next request has %v, exact %v", u, exact)
		}
	})
}
