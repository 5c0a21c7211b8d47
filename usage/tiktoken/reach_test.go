package tiktoken_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
	"github.com/tiktoken-go/tokenizer"
)

// Estimating must be worth its error: twenty times as fast as encoding over all
// texts, and ten times on the kind that gains least, even on a busy machine. The
// figures of a quiet one are in BenchmarkCount.
func TestEstimatingIsTwentyTimesAsFastAsEncoding(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector slows both, but not alike")
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][]string{}
	for _, text := range judged(t) {
		kinds[text.kind] = append(kinds[text.kind], text.text)
	}
	var allOurs, allTheirs time.Duration
	for kind, texts := range kinds {
		// The shortest of many times is the least disturbed.
		quickest := func(tries, rounds int, count func(string)) time.Duration {
			best := time.Duration(1 << 62)
			for range tries {
				start := time.Now()
				for range rounds {
					for _, text := range texts {
						count(text)
					}
				}
				best = min(best, time.Since(start)/time.Duration(rounds))
			}
			return best
		}
		ours := quickest(10, 20, func(s string) { usage.OpenAI.Text(s) })
		theirs := quickest(5, 1, func(s string) {
			if _, _, err := codec.Encode(s); err != nil {
				t.Fatal(err)
			}
		})
		ratio := float64(theirs) / float64(ours)
		t.Logf("%-11s %3.0f times as fast", kind, ratio)
		if ratio < 10 {
			t.Errorf("%s: %.1f times as fast, must be 10", kind, ratio)
		}
		allOurs += ours
		allTheirs += theirs
	}
	if ratio := float64(allTheirs) / float64(allOurs); ratio < 20 {
		t.Errorf("all texts: %.1f times as fast, must be 20", ratio)
	}
}
