package ratelimited_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
	"github.com/prometheus/client_golang/prometheus"
)

// soakModel ends each call in one of many ways, by chance.
func soakModel(seed uint64) *fakeLLM {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	return &fakeLLM{play: func(ctx context.Context, _ int, yield yields) {
		took := time.Duration(draw(2000)) * time.Millisecond
		if err := wait(ctx, took); err != nil {
			yield(nil, err)
			return
		}
		in, out := int32(1+draw(40)), int32(1+draw(60))
		switch draw(20) {
		case 0:
			yield(nil, throttled(retryInfo(fmt.Sprintf("%.1fs", float64(draw(20))/10))))
		case 1:
			yield(nil, throttled())
		case 2:
			yield(nil, overloaded())
		case 3:
			yield(nil, badRequest())
		case 4:
			yield(nil, notSent())
		case 5:
			panic(errBroken)
		case 6:
			_ = yield(part("a"), nil) && yield(nil, errBroken)
		case 7:
			_ = yield(part("a"), nil) && yield(nil, wait(ctx, time.Hour)) // hangs
		case 8: // ends without an item that completes it
			yield(part("some text"), nil)
		case 9: // ignores everything
			yield(part("a"), nil)
			yield(final(in, out), nil)
			yield(&LLMResponse{UsageMetadata: used(in+5, out)}, nil)
			yield(nil, errBroken)
		default:
			_ = yield(part("a"), nil) && wait(ctx, took/4) == nil && yield(final(in, out), nil)
		}
	}}
}

// Two hundred thousand calls that end in every way there is, over fifty flows:
// at the end nothing is held by anybody, and the budgets are as on the first day.
func TestNothingDriftsOverManyCalls(t *testing.T) {
	calls := int64(200_000)
	switch {
	case testing.Short():
		calls = 10_000
	case raceDetector:
		calls = 50_000
	}
	t.Logf("%d calls", calls)
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{
			Slots: 150, MaxWaiting: 300, Registerer: prometheus.NewRegistry(), Logger: quiet(),
			Profile:    ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 20_000, InputTokensPerMinute: 400_000}),
			PerRequest: ratelimited.Ceiling{Slots: 8}, PerFlow: ratelimited.Ceiling{Slots: 40, Share: 0.5},
			Retry: retry.Policy{MaxHint: 30 * time.Second},
		})
		near, far := &ledger{name: "near"}, &ledger{name: "far", delay: 30 * time.Millisecond, slow: time.Millisecond}
		llm, err := ratelimited.NewMetered(soakModel(7), g, fixedMeter{20, 30}, ratelimited.WithBudgets(near, far))
		if err != nil {
			t.Fatal(err)
		}
		left := atomic.Int64{}
		left.Store(calls)
		var ends [4]atomic.Int64 // served, refused by us, failed, panicked
		var wg sync.WaitGroup
		for flow := range 50 {
			for worker := range 6 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(flow), uint64(worker)))
					for left.Add(-1) >= 0 {
						ends[soakCall(t, llm, random, flow)].Add(1)
						time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		for i, name := range []string{"served", "refused by us", "failed", "panicked"} {
			if n := ends[i].Load(); n < calls/500 {
				t.Errorf("%d of %d calls were %s: the soak does not test what it should", n, calls, name)
			}
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		mustBeIdle(t, g)
		for _, l := range []*ledger{near, far} {
			l.mu.Lock()
			if l.held != 0 || l.spent <= 0 {
				t.Errorf("ledger %s holds %d and has spent %d", l.name, l.held, l.spent)
			}
			l.mu.Unlock()
		}
		if near.spent != far.spent {
			t.Errorf("two ledgers of the same calls have spent %d and %d", near.spent, far.spent)
		}
		time.Sleep(2 * time.Minute)
		for _, d := range g.Stats().Dimensions {
			if want := int64(float64(d.Limit)*0.9*d.Share) - 1; d.Level < want {
				t.Errorf("a window later %q has %d of %d units (share %v)", d.Name, d.Level, want, d.Share)
			}
		}
	})
}

// soakCall makes one call and tells how it ended.
func soakCall(t *testing.T, llm LLM, random *rand.Rand, flow int) (end int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(20_000))*time.Millisecond)
	defer cancel()
	ctx = ratelimited.WithFlow(ratelimited.WithRequest(ctx, fmt.Sprint(flow, random.IntN(3))), fmt.Sprint(flow))
	if random.IntN(4) == 0 {
		ctx = ratelimited.WithClass(ctx, "interactive")
	}
	switch random.IntN(10) {
	case 0:
		time.AfterFunc(time.Duration(random.IntN(3000))*time.Millisecond, cancel)
	case 1:
		ctx = ratelimited.WithMaxWait(ctx, time.Duration(random.IntN(2))*time.Second)
	}
	stop, blow := random.IntN(8), random.IntN(40)
	defer func() {
		if p := recover(); p != nil {
			if p != errBroken && p != "mine" {
				panic(p)
			}
			end = 3
		}
	}()
	n := 0
	for item, err := range llm.GenerateContent(ctx, hello(), random.IntN(4) > 0) {
		switch n++; {
		case err == nil && item == nil:
			t.Error("an item that is nothing was yielded")
		case errors.Is(err, ratelimited.ErrWait):
			end = 1
		case err != nil:
			end = 2
		case blow == 0:
			panic("mine")
		}
		if n > stop {
			break
		}
	}
	return end
}
