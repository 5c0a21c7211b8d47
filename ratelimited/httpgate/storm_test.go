package httpgate_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// Many calls at once, refused, broken, cancelled, closed early, closed twice and
// by another goroutine than the one that reads, leave nothing behind, and never
// is more in flight than there are slots.
func TestNothingIsHeldAfterAStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := geminiVendor()
		cfg := tokens(1 << 40)
		cfg.Slots = 8
		g := newGate(t, cfg)
		l := &ledger{}
		p := newProvider(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if most := g.Stats(); most.SlotsInUse > 8 {
				t.Errorf("%d slots in use of 8", most.SlotsInUse)
			}
			rnd := rand.New(rand.NewPCG(uint64(n), 7))
			wait(r.Context(), upTo(rnd, 50*time.Millisecond))
			switch rnd.IntN(6) {
			case 0:
				v.refuse(w, 429, "")
			case 1:
				v.refuse(w, 400, "")
			case 2:
				sendEvents(w, r, upTo(rnd, 20*time.Millisecond), v.part("a"), v.fail())
			case 3:
				sendEvents(w, r, upTo(rnd, 20*time.Millisecond), v.part("a"))
				panic(http.ErrAbortHandler)
			default:
				sendEvents(w, r, upTo(rnd, 20*time.Millisecond), append([]string{v.part("a"), v.part("b")}, v.last(5, 3)...)...)
			}
		})
		defer p.Close()
		rt := newTransport(t, p.base(), g, httpgate.Config{Budgets: []budget.Budget{l}})
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 3))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if rnd.IntN(3) == 0 {
					time.AfterFunc(upTo(rnd, 3*time.Second), cancel)
				}
				resp, err := rt.RoundTrip(requestFor(t, ctx, v))
				if err != nil {
					return
				}
				switch rnd.IntN(4) {
				case 0:
					_, _ = resp.Body.Read(make([]byte, 100))
				case 1:
					after := upTo(rnd, 40*time.Millisecond)
					wg.Go(func() {
						wait(ctx, after)
						_ = resp.Body.Close()
					})
					_, _ = io.Copy(io.Discard, resp.Body)
				case 2:
					wait(ctx, upTo(rnd, 100*time.Millisecond))
				default:
					_, _ = io.Copy(io.Discard, resp.Body)
				}
				if rnd.IntN(4) > 0 {
					_ = resp.Body.Close()
				} // else the end of the context is the call's
			})
		}
		wg.Wait()
		mustBeIdle(t, g)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held != 0 || l.settled != len(l.calls) || len(l.calls) < 200 {
			t.Errorf("%d tokens held; %d of %d reservations were closed", l.held, l.settled, len(l.calls))
		}
	})
}

// upTo is a random time below d.
func upTo(rnd *rand.Rand, d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }
