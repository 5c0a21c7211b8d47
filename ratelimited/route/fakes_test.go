package route_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// The types of ADK Go's package model, structurally.
type (
	LLM interface {
		Name() string
		GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error]
	}

	LLMRequest struct {
		Model    string
		Contents []*genai.Content
		Config   *genai.GenerateContentConfig
	}

	LLMResponse struct {
		Content       *genai.Content
		UsageMetadata *genai.GenerateContentResponseUsageMetadata
		Partial       bool
		ErrorCode     string
		ModelVersion  string // of the route that answered
	}
)

type (
	yields  = func(*LLMResponse, error) bool
	way     = route.Route[*LLMRequest, *LLMResponse]
	pool    = route.Pool[*LLMRequest, *LLMResponse]
	wrapped = ratelimited.RateLimitedModel[*LLMRequest, *LLMResponse]
)

// fakeLLM is a model whose answers are scripted. Every range over a sequence is
// one call, numbered from 1.
type fakeLLM struct {
	name string // "fake" if empty
	play func(ctx context.Context, call int, yield yields)

	mu       sync.Mutex
	requests []*LLMRequest
}

func (f *fakeLLM) Name() string {
	if f.name == "" {
		return "fake"
	}
	return f.name
}

func (f *fakeLLM) GenerateContent(ctx context.Context, req *LLMRequest, _ bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		f.mu.Lock()
		f.requests = append(f.requests, req)
		n := len(f.requests)
		f.mu.Unlock()
		f.play(ctx, n, yield)
	}
}

func (f *fakeLLM) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
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

// answers is a model that takes d for each call and then answers in two items.
func answers(d time.Duration) *fakeLLM {
	return &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
		if err := wait(ctx, d); err != nil {
			yield(nil, err)
			return
		}
		_ = yield(part("a"), nil) && yield(final(5, 5), nil)
	}}
}

// refuses is a model that answers every call with an error, as long as when says
// so (nil is always), and serves the others in d.
func refuses(err error, d time.Duration, when func(call int) bool) *fakeLLM {
	f := answers(d)
	serve := f.play
	f.play = func(ctx context.Context, call int, yield yields) {
		if when == nil || when(call) {
			yield(nil, err)
			return
		}
		serve(ctx, call, yield)
	}
	return f
}

func part(text string) *LLMResponse {
	return &LLMResponse{Content: genai.NewContentFromText(text, genai.RoleModel), Partial: true}
}

func final(in, out int32) *LLMResponse {
	return &LLMResponse{
		Content: genai.NewContentFromText("end", genai.RoleModel),
		UsageMetadata: &genai.GenerateContentResponseUsageMetadata{
			PromptTokenCount: in, CandidatesTokenCount: out, TotalTokenCount: in + out,
		},
	}
}

func hello() *LLMRequest {
	return &LLMRequest{Contents: genai.Text("hello"), Config: &genai.GenerateContentConfig{MaxOutputTokens: 10}}
}

// Errors of a provider.

func retryInfo(delay time.Duration) map[string]any {
	return map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fmt.Sprintf("%.3fs", delay.Seconds())}
}

func throttled(details ...map[string]any) error {
	return genai.APIError{Code: 429, Status: "RESOURCE_EXHAUSTED", Message: "quota", Details: details}
}

func perDay() error {
	return throttled(map[string]any{
		"@type":      "type.googleapis.com/google.rpc.QuotaFailure",
		"violations": []any{map[string]any{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}},
	})
}

func overloaded() error { return genai.APIError{Code: 503, Status: "UNAVAILABLE"} }

func badRequest() error { return genaiError(400) }

func genaiError(code int) error { return genai.APIError{Code: code} }

func notSent() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "example.invalid"}}
}

var errBroken = errors.New("connection reset by peer")

// Gates, routes, pools.

var perMinute = ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1000, InputTokensPerMinute: 1_000_000})

func newGate(t testing.TB, cfg ratelimited.Config) *ratelimited.Gate {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	g, err := ratelimited.NewGate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wrap(t testing.TB, m LLM, g *ratelimited.Gate, opts ...ratelimited.Option) *wrapped {
	t.Helper()
	llm, err := ratelimited.New(m, g, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return llm
}

// via is a route to a model behind a gate of its own.
func via(t testing.TB, name string, m LLM, opts ...ratelimited.Option) way {
	t.Helper()
	return way{Name: name, Model: wrap(t, m, newGate(t, ratelimited.Config{Name: name, Slots: 10, Profile: perMinute}), opts...)}
}

// at puts a route into a tier.
func at(tier int, w way) way {
	w.Tier = tier
	return w
}

func newPool(t testing.TB, cfg route.Config, ways ...way) *pool {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p, err := route.New(cfg, ways)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gateOf(w way) *ratelimited.Gate { return w.Model.(*wrapped).Gate() }

// occupy takes all slots of a gate, until release.
func occupy(t *testing.T, g *ratelimited.Gate) (release func()) {
	t.Helper()
	p, err := g.Acquire(t.Context(), ratelimited.Call{Slots: int(g.Stats().SlotLimit)})
	if err != nil {
		t.Fatal(err)
	}
	return p.Release
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
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
func call(ctx context.Context, llm LLM) error {
	_, err := collect(llm.GenerateContent(ctx, hello(), true))
	return err
}

// mustBeIdle checks that nothing is held, in flight or in line at any route.
func mustBeIdle(t *testing.T, p *pool) {
	t.Helper()
	synctest.Wait()
	for _, g := range p.Gates() {
		if s := g.Stats(); s.SlotsInUse != 0 || s.Running != 0 || s.Waiting != 0 {
			t.Errorf("gate %q: %d slots in use, %d running, %d waiting; want none", g.Name(), s.SlotsInUse, s.Running, s.Waiting)
		}
	}
}

// gather reads all series of the pool: name and labels (without the pool's) to
// value.
func gather(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "pool" {
					labels = append(labels, fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()))
				}
			}
			key := strings.TrimPrefix(f.GetName(), "headgate_route_") + "{" + strings.Join(labels, ",") + "}"
			all[key] = m.Counter.GetValue() + m.Gauge.GetValue()
		}
	}
	return all
}

func ptr[T any](v T) *T { return &v }

// lines is a writer for a slog.Handler that keeps lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.TrimSpace(string(b)))
	return len(b), nil
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
