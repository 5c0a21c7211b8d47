package redisledger_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

// connect makes a client that keeps deadlines, as the documentation has it.
func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// shared is a client of the server that the tests share.
func shared(t testing.TB) *redis.Client {
	t.Helper()
	return connect(t, servers.SharedRedis(t).Addr())
}

// open makes a ledger of one test.
func open(t testing.TB, client redis.UniversalClient, change ...func(*redisledger.Config)) *redisledger.Ledger {
	t.Helper()
	cfg := redisledger.Config{Client: client, Timeout: 10 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	l, err := redisledger.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// prefix gives a test keys of its own on the shared server.
func prefix(t testing.TB) func(*redisledger.Config) {
	return func(c *redisledger.Config) { c.Prefix = prefixOf(t) }
}

// prefixOf is what a test's keys begin with. Each run of it has another, as they share a
// server.
func prefixOf(t testing.TB) string {
	n, ok := prefixes.Load(t)
	if !ok {
		n, _ = prefixes.LoadOrStore(t, tests.Add(1))
	}
	return fmt.Sprintf("%s#%d:", t.Name(), n)
}

var (
	prefixes sync.Map // of testing.TB, to int64
	tests    atomic.Int64
)

// within is a time limit of the ledger.
func within(d time.Duration) func(*redisledger.Config) {
	return func(c *redisledger.Config) { c.Timeout = d }
}

// hourly is an entry of a limit of an hour.
func hourly(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	return hourlyAt(time.Now(), key, kind, amount, limit)
}

func hourlyAt(now time.Time, key string, kind quota.Kind, amount, limit int64) quota.Entry {
	e := quota.Entry{
		Counter: quota.Counter{Key: key, Window: "hour", Unit: quota.Tokens},
		Kind:    kind, Amount: amount, Limit: limit, Ceiling: -1,
	}
	n := now.Sub(hours) / time.Hour
	for i := range e.Spans {
		from := hours.Add((n + time.Duration(i-1)) * time.Hour)
		e.Spans[i] = quota.Span{Start: from, End: from.Add(time.Hour)}
	}
	return e
}

// hours is where the hours of tests begin, two centuries ago: the tests are in the
// middle of one, whatever time it is.
var hours = time.Now().UTC().Truncate(time.Second).Add(-200*365*24*time.Hour - 30*time.Minute)

// always is an entry of a limit without windows.
func always(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	e := hourly(key, kind, amount, limit)
	e.Window, e.Spans = "", [3]quota.Span{}
	return e
}

// perMinute is an entry of a rolling limit.
func perMinute(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	e := always(key, kind, amount, limit)
	e.Window, e.Rolling, e.Per, e.Burst = "rolling:1m", true, time.Minute, limit
	return e
}

// lease is an entry of a limit of what is under way.
func lease(key string, limit int64) quota.Entry {
	e := always(key, quota.Lease, 1, limit)
	e.Unit = quota.ConcurrentTurns
	return e
}

// take reserves, and must succeed. It returns the id.
func take(t testing.TB, l quota.Ledger, tree string, entries ...quota.Entry) string {
	t.Helper()
	id := budget.NewID()
	res, err := l.Reserve(t.Context(), quota.Reserve{ID: id, Tree: tree, Entries: entries})
	if err != nil || res.Denied >= 0 || res.Held {
		t.Fatalf("Reserve = %+v, %v", res, err)
	}
	return id
}

func settle(t testing.TB, l quota.Ledger, tree, id string, tokens int64) quota.Settled {
	t.Helper()
	res, err := l.Settle(t.Context(), quota.Settle{ID: id, Tree: tree, Actual: quota.Amounts{quota.Tokens: tokens}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func stands(t testing.TB, l quota.Ledger, tree string, e quota.Entry, committed, reserved int64) {
	t.Helper()
	all, err := l.Status(t.Context(), tree, e)
	if err != nil {
		t.Fatal(err)
	}
	if st := all[0]; st.Committed != committed || st.Reserved != reserved {
		t.Errorf("%s stands at %d committed and %d reserved, want %d and %d", e.Key, st.Committed, st.Reserved, committed, reserved)
	}
}

// unavailable checks that an operation says that the store is at fault.
func unavailable(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, quota.ErrUnavailable) {
		t.Errorf("%s: %v, want an error that matches quota.ErrUnavailable", what, err)
	}
}

// eventually does something until it succeeds.
func eventually(t testing.TB, do func() error) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// fewer sets how many runs the random tests make, which real servers make slower, unless
// it was asked for.
func fewer() {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		_ = flag.Set("rapid.checks", "25")
	}
}
