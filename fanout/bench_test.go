package fanout_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-go/headgate/fanout"
)

// BenchmarkForEach runs 1,000 branches that do next to nothing, so that what is
// measured is the fan-out. The opponent is an errgroup with SetLimit, which
// starts a goroutine for each branch and has no shared width.
func BenchmarkForEach(b *testing.B) {
	items := numbers(1000)
	results := make([]int, len(items))
	branch := func(_ context.Context, i int) error {
		results[i] = i * i
		return nil
	}
	run := func(b *testing.B, ctx context.Context, each func(ctx context.Context) error) {
		b.Helper()
		b.ReportAllocs()
		for b.Loop() {
			if err := each(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(items)), "ns/branch")
	}
	for _, width := range []int{1, 8, 64} {
		forEach := func(ctx context.Context) error { return fanout.ForEach(ctx, width, items, branch) }
		b.Run(fmt.Sprintf("fanout/width=%d", width), func(b *testing.B) {
			run(b, b.Context(), forEach)
		})
		b.Run(fmt.Sprintf("fanout-shared/width=%d", width), func(b *testing.B) {
			ctx, err := fanout.WithWidth(b.Context(), width)
			if err != nil {
				b.Fatal(err)
			}
			run(b, ctx, forEach)
		})
		b.Run(fmt.Sprintf("errgroup/width=%d", width), func(b *testing.B) {
			run(b, b.Context(), func(ctx context.Context) error {
				g, ctx := errgroup.WithContext(ctx)
				g.SetLimit(width)
				for _, i := range items {
					g.Go(func() error { return branch(ctx, i) })
				}
				return g.Wait()
			})
		})
	}
}
