package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
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
		if failed > 24 {
			t.Errorf("%d of 240 calls failed, want the few that found out", failed)
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
