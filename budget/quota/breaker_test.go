package quota_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// hanging has the store hang and fail.
func hanging(s *store, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// An outage in which nothing answers costs the first callers the time of an
// operation each, and the others hardly any.
func TestAnOutageIsCheap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(quota.Limit{
			Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000_000}, Failure: quota.Open,
		}), s.over(nil))
		hanging(s, time.Hour)
		slow := 0
		start := time.Now()
		for range 200 { // 20 s of calls
			begin := time.Now()
			w.reserve(as("ann"), tokens(1))
			if time.Since(begin) > 10*time.Millisecond {
				slow++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if slow < 5 || slow > 5+4 {
			t.Errorf("%d of 200 calls waited for the store, want 5, and then those that try it after 1, 2, 4 and 8 s", slow)
		}
		if d := time.Since(start); d > 25*time.Second {
			t.Errorf("200 calls took %v", d)
		}

		hanging(s, 0)
		time.Sleep(8 * time.Second)
		synctest.Wait() // what was left over may try the store at this very moment
		before := s.called("reserve")
		for range 5 {
			w.reserve(as("ann"), tokens(1))
		}
		if n := s.called("reserve") - before; n != 5 {
			t.Errorf("the store is back, and %d of 5 calls asked it", n)
		}
	})
}

// Many that fail at the same time are one outage, not many.
func TestManyFailuresAtOnceDoNotLengthenThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(quota.Limit{
			Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000_000}, Failure: quota.Open,
		}), s.over(nil))
		hanging(s, time.Hour)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { w.reserve(as("ann"), tokens(1)) })
		}
		all.Wait()
		hanging(s, 0)
		before := s.called("reserve")
		w.reserve(as("ann"), tokens(1))
		if s.called("reserve") != before {
			t.Error("it was asked at once")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for range 3 {
			w.reserve(as("ann"), tokens(1))
		}
		if n := s.called("reserve") - before; n != 3 {
			t.Errorf("a second later %d of 3 calls asked the store", n)
		}
	})
}

// One that tries is one, however many ask, and whatever becomes of it.
func TestOneOperationAtATimeTriesTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(quota.Limit{
			Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000_000}, Failure: quota.Open,
		}), s.over(nil))
		s.set(down)
		for range 5 {
			w.reserve(as("ann"), tokens(1))
		}
		hanging(s, 300*time.Millisecond)
		before := s.called("reserve") + s.called("release") // those that gave up are given back
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { w.reserve(as("ann"), tokens(1)) })
		}
		all.Wait()
		synctest.Wait() // the one may be what was left over
		if n := s.called("reserve") + s.called("release") - before; n != 1 {
			t.Errorf("%d of 20 calls tried the store", n)
		}
	})
}

// Whoever tries the store and gives up says nothing about it: the next one tries.
func TestATrialThatIsGivenUpIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(quota.Limit{
			Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1_000_000}, Failure: quota.Open,
		}), s.over(nil))
		r := w.reserve(as("ann"), tokens(1))
		s.set(down)
		for range 5 { // each settles in vain, and nothing is to be given back
			if err := r.Settle(as("ann"), tokens(1)); err != nil {
				t.Fatal(err)
			}
			r = w.reserve(as("ann"), tokens(1))
		}
		s.set(nil)
		hanging(s, 300*time.Millisecond)
		tried := 0
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			short, cancel := context.WithTimeout(as("ann"), 100*time.Millisecond)
			if _, err := w.try(short, tokens(1)); errors.Is(err, context.DeadlineExceeded) {
				tried++
			}
			cancel()
		}
		if tried < 10 {
			t.Errorf("%d of 100 callers that gave up had tried the store", tried)
		}
		hanging(s, 0)
		time.Sleep(8 * time.Second)
		synctest.Wait() // what was left over may try the store at this very moment
		before := s.called("reserve")
		for range 3 {
			w.reserve(as("ann"), tokens(1))
		}
		if n := s.called("reserve") - before; n != 3 {
			t.Errorf("%d of 3 calls asked the store after somebody had given up", n)
		}
	})
}

// A part of the store that is gone does not take the rest with it.
func TestABreakerStaysClosedWhileSomethingWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, threeScopes(quota.Open, quota.Open, quota.Open), s.over(nil))
		s.set(func(_, tree string) error {
			if tree == "global" {
				return errStoreDown
			}
			return nil
		})
		for range 20 {
			w.settle(w.reserve(as("ann"), tokens(10)), tokens(10))
		}
		w.stands(as("ann"), "user", quota.Tokens, 200, 0)
	})
}

func TestReadyIsWhatTheFailurePoliciesLetPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		policy   quota.FailurePolicy
		mode     quota.Mode
		down     bool
		unserved bool
	}{
		{"store up", quota.Closed, quota.Enforce, false, false},
		{"open", quota.Open, quota.Enforce, true, false},
		{"closed", quota.Closed, quota.Enforce, true, true},
		{"auto, enforced", quota.Auto, quota.Enforce, true, true},
		{"auto, observed", quota.Auto, quota.Observe, true, false},
		{"closed, but only observed", quota.Closed, quota.Observe, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				w := newWorld(t, limitsOf(quota.Limit{
					Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}, Failure: c.policy, Mode: c.mode,
				}), s.over(nil))
				s.mu.Lock()
				s.sick = c.down
				s.mu.Unlock()
				if c.down {
					s.set(down)
				}
				if err := w.Ready(t.Context()); (err != nil) != c.unserved {
					t.Errorf("ready: %v", err)
				}
				_, err := w.try(as("ann"), tokens(1))
				if (err != nil) != c.unserved {
					t.Errorf("and a call: %v", err)
				}
				if err := w.Healthy(t.Context()); (err != nil) != c.down {
					t.Errorf("healthy: %v", err)
				}
				if err := w.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if w.Ready(t.Context()) == nil {
					t.Error("ready though closed")
				}
			})
		})
	}
}

// A client that gives up at the deadline of an operation may do so a moment before its
// context ends. That is the store's fault all the same.
func TestAnOutageIsCheapWhereTheClientWatchesTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1000)), s.over(nil))
		s.set(func(string, string) error { return context.DeadlineExceeded })
		for range 20 {
			if d := w.denied(as("ann"), tokens(1)); d.Reason != quota.ReasonUnavailable || !errors.Is(d, quota.ErrUnavailable) {
				t.Fatalf("got %v", d)
			}
		}
		if n := s.called("reserve"); n != 5 {
			t.Errorf("20 calls asked the store %d times, want 5", n)
		}
	})
}

// lapsing is a context whose deadline has passed, and that has not ended yet.
type lapsing struct{ context.Context }

func (lapsing) Deadline() (time.Time, bool) { return time.Now(), true }

// The same where it is the deadline of a caller, which is no fault of the store.
func TestACallersDeadlineIsNoOutageAMomentBeforeItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		var log bytes.Buffer
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1000)), s.over(nil), func(cfg *quota.Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		s.set(func(string, string) error { return context.DeadlineExceeded })
		for range 20 {
			if _, err := w.try(lapsing{as("ann")}, tokens(1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
		}
		s.set(nil)
		w.reserve(as("ann"), tokens(1))
		if strings.Contains(log.String(), "cannot be reached") {
			t.Errorf("it was told as an outage:\n%s", &log)
		}
	})
}
