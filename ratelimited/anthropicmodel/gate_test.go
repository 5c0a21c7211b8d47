package anthropicmodel_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
	"github.com/headgate-go/headgate/usage"
)

// perMinute is a profile whose limits do not bind.
func perMinute() ratelimited.Profile {
	return ratelimited.Anthropic(ratelimited.AnthropicQuota{RequestsPerMinute: 6000, InputTokensPerMinute: 1e6, OutputTokensPerMinute: 1e6, Unpaced: true})
}

func TestABurstThroughTheGateIsNeverThrottled(t *testing.T) {
	t.Parallel()
	const calls = 50
	for _, c := range []struct {
		name   string
		double anthropic.Config
		quota  ratelimited.AnthropicQuota
		most   time.Duration
	}{
		{
			"by requests, paced", anthropic.Config{RPM: 30, RequestBurst: time.Second},
			ratelimited.AnthropicQuota{RequestsPerMinute: 30}, 130 * time.Second,
		},
		{
			"by requests, at once", anthropic.Config{RPM: 30},
			ratelimited.AnthropicQuota{RequestsPerMinute: 30, Unpaced: true}, 80 * time.Second,
		},
		{
			"by input", anthropic.Config{InputTPM: 6000},
			ratelimited.AnthropicQuota{InputTokensPerMinute: 6000}, 4 * time.Minute,
		},
		{
			"by output", anthropic.Config{OutputTPM: 6000, OutputSigma: 0.5},
			ratelimited.AnthropicQuota{OutputTokensPerMinute: 6000}, 5 * time.Minute,
		},
		{
			"by all three, late arrivals", anthropic.Config{RPM: 40, InputTPM: 12_000, OutputTPM: 8000, ArrivalJitter: 300 * time.Millisecond},
			ratelimited.AnthropicQuota{RequestsPerMinute: 40, InputTokensPerMinute: 12_000, OutputTokensPerMinute: 8000}, 4 * time.Minute,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					cfg := c.double
					cfg.Latency, cfg.TTFTShare, cfg.LatencySigma, cfg.Seed = 8*time.Second, 0.2, 0.3, 1
					r := newRig(t, cfg, ratelimited.Config{Slots: 30, Profile: ratelimited.Anthropic(c.quota)})
					var burst sync.WaitGroup
					for i := range calls {
						burst.Go(func() {
							prompt := fmt.Sprintf("%d: %s", i, strings.Repeat("Every field takes its share of the river. ", 20))
							ctx := ratelimited.WithFlow(t.Context(), fmt.Sprint("user ", i%10))
							got := collect(r.GenerateContent(ctx, says(prompt), stream))
							if got.errs != nil || got.text == "" {
								t.Errorf("call %d: got %d characters, errors %v", i, len(got.text), got.errs)
							}
						})
					}
					burst.Wait()
					s := r.double.Stats()
					if s.Requests != calls || s.Completed != calls || s.Refused != 0 {
						t.Errorf("%d requests, %d completed, %d refused by %v; want %d, all completed", s.Requests, s.Completed, s.Refused, s.RefusedBy, calls)
					}
					if s.Elapsed < 30*time.Second || s.Elapsed > c.most {
						t.Errorf("the burst took %v, want what the quota needs, at most %v", s.Elapsed, c.most)
					}
					r.idle(t)
				})
			})
		})
	}
}

// What is read from the cache comes back to the limit on input.
func TestCachedPromptsDoNotUseUpTheLimitOnInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{InputTPM: 10_000, OutputTokens: 10, Latency: time.Second}, ratelimited.Config{
			Slots: 1, Headroom: 1, Profile: ratelimited.Anthropic(ratelimited.AnthropicQuota{InputTokensPerMinute: 10_000}),
		})
		req := hello()
		req.Params.System = []sdk.TextBlockParam{{Text: strings.Repeat("word", 3000), CacheControl: sdk.NewCacheControlEphemeralParam()}}
		for range 20 { // of 3,001 tokens each
			if got := collect(r.GenerateContent(t.Context(), req, true)); got.errs != nil {
				t.Fatal(got.errs)
			}
		}
		if s := r.double.Stats(); s.Refused != 0 || s.Elapsed > 25*time.Second {
			t.Errorf("20 calls of a second took %v, %d refused; want them one after the other", s.Elapsed, s.Refused)
		}
		if u := r.books.last(); u.CachedInput != 3000 || u.Input != 3002 {
			t.Errorf("the customer was charged %v", u)
		}
	})
}

func TestAHintIsWaitedForAndTheCallIsMadeAgain(t *testing.T) {
	t.Parallel()
	const advised = 20 * time.Second
	for _, fault := range []string{"429@n=1,retry=20s", "429-ramp@n=1,retry=20s"} {
		t.Run(fault, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, anthropic.Config{CallLog: 10, Faults: []string{fault}}, ratelimited.Config{Slots: 4, Profile: perMinute()})
					if got := collect(r.GenerateContent(t.Context(), hello(), stream)); got.errs != nil || got.text == "" {
						t.Fatalf("got %q, %v", got.text, got.errs)
					}
					calls := r.double.Calls()
					if len(calls) != 2 || calls[0].Outcome != anthropic.Refused || calls[1].Outcome != anthropic.Completed {
						t.Fatalf("the double saw %+v, want a refusal and an answer", calls)
					}
					// The gate spreads returns over a tenth of the hint, and so does the policy.
					if wait := calls[1].Arrived.Sub(calls[0].Ended); wait < advised || wait > advised*13/10 {
						t.Errorf("came back after %v, want %v and a little", wait, advised)
					}
					r.idle(t)
				})
			})
		})
	}
}

// What waiting does not mend is one request, and costs the customer nothing.
func TestSpendLimitsAndBadRequestsAreNotTriedAgainAndCostNothing(t *testing.T) {
	t.Parallel()
	for fault, outcome := range map[string]string{
		"429-spend": "quota_exhausted", "429-contract": "quota_exhausted", "402": "quota_exhausted", "400-spend": "failed",
		"500": "failed", "502": "failed", "504": "failed",
	} {
		t.Run(fault, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, anthropic.Config{Faults: []string{fault}}, ratelimited.Config{Slots: 1, Profile: perMinute()})
					got := collect(r.GenerateContent(t.Context(), hello(), stream))
					if _, ok := errors.AsType[*sdk.Error](errors.Join(got.errs...)); len(got.errs) != 1 || !ok {
						t.Errorf("errors %v, want the API's", got.errs)
					}
					if n := r.double.Stats().Requests; n != 1 {
						t.Errorf("%d requests, want 1", n)
					}
					if o := r.outcomes(t); len(o) != 1 || o[outcome] != 1 {
						t.Errorf("attempts by outcome %v, want one %s", o, outcome)
					}
					if u := r.books.last(); !u.IsZero() {
						t.Errorf("the customer was charged %v", u)
					}
					r.idle(t)
				})
			})
		})
	}
}

// The SDK wants a large max_tokens to be streamed.
func TestWhatTheSDKRefusesCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anthropic.Config{}, ratelimited.Config{Slots: 1, Profile: perMinute()})
		req := hello()
		req.Params.MaxTokens = 64_000
		got := collect(r.GenerateContent(t.Context(), req, false))
		if len(got.errs) != 1 || r.double.Stats().Requests != 0 {
			t.Errorf("errors %v after %d requests", got.errs, r.double.Stats().Requests)
		}
		if o := r.outcomes(t); len(o) != 1 || o["denied"] != 1 {
			t.Errorf("attempts by outcome %v, want one denied", o)
		}
		if u := r.books.last(); !u.IsZero() {
			t.Errorf("the customer was charged %v", u)
		}
		r.idle(t)
	})
}

func TestAnOverloadedAPIIsTriedAgainUntilItAnswers(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"529@0s-1s", "500-safe@n=1"} {
		t.Run(fault, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, anthropic.Config{Faults: []string{fault}}, ratelimited.Config{Slots: 1, Profile: perMinute()})
					got := collect(r.GenerateContent(t.Context(), hello(), stream))
					if got.errs != nil || got.text == "" {
						t.Errorf("got %q, %v", got.text, got.errs)
					}
					if s := r.double.Stats(); s.Completed != 1 || s.Requests < 2 {
						t.Errorf("%d requests, %d completed; want one after some refusals", s.Requests, s.Completed)
					}
					r.idle(t)
				})
			})
		})
	}
}

// The error of a stream has status 200. As its first event it comes in place of
// an item, and nothing was generated.
func TestAnOverloadAsTheFirstEventIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if requests.Add(1) == 1 {
				io.WriteString(w, events(overloaded))
				return
			}
			io.WriteString(w, answer("hi"))
		}))
		defer srv.Close()
		r := newRigOn(t, srv, ratelimited.Config{Slots: 1, Profile: perMinute()})
		if got := collect(r.GenerateContent(t.Context(), hello(), true)); got.errs != nil || got.text != "hi" || requests.Load() != 2 {
			t.Errorf("got %q, %v after %d requests; want hi after 2", got.text, got.errs, requests.Load())
		}
		r.idle(t)
	})
}

func TestAStreamThatBreaksIsNotTriedAgainAndWhatItReportedIsCharged(t *testing.T) {
	t.Parallel()
	for fault, c := range map[string]struct {
		end     func(error) bool
		outcome string
	}{
		"stream-error":          {isAPIError(200, "overloaded_error"), "overloaded"},
		"stream-error@code=429": {isAPIError(200, "rate_limit_error"), "throttled"},
		"stream-error@code=500": {isAPIError(200, "api_error"), "broken"},
		"cut":                   {is(anthropicmodel.ErrIncomplete), "broken"},
		"cut-json":              {is(anthropicmodel.ErrIncomplete), "broken"},
		"drop":                  {is(io.ErrUnexpectedEOF), "broken"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, anthropic.Config{Faults: []string{fault}, Latency: 8 * time.Second}, ratelimited.Config{Slots: 1, Profile: perMinute()})
				got := collect(r.GenerateContent(t.Context(), hello(), true))
				if got.items == nil || len(got.errs) != 1 || !c.end(got.errs[0]) {
					t.Errorf("got %d items and errors %v", len(got.items), got.errs)
				}
				if n := r.double.Stats().Requests; n != 1 {
					t.Errorf("%d requests, want 1: an item was delivered", n)
				}
				if o := r.outcomes(t); len(o) != 1 || o[c.outcome] != 1 {
					t.Errorf("attempts by outcome %v, want one %s", o, c.outcome)
				}
				if u := r.books.last(); u.Input != 2 || u.Output < 1 {
					t.Errorf("the customer was charged %v, want what the first event reported", u)
				}
				r.idle(t)
			})
		})
	}
}

// Frameworks run tools inside the yield of the item that completes an answer,
// and these may call the same model: with one slot it must be free by then.
func TestTheSlotIsBackBeforeTheItemWithTheStopReason(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, anthropic.Config{Latency: time.Second}, ratelimited.Config{Slots: 1, Profile: perMinute()})
			inner := 0
			for resp, err := range r.GenerateContent(t.Context(), hello(), stream) {
				if err != nil {
					t.Fatal(err)
				}
				done := resp.Message != nil || resp.Event.Delta.StopReason != ""
				if used := r.Gate().Stats().SlotsInUse; done != (used == 0) && inner == 0 {
					t.Errorf("%d slots in use at an item that completes the answer: %v", used, done)
				}
				if !done {
					continue
				}
				if got := collect(r.GenerateContent(t.Context(), says("and the tool?"), stream)); got.errs != nil || got.text == "" {
					t.Errorf("the call inside got %v", got.errs)
				}
				inner++
			}
			if inner != 1 {
				t.Errorf("%d items completed the answer, want 1", inner)
			}
			r.idle(t)
		})
	})
}

func TestUsageThatComesAfterTheStopReasonIsBooked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, answer("hi")+events(lateUsage))
		}))
		defer srv.Close()
		r := newRigOn(t, srv, ratelimited.Config{Slots: 1, Profile: perMinute()})
		prompt := usage.Usage{Input: 123, CachedInput: 100, CacheWrite: 20, Output: 7}
		for resp, err := range r.GenerateContent(t.Context(), hello(), true) {
			if err != nil {
				t.Fatal(err)
			}
			if resp.Event.Delta.StopReason != "" {
				if u := r.books.last(); u != prompt {
					t.Errorf("at the stop reason %v was booked, want %v", u, prompt)
				}
			}
		}
		want := usage.Usage{Input: 123, CachedInput: 100, CacheWrite: 20, Output: 12, Thoughts: 4}
		if u := r.books.last(); u != want {
			t.Errorf("in the end %v was booked, want %v", u, want)
		}
		r.idle(t)
	})
}

// A gate learns that answers are short, but Bedrock sets max_tokens aside all
// the same.
func TestMaxTokensStayReservedWhateverWasLearned(t *testing.T) {
	t.Parallel()
	inFlight := func(t *testing.T, opts ...anthropicmodel.Option) (together int) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, anthropic.Config{OutputTokens: 20, Latency: 8 * time.Second}, ratelimited.Config{
				Slots: 30, Headroom: 1, Profile: ratelimited.Bedrock(ratelimited.BedrockQuota{TokensPerMinute: 10_000}),
			}, opts...)
			for range 10 { // 102 tokens of the quota each: 2 and 5 times 20
				if got := collect(r.GenerateContent(t.Context(), hello(), true)); got.errs != nil {
					t.Fatal(got.errs)
				}
			}
			time.Sleep(2 * time.Minute)
			r.double.Reset()
			var burst sync.WaitGroup
			for range 20 {
				burst.Go(func() {
					if got := collect(r.GenerateContent(t.Context(), hello(), true)); got.errs != nil {
						t.Error(got.errs)
					}
				})
			}
			time.Sleep(4 * time.Second) // all that may be sent at once were sent
			together = r.double.Stats().InFlight
			burst.Wait()
			r.idle(t)
		})
		return together
	}
	if n := inFlight(t, anthropicmodel.WithMaxTokensReserved()); n != 9 {
		t.Errorf("%d calls of 1,000 max_tokens were in flight together within 10,000 tokens, want 9", n)
	}
	if n := inFlight(t); n <= 9 {
		t.Errorf("%d calls were in flight without the reservation: this test proves nothing", n)
	}
}

// With a call's request written, its quota is dated, and need not wait for the
// answer to begin.
func TestTheGateIsToldWhenARequestWasWritten(t *testing.T) {
	t.Parallel()
	const window, latency, cell = time.Minute, 20 * time.Second, time.Second
	both(t, func(t *testing.T, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			var arrivals []time.Duration
			srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				arrivals = append(arrivals, time.Since(start))
				mu.Unlock()
				time.Sleep(latency)
				reply(w, r)
			}))
			defer srv.Close()
			r := newRigOn(t, srv, ratelimited.Config{
				Headroom: 1, Slots: 4, Profile: ratelimited.Bedrock(ratelimited.BedrockQuota{RequestsPerMinute: 1}),
			})
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() {
					if got := collect(r.GenerateContent(t.Context(), hello(), stream)); got.errs != nil {
						t.Errorf("errors %v", got.errs)
					}
				})
			}
			calls.Wait()
			if len(arrivals) != 2 || arrivals[1] < time.Second+window || arrivals[1] > time.Second+window+cell {
				t.Errorf("requests at %v, want the second one window after the first had been written for a second", arrivals)
			}
			r.idle(t)
		})
	})
}

// A provider may quote the prompt in an error.
func TestPromptsAndAnswersAreInNoLogMetricOrError(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int32
			srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				switch requests.Add(1) {
				case 1:
					w.WriteHeader(529)
					io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"SECRET"}}`)
				case 2:
					w.WriteHeader(400)
					io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.0: SECRET"}}`)
				default:
					io.WriteString(w, events(started, text("SECRET"))+"event: x\ndata: SECRET\n\n")
				}
			}))
			defer srv.Close()
			var log bytes.Buffer
			r := newRigOn(t, srv, ratelimited.Config{
				Slots: 1, Profile: perMinute(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			for range 2 {
				got := collect(r.GenerateContent(t.Context(), says("SECRET"), stream))
				if len(got.errs) != 1 || strings.Contains(got.errs[0].Error(), "SECRET") {
					t.Errorf("errors %v", got.errs)
				}
			}
			families, err := r.reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(log.String()+fmt.Sprint(families), "SECRET") || log.Len() == 0 {
				t.Errorf("the log: %s", &log)
			}
		})
	})
}
