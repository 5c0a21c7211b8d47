package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/fanout"
	"github.com/headgate-go/headgate/ratelimited"
)

// Agent writes reports with a model of any provider: it knows neither the SDK nor
// whether a gate stands before the model.
type Agent[Req, Resp any] struct {
	// Model answers the agent's requests.
	Model ratelimited.Model[Req, Resp]
	// Ask makes a request.
	Ask func(Prompt) Req
	// Text is the text of a response, or what a piece of a streamed one adds to it.
	Text func(Resp) string
}

// Prompt is what an agent asks: a brief, which is the same for all and so worth
// caching, and a text.
type Prompt struct{ Brief, Text string }

// Labels of the agent's calls.
const (
	researcher = "researcher"
	writer     = "writer"
)

// Report has researchers read the dossier side by side and a writer sum up what
// they found. hear is called with each piece of the report as it arrives. The
// first error ends all researchers; it is the error that is returned.
func (a Agent[Req, Resp]) Report(ctx context.Context, subject string, hear func(piece string)) (string, error) {
	findings, err := fanout.Map(ctx, len(questions), questions, func(ctx context.Context, question string) (string, error) {
		return a.say(ctx, researcher, question+" It is about "+subject+".", false, func(string) {})
	})
	if err != nil {
		return "", fmt.Errorf("research: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s It is about %s.\n\n", task, subject)
	for i, f := range findings {
		fmt.Fprintf(&b, "%s\n%s\n\n", questions[i], f)
	}
	text, err := a.say(ctx, writer, b.String(), true, hear)
	if err != nil {
		return "", fmt.Errorf("writing: %w", err)
	}
	return text, nil
}

// say asks the model one question. It ranges to the end and not only until the
// text is whole: some providers report the usage of a streamed call last.
func (a Agent[Req, Resp]) say(ctx context.Context, label, text string, stream bool, hear func(string)) (string, error) {
	ctx = ratelimited.WithAgent(ctx, label)
	var b strings.Builder
	for resp, err := range a.Model.GenerateContent(ctx, a.Ask(Prompt{Brief: dossier, Text: text}), stream) {
		if err != nil {
			return "", err
		}
		if piece := a.Text(resp); piece != "" {
			b.WriteString(piece)
			hear(piece)
		}
	}
	if b.Len() == 0 {
		return "", errors.New("the model gave no text")
	}
	return b.String(), nil
}

// reporter is an Agent whatever its types.
type reporter interface {
	Report(ctx context.Context, subject string, hear func(piece string)) (string, error)
}

// gated is an agent whose model stands behind a gate.
func gated[Req, Resp any](
	model ratelimited.Model[Req, Resp], ask func(Prompt) Req, text func(Resp) string,
	gate *ratelimited.Gate, opts []ratelimited.Option,
) (reporter, error) {
	wrapped, err := ratelimited.New(model, gate, opts...) // this is all that Headgate asks for
	if err != nil {
		return nil, err
	}
	return Agent[Req, Resp]{Model: wrapped, Ask: ask, Text: text}, nil
}
