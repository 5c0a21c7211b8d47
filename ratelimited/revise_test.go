package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// lasting is a model whose n-th call takes the n-th of some times, and the last
// of them from then on, and then reports so many input tokens.
func lasting(input int32, times ...time.Duration) *fakeLLM {
	return &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
		if err := wait(ctx, times[min(n, len(times))-1]); err != nil {
			yield(nil, err)
			return
		}
		yield(final(input, 0), nil)
	}}
}

// burst makes so many calls at once and waits until time at has passed. It
// returns how many have been sent by then; the calls are waited for at the end
// of the test.
func burst(t *testing.T, f *fakeLLM, llm LLM, n int, at time.Duration) int {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := call(t.Context(), llm, hello()); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(at)
	sent := f.count()
	all.Wait()
	return sent
}

// A thousand tokens a minute, and calls that are estimated at 300 and take 100.
func TestWhatIsLearnedReachesTheCallsThatWait(t *testing.T) {
	for _, shape := range []ratelimited.Window{ratelimited.Sliding, ratelimited.Bucket} {
		bubbleRun(t, "shape", shape, func(t *testing.T) {
			p := ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})
			p.Dimensions[0].Shape = shape
			g := newGate(t, ratelimited.Config{Slots: 100, Headroom: 1, Profile: p})
			f := lasting(100, time.Second)
			llm, err := ratelimited.NewMetered(f, g, fixedMeter{300, 0})
			if err != nil {
				t.Fatal(err)
			}
			if n := burst(t, f, llm, 9, 1500*time.Millisecond); n != 9 {
				t.Errorf("%d calls of 9 are under way when three have told what they take, want all", n)
			}
			mustBeIdle(t, g)
		})
	}
}

func TestWhatIsLearnedReachesTheCallsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 100, Headroom: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})})
		f := lasting(100, time.Second, 20*time.Second)
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{300, 0})
		if err != nil {
			t.Fatal(err)
		}
		// Three start. The first one ends; the other two hold 100 each from then on.
		if n := burst(t, f, llm, 11, 1500*time.Millisecond); n != 10 {
			t.Errorf("%d calls have been sent, want the 10 for which there is room", n)
		}
		mustBeIdle(t, g)
	})
}

func TestUnderestimatedCallsInFlightLetNobodyElseGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 100, Headroom: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})})
		f := lasting(300, time.Second, 20*time.Second)
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 0})
		if err != nil {
			t.Fatal(err)
		}
		var late sync.WaitGroup
		late.Go(func() {
			time.Sleep(2 * time.Second)
			if err := call(t.Context(), llm, hello()); err != nil {
				t.Error(err)
			}
		})
		// Three can be in flight at what they really take; five are.
		if n := burst(t, f, llm, 5, 10*time.Second); n != 5 {
			t.Errorf("%d calls have been sent, want 5 and not the one that came when the quota was known to be overdrawn", n)
		}
		late.Wait()
		mustBeIdle(t, g)
	})
}

// What a call was estimated at when it ended is what it is charged if nothing is
// known of its use.
func TestARevisedCallWithoutUsageIsChargedWhatItHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			item := final(100, 0)
			if n == 2 {
				time.Sleep(10 * time.Second)
				item.UsageMetadata = nil
			} else {
				time.Sleep(time.Second)
			}
			yield(item, nil)
		}}
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{300, 0})
		if err != nil {
			t.Fatal(err)
		}
		burst(t, f, llm, 2, 0)
		if n := booked(t, g, "input_tokens"); n != 200 {
			t.Errorf("the gate counts %d tokens, want 100 that were reported and 100 that were expected", n)
		}
		mustBeIdle(t, g)
	})
}

func TestAProfileThatPanicsWhileEstimatesAreRevisedLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var broken atomic.Bool
		p := ratelimited.Profile{Dimensions: []ratelimited.Dimension{{
			Name: "units", Limit: 1000,
			Count: func(u usage.Usage) int64 {
				if broken.Load() && u.Has(usage.Estimated) {
					panic("count")
				}
				return u.Input
			},
		}}}
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p})
		release := make(chan struct{})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			if n == 2 {
				<-release
			}
			yield(final(100, 0), nil)
		}}
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{300, 0})
		if err != nil {
			t.Fatal(err)
		}
		var second sync.WaitGroup
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			items := llm.GenerateContent(t.Context(), hello(), false)
			for range items {
				second.Go(func() { _ = call(t.Context(), llm, hello()) })
				time.Sleep(time.Second)
				broken.Store(true)
			}
		}()
		broken.Store(false)
		if n := booked(t, g, "units"); n != 400 {
			t.Errorf("the gate counts %d units, want 100 of the call that has ended and 300 of the other", n)
		}
		close(release)
		second.Wait()
		mustBeIdle(t, g)
		if err := call(t.Context(), llm, hello()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A refusal that is explained by estimates that were too low is no reason to
// believe in a lower rate.
func TestACutThatTooLowEstimatesExplainIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 100, Headroom: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})})
		f := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			time.Sleep(time.Second)
			if n == 3 {
				yield(nil, throttled(retryInfo("5s"), quotaFailure("GenerateContentInputTokensPerModelPerMinute-FreeTier")))
				return
			}
			time.Sleep(time.Duration(n) * time.Second)
			yield(final(300, 0), nil)
		}}
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 0})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() { burst(t, f, llm, 4, 0) })
		time.Sleep(1500 * time.Millisecond)
		if share := dimension(t, g, "input_tokens").Share; share != 0.7 {
			t.Errorf("after a refusal the share in force is %v, want 0.7", share)
		}
		time.Sleep(time.Second)
		if share := dimension(t, g, "input_tokens").Share; share != 1 {
			t.Errorf("when an answer tells that the estimates were too low the share in force is %v, want 1", share)
		}
		all.Wait()
		mustBeIdle(t, g)
	})
}
