package ratelimited_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/prometheus/client_golang/prometheus"
)

// Many goroutines on few slots, with contexts that end at any moment: every slot
// and every unit comes back, whoever did the work under the lock.
func TestContentionLosesNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t, ratelimited.Config{Slots: 3, Headroom: 1, Profile: window(1 << 40), MaxWaiting: 40})
	var spent [64]int64
	var wg sync.WaitGroup
	for i := range spent {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			for range 300 {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(3) == 0 {
					go cancel()
				}
				p, err := g.Acquire(ctx, ratelimited.Call{Flow: string(rune('a' + i%5)), Usage: input(10)})
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ratelimited.ErrLineFull) {
					t.Error(err)
				}
				if err == nil {
					if rng.IntN(2) == 0 {
						runtime.Gosched()
					}
					if n := rng.Int64N(20); n == 0 {
						p.Release()
					} else {
						p.End(input(n))
						spent[i] += n
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	sum := int64(0)
	for n := range slices.Values(spent[:]) {
		sum += n
	}
	if n := booked(t, g, "tokens"); n != sum {
		t.Errorf("%d tokens on the books, %d were spent", n, sum)
	}
	mustHoldNothing(t, g)
}

// storm is a gate of a random kind, and workers that do all that can be done with
// it at once.
type storm struct {
	gate *ratelimited.Gate
	llm  LLM
	seed uint64
}

func newStorm(t *testing.T, seed uint64) *storm {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := ratelimited.Config{
		Slots: 3, Headroom: 1, Profile: window(1 << 40), MaxWaiting: 300, Logger: quiet(),
		Classes: []ratelimited.Class{
			{Name: "a", Weight: 2, MinSlots: int64(rng.IntN(2))},
			{Name: "b", MaxSlots: int64(rng.IntN(3))},
		},
		PerFlow:    ratelimited.Ceiling{Slots: int64(rng.IntN(2))},
		PerRequest: ratelimited.Ceiling{Slots: int64(2 * rng.IntN(2))},
	}
	if rng.IntN(2) == 0 {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if rng.IntN(3) == 0 {
		cfg.Order = ratelimited.FIFO
	}
	s := &storm{gate: newGate(t, cfg), seed: seed}
	s.llm = wrap(t, &fakeLLM{play: func(_ context.Context, _ int, yield yields) {
		switch rand.IntN(6) {
		case 0:
			yield(nil, throttled(retryInfo("0.001s"), quotaFailure(inputPerMinute)))
		case 1: // it reports more after the end
			_ = yield(part("x"), nil) && yield(final(5, 5), nil) && yield(final(7, 9), nil)
		case 2:
			_ = yield(part("x"), nil) && yield(nil, errBroken)
		case 3:
			yield(nil, overloaded())
		default:
			yield(final(3, 4), nil)
		}
	}}, s.gate)
	return s
}

// context is one that ends in one of many ways.
func (s *storm) context(rng *rand.Rand) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	switch rng.IntN(6) {
	case 0:
		go cancel()
	case 1:
		ctx = ratelimited.WithMaxWait(ctx, time.Duration(rng.IntN(300))*time.Microsecond)
	case 2:
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rng.IntN(500))*time.Microsecond)
	case 3:
		ctx = ratelimited.WithMaxWait(ctx, 0)
	}
	if rng.IntN(2) == 0 {
		ctx = ratelimited.WithClass(ctx, "b")
	}
	ctx = ratelimited.WithFlow(ctx, strconv.Itoa(rng.IntN(6)))
	return ratelimited.WithRequest(ctx, strconv.Itoa(rng.IntN(4))), cancel
}

// call makes a call of the wrapped model, and leaves it in one of many ways.
func (s *storm) call(ctx context.Context, cancel context.CancelFunc, rng *rand.Rand) {
	switch rng.IntN(3) {
	case 0:
		for range s.llm.GenerateContent(ctx, hello(), true) {
			if rng.IntN(4) == 0 {
				break
			}
		}
	case 1:
		next, stop := iter.Pull2(s.llm.GenerateContent(ctx, hello(), true))
		next()
		cancel()
		if rng.IntN(2) == 0 {
			runtime.Gosched()
			next()
		}
		stop()
	default:
		_ = call(ctx, s.llm, hello())
	}
}

// acquire holds a permit by itself, and ends it in one of many ways.
func (s *storm) acquire(t *testing.T, ctx context.Context, rng *rand.Rand) {
	p, err := s.gate.Acquire(ctx, ratelimited.Call{Slots: rng.IntN(3), Usage: input(rng.Int64N(5))})
	if err != nil {
		if !errors.Is(err, ratelimited.ErrWait) && !errors.Is(err, ratelimited.ErrClosed) &&
			!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return
	}
	if rng.IntN(3) == 0 {
		runtime.Gosched()
	}
	switch rng.IntN(5) {
	case 0:
		p.Release()
	case 1:
		p.FreeSlot()
		p.End(input(2))
	case 2:
		p.Counted()
		p.End(input(0))
	case 3:
		go p.End(input(3)) // one of the two is first
	default:
		p.End(input(1))
	}
	p.Release()
}

// Whatever is done with gates of all kinds, at once and in any order: nobody
// waits for ever, and nothing is held at the end.
func TestNothingIsHeldAfterAStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		s := newStorm(t, seed)
		workers, rounds := 24, 40
		if seed%2 == 0 {
			workers, rounds = 200, 6 // a long line
		}
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(i)+10))
				for range rounds {
					ctx, cancel := s.context(rng)
					if rng.IntN(3) == 0 {
						s.call(ctx, cancel, rng)
					} else {
						s.acquire(t, ctx, rng)
					}
					cancel()
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		rng := rand.New(rand.NewPCG(seed, 2))
		for running, until := true, time.Now().Add(time.Minute); running; {
			select {
			case <-done:
				running = false
			default:
				_ = s.gate.SetSlots(int64(1 + rng.IntN(6)))
				_ = s.gate.ExpectedWait(ratelimited.Call{Usage: input(1)})
				if time.Now().After(until) {
					t.Fatalf("storm %d: somebody waits for ever: %+v", seed, s.gate.Stats())
				}
				runtime.Gosched()
			}
		}
		// The ends that run beside the workers may be the last.
		for until := time.Now().Add(time.Minute); s.gate.Alive() > 0 && time.Now().Before(until); {
			runtime.Gosched()
		}
		mustHoldNothing(t, s.gate)
		if t.Failed() {
			t.Fatalf("storm %d", seed)
		}
	}
}
