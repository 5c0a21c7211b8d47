package chaos_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
	"github.com/headgate-go/headgate/budget/quota/redisledger"
	"github.com/headgate-go/headgate/internal/servers"
	"github.com/headgate-go/headgate/usage"
)

// While Redis is killed, comes back, is killed again and stands still, whoever has a limit that is
// closed then is refused with the reason, others go on, and everybody gets an answer. One outage is
// told of once at its start and once at its end, and when it is over everything that was used is
// counted, once, and nothing is held any more.
func TestAnEnforcerOutlivesItsRedis(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{AppendOnly: "always"})
	limits := func(failure quota.FailurePolicy) []quota.Limit {
		return []quota.Limit{
			{Name: "month", Scope: quota.User, Window: quota.Month, Max: quota.Max{quota.Tokens: 1e9}, Failure: failure},
			{Name: "open", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 10}, Failure: failure},
		}
	}
	set, err := quota.NewLimits(quota.LimitsConfig{
		Limits: limits(quota.Open), Plans: []quota.Plan{{Name: "strict", Limits: limits(quota.Closed)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	redis, end, err := storeAt{"redis", server.Addr()}.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	j, err := journal.Open(t.TempDir(), journalConfig)
	if err != nil {
		t.Fatal(err)
	}
	ledger := journaled(t, redis, j)
	log := &outageLog{ended: make(chan struct{})}
	e, err := quota.New(quota.Config{Ledger: ledger, LedgerTimeout: timeout, Limits: set, Logger: slog.New(log), TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	p := newPulse(answerWithinJournaled, func(what string) { t.Errorf("no answer: %s", what) })
	defer p.close()

	r := chance(t)
	open := &user{Enforcer: e, T: t, pulse: p, Subject: quota.Subject{Tenant: "acme", User: "ann"}}
	strict := &user{Enforcer: e, T: t, pulse: p, Subject: quota.Subject{Tenant: "acme", User: "bea", Plan: "strict"}}
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	for _, u := range []*user{open, strict, open, strict} {
		seed := r.Uint64()
		working.Go(func() {
			for chance := rand.New(rand.NewPCG(seed, 0)); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				u.call(chance)
			}
		})
	}
	time.Sleep(between(r, 200*time.Millisecond, 500*time.Millisecond))
	served, refused := open.served.Load(), strict.refused.Load()
	server.Kill()
	time.Sleep(between(r, 500*time.Millisecond, 2*time.Second))
	for begun := time.Now(); open.served.Load() == served || strict.refused.Load() == refused; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("without a server %d calls were served whose limits are open, and %d refused whose limits are closed",
				open.served.Load()-served, strict.refused.Load()-refused)
		}
	}
	server.Restart()
	time.Sleep(between(r, 0, time.Second))
	server.Kill()
	time.Sleep(between(r, 0, 300*time.Millisecond))
	server.Restart()
	time.Sleep(between(r, 0, time.Second))
	server.Pause()
	time.Sleep(between(r, timeout, 3*timeout))
	server.Resume()
	select {
	case <-log.ended:
	case <-time.After(60 * time.Second):
		t.Fatal("the server is back, and the outage does not end")
	}
	if began, ended := log.count(); began != 1 || ended != 1 {
		t.Errorf("one outage was told of %d times at its start and %d times at its end", began, ended)
	}
	served = strict.served.Load()
	for begun := time.Now(); strict.served.Load() < served+10; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the outage is over, and nobody is served whose limits are closed in one")
		}
	}
	stop()
	working.Wait()

	for _, u := range []*user{open, strict} {
		u.reconciled()
		t.Logf("%s: %d calls served, %d refused, %d tokens", u.Subject.User, u.served.Load(), u.refused.Load(), u.used.Load())
	}
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := errors.Join(e.Close(closing), ledger.Close(closing), j.Close()); err != nil {
		t.Error(err)
	}
}

// Where Redis does not answer any more, the first callers wait for it, and hardly any of the others.
func TestARedisThatStandsStillIsACheapOutage(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "month", Scope: quota.User, Window: quota.Month, Max: quota.Max{quota.Tokens: 1e9}, Failure: quota.Open},
	}})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}) // as most programs have it
	defer client.Close()
	ledger, err := redisledger.New(t.Context(), redisledger.Config{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	e, err := quota.New(quota.Config{Ledger: ledger, Limits: limits, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	ctx := quota.WithSubject(t.Context(), quota.Subject{Tenant: "acme", User: "ann"})
	slow := func(calls int) (n int) {
		for range calls {
			begun := time.Now()
			r, err := e.Budget().Reserve(ctx, budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(begun) > timeout/2 {
				n++
			}
			if err := r.Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	slow(1)
	server.Pause()
	if n := slow(30); n < 1 || n > 12 {
		t.Errorf("%d of 30 calls have waited for a server that stands still, want 5 and some that try it", n)
	}
	server.Resume()
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := errors.Join(e.Close(closing), ledger.Close(closing)); err != nil {
		t.Error(err)
	}
}

// user makes calls, and knows what it has used.
type user struct {
	*quota.Enforcer
	*testing.T
	pulse   *pulse
	Subject quota.Subject

	served, refused, used atomic.Int64
}

// call makes a turn of one call. Both may be refused for want of the ledger, if the limits are those
// of a plan, and for no other reason.
func (u *user) call(chance *rand.Rand) {
	ctx := quota.WithSubject(context.Background(), u.Subject)
	end := u.pulse.begin("admit " + u.Subject.User)
	turn, err := u.Admit(ctx)
	end()
	if err != nil {
		u.Errorf("Admit: %v", err)
		return
	}
	defer turn.End()
	if d := turn.Denied(); d != nil {
		u.refuse(d)
		return
	}
	end = u.pulse.begin("reserve " + u.Subject.User)
	r, err := u.Budget().Reserve(turn.Context(), budget.Call{ID: budget.NewID(), Model: "m", Usage: usage.Usage{Input: 500, Output: 500}})
	end()
	if err != nil {
		u.refuse(err)
		return
	}
	time.Sleep(between(chance, 0, 20*time.Millisecond))
	input, output := chance.Int64N(600)+1, chance.Int64N(600)+1
	end = u.pulse.begin("settle " + u.Subject.User)
	err = r.Settle(turn.Context(), usage.Usage{Input: input, Output: output})
	end()
	if err != nil {
		u.Errorf("an outage costs %s an answer that was there: %v", u.Subject.User, err)
		return
	}
	u.used.Add(input + output)
	u.served.Add(1)
}

func (u *user) refuse(err error) {
	u.refused.Add(1)
	var d *quota.Denial
	if u.Subject.Plan == "" || !errors.As(err, &d) || d.Reason != quota.ReasonUnavailable || !errors.Is(err, quota.ErrUnavailable) {
		u.Errorf("%s was refused: %v", u.Subject.User, err)
	}
}

// reconciled waits until what is counted is what was used, and nothing is held.
func (u *user) reconciled() {
	u.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		all, err := u.Status(context.Background(), u.Subject)
		var committed, reserved int64
		for _, s := range all {
			if s.Unit == quota.Tokens {
				committed = s.Committed
			}
			reserved += s.Reserved
		}
		used := u.used.Load()
		switch {
		case err == nil && committed == used && reserved == 0:
			return
		case err == nil && committed > used:
			u.Fatalf("%s has used %d tokens, and %d are counted", u.Subject.User, used, committed)
		case time.Since(begun) > 30*time.Second:
			u.Fatalf("%s has used %d tokens, of which %d are counted, and %d of everything is held: %v", u.Subject.User, used, committed, reserved, err)
		}
	}
}

// outageLog counts what an Enforcer says of outages.
type outageLog struct {
	mu           sync.Mutex // guards the numbers
	starts, ends int
	ended        chan struct{} // closed at the first end
}

func (l *outageLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *outageLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *outageLog) WithGroup(string) slog.Handler            { return l }

func (l *outageLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.Contains(r.Message, "the ledger cannot be reached;"):
		l.starts++
	case strings.Contains(r.Message, "the ledger can be reached again"):
		if l.ends++; l.ends == 1 {
			close(l.ended)
		}
	}
	return nil
}

func (l *outageLog) count() (starts, ends int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starts, l.ends
}
