package ratelimited

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/usage"
)

func TestALineOfThousandsLosesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 3 * longLine
		g, err := NewGate(Config{Slots: 3, MaxWaiting: calls})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var held []Permit
		for range 3 {
			p, err := g.Acquire(ctx, Call{})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		var running, peak, served, gaveUp atomic.Int64
		var wg sync.WaitGroup
		for i := range calls {
			impatient := i%7 == 0
			wg.Go(func() {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				if impatient {
					cancel()
				}
				p, err := g.Acquire(ctx, Call{Flow: fmt.Sprint(i % 50)})
				if err != nil {
					gaveUp.Add(1)
					return
				}
				peak.Store(max(peak.Load(), running.Add(1)))
				running.Add(-1)
				served.Add(1)
				p.End(usage.Usage{})
			})
		}
		synctest.Wait()
		want := int64(calls - (calls+6)/7)
		if n := g.Stats().Waiting; int64(n) != want || !g.long.Load() {
			t.Fatalf("%d calls wait, want %d, and the line to be known as long", n, want)
		}
		for _, p := range held {
			p.End(usage.Usage{})
		}
		wg.Wait()
		if served.Load() != want || gaveUp.Load() != calls-want || peak.Load() > 3 {
			t.Errorf("%d served, %d gave up, at most %d at a time; want %d, %d and at most 3", served.Load(), gaveUp.Load(), peak.Load(), want, calls-want)
		}
		if s := g.Stats(); s.SlotsInUse != 0 || s.Waiting != 0 || g.long.Load() || g.line.Load() {
			t.Errorf("afterwards: %+v", s)
		}
	})
}

func TestAPanicOfTheCallersFunctionReachesTheCallerFromALongLineToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGate(Config{Slots: 1, FlowWeight: func(_, flow string) float64 {
			if flow == "bad" {
				panic("no weight")
			}
			return 1
		}})
		if err != nil {
			t.Fatal(err)
		}
		g.long.Store(true)
		defer func() {
			if r := recover(); r != "no weight" {
				t.Errorf("recovered %v, want the caller's panic", r)
			}
			if s := g.Stats(); s.Running != 0 || s.Waiting != 0 {
				t.Errorf("afterwards: %+v", s)
			}
		}()
		_, _ = g.Acquire(t.Context(), Call{Flow: "bad"})
		t.Error("no panic")
	})
}
