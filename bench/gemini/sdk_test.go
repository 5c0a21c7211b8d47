package gemini_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
)

func TestTheSDKReadsWholeAnswersAndStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{OutputTokens: 100, Thoughts: 30})
		for name, c := range map[string]*genai.Client{"Gemini API": r.client(), "Vertex AI": r.vertex()} {
			whole, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			u := whole.UsageMetadata
			if u.PromptTokenCount != 2 || u.CandidatesTokenCount != 100 || u.ThoughtsTokenCount != 30 || u.TotalTokenCount != 132 {
				t.Errorf("%s: usage %+v", name, u)
			}
			if n := len(whole.Text()); n != 400 {
				t.Errorf("%s: 100 tokens of text have %d characters, want 400", name, n)
			}
			if whole.Candidates[0].FinishReason != genai.FinishReasonStop || whole.ModelVersion != flash || whole.ResponseID == "" {
				t.Errorf("%s: answer %+v", name, whole)
			}
			chunks, errs := collect(t, c, nil)
			if len(errs) > 0 || len(chunks) != 3 {
				t.Fatalf("%s: %d chunks, errors %v; want 3 of 48, 48 and 4 tokens", name, len(chunks), errs)
			}
			text := ""
			for i, chunk := range chunks {
				text += chunk.Text()
				if finished := chunk.Candidates[0].FinishReason != ""; finished != (i == 2) {
					t.Errorf("%s: chunk %d finished: %v", name, i, finished)
				}
			}
			if last := chunks[2].UsageMetadata; last.TotalTokenCount != 132 || len(text) != 400 {
				t.Errorf("%s: last usage %+v, %d characters", name, last, len(text))
			}
		}
		s := r.double.Stats()
		if s.Completed != 4 || s.InFlight != 0 || s.InputTokens != 8 || s.OutputTokens != 4*130 || s.ThoughtTokens != 4*30 {
			t.Errorf("books: %+v", s)
		}
	})
}

func TestUsageIsCumulativeAndCandidatesAreAbsentInThoughts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{OutputTokens: 20, ChunkTokens: 8, RisingPrompt: 45, Thoughts: 100})
		cfg := &genai.GenerateContentConfig{ThinkingConfig: &genai.ThinkingConfig{IncludeThoughts: true}}
		chunks, errs := collect(t, r.client(), cfg)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		var got []string
		for _, c := range chunks {
			u := c.UsageMetadata
			got = append(got, fmt.Sprintf("%d+%d+%d=%d", u.PromptTokenCount, u.ThoughtsTokenCount, u.CandidatesTokenCount, u.TotalTokenCount))
		}
		want := []string{
			"2+64+0=66", "2+100+0=102", // thoughts, 8 chunks' worth at a time
			"2+100+8=110", "2+100+16=118", "2+100+20=122",
			"47+100+20=167", // the empty last chunk, with more prompt than before
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("usage\n%v, want\n%v", got, want)
		}
		for i, c := range chunks[:2] {
			if p := c.Candidates[0].Content.Parts; len(p) != 1 || !p[0].Thought {
				t.Errorf("chunk %d is not a thought: %+v", i, p[0])
			}
		}
		if last := chunks[len(chunks)-1]; last.Text() != "" || last.Candidates[0].FinishReason != genai.FinishReasonStop {
			t.Errorf("last chunk: %+v", last.Candidates[0])
		}
		// What is reported late is not counted against the quota.
		if s := r.double.Stats(); s.InputTokens != 2 || s.Windows[1].Largest != 2 {
			t.Errorf("books: %d input tokens, largest use %d; want 2", s.InputTokens, s.Windows[1].Largest)
		}
	})
}

func TestATokenCountIsWhatTheQuotaCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{RPM: 1})
		contents := []*genai.Content{genai.NewContentFromParts([]*genai.Part{
			genai.NewPartFromText("What is on the picture? Was ist auf dem Bild? 何が写っていますか"),
			genai.NewPartFromBytes([]byte("not really a picture"), "image/png"),
		}, genai.RoleUser)}
		system := genai.NewContentFromText("Answer in one word.", genai.RoleUser)
		tools := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "zoom", Description: "magnifies the picture"}}}}
		c := r.vertex() // whose counts take system instructions and tools
		count, err := c.Models.CountTokens(t.Context(), flash, contents, &genai.CountTokensConfig{SystemInstruction: system, Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Models.GenerateContent(t.Context(), flash, contents, &genai.GenerateContentConfig{SystemInstruction: system, Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.UsageMetadata.PromptTokenCount; got != count.TotalTokens || got < gemini.TokensPerMedia {
			t.Errorf("counted %d, used %d", count.TotalTokens, got)
		}
		if s := r.double.Stats(); s.InputTokens != int64(count.TotalTokens) || s.Requests != 1 || s.Other["count_tokens"] != 1 {
			t.Errorf("books: %+v; the count itself is free", s)
		}
	})
}

func TestTheSDKFindsEveryDetailOfARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{RPM: 1, TPM: 3, Latency: 20 * time.Second})
		c := r.client()
		if _, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil); err != nil {
			t.Fatal(err)
		}
		_, unary := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil)
		_, streamed := collect(t, c, nil)
		if len(streamed) != 1 {
			t.Fatalf("stream errors: %v, want one, before the first chunk", streamed)
		}
		for _, err := range []error{unary, streamed[0]} {
			var e genai.APIError
			if !errors.As(err, &e) || e.Code != 429 || e.Status != "RESOURCE_EXHAUSTED" || len(e.Details) != 3 {
				t.Fatalf("error %+v", err)
			}
			if !strings.Contains(e.Message, "Please retry in 40s.") {
				t.Errorf("message %q", e.Message)
			}
			violations := e.Details[0]["violations"].([]any)
			first, second := violations[0].(map[string]any), violations[1].(map[string]any)
			if e.Details[0]["@type"] != "type.googleapis.com/google.rpc.QuotaFailure" ||
				first["quotaId"] != "GenerateRequestsPerMinutePerProjectPerModel-FreeTier" || first["quotaValue"] != "1" ||
				second["quotaId"] != "GenerateContentInputTokensPerModelPerMinute-FreeTier" || second["quotaValue"] != "3" ||
				first["quotaDimensions"].(map[string]any)["model"] != flash {
				t.Errorf("quota failure %v", e.Details[0])
			}
			if e.Details[2]["retryDelay"] != "40s" {
				t.Errorf("retry info %v", e.Details[2])
			}
		}
	})
}

func TestWhatTheSDKMakesOfEveryFault(t *testing.T) {
	t.Parallel()
	const silent, plain = -1, 0 // no error; an error that is not one of the API
	tests := []struct {
		fault           string
		unary, streamed int // codes of API errors
		details         int
		status          string
		chunks          int // delivered before the error, of 3
	}{
		{fault: "429", unary: 429, streamed: 429, details: 3, status: "RESOURCE_EXHAUSTED"},
		{fault: "429-day", unary: 429, streamed: 429, details: 3, status: "RESOURCE_EXHAUSTED"},
		{fault: "429-both", unary: 429, streamed: 429, details: 3, status: "RESOURCE_EXHAUSTED"},
		{fault: "429-zero", unary: 429, streamed: 429, details: 3, status: "RESOURCE_EXHAUSTED"},
		{fault: "429-help", unary: 429, streamed: 429, details: 1, status: "RESOURCE_EXHAUSTED"},
		{fault: "429-header", unary: 429, streamed: 429, status: "RESOURCE_EXHAUSTED"}, // the SDK drops headers
		{fault: "429-bare", unary: 429, streamed: 429, status: "RESOURCE_EXHAUSTED"},
		{fault: "402", unary: 402, streamed: 402, status: "RESOURCE_EXHAUSTED"},
		{fault: "500", unary: 500, streamed: 500, status: "INTERNAL"},
		{fault: "502", unary: 502, streamed: 502, status: "502 Bad Gateway"},
		{fault: "503", unary: 503, streamed: 503, status: "UNAVAILABLE"},
		{fault: "504", unary: 504, streamed: 504, status: "DEADLINE_EXCEEDED"},
		{fault: "stream-error", unary: 503, streamed: 503, status: "UNAVAILABLE", chunks: 1},
		{fault: "stream-error@code=429,after=2", unary: 429, streamed: 429, status: "RESOURCE_EXHAUSTED", chunks: 2},
		{fault: "stream-error@after=0", unary: 503, streamed: 503, status: "UNAVAILABLE"},
		{fault: "stream-error-raw", unary: 503, streamed: 503, status: "UNAVAILABLE", chunks: 1},
		{fault: "cut-json", unary: plain, streamed: plain, chunks: 1},
		{fault: "cut", unary: silent, streamed: silent, chunks: 1},
		{fault: "cut@after=99", unary: silent, streamed: silent, chunks: 2}, // never the last one
		{fault: "cut@after=0", unary: silent, streamed: silent, chunks: 0},
		{fault: "drop", unary: plain, streamed: plain, chunks: 1},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, gemini.Config{OutputTokens: 24, ChunkTokens: 8, Faults: []string{tt.fault}})
				c := r.client()
				check := func(how string, err error, want int) {
					t.Helper()
					var e genai.APIError
					switch {
					case !errors.As(err, &e):
						e.Code = plain
						if err == nil {
							e.Code = silent
						}
					case e.Status != tt.status || len(e.Details) != tt.details:
						t.Errorf("%s: status %q with %d details, want %q with %d", how, e.Status, len(e.Details), tt.status, tt.details)
					}
					if e.Code != want {
						t.Errorf("%s: error %v, want code %d", how, err, want)
					}
				}
				whole, err := c.Models.GenerateContent(t.Context(), flash, genai.Text("hello"), nil)
				check("unary", err, tt.unary)
				if err == nil && whole.Candidates[0].FinishReason != "" {
					t.Errorf("unary: a broken answer has the finishReason %q", whole.Candidates[0].FinishReason)
				}
				chunks, errs := collect(t, c, nil)
				check("stream", errors.Join(errs...), tt.streamed)
				text, finished := 0, false
				for _, chunk := range chunks {
					text += len(chunk.Text())
					finished = finished || len(chunk.Candidates) > 0 && chunk.Candidates[0].FinishReason != ""
				}
				if text != tt.chunks*32 || finished {
					t.Errorf("stream: %d characters, finished %v; want %d chunks of 32", text, finished, tt.chunks)
				}
				kind, _, _ := strings.Cut(tt.fault, "@")
				s := r.double.Stats()
				if s.Faults[kind] != 2 || s.Completed != 0 || s.Failed+s.Refused != 2 || s.InFlight != 0 {
					t.Errorf("books: %+v", s)
				}
			})
		})
	}
}

func TestAnAgentLoopEndsWithText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gemini.Config{FunctionCalls: 2, Thoughts: 5})
		tools := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name: "sum",
			Parameters: &genai.Schema{Type: genai.TypeObject, Required: []string{"a"}, Properties: map[string]*genai.Schema{
				"a": {Type: genai.TypeInteger}, "b": {Type: genai.TypeInteger},
			}},
		}}}}
		for _, model := range []string{flash, "gemini-3-flash-preview"} {
			history := genai.Text("add")
			var turns []string
			for range 3 {
				answer, err := r.client().Models.GenerateContent(t.Context(), model, history, &genai.GenerateContentConfig{Tools: tools})
				if err != nil {
					t.Fatal(err)
				}
				calls := answer.FunctionCalls()
				if len(calls) == 0 {
					turns = append(turns, fmt.Sprintf("%d characters", len(answer.Text())))
					break
				}
				turns = append(turns, fmt.Sprintf("%d calls", len(calls)))
				history = append(history, answer.Candidates[0].Content)
				var parts []*genai.Part
				for _, call := range calls {
					if _, ok := call.Args["a"].(float64); call.Name != "sum" || !ok || len(call.Args) != 1 {
						t.Errorf("%s: call %s(%v), want sum with a number a", model, call.Name, call.Args)
					}
					if hasID := call.ID != ""; hasID != strings.HasPrefix(model, "gemini-3") {
						t.Errorf("%s: function call id %q", model, call.ID)
					}
					parts = append(parts, genai.NewPartFromFunctionResponse(call.Name, map[string]any{"sum": 1}))
				}
				history = append(history, genai.NewContentFromParts(parts, genai.RoleUser))
			}
			if got := strings.Join(turns, "; "); got != "2 calls; 1024 characters" {
				t.Errorf("%s: turns: %s", model, got)
			}
		}
	})
}
