package route_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// echo is a model that answers at once with one item.
type echo struct{ item *LLMResponse }

func (e *echo) Name() string { return "echo" }

func (e *echo) GenerateContent(context.Context, *LLMRequest, bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) { yield(e.item, nil) }
}

// BenchmarkPool measures what a choice of routes adds to a call with a prompt of
// 1 kB, beside the same call at one wrapped model, in the same run; metrics are on
// and the context can be cancelled.
//
//	free    the first route that is asked has room, as is usual
//	busy    all routes but the last have a line, so that each is asked
//	sticky  calls with a key
func BenchmarkPool(b *testing.B) {
	req := &LLMRequest{Contents: genai.Text(strings.Repeat("Headgate. ", 102))}
	model := func(reg prometheus.Registerer, i int) *wrapped {
		g := newGate(b, ratelimited.Config{
			Name: fmt.Sprint(i), Slots: 1 << 20, Registerer: reg,
			Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 1 << 50, InputTokensPerMinute: 1 << 50}),
		})
		return wrap(b, &echo{final(250, 5)}, g)
	}
	measure := func(name string, ctx context.Context, llm LLM) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range llm.GenerateContent(ctx, req, true) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != 1 {
					b.Fatalf("%d items, want 1", n)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	measure("single", ctx, model(prometheus.NewRegistry(), 0))
	for _, routes := range []int{1, 2, 8} {
		reg := prometheus.NewRegistry()
		var ways []way
		for i := range routes {
			ways = append(ways, way{Name: fmt.Sprint(i), Model: model(reg, i), Tier: i})
		}
		p := newPool(b, route.Config{Registerer: reg}, ways...)
		measure(fmt.Sprintf("routes=%d/free", routes), ctx, p)
		measure(fmt.Sprintf("routes=%d/sticky", routes), route.Sticky(ctx, "session"), p)
		for _, w := range ways[:routes-1] {
			if _, err := gateOf(w).Acquire(ctx, ratelimited.Call{Slots: 1 << 20}); err != nil {
				b.Fatal(err)
			}
		}
		measure(fmt.Sprintf("routes=%d/busy", routes), ctx, p)
	}
}
