package main

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/genai"

	geminidouble "github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

var gemini = provider{
	name: "gemini", api: "the Gemini API", model: "gemini-2.5-flash", key: "GEMINI_API_KEY",
	address: "https://generativelanguage.googleapis.com",
	counts:  "prompts count, cached parts inside; output does not",
	double: func(o options) (double, error) {
		return geminidouble.New(geminidouble.Config{
			RPM: o.rpm, TPM: o.tpm, CountRefused: true,
			Latency: latency, LatencySigma: latencySigma, TTFTShare: firstShare,
			OutputTokens: outputTokens, OutputSigma: outputSigma, ChunkTokens: chunkTokens,
			Seed: seed, Speed: o.speed,
		})
	},
	profile: func(o options) ratelimited.Profile {
		return ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: o.rpm, InputTokensPerMinute: o.tpm})
	},
	agent: func(at endpoint, name string, gate *ratelimited.Gate, opts []ratelimited.Option) (reporter, error) {
		client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
			APIKey: at.key, Backend: genai.BackendGeminiAPI,
			HTTPClient:  &http.Client{Transport: &retry.Transport{Base: at.transport}},
			HTTPOptions: genai.HTTPOptions{BaseURL: at.url},
		})
		if err != nil {
			return nil, errors.New("the client of the Gemini API cannot be made") // its own error may hold the key
		}
		model, err := genaimodel.New(client, name)
		if err != nil {
			return nil, err
		}
		return gated(model, askGemini, (*genai.GenerateContentResponse).Text, gate, opts)
	},
}

func askGemini(p Prompt) *genaimodel.Request {
	return &genaimodel.Request{
		Contents: genai.Text(p.Text),
		Config: &genai.GenerateContentConfig{
			SystemInstruction: genai.NewContentFromText(p.Brief, genai.RoleUser),
			MaxOutputTokens:   maxOutputTokens,
		},
	}
}
