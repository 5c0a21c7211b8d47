package httpgate

import (
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// What a provider reports of its limits goes to the dimensions of the profile,
// and what cannot be believed goes nowhere.
func TestRateLimitHeadersAreReadAsTheProviderMeansThem(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	report := func(dimension string, remaining int64, reset time.Duration) ratelimited.LimitReport {
		return ratelimited.LimitReport{Dimension: dimension, Remaining: remaining, Reset: reset, Sent: now.Add(-time.Minute)}
	}
	type reports = []ratelimited.LimitReport
	for name, c := range map[string]struct {
		route  route
		header map[string]string
		want   reports
	}{
		"openai": {chat, map[string]string{
			"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
			"x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s",
		}, reports{report("requests", 59, time.Second), report("tokens", 149984, 6*time.Minute)}},
		"openai, of the project too": {responses, map[string]string{
			"x-ratelimit-remaining-tokens": "100", "x-ratelimit-remaining-project-tokens": "50", "x-ratelimit-reset-project-tokens": "12ms",
		}, reports{report("tokens", 50, 12*time.Millisecond)}},
		"azure, seconds":   {chat, map[string]string{"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "30"}, reports{report("requests", 5, 30*time.Second)}},
		"nothing":          {chat, nil, nil},
		"malformed number": {chat, map[string]string{"x-ratelimit-remaining-requests": "many"}, nil},
		"negative number":  {chat, map[string]string{"x-ratelimit-remaining-requests": "-1"}, nil},
		"huge number":      {chat, map[string]string{"x-ratelimit-remaining-requests": "9000000000000000000"}, nil},
		"malformed reset":  {chat, map[string]string{"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "soon"}, reports{report("requests", 1, 0)}},
		"anthropic": {messages, map[string]string{
			"anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:02Z",
			"anthropic-ratelimit-input-tokens-remaining": "30000", "anthropic-ratelimit-input-tokens-reset": "2026-11-30T12:00:30Z",
			"anthropic-ratelimit-output-tokens-remaining": "7999", "anthropic-ratelimit-tokens-remaining": "0",
		}, reports{report("requests", 49, 2*time.Second), report("input_tokens", 30000, 30*time.Second), report("output_tokens", 7999, 0), report("tokens", 0, 0)}},
		"anthropic, by its own clock": {messages, map[string]string{
			"date":                                   "Mon, 30 Nov 2026 13:00:00 GMT",
			"anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "2026-11-30T13:00:02Z",
		}, reports{report("requests", 49, 2*time.Second)}},
		"anthropic, passed": {messages, map[string]string{"anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "2026-11-30T11:59:00Z"}, nil},
		"count of tokens":   {route{api: anthropicAPI, method: countTokens}, map[string]string{"anthropic-ratelimit-requests-remaining": "49"}, nil},
		"gemini":            {google, map[string]string{"x-ratelimit-remaining-requests": "1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for k, v := range c.header {
				h.Set(k, v)
			}
			if got := c.route.limits(h, now.Add(-time.Minute), now); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

// What an error response means is told by status, body and headers.
func TestErrorsAreJudgedAsTheProviderMeansThem(t *testing.T) {
	t.Parallel()
	hinted := func(c retry.Class, d time.Duration, r retry.Resource) retry.Verdict {
		return retry.Verdict{Class: c, Hint: d, HasHint: true, Resources: r}
	}
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, c := range map[string]struct {
		api    api
		status int
		header http.Header
		body   string
		want   retry.Verdict
	}{
		"google, details": {geminiAPI, 429, nil, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"26.5s"},{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateContentInputTokensPerModelPerMinute"}]}]}}`,
			hinted(retry.Throttled, 26500*time.Millisecond, retry.InputTokens)},
		"google, header":      {geminiAPI, 429, header("Retry-After", "7"), `{"error":{"code":429}}`, hinted(retry.Throttled, 7*time.Second, 0)},
		"google, both":        {geminiAPI, 429, header("Retry-After", "7"), `{"error":{"code":429,"details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"3s"}]}}`, hinted(retry.Throttled, 3*time.Second, 0)},
		"google, array":       {geminiAPI, 503, nil, `[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, retry.Verdict{Class: retry.Overloaded}},
		"google, credits":     {geminiAPI, 402, nil, `{"error":{"code":402,"status":"RESOURCE_EXHAUSTED"}}`, retry.Verdict{Class: retry.QuotaExhausted}},
		"google, in a stream": {geminiAPI, 0, nil, `{"error":{"code":503,"status":"UNAVAILABLE"}},{"candidates":[`, retry.Verdict{Class: retry.Overloaded}},
		"google, no JSON":     {geminiAPI, 529, nil, `<html>`, retry.Verdict{Class: retry.Overloaded}},
		"openai, tokens":      {openaiAPI, 429, header("Retry-After-Ms", "250"), `{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"x"}}`, hinted(retry.Throttled, 250*time.Millisecond, retry.TotalTokens)},
		"openai, requests":    {openaiAPI, 429, nil, `{"error":{"message":"Rate limit reached on requests per min (RPM)"}}`, retry.Verdict{Class: retry.Throttled, Resources: retry.Requests}},
		"openai, by headers":  {openaiAPI, 429, header("X-Ratelimit-Remaining-Requests", "0"), `{}`, retry.Verdict{Class: retry.Throttled, Resources: retry.Requests}},
		"openai, per day":     {openaiAPI, 429, nil, `{"error":{"type":"requests","message":"requests per day (RPD)"}}`, retry.Verdict{Class: retry.QuotaExhausted, Resources: retry.Requests, PerDay: true}},
		"openai, quota":       {openaiAPI, 429, nil, `{"error":{"type":"insufficient_quota","code":null}}`, retry.Verdict{Class: retry.QuotaExhausted}},
		"openai, spend":       {openaiAPI, 429, nil, `{"error":{"code":"project_spend_limit_exceeded"}}`, retry.Verdict{Class: retry.QuotaExhausted}},
		"openai, event":       {openaiAPI, 0, nil, `{"type":"error","code":"rate_limit_exceeded","message":"x"}`, retry.Verdict{Class: retry.Throttled}},
		"openai, failed":      {openaiAPI, 0, nil, `{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded"}}}`, retry.Verdict{Class: retry.Throttled}},
		"openai, text":        {openaiAPI, 0, nil, `{"error":"Overloaded, sorry"}`, retry.Verdict{Class: retry.Overloaded}},
		"openai, server":      {openaiAPI, 500, nil, `{"error":{"message":"The server had an error"}}`, retry.Verdict{}},
		"openai, no retry":    {openaiAPI, 503, header("X-Should-Retry", "false"), ``, retry.Verdict{}},
		"openai, too large":   {openaiAPI, 429, nil, `{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 60000."}}`, retry.Verdict{}},
		"openai, by a reset":  {openaiAPI, 429, header("X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Reset-Requests", "1m0s"), `{}`, hinted(retry.Throttled, time.Second, retry.Requests)},
		"openai, do retry":    {openaiAPI, 409, header("X-Should-Retry", "true"), `{}`, retry.Verdict{Class: retry.Overloaded}},
		"google, do retry":    {geminiAPI, 500, header("X-Should-Retry", "true"), `{}`, retry.Verdict{Class: retry.Overloaded}},
		"google, no retry":    {geminiAPI, 429, header("X-Should-Retry", "false"), `{}`, retry.Verdict{Class: retry.QuotaExhausted}},
		"anthropic, do retry": {anthropicAPI, 500, header("X-Should-Retry", "true", "Retry-After", "5"), `{"type":"error","error":{"type":"api_error"}}`, hinted(retry.Overloaded, 5*time.Second, 0)},
		"anthropic":           {anthropicAPI, 429, header("Retry-After", "12", "Anthropic-Ratelimit-Input-Tokens-Remaining", "0", "Anthropic-Ratelimit-Tokens-Remaining", "0"), `{"type":"error","error":{"type":"rate_limit_error"}}`, hinted(retry.Throttled, 12*time.Second, retry.InputTokens)},
		"anthropic, overload": {anthropicAPI, 529, nil, `{"type":"error","error":{"type":"overloaded_error"}}`, retry.Verdict{Class: retry.Overloaded}},
		"anthropic, event":    {anthropicAPI, 0, nil, `{"type":"error","error":{"type":"overloaded_error"}}`, retry.Verdict{Class: retry.Overloaded}},
		"anthropic, spend":    {anthropicAPI, 429, nil, `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`, retry.Verdict{Class: retry.QuotaExhausted}},
		"anthropic, refused":  {anthropicAPI, 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"overloaded"}}`, retry.Verdict{}},
		"nothing":             {openaiAPI, 0, nil, ``, retry.Verdict{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := judge(c.api, c.status, c.header, []byte(c.body)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
