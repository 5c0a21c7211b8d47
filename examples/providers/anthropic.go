package main

import (
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	anthropicdouble "github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
)

var anthropic = provider{
	name: "anthropic", api: "Anthropic's Messages API", model: "claude-sonnet-4-5", key: "ANTHROPIC_API_KEY",
	address: "https://api.anthropic.com",
	counts:  "input counts unless read from the cache, output apart",
	double: func(o options) (double, error) {
		return anthropicdouble.New(anthropicdouble.Config{
			RPM: o.rpm, RequestBurst: time.Second, InputTPM: o.tpm, OutputTPM: o.otpm, CountRefused: true,
			Latency: latency, LatencySigma: latencySigma, TTFTShare: firstShare,
			OutputTokens: outputTokens, OutputSigma: outputSigma, ChunkTokens: chunkTokens,
			Seed: seed, Speed: o.speed,
		})
	},
	profile: func(o options) ratelimited.Profile {
		return ratelimited.Anthropic(ratelimited.AnthropicQuota{
			RequestsPerMinute: o.rpm, InputTokensPerMinute: o.tpm, OutputTokensPerMinute: o.otpm,
		})
	},
	agent: func(at endpoint, name string, gate *ratelimited.Gate, opts []ratelimited.Option) (reporter, error) {
		client := sdk.NewClient(
			option.WithoutEnvironmentDefaults(), option.WithAPIKey(at.key),
			option.WithBaseURL(at.url), option.WithHTTPClient(at.client()),
		)
		model, err := anthropicmodel.New(client, name)
		if err != nil {
			return nil, err
		}
		return gated(model, askAnthropic, (*anthropicmodel.Response).Text, gate, opts)
	},
}

// askAnthropic marks the brief to be cached, which the other providers do
// unasked.
func askAnthropic(p Prompt) *anthropicmodel.Request {
	return &anthropicmodel.Request{Params: sdk.MessageNewParams{
		System:    []sdk.TextBlockParam{{Text: p.Brief, CacheControl: sdk.NewCacheControlEphemeralParam()}},
		Messages:  []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock(p.Text))},
		MaxTokens: maxOutputTokens,
	}}
}
