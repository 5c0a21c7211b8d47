package main

import (
	"context"
	"strings"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
)

// answerTokens is the longest answer, thoughts inside. All are as long here.
const answerTokens = 400

// instruction is what the model is told about itself.
const instruction = "You are the support of a shop. Answer in two or three friendly sentences."

// agent answers customers. One made with an agent framework is used alike: run it in
// the context of the request, and all of its model calls are metered.
type agent struct {
	model *ratelimited.RateLimitedModel[*genaimodel.Request, *genai.GenerateContentResponse]
}

// answer answers a message. An error may be a quota.Denial.
func (a *agent) answer(ctx context.Context, message string) (string, error) {
	// The gate is fair among users.
	s, _ := quota.SubjectFrom(ctx)
	if key, ok := quota.DefaultHierarchy().Key(s, quota.User); ok {
		ctx = ratelimited.WithFlow(ctx, key)
	}
	ctx = ratelimited.WithAgent(ctx, "support")
	req := &genaimodel.Request{
		Contents: genai.Text(message),
		Config: &genai.GenerateContentConfig{
			MaxOutputTokens:   answerTokens,
			SystemInstruction: genai.NewContentFromText(instruction, genai.RoleUser),
		},
	}
	var text strings.Builder
	for resp, err := range a.model.GenerateContent(ctx, req, true) {
		if err != nil {
			return "", err
		}
		text.WriteString(resp.Text())
	}
	if text.Len() == 0 {
		return "", errNoAnswer
	}
	return text.String(), nil
}
