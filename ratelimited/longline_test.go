package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// A line of thousands is a line: everybody in it is served, in time or not at
// all, and what fails on entering it fails in the caller's goroutine.
func TestLongLineIsServedAndCancelledLikeAShortOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		weight := func(_, flow string) float64 {
			if flow == "bad" {
				panic("weight")
			}
			return 1
		}
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1_000_000), FlowWeight: weight})
		p, err := g.Acquire(t.Context(), ratelimited.Call{Usage: input(1)})
		if err != nil {
			t.Fatal(err)
		}
		const calls = 3000
		ctx, cancel := context.WithCancel(t.Context())
		var served, cancelled, late atomic.Int64
		var wg sync.WaitGroup
		for i := range calls {
			ctx := ctx
			switch i % 3 {
			case 0:
				ctx = t.Context()
			case 1:
				ctx = ratelimited.WithMaxWait(t.Context(), time.Second)
			}
			wg.Go(func() {
				q, err := g.Acquire(ctx, ratelimited.Call{Flow: string(rune('a' + i%7)), Usage: input(1)})
				switch {
				case err == nil:
					served.Add(1)
					q.End(input(1))
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				case errors.Is(err, ratelimited.ErrWait):
					late.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := g.Stats().Waiting; n != calls {
			t.Fatalf("%d calls wait, want %d", n, calls)
		}
		passed := func() (p any) {
			defer func() { p = recover() }()
			_, _ = g.Acquire(t.Context(), ratelimited.Call{Flow: "bad"})
			return nil
		}()
		if passed != "weight" {
			t.Errorf("the caller saw the panic %v, want its own function's", passed)
		}
		if _, err := g.Acquire(t.Context(), ratelimited.Call{Class: "vip"}); err == nil || errors.Is(err, ratelimited.ErrWait) {
			t.Errorf("an unknown class: %v", err)
		}
		_, err = g.Acquire(t.Context(), ratelimited.Call{Usage: input(2_000_000)})
		mustNeverFit(t, err, "tokens", 2_000_000, 1_000_000)
		time.Sleep(2 * time.Second)
		cancel()
		synctest.Wait()
		p.End(input(1))
		wg.Wait()
		if served.Load() != calls/3 || cancelled.Load() != calls/3 || late.Load() != calls/3 {
			t.Errorf("%d served, %d cancelled, %d late; want %d of each", served.Load(), cancelled.Load(), late.Load(), calls/3)
		}
		if n := booked(t, g, "tokens"); n != calls/3+1 {
			t.Errorf("%d tokens on the books, want %d", n, calls/3+1)
		}
		mustBeIdle(t, g)
	})
}

// A function of the configuration that panics takes nothing with it.
func TestPanickingFunctionOfTheConfigLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		boom := ""
		maybe := func(what string) {
			if boom == what {
				panic(what)
			}
		}
		profile := window(1000)
		profile.Dimensions[0].Settle = func(u usage.Usage) int64 { maybe("settle"); return u.Input }
		profile.Dimensions[0].Count = func(u usage.Usage) int64 { maybe("count"); return u.Input }
		g := newGate(t, ratelimited.Config{
			Slots: 1, Headroom: 1, Profile: profile, Logger: quiet(),
			Flow:       func(context.Context) string { maybe("flow"); return "" },
			FlowWeight: func(string, string) float64 { maybe("weight"); return 1 },
		})
		l := &ledger{}
		llm, err := ratelimited.NewMetered(answers(0, part("a"), final(30, 5)), g, fixedMeter{40, 10}, ratelimited.WithBudgets(l))
		if err != nil {
			t.Fatal(err)
		}
		for _, boom = range []string{"flow", "weight", "count", "settle"} {
			passed := func() (p any) {
				defer func() { p = recover() }()
				_ = call(t.Context(), llm, hello())
				return nil
			}()
			if passed != boom {
				t.Errorf("the consumer saw the panic %v, want %v", passed, boom)
			}
			mustBeIdle(t, g)
		}
		// The last one happened after the answer: its usage is the customer's.
		l.expect(t, 0, 35)
		boom = ""
		if err := call(t.Context(), llm, hello()); err != nil {
			t.Error(err)
		}
		mustBeIdle(t, g)
	})
}
