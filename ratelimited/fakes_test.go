package ratelimited_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"google.golang.org/genai"
)

// The types of ADK Go's package model, structurally: the same interface, and
// the fields of its request and response with their types.
type (
	LLM interface {
		Name() string
		GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error]
	}

	LLMRequest struct {
		Model    string
		Contents []*genai.Content
		Config   *genai.GenerateContentConfig
		Tools    map[string]any `json:"-"`
	}

	LLMResponse struct {
		Content           *genai.Content
		CitationMetadata  *genai.CitationMetadata
		GroundingMetadata *genai.GroundingMetadata
		UsageMetadata     *genai.GenerateContentResponseUsageMetadata
		CustomMetadata    map[string]any
		LogprobsResult    *genai.LogprobsResult
		ModelVersion      string
		Partial           bool
		TurnComplete      bool
		Interrupted       bool
		ErrorCode         string
		ErrorMessage      string
		FinishReason      genai.FinishReason
		AvgLogprobs       float64
	}
)

// yields is what a fake model gives its items to.
type yields = func(*LLMResponse, error) bool

// fakeLLM is a model whose answers are scripted. Every range over a sequence is
// one call, numbered from 1.
type fakeLLM struct {
	name string // "fake" if empty
	play func(ctx context.Context, call int, yield yields)

	mu            sync.Mutex
	calls         int
	running, peak int
	requests      []*LLMRequest
	starts        []time.Time
}

func (f *fakeLLM) Name() string {
	if f.name == "" {
		return "fake"
	}
	return f.name
}

func (f *fakeLLM) GenerateContent(ctx context.Context, req *LLMRequest, _ bool) iter.Seq2[*LLMResponse, error] {
	ranged := false
	return func(yield func(*LLMResponse, error) bool) {
		if ranged {
			panic("the inner sequence was ranged twice")
		}
		ranged = true
		f.mu.Lock()
		f.calls++
		n := f.calls
		f.running++
		f.peak = max(f.peak, f.running)
		f.requests = append(f.requests, req)
		f.starts = append(f.starts, time.Now())
		f.mu.Unlock()
		// A call is in flight until its answer is complete, as a provider sees it.
		landed := sync.OnceFunc(func() {
			f.mu.Lock()
			f.running--
			f.mu.Unlock()
		})
		defer landed()
		f.play(ctx, n, func(item *LLMResponse, err error) bool {
			if err != nil || item != nil && !item.Partial {
				landed()
			}
			return yield(item, err)
		})
	}
}

func (f *fakeLLM) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// peakCount is the largest number of calls in flight together so far.
func (f *fakeLLM) peakCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peak
}

func (f *fakeLLM) resetPeak() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peak = 0
}

// startedAfter is when the n-th call (from 1) was sent, as time since start.
func (f *fakeLLM) startedAfter(start time.Time, n int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[n-1].Sub(start)
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answers is a model that takes d for each call and then gives the items, or
// the context's error.
func answers(d time.Duration, items ...*LLMResponse) *fakeLLM {
	return &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
		if err := wait(ctx, d); err != nil {
			yield(nil, err)
			return
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}}
}

func used(in, out int32) *genai.GenerateContentResponseUsageMetadata {
	return &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount: in, CandidatesTokenCount: out, TotalTokenCount: in + out,
	}
}

// part is an item that others follow.
func part(text string) *LLMResponse {
	return &LLMResponse{Content: genai.NewContentFromText(text, genai.RoleModel), Partial: true}
}

// final is an item that completes an answer and reports its usage.
func final(in, out int32) *LLMResponse {
	return &LLMResponse{Content: genai.NewContentFromText("end", genai.RoleModel), UsageMetadata: used(in, out), TurnComplete: true}
}

func prompt(text string) *LLMRequest { return &LLMRequest{Contents: genai.Text(text)} }

// hello is a request that is estimated at a handful of input tokens and, with
// its limit, at 10 output tokens.
func hello() *LLMRequest {
	return &LLMRequest{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{MaxOutputTokens: 10}}
}

// Errors of a provider.

type detail = map[string]any

func retryInfo(delay string) detail {
	return detail{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
}

func quotaFailure(ids ...string) detail {
	var violations []any
	for _, id := range ids {
		violations = append(violations, detail{"quotaId": id})
	}
	return detail{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}
}

const (
	requestsPerMinute = "GenerateRequestsPerMinutePerProjectPerModel"
	requestsPerDay    = "GenerateRequestsPerDayPerProjectPerModel"
	inputPerMinute    = "GenerateContentInputTokensPerModelPerMinute"
)

func throttled(details ...detail) error {
	return genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Message: "quota", Details: details}
}

func overloaded() error { return genai.APIError{Code: 503, Status: "UNAVAILABLE"} }

func badRequest() error { return genai.APIError{Code: 400, Status: "INVALID_ARGUMENT"} }

func notSent() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "example.invalid"}}
}

var errBroken = errors.New("connection reset by peer")

// Helpers around a gate.

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func newGate(t *testing.T, cfg ratelimited.Config) *ratelimited.Gate {
	t.Helper()
	g, err := ratelimited.NewGate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wrap(t *testing.T, m LLM, g *ratelimited.Gate, opts ...ratelimited.Option) LLM {
	t.Helper()
	llm, err := ratelimited.New(m, g, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return llm
}

// collect ranges a whole call and returns its items and its last error.
func collect(seq iter.Seq2[*LLMResponse, error]) (items []*LLMResponse, err error) {
	for item, e := range seq {
		if e != nil {
			err = e
			continue
		}
		items = append(items, item)
	}
	return items, err
}

// call makes a whole streamed call.
func call(ctx context.Context, llm LLM, req *LLMRequest) error {
	_, err := collect(llm.GenerateContent(ctx, req, true))
	return err
}

// mustBeIdle checks that nothing is held, in flight or in line.
func mustBeIdle(t *testing.T, g *ratelimited.Gate) {
	t.Helper()
	synctest.Wait()
	mustHoldNothing(t, g)
}

// mustHoldNothing is mustBeIdle where every goroutine has come back.
func mustHoldNothing(t *testing.T, g *ratelimited.Gate) {
	t.Helper()
	s := g.Stats()
	if s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 || g.Alive() != 0 || g.Failures() != 0 {
		t.Errorf("after all calls: %d slots in use, %d running, %d waiting, %d alive, %d failures kept; want none",
			s.SlotsInUse, s.Running, s.Waiting, g.Alive(), g.Failures())
	}
	for _, d := range s.Dimensions {
		if d.Queued != 0 {
			t.Errorf("after all calls: %d units of %q queued, want none", d.Queued, d.Name)
		}
	}
}

// booked is what a sliding dimension of a gate with a headroom of 1 has on its
// books for the current window.
func booked(t *testing.T, g *ratelimited.Gate, name string) int64 {
	t.Helper()
	for _, d := range g.Stats().Dimensions {
		if d.Name == name {
			return int64(math.Ceil(float64(d.Limit)*d.Share)) - d.Level
		}
	}
	t.Fatalf("no dimension %q", name)
	return 0
}

// level is what could be taken of a dimension now.
func level(t *testing.T, g *ratelimited.Gate, name string) int64 {
	t.Helper()
	for _, d := range g.Stats().Dimensions {
		if d.Name == name {
			return d.Level
		}
	}
	t.Fatalf("no dimension %q", name)
	return 0
}

func ptr[T any](v T) *T { return &v }

// bubbleRun is bubble as a subtest that is named after a value.
func bubbleRun(t *testing.T, what string, value any, f func(t *testing.T)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s %v", what, value), func(t *testing.T) { bubble(t, f) })
}
