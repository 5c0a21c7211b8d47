package quota_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// store is a ledger that is elsewhere: it can break.
type store struct {
	quota.Ledger
	mu sync.Mutex
	// mu guards all that follows.
	broken func(op, tree string) error // nil is in order
	slow   time.Duration               // how long each operation takes; it ends with its context
	sick   bool                        // and it says so when it is asked
	lose   bool                        // operations are done, but their replies are lost
	calls  map[string]int
	told   []quota.Settle // that were tried
}

func newStore(t testing.TB) *store {
	t.Helper()
	m, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return &store{Ledger: m, calls: map[string]int{}}
}

var errStoreDown = fmt.Errorf("dial tcp 10.0.0.7:6379: connection refused: %w", quota.ErrUnavailable)

// set breaks the store, or mends it.
func (s *store) set(broken func(op, tree string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

func down(string, string) error { return errStoreDown }

func (s *store) before(ctx context.Context, op, tree string) (lost bool, err error) {
	s.mu.Lock()
	s.calls[op]++
	broken, slow, lose := s.broken, s.slow, s.lose
	s.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if broken != nil {
		err = broken(op, tree)
	}
	return lose && err != nil, err
}

func (s *store) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *store) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	lost, err := s.before(ctx, "reserve", r.Tree)
	if err != nil && !lost {
		return quota.Reserved{}, err
	}
	res, own := s.Ledger.Reserve(ctx, r)
	return res, errors.Join(err, own)
}

func (s *store) Settle(ctx context.Context, st quota.Settle) (quota.Settled, error) {
	lost, err := s.before(ctx, "settle", st.Tree)
	s.mu.Lock()
	s.told = append(s.told, st)
	s.mu.Unlock()
	if err != nil && !lost {
		return quota.Settled{}, err
	}
	res, own := s.Ledger.Settle(ctx, st)
	return res, errors.Join(err, own)
}

func (s *store) Release(ctx context.Context, tree, id string) error {
	lost, err := s.before(ctx, "release", tree)
	if err != nil && !lost {
		return err
	}
	return errors.Join(err, s.Ledger.Release(ctx, tree, id))
}

func (s *store) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) ([]string, error) {
	if _, err := s.before(ctx, "renew", tree); err != nil {
		return nil, err
	}
	return s.Ledger.Renew(ctx, tree, ttl, ids...)
}

func (s *store) Healthy(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick {
		return errStoreDown
	}
	return nil
}

// over puts an enforcer over the store, and its log into a buffer.
func (s *store) over(log *bytes.Buffer) func(*quota.Config) {
	return func(c *quota.Config) {
		c.Ledger = s
		if log != nil {
			c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		}
	}
}

// threeScopes are limits of a user, a tenant and everybody, of which each can have a
// failure policy of its own.
func threeScopes(user, tenant, global quota.FailurePolicy) quota.LimitsConfig {
	limit := func(name string, scope quota.Scope, p quota.FailurePolicy) quota.Limit {
		return quota.Limit{Name: name, Scope: scope, Window: quota.Day, Max: quota.Max{quota.Tokens: 10_000}, Failure: p}
	}
	return quota.LimitsConfig{Limits: []quota.Limit{
		limit("user", quota.User, user), limit("tenant", quota.Tenant, tenant), limit("global", quota.Global, global),
	}}
}

func TestFailurePoliciesDecideWhileTheLedgerCannotBeReached(t *testing.T) {
	t.Parallel()
	globalDown := func(op, tree string) error {
		if tree == "global" {
			return errStoreDown
		}
		return nil
	}
	const auto, open, closed = quota.Auto, quota.Open, quota.Closed
	for _, c := range []struct {
		name                 string
		user, tenant, global quota.FailurePolicy
		mode                 quota.Mode
		broken               func(op, tree string) error
		slow                 time.Duration
		refusedBy            string // the limit; "" passes
	}{
		{"all closed, all down", closed, closed, closed, 0, down, 0, "user"},
		{"auto is closed where limits are enforced", auto, auto, auto, 0, down, 0, "user"},
		{"auto is open where they are observed", auto, auto, auto, quota.Observe, down, 0, ""},
		{"what is closed refuses nothing while it is only observed", closed, closed, closed, quota.Observe, down, 0, ""},
		{"one closed limit suffices", open, closed, open, 0, down, 0, "tenant"},
		{"all open", open, open, open, 0, down, 0, ""},
		{"one of three scopes is down and closed", open, open, closed, 0, globalDown, 0, "global"},
		{"one of three scopes is down and open", closed, closed, open, 0, globalDown, 0, ""},
		{"too slow and closed", closed, open, open, 0, nil, time.Minute, "user"},
		{"too slow and open", open, open, open, 0, nil, time.Minute, ""},
		{"slow, but within the time", closed, closed, closed, 0, nil, 400 * time.Millisecond, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				limits := threeScopes(c.user, c.tenant, c.global)
				limits.Mode = c.mode
				w := newWorld(t, limits, s.over(nil))
				s.broken, s.slow = c.broken, c.slow
				begin := time.Now()
				r, err := w.try(as("ann"), tokens(100))
				if took := time.Since(begin); took > 2*quota.DefaultLedgerTimeout+time.Second/2 {
					t.Errorf("it took %v", took)
				}
				if c.refusedBy == "" {
					if err != nil {
						t.Fatalf("it was refused: %v", err)
					}
					return
				}
				d := asDenial(t, r, err)
				if d.Reason != quota.ReasonUnavailable || d.Limit != c.refusedBy || !errors.Is(err, quota.ErrUnavailable) {
					t.Errorf("got %v, want unavailable by limit %q", d, c.refusedBy)
				}
				if turn, err := w.Admit(as("ann")); err != nil || turn.Denied() == nil || turn.Denied().Reason != quota.ReasonUnavailable {
					t.Errorf("a turn: %v, %v", turn, err)
				}
				s.mu.Lock()
				s.broken, s.slow = nil, 0
				s.mu.Unlock()
				time.Sleep(time.Minute)
				for _, limit := range []string{"user", "tenant", "global"} {
					w.stands(as("ann"), limit, quota.Tokens, 0, 0) // nothing is half reserved
				}
			})
		})
	}
}

func TestAReplyThatIsLostLeavesNoHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, threeScopes(quota.Closed, quota.Closed, quota.Closed), s.over(nil))
		s.broken = func(op, tree string) error {
			if op == "reserve" && tree == "global" {
				return errStoreDown
			}
			return nil
		}
		s.lose = true
		if d := w.denied(as("ann"), tokens(100)); d.Reason != quota.ReasonUnavailable {
			t.Error(d)
		}
		w.stands(as("ann"), "user", quota.Tokens, 0, 0)
		w.stands(as("ann"), "global", quota.Tokens, 0, 100) // nobody knows of it
		time.Sleep(2 * time.Second)
		w.stands(as("ann"), "global", quota.Tokens, 0, 0)
	})
}

func TestAnOutageAtSettlementLosesNothingAndKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, threeScopes(quota.Closed, quota.Closed, quota.Closed), s.over(nil))
		first, second := w.reserve(as("ann"), tokens(100)), w.reserve(as("ann"), tokens(200))
		s.set(down)
		w.settle(first, tokens(70))
		if err := second.Release(context.Background()); err != nil {
			t.Error(err)
		}
		w.settle(first, tokens(9_999)) // the first one counts
		if err := first.(budget.Adjuster).Adjust(context.Background(), usage.Usage{Output: 80}); err != nil {
			t.Error(err)
		}
		time.Sleep(25 * time.Minute) // longer than the holds live without being renewed
		s.set(func(op, _ string) error {
			if op == "settle" || op == "release" {
				return errStoreDown
			}
			return nil
		})
		w.stands(as("ann"), "user", quota.Tokens, 0, 0) // they have lapsed: nobody could renew them
		s.set(nil)
		time.Sleep(time.Minute)
		for _, limit := range []string{"user", "tenant", "global"} {
			w.stands(as("ann"), limit, quota.Tokens, 80, 0) // and are charged all the same
		}
	})
}

func TestAHoldWhoseSettlementWaitsIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		var lapsed atomic.Int64
		w := newWorld(t, threeScopes(quota.Closed, quota.Closed, quota.Closed), s.over(nil), func(cfg *quota.Config) {
			cfg.Hooks.Lapsed = func(n int) { lapsed.Add(int64(n)) }
		})
		r := w.reserve(as("ann"), tokens(100))
		s.set(func(op, _ string) error {
			if op == "settle" {
				return errStoreDown
			}
			return nil
		})
		w.settle(r, tokens(70))
		time.Sleep(45 * time.Minute)
		w.stands(as("ann"), "user", quota.Tokens, 0, 100)
		s.set(nil)
		time.Sleep(time.Minute)
		w.stands(as("ann"), "user", quota.Tokens, 70, 0)

		renewed := s.called("renew") // and nobody is asked to renew what has ended
		time.Sleep(12 * time.Minute)
		if n := s.called("renew") - renewed; n != 0 || lapsed.Load() != 0 {
			t.Errorf("what was settled was renewed %d times, and %d are said to have lapsed", n, lapsed.Load())
		}
	})
}

func TestWhatTheLedgerIsToldLateItIsToldInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000)), s.over(nil))
		r := w.reserve(as("ann"), tokens(100))
		s.set(down)
		w.settle(r, tokens(70))
		s.set(nil)
		if err := r.(budget.Adjuster).Adjust(context.Background(), usage.Usage{Output: 80}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		var got []string
		for _, st := range s.told {
			got = append(got, fmt.Sprint(st.Actual[quota.Tokens], st.Adjust))
		}
		if want := "[70 false 70 false 80 true]"; fmt.Sprint(got) != want {
			t.Errorf("it was told %v, want %v", got, want)
		}
	})
}

func TestAnOutageIsToldOnceAtItsBeginningAndOnceAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := newStore(t), &bytes.Buffer{}
		var mu sync.Mutex
		var outages []bool
		w := newWorld(t, threeScopes(quota.Open, quota.Open, quota.Open), s.over(log), func(c *quota.Config) {
			c.Hooks.Outage = func(began bool) { mu.Lock(); outages = append(outages, began); mu.Unlock() }
		})
		w.call(as("ann"), tokens(1))
		s.set(down)
		for range 5 {
			w.reserve(as("ann"), tokens(1))
			time.Sleep(time.Second)
		}
		s.set(func(op, tree string) error { // it works now and then
			if tree == "global" {
				return errStoreDown
			}
			return nil
		})
		for range 5 {
			w.reserve(as("ann"), tokens(1))
			time.Sleep(time.Second / 2)
		}
		s.set(nil)
		time.Sleep(time.Minute)
		for range 5 {
			w.call(as("ann"), tokens(1))
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(outages); got != "[true false]" {
			t.Errorf("told %s", got)
		}
		begun, ended := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO")
		if begun != 1 || ended != 1 {
			t.Errorf("logged %d beginnings and %d ends:\n%s", begun, ended, log)
		}
	})
}

func TestOpenLimitsLetALocalBucketPassDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		limits := quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "rate", Scope: quota.User, Window: aMinute, Max: quota.Max{quota.Tokens: 600}, Failure: quota.Open},
			{Name: "month", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Tokens: 20_000}, Failure: quota.Open},
		}}
		w := newWorld(t, limits, s.over(nil))
		s.set(down)
		for range 6 {
			w.reserve(as("ann"), tokens(100))
		}
		d := w.denied(as("ann"), tokens(100))
		if d.Reason != quota.ReasonRate || d.Limit != "rate" || d.RetryAfter != 10*time.Second {
			t.Errorf("a seventh call: %v", d)
		}
		time.Sleep(10 * time.Second)
		w.reserve(as("ann"), tokens(100))
		for _, user := range []string{"bob", "eve"} { // a tenth of the month's limit is 2,000
			for range 6 {
				w.reserve(as(user), tokens(100))
			}
		}
		w.reserve(as("joe"), tokens(100))
		if d := w.denied(as("joe"), tokens(100)); d.Limit != "month" {
			t.Errorf("beyond a tenth of the month: %v", d)
		}
	})
}

func TestWhatPassedDuringAnOutageIsBookedAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, threeScopes(quota.Open, quota.Open, quota.Open), s.over(nil))
		s.set(down)
		during, across := w.reserve(as("ann"), tokens(100)), w.reserve(as("ann"), tokens(200))
		w.settle(during, tokens(90))
		s.set(nil)
		w.settle(across, tokens(150))
		time.Sleep(time.Minute)
		for _, limit := range []string{"user", "tenant", "global"} {
			w.stands(as("ann"), limit, quota.Tokens, 240, 0)
		}
		w.decisionsAre(t, "unchecked", "unchecked")
	})
}

// decisionsAre checks the outcomes of all checks so far.
func (w *world) decisionsAre(t *testing.T, want ...quota.Outcome) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []quota.Outcome
	for _, d := range w.decisions {
		got = append(got, d.Outcome)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("decided %v, want %v", got, want)
	}
}

func TestClosingTellsTheLedgerWhatIsLeftOrSaysHowMuchIsLost(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(t)
			w := newWorld(t, threeScopes(quota.Closed, quota.Closed, quota.Closed), s.over(nil))
			r := w.reserve(as("ann"), tokens(100))
			s.set(down)
			w.settle(r, tokens(60))
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if back {
				time.AfterFunc(5*time.Second, func() { s.set(nil) })
			}
			err := w.Close(ctx)
			if back {
				if err != nil {
					t.Error(err)
				}
				w.stands(as("ann"), "user", quota.Tokens, 60, 0)
			} else if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 operations") {
				t.Errorf("got %v, want the number of operations that are lost", err) // one for each tree
			}
			if d := w.denied(as("ann"), tokens(1)); d.Reason != quota.ReasonClosed {
				t.Errorf("after Close: %v", d)
			}
			if d := w.refused(as("ann")); d.Reason != quota.ReasonClosed {
				t.Errorf("after Close: %v", d)
			}
		})
	}
}

func TestACallerThatIsGoneHoldsNothingInAnyPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, threeScopes(quota.Closed, quota.Closed, quota.Closed), s.over(nil))
		ctx, cancel := context.WithCancel(as("ann"))
		s.set(func(op, tree string) error {
			if tree == string(quota.Global) && op == "reserve" { // what is elsewhere was reserved before
				cancel()
				return context.Canceled
			}
			return nil
		})
		if _, err := w.try(ctx, tokens(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("a call: %v", err)
		}
		s.set(nil)
		for _, limit := range []string{"user", "tenant", "global"} {
			w.stands(as("ann"), limit, quota.Tokens, 0, 0)
		}
	})
}

func TestTheEndOfTheCallersContextIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		var outages atomic.Int64
		w := newWorld(t, threeScopes(quota.Open, quota.Open, quota.Open), s.over(nil), func(c *quota.Config) {
			c.Hooks.Outage = func(bool) { outages.Add(1) }
		})
		s.slow = 400 * time.Millisecond
		ctx, cancel := context.WithTimeout(as("ann"), 100*time.Millisecond)
		defer cancel()
		if _, err := w.try(ctx, tokens(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call: %v", err)
		}
		if _, err := w.Admit(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a turn: %v", err)
		}
		time.Sleep(time.Minute)
		if outages.Load() != 0 {
			t.Error("an outage was told")
		}
	})
}

func TestLimitsThatCannotBeLookedUpRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the contracts are not there")
		for _, mode := range []quota.Mode{quota.Enforce, quota.Observe, quota.Off} {
			w := newWorld(t, quota.LimitsConfig{}, func(c *quota.Config) {
				c.Mode = mode
				c.Limits = quota.LimitResolverFunc(func(context.Context, quota.Subject) ([]quota.Limit, error) { return nil, broken })
			})
			turn, err := w.Admit(as("ann"))
			if err != nil {
				t.Fatal(err)
			}
			if d := turn.Denied(); (d != nil) != (mode == quota.Enforce) || d != nil && (!errors.Is(d, broken) || !errors.Is(d, quota.ErrUnavailable)) {
				t.Errorf("%v: %v", mode, d)
			}
			turn.End()
		}
	})
}

func TestWhoIsDeniedCostsTheLedgerNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(
			daily("user", quota.User, quota.Turns, 1), daily("global", quota.Global, quota.Turns, 10),
		), s.over(nil))
		w.admit(as("ann")).End()
		before := s.called("reserve")
		w.refused(as("ann"))
		if n := s.called("reserve") - before; n != 1 || s.called("release") != 0 {
			t.Errorf("a denied turn asked the ledger %d times and released %d times, want 1 and 0", n, s.called("release"))
		}
		before = s.called("reserve")
		turn, err := w.Admit(quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme"}))
		if err != nil || turn.Denied() == nil || s.called("reserve") != before {
			t.Errorf("who has no id was asked about %d times: %v", s.called("reserve")-before, turn.Denied())
		}
	})
}

func TestWhatCannotBeRememberedIsSaidToBeLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := newStore(t), &bytes.Buffer{}
		var lost, most atomic.Int64
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000_000)), s.over(log), func(c *quota.Config) {
			c.Hooks.Lost = func() { lost.Add(1) }
			c.Hooks.Queued = func(n int) { most.Store(max(most.Load(), int64(n))) }
		})
		const kept = 1 << 14
		all := make([]budget.Reservation, kept+3)
		for i := range all {
			all[i] = w.reserve(as("ann"), tokens(2))
		}
		s.set(down)
		for i, r := range all {
			if err := r.Settle(context.Background(), usage.Usage{Output: 1}); (err != nil) != (i >= kept) {
				t.Fatalf("settlement %d: %v", i, err)
			}
		}
		if lost.Load() != 3 || most.Load() != kept || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("%d are lost, %d were remembered, and the log says\n%s", lost.Load(), most.Load(), log)
		}
		s.set(nil)
		time.Sleep(time.Minute)
		w.stands(as("ann"), "day", quota.Tokens, kept, 3*2)
	})
}

func TestWhatTheLedgerHasForgottenIsSaidToBeLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Int64
		w := newWorld(t, limitsOf(daily("day", quota.User, quota.Tokens, 1_000_000)), func(c *quota.Config) {
			c.Hooks.Lost = func() { lost.Add(1) }
		})
		ctx, cancel := context.WithCancel(as("ann"))
		r := w.reserve(ctx, tokens(2))
		cancel()
		for range 3 { // it lapses, and what is made later puts it out of mind
			time.Sleep(2 * quota.DefaultRemember)
			w.call(as("ann"), tokens(1))
		}
		err := r.Settle(context.Background(), usage.Usage{Output: 1})
		if !errors.Is(err, quota.ErrUnknownReservation) || lost.Load() != 1 {
			t.Errorf("%v, and %d are lost", err, lost.Load())
		}
	})
}
