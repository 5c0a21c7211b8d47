package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
)

// down is a model that answers 503 until a time has passed since it was made,
// and then within a second.
func down(until time.Duration) *fakeLLM {
	start := time.Now()
	return &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
		if time.Since(start) < until {
			yield(nil, overloaded())
			return
		}
		if err := wait(ctx, time.Second); err != nil {
			yield(nil, err)
			return
		}
		yield(final(1, 1), nil)
	}}
}

// Two calls a second for two minutes, and a provider that is down for the first
// of them: three attempts would be over in seconds.
func TestCallsThatMayWaitOutlastAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 20, Profile: gemini, MaxWait: ptr(2 * time.Minute)})
		f := down(time.Minute)
		llm := wrap(t, f, g)
		var all sync.WaitGroup
		var mu sync.Mutex
		failed, last := 0, time.Duration(0)
		start := time.Now()
		for range 240 {
			all.Go(func() {
				err := call(t.Context(), llm, hello())
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
				}
				last = max(last, time.Since(start))
			})
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
		if refused := f.count() - (240 - failed); refused > 40 {
			t.Errorf("%d attempts met a provider that was down, want a few", refused)
		}
		if failed > 4 {
			t.Errorf("%d of 240 calls failed, want the few that were refused before it was known", failed)
		}
		if last > 130*time.Second {
			t.Errorf("the last answer came after %v, want it soon after the last call", last)
		}
		if s := g.Stats(); s.Slots != 20 {
			t.Errorf("a minute after the outage %d of 20 slots are in force", s.Slots)
		}
		mustBeIdle(t, g)
	})
}

func TestCallsThatWaitDuringAnOutageKeepTheirDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 20, Profile: gemini})
		llm := wrap(t, down(time.Hour), g)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		start := time.Now()
		for range 100 {
			all.Go(func() {
				err := call(ctx, llm, hello())
				if err == nil {
					t.Error("an answer, though the provider was down")
				}
				if d := time.Since(start); d > 31*time.Second {
					t.Errorf("given up after %v, want 30s", d)
				}
				if w := (*ratelimited.WaitError)(nil); errors.As(err, &w) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v does not match context.DeadlineExceeded", err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		mustBeIdle(t, g)
	})
}

// One call that is answered ends the outage for all.
func TestTheEndOfAnOutageIsForEverybody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 50, Profile: gemini, MaxWait: ptr(10 * time.Minute)})
		f := down(30 * time.Second)
		llm := wrap(t, f, g)
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() { _ = call(t.Context(), llm, hello()) })
			time.Sleep(200 * time.Millisecond)
		}
		// The longest pause is 8 s; then 1, 2, 4, … at a time, a second each.
		time.Sleep(30*time.Second - 12*time.Second + 8*time.Second + 8*time.Second)
		if n := g.Stats().Waiting; n != 0 {
			t.Errorf("%d calls wait, want none", n)
		}
		all.Wait()
		mustBeIdle(t, g)
	})
}

// To have found out that the provider is down costs a call none of its attempts.
func TestAnOutageOfAnyLengthIsWaitedOutWithinWhatCallsMayWait(t *testing.T) {
	for _, length := range []time.Duration{time.Minute, 5 * time.Minute} {
		bubbleRun(t, "length", length, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 20, Profile: gemini, MaxWait: ptr(15 * time.Minute)})
			f := down(length)
			llm := wrap(t, f, g)
			var all sync.WaitGroup
			var failed atomic.Int32
			for range 20 {
				all.Go(func() {
					if err := call(t.Context(), llm, hello()); err != nil {
						failed.Add(1)
					}
				})
				time.Sleep(500 * time.Millisecond)
			}
			all.Wait()
			// The first ones are refused before it is known that the provider is down.
			if n := failed.Load(); n > 4 {
				t.Errorf("%d of 20 calls with 15 minutes to wait failed", n)
			}
			mustBeIdle(t, g)
		})
	}
}

// A provider that answers, though not with what was asked for, is not down.
func TestAnyAnswerEndsAnOutage(t *testing.T) {
	for name, answer := range map[string]error{"400": badRequest(), "429": throttled()} {
		bubbleRun(t, "answer", name, func(t *testing.T) {
			g := newGate(t, ratelimited.Config{Slots: 20, Profile: gemini, MaxWait: ptr(15 * time.Minute)})
			start := time.Now()
			f := &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
				if time.Since(start) < 20*time.Second {
					yield(nil, overloaded())
					return
				}
				_ = wait(ctx, time.Second)
				yield(nil, answer)
			}}
			llm := wrap(t, f, g)
			var all sync.WaitGroup
			for range 60 {
				all.Go(func() { _ = call(t.Context(), llm, hello()) })
				time.Sleep(300 * time.Millisecond)
			}
			time.Sleep(12 * time.Second)
			f.resetPeak()
			all.Wait()
			if name == "400" && time.Since(start) > 40*time.Second {
				t.Errorf("the last call was answered after %v, as if one at a time could go out", time.Since(start))
			}
			if !g.Stats().PausedUntil.IsZero() {
				t.Error("the gate is paused")
			}
			mustBeIdle(t, g)
		})
	}
}

func TestEveryOtherCallRefusedIsNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 20, Profile: gemini, MaxWait: ptr(time.Minute)})
		f := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			_ = wait(ctx, 100*time.Millisecond)
			if n%2 == 0 {
				yield(nil, overloaded())
				return
			}
			yield(nil, badRequest())
		}}
		llm := wrap(t, f, g)
		for range 30 {
			_ = call(t.Context(), llm, hello())
			if until := g.Stats().PausedUntil; !until.IsZero() {
				t.Fatalf("paused until %v, though every other call is answered", until)
			}
		}
		mustBeIdle(t, g)
	})
}

// A probe that hangs keeps the others back for a while and not for good.
func TestAProbeThatHangsIsFollowedByAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 20, Profile: gemini, MaxWait: ptr(10 * time.Minute)})
		start := time.Now()
		release := make(chan struct{})
		var hung atomic.Bool
		f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
			switch {
			case time.Since(start) < 30*time.Second:
				yield(nil, overloaded())
			case !hung.Swap(true):
				<-release
				yield(nil, errBroken)
			default:
				yield(final(1, 1), nil)
			}
		}}
		llm := wrap(t, f, g)
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() { _ = call(t.Context(), llm, hello()) })
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		if s := g.Stats(); s.Waiting > 0 {
			t.Errorf("two minutes later %d calls wait for one whose request hangs", s.Waiting)
		}
		close(release)
		all.Wait()
		mustBeIdle(t, g)
	})
}

func TestAnEndedPermitHasNothingToSay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1000})
		p.Dimensions[0].Shape = ratelimited.Bucket
		g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p})
		permit, err := g.Acquire(t.Context(), ratelimited.Call{Usage: usage.Usage{Input: 100}})
		if err != nil {
			t.Fatal(err)
		}
		permit.End(usage.Usage{Input: 100})
		permit.Refused(throttled(retryInfo("5s"), quotaFailure(inputPerMinute)))
		if d := dimension(t, g, "input_tokens"); d.Level != 900 || d.Share != 1 {
			t.Errorf("after its end a permit has changed the level to %d and the share to %v, want 900 and 1", d.Level, d.Share)
		}
		if _, err := g.Acquire(ratelimited.WithMaxWait(t.Context(), 0), ratelimited.Call{Usage: usage.Usage{Input: 100}}); err != nil {
			t.Errorf("and the limit is closed: %v", err)
		}
	})
}

// A refusal for want of tokens tells that a bucket has fewer left than the call
// takes, whatever the books say: others use it, too. Any refusal also cuts the
// bucket of 1,000 to 700.
func TestARefusalTellsWhatIsLeftInABucket(t *testing.T) {
	for name, c := range map[string]struct {
		count func(usage.Usage) int64
		items int
		hint  string
		want  int64
	}{
		"named":                        {ratelimited.InputTokens, 0, inputPerMinute, 99},
		"another limit is named":       {ratelimited.InputTokens, 0, requestsPerMinute, 700},
		"it may still grow":            {func(u usage.Usage) int64 { return u.Input }, 0, inputPerMinute, 700},
		"refused after the first item": {ratelimited.InputTokens, 1, inputPerMinute, 700},
	} {
		bubbleRun(t, "case", name, func(t *testing.T) {
			p := ratelimited.Profile{Dimensions: []ratelimited.Dimension{{
				Name: "input_tokens", Limit: 1000, Shape: ratelimited.Bucket, Count: c.count, Resource: retry.InputTokens,
			}}}
			g := newGate(t, ratelimited.Config{Slots: 10, Headroom: 1, Profile: p, Retry: retry.Policy{MaxAttempts: 1}})
			f := &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
				for range c.items {
					yield(part("a"), nil)
				}
				yield(nil, throttled(retryInfo("5s"), quotaFailure(c.hint)))
			}}
			llm, err := ratelimited.NewMetered(f, g, fixedMeter{100, 0})
			if err != nil {
				t.Fatal(err)
			}
			for range llm.GenerateContent(t.Context(), hello(), true) {
			}
			if n := level(t, g, "input_tokens"); n != c.want {
				t.Errorf("%d tokens are left, want %d", n, c.want)
			}
			mustBeIdle(t, g)
		})
	}
}
