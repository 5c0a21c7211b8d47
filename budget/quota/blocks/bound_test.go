package blocks_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// A burst has much leased; after it calls are rare, but not as rare as Idle.
func TestATrickleDoesNotKeepWhatABurstHasLeased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, blocks.Config{Idle: 10 * time.Second})
		l := w.replicas[0]
		for range 1000 { // a thousand a second
			w.settle(l, w.take(l, w.hold(100, 100_000_000)), 100)
			time.Sleep(time.Millisecond)
		}
		for range 60 {
			time.Sleep(5 * time.Second)
			w.settle(l, w.take(l, w.hold(100, 100_000_000)), 100)
		}
		synctest.Wait()
		if idle := l.Stats().Idle[quota.Tokens]; idle > 202 { // two blocks, of which each is rounded up
			t.Errorf("%d lie idle, and a call takes 100", idle)
		}
	})
}

// sizes sees how large the blocks are that a replica asks for.
type sizes struct {
	quota.Ledger

	mu   sync.Mutex
	most int64 // guarded by mu
}

func (s *sizes) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	s.mu.Lock()
	s.most = max(s.most, r.Entries[0].Amount)
	s.mu.Unlock()
	return s.Ledger.Reserve(ctx, r)
}

// Whatever calls do, what lies idle with a replica is at most two blocks, and what was
// given back within the last Idle.
func TestTwoBlocksLieIdleAtMost(t *testing.T) {
	bubbles(t, func(t *testing.T, rt *rapid.T) {
		w := newWorld(t, 1, blocks.Config{})
		idle := time.Duration(rapid.IntRange(1, 12).Draw(rt, "idle")) * 500 * time.Millisecond
		s := &sizes{Ledger: w.ledger}
		l, err := blocks.New(s, blocks.Config{
			Idle: idle, Share: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "share"), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close(context.Background())
		type gift struct {
			at time.Time
			n  int64
		}
		var given []gift
		for range rapid.IntRange(1, 30).Draw(rt, "phases") {
			every := time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond
			amount := rapid.Int64Range(1, 1000).Draw(rt, "amount")
			used := rapid.Int64Range(0, amount).Draw(rt, "used")
			for range rapid.IntRange(1, 40).Draw(rt, "calls") {
				id := w.take(l, w.hold(amount, 10_000_000))
				pass(every / 2)
				w.settle(l, id, used)
				given = append(given, gift{time.Now(), amount - used})
				pass(every / 2)
				back := int64(0)
				for _, g := range given {
					if time.Since(g.at) <= idle+idle/2 {
						back += g.n
					}
				}
				s.mu.Lock()
				most := s.most
				s.mu.Unlock()
				if n := l.Stats().Idle[quota.Tokens]; n > 2*most+back {
					rt.Fatalf("%d lie idle, more than two blocks of %d and %d given back", n, most, back)
				}
			}
		}
	})
}
