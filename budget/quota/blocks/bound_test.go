package blocks_test

import (
	"testing"
	"testing/synctest"
	"time"

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
