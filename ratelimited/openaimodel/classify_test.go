package openaimodel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/headgate-go/headgate/ratelimited/openaimodel"
	"github.com/headgate-go/headgate/retry"
)

// errorCase is an answer with an error status, and what it means.
type errorCase struct {
	status  int
	body    string // of the error object, or the whole body if it begins with "<" or "["
	headers map[string]string
	want    retry.Verdict
}

var errorCases = map[string]errorCase{
	// Refusals for the moment.
	"requests per minute": {
		429, `"message":"Rate limit reached for m on requests per min (RPM): Limit 3.","type":"requests","code":"rate_limit_exceeded"`,
		map[string]string{"Retry-After": "20", "Retry-After-Ms": "19500"},
		retry.Verdict{Class: retry.Throttled, Hint: 19500 * time.Millisecond, HasHint: true, Resources: retry.Requests},
	},
	"tokens per minute, the hint in seconds": {
		429, `"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"`, map[string]string{"Retry-After": "1.5"},
		retry.Verdict{Class: retry.Throttled, Hint: 1500 * time.Millisecond, HasHint: true, Resources: retry.TotalTokens},
	},
	"the limit is told by the message only": {
		429, `"message":"Rate limit reached for m on tokens per min (TPM): Limit 9.","code":"rate_limit_exceeded"`, nil,
		retry.Verdict{Class: retry.Throttled, Resources: retry.TotalTokens},
	},
	"Azure": {
		429, `"message":"Requests to the ChatCompletions_Create Operation have exceeded token rate limit of your current pricing tier. Please retry after 26 seconds.","code":"429"`,
		map[string]string{"Retry-After": "26"},
		retry.Verdict{Class: retry.Throttled, Hint: 26 * time.Second, HasHint: true, Resources: retry.TotalTokens},
	},
	"slow_down": {
		429, `"message":"Slow down","type":"requests","code":"slow_down"`, nil, retry.Verdict{Class: retry.Throttled, Resources: retry.Requests},
	},
	"nothing is told": {429, `"message":"no"`, nil, retry.Verdict{Class: retry.Throttled}},
	"the limit is told by what is left: requests": {
		429, `"code":"rate_limit_exceeded"`,
		map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Remaining-Tokens": "500", "X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Reset-Requests": "1m0s"},
		retry.Verdict{Class: retry.Throttled, Hint: time.Second, HasHint: true, Resources: retry.Requests},
	},
	"the limit is told by what is left: too few tokens": {
		429, `"code":"rate_limit_exceeded"`,
		map[string]string{"X-Ratelimit-Remaining-Requests": "7", "X-Ratelimit-Remaining-Tokens": "500", "X-Ratelimit-Reset-Tokens": "2.5s"},
		retry.Verdict{Class: retry.Throttled, Hint: 2500 * time.Millisecond, HasHint: true, Resources: retry.TotalTokens},
	},
	"both limits have nothing left": {
		429, `"code":"rate_limit_exceeded"`,
		map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Requests": "12ms", "X-Ratelimit-Reset-Tokens": "6m0s"},
		retry.Verdict{Class: retry.Throttled, Hint: time.Minute, HasHint: true, Resources: retry.Requests | retry.TotalTokens},
	},
	"retry-after comes before a reset": {
		429, `"type":"tokens"`, map[string]string{"Retry-After": "3", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "40s"},
		retry.Verdict{Class: retry.Throttled, Hint: 3 * time.Second, HasHint: true, Resources: retry.TotalTokens},
	},
	"a reset of requests of which there are some left is no hint": {
		429, `"type":"requests"`, map[string]string{"X-Ratelimit-Remaining-Requests": "5", "X-Ratelimit-Reset-Requests": "40s"},
		retry.Verdict{Class: retry.Throttled, Resources: retry.Requests},
	},
	"malformed headers say nothing": {
		429, `"type":"tokens"`, map[string]string{"Retry-After": "soon", "X-Ratelimit-Remaining-Tokens": "-1", "X-Ratelimit-Reset-Tokens": "-5s"},
		retry.Verdict{Class: retry.Throttled, Resources: retry.TotalTokens},
	},
	"a delay in the message is no hint": {
		429, `"message":"Please try again in 6s.","type":"tokens"`, nil, retry.Verdict{Class: retry.Throttled, Resources: retry.TotalTokens},
	},

	// Refusals for long.
	"per day": {
		429, `"message":"Rate limit reached for m on requests per day (RPD): Limit 200.","type":"requests","code":"rate_limit_exceeded"`, map[string]string{"Retry-After": "432"},
		retry.Verdict{Class: retry.QuotaExhausted, Hint: 432 * time.Second, HasHint: true, Resources: retry.Requests, PerDay: true},
	},
	"insufficient_quota":                         {429, `"type":"insufficient_quota","code":"insufficient_quota"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"credit_balance_exhausted":                   {429, `"type":"insufficient_quota","code":"credit_balance_exhausted"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"organization_spend_limit_exceeded":          {429, `"type":"insufficient_quota","code":"organization_spend_limit_exceeded"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"project_spend_limit_exceeded, without type": {429, `"code":"project_spend_limit_exceeded"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"organization_usage_limit_exceeded":          {429, `"code":"organization_usage_limit_exceeded"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"billing_hard_limit_reached is a 400":        {400, `"code":"billing_hard_limit_reached"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"402":                                        {402, `"message":"pay"`, nil, retry.Verdict{Class: retry.QuotaExhausted}},
	"a call larger than the whole limit": {
		429, `"message":"Request too large for m on tokens per min (TPM): Limit 100, Requested 101.","type":"tokens","code":"rate_limit_exceeded"`, nil,
		retry.Verdict{Class: retry.NotRetryable},
	},

	// A provider in trouble.
	"503": {503, `"message":"busy"`, map[string]string{"Retry-After": "2"}, retry.Verdict{Class: retry.Overloaded, Hint: 2 * time.Second, HasHint: true}},
	"529": {529, ``, nil, retry.Verdict{Class: retry.Overloaded}},
	"a 500 that says overloaded": {
		500, `"message":"The server is currently overloaded with other requests."`, nil, retry.Verdict{Class: retry.Overloaded},
	},
	"a proxy's page": {503, `<html></html>`, map[string]string{"Retry-After": "7"}, retry.Verdict{Class: retry.Overloaded, Hint: 7 * time.Second, HasHint: true}},

	// What may have been executed, and what never will be.
	"500":                {500, `"message":"oops","type":"server_error"`, nil, retry.Verdict{}},
	"502, a page":        {502, `<html></html>`, nil, retry.Verdict{}},
	"504":                {504, `"message":"late"`, nil, retry.Verdict{}},
	"408":                {408, `"message":"late"`, nil, retry.Verdict{}},
	"409":                {409, `"message":"conflict"`, nil, retry.Verdict{}},
	"400":                {400, `"message":"the engine is overloaded, said the prompt","code":"invalid_value"`, nil, retry.Verdict{}},
	"401":                {401, `"code":"invalid_api_key"`, nil, retry.Verdict{}},
	"404, a list":        {404, `[{"error":{"code":"rate_limit_exceeded"}}]`, nil, retry.Verdict{}},
	"403 with a message": {403, `"message":"per day the country is not supported","code":"unsupported_country_region_territory"`, nil, retry.Verdict{}},

	// What the server says of retries wins over the status.
	"429, never": {
		429, `"type":"tokens"`, map[string]string{"X-Should-Retry": "false", "Retry-After": "3"},
		retry.Verdict{Class: retry.QuotaExhausted, Hint: 3 * time.Second, HasHint: true, Resources: retry.TotalTokens},
	},
	"503, never":                       {503, `"message":"no"`, map[string]string{"X-Should-Retry": "false"}, retry.Verdict{}},
	"500, again":                       {500, `"message":"no"`, map[string]string{"X-Should-Retry": "true"}, retry.Verdict{Class: retry.Overloaded}},
	"429, again":                       {429, `"type":"tokens"`, map[string]string{"X-Should-Retry": "true"}, retry.Verdict{Class: retry.Throttled, Resources: retry.TotalTokens}},
	"a quota is a quota, again or not": {429, `"code":"insufficient_quota"`, map[string]string{"X-Should-Retry": "true"}, retry.Verdict{Class: retry.QuotaExhausted}},
	"maybe":                            {500, `"message":"no"`, map[string]string{"X-Should-Retry": "maybe"}, retry.Verdict{}},
}

func (c errorCase) handler() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for name, value := range c.headers {
			w.Header().Set(name, value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req_123")
		w.WriteHeader(c.status)
		if strings.HasPrefix(c.body, "<") || strings.HasPrefix(c.body, "[") {
			io.WriteString(w, c.body)
			return
		}
		io.WriteString(w, `{"error":{`+c.body+`}}`)
	}
}

func TestErrorsOfTheAPIMeanWhatTheyMean(t *testing.T) {
	t.Parallel()
	for name, c := range errorCases {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				srv := serve(t, c.handler())
				got := collect(a.bare(t, newClient(srv))(t.Context(), stream))
				if len(got.errs) != 1 || got.items != nil {
					t.Fatalf("items %v, errors %v; want one error", got.items, got.errs)
				}
				err := fmt.Errorf("agent: %w", got.errs[0])
				if v := retry.Classify(err); v != c.want {
					t.Errorf("verdict %+v\nwant    %+v", v, c.want)
				}
				e, ok := errors.AsType[*openaimodel.Error](err)
				if !ok || e.StatusCode() != c.status || e.RequestID() != "req_123" {
					t.Fatalf("error %+v", e)
				}
				if text := e.Error(); !strings.Contains(text, fmt.Sprint(c.status)) || !strings.Contains(text, "req_123") || strings.Contains(text, "Limit") {
					t.Errorf("text %q", text)
				}
			})
		})
	}
}

// A program that uses the SDK by itself gives Classify to its policy.
func TestErrorsOfTheSDKMeanTheSame(t *testing.T) {
	t.Parallel()
	policy := retry.Policy{Classifiers: []retry.Classifier{openaimodel.Classify}}
	for name, c := range errorCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(serve(t, c.handler()), option.WithMaxRetries(0))
			_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "m"})
			if _, ok := errors.AsType[*openai.Error](err); !ok {
				t.Skipf("the SDK cannot read this error: %v", err)
			}
			if v := policy.Classify(fmt.Errorf("agent: %w", err)); v != c.want {
				t.Errorf("verdict %+v\nwant    %+v", v, c.want)
			}
		})
	}
	for _, err := range []error{nil, io.EOF, context.Canceled, (*openai.Error)(nil), (*ssestream.StreamError)(nil)} {
		if v, ok := openaimodel.Classify(err); ok {
			t.Errorf("%v is taken for an error of the API: %+v", err, v)
		}
	}
}

func TestErrorsWithinAStreamMeanWhatTheirCodesSay(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]retry.Verdict{
		`{"error":{"message":"SECRET","type":"tokens","code":"rate_limit_exceeded"}}`:          {Class: retry.Throttled, Resources: retry.TotalTokens},
		`{"error":{"message":"SECRET requests per min (RPM)","code":"rate_limit_exceeded"}}`:   {Class: retry.Throttled, Resources: retry.Requests},
		`{"error":{"message":"SECRET","code":"slow_down"}}`:                                    {Class: retry.Throttled},
		`{"error":{"message":"SECRET","code":429}}`:                                            {Class: retry.Throttled},
		`{"error":{"message":"SECRET","type":"tokens"}}`:                                       {Class: retry.Throttled, Resources: retry.TotalTokens},
		`{"error":{"message":"SECRET","type":"insufficient_quota","code":"credit_exhausted"}}`: {Class: retry.QuotaExhausted},
		`{"error":{"message":"SECRET","code":"project_spend_limit_exceeded"}}`:                 {Class: retry.QuotaExhausted},
		`{"error":{"message":"SECRET","code":"server_is_overloaded"}}`:                         {Class: retry.Overloaded},
		`{"error":{"message":"SECRET: overloaded","type":"server_error"}}`:                     {Class: retry.Overloaded},
		`{"error":{"message":"SECRET","type":"server_error","code":"server_error"}}`:           {},
		`{"error":{"message":"SECRET","code":503}}`:                                            {Class: retry.Overloaded},
		`{"error":"SECRET"}`:              {},
		`{"error":"SECRET: overloaded"}`:  {Class: retry.Overloaded},
		`{"error":null}`:                  {},
		`{"error":["SECRET"]}`:            {},
		`{"error":{"code":{"SECRET":1}}}`: {},
		`{"type":"error","code":"rate_limit_exceeded","message":"SECRET","param":null}`:      {Class: retry.Throttled},
		`{"type":"error","code":"insufficient_quota","message":"SECRET"}`:                    {Class: retry.QuotaExhausted},
		`{"type":"error","code":null,"message":"SECRET"}`:                                    {},
		`{"type":"error","error":{"type":"tokens","code":"rate_limit_exceeded"},"code":"x"}`: {Class: retry.Throttled, Resources: retry.TotalTokens},
	} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			for _, a := range apis {
				if a.name == "chat" && !strings.Contains(event, `"error":`) {
					continue // an event of the Responses API
				}
				first, _, _ := strings.Cut(a.events("a"), "\n\n")
				srv := serve(t, raw(200, "text/event-stream", first+"\n\ndata: "+event+"\n\n"+a.events("b")))
				got := collect(a.bare(t, newClient(srv))(t.Context(), true))
				if len(got.items) != 1 || len(got.errs) != 1 {
					t.Fatalf("%s: %d items, errors %v; want one of each", a.name, len(got.items), got.errs)
				}
				err := got.errs[0]
				if v := retry.Classify(err); v != want {
					t.Errorf("%s: verdict %+v, want %+v", a.name, v, want)
				}
				e, ok := errors.AsType[*openaimodel.Error](err)
				if !ok || e.StatusCode() != 0 || strings.Contains(err.Error(), "SECRET") {
					t.Errorf("%s: error %v", a.name, err)
				}
				inner, ok := errors.AsType[*ssestream.StreamError](err)
				if !ok || !strings.Contains(string(inner.Event.Data), event) {
					t.Errorf("%s: the event is lost: %+v", a.name, inner)
				}
			}
		})
	}
}

// The text of an error is for logs, so nothing goes into it that a server could
// have put a prompt into.
func TestTheTextOfAnErrorHoldsIdentifiersOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ code, kind, want string }{
		{"rate_limit_exceeded", "tokens", "429 Too Many Requests, rate_limit_exceeded"},
		{"my SECRET prompt", "tokens", "429 Too Many Requests, tokens"},
		{strings.Repeat("SECRET", 11), "SECRET!", "429 Too Many Requests"},
	} {
		body := fmt.Sprintf(`{"error":{"message":"SECRET","type":%q,"code":%q}}`, c.kind, c.code)
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "SECRET id")
			raw(429, "application/json", body)(w, r)
		})
		got := collect(apis[0].bare(t, newClient(srv))(t.Context(), false))
		if text := got.errs[0].Error(); !strings.HasSuffix(text, c.want) || strings.Contains(text, "SECRET") {
			t.Errorf("text %q, want %q at its end", text, c.want)
		}
	}
}
