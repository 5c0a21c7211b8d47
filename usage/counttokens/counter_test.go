package counttokens_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/counttokens"
)

// offline is the estimate of every request here.
var offline = usage.Usage{Input: 1000, Output: 300, Flags: usage.Estimated}

func estimate(string) usage.Usage { return offline }

// endpoint is a provider that can be slow and broken.
type endpoint struct {
	calls atomic.Int64
	mu    sync.Mutex // guards what follows
	takes time.Duration
	err   error
}

func (e *endpoint) set(takes time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.takes, e.err = takes, err
}

// count counts a token for each byte.
func (e *endpoint) count(ctx context.Context, req string) (int64, error) {
	e.calls.Add(1)
	e.mu.Lock()
	takes, err := e.takes, e.err
	e.mu.Unlock()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(takes):
	}
	return int64(len(req)), err
}

// counter asks an endpoint that takes 100 ms.
func counter(t *testing.T, change func(*counttokens.Config[string])) (*endpoint, *counttokens.Counter[string]) {
	t.Helper()
	e := &endpoint{takes: 100 * time.Millisecond}
	cfg := counttokens.Config[string]{Count: e.count, Estimate: estimate}
	if change != nil {
		change(&cfg)
	}
	c, err := counttokens.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

// expect estimates a request and checks what comes back, and after how long.
func expect(t *testing.T, c *counttokens.Counter[string], req string, exact bool, after time.Duration) {
	t.Helper()
	start := time.Now()
	u, ok := c.Estimate(t.Context(), req)
	want := offline
	if exact {
		want.Input = int64(len(req))
	}
	if u != want || ok != exact {
		t.Errorf("%q: %v, exact %v, want %v, %v", req, u, ok, want, exact)
	}
	if d := time.Since(start); d != after {
		t.Errorf("%q: took %v, want %v", req, d, after)
	}
}

func TestACountReplacesTheInputAndIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, nil)
		expect(t, c, "four", true, 100*time.Millisecond)
		expect(t, c, "four", true, 0)
		expect(t, c, "seven!!", true, 100*time.Millisecond)
		expect(t, c, "four", true, 0)
		if n := e.calls.Load(); n != 2 {
			t.Errorf("%d calls", n)
		}
		if got, want := c.Stats(), (counttokens.Stats{Remembered: 2, Counted: 2, Asked: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestWhatIsCachedIsAddedToTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ counted, cached, want int64 }{
			{7, 0, 7}, {7, 5000, 5007}, {7, -5000, 7}, {math.MaxInt64, 5000, math.MaxInt64}, {7, math.MaxInt64, 7},
		} {
			counter, err := counttokens.New(counttokens.Config[string]{
				Count:    func(context.Context, string) (int64, error) { return c.counted, nil },
				Estimate: func(string) usage.Usage { return usage.Usage{Input: 9000, CachedInput: c.cached} },
			})
			if err != nil {
				t.Fatal(err)
			}
			if u, exact := counter.Estimate(t.Context(), "x"); u.Input != c.want || u.CachedInput != c.cached || !exact {
				t.Errorf("%+v: %v, %v", c, u, exact)
			}
		}
	})
}

func TestRequestsThatAreTheSameAskOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { expect(t, c, "the same", true, 100*time.Millisecond) })
		}
		wg.Wait()
		if n := e.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestNobodyWaitsLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, nil)
		e.set(time.Hour, nil)
		expect(t, c, "slow", false, counttokens.DefaultTimeout)

		// Nor longer than the own context, nor with one that has ended.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, exact := c.Estimate(ctx, "slower"); exact || time.Since(start) != 30*time.Millisecond {
			t.Errorf("exact %v after %v", exact, time.Since(start))
		}
		before := e.calls.Load()
		if _, exact := c.Estimate(ctx, "slowest"); exact || e.calls.Load() != before {
			t.Errorf("exact %v, %d calls more", exact, e.calls.Load()-before)
		}
		time.Sleep(time.Second)
	})
}

func TestACallOutlivesTheCallerWhoStoppedWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, exact := c.Estimate(ctx, "impatient"); exact {
			t.Error("a count came before its time")
		}
		expect(t, c, "impatient", true, 70*time.Millisecond) // of the call that is under way
		expect(t, c, "impatient", true, 0)
		if n := e.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestAnEndpointThatFailsIsLeftAloneAndCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, func(cfg *counttokens.Config[string]) { cfg.Failures, cfg.Pause = 2, 10*time.Second })
		e.set(time.Hour, nil)
		expect(t, c, "a", false, counttokens.DefaultTimeout)
		if c.Stats().Paused {
			t.Error("paused after one failure")
		}
		expect(t, c, "b", false, counttokens.DefaultTimeout)
		synctest.Wait()
		if !c.Stats().Paused {
			t.Error("not paused after two failures")
		}
		for range 1000 {
			expect(t, c, "c", false, 0)
		}
		if n := e.calls.Load(); n != 2 {
			t.Errorf("%d calls", n)
		}

		// Each pause ends with one try, for which nobody waits. They double.
		tries := int64(2)
		for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			time.Sleep(pause*time.Second - time.Millisecond)
			expect(t, c, "d", false, 0)
			if n := e.calls.Load(); n != tries {
				t.Fatalf("%d calls before a pause of %d s is over, want %d", n, pause, tries)
			}
			time.Sleep(time.Millisecond)
			for range 10 {
				expect(t, c, "d", false, 0)
			}
			synctest.Wait()
			if tries++; e.calls.Load() != tries {
				t.Fatalf("%d calls after a pause of %d s, want %d", e.calls.Load(), pause, tries)
			}
			time.Sleep(counttokens.DefaultTimeout) // until the try has failed
			synctest.Wait()
		}

		// One that works ends it, and what it found is remembered.
		e.set(100*time.Millisecond, nil)
		time.Sleep(maxPause)
		expect(t, c, "back", false, 0)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		expect(t, c, "back", true, 0)
		expect(t, c, "again", true, 100*time.Millisecond)
		if c.Stats().Paused {
			t.Error("still paused")
		}
	})
}

const maxPause = 5 * time.Minute

func TestFailuresCountInARowOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, func(cfg *counttokens.Config[string]) { cfg.Failures = 2 })
		for i := range 10 {
			e.set(time.Millisecond, errors.New("down"))
			expect(t, c, strings.Repeat("x", 2*i+1), false, time.Millisecond)
			e.set(time.Millisecond, nil)
			expect(t, c, strings.Repeat("x", 2*i+2), true, time.Millisecond)
		}
		if got := c.Stats(); got.Paused || got.Failed != 10 || got.Asked != 20 {
			t.Errorf("%+v", got)
		}
	})
}

func TestCallsThatWereUnderWayDoNotProlongThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, func(cfg *counttokens.Config[string]) { cfg.Failures, cfg.Pause = 1, 10*time.Second })
		e.set(time.Hour, nil)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				c.Estimate(t.Context(), strings.Repeat("x", i+1))
			})
		}
		wg.Wait()
		e.set(0, nil)
		// The first failed 40 ms before the last.
		time.Sleep(10*time.Second - 40*time.Millisecond)
		expect(t, c, "now", false, 0)
		synctest.Wait()
		expect(t, c, "now", true, 0)
	})
}

func TestErrorsOfARequestDoNotSpeakAgainstTheEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		e, c := counter(t, func(cfg *counttokens.Config[string]) {
			cfg.Failures = 1
			cfg.Failure = func(err error) bool { return !errors.Is(err, refused) }
		})
		e.set(time.Millisecond, refused)
		expect(t, c, "bad", false, time.Millisecond)
		expect(t, c, "bad", false, 0) // not asked again
		expect(t, c, "worse", false, time.Millisecond)
		if got := c.Stats(); got.Paused || got.Asked != 2 || got.Failed != 2 || got.Estimated != 3 {
			t.Errorf("%+v", got)
		}
		e.set(time.Millisecond, nil)
		expect(t, c, "good", true, time.Millisecond)
	})
}

func TestACountOfNothingIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int64{0, -1, math.MinInt64} {
			_, c := counter(t, func(cfg *counttokens.Config[string]) {
				cfg.Count = func(context.Context, string) (int64, error) { return n, nil }
			})
			expect(t, c, "x", false, 0)
		}
	})
}

func TestAPanicOfCountIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := counter(t, func(cfg *counttokens.Config[string]) {
			cfg.Failures = 1
			cfg.Count = func(context.Context, string) (int64, error) { panic("an answer of the wrong form") }
		})
		expect(t, c, "x", false, 0)
		if got := c.Stats(); !got.Paused || got.Failed != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestOnlyTheLatestCountsAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, func(cfg *counttokens.Config[string]) { cfg.CacheSize = 2 })
		for _, step := range []struct {
			req   string
			asked bool
		}{
			{"a", true}, {"bb", true}, {"a", false}, {"ccc", true}, // now a and ccc
			{"a", false}, {"bb", true}, // now a and bb
			{"ccc", true}, {"bb", false}, {"a", true},
		} {
			before := e.calls.Load()
			c.Estimate(t.Context(), step.req)
			if asked := e.calls.Load() > before; asked != step.asked {
				t.Errorf("%s: asked %v, want %v", step.req, asked, step.asked)
			}
		}
	})
}

func TestWhatIsTooLargeOrNoJSONIsEstimated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, c := counter(t, func(cfg *counttokens.Config[string]) { cfg.MaxBytes = 10 })
		expect(t, c, "12345678", true, 100*time.Millisecond) // and two quotes
		expect(t, c, "123456789", false, 0)
		if n := e.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
		channels, err := counttokens.New(counttokens.Config[chan int]{
			Count:    func(context.Context, chan int) (int64, error) { return 1, nil },
			Estimate: func(chan int) usage.Usage { return offline },
		})
		if err != nil {
			t.Fatal(err)
		}
		if u, exact := channels.Estimate(t.Context(), make(chan int)); u != offline || exact {
			t.Errorf("%v, %v", u, exact)
		}
	})
}

func TestNewNamesTheField(t *testing.T) {
	t.Parallel()
	valid := counttokens.Config[string]{Count: (&endpoint{}).count, Estimate: estimate}
	for _, c := range []struct {
		change func(*counttokens.Config[string])
		want   string // in the error; "" for none
	}{
		{func(*counttokens.Config[string]) {}, ""},
		{func(c *counttokens.Config[string]) { c.Count = nil }, "Config.Count is nil"},
		{func(c *counttokens.Config[string]) { c.Estimate = nil }, "Config.Estimate is nil"},
		{func(c *counttokens.Config[string]) { c.Timeout = -time.Second }, "Config.Timeout is -1s"},
		{func(c *counttokens.Config[string]) { c.CacheSize = -2 }, "Config.CacheSize is -2"},
		{func(c *counttokens.Config[string]) { c.MaxBytes = -3 }, "Config.MaxBytes is -3"},
		{func(c *counttokens.Config[string]) { c.Failures = -4 }, "Config.Failures is -4"},
		{func(c *counttokens.Config[string]) { c.Pause = -5 }, "Config.Pause is -5ns"},
	} {
		cfg := valid
		c.change(&cfg)
		counter, err := counttokens.New(cfg)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v, want %q", err, c.want)
		case (counter == nil) != (err != nil):
			t.Errorf("counter %v with error %v", counter, err)
		}
	}
}
