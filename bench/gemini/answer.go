package gemini

import (
	"encoding/json"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// Answer is an answer that is about to be given.
type Answer struct {
	// Calls are the function calls that stand instead of text. Their length
	// counts as output, whatever Output says.
	Calls []FunctionCall
	// Latency is the total time of the call, before Speed; nil is drawn from
	// the configuration.
	Latency *time.Duration
	// Output is the number of output tokens, without thoughts.
	Output int
	// Rise is the number of tokens by which the prompt count rises in the last
	// chunk.
	Rise int
	// Text is the answer's text, spread evenly over the chunks; empty is filler
	// of the right length. It does not change Output; maxOutputTokens cuts it
	// in proportion.
	Text string
	// Thoughts is the number of thought tokens.
	Thoughts int
}

// FunctionCall is one call of a declared function.
type FunctionCall struct {
	// Args is the JSON object of the arguments; what is not JSON becomes {}.
	Args json.RawMessage
	// Name is the function's name.
	Name string
}

// Reasons for the end of an answer.
const (
	finishStop      = "STOP"
	finishMaxTokens = "MAX_TOKENS"
)

// plan makes the answer to a request, before maxOutputTokens bounds it:
// configuration first, then the request's own wishes, then its headers, then
// the hook.
func (s *Server) plan(req Request, p *prompt, d demand, draw engine.Draw) Answer {
	a := Answer{
		Output:   round(draw.LogNormal("output", float64(s.cfg.OutputTokens), s.cfg.OutputSigma)),
		Thoughts: round(draw.LogNormal("thoughts", float64(s.cfg.Thoughts), s.cfg.OutputSigma)),
		Rise:     s.cfg.RisingPrompt,
		Latency:  d.latency,
	}
	if p.thinkingBudget >= 0 {
		a.Thoughts = min(a.Thoughts, p.thinkingBudget)
	}
	names := d.calls
	if names == nil && !d.noCalls && !p.functionsOff && !p.answersFunction {
		names = p.callable(s.cfg.FunctionCalls)
	}
	for i, name := range names {
		a.Calls = append(a.Calls, FunctionCall{Name: name, Args: sampleArgs(p.declared(name).schema, draw, i)})
	}
	if d.output != nil {
		a.Output = *d.output
	}
	if d.thoughts != nil {
		a.Thoughts = *d.thoughts
	}
	if d.rise != nil {
		a.Rise = *d.rise
	}
	if s.cfg.Answer != nil {
		s.cfg.Answer(req, &a)
	}
	return a
}

// bound makes the answer one that can be given: lengths within range, and
// within the request's maxOutputTokens, thoughts first. It returns the
// finishReason.
func (a *Answer) bound(maxOutput int) (finish string) {
	a.Thoughts = min(max(a.Thoughts, 0), maxTokens)
	a.Output = min(max(a.Output, 0), maxTokens)
	a.Rise = min(max(a.Rise, 0), maxTokens)
	if len(a.Calls) > 0 {
		a.Text, a.Output = "", 0
		for i, c := range a.Calls {
			if !json.Valid(c.Args) {
				a.Calls[i].Args = json.RawMessage("{}")
			}
			a.Output += callTokens(a.Calls[i])
		}
	}
	if maxOutput <= 0 || a.Thoughts+a.Output <= maxOutput {
		return finishStop
	}
	a.Thoughts = min(a.Thoughts, maxOutput)
	room := maxOutput - a.Thoughts
	if len(a.Calls) > 0 { // a call is whole or not there
		whole, length := 0, 0
		for whole < len(a.Calls) && length+callTokens(a.Calls[whole]) <= room {
			length += callTokens(a.Calls[whole])
			whole++
		}
		a.Calls, room = a.Calls[:whole], length
	}
	if a.Text != "" {
		a.Text = cut(a.Text, 0, room, a.Output)
	}
	a.Output = room
	return finishMaxTokens
}
