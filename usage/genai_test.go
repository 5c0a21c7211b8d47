package usage_test

import (
	"math"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// report is usage metadata without the details.
type report = genai.GenerateContentResponseUsageMetadata

func TestFromGenAIReadsWhereThePartsStandFromTheTotal(t *testing.T) {
	t.Parallel()
	const huge = math.MaxInt32
	for _, c := range []struct {
		name string
		m    *report
		want usage.Usage
	}{
		// No report.
		{"nil", nil, usage.Usage{}},
		{"empty", &report{}, usage.Usage{}},
		{
			"zeros beside a traffic type, as Vertex AI sends them",
			&report{TrafficType: genai.TrafficTypeOnDemand},
			usage.Usage{},
		},

		// Consistent reports.
		{
			"prompt and candidates",
			&report{PromptTokenCount: 90, CandidatesTokenCount: 12, TotalTokenCount: 102},
			usage.Usage{Input: 90, Output: 12},
		},
		{
			"cached inside the prompt, tool use and thoughts beside",
			&report{
				PromptTokenCount: 1000, CachedContentTokenCount: 800, ToolUsePromptTokenCount: 50,
				CandidatesTokenCount: 100, ThoughtsTokenCount: 400, TotalTokenCount: 1550,
			},
			usage.Usage{Input: 1050, CachedInput: 800, Output: 500, Thoughts: 400},
		},
		{
			"thoughts only, before the first candidate",
			&report{PromptTokenCount: 64, ThoughtsTokenCount: 300, TotalTokenCount: 364},
			usage.Usage{Input: 64, Output: 300, Thoughts: 300},
		},
		{
			"prompt only, before the first token",
			&report{PromptTokenCount: 64, TotalTokenCount: 64},
			usage.Usage{Input: 64},
		},
		{
			"thoughts inside candidates",
			&report{PromptTokenCount: 64, CandidatesTokenCount: 500, ThoughtsTokenCount: 400, TotalTokenCount: 564},
			usage.Usage{Input: 64, Output: 500, Thoughts: 400},
		},
		{
			"thoughts inside candidates, tool use beside the prompt",
			&report{
				PromptTokenCount: 1000, ToolUsePromptTokenCount: 50,
				CandidatesTokenCount: 500, ThoughtsTokenCount: 400, TotalTokenCount: 1550,
			},
			usage.Usage{Input: 1050, Output: 500, Thoughts: 400},
		},
		{
			"tool use inside the prompt, thoughts beside",
			&report{
				PromptTokenCount: 1050, ToolUsePromptTokenCount: 50,
				CandidatesTokenCount: 100, ThoughtsTokenCount: 400, TotalTokenCount: 1550,
			},
			usage.Usage{Input: 1050, Output: 500, Thoughts: 400},
		},
		{
			"both inside",
			&report{
				PromptTokenCount: 1050, ToolUsePromptTokenCount: 50,
				CandidatesTokenCount: 500, ThoughtsTokenCount: 400, TotalTokenCount: 1550,
			},
			usage.Usage{Input: 1050, Output: 500, Thoughts: 400},
		},
		{
			"either could be inside: the dearer output",
			&report{
				PromptTokenCount: 100, ToolUsePromptTokenCount: 20,
				CandidatesTokenCount: 30, ThoughtsTokenCount: 20, TotalTokenCount: 150,
			},
			usage.Usage{Input: 100, Output: 50, Thoughts: 20},
		},

		// Parts without a total, and a total without parts.
		{
			"no total: the largest reading, no mismatch",
			&report{PromptTokenCount: 100, ToolUsePromptTokenCount: 5, CandidatesTokenCount: 30, ThoughtsTokenCount: 20},
			usage.Usage{Input: 105, Output: 50, Thoughts: 20},
		},
		{
			"total only",
			&report{TotalTokenCount: 321},
			usage.Usage{Output: 321, Flags: usage.TotalOnly},
		},

		// Parts that disagree.
		{
			"the total is larger than every reading",
			&report{PromptTokenCount: 100, CandidatesTokenCount: 30, ThoughtsTokenCount: 20, TotalTokenCount: 200},
			usage.Usage{Input: 100, Output: 100, Thoughts: 20, Flags: usage.Mismatch},
		},
		{
			"the total is smaller than every reading",
			&report{PromptTokenCount: 100, CandidatesTokenCount: 30, ThoughtsTokenCount: 20, TotalTokenCount: 90},
			usage.Usage{Input: 100, Output: 50, Thoughts: 20, Flags: usage.Mismatch},
		},
		{
			"the total is between the readings",
			&report{PromptTokenCount: 100, CandidatesTokenCount: 30, ThoughtsTokenCount: 20, TotalTokenCount: 140},
			usage.Usage{Input: 100, Output: 50, Thoughts: 20, Flags: usage.Mismatch},
		},
		{
			"more thoughts than candidates are not inside them",
			&report{PromptTokenCount: 100, CandidatesTokenCount: 30, ThoughtsTokenCount: 40, TotalTokenCount: 130},
			usage.Usage{Input: 100, Output: 70, Thoughts: 40, Flags: usage.Mismatch},
		},
		{
			"more tool use than prompt is not inside it",
			&report{PromptTokenCount: 100, ToolUsePromptTokenCount: 140, CandidatesTokenCount: 30, TotalTokenCount: 130},
			usage.Usage{Input: 240, Output: 30, Flags: usage.Mismatch},
		},
		{
			"more cached than prompt, which the total shows to be beside it",
			&report{PromptTokenCount: 20, CachedContentTokenCount: 200, CandidatesTokenCount: 10, TotalTokenCount: 230},
			usage.Usage{Input: 200, CachedInput: 200, Output: 30, Flags: usage.Mismatch},
		},
		{
			"cached and total only",
			&report{CachedContentTokenCount: 30, TotalTokenCount: 100},
			usage.Usage{Input: 30, CachedInput: 30, Output: 70, Flags: usage.Mismatch},
		},
		{
			"cached within prompt and tool use",
			&report{
				PromptTokenCount: 20, ToolUsePromptTokenCount: 10, CachedContentTokenCount: 25,
				CandidatesTokenCount: 10, TotalTokenCount: 30,
			},
			usage.Usage{Input: 30, CachedInput: 25, Output: 10, Flags: usage.Mismatch},
		},

		// Hostile numbers.
		{
			"a negative part is none",
			&report{PromptTokenCount: 100, CandidatesTokenCount: -30, TotalTokenCount: 100},
			usage.Usage{Input: 100, Flags: usage.Mismatch},
		},
		{
			"a negative total is none",
			&report{PromptTokenCount: 100, CandidatesTokenCount: 30, TotalTokenCount: -1},
			usage.Usage{Input: 100, Output: 30, Flags: usage.Mismatch},
		},
		{
			"negative parts and a total",
			&report{PromptTokenCount: -1, TotalTokenCount: 10},
			usage.Usage{Output: 10, Flags: usage.TotalOnly | usage.Mismatch},
		},
		{
			"nothing but negative numbers is no report, and a mismatch",
			&report{
				PromptTokenCount: math.MinInt32, CachedContentTokenCount: math.MinInt32, ToolUsePromptTokenCount: math.MinInt32,
				CandidatesTokenCount: math.MinInt32, ThoughtsTokenCount: math.MinInt32, TotalTokenCount: math.MinInt32,
			},
			usage.Usage{Flags: usage.Mismatch},
		},
		{
			"parts at their largest do not overflow",
			&report{
				PromptTokenCount: huge, CachedContentTokenCount: huge, ToolUsePromptTokenCount: huge,
				CandidatesTokenCount: huge, ThoughtsTokenCount: huge, TotalTokenCount: huge,
			},
			usage.Usage{Input: 2 * huge, CachedInput: huge, Output: 2 * huge, Thoughts: huge, Flags: usage.Mismatch},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := usage.FromGenAI(c.m); got != c.want {
				t.Errorf("got  %+v (%v)\nwant %+v (%v)", got, got.Flags, c.want, c.want.Flags)
			}
		})
	}
}

func TestStreamedReportsMergeByMaximum(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		chunks []*report
		want   usage.Usage
	}{
		{
			"running totals, a chunk without, the last one without content",
			[]*report{
				{PromptTokenCount: 25, CandidatesTokenCount: 1, TotalTokenCount: 26},
				{PromptTokenCount: 25, CandidatesTokenCount: 8, TotalTokenCount: 33},
				nil,
				{PromptTokenCount: 25, CandidatesTokenCount: 15, TotalTokenCount: 40},
			},
			usage.Usage{Input: 25, Output: 15},
		},
		{
			"only the second of four chunks reports",
			[]*report{nil, {PromptTokenCount: 25, CandidatesTokenCount: 8, TotalTokenCount: 33}, {}, nil},
			usage.Usage{Input: 25, Output: 8},
		},
		{
			"a report that is lower than an earlier one",
			[]*report{
				{PromptTokenCount: 25, CandidatesTokenCount: 15, TotalTokenCount: 40},
				{PromptTokenCount: 25, CandidatesTokenCount: 9, TotalTokenCount: 34},
			},
			usage.Usage{Input: 25, Output: 15},
		},
		{
			"thoughts grow before the first candidate",
			[]*report{
				{PromptTokenCount: 70, ThoughtsTokenCount: 120, TotalTokenCount: 190},
				{PromptTokenCount: 70, ThoughtsTokenCount: 310, TotalTokenCount: 380},
				{PromptTokenCount: 70, CandidatesTokenCount: 45, ThoughtsTokenCount: 310, TotalTokenCount: 425},
				{PromptTokenCount: 70, CandidatesTokenCount: 90, ThoughtsTokenCount: 310, TotalTokenCount: 470},
			},
			usage.Usage{Input: 70, Output: 400, Thoughts: 310},
		},
		{
			"the prompt rises in the last chunk",
			[]*report{
				{PromptTokenCount: 200, CandidatesTokenCount: 3, TotalTokenCount: 203},
				{PromptTokenCount: 200, CandidatesTokenCount: 30, TotalTokenCount: 230},
				{PromptTokenCount: 260, CandidatesTokenCount: 30, TotalTokenCount: 290},
			},
			usage.Usage{Input: 260, Output: 30},
		},
		{
			"traffic type with zeros after the last report",
			[]*report{
				{PromptTokenCount: 25, CandidatesTokenCount: 15, TotalTokenCount: 40, TrafficType: genai.TrafficTypeOnDemand},
				{TrafficType: genai.TrafficTypeOnDemand},
			},
			usage.Usage{Input: 25, Output: 15},
		},
		{
			"no chunk reports",
			[]*report{nil, {}, nil},
			usage.Usage{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var forward, backward usage.Usage
			for i := range c.chunks {
				forward = forward.Max(usage.FromGenAI(c.chunks[i]))
				backward = backward.Max(usage.FromGenAI(c.chunks[len(c.chunks)-1-i]))
			}
			if forward != c.want {
				t.Errorf("got %v, want %v", forward, c.want)
			}
			if backward != forward {
				t.Errorf("read backwards: %v, want %v", backward, forward)
			}
		})
	}
}

func FuzzFromGenAI(f *testing.F) {
	f.Add(int32(1000), int32(800), int32(50), int32(100), int32(400), int32(1550))
	f.Add(int32(64), int32(0), int32(0), int32(500), int32(400), int32(564))
	f.Add(int32(0), int32(0), int32(0), int32(0), int32(0), int32(7))
	f.Add(int32(-1), int32(math.MaxInt32), int32(math.MinInt32), int32(3), int32(4), int32(-5))
	f.Fuzz(func(t *testing.T, prompt, cached, tool, candidates, thoughts, total int32) {
		u := usage.FromGenAI(&report{
			PromptTokenCount: prompt, CachedContentTokenCount: cached, ToolUsePromptTokenCount: tool,
			CandidatesTokenCount: candidates, ThoughtsTokenCount: thoughts, TotalTokenCount: total,
		})
		if u.Clamp() != u {
			t.Fatalf("%+v is negative, or a part is more than its whole", u)
		}
		parts := []int32{prompt, tool, candidates, thoughts, cached}
		var sum int64
		negative := total < 0
		for _, n := range parts {
			sum += max(int64(n), 0)
			negative = negative || n < 0
			if u.Total() < int64(n) {
				t.Fatalf("total %d is less than a part of %d", u.Total(), n)
			}
		}
		if u.Total() < int64(total) {
			t.Fatalf("total %d is less than the reported %d", u.Total(), total)
		}
		if most := max(sum, int64(total), 0); u.Total() > most {
			t.Fatalf("total %d is more than all that was reported, %d", u.Total(), most)
		}
		if negative && !u.Has(usage.Mismatch) {
			t.Fatalf("a negative number is not flagged in %+v", u)
		}
		if !u.Has(usage.Mismatch) && total > 0 && u.Total() != int64(total) {
			t.Fatalf("total %d instead of %d is not flagged", u.Total(), total)
		}
		if u.Has(usage.Estimated) {
			t.Fatal("a report is flagged as an estimate")
		}
		if u.Has(usage.TotalOnly) != (sum == 0 && total > 0) {
			t.Fatalf("%+v has the flags %v", u, u.Flags)
		}
		if u.IsZero() != (sum == 0 && total <= 0) {
			t.Fatalf("whether %+v is a report is wrong", u)
		}
	})
}
