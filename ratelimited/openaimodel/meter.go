package openaimodel

import (
	"encoding/json"
	"math"

	"github.com/openai/openai-go/v3/packages/param"

	"github.com/headgate-go/headgate/usage"
)

// What a request costs beside its texts, in tokens (OpenAI Cookbook, "How to
// count tokens with tiktoken").
const (
	messageTokens = 3 // that frame a message
	nameTokens    = 1 // of a message with a name
	replyTokens   = 3 // that begin the answer
)

// tally adds up the tokens of one prompt.
type tally struct {
	model  string
	tokens int64
}

// add adds tokens, stopping at the largest number.
func (t *tally) add(tokens int64) {
	if tokens > math.MaxInt64-t.tokens {
		t.tokens = math.MaxInt64
		return
	}
	t.tokens += tokens
}

func (t *tally) text(s string) { t.add(usage.OpenAI.Text(s)) }

func (t *tally) optional(s param.Opt[string]) { t.text(s.Value) }

// json adds a value as the JSON that it is sent as. A value that has none is not
// sent either.
func (t *tally) json(v any) {
	raw, err := json.Marshal(v)
	if err == nil && string(raw) != "null" {
		t.text(string(raw))
	}
}

// outputOf is what an answer is expected to have: the limit that the request
// sets, because OpenAI counts that when it admits the request, or a typical
// answer; times the number of answers.
func outputOf(limit param.Opt[int64], typical, answers int64) int64 {
	output := typical
	if limit.Value > 0 {
		output = limit.Value
	}
	if answers = max(answers, 1); output > math.MaxInt64/answers {
		return math.MaxInt64
	}
	return output * answers
}

// generated is the estimate of a text that an item of an answer holds.
func generated(tokens int64) usage.Usage {
	if tokens <= 0 {
		return usage.Usage{}
	}
	return usage.Usage{Output: tokens, Flags: usage.Estimated}
}
