package usage

// AnthropicReport is the usage that the Messages API of Anthropic reports, in
// tokens. Input, CacheCreation and CacheRead are disjoint there: together they
// are the prompt. Thinking is a part of Output.
//
// The zero value is no report. A field that the API leaves out counts as 0.
type AnthropicReport struct {
	// Input is usage.input_tokens: the part of the prompt that was neither read
	// from the cache nor written to it.
	Input int64
	// CacheCreation is usage.cache_creation_input_tokens: what was written to the
	// cache, for whatever time it is to live.
	CacheCreation int64
	// CacheRead is usage.cache_read_input_tokens: what was read from the cache.
	CacheRead int64
	// Output is usage.output_tokens: everything that was generated.
	Output int64
	// Thinking is usage.output_tokens_details.thinking_tokens: the part of Output
	// that was thought.
	Thinking int64
}

// FromAnthropic reads a usage report of the Messages API.
//
// The prompt is Input + CacheCreation + CacheRead (Anthropic docs, prompt
// caching page: the total of the input tokens is the sum of the three), the
// opposite of what Gemini and OpenAI report, whose cached tokens are inside the
// prompt. So the result's Input is that sum, with its parts CachedInput and
// CacheWrite in it.
//
// A report without a number above 0 is no report: the result is the zero Usage.
// Negative numbers count as 0 and are flagged [Mismatch]. So is Thinking above
// Output, which raises Output. Sums saturate at math.MaxInt64.
//
// In a stream every report is a running total, which may lack what an earlier
// one had; merge them with [Usage.Max].
func FromAnthropic(r AnthropicReport) Usage {
	u := Usage{CachedInput: r.CacheRead, CacheWrite: r.CacheCreation, Output: r.Output, Thoughts: r.Thinking}
	if r.Input|r.CacheCreation|r.CacheRead|r.Output|r.Thinking < 0 {
		u = Usage{
			CachedInput: max(u.CachedInput, 0), CacheWrite: max(u.CacheWrite, 0),
			Output: max(u.Output, 0), Thoughts: max(u.Thoughts, 0), Flags: Mismatch,
		}
	}
	u.Input = satAdd(satAdd(max(r.Input, 0), u.CacheWrite), u.CachedInput)
	return u.Clamp()
}
