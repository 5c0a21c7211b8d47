package ratelimited_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/genai"
)

const benchTokens = 1000

// plenty is more than any benchmark uses.
const plenty = 1 << 50

// newBenchGate is a gate whose limits never bind, only its slots do.
func newBenchGate(tb testing.TB, slots int64) *ratelimited.Gate {
	bucket := func(name string, count func(usage.Usage) int64) ratelimited.Dimension {
		return ratelimited.Dimension{Name: name, Limit: plenty, Shape: ratelimited.Bucket, Count: count}
	}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots: slots, MaxWaiting: 1 << 20,
		Profile: ratelimited.Profile{Name: "bench", Dimensions: []ratelimited.Dimension{
			bucket("requests", ratelimited.OneRequest), bucket("tokens", ratelimited.InputTokens),
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return gate
}

// peer is what people put together today: a semaphore and two rate limiters.
type peer struct {
	slots            *semaphore.Weighted
	requests, tokens *rate.Limiter
}

func newPeer(slots int64) *peer {
	return &peer{
		slots:    semaphore.NewWeighted(slots),
		requests: rate.NewLimiter(plenty/60, plenty), tokens: rate.NewLimiter(plenty/60, plenty),
	}
}

// BenchmarkAdmit measures what admission of one call costs: the same work on
// both sides, a slot, a request budget and a token budget.
//
//	serial    one goroutine, capacity free
//	parallel  64 goroutines, capacity free
//	queued    64 goroutines on 8 slots; a holder yields the processor once
func BenchmarkAdmit(b *testing.B) {
	used := usage.Usage{Input: benchTokens}
	for _, side := range []struct {
		name string
		call func(tb testing.TB, slots int64) func(ctx context.Context, hold func())
	}{
		{"headgate", func(tb testing.TB, slots int64) func(context.Context, func()) {
			g := newBenchGate(tb, slots)
			call := ratelimited.Call{Usage: used}
			return func(ctx context.Context, hold func()) {
				p, err := g.Acquire(ctx, call)
				if err != nil {
					tb.Error(err)
					return
				}
				hold()
				p.End(used)
			}
		}},
		{"semaphore+rate", func(tb testing.TB, slots int64) func(context.Context, func()) {
			p := newPeer(slots)
			return func(ctx context.Context, hold func()) {
				if err := errors.Join(p.slots.Acquire(ctx, 1), p.requests.WaitN(ctx, 1), p.tokens.WaitN(ctx, benchTokens)); err != nil {
					tb.Error(err)
					return
				}
				hold()
				p.slots.Release(1)
			}
		}},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		b.Run(side.name, func(b *testing.B) {
			b.Run("serial", func(b *testing.B) {
				call := side.call(b, 1<<30)
				b.ReportAllocs()
				for b.Loop() {
					call(ctx, func() {})
				}
			})
			b.Run("parallel", func(b *testing.B) {
				call := side.call(b, 1<<30)
				spread(b, 64, func() { call(ctx, func() {}) })
			})
			b.Run("queued", func(b *testing.B) {
				call := side.call(b, 8)
				spread(b, 64, func() { call(ctx, runtime.Gosched) })
			})
		})
		cancel()
	}
}

// spread runs b.N calls of f on n goroutines.
func spread(b *testing.B, n int, f func()) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
}

// echo is a model that answers at once with the same items.
type echo struct {
	items []*genai.GenerateContentResponse
}

type echoRequest struct {
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig
}

func (e *echo) Name() string { return "echo" }

func (e *echo) GenerateContent(context.Context, *echoRequest, bool) iter.Seq2[*genai.GenerateContentResponse, error] {
	return func(yield func(*genai.GenerateContentResponse, error) bool) {
		for _, item := range e.items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

func newEcho(items int) *echo {
	e := &echo{}
	for i := range items {
		resp := &genai.GenerateContentResponse{
			Candidates:    []*genai.Candidate{{Content: genai.NewContentFromText("word", genai.RoleModel)}},
			UsageMetadata: &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 250, CandidatesTokenCount: int32(i + 1), TotalTokenCount: int32(251 + i)},
		}
		if i == items-1 {
			resp.Candidates[0].FinishReason = genai.FinishReasonStop
		}
		e.items = append(e.items, resp)
	}
	return e
}

// BenchmarkModel measures what wrapping a model adds to a call with a prompt of
// 1 kB, metrics on and a context that can be cancelled. The opponent of its
// target is BenchmarkAdmit/semaphore+rate/serial.
func BenchmarkModel(b *testing.B) {
	req := &echoRequest{Contents: genai.Text(strings.Repeat("Headgate. ", 102))}
	for _, items := range []int{1, 100} {
		bare := newEcho(items)
		gate, err := ratelimited.NewGate(ratelimited.Config{
			Slots: 1 << 20, Registerer: prometheus.NewRegistry(),
			Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: plenty, InputTokensPerMinute: plenty}),
		})
		if err != nil {
			b.Fatal(err)
		}
		wrapped, err := ratelimited.New(bare, gate)
		if err != nil {
			b.Fatal(err)
		}
		for _, side := range []struct {
			name  string
			model ratelimited.Model[*echoRequest, *genai.GenerateContentResponse]
		}{{"bare", bare}, {"headgate", wrapped}} {
			b.Run(fmt.Sprintf("%s/items=%d", side.name, items), func(b *testing.B) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				b.ReportAllocs()
				for b.Loop() {
					n := 0
					for _, err := range side.model.GenerateContent(ctx, req, true) {
						if err != nil {
							b.Fatal(err)
						}
						n++
					}
					if n != items {
						b.Fatalf("%d items, want %d", n, items)
					}
				}
			})
		}
	}
}

// BenchmarkWaiting measures the memory of 100,000 waiting calls over 10,000
// flows, beside goroutines that are blocked in a select of two channels, and the
// time of one grant while they wait.
func BenchmarkWaiting(b *testing.B) {
	const calls, flows = 100_000, 10_000
	names := make([]string, flows)
	for i := range names {
		names[i] = fmt.Sprintf("flow-%05d", i)
	}
	var bare, waiting, grant float64
	blocked(2 * calls) // the runtime keeps its records of goroutines: neither side pays for them
	for b.Loop() {
		bare = blocked(calls)

		g := newBenchGate(b, 1)
		ctx, cancel := context.WithCancel(context.Background())
		first, err := g.Acquire(ctx, ratelimited.Call{})
		if err != nil {
			b.Fatal(err)
		}
		caller := &struct {
			ctx   context.Context
			gate  *ratelimited.Gate
			flows []string
		}{ctx, g, names}
		before := memory()
		var wg sync.WaitGroup
		for i := range calls { // what each goroutine captures is as much as in blocked
			wg.Go(func() {
				p, err := caller.gate.Acquire(caller.ctx, ratelimited.Call{Flow: caller.flows[i%flows], Usage: usage.Usage{Input: benchTokens}})
				if err == nil {
					p.End(usage.Usage{})
				}
			})
		}
		for g.Stats().Waiting < calls {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		waiting = float64(memory()-before) / calls
		start := time.Now()
		first.End(usage.Usage{})
		wg.Wait()
		grant = float64(time.Since(start).Nanoseconds()) / calls
		cancel()
	}
	b.ReportMetric(bare, "B/bare-goroutine")
	b.ReportMetric(waiting-bare, "B/waiting-call-above-bare")
	b.ReportMetric(grant, "ns/grant")
}

// blocked is the memory of one goroutine that waits in a two-way select.
func blocked(n int) float64 {
	a, z := make(chan struct{}), make(chan struct{})
	before := memory()
	var wg sync.WaitGroup
	var started atomic.Int64
	for range n {
		wg.Go(func() {
			started.Add(1)
			select {
			case <-a:
			case <-z:
			}
		})
	}
	for started.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	used := memory() - before
	close(a)
	wg.Wait()
	return float64(used) / float64(n)
}

// memory is what the heap and the stacks hold after collection.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
