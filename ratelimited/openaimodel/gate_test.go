package openaimodel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	double "github.com/headgate-go/headgate/bench/openai"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

func TestABurstThroughTheGateIsNeverThrottled(t *testing.T) {
	t.Parallel()
	const calls = 50
	for _, c := range []struct {
		name    string
		double  double.Config
		profile ratelimited.Profile
	}{
		{"by requests", double.Config{RPM: 20}, ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 20})},
		{"by tokens", double.Config{TPM: 4000}, ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: 4000})},
		{
			"by both", double.Config{RPM: 20, TPM: 8000},
			ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 20, TokensPerMinute: 8000}),
		},
		{"late arrivals", double.Config{RPM: 20, ArrivalJitter: 900 * time.Millisecond}, ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 20})},
		{
			"Azure", double.Config{RPM: 40, TPM: 20_000, Window: double.Fixed, WindowOffset: 17 * time.Second, CountTokens: double.CountSum},
			ratelimited.Azure(ratelimited.AzureQuota{RequestsPerMinute: 40, TokensPerMinute: 20_000}),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					cfg := c.double
					cfg.Latency, cfg.TTFTShare, cfg.LatencySigma, cfg.Seed = 8*time.Second, 0.2, 0.3, 1
					d := newDouble(t, cfg)
					srv := memhttp.New(d)
					defer srv.Close()
					// OpenAI counts a prompt by its characters when it admits a call, and
					// prose has more quarters of them than tokens: that is what the
					// headroom is for.
					gate := newGate(t, ratelimited.Config{Slots: 30, Headroom: 0.8, Profile: c.profile})
					call := a.gated(t, newClient(srv), gate)
					var burst sync.WaitGroup
					for i := range calls {
						burst.Go(func() {
							ctx := ratelimited.WithFlow(t.Context(), fmt.Sprint("user ", i%10))
							got := collect(call(ctx, stream, func(k *knobs) {
								k.prompt = fmt.Sprintf("%d: %s", i, strings.Repeat("Every field takes its share of the river. ", 20))
							}))
							if got.errs != nil || got.text == "" {
								t.Errorf("call %d: got %d characters, errors %v", i, len(got.text), got.errs)
							}
						})
					}
					burst.Wait()
					s := d.Stats()
					if s.Requests != calls || s.Completed != calls || s.Refused != 0 {
						t.Errorf("%d requests, %d completed, %d refused %v; want %d, all completed", s.Requests, s.Completed, s.Refused, s.RefusedBy, calls)
					}
					if s.Elapsed < time.Minute {
						t.Errorf("the burst took %v: the quota did not bind, and this test proves nothing", s.Elapsed)
					}
					idle(t, gate)
				})
			})
		})
	}
}

// A hint, in whatever header it comes, is waited for before the call is sent
// again.
func TestAHintIsWaitedFor(t *testing.T) {
	t.Parallel()
	const advised = 20 * time.Second
	for name, c := range map[string]struct {
		form  double.Form
		fault string
		exact bool
	}{
		"retry-after-ms":            {double.FormFull, "429@n=1,retry=20s", true},
		"retry-after":               {double.FormSeconds, "429-tokens@n=1,retry=20s", true},
		"x-ratelimit-reset":         {double.FormReset, "429@n=1,retry=20s", true},
		"no header: an own backoff": {double.FormBare, "429@n=1,retry=20s", false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					d := newDouble(t, double.Config{CallLog: 10, Faults: []string{c.fault}, RefusalForm: c.form})
					srv := memhttp.New(d)
					defer srv.Close()
					gate := newGate(t, ratelimited.Config{Slots: 4, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 1000, TokensPerMinute: 1_000_000})})
					if got := collect(a.gated(t, newClient(srv), gate)(t.Context(), stream)); got.errs != nil || got.text == "" {
						t.Fatalf("got %q, %v", got.text, got.errs)
					}
					calls := d.Calls()
					if len(calls) != 2 || calls[0].Outcome != double.Refused || calls[1].Outcome != double.Completed {
						t.Fatalf("the double saw %+v, want a refusal and an answer", calls)
					}
					// The gate spreads returns over a tenth of the hint, and so does the policy.
					wait := calls[1].Arrived.Sub(calls[0].Ended)
					if hinted := wait >= advised && wait <= advised*13/10; hinted != c.exact || wait > advised*13/10 {
						t.Errorf("came back after %v", wait)
					}
					idle(t, gate)
				})
			})
		})
	}
}

// What waiting does not mend is one request, and costs nobody anything.
func TestWhatWaitingDoesNotMendIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for fault, class := range map[string]retry.Class{
		"429-quota": retry.QuotaExhausted, "429-credits": retry.QuotaExhausted, "429-spend": retry.QuotaExhausted, "402": retry.QuotaExhausted,
		"429-day": retry.QuotaExhausted, "429-never": retry.QuotaExhausted, "500": retry.NotRetryable, "502": retry.NotRetryable, "503-never": retry.NotRetryable,
	} {
		t.Run(fault, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					d := newDouble(t, double.Config{Faults: []string{fault}})
					srv := memhttp.New(d)
					defer srv.Close()
					gate := newGate(t, ratelimited.Config{Slots: 1, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 100})})
					l := &ledger{}
					start := time.Now()
					got := collect(a.gated(t, newClient(srv), gate, ratelimited.WithBudgets(l))(t.Context(), stream))
					if len(got.errs) != 1 || retry.Classify(got.errs[0]).Class != class || time.Since(start) != 0 {
						t.Errorf("errors %v after %v, want one that is %v at once", got.errs, time.Since(start), class)
					}
					if n := d.Stats().Requests; n != 1 {
						t.Errorf("%d requests, want 1", n)
					}
					l.expect(t, usage.Usage{})
					idle(t, gate)
				})
			})
		})
	}
}

// An overloaded provider is tried again, and so is a failure of which the
// provider says so.
func TestAnOverloadedProviderIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"503@n=1", "500-again@n=1", "503@n=1,retry=5s"} {
		t.Run(fault, func(t *testing.T) {
			each(t, func(t *testing.T, a api, stream bool) {
				synctest.Test(t, func(t *testing.T) {
					d := newDouble(t, double.Config{Faults: []string{fault}})
					srv := memhttp.New(d)
					defer srv.Close()
					gate := newGate(t, ratelimited.Config{Slots: 2})
					start := time.Now()
					got := collect(a.gated(t, newClient(srv), gate)(t.Context(), stream))
					if got.errs != nil || d.Stats().Requests != 2 {
						t.Errorf("%d requests, errors %v; want 2 and none", d.Stats().Requests, got.errs)
					}
					if waited := time.Since(start); (waited >= 5*time.Second) != strings.Contains(fault, "5s") {
						t.Errorf("came back after %v", waited)
					}
					idle(t, gate)
				})
			})
		})
	}
}

// A stream that reports an error before it has brought anything is sent again;
// after an item it never is, and what was seen of it is paid.
func TestAnErrorWithinAStreamIsRetriedBeforeTheFirstItemOnly(t *testing.T) {
	t.Parallel()
	for _, a := range apis {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before the first item: %v", a.name, before), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					requests := 0
					srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						requests++
						if requests > 1 {
							a.reply("whole")(w, r)
							return
						}
						w.Header().Set("Content-Type", "text/event-stream")
						if !before {
							for i, e := range strings.SplitAfter(a.events(strings.Repeat("x", 400)), "\n\n") {
								if i < 2 {
									io.WriteString(w, e)
								}
							}
						}
						io.WriteString(w, data(`{"error":{"message":"busy","type":"tokens","code":"rate_limit_exceeded"}}`))
					}))
					defer srv.Close()
					gate := newGate(t, ratelimited.Config{Slots: 1, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: 100_000})})
					l := &ledger{}
					got := collect(a.gated(t, newClient(srv), gate, ratelimited.WithBudgets(l))(t.Context(), true))
					if before {
						if requests != 2 || got.errs != nil || got.text != "whole" {
							t.Errorf("%d requests, text %q, errors %v; want the second answer", requests, got.text, got.errs)
						}
						l.expect(t, usage.Usage{Input: 9, Output: 4})
						return
					}
					if requests != 1 || len(got.errs) != 1 || retry.Classify(got.errs[0]).Class != retry.Throttled {
						t.Errorf("%d requests, errors %v; want one of each", requests, got.errs)
					}
					if spent := l.spent(t); spent.Input <= 0 || !spent.Has(usage.Estimated) || a.name == "responses" && spent.Output < 10 {
						t.Errorf("paid %v, want the input and the output that was seen", spent)
					}
					idle(t, gate)
				})
			})
		}
	}
}

// The slot is back before the item that completes the answer is yielded: inside
// that yield a framework calls the model again, and a gate of one slot lets it.
func TestTheSlotIsBackBeforeTheItemThatCompletesTheAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			d := newDouble(t, double.Config{Latency: time.Second})
			srv := memhttp.New(d)
			defer srv.Close()
			gate := newGate(t, ratelimited.Config{Slots: 1})
			call := a.gated(t, newClient(srv), gate)
			inner := collected{}
			items := 0
			for i, err := range call(t.Context(), stream) {
				if err != nil {
					t.Fatal(err)
				}
				if !i.done && gate.Stats().SlotsInUse != 1 {
					t.Error("the slot is back although the answer is not complete")
				}
				if i.done && items == 0 {
					items++
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					inner = collect(call(ctx, stream))
					cancel()
				}
			}
			if inner.errs != nil || inner.text == "" {
				t.Errorf("the call within: %q, %v", inner.text, inner.errs)
			}
			idle(t, gate)
		})
	})
}

// OpenAI tells the usage of a streamed completion after the chunk that completes
// it. It is booked all the same, for the gate and for customers.
func TestUsageThatComesAfterTheAnswerIsBooked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			d := newDouble(t, double.Config{OutputTokens: 300, Reasoning: 200, CachedShare: 1})
			srv := memhttp.New(d)
			defer srv.Close()
			gate := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: 10_000})})
			l := &ledger{}
			got := collect(a.gated(t, newClient(srv), gate, ratelimited.WithBudgets(l))(t.Context(), stream))
			if got.errs != nil {
				t.Fatal(got.errs)
			}
			want := usage.Usage{Input: 2, CachedInput: 2, Output: 500, Thoughts: 200}
			l.expect(t, want)
			// 9,498 tokens are left: a call for one more does not fit this minute.
			for more, fits := range map[int64]bool{9498: true, 9499: false} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				p, err := gate.Acquire(ctx, ratelimited.Call{Usage: usage.Usage{Input: more}})
				if (err == nil) != fits {
					t.Errorf("a call for %d tokens: %v", more, err)
				}
				if err == nil {
					p.Release()
				}
				cancel()
			}
			idle(t, gate)
		})
	})
}

// A call whose usage was left out pays what was held for it.
func TestAnAnswerWithoutUsageCostsWhatWasHeld(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			d := newDouble(t, double.Config{Faults: []string{"no-usage"}})
			srv := memhttp.New(d)
			defer srv.Close()
			l := &ledger{}
			got := collect(a.gated(t, newClient(srv), newGate(t, ratelimited.Config{Slots: 1}), ratelimited.WithBudgets(l))(t.Context(), stream, func(k *knobs) { k.max = 700 }))
			if got.errs != nil {
				t.Fatal(got.errs)
			}
			if spent := l.spent(t); spent.Output != 700 || spent.Input <= 0 || !spent.Has(usage.Estimated) {
				t.Errorf("paid %v, want the hold of 700 tokens and the input, as estimated", spent)
			}
		})
	})
}

// A refusal of our own comes before anything is sent.
func TestACallThatNeverFitsIsNotSent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
		gate := newGate(t, ratelimited.Config{Slots: 1, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerDay: 100})})
		got := collect(a.gated(t, newClient(srv), gate)(t.Context(), stream, func(k *knobs) { k.prompt = strings.Repeat("word ", 1000) }))
		if len(got.errs) != 1 || !errors.Is(got.errs[0], ratelimited.ErrNeverFits) {
			t.Errorf("errors %v, want ErrNeverFits", got.errs)
		}
	})
}

// OpenAI refuses a call that is larger than its whole limit with a 429 that no
// waiting mends.
func TestACallLargerThanTheProvidersLimitIsRefusedOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			d := newDouble(t, double.Config{TPM: 100})
			srv := memhttp.New(d)
			defer srv.Close()
			gate := newGate(t, ratelimited.Config{Slots: 1})
			got := collect(a.gated(t, newClient(srv), gate)(t.Context(), stream, func(k *knobs) { k.max = 101 }))
			if len(got.errs) != 1 || d.Stats().Requests != 1 || retry.Classify(got.errs[0]).Class != retry.NotRetryable {
				t.Errorf("%d requests, errors %v; want one of each", d.Stats().Requests, got.errs)
			}
			idle(t, gate)
		})
	})
}

// What the headers of an answer say is left reaches the gate with the head of
// the answer, before a stream has brought an item, and binds everybody.
func TestWhatHeadersSayIsLeftBindsTheNextCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			var arrived []time.Duration
			start := time.Now()
			srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived = append(arrived, time.Since(start))
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				w.Header().Set("X-Ratelimit-Limit-Requests", "60")
				w.Header().Set("X-Ratelimit-Remaining-Requests", "0")
				w.Header().Set("X-Ratelimit-Reset-Requests", "1m0s")
				if len(arrived) == 1 && stream {
					w.Header().Set("Content-Type", "text/event-stream")
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
					time.Sleep(10 * time.Second)
				}
				a.reply("hi")(w, r)
			}))
			defer srv.Close()
			gate := newGate(t, ratelimited.Config{Slots: 5, Headroom: 1, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{RequestsPerMinute: 60})})
			call := a.gated(t, newClient(srv), gate)
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					if got := collect(call(t.Context(), stream)); got.errs != nil {
						t.Errorf("errors %v", got.errs)
					}
				})
				time.Sleep(time.Millisecond) // the first one's head is there
			}
			calls.Wait()
			if len(arrived) != 3 || arrived[1] < 900*time.Millisecond || arrived[1] > 1100*time.Millisecond || arrived[2]-arrived[1] < 900*time.Millisecond {
				t.Errorf("calls were sent at %v, want one a second: nothing was left of 60 a minute", arrived)
			}
			idle(t, gate)
		})
	})
}

// A call's quota is dated a second after its request was written, not when the
// answer begins: the model tells the gate, whatever HTTP client there is.
func TestTheGateIsToldWhenARequestWasWritten(t *testing.T) {
	t.Parallel()
	const window, latency, cell = time.Minute, 20 * time.Second, time.Second
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var arrivals []time.Duration
			srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrivals = append(arrivals, time.Since(start))
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				time.Sleep(latency)
				a.reply("hi")(w, r)
			}))
			defer srv.Close()
			profile := ratelimited.Profile{Dimensions: []ratelimited.Dimension{{Name: "requests", Limit: 1, Count: ratelimited.OneRequest}}}
			gate := newGate(t, ratelimited.Config{Headroom: 1, Slots: 4, Profile: profile})
			call := a.gated(t, newClient(srv), gate)
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() {
					if got := collect(call(t.Context(), stream)); got.errs != nil {
						t.Errorf("errors %v", got.errs)
					}
				})
			}
			calls.Wait()
			if len(arrivals) != 2 || arrivals[1] < time.Second+window || arrivals[1] > time.Second+window+cell {
				t.Errorf("calls were sent at %v, want the second one a window after 1s", arrivals)
			}
			idle(t, gate)
		})
	})
}

// Answers much shorter than the limit that their requests set: OpenAI keeps the
// whole limit of each counted, and so does the gate.
func TestABurstOfShortAnswersUnderLargeLimitsIsNeverThrottled(t *testing.T) {
	t.Parallel()
	const calls = 50
	each(t, func(t *testing.T, a api, stream bool) {
		synctest.Test(t, func(t *testing.T) {
			d := newDouble(t, double.Config{TPM: 20_000, Latency: 8 * time.Second, TTFTShare: 0.2, OutputTokens: 100})
			srv := memhttp.New(d)
			defer srv.Close()
			gate := newGate(t, ratelimited.Config{Slots: 30, Profile: ratelimited.OpenAI(ratelimited.OpenAIQuota{TokensPerMinute: 20_000})})
			call := a.gated(t, newClient(srv), gate)
			var burst sync.WaitGroup
			for i := range calls {
				burst.Go(func() {
					got := collect(call(t.Context(), stream, func(k *knobs) { k.prompt, k.max = fmt.Sprint("hello ", i), 1000 }))
					if got.errs != nil {
						t.Errorf("call %d: errors %v", i, got.errs)
					}
				})
			}
			burst.Wait()
			s := d.Stats()
			t.Logf("%d refused, took %v", s.Refused, s.Elapsed)
			if s.Completed != calls || s.Refused != 0 {
				t.Errorf("%d completed, %d refused", s.Completed, s.Refused)
			}
			idle(t, gate)
		})
	})
}
