package openai_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/openai/openai-go/v3"

	"github.com/headgate-go/headgate/bench/openai"
)

func TestWhatACallTakesOfTheTokensIsToldAtArrivalAndNotGivenBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		count     openai.TokenCount
		maxTokens int64
		taken     int64
	}{
		"the limit, where it is larger":  {openai.CountLarger, 60, 60},
		"the prompt, where it is larger": {openai.CountLarger, 1, 2},
		"no limit: the prompt":           {openai.CountLarger, 0, 2},
		"the sum":                        {openai.CountSum, 60, 62},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, openai.Config{TPM: 1000, OutputTokens: 5, CountTokens: c.count})
				params := chat()
				if c.maxTokens > 0 {
					params.MaxCompletionTokens = sdk.Int(c.maxTokens)
				}
				if _, err := r.client().Chat.Completions.New(t.Context(), params); err != nil {
					t.Fatal(err)
				}
				if got := r.double.Stats().Windows[1].Largest; got != c.taken {
					t.Errorf("%d tokens were taken, want %d", got, c.taken)
				}
			})
		})
	}
}

func TestEveryAnswerTellsInHeadersWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{RPM: 60, TPM: 600})
		got := r.post(chatPath, strings.Replace(hello, "{", `{"max_tokens":150,`, 1))
		for header, want := range map[string]string{
			"X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Remaining-Requests": "59", "X-Ratelimit-Reset-Requests": "1s",
			"X-Ratelimit-Limit-Tokens": "600", "X-Ratelimit-Remaining-Tokens": "450", "X-Ratelimit-Reset-Tokens": "15s",
		} {
			if v := got.header.Get(header); v != want {
				t.Errorf("%s is %q, want %q", header, v, want)
			}
		}
		if id := got.header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
			t.Errorf("x-request-id is %q", id)
		}
	})
}

func TestARefusalNamesItsLimitAndTheExactWait(t *testing.T) {
	t.Parallel()
	const exactly = 48500 * time.Millisecond
	for name, c := range map[string]struct {
		cfg      openai.Config
		kind     string
		text     string
		wait     time.Duration
		headers  map[string]string
		withouts []string
	}{
		"requests": {
			openai.Config{RPM: 1, Window: openai.Sliding}, "requests", "requests per min (RPM): Limit 1.", exactly,
			map[string]string{"Retry-After": "49", "Retry-After-Ms": "48500", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "48.5s"}, nil,
		},
		"tokens, seconds only": {
			openai.Config{TPM: 3, Window: openai.Sliding, RefusalForm: openai.FormSeconds}, "tokens", "tokens per min (TPM): Limit 3.", exactly,
			map[string]string{"Retry-After": "49", "X-Ratelimit-Remaining-Tokens": "1"}, []string{"Retry-After-Ms"},
		},
		"the limits only": {
			openai.Config{RPM: 1, Window: openai.Sliding, RefusalForm: openai.FormReset}, "requests", "requests per min", exactly,
			map[string]string{"X-Ratelimit-Reset-Requests": "48.5s"}, []string{"Retry-After", "Retry-After-Ms"},
		},
		"no header at all": {
			openai.Config{RPM: 1, Window: openai.Sliding, RefusalForm: openai.FormBare}, "requests", "requests per min", exactly,
			nil, []string{"Retry-After", "Retry-After-Ms", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Limit-Requests"},
		},
		"per day": {
			openai.Config{RPD: 1}, "requests", "requests per day (RPD): Limit 1.", 24*time.Hour - 11500*time.Millisecond, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // which begins at midnight UTC
				r := newRig(t, c.cfg)
				r.post(chatPath, hello)
				time.Sleep(11500 * time.Millisecond)
				_, err := r.client().Chat.Completions.New(t.Context(), chat())
				e, ok := errors.AsType[*sdk.Error](err)
				if !ok || e.StatusCode != 429 || e.Type != c.kind || e.Code != "rate_limit_exceeded" || !strings.Contains(e.Message, c.text) {
					t.Fatalf("refusal %+v", e)
				}
				for h, want := range c.headers {
					if v := e.Response.Header.Get(h); v != want {
						t.Errorf("%s is %q, want %q", h, v, want)
					}
				}
				for _, h := range c.withouts {
					if v := e.Response.Header.Get(h); v != "" {
						t.Errorf("%s is %q, want none", h, v)
					}
				}
				time.Sleep(c.wait - time.Nanosecond)
				if got := r.post(chatPath, hello); got.status != 429 {
					t.Errorf("just before the end: %d", got.status)
				}
				time.Sleep(time.Nanosecond)
				if got := r.post(chatPath, hello); got.status != 200 {
					t.Errorf("after the wait: %d %s", got.status, got.body)
				}
			})
		})
	}
}

func TestACallLargerThanAWholeLimitIsToldSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, openai.Config{TPM: 100})
		got := r.post(chatPath, strings.Replace(hello, "{", `{"max_completion_tokens":101,`, 1))
		if got.status != 429 || !strings.Contains(got.body, "Request too large for gpt-5-mini") ||
			!strings.Contains(got.body, "Limit 100, Requested 101") || got.header.Get("Retry-After") != "" {
			t.Errorf("%d %s %v", got.status, got.body, got.header)
		}
	})
}

func TestWhatWaitingDoesNotMendHasTheAPIsCodes(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{
		"429-quota": "insufficient_quota", "429-credits": "credit_balance_exhausted", "429-spend": "organization_spend_limit_exceeded",
		"429-slow-down": "slow_down", "429-never": "rate_limit_exceeded",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, openai.Config{Faults: []string{fault}})
				_, err := r.client().Responses.New(t.Context(), response())
				e, ok := errors.AsType[*sdk.Error](err)
				if !ok || e.StatusCode != 429 || e.Code != want {
					t.Errorf("error %v, want 429 %s", err, want)
				}
				if never := e.Response.Header.Get("X-Should-Retry") == "false"; never != (fault == "429-never") {
					t.Errorf("x-should-retry is %q", e.Response.Header.Get("X-Should-Retry"))
				}
			})
		})
	}
}

func TestRefusedCallsCountIfConfigured(t *testing.T) {
	t.Parallel()
	for _, count := range []bool{false, true} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, openai.Config{RPM: 1, Window: openai.Sliding, CountRefused: count})
				r.post(chatPath, hello)
				time.Sleep(30 * time.Second)
				r.post(chatPath, hello)
				time.Sleep(30 * time.Second)
				want := map[bool]int{false: 200, true: 429}[count]
				if got := r.post(chatPath, hello); got.status != want {
					t.Errorf("after a minute: %d, want %d", got.status, want)
				}
			})
		})
	}
}
