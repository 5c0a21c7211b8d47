package usage_test

import (
	"math"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

func TestFromOpenAIReadsWhereThePartsStandFromTheTotal(t *testing.T) {
	t.Parallel()
	const huge = math.MaxInt64
	for _, c := range []struct {
		name string
		r    usage.OpenAIReport
		want usage.Usage
	}{
		{"no report", usage.OpenAIReport{}, usage.Usage{}},

		// Consistent reports.
		{
			"prompt and completion",
			usage.OpenAIReport{Prompt: 90, Completion: 12, Total: 102},
			usage.Usage{Input: 90, Output: 12},
		},
		{
			"cached, written and reasoning tokens are inside",
			usage.OpenAIReport{Prompt: 1000, Cached: 700, CacheWrite: 200, Completion: 500, Reasoning: 400, Total: 1500},
			usage.Usage{Input: 1000, CachedInput: 700, CacheWrite: 200, Output: 500, Thoughts: 400},
		},
		{
			"the total shows that reasoning stands beside the completion",
			usage.OpenAIReport{Prompt: 1000, Completion: 100, Reasoning: 400, Total: 1500},
			usage.Usage{Input: 1000, Output: 500, Thoughts: 400},
		},
		{
			"an embedding has no completion",
			usage.OpenAIReport{Prompt: 8, Total: 8},
			usage.Usage{Input: 8},
		},

		// Parts without a total, and a total without parts.
		{
			"no total",
			usage.OpenAIReport{Prompt: 100, Completion: 50, Reasoning: 20},
			usage.Usage{Input: 100, Output: 50, Thoughts: 20},
		},
		{
			"total only",
			usage.OpenAIReport{Total: 321},
			usage.Usage{Output: 321, Flags: usage.TotalOnly},
		},

		// Parts that disagree.
		{
			"the total is larger than both readings",
			usage.OpenAIReport{Prompt: 100, Completion: 50, Reasoning: 20, Total: 200},
			usage.Usage{Input: 100, Output: 100, Thoughts: 20, Flags: usage.Mismatch},
		},
		{
			"the total is smaller than both readings",
			usage.OpenAIReport{Prompt: 100, Completion: 50, Total: 90},
			usage.Usage{Input: 100, Output: 50, Flags: usage.Mismatch},
		},
		{
			"more cached and written than prompt",
			usage.OpenAIReport{Prompt: 100, Cached: 80, CacheWrite: 40, Completion: 10, Total: 110},
			usage.Usage{Input: 120, CachedInput: 80, CacheWrite: 40, Output: 10, Flags: usage.Mismatch},
		},
		{
			"more reasoning than completion, without a total that explains it",
			usage.OpenAIReport{Prompt: 100, Completion: 30, Reasoning: 40},
			usage.Usage{Input: 100, Output: 40, Thoughts: 40, Flags: usage.Mismatch},
		},

		// Hostile numbers.
		{
			"a negative part is none",
			usage.OpenAIReport{Prompt: 100, Completion: -30, Total: 100},
			usage.Usage{Input: 100, Flags: usage.Mismatch},
		},
		{
			"nothing but negative numbers is no report, and a mismatch",
			usage.OpenAIReport{Prompt: -1, Completion: math.MinInt64, Total: -7, Cached: -1, CacheWrite: -1, Reasoning: -1},
			usage.Usage{Flags: usage.Mismatch},
		},
		{
			"parts at their largest do not overflow",
			usage.OpenAIReport{Prompt: huge, Completion: huge, Total: huge, Cached: huge, CacheWrite: huge, Reasoning: huge},
			usage.Usage{Input: huge, CachedInput: huge, CacheWrite: huge, Output: huge, Thoughts: huge},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := usage.FromOpenAI(c.r); got != c.want {
				t.Errorf("got  %+v (%v)\nwant %+v (%v)", got, got.Flags, c.want, c.want.Flags)
			}
		})
	}
}

func FuzzFromOpenAI(f *testing.F) {
	f.Add(int64(1000), int64(500), int64(1500), int64(700), int64(200), int64(400))
	f.Add(int64(1000), int64(100), int64(1500), int64(0), int64(0), int64(400))
	f.Add(int64(0), int64(0), int64(7), int64(0), int64(0), int64(0))
	f.Add(int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64), int64(1), int64(-5))
	f.Fuzz(func(t *testing.T, prompt, completion, total, cached, write, reasoning int64) {
		u := usage.FromOpenAI(usage.OpenAIReport{
			Prompt: prompt, Completion: completion, Total: total, Cached: cached, CacheWrite: write, Reasoning: reasoning,
		})
		if u.Clamp() != u {
			t.Fatalf("%+v is negative, or a part is more than its whole", u)
		}
		parts, negative := false, total < 0
		for _, n := range []int64{prompt, completion, cached, write, reasoning} {
			parts, negative = parts || n > 0, negative || n < 0
			if u.Total() < n {
				t.Fatalf("%+v is less than a part of %d", u, n)
			}
		}
		if u.Total() < total {
			t.Fatalf("%+v is less than the total of %d", u, total)
		}
		if u.Input < prompt || u.Output < completion || u.CachedInput != max(cached, 0) || u.CacheWrite != max(write, 0) || u.Thoughts != max(reasoning, 0) {
			t.Fatalf("%+v lost a part", u)
		}
		if negative && !u.Has(usage.Mismatch) {
			t.Fatalf("a negative number is not flagged in %+v", u)
		}
		if !u.Has(usage.Mismatch) && total > 0 && u.Total() != total {
			t.Fatalf("%+v instead of the total %d is not flagged", u, total)
		}
		if u.Has(usage.TotalOnly) != (!parts && total > 0) || u.Has(usage.Estimated) {
			t.Fatalf("%+v has the flags %v", u, u.Flags)
		}
		if u.IsZero() != (!parts && total <= 0) {
			t.Fatalf("whether %+v is a report is wrong", u)
		}
	})
}
