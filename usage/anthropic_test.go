package usage_test

import (
	"math"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

func TestFromAnthropicAddsUpTheDisjointPartsOfThePrompt(t *testing.T) {
	t.Parallel()
	const huge = math.MaxInt64
	for _, c := range []struct {
		name string
		r    usage.AnthropicReport
		want usage.Usage
	}{
		{"nothing", usage.AnthropicReport{}, usage.Usage{}},
		{"plain", usage.AnthropicReport{Input: 25, Output: 15}, usage.Usage{Input: 25, Output: 15}},
		{
			"read and written beside the rest",
			usage.AnthropicReport{Input: 21, CacheCreation: 300, CacheRead: 188_086, Output: 393},
			usage.Usage{Input: 188_407, CachedInput: 188_086, CacheWrite: 300, Output: 393},
		},
		{
			"the whole prompt was cached",
			usage.AnthropicReport{CacheRead: 2048, Output: 10},
			usage.Usage{Input: 2048, CachedInput: 2048, Output: 10},
		},
		{
			"a prompt that only fills the cache",
			usage.AnthropicReport{CacheCreation: 2048},
			usage.Usage{Input: 2048, CacheWrite: 2048},
		},
		{
			"thinking inside output",
			usage.AnthropicReport{Input: 30, Output: 500, Thinking: 400},
			usage.Usage{Input: 30, Output: 500, Thoughts: 400},
		},
		{
			"nothing but thinking",
			usage.AnthropicReport{Output: 400, Thinking: 400},
			usage.Usage{Output: 400, Thoughts: 400},
		},
		{
			"more thinking than output",
			usage.AnthropicReport{Input: 30, Output: 100, Thinking: 400},
			usage.Usage{Input: 30, Output: 400, Thoughts: 400, Flags: usage.Mismatch},
		},
		{
			"a negative part is none",
			usage.AnthropicReport{Input: 30, CacheRead: -5, Output: 100},
			usage.Usage{Input: 30, Output: 100, Flags: usage.Mismatch},
		},
		{
			"nothing but negative numbers is no report, and a mismatch",
			usage.AnthropicReport{Input: -1, CacheCreation: math.MinInt64, CacheRead: -1, Output: -1, Thinking: -1},
			usage.Usage{Flags: usage.Mismatch},
		},
		{
			"sums do not overflow",
			usage.AnthropicReport{Input: huge, CacheCreation: 1, CacheRead: huge, Output: huge, Thinking: huge},
			usage.Usage{Input: huge, CachedInput: huge, CacheWrite: 1, Output: huge, Thoughts: huge},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := usage.FromAnthropic(c.r); got != c.want {
				t.Errorf("got  %+v (%v)\nwant %+v (%v)", got, got.Flags, c.want, c.want.Flags)
			}
		})
	}
}

// The prompt is reported when the stream starts, the output at its end; some
// servers send zeros for the other half.
func TestAnthropicsStreamedReportsMergeByMaximum(t *testing.T) {
	t.Parallel()
	start := usage.FromAnthropic(usage.AnthropicReport{Input: 21, CacheRead: 1800, Output: 1})
	for name, end := range map[string]usage.AnthropicReport{
		"all of it again":         {Input: 21, CacheRead: 1800, Output: 500, Thinking: 300},
		"the output only":         {Output: 500, Thinking: 300},
		"without the cached part": {Input: 21, Output: 500, Thinking: 300},
	} {
		want := usage.Usage{Input: 1821, CachedInput: 1800, Output: 500, Thoughts: 300}
		if got := start.Max(usage.FromAnthropic(end)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func FuzzFromAnthropic(f *testing.F) {
	f.Add(int64(21), int64(300), int64(188_086), int64(393), int64(0))
	f.Add(int64(30), int64(0), int64(0), int64(100), int64(400))
	f.Add(int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(3), int64(-5))
	f.Fuzz(func(t *testing.T, input, write, read, output, thinking int64) {
		u := usage.FromAnthropic(usage.AnthropicReport{Input: input, CacheCreation: write, CacheRead: read, Output: output, Thinking: thinking})
		if u.Clamp() != u {
			t.Fatalf("%+v is negative, or a part is more than its whole", u)
		}
		positive, negative, largest := false, false, int64(0)
		for _, n := range []int64{input, write, read, output, thinking} {
			positive, negative, largest = positive || n > 0, negative || n < 0, max(largest, n)
		}
		if u.Total() < largest {
			t.Fatalf("total %d is less than a part of %d", u.Total(), largest)
		}
		if u.CachedInput != max(read, 0) || u.CacheWrite != max(write, 0) || u.Thoughts != max(thinking, 0) {
			t.Fatalf("%+v does not keep the parts", u)
		}
		if u.IsZero() == positive {
			t.Fatalf("whether %+v is a report is wrong", u)
		}
		if negative && !u.Has(usage.Mismatch) {
			t.Fatalf("a negative number is not flagged in %+v", u)
		}
		if u.Has(usage.Estimated) || u.Has(usage.TotalOnly) {
			t.Fatalf("a report in parts has the flags %v", u.Flags)
		}
	})
}
