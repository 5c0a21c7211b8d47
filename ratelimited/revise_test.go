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

// What was learned is a forecast: a call that was taken into the line at what it
// was expected to take is not thrown out because more is expected now.
func TestARevisionThrowsNobodyOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 3, Headroom: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			time.Sleep(time.Second)
			if n > 5 {
				yield(final(240, 0), nil)
				return
			}
			yield(final(60, 0), nil)
		}}
		small, err := ratelimited.NewMetered(f, g, fixedMeter{200, 0})
		if err != nil {
			t.Fatal(err)
		}
		large, err := ratelimited.NewMetered(f, g, fixedMeter{1200, 0})
		if err != nil {
			t.Fatal(err)
		}
		burst(t, f, small, 1, 0)
		for range 4 {
			burst(t, f, small, 1, 0) // a factor of 0.3
		}
		time.Sleep(2 * time.Minute)
		var all sync.WaitGroup
		for range 9 {
			all.Go(func() {
				if err := call(t.Context(), small, hello()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		if err := call(t.Context(), large, hello()); err != nil { // 360 of 1,000
			t.Errorf("a call that was in line failed: %v", err)
		}
		all.Wait()
		mustBeIdle(t, g)
	})
}

func TestARefusedCallIsChargedWhatItHoldsByThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := ratelimited.Profile{Dimensions: []ratelimited.Dimension{
			{Name: "units", Limit: 1000, FailuresCount: true, Count: ratelimited.InputTokens},
		}}
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p})
		f := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			switch n {
			case 1:
				time.Sleep(time.Second)
			case 2:
				time.Sleep(2 * time.Second)
				yield(nil, throttled())
				return
			default:
				_ = wait(ctx, time.Hour)
			}
			yield(final(30, 0), nil)
		}}
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{300, 0})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _ = call(ctx, llm, hello()) })
		}
		time.Sleep(10 * time.Second) // 30 of the first, 30 of the refused attempt, and 30 held for its next one
		d := dimension(t, g, "units")
		if used := int64(float64(d.Limit)*d.Share) - d.Level; used != 90 {
			t.Errorf("%d units are on the books, want 90", used)
		}
		cancel()
		all.Wait()
	})
}

// totalMeter reports totals only, where the prompt is not told.
type totalMeter struct{ fixedMeter }

func (m totalMeter) Observe(r *LLMResponse) (usage.Usage, ratelimited.Progress) {
	u, p := m.fixedMeter.Observe(r)
	if r.UsageMetadata != nil && r.UsageMetadata.PromptTokenCount == 0 {
		return usage.Usage{Output: int64(r.UsageMetadata.TotalTokenCount), Flags: usage.TotalOnly}, p
	}
	return u, p
}

func TestATotalIsSplitByTheRevisedEstimate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := ratelimited.Profile{Dimensions: []ratelimited.Dimension{
			{Name: "in", Limit: 10_000, Count: ratelimited.InputTokens},
			{Name: "out", Limit: 10_000, Count: ratelimited.OutputTokens},
		}}
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			if n == 1 {
				time.Sleep(time.Second)
				yield(final(30, 270), nil)
				return
			}
			time.Sleep(3 * time.Second)
			yield(final(0, 300), nil)
		}}
		llm, err := ratelimited.NewMetered(f, g, totalMeter{fixedMeter{300, 300}})
		if err != nil {
			t.Fatal(err)
		}
		burst(t, f, llm, 2, 0)
		if in, out := booked(t, g, "in"), booked(t, g, "out"); in != 60 || out != 540 {
			t.Errorf("the gate counts %d in and %d out, want 60 and 540", in, out)
		}
		mustBeIdle(t, g)
	})
}

// However many calls wait and however much the factors waver, the work for a
// settled call stays bounded.
func TestRevisionsAreBoundedByWhatWasLearned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const line = 20 * 64
		var counts atomic.Int64
		p := ratelimited.Profile{Dimensions: []ratelimited.Dimension{{
			Name: "units", Limit: 1 << 40, Count: func(u usage.Usage) int64 { counts.Add(1); return u.Input },
		}}}
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: p})
		f := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			time.Sleep(time.Second)
			yield(final(int32(100+400*(n%2)), 0), nil) // the factor moves with every call
		}}
		llm, err := ratelimited.NewMetered(f, g, fixedMeter{300, 0})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for range line {
			all.Go(func() { _ = call(ctx, llm, hello()) })
		}
		time.Sleep(500 * time.Millisecond)
		before := counts.Load()
		time.Sleep(100 * time.Second)
		// A revision counts each call twice, once with and once without what was learned.
		if n := counts.Load() - before; n > 100*2*64+2*line+1000 {
			t.Errorf("100 calls were settled, and %d estimates were made for the %d that wait", n, line)
		}
		cancel()
		all.Wait()
		mustBeIdle(t, g)
	})
}
