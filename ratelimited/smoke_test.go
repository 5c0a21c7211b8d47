package ratelimited

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"
)

type llmReq struct {
	Model    string
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig
}
type llmResp struct {
	Content       *genai.Content
	UsageMetadata *genai.GenerateContentResponseUsageMetadata
	Partial       bool
	ErrorCode     string
}
type LLM interface {
	Name() string
	GenerateContent(ctx context.Context, req *llmReq, stream bool) iter.Seq2[*llmResp, error]
}
type fake struct {
	n int
	f func(n int, yield func(*llmResp, error) bool)
}

func (f *fake) Name() string { return "fake" }
func (f *fake) GenerateContent(ctx context.Context, req *llmReq, stream bool) iter.Seq2[*llmResp, error] {
	return func(yield func(*llmResp, error) bool) { f.n++; f.f(f.n, yield) }
}

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGate(Config{Slots: 1, Profile: GeminiAPI(Quota{RequestsPerMinute: 100, InputTokensPerMinute: 10000})})
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{f: func(n int, yield func(*llmResp, error) bool) {
			if n == 1 {
				yield(nil, genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}}})
				return
			}
			if !yield(&llmResp{Partial: true, UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 10}}, nil) {
				return
			}
			yield(&llmResp{UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 10, CandidatesTokenCount: 7}}, nil)
		}}
		m, err := New(LLM(f), g)
		if err != nil {
			t.Fatal(err)
		}
		var llm LLM = m
		start := time.Now()
		for r, err := range llm.GenerateContent(t.Context(), &llmReq{Contents: genai.Text("hello world")}, true) {
			t.Log(time.Since(start), r, err, fmt.Sprintf("%+v", g.Stats()))
		}
		t.Log(fmt.Sprintf("%+v", g.Stats()))
		t.Log(g.Close(t.Context()))
	})
}
