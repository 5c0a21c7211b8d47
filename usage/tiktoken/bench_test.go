package tiktoken_test

import (
	"math"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/headgate-go/headgate/usage"
	"github.com/tiktoken-go/tokenizer"
)

// BenchmarkCount reads the half of the corpus to which nothing was fitted, once
// by each way to tell a text's tokens, and reports beside the speed the error:
// its median and 95th percentile, and the smallest estimate over truth.
func BenchmarkCount(b *testing.B) {
	texts := judged(b)
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		b.Fatal(err)
	}
	size := 0
	for _, text := range texts {
		size += len(text.text)
	}
	for _, way := range []struct {
		name  string
		count func(string) int64
	}{
		{"Headgate", usage.OpenAI.Text},
		{"tiktoken", func(s string) int64 {
			ids, _, err := codec.Encode(s)
			if err != nil {
				b.Fatal(err)
			}
			return int64(len(ids))
		}},
		{"FourCharacters", func(s string) int64 { return int64(utf8.RuneCountInString(s)+3) / 4 }},
		{"ThreeCharacters", func(s string) int64 { return int64(utf8.RuneCountInString(s)+2) / 3 }},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for _, text := range texts {
					way.count(text.text)
				}
			}
			e := errorsOf(texts, way.count)
			b.ReportMetric(100*e.median, "%median")
			b.ReportMetric(100*e.p95, "%p95")
			b.ReportMetric(e.least, "least")
		})
	}
}

// spread is how far estimates are from the truth: the median and the 95th
// percentile of the absolute error, and the least estimate over truth.
type spread struct{ median, p95, least float64 }

func errorsOf(texts []counted, count func(string) int64) spread {
	least := math.Inf(1)
	var off []float64
	for _, text := range texts {
		ratio := float64(count(text.text)) / float64(text.tokens)
		least = min(least, ratio)
		off = append(off, math.Abs(ratio-1))
	}
	slices.Sort(off)
	return spread{off[len(off)/2], off[len(off)*95/100], least}
}
