package httpgate

import "github.com/headgate-go/headgate/usage"

// anthropicReader reads answers of Anthropic's Messages API. A document is a
// message or an event of a stream.
type anthropicReader struct {
	usage        usage.AnthropicReport
	done, failed bool
}

func (r *anthropicReader) str(a *answer, value []byte) {
	s := &a.scan
	switch s.last() {
	case keyType:
		if s.at(keyType) {
			r.done = r.done || string(value) == "message_stop"
			r.failed = r.failed || string(value) == "error"
		}
	case keyStopReason:
		r.done = r.done || s.at(keyDelta, keyStopReason)
	case keyData:
		if s.at(keyContentBlock, keyData) { // thinking that is not shown
			a.out.sealed(a.word.n)
		}
	}
}

func (r *anthropicReader) num(a *answer, n int64) {
	s := &a.scan
	k := s.last()
	detail := false
	switch {
	case s.at(keyUsage, k), s.at(keyMessage, keyUsage, k):
	case s.at(keyUsage, keyOutputDetails, k), s.at(keyMessage, keyUsage, keyOutputDetails, k):
		detail = true
	default:
		return
	}
	switch k {
	case keyInputTokens:
		r.usage.Input = n
	case keyCacheCreation:
		r.usage.CacheCreation = n
	case keyCacheRead:
		r.usage.CacheRead = n
	case keyOutputTokens:
		r.usage.Output = n
	case keyThinkingTokens:
		if detail {
			r.usage.Thinking = n
		}
	}
}

func (r *anthropicReader) enter(*answer) {}

func (r *anthropicReader) generates(a *answer) bool {
	s := &a.scan
	switch s.last() {
	case keyText, keyThinking, keyPartialJSON:
		return s.at(keyDelta, s.last()) || s.at(keyContentBlock, s.last())
	case keyName:
		return s.at(keyContentBlock, keyName)
	}
	return false
}

func (r *anthropicReader) document(*answer) (u usage.Usage, done, failed bool) {
	u = usage.FromAnthropic(r.usage)
	done, failed = r.done, r.failed
	r.drop()
	return u, done, failed
}

func (r *anthropicReader) drop() { *r = anthropicReader{} }
