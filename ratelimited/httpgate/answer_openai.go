package httpgate

import (
	"bytes"

	"github.com/headgate-go/headgate/usage"
)

// openaiReader reads answers of the APIs that OpenAI made common: chat
// completions, completions, responses and embeddings. A document is a whole
// answer, or an event of a stream.
type openaiReader struct {
	choices int64 // that the answer will have
	stopped int64 // so far

	// Of the document.
	usage  usage.OpenAIReport
	part   bool // it is an event of the Responses API
	final  bool // that completes the answer
	failed bool
}

func (r *openaiReader) str(a *answer, value []byte) {
	s := &a.scan
	switch s.last() {
	case keyType:
		if s.at(keyType) {
			switch string(value) {
			case "response.completed", "response.incomplete":
				r.final = true
			case "response.failed", "error":
				r.failed = true
			}
			r.part = r.part || bytes.HasPrefix(value, []byte("response."))
		}
	case keyFinishReason:
		if s.at(keyChoices, element, keyFinishReason) {
			r.stopped++
		}
	case keyError:
		r.failed = r.failed || s.at(keyError) // some servers send a text
	}
}

func (r *openaiReader) num(a *answer, n int64) {
	s := &a.scan
	below := s.depth - s.base
	if below < 2 {
		return
	}
	// The usage lies at the top, and in events of the Responses API below the
	// response.
	top := s.path[s.base]
	if top == keyResponse {
		below--
		top = s.path[s.base+1]
	}
	if top != keyUsage {
		return
	}
	k := s.last()
	switch {
	case below == 2 && (k == keyPromptTokens || k == keyInputTokens):
		r.usage.Prompt = n
	case below == 2 && (k == keyCompletionTokens || k == keyOutputTokens):
		r.usage.Completion = n
	case below == 2 && k == keyTotal:
		r.usage.Total = n
	case below != 3:
	case s.up(1) == keyPromptDetails || s.up(1) == keyInputDetails:
		switch k {
		case keyCachedTokens:
			r.usage.Cached = n
		case keyCacheWrite:
			r.usage.CacheWrite = n
		}
	case k == keyReasoningTokens && (s.up(1) == keyCompletionDetails || s.up(1) == keyOutputDetails):
		r.usage.Reasoning = n
	}
}

func (r *openaiReader) enter(a *answer) {
	if a.scan.last() == keyError {
		r.failed = r.failed || a.scan.at(keyError)
	}
}

func (r *openaiReader) generates(a *answer) bool {
	s := &a.scan
	switch s.last() {
	case keyDelta:
		return s.at(keyDelta) // of an event of the Responses API
	case keyContent, keyReasoning, keyRefusal:
		return s.at(keyChoices, element, keyDelta, s.last())
	case keyText:
		return s.at(keyChoices, element, keyText)
	case keyArguments:
		return s.up(1) != unknownKey && s.path[s.base] == keyChoices
	}
	return false
}

func (r *openaiReader) document(*answer) (u usage.Usage, done, failed bool) {
	u = usage.FromOpenAI(r.usage)
	done = r.final || !r.part && r.stopped >= max(r.choices, 1)
	failed = r.failed
	*r = openaiReader{choices: r.choices, stopped: r.stopped}
	return u, done, failed
}
