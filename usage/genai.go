package usage

import "google.golang.org/genai"

// FromGenAI reads the usage metadata of a Gemini API or Vertex AI response.
//
// A nil m, and one whose numbers are all 0 (Vertex AI sends those beside a
// trafficType), is no report: the result is the zero Usage. In a report, a
// field that is absent counts as 0.
//
// Where the parts stand is told by the total. By the API reference
// totalTokenCount = promptTokenCount + toolUsePromptTokenCount +
// candidatesTokenCount + thoughtsTokenCount, and promptTokenCount holds
// cachedContentTokenCount; but thoughts were also seen inside the candidates,
// and the tool-use prompt inside the prompt. So the first of these readings
// that gives the reported total is taken:
//
//	total = prompt + tool use + candidates + thoughts
//	total = prompt + candidates + thoughts              tool use inside prompt
//	total = prompt + tool use + candidates              thoughts inside candidates
//	total = prompt + candidates                         both inside
//
// Where none does, the larger of the first reading and the total is taken, and
// what the parts do not explain goes to Output, the dearer side; the result is
// flagged [Mismatch] and never less than what was reported. Negative numbers
// count as 0 and are flagged Mismatch, too. So is a cached count above the
// prompt, which raises the prompt. Without a total the first reading stands and
// nothing is flagged; a total without parts goes to Output, flagged
// [TotalOnly].
//
// In a stream every chunk carries the running totals of the call, thought-only
// chunks lack the candidates, and the prompt count may rise in the last chunk:
// merge the chunks with [Usage.Max]. The per-modality details are not read.
func FromGenAI(m *genai.GenerateContentResponseUsageMetadata) Usage {
	if m == nil {
		return Usage{}
	}
	var flags Flags
	count := func(n int32) int64 {
		if n < 0 {
			flags |= Mismatch
			return 0
		}
		return int64(n)
	}
	prompt, tool := count(m.PromptTokenCount), count(m.ToolUsePromptTokenCount)
	candidates, thoughts := count(m.CandidatesTokenCount), count(m.ThoughtsTokenCount)
	cached, total := count(m.CachedContentTokenCount), count(m.TotalTokenCount)

	if prompt+tool+candidates+thoughts+cached == 0 {
		if total > 0 {
			flags |= TotalOnly
		}
		return Usage{Output: total, Flags: flags}
	}
	if cached > prompt+tool {
		prompt = cached - tool
		flags |= Mismatch
	}
	u := Usage{
		Input:       prompt + tool,
		CachedInput: cached,
		Output:      candidates + thoughts,
		Thoughts:    thoughts,
		Flags:       flags,
	}
	toolFits := tool <= prompt && cached <= prompt
	thoughtsFit := thoughts <= candidates
	switch {
	case total == 0, total == u.Total():
	case toolFits && total == prompt+candidates+thoughts:
		u.Input = prompt
	case thoughtsFit && total == prompt+tool+candidates:
		u.Output = candidates
	case toolFits && thoughtsFit && total == prompt+candidates:
		u.Input, u.Output = prompt, candidates
	default:
		u.Output = max(u.Output, total-u.Input)
		u.Flags |= Mismatch
	}
	return u
}
