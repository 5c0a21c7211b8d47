package gemini

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

const (
	// RunesPerToken is the number of characters that make a token, by the rule
	// of thumb of the Gemini API docs (tokens page).
	RunesPerToken = 4
	// TokensPerMedia is the number of tokens of every inline or linked file: an
	// image of up to 384 × 384 pixels, by the same page. Real files may have
	// more.
	TokensPerMedia = 258
)

// tokens returns the length of the prompt.
func (p *prompt) tokens() int64 { return p.textTokens() + p.mediaTokens() }

func (p *prompt) textTokens() int64 { return (p.textRunes + RunesPerToken - 1) / RunesPerToken }

func (p *prompt) mediaTokens() int64 { return p.media * TokensPerMedia }

// countPart adds one part to the prompt. Thoughts and their signatures are
// free.
func (p *prompt) countPart(o object, field string) error {
	var text string
	if err := parseValue(o.get("text"), &text, field+".text"); err != nil {
		return err
	}
	p.textRunes += int64(utf8.RuneCountInString(text))
	for _, name := range []string{"inlineData", "fileData"} {
		if o.get(name) != nil {
			p.media++
		}
	}
	for _, name := range []string{"functionCall", "functionResponse", "executableCode", "codeExecutionResult"} {
		p.textRunes += compactRunes(o.get(name))
	}
	if o.get("functionResponse") != nil {
		p.answersFunction = true
	}
	return nil
}

// compactRunes counts the characters of JSON without the space between its
// tokens, so that indentation costs nothing. An absent value has none.
func compactRunes(raw json.RawMessage) int64 {
	if raw == nil {
		return 0
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return int64(utf8.RuneCount(raw)) // cannot be: raw was parsed
	}
	return int64(utf8.RuneCount(b.Bytes()))
}

// textLength is the number of tokens of a text of our own.
func textLength(text string) int {
	return (utf8.RuneCountInString(text) + RunesPerToken - 1) / RunesPerToken
}
