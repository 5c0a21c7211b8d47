package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/ratelimited"
)

// The agents below are small, but they are built like ADK Go's: on an interface
// with the methods of its model.LLM and on structs with the fields of its
// requests and responses. ratelimited.New wraps an ADK model in the same way,
// and no part of ADK is imported here or there.

// LLM is a model as agents know it.
type LLM interface {
	Name() string
	GenerateContent(ctx context.Context, req *LLMRequest, stream bool) iter.Seq2[*LLMResponse, error]
}

// LLMRequest is what an agent asks a model.
type LLMRequest struct {
	Model    string
	Contents []*genai.Content
	Config   *genai.GenerateContentConfig
}

// LLMResponse is a piece of an answer (Partial) or all of it.
type LLMResponse struct {
	Content       *genai.Content
	UsageMetadata *genai.GenerateContentResponseUsageMetadata
	FinishReason  genai.FinishReason
	Partial       bool
	ErrorCode     string
	ErrorMessage  string
}

// agent asks a model one question.
type agent struct {
	instruction string
	label       string
	model       LLM
}

// reviewers are the instructions of a click's reviewers.
var reviewers = []string{
	"You review a proposal for correctness. Name each statement that is wrong, and say why.",
	"You review a proposal for security. Name each way in which somebody could misuse it.",
	"You review a proposal for cost. Name what will be expensive to build, to run and to change.",
	"You review a proposal for clarity. Name each place at which a reader will stumble.",
}

const synthesis = "You sum up reviews of a proposal. Say in a few sentences what its author should do first."

// Lengths of every call. The output has a model's thoughts inside, if it thinks.
const (
	promptTokens = 5000
	outputTokens = 800
)

// run returns the agent's answer to a text, of which it reads as much as makes
// a prompt of promptTokens.
func (a agent) run(ctx context.Context, text string) (string, error) {
	ctx = ratelimited.WithAgent(ctx, a.label)
	req := &LLMRequest{
		Model:    a.model.Name(),
		Contents: genai.Text(cut(text, promptRunes-utf8.RuneCountInString(a.instruction))),
		Config: &genai.GenerateContentConfig{
			MaxOutputTokens:   outputTokens,
			SystemInstruction: genai.NewContentFromText(a.instruction, genai.RoleUser),
		},
	}
	for resp, err := range a.model.GenerateContent(ctx, req, true) {
		switch {
		case err != nil:
			return "", err
		case resp.ErrorCode != "":
			return "", fmt.Errorf("%s: %s", resp.ErrorCode, resp.ErrorMessage)
		case !resp.Partial:
			return textOf(resp.Content), nil
		}
	}
	return "", errors.New("the model gave no whole answer")
}

// parallel runs agents side by side on one text and returns their answers in
// the order of the agents. The first error ends them all, as in ADK Go's
// parallel agent; it is the error that is returned.
func parallel(ctx context.Context, agents []agent, text string) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]string, len(agents))
	var all sync.WaitGroup
	for i, a := range agents {
		all.Go(func() {
			answer, err := a.run(withPlace(ctx, i), text)
			if err != nil {
				cancel(err) // only the first cause counts
			}
			answers[i] = answer
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return answers, nil
}

// review is what one click sets off: the reviewers, and after them the
// synthesiser, which reads what they wrote and then the proposal.
func review(ctx context.Context, model LLM, proposal string) (string, error) {
	agents := make([]agent, len(reviewers))
	for i, instruction := range reviewers {
		agents[i] = agent{instruction: instruction, label: "reviewer", model: model}
	}
	reviews, err := parallel(ctx, agents, proposal)
	if err != nil {
		return "", fmt.Errorf("review: %w", err)
	}
	var b strings.Builder
	for i, r := range reviews {
		fmt.Fprintf(&b, "Review %d:\n%s\n\n", i+1, r)
	}
	b.WriteString("The proposal:\n" + proposal)
	answer, err := agent{instruction: synthesis, label: "synthesiser", model: model}.run(withPlace(ctx, len(reviewers)), b.String())
	if err != nil {
		return "", fmt.Errorf("synthesis: %w", err)
	}
	return answer, nil
}

func textOf(c *genai.Content) string {
	var b strings.Builder
	if c != nil {
		for _, p := range c.Parts {
			if p != nil && !p.Thought {
				b.WriteString(p.Text)
			}
		}
	}
	return b.String()
}

// place tells the calls of a burst apart: which review, and which of its agents
// (the synthesiser is the last). It travels in the context.
type place struct{ review, agent int }

type placeKey struct{}

// withPlace sets the agent of a context's place.
func withPlace(ctx context.Context, agent int) context.Context {
	p := placeOf(ctx)
	p.agent = agent
	return context.WithValue(ctx, placeKey{}, p)
}

// withReview sets the review of a context's place.
func withReview(ctx context.Context, review int) context.Context {
	return context.WithValue(ctx, placeKey{}, place{review: review})
}

func placeOf(ctx context.Context) place {
	p, _ := ctx.Value(placeKey{}).(place)
	return p
}
