package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/retry"
)

// Close lets everybody in line and in flight finish, admits nobody new, and
// waits for the settlements.
func TestCloseDrains(t *testing.T) {
	for kind := range ledgers("", 0, 0) {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate(t, ratelimited.Config{Slots: 1})
				l := ledgers("", 0, 0)[kind]
				f := answers(time.Second, final(10, 5))
				llm := wrap(t, f, g, ratelimited.WithBudgets(l))
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if err := call(t.Context(), llm, hello()); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
				closed := make(chan error)
				for range 2 { // by two at once
					go func() { closed <- g.Close(t.Context()) }()
				}
				synctest.Wait()
				mustNotWait(t, call(t.Context(), llm, hello()), ratelimited.ErrClosed)
				_, err := g.Acquire(t.Context(), ratelimited.Call{})
				mustNotWait(t, err, ratelimited.ErrClosed)
				for range 2 {
					if err := <-closed; err != nil {
						t.Errorf("Close: %v", err)
					}
				}
				// At this very moment, without another wait.
				l.mu.Lock()
				if l.held != 0 || l.spent != 45 || len(l.reserved) != 3 {
					t.Errorf("held %d, spent %d, %d reservations; want 0, 45 and 3", l.held, l.spent, len(l.reserved))
				}
				l.mu.Unlock()
				if g.Alive() != 0 {
					t.Errorf("%d calls alive after Close", g.Alive())
				}
				wg.Wait()
				if err := g.Close(t.Context()); err != nil {
					t.Errorf("a second Close: %v", err)
				}
				mustNotWait(t, call(t.Context(), llm, hello()), ratelimited.ErrClosed)
				_, err = g.Acquire(t.Context(), ratelimited.Call{})
				mustNotWait(t, err, ratelimited.ErrClosed)
				mustBeIdle(t, g)
			})
		})
	}
}

// A Close that is not granted the time fails who waits in line, leaves alone
// who is in flight, and can be called again.
func TestCloseThatTimesOutFailsTheLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
		l := &ledger{}
		llm := wrap(t, answers(time.Minute, final(10, 5)), g, ratelimited.WithBudgets(l))
		flying := make(chan error, 1)
		go func() { flying <- call(t.Context(), llm, hello()) }()
		synctest.Wait()
		start := time.Now()
		waiting := make(chan error, 5)
		for range 5 {
			go func() { waiting <- call(t.Context(), llm, hello()) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want the deadline", err)
		}
		for range 5 {
			if e := mustNotWait(t, <-waiting, ratelimited.ErrClosed); e.Waited != 10*time.Second {
				t.Errorf("the error tells of %v in line, want 10s", e.Waited)
			}
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("the line failed after %v, want 10s", d)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("a Close with time: %v", err)
		}
		select {
		case err := <-flying:
			if err != nil {
				t.Errorf("the call in flight was cut: %v", err)
			}
		default:
			t.Error("Close returned before the call in flight")
		}
		l.expect(t, 0, 15)
		mustBeIdle(t, g)
	})
}

// A call that is refused by the provider after Close gave up waiting does not
// wait in line for another attempt: there is no line any more.
func TestNobodyWaitsAfterCloseGaveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini})
		f := &fakeLLM{play: func(ctx context.Context, n int, yield yields) {
			_ = wait(ctx, 20*time.Second)
			yield(nil, throttled(retryInfo("30s")))
		}}
		l := &ledger{}
		errs := make(chan error, 1)
		start := time.Now()
		go func() { errs <- call(t.Context(), wrap(t, f, g, ratelimited.WithBudgets(l)), hello()) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = g.Close(ctx)
		mustNotWait(t, <-errs, ratelimited.ErrClosed)
		if d := time.Since(start); d != 20*time.Second {
			t.Errorf("failed after %v, want at its refusal", d)
		}
		l.expect(t, 0, 0)
		mustBeIdle(t, g)
	})
}

// Calls in backoff are drained as well: what Close waits for is their end.
func TestCloseWaitsForBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Profile: gemini, Retry: retry.Policy{MaxHint: time.Hour}})
		llm := wrap(t, refusesFirst(1, throttled(retryInfo("1800s"))), g)
		errs := make(chan error, 1)
		go func() { errs <- call(t.Context(), llm, hello()) }()
		synctest.Wait()
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		mustBeIdle(t, g)
	})
}

// A call whose answer is complete but whose usage is not known yet still holds
// its estimate: Close waits for it, too.
func TestCloseWaitsForUsageThatIsStillToCome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1, Headroom: 1, Profile: window(1000)})
		done := final(0, 0)
		done.UsageMetadata = nil
		llm := wrap(t, answers(0, done, &LLMResponse{UsageMetadata: used(50, 7)}), g)
		go func() {
			for range llm.GenerateContent(t.Context(), hello(), true) {
				time.Sleep(5 * time.Second) // a tool runs
			}
		}()
		synctest.Wait()
		start := time.Now()
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d, n := time.Since(start), booked(t, g, "tokens"); d != 10*time.Second || n != 50 {
			t.Errorf("Close took %v and left %d tokens on the books, want 10s and 50", d, n)
		}
	})
}

// Close waits for the settlements of a slow store, as long as it is granted.
func TestCloseFlushesASlowStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGate(t, ratelimited.Config{Slots: 1})
		l := &ledger{delay: 5 * time.Second}
		llm := wrap(t, answers(0, final(10, 5)), g, ratelimited.WithBudgets(l))
		start := time.Now()
		for range 20 {
			if err := call(t.Context(), llm, hello()); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("twenty calls took %v, want nothing: their end must not wait for the store", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want the deadline", err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held != 0 || l.spent != 300 {
			t.Errorf("held %d, spent %d; want 0 and 300", l.held, l.spent)
		}
		if d := time.Since(start); d != 15*time.Second {
			t.Errorf("twenty settlements of 5s, eight at a time, took %v, want 15s", d)
		}
	})
}
