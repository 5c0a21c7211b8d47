package wire

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/retry"
)

// An error is read in every form in which the APIs send one, and what is none
// says nothing.
func TestFaultsAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Fault{
		`{"error":{"code":"c","type":"t","message":"m"}}`:                                              {Code: "c", Type: "t", Message: "m"},
		`{"error":{"code":429,"message":"m"}}`:                                                         {Code: "429", Message: "m"},
		`{"error":{"code":null,"type":null,"message":null}}`:                                           {},
		`{"error":{"code":{"x":1},"type":["t"],"message":5.5}}`:                                        {},
		`{"error":{"code":-1}}`:                                                                        {},
		`{"error":"m"}`:                                                                                {Message: "m"},
		`{"error":["m"]}`:                                                                              {},
		`{"error":null,"message":"m"}`:                                                                 {Message: "m"},
		`{"type":"error","code":"c","message":"m","param":null}`:                                       {Code: "c", Message: "m"},
		`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`:                           {Type: "overloaded_error", Message: "m"},
		`{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"c"}}}`:            {Type: "rate_limit_error", Code: "c"},
		`{"type":"error","error":{"type":"rate_limit_error","details":null}}`:                          {Type: "rate_limit_error"},
		`{"error":{"code":"c","details":{"error_code":"d"}}}`:                                          {Code: "c"},
		`{"type":"response.failed","response":{"status":"failed","error":{"code":"c","message":"m"}}}`: {Code: "c", Message: "m"},
		`{"type":"response.failed","response":"r","error":{"code":"c"}}`:                               {Code: "c"},
		`{"code":"c","message":"m","type":"t"}`:                                                        {Code: "c", Type: "t", Message: "m"},
		`{"error":{"code":"c"}} and more`:                                                              {Code: "c"},
		`{"error":{"code":"` + strings.Repeat("c", 100_000) + `"`:                                      {},
		`[{"error":{"code":"c"}}]`:                                                                     {},
		`<html>`:                                                                                       {}, ``: {}, `null`: {}, `"text"`: {},
	} {
		if got := ReadFault([]byte(text)); got.Code != want.Code || got.Type != want.Type || got.Message != want.Message || got.Status != 0 || got.Header != nil {
			t.Errorf("%.90s\n\tgot  %+v\n\twant %+v", text, got, want)
		}
	}
}

// Where no header tells which limit a refusal of Anthropic's was about, its
// message does.
func TestAnthropicMessagesNameTheLimit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	none := http.Header{}
	left := http.Header{"Anthropic-Ratelimit-Requests-Remaining": {"0"}}
	for _, c := range []struct {
		message string
		header  http.Header
		want    retry.Verdict
	}{
		{"This request would exceed your organization's rate limit of 50,000 input tokens per minute.", none, retry.Verdict{Class: retry.Throttled, Resources: retry.InputTokens}},
		{"rate limit of 8,000 output tokens per minute", nil, retry.Verdict{Class: retry.Throttled, Resources: retry.OutputTokens}},
		{"rate limit of 50 requests per minute", none, retry.Verdict{Class: retry.Throttled, Resources: retry.Requests}},
		{"rate limit of 50,000 input tokens per minute", left, retry.Verdict{Class: retry.Throttled, Resources: retry.Requests}},
		{"Too many tokens per day, please wait before trying again.", none, retry.Verdict{Class: retry.QuotaExhausted, PerDay: true}},
	} {
		f := Fault{Status: 429, Type: "rate_limit_error", Message: c.message, Header: c.header}
		if got := f.Anthropic(now); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.message, got, c.want)
		}
	}
}

// "Overloaded" is believed of a server in trouble only: a request that is wrong
// may be quoted with the word in it.
func TestOverloadIsBelievedOfAServerInTroubleOnly(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]retry.Class{0: retry.Overloaded, 500: retry.Overloaded, 400: retry.NotRetryable, 422: retry.NotRetryable} {
		f := Fault{Status: status, Message: "the model is Overloaded"}
		if o, a := f.OpenAI(time.Time{}).Class, f.Anthropic(time.Time{}).Class; o != want || a != want {
			t.Errorf("%d: OpenAI %v, Anthropic %v; want %v", status, o, a, want)
		}
	}
}

// Whatever a server sends as an error, its verdict is one that a policy can act
// upon, and x-should-retry: false is final.
func FuzzFault(f *testing.F) {
	f.Add(429, `{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"Request too large for m"}}`, "true", "3")
	f.Add(0, `{"type":"error","error":{"type":"overloaded_error","details":{"error_code":"x_spend_limit_reached"}}}`, "", "")
	f.Add(500, `{"response":{"error":{"code":503}}}`, "false", "-1")
	f.Add(200, `{"error":{"code":99999999999999999999}}`, "x", "inf")
	f.Fuzz(func(t *testing.T, status int, text, advice, after string) {
		fault := ReadFault([]byte(text))
		fault.Status, fault.Header = status, http.Header{"X-Should-Retry": {advice}, "Retry-After": {after}}
		for _, v := range []retry.Verdict{fault.OpenAI(time.Time{}), fault.Anthropic(time.Time{})} {
			if v.Class > retry.Overloaded || v.Hint < 0 || v.Hint != 0 && !v.HasHint || v.PerDay && v.Class != retry.QuotaExhausted && advice == "" {
				t.Fatalf("verdict %+v", v)
			}
			if advice == "false" && v.Class.Retryable() {
				t.Fatalf("retried against x-should-retry: %+v", v)
			}
		}
	})
}
