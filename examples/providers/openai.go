package main

import (
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	openaidouble "github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/openaimodel"
)

var openAI = provider{
	name: "openai", api: "OpenAI's chat completions", model: "gpt-5-mini", key: "OPENAI_API_KEY",
	path: "/v1", address: "https://api.openai.com/v1",
	counts: openAICounts, double: openAIDouble, profile: openAIProfile,
	agent: func(at endpoint, name string, gate *ratelimited.Gate, opts []ratelimited.Option) (reporter, error) {
		model, err := openaimodel.NewChat(openAIClient(at), name)
		if err != nil {
			return nil, err
		}
		return gated(model, askChat, (*openaimodel.ChatResponse).Text, gate, opts)
	},
}

func askChat(p Prompt) *openaimodel.ChatRequest {
	return &openaimodel.ChatRequest{Params: openai.ChatCompletionNewParams{
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(p.Brief), openai.UserMessage(p.Text)},
		MaxCompletionTokens: openai.Int(maxOutputTokens),
	}}
}

var openAIResponses = provider{
	name: "openai-responses", api: "OpenAI's Responses API", model: "gpt-5-mini", key: "OPENAI_API_KEY",
	path: "/v1", address: "https://api.openai.com/v1",
	counts: openAICounts, double: openAIDouble, profile: openAIProfile,
	agent: func(at endpoint, name string, gate *ratelimited.Gate, opts []ratelimited.Option) (reporter, error) {
		model, err := openaimodel.NewResponses(openAIClient(at), name)
		if err != nil {
			return nil, err
		}
		return gated(model, askResponses, (*openaimodel.ResponsesResponse).Text, gate, opts)
	},
}

func askResponses(p Prompt) *openaimodel.ResponsesRequest {
	return &openaimodel.ResponsesRequest{Params: responses.ResponseNewParams{
		Instructions:    openai.String(p.Brief),
		Input:           responses.ResponseNewParamsInputUnion{OfString: openai.String(p.Text)},
		MaxOutputTokens: openai.Int(maxOutputTokens),
	}}
}

const openAICounts = "a call takes the larger of its prompt and max_tokens"

func openAIClient(at endpoint) openai.Client {
	return openai.NewClient(option.WithBaseURL(at.url), option.WithAPIKey(at.key), option.WithHTTPClient(at.client()))
}

func openAIDouble(o options) (double, error) {
	return openaidouble.New(openaidouble.Config{
		RPM: o.rpm, TPM: o.tpm, CountRefused: true, CachedShare: 0.5,
		Latency: latency, LatencySigma: latencySigma, TTFTShare: firstShare,
		OutputTokens: outputTokens, OutputSigma: outputSigma, ChunkTokens: chunkTokens,
		Seed: seed, Speed: o.speed,
	})
}

func openAIProfile(o options) ratelimited.Profile {
	return ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: o.rpm, TokensPerMinute: o.tpm})
}
