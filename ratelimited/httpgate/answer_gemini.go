package httpgate

import (
	"math"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// geminiReader reads answers of the Gemini API and of Vertex AI: a document is a
// GenerateContentResponse, or the answer of another method, of which the usage is
// read where it has one.
type geminiReader struct {
	usage               genai.GenerateContentResponseUsageMetadata
	candidates, stopped int
	blocked, failed     bool
}

func (r *geminiReader) str(a *answer, value []byte) {
	s := &a.scan
	switch s.last() {
	case keyFinishReason:
		if s.at(keyCandidates, element, keyFinishReason) && string(value) != string(genai.FinishReasonUnspecified) {
			r.stopped++
		}
	case keyBlockReason:
		r.blocked = r.blocked || s.at(keyPromptFeedback, keyBlockReason)
	}
}

func (r *geminiReader) num(a *answer, n int64) {
	s := &a.scan
	count := int32(max(min(n, math.MaxInt32), math.MinInt32))
	switch k := s.last(); {
	case !s.at(keyUsageMetadata, k):
	case k == keyPromptTokens:
		r.usage.PromptTokenCount = count
	case k == keyCachedContentTokens:
		r.usage.CachedContentTokenCount = count
	case k == keyCandidatesTokens:
		r.usage.CandidatesTokenCount = count
	case k == keyThoughtsTokens:
		r.usage.ThoughtsTokenCount = count
	case k == keyToolPromptTokens:
		r.usage.ToolUsePromptTokenCount = count
	case k == keyTotal:
		r.usage.TotalTokenCount = count
	}
}

func (r *geminiReader) enter(a *answer) {
	switch s := &a.scan; s.last() {
	case element:
		if s.at(keyCandidates, element) {
			r.candidates++
		}
	case keyError:
		r.failed = r.failed || s.at(keyError)
	}
}

func (r *geminiReader) generates(a *answer) bool {
	return a.scan.last() == keyText && a.scan.at(keyCandidates, element, keyContent, keyParts, element, keyText)
}

// document: every candidate must have a reason to have finished. A document that
// carries only usage is not an end.
func (r *geminiReader) document(*answer) (u usage.Usage, done, failed bool) {
	u = usage.FromGenAI(&r.usage)
	done = r.blocked || r.candidates > 0 && r.stopped >= r.candidates
	failed = r.failed
	r.drop()
	return u, done, failed
}

func (r *geminiReader) drop() { *r = geminiReader{} }
