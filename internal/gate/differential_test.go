package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
)

// With one flow and no limits but the slots, the Core is a weighted semaphore:
// on any trace of acquire, release and cancel the same calls hold it after every
// step.
func TestOneFlowIsServedInTheOrderOfAWeightedSemaphore(t *testing.T) {
	t.Parallel()
	traces := 300
	if testing.Short() {
		traces = 50
	}
	for seed := range traces {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 2))
			size := 1 + r.Int64N(8)
			opponent := newOpponent(size)
			s := newScene(t, Config{Slots: size})
			for step := range 80 {
				what := ""
				switch names := slices.Sorted(opponent.known()); {
				case len(names) == 0 || r.IntN(5) < 2:
					what = fmt.Sprint("call ", step)
					n := 1 + r.Int64N(size)
					opponent.acquire(t, what, n)
					s.ask(what, Spec{Slots: int32(n)})
				default:
					what = names[r.IntN(len(names))]
					opponent.leave(what)
					s.done(what) // ends it, or takes it out of the line
					delete(s.ids, what)
				}
				synctest.Wait()
				for name := range s.ids {
					if got, want := s.id(name).running() != nil, opponent.calls[name].held.Load(); got != want {
						t.Fatalf("seed %d, after step %d (%s): %s runs: %v, with a semaphore: %v", seed, step, what, name, got, want)
					}
				}
			}
			for _, name := range slices.Sorted(opponent.known()) {
				opponent.leave(name)
				s.done(name)
			}
			s.wantEmpty()
		})
	}
}

// opponent is a real semaphore with one goroutine for every call that waits.
type opponent struct {
	sem   *semaphore.Weighted
	calls map[string]*holder
}

type holder struct {
	n      int64
	held   atomic.Bool
	cancel context.CancelFunc
	done   chan struct{}
}

func newOpponent(size int64) *opponent {
	return &opponent{sem: semaphore.NewWeighted(size), calls: make(map[string]*holder)}
}

func (o *opponent) known() func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range o.calls {
			if !yield(name) {
				return
			}
		}
	}
}

func (o *opponent) acquire(t *testing.T, name string, n int64) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	h := &holder{n: n, cancel: cancel, done: make(chan struct{})}
	o.calls[name] = h
	go func() {
		defer close(h.done)
		h.held.Store(o.sem.Acquire(ctx, n) == nil)
	}()
	synctest.Wait()
}

// leave releases what a call holds, or cancels its wait.
func (o *opponent) leave(name string) {
	h := o.calls[name]
	delete(o.calls, name)
	if !h.held.Load() {
		h.cancel()
		<-h.done
		return
	}
	<-h.done
	h.cancel()
	o.sem.Release(h.n)
}
