package quota_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestTurnsThatPassedDuringAnOutageAreCountedAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := func(name string, scope quota.Scope, window quota.Window) quota.Limit {
			return quota.Limit{Name: name, Scope: scope, Window: window, Max: quota.Max{quota.Turns: 100}, Failure: quota.Open}
		}
		everybodys, rate := open("ours", quota.Global, quota.Day), open("rate", quota.User, aMinute)
		for _, limits := range [][]quota.Limit{{open("mine", quota.User, quota.Day)}, {open("mine", quota.User, quota.Day), rate, everybodys}} {
			s := newStore(t)
			w := newWorld(t, limitsOf(limits...), s.over(nil))
			s.set(down)
			w.admit(as("ann")).End()
			w.admit(as("ann")).End()
			s.set(nil)
			time.Sleep(time.Minute)
			for _, limit := range limits {
				if limit.Name == "rate" {
					w.stands(as("ann"), limit.Name, quota.Turns, 0, 0) // it would be full again
					continue
				}
				w.stands(as("ann"), limit.Name, quota.Turns, 2, 0)
			}
		}
	})
}

func TestADenialDuringAnOutageTellsWhatTheLocalBucketHas(t *testing.T) {
	t.Parallel()
	soft := daily("l", quota.User, quota.Tokens, 24_000)
	soft.Soft, soft.Ceiling = true, quota.Max{quota.Tokens: 48_000}
	for _, c := range []struct {
		name             string
		limit            quota.Limit
		first, ask       int64 // what is taken, and asked for 2 s later
		max, used, retry int64 // what is told; retry in seconds
	}{
		{"a rate", quota.Limit{Window: aMinute, Max: quota.Max{quota.Tokens: 600}, Burst: quota.Max{quota.Tokens: 250}}, 100, 200, 250, 80, 3},
		{"a rate whose burst is taken", quota.Limit{Window: aMinute, Max: quota.Max{quota.Tokens: 600}}, 600, 100, 600, 580, 8},
		{"a tenth of a day", daily("l", quota.User, quota.Tokens, 864_000), 86_400, 100, 86_400, 86_380, 8},
		{"a tenth of a soft limit's ceiling", soft, 4000, 900, 4800, 3999, 178},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.limit.Name, c.limit.Scope, c.limit.Failure = "l", quota.User, quota.Open
				s := newStore(t)
				w := newWorld(t, limitsOf(c.limit), s.over(nil))
				s.set(down)
				w.reserve(as("ann"), tokens(c.first))
				time.Sleep(2 * time.Second)
				d := w.denied(as("ann"), tokens(c.ask))
				if d.Reason != quota.ReasonRate || d.Never || !errors.Is(d, quota.ErrUnavailable) || !d.ResetsAt.IsZero() {
					t.Errorf("%#v", d)
				}
				if d.Max != c.max || d.Used != c.used || d.Left() != c.max-c.used || d.Requested != c.ask {
					t.Errorf("%d of %d are used, %d are left and %d are asked for; want %d of %d", d.Used, d.Max, d.Left(), d.Requested, c.used, c.max)
				}
				if got := int64(d.RetryAfter.Round(time.Second) / time.Second); got != c.retry {
					t.Errorf("retry after %v, want %d s", d.RetryAfter, c.retry)
				}
				want := fmt.Sprintf(`quota: limit "l" cannot be checked now: %d of the %d tokens that pass at once meanwhile are used, %d more asked for, retry after `, c.used, c.max, c.ask)
				if !strings.HasPrefix(d.Error(), want) {
					t.Errorf("it says %s\nwant %s", d, want)
				}
				time.Sleep(d.RetryAfter)
				w.reserve(as("ann"), tokens(c.ask))
			})
		})
	}
}

func TestALimitThatLetsNothingPassIsToldAsSuchDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		none := daily("none", quota.User, quota.Tokens, 0)
		none.Failure = quota.Open
		s := newStore(t)
		w := newWorld(t, limitsOf(none), s.over(nil))
		before := w.denied(as("ann"), tokens(100))
		s.set(down)
		d := w.denied(as("ann"), tokens(100))
		if d.Error() != before.Error() || d.Reason != quota.ReasonExhausted || !d.Never || errors.Is(d, quota.ErrUnavailable) {
			t.Errorf("during the outage it is %v, before %v", d, before)
		}
	})
}

func TestLimitsThatAreChangedDuringAnOutageHoldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := daily("day", quota.User, quota.Tokens, 100_000)
		day.Failure = quota.Open
		s := newStore(t)
		w := newWorld(t, limitsOf(day), s.over(nil))
		s.set(down)
		w.reserve(as("ann"), tokens(100))
		day.Max = quota.Max{quota.Tokens: 1000}
		set, err := quota.NewLimits(limitsOf(day))
		if err == nil {
			err = w.Reload(set)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.reserve(as("ann"), tokens(100)) // a tenth
		if d := w.denied(as("ann"), tokens(100)); d.Limit != "day" {
			t.Errorf("got %v", d)
		}
	})
}

func TestWhatDeniesNothingDeniesNothingDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		soft, observed, ceiling := daily("soft", quota.User, quota.Tokens, 1000), daily("watched", quota.Team, quota.Tokens, 10), daily("end", quota.Tenant, quota.Tokens, 1000)
		soft.Soft, soft.Failure = true, quota.Open
		observed.Mode, observed.Failure = quota.Observe, quota.Open
		ceiling.Soft, ceiling.Ceiling, ceiling.Failure = true, quota.Max{quota.Tokens: 20_000}, quota.Open
		s := newStore(t)
		w := newWorld(t, limitsOf(soft, observed, ceiling), s.over(nil))
		s.set(down)
		for range 4 { // a tenth of the ceiling
			w.reserve(as("ann"), tokens(500))
		}
		if d := w.denied(as("ann"), tokens(500)); d.Limit != "end" {
			t.Errorf("got %v", d)
		}
	})
}

func TestWhatEverybodySharesIsAskedLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("all", quota.Global, quota.Tokens, 100), daily("mine", quota.User, quota.Tokens, 10)), s.over(nil))
		var asked []string
		s.set(func(op, tree string) error {
			asked = append(asked, op+" "+tree)
			return nil
		})
		w.reserve(as("ann"), tokens(1))
		w.denied(as("ann"), tokens(10))
		if got, want := strings.Join(asked, ", "), "reserve tenant=acme, reserve global, reserve tenant=acme"; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
	})
}

// seeing is a ledger that remembers the calendar counters that it was asked for, and
// their trees.
type seeing struct {
	quota.Ledger
	mu   sync.Mutex
	seen map[quota.Counter]string
}

func (s *seeing) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	s.mu.Lock()
	for _, e := range r.Entries {
		if !e.Rolling {
			s.seen[e.Counter] = r.Tree
		}
	}
	s.mu.Unlock()
	return s.Ledger.Reserve(ctx, r)
}

func TestWhatIsToldAfterAWindowsEndCountsInThatWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it begins at midnight
		s := newStore(t)
		ledger := &seeing{Ledger: s, seen: map[quota.Counter]string{}}
		w := newWorld(t, limitsOf(
			quota.Limit{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 100, quota.Tokens: 1000}, Failure: quota.Open},
		), func(c *quota.Config) { c.Ledger = ledger })
		yesterday := quota.Day.Span(time.Now())
		time.Sleep(23*time.Hour + 50*time.Minute)
		s.set(down)
		turn := w.admit(as("ann"))
		w.settle(w.reserve(turn.Context(), tokens(100)), tokens(90))
		turn.End()
		time.Sleep(20 * time.Minute)
		s.set(nil)
		time.Sleep(time.Minute)

		w.stands(as("ann"), "day", quota.Turns, 0, 0)
		w.stands(as("ann"), "day", quota.Tokens, 0, 0)
		booked := map[quota.Unit]int64{}
		for counter, tree := range ledger.seen {
			status, err := s.Ledger.Status(t.Context(), tree, quota.Entry{Counter: counter, Kind: quota.Check, Limit: -1, Spans: [3]quota.Span{1: yesterday}})
			if err != nil {
				t.Fatal(err)
			}
			booked[counter.Unit] += status[0].Committed
		}
		if booked[quota.Turns] != 1 || booked[quota.Tokens] != 90 {
			t.Errorf("yesterday has %d turns and %d tokens, want 1 and 90", booked[quota.Turns], booked[quota.Tokens])
		}
	})
}

func TestWhatPerhapsWasBookedIsNotBookedAgainWhenTheLedgerHasForgotten(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name     string
		doubtful bool
		lasts    time.Duration
		spent    int64
		lost     int64
	}{
		{"a reply is lost, and the store soon back", true, 30 * time.Minute, 90, 0},
		{"a reply is lost, and the store long gone", true, 3 * time.Hour, 90, 1},
		{"nothing reached it", false, 3 * time.Hour, 90, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var lost atomic.Int64
				s := newStore(t)
				limit := quota.Limit{Name: "tokens", Scope: quota.User, Window: quota.Month, Max: quota.Max{quota.Tokens: 1000}, Failure: quota.Open}
				w := newWorld(t, limitsOf(limit), s.over(nil), func(cfg *quota.Config) { cfg.Hooks.Lost = func() { lost.Add(1) } })
				gone := func(string, string) error { return fmt.Errorf("%w: %w", quota.ErrUnavailable, refused) }
				s.set(gone)
				call := w.reserve(as("ann"), tokens(100))
				if c.doubtful { // it is settled, and the reply is lost
					s.mu.Lock()
					s.lose = true
					s.mu.Unlock()
					s.set(func(op, _ string) error {
						if op == "settle" {
							return errStoreDown
						}
						return nil
					})
				}
				w.settle(call, tokens(90))
				time.Sleep(10 * time.Second)
				s.mu.Lock()
				s.lose = false
				s.mu.Unlock()
				s.set(gone)
				time.Sleep(c.lasts)
				s.set(nil)
				time.Sleep(time.Minute)
				w.stands(as("ann"), "tokens", quota.Tokens, c.spent, 0)
				if lost.Load() != c.lost {
					t.Errorf("%d are said to be lost, want %d", lost.Load(), c.lost)
				}
			})
		})
	}
}
