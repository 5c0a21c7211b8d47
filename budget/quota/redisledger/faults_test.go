package redisledger_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
)

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	client := servers.StartRedis(t, servers.RedisOptions{}).Client()
	l := open(t, client)
	flush := func() {
		t.Helper()
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, e := t.Context(), hourly("u", quota.Hold, 10, 100)
	var settled, released string
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"Reserve", func() error { settled = take(t, l, "t", e); return nil }},
		{"Reserve, its fast way", func() error { released = take(t, l, "t", e); return nil }},
		{"Renew", func() error { _, err := l.Renew(ctx, "t", time.Minute, settled); return err }},
		{"Settle", func() error { settle(t, l, "t", settled, 7); return nil }},
		{"Release", func() error { return l.Release(ctx, "t", released) }},
		{"TopUp", func() error { _, err := l.TopUp(ctx, "t", e, 2); return err }},
		{"Status", func() error { stands(t, l, "t", e, 5, 0); return nil }},
		{"Reset", func() error { _, err := l.Reset(ctx, "t", e); return err }},
		{"History", func() error { _, err := l.History(ctx, "t", e.Counter, 3); return err }},
		{"Erase", func() error { return l.Erase(ctx, "t", "u") }},
		{"Healthy", func() error { return l.Healthy(ctx) }},
		{"large amounts", func() error { take(t, l, "t", always("large", quota.Hold, 1<<60, -1)); return nil }},
	} {
		flush()
		if err := op.do(); err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
	}

	// Those that share a round trip, too.
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if i == 20 {
				flush()
			}
			settle(t, l, "t", take(t, l, "t", always("all", quota.Hold, 2, -1)), 1)
		})
	}
	wg.Wait()
	stands(t, l, "t", always("all", quota.Hold, 0, -1), 40, 0)
}

func TestKilledServerThatKeepsItsDataGoesOn(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{AppendOnly: "always"})
	l := open(t, server.Client())
	e := hourly("u", quota.Hold, 40, 100)
	spent, held := take(t, l, "t", e), take(t, l, "t", e, perMinute("u", quota.Hold, 60, 60), lease("u", 1))
	settle(t, l, "t", spent, 35)
	server.Kill()
	if _, err := l.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "t", Entries: []quota.Entry{e}}); err == nil {
		t.Fatal("a server that is dead has answered")
	} else {
		unavailable(t, "Reserve", err)
	}
	server.Restart()
	stands(t, l, "t", e, 35, 40)
	if res, err := l.Settle(t.Context(), quota.Settle{ID: spent, Tree: "t"}); err != nil || !res.Repeated || res.Status[0].Committed != 35 {
		t.Errorf("Settle of what was settled before = %+v, %v", res, err)
	}
	settle(t, l, "t", held, 50)
	stands(t, l, "t", e, 85, 0)
	stands(t, l, "t", lease("u", 1), 0, 0)
}

// A client gives up a connection that hangs at the deadline, or does not care.
func clients(t *testing.T, addr string) map[string]*redis.Client {
	careless := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = careless.Close() })
	return map[string]*redis.Client{"that keeps deadlines": connect(t, addr), "that does not": careless}
}

func TestServerThatHangsIsUnavailableWithinTheTimeout(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	for name, client := range clients(t, server.Addr()) {
		const limit = 150 * time.Millisecond
		l := open(t, client, within(limit))
		take(t, l, "t", hourly("u", quota.Hold, 1, -1))
		server.Pause()
		var wg sync.WaitGroup
		for range 20 { // more than have a round trip of their own
			wg.Go(func() {
				begun := time.Now()
				_, err := l.Reserve(t.Context(), quota.Reserve{ID: budget.NewID(), Tree: "t", Entries: []quota.Entry{hourly("u", quota.Hold, 1, -1)}})
				unavailable(t, "Reserve", err)
				if took := time.Since(begun); took < limit/2 || took > limit+2*time.Second {
					t.Errorf("client %s: it took %v, want %v", name, took, limit)
				}
			})
		}
		wg.Wait()
		if err := l.Healthy(t.Context()); !errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("client %s: Healthy = %v", name, err)
		}

		// The caller's own end comes first.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := l.Reserve(ctx, quota.Reserve{ID: "late", Tree: "t"})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, quota.ErrUnavailable) {
			t.Errorf("client %s: past the caller's deadline: %v", name, err)
		}
		server.Resume()
		for err = errors.New("not asked yet"); err != nil && t.Context().Err() == nil; {
			err = l.Healthy(t.Context()) // old connections must be found out
		}
		settle(t, l, "t", take(t, l, "t", hourly(name, quota.Hold, 1, 10)), 1)
		stands(t, l, "t", hourly(name, quota.Hold, 0, 10), 1, 0)
	}
}

func TestCancelledCallerIsLetGo(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	for name, client := range clients(t, server.Addr()) {
		l := open(t, client, within(3*time.Second))
		take(t, l, "t", hourly("u", quota.Hold, 1, -1))
		server.Pause()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		begun := time.Now()
		_, err := l.Reserve(ctx, quota.Reserve{ID: "x", Tree: "t"})
		if took := time.Since(begun); !errors.Is(err, context.Canceled) || took > 2*time.Second {
			t.Errorf("client %s: Reserve: %v, after %v", name, err, took)
		}
		server.Resume()
	}
}

// Whose turn it is to make the round trip of all may leave just then.
func TestCallersThatLeaveHoldNobodyUp(t *testing.T) {
	t.Parallel()
	proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
	for name, client := range clients(t, proxy.Addr()) {
		l := open(t, client, prefix(t), within(5*time.Second))
		take(t, l, name, hourly("u", quota.Count, 1, -1))
		proxy.Delay(3 * time.Millisecond)
		var counted atomic.Int64
		counted.Store(1)
		var wg sync.WaitGroup
		for g := range 30 {
			wg.Go(func() {
				for i := range 10 {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if g%2 == 0 { // these leave after some time
						ctx, cancel = context.WithTimeout(ctx, time.Duration(1+(g+i)%7)*time.Millisecond)
					}
					_, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: name, Entries: []quota.Entry{hourly("u", quota.Count, 1, -1)}})
					cancel()
					switch {
					case g%2 == 1 && err != nil:
						t.Errorf("client %s: one that stays: %v", name, err)
					case err != nil && !errors.Is(err, context.DeadlineExceeded):
						t.Errorf("client %s: one that leaves: %v", name, err)
					case err == nil:
						counted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		proxy.Delay(0)
		all, err := l.Status(t.Context(), name, hourly("u", quota.Count, 0, -1))
		if err != nil || all[0].Committed < counted.Load() || all[0].Committed > 301 {
			t.Errorf("client %s: %+v, %v, want %d to 301 counted", name, all, err, counted.Load())
		}
	}
}

// A reply that was lost after the server had done the work is asked for again, by the
// client or by the caller: it is done once, and the first result comes back.
func TestLostRepliesChangeNothing(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"repeated by the client": 3, "repeated by the caller": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: retries, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			l := open(t, client, prefix(t))
			ctx := t.Context()
			entries := []quota.Entry{hourly("u", quota.Hold, 30, 100), perMinute("u", quota.Hold, 30, 60), lease("u", 3)}
			count := hourly("turns", quota.Count, 1, 10)
			count.Unit = quota.Turns
			take(t, l, "t", append(entries, count)...) // so that all is there

			// again does something until it is told the result.
			again := func(what string, lost string, do func() error) {
				t.Helper()
				proxy.DropRepliesTo(1, lost)
				err := do()
				if retries < 0 {
					unavailable(t, what, err)
					err = do()
				}
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			r := quota.Reserve{ID: "reservation-1", Tree: "t", Entries: append(entries, count)}
			var reserved quota.Reserved
			again("Reserve", "r:reservation-1", func() (err error) { reserved, err = l.Reserve(ctx, r); return err })
			if !reserved.Repeated || reserved.Denied >= 0 || reserved.Status[0].Reserved != 60 || reserved.Status[2].Reserved != 2 || reserved.Status[3].Committed != 2 {
				t.Errorf("Reserve = %+v", reserved)
			}
			stands(t, l, "t", entries[0], 0, 60)
			stands(t, l, "t", count, 2, 0)

			s := quota.Settle{ID: r.ID, Tree: "t", Actual: quota.Amounts{quota.Tokens: 20}}
			var settled quota.Settled
			again("Settle", "r:reservation-1", func() (err error) { settled, err = l.Settle(ctx, s); return err })
			if !settled.Repeated || settled.Late || settled.Status[0].Committed != 20 || settled.Status[0].Reserved != 30 {
				t.Errorf("Settle = %+v", settled)
			}
			stands(t, l, "t", entries[0], 20, 30)
			stands(t, l, "t", entries[2], 0, 1)

			released := take(t, l, "t", entries[0])
			again("Release", "r:"+released, func() error { return l.Release(ctx, "t", released) })
			stands(t, l, "t", entries[0], 20, 30)
			if retries > 0 { // a caller's second top-up is another one
				again("TopUp", ":o:", func() error { _, err := l.TopUp(ctx, "t", entries[0], 5); return err })
				stands(t, l, "t", entries[0], 15, 30)
			}
			if proxy.Dropped() < 3 {
				t.Errorf("%d replies were dropped", proxy.Dropped())
			}
		})
	}
}

func TestBrokenConnectionsAreMadeAnew(t *testing.T) {
	t.Parallel()
	proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
	l := open(t, connect(t, proxy.Addr()), prefix(t), within(2*time.Second))
	take(t, l, "t", hourly("u", quota.Hold, 1, 10))
	proxy.Cut()
	_, err := l.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "t", Entries: []quota.Entry{hourly("u", quota.Hold, 1, 10)}})
	unavailable(t, "Reserve", err)
	proxy.Mend()
	take(t, l, "t", hourly("u", quota.Hold, 1, 10))
	stands(t, l, "t", hourly("u", quota.Hold, 0, 10), 0, 2)
}

func TestFullServerIsUnavailableAndHalfOfNothingIsWritten(t *testing.T) {
	t.Parallel()
	client := servers.StartRedis(t, servers.RedisOptions{}).Client()
	l := open(t, client)
	held := take(t, l, "t", hourly("u", quota.Hold, 10, 100), hourly("team", quota.Hold, 10, 100))
	full := func(bytes string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	full("1") // the policy is noeviction unless it is set
	_, err := l.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "t", Entries: []quota.Entry{hourly("u", quota.Hold, 10, 100), hourly("team", quota.Hold, 10, 100)}})
	unavailable(t, "Reserve", err)
	unavailable(t, "Healthy", l.Healthy(t.Context()))
	_, err = l.Settle(t.Context(), quota.Settle{ID: held, Tree: "t", Actual: quota.Amounts{quota.Tokens: 50}})
	unavailable(t, "Settle", err)
	full("0")
	settle(t, l, "t", held, 5)
	stands(t, l, "t", hourly("u", quota.Hold, 0, 100), 5, 0)
	stands(t, l, "t", hourly("team", quota.Hold, 0, 100), 5, 0)
}

func TestClosedLedgerWaitsForWhatIsUnderWayAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
	l, err := redisledger.New(t.Context(), redisledger.Config{Client: connect(t, proxy.Addr()), Prefix: prefixOf(t), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	take(t, l, "t", hourly("u", quota.Hold, 1, 10))
	proxy.Stall(true)
	answered := make(chan error, 1)
	go func() {
		_, err := l.Reserve(t.Context(), quota.Reserve{ID: "x", Tree: "t", Entries: []quota.Entry{hourly("u", quota.Hold, 1, 10)}})
		answered <- err
	}()
	for !redisledger.Busy(l) {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close, with something under way: %v", err)
	}
	unavailable(t, "Release of a closed ledger", l.Release(t.Context(), "t", "x"))
	proxy.Stall(false)
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-answered; err != nil {
		t.Errorf("what was under way: %v", err)
	}
	unavailable(t, "Flush of a closed ledger", l.Flush(t.Context()))
}

// Whoever makes the round trip of all that wait has a deadline of its own.
func TestNobodyStaysPastADeadlineForOthers(t *testing.T) {
	t.Parallel()
	proxy := servers.NewProxy(t, servers.SharedRedis(t).Addr())
	for name, client := range clients(t, proxy.Addr()) {
		l := open(t, client, prefix(t), within(5*time.Second))
		take(t, l, name, hourly("u", quota.Count, 1, -1))
		const delay = 400 * time.Millisecond
		proxy.Delay(delay)
		reserve := func(ctx context.Context) error {
			_, err := l.Reserve(ctx, quota.Reserve{ID: budget.NewID(), Tree: name, Entries: []quota.Entry{hourly("u", quota.Count, 1, -1)}})
			return err
		}
		var wg sync.WaitGroup
		for range 4 { // as many as have a round trip of their own
			wg.Go(func() {
				if err := reserve(t.Context()); err != nil {
					t.Errorf("client %s: %v", name, err)
				}
			})
		}
		time.Sleep(delay / 10)
		for i := range 2 { // the second one makes the round trip of both
			wg.Go(func() {
				ctx, limit := t.Context(), time.Hour
				if i == 1 {
					limit = delay * 3 / 2
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				begun := time.Now()
				err := reserve(ctx)
				if took := time.Since(begun); took > limit+delay/4 || (err != nil) != (i == 1) {
					t.Errorf("client %s: after %v of %v: %v", name, took, limit, err)
				}
			})
			time.Sleep(delay / 20)
		}
		wg.Wait()
		proxy.Delay(0)
	}
}
