package usage

// OpenAIReport is the usage that OpenAI's APIs report, in tokens: the usage of a
// chat completion and that of a response, which name the same numbers
// differently. Cached and CacheWrite are parts of Prompt, Reasoning is a part of
// Completion.
//
// The zero value is no report. A field that the API leaves out counts as 0.
type OpenAIReport struct {
	// Prompt is prompt_tokens, or input_tokens: the whole prompt.
	Prompt int64
	// Completion is completion_tokens, or output_tokens: everything that was
	// generated.
	Completion int64
	// Total is total_tokens.
	Total int64
	// Cached is cached_tokens: what was read from the cache.
	Cached int64
	// CacheWrite is cache_write_tokens: what was written to the cache.
	CacheWrite int64
	// Reasoning is reasoning_tokens: the part of Completion that was thought.
	Reasoning int64
}

// FromOpenAI reads a usage report of the chat completions or the responses API
// of OpenAI, of Azure OpenAI, or of a server that speaks as they do.
//
// By OpenAI's API reference the total is prompt + completion, with cached tokens
// inside the prompt and reasoning inside the completion. Some servers that speak
// this API report the reasoning beside the completion, which the total tells. So
// the first of these readings that gives the reported total is taken:
//
//	total = prompt + completion               reasoning inside the completion
//	total = prompt + completion + reasoning   reasoning beside it
//
// Where neither does, the larger of the first reading and the total is taken,
// and what the parts do not explain goes to Output, the dearer side; the result
// is flagged [Mismatch] and never less than what was reported. Negative numbers
// count as 0 and are flagged Mismatch, too; so are parts above their whole, which
// raise it. Without a total the first reading stands and nothing is flagged; a
// total without parts goes to Output, flagged [TotalOnly]. A report without a
// number above 0 is no report: the result is the zero Usage. Sums saturate at
// math.MaxInt64.
//
// Rejected predictions are inside the completion, because OpenAI bills them
// there. Reports of the same call merge by [Usage.Max].
func FromOpenAI(r OpenAIReport) Usage {
	var flags Flags
	if r.Prompt|r.Completion|r.Total|r.Cached|r.CacheWrite|r.Reasoning < 0 {
		flags = Mismatch
		r = OpenAIReport{
			Prompt: max(r.Prompt, 0), Completion: max(r.Completion, 0), Total: max(r.Total, 0),
			Cached: max(r.Cached, 0), CacheWrite: max(r.CacheWrite, 0), Reasoning: max(r.Reasoning, 0),
		}
	}
	if r.Prompt|r.Completion|r.Cached|r.CacheWrite|r.Reasoning == 0 {
		if r.Total > 0 {
			flags |= TotalOnly
		}
		return Usage{Output: r.Total, Flags: flags}
	}
	u := Usage{
		Input: r.Prompt, CachedInput: r.Cached, CacheWrite: r.CacheWrite,
		Output: r.Completion, Thoughts: r.Reasoning, Flags: flags,
	}
	beside := satAdd(r.Completion, r.Reasoning)
	if r.Total > 0 && r.Total != u.Total() && r.Total == satAdd(r.Prompt, beside) {
		u.Output = beside
	}
	u = u.Clamp()
	if r.Total > 0 && r.Total != u.Total() {
		u.Output = max(u.Output, r.Total-u.Input)
		u.Flags |= Mismatch
	}
	return u
}
