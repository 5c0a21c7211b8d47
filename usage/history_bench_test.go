package usage_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// outputs are outputs of a lognormal model, made before a benchmark's clock runs.
func outputs() *[1024]int64 {
	m := lognormal{rand.New(rand.NewPCG(1, 1)), 8192}
	var out [1024]int64
	for i := range out {
		out[i] = m.output()
	}
	return &out
}

// One call's share: an estimate corrected, and a settled usage learned from.
func BenchmarkHistory(b *testing.B) {
	out := outputs()
	b.Run("Observe", func(b *testing.B) {
		h, at := history(b, usage.HistoryConfig{}), noon
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at = at.Add(time.Millisecond)
			h.Observe("gemini-3-pro-preview", "researcher", estimate, usage.Usage{Input: 120, Output: out[i%len(out)]}, at)
		}
	})
	b.Run("Factor after each Observe", func(b *testing.B) {
		h, at := history(b, usage.HistoryConfig{}), noon
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at = at.Add(time.Millisecond)
			h.Observe("gemini-3-pro-preview", "researcher", estimate, usage.Usage{Input: 120, Output: out[i%len(out)]}, at)
			h.Factor("gemini-3-pro-preview", "researcher", usage.P95, at)
		}
	})
	b.Run("Factor", func(b *testing.B) {
		h := history(b, usage.HistoryConfig{})
		at := learn(h, 1000, usage.Usage{Input: 120, Output: 700}, noon)
		b.ReportAllocs()
		for b.Loop() {
			h.Factor("m", "a", usage.P95, at)
		}
	})
	b.Run("Apply", func(b *testing.B) {
		h := history(b, usage.HistoryConfig{})
		at := learn(h, 1000, usage.Usage{Input: 120, Output: 700}, noon)
		f := h.Factor("m", "a", usage.P95, at)
		b.ReportAllocs()
		for b.Loop() {
			f.Apply(estimate, 8192)
		}
	})
	b.Run("parallel, one pair", func(b *testing.B) {
		h := history(b, usage.HistoryConfig{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			at := noon
			for i := 0; pb.Next(); i++ {
				at = at.Add(time.Millisecond)
				h.Factor("m", "a", usage.P95, at)
				h.Observe("m", "a", estimate, usage.Usage{Input: 120, Output: out[i%len(out)]}, at)
			}
		})
	})
}

func TestHistoryAllocatesNothingPerCall(t *testing.T) {
	h := history(t, usage.HistoryConfig{})
	at := learn(h, 2000, usage.Usage{Input: 120, Output: 700}, noon)
	if n := testing.AllocsPerRun(1000, func() {
		at = at.Add(time.Minute)
		u := h.Factor("m", "a", usage.P95, at).Apply(estimate, 8192)
		h.Observe("m", "a", estimate, usage.Usage{Input: 90, Output: u.Output}, at)
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// What a budget in money adds to a call.
func BenchmarkPrice(b *testing.B) {
	c, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{list(listed("2", "gemini-3-pro-preview"), listed("1", "gpt-4o"))}})
	if err != nil {
		b.Fatal(err)
	}
	at, u := day("2026-12-01"), usage.Usage{Input: 1050, CachedInput: 800, Output: 500, Thoughts: 400}
	for name, model := range map[string]string{"listed name": "gemini-3-pro-preview", "longer name": "models/gemini-3-pro-preview-latest"} {
		b.Run("look up, "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Price(model, at, usage.Standard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	p, err := c.Price("gpt-4o", at, usage.Standard)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("cost", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Cost(u); err != nil {
				b.Fatal(err)
			}
		}
	})
}
