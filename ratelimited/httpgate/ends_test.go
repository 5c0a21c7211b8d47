package httpgate_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// However a call ends, its slot is back at once, and once: the next call is
// admitted, and no slot is minted. A width of 1 shows either.
func TestSlotComesBackOnceHoweverACallEnds(t *testing.T) {
	t.Parallel()
	for _, v := range vendors() {
		stream := func(_ int, w http.ResponseWriter, r *http.Request) {
			sendEvents(w, r, 10*time.Millisecond, append([]string{v.part("a"), v.part("b")}, v.last(5, 3)...)...)
		}
		ends := map[string]struct {
			play func(int, http.ResponseWriter, *http.Request)
			use  func(t *testing.T, rt http.RoundTripper)
		}{
			"reader stops after the first event": {stream, func(t *testing.T, rt http.RoundTripper) {
				if err := v.stream(t.Context(), rt, func(string) bool { return false }); err != nil {
					t.Error(err)
				}
			}},
			"context is cancelled after the first event": {stream, func(t *testing.T, rt http.RoundTripper) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := v.stream(ctx, rt, func(string) bool { cancel(); return true })
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want the cancellation", err)
				}
			}},
			"provider fails at the second event": {func(_ int, w http.ResponseWriter, r *http.Request) {
				sendEvents(w, r, time.Millisecond, v.part("a"), v.fail())
			}, func(t *testing.T, rt http.RoundTripper) {
				if _, err := v.collect(t.Context(), rt); err == nil {
					t.Error("the error within the answer did not reach the client")
				}
			}},
			"connection breaks": {func(_ int, w http.ResponseWriter, r *http.Request) {
				sendEvents(w, r, time.Millisecond, v.part("a"))
				panic(http.ErrAbortHandler)
			}, func(t *testing.T, rt http.RoundTripper) {
				if _, err := v.collect(t.Context(), rt); err == nil {
					t.Error("the broken connection did not reach the client")
				}
			}},
			"reader panics": {stream, func(t *testing.T, rt http.RoundTripper) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel() // as its request would end
				defer func() {
					if recover() != "mine" {
						t.Error("the reader's panic did not pass")
					}
				}()
				_ = v.stream(ctx, rt, func(string) bool { panic("mine") })
			}},
			"normal end and cancel together": {stream, func(t *testing.T, rt http.RoundTripper) {
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := v.collect(ctx, rt); err != nil {
					t.Error(err)
				}
				cancel()
			}},
			"in one piece": {func(_ int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Write([]byte(v.answer("hi", 5, 3)))
			}, func(t *testing.T, rt http.RoundTripper) {
				if text, err := v.unary(t.Context(), rt); err != nil || text != "hi" {
					t.Errorf("got %q, %v", text, err)
				}
			}},
			"refused": {func(_ int, w http.ResponseWriter, r *http.Request) { v.refuse(w, 400, "") }, func(t *testing.T, rt http.RoundTripper) {
				if _, err := v.unary(t.Context(), rt); err == nil {
					t.Error("the refusal did not reach the client")
				}
			}},
		}
		for name, end := range ends {
			t.Run(v.name+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					g := newGate(t, ratelimited.Config{Slots: 1})
					p := newProvider(t, end.play)
					defer p.Close()
					rt := newTransport(t, p.base(), g, httpgate.Config{})
					for range 20 {
						end.use(t, rt)
						synctest.Wait()
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						permit, err := g.Acquire(ctx, ratelimited.Call{})
						if err != nil {
							t.Fatalf("the next call was not admitted: %v", err)
						}
						permit.Release()
						cancel()
					}
					mustBeIdle(t, g)

					p.set(stream)
					for range 2 {
						go v.collect(t.Context(), rt)
					}
					synctest.Wait()
					if s := g.Stats(); s.SlotsInUse != 1 || s.Waiting != 1 {
						t.Errorf("two calls at width 1: %d slots in use, %d waiting; want 1 and 1", s.SlotsInUse, s.Waiting)
					}
					time.Sleep(time.Second)
					mustBeIdle(t, g)
				})
			})
		}
	}
}
