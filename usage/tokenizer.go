package usage

// Tokenizer counts the tokens of a text exactly. An [Estimator] that has one
// asks it for the texts of a request; [Family] stands in where it returns an
// error or a negative number. It must be safe for concurrent use, and fast: it
// is asked before each call, on the path of the call.
//
// Package usage/tiktoken has one for models of OpenAI. A tokenizer that is a
// function becomes one by [TokenizerFunc].
type Tokenizer interface {
	// Count is the number of tokens of a text, without what an API adds around
	// it. Errors should not quote the text.
	Count(text string) (int64, error)
}

// TokenizerFunc is a function as a [Tokenizer].
type TokenizerFunc func(text string) (int64, error)

// Count implements [Tokenizer].
func (f TokenizerFunc) Count(text string) (int64, error) { return f(text) }
