package httpgate

import (
	"bytes"

	"github.com/headgate-go/headgate/usage"
)

// openaiReader reads answers of the APIs that OpenAI made common: chat
// completions, completions, responses and embeddings. A document is a whole
// answer, or an event of a stream.
type openaiReader struct {
	choices choices

	// Of the document.
	seen   []choice // the choices in it
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
		if c := r.choice(s, keyFinishReason); c != nil {
			c.finished = true
		}
	case keyError:
		r.failed = r.failed || s.at(keyError) // some servers send a text
	}
}

func (r *openaiReader) num(a *answer, n int64) {
	s := &a.scan
	if c := r.choice(s, keyIndex); c != nil {
		c.index = n
		return
	}
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

// choice is the choice that the path leads into, to its member k; nil if it leads
// elsewhere.
func (r *openaiReader) choice(s *scanner, k key) *choice {
	if s.last() != k || len(r.seen) == 0 || !s.at(keyChoices, element, k) {
		return nil
	}
	return &r.seen[len(r.seen)-1]
}

func (r *openaiReader) enter(a *answer) {
	switch s := &a.scan; s.last() {
	case keyError:
		r.failed = r.failed || s.at(keyError)
	case element:
		if s.at(keyChoices, element) && len(r.seen) < maxChoices {
			r.seen = append(r.seen, choice{})
		}
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
		return s.path[s.base] == keyChoices
	}
	return false
}

// document: where a server makes fewer choices than were asked for, the document
// that carries only usage ends the answer.
func (r *openaiReader) document(*answer) (u usage.Usage, done, failed bool) {
	u = usage.FromOpenAI(r.usage)
	for _, c := range r.seen {
		r.choices.add(c)
	}
	done = r.final || !r.part && (r.choices.all() || len(r.seen) == 0 && !u.IsZero() && r.choices.whole())
	failed = r.failed
	r.drop()
	return u, done, failed
}

func (r *openaiReader) drop() { *r = openaiReader{choices: r.choices, seen: r.seen[:0]} }
