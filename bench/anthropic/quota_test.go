package anthropic_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/bench/anthropic"
)

// refusal is the 429 of a call, or nil if it was answered.
func (r *rig) refusal(params sdk.MessageNewParams, opts ...option.RequestOption) *sdk.Error {
	r.t.Helper()
	_, err := r.client().Messages.New(r.t.Context(), params, opts...)
	e, _ := errors.AsType[*sdk.Error](err)
	if err != nil && (e == nil || e.StatusCode != 429) {
		r.t.Fatalf("error %v, want none or 429", err)
	}
	return e
}

func TestRequestsRefillContinuously(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{RPM: 3, OutputTokens: 1})
		for range 3 {
			if e := r.refusal(says("hello")); e != nil {
				t.Fatal(e)
			}
		}
		e := r.refusal(says("hello"))
		if e == nil || e.Type() != "rate_limit_error" || e.Response.Header.Get("Retry-After") != "20" ||
			!strings.Contains(e.Message, "3 requests per minute") {
			t.Fatalf("the fourth call of three: %v", e)
		}
		time.Sleep(20 * time.Second)
		if e := r.refusal(says("hello")); e != nil {
			t.Errorf("after the advised delay: %v", e)
		}
		if e := r.refusal(says("hello")); e == nil {
			t.Error("20 seconds refilled more than one request")
		}
	})
}

func TestSixtyAMinuteMayBeOneASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{RPM: 30, RequestBurst: time.Second})
		if e := r.refusal(says("hello")); e != nil {
			t.Fatal(e)
		}
		e := r.refusal(says("hello"))
		if e == nil || e.Response.Header.Get("Retry-After") != "2" {
			t.Fatalf("the second call of a burst at 30 a minute: %v, want a refusal for 2s", e)
		}
		time.Sleep(2 * time.Second)
		if e := r.refusal(says("hello")); e != nil {
			t.Error(e)
		}
	})
}

func TestInputAndOutputAreCountedApartAndMaxTokensNotAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{InputTPM: 1000, OutputTPM: 600, OutputTokens: 700})
		params := says(strings.Repeat("word", 600))
		params.MaxTokens = 20_000
		if e := r.refusal(params); e != nil {
			t.Fatalf("an empty quota: %v", e)
		}
		e := r.refusal(says("word"))
		if e == nil || !strings.Contains(e.Message, "600 output tokens per minute") || e.Response.Header.Get("Retry-After") != "10" {
			t.Fatalf("100 output tokens in debt: %v", e)
		}
		time.Sleep(10 * time.Second) // 600 − 700 + 100 of output, 1000 − 600 + 167 of input
		e = r.refusal(params)
		if e == nil || !strings.Contains(e.Message, "1000 input tokens per minute") || e.Response.Header.Get("Retry-After") != "2" {
			t.Errorf("600 tokens of 567: %v", e)
		}
		if e := r.refusal(says(strings.Repeat("word", 1001))); e == nil || e.Response.Header.Get("Retry-After") != "" {
			t.Errorf("more than the whole quota: %v, want a refusal without a time", e)
		}
	})
}

func TestWhatIsReadFromTheCacheDoesNotCountUnlessConfigured(t *testing.T) {
	t.Parallel()
	for _, counts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, anthropic.Config{InputTPM: 2500, CountCached: counts, OutputTokens: 1})
			params := says("hello")
			params.System = []sdk.TextBlockParam{{Text: strings.Repeat("word", 2000), CacheControl: sdk.NewCacheControlEphemeralParam()}}
			if e := r.refusal(params); e != nil {
				t.Fatal(e)
			}
			if e := r.refusal(params); (e != nil) != counts {
				t.Errorf("counted %v: the second call got %v", counts, e)
			}
		})
	}
}

func TestHeadersTellWhatIsLeftAndWhenAllOfItIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{RPM: 60, InputTPM: 60_000, OutputTPM: 6000, OutputTokens: 1200})
		start := time.Now()
		got := r.post(path, strings.Replace(strings.Replace(hello, "hello", strings.Repeat("word", 2700), 1), "1000", "2000", 1))
		if got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		reset := func(after time.Duration) string { return start.Add(after).UTC().Format(time.RFC3339) }
		for name, want := range map[string]string{
			"Requests-Limit": "60", "Requests-Remaining": "59", "Requests-Reset": reset(time.Second),
			"Input-Tokens-Limit": "60000", "Input-Tokens-Remaining": "57000", "Input-Tokens-Reset": reset(3 * time.Second),
			"Output-Tokens-Limit": "6000", "Output-Tokens-Remaining": "5000", "Output-Tokens-Reset": reset(12 * time.Second),
			"Tokens-Limit": "66000", "Tokens-Remaining": "62000", "Tokens-Reset": reset(12 * time.Second),
		} {
			if v := got.header.Get("Anthropic-Ratelimit-" + name); v != want {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
		if v := newRig(t, anthropic.Config{}).post(path, hello).header.Get("Anthropic-Ratelimit-Tokens-Limit"); v != "" {
			t.Errorf("without a quota the headers speak of %s tokens", v)
		}
	})
}

func TestCallsInFlightAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{Concurrency: 2, Latency: 8 * time.Second})
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if e := r.refusal(says("hello")); e != nil {
					t.Error(e)
				}
			})
		}
		synctest.Wait()
		if e := r.refusal(says("hello")); e == nil || !strings.Contains(e.Message, "concurrent") || e.Response.Header.Get("Retry-After") != "8" {
			t.Errorf("the third of two: %v", e)
		}
		calls.Wait()
	})
}

// Tokens come when the plan says, and a client that goes is charged for those
// that had come.
func TestTimeIsWhatThePlanSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{TTFT: time.Second, TokensPerSecond: 10, OutputTokens: 100, Speed: 2, CallLog: 2})
		start := time.Now()
		stream := r.client().Messages.NewStreaming(t.Context(), says("hello"))
		at := map[string]time.Duration{}
		for stream.Next() {
			at[stream.Current().Type] = time.Since(start)
		}
		stream.Close()
		if at["message_start"] != time.Second/2 || at["content_block_start"] != time.Second/2 || at["message_stop"] != 11*time.Second/2 {
			t.Errorf("events at %v, want the first after half a second and the last after 5.5", at)
		}
		stream = r.client().Messages.NewStreaming(t.Context(), says("hello"))
		stream.Next()
		time.Sleep(2*time.Second + time.Second/2)
		stream.Close()
		synctest.Wait()
		time.Sleep(time.Second)
		calls := r.double.Calls()
		if len(calls) != 2 || calls[1].Outcome != anthropic.Cancelled || calls[1].Output < 48 || calls[1].Output > 66 {
			t.Errorf("calls %+v, want the second cancelled after about 50 tokens", calls)
		}
	})
}
