// Package ledgertest is the conformance suite of [quota.Ledger]: what every store
// must do, in memory or behind a network. A store's tests call [Run].
//
// A store in memory runs in virtual time. A real one runs in real time, and has a
// test-only offset of its clock, by which hours pass at once; the suite makes room
// for the real time that its steps take (Options.Slack), and leaves out what only
// a clock that stands still can tell: the exact instants of rolling counters and of
// the ends of windows.
//
// Part of it is a random test against a slow model, which says what a ledger is
// without any of the shortcuts that a store takes. The flags of rapid set how long
// it runs.
package ledgertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// Store is a ledger under test, and its clock.
type Store struct {
	// Ledger is the one under test, with nothing in it about the trees of the test:
	// each test names its own.
	Ledger quota.Ledger
	// Now is the ledger's time. Defaults to time.Now.
	Now func() time.Time
	// Pass has time pass for the ledger. Defaults to time.Sleep, which is for
	// virtual time; a real store raises the offset of its clock.
	Pass func(d time.Duration)
	// SetBack sets the wall clock of the ledger back. nil skips the tests that need
	// it. A store need not set back what it measures the refill of rolling counters
	// and the life of reservations by.
	SetBack func(d time.Duration)
}

// Options are about the store.
type Options struct {
	// Resolution is the unit of the store's clock; waits may be rounded up to it.
	// Defaults to a nanosecond.
	Resolution time.Duration
	// Slack is how much real time a test may take without being wrong; at most 30
	// seconds. It must be 0 in virtual time.
	Slack time.Duration
	// Virtual runs each test in a bubble of testing/synctest.
	Virtual bool
	// Steps is how many small amounts are added up to see that a sum is exact.
	// Defaults to 100 000 in virtual time, and to 1000 in real time; a store behind a
	// network wants fewer in both.
	Steps int
}

func (o Options) withDefaults() Options {
	if o.Resolution == 0 {
		o.Resolution = time.Nanosecond
	}
	if o.Steps == 0 {
		o.Steps = 1000
		if o.Virtual {
			o.Steps = 100_000
		}
	}
	return o
}

// A test is named after what it guarantees.
type test struct {
	name string
	run  func(e *env)
}

// Run runs the suite. open makes the store of one test, and cleans up after it
// with t.Cleanup; in virtual time it is called within the bubble.
func Run(t *testing.T, open func(t testing.TB) Store, o Options) {
	t.Helper()
	o = o.withDefaults()
	for _, tests := range [][]test{takeTests, endTests, windowTests, limitTests, rollingTests, changeTests} {
		for _, c := range tests {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if !o.Virtual {
					c.run(newEnv(t, open, o))
					return
				}
				synctest.Test(t, func(t *testing.T) { c.run(newEnv(t, open, o)) })
			})
		}
	}
	t.Run("AnyInterleavingEqualsTheSumOfItsCalls", func(t *testing.T) {
		t.Parallel()
		runRandom(t, open, o)
	})
}

// env is what one test works with.
type env struct {
	*testing.T
	Store
	Options
	tree   string
	anchor time.Time // of the calendar windows
}

var trees atomic.Int64

// length of the calendar windows of the suite. Tests start in the middle of one.
const length = 10 * time.Hour

func newEnv(t *testing.T, open func(t testing.TB) Store, o Options) *env {
	e := &env{T: t, Store: open(t), Options: o}
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Pass == nil {
		e.Pass = time.Sleep
	}
	e.newTree()
	return e
}

// newTree goes on in a tree of its own.
func (e *env) newTree() {
	e.tree = fmt.Sprintf("tree-%d-%s", trees.Add(1), budget.NewID())
	e.anchor = e.Now().Add(-length / 2).UTC().Truncate(time.Second)
}

func (e *env) ctx() context.Context { return e.Context() }

// span is the n-th calendar window; the one in which the test starts is 0.
func (e *env) span(n int) quota.Span {
	start := e.anchor.Add(time.Duration(n) * length)
	return quota.Span{Start: start, End: start.Add(length)}
}

// spans are the windows around a time.
func (e *env) spans(at time.Time) [3]quota.Span {
	n := int(at.Sub(e.anchor) / length)
	return [3]quota.Span{e.span(n - 1), e.span(n), e.span(n + 1)}
}

// toWindow passes the time until some time after the n-th window begins.
func (e *env) toWindow(n int, after time.Duration) {
	e.Pass(e.span(n).Start.Add(after).Sub(e.Now()))
}

// calendar is an entry of a calendar limit.
func (e *env) calendar(key string, kind quota.Kind, amount, limit int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "ten-hours", Unit: quota.Tokens},
		Kind:    kind, Amount: amount, Limit: limit, Ceiling: -1,
		Spans: e.spans(e.Now()),
	}
}

// hold is an entry that holds.
func (e *env) hold(key string, amount, limit int64) quota.Entry {
	return e.calendar(key, quota.Hold, amount, limit)
}

// lease is an entry of a limit of what is under way.
func (e *env) lease(key string, limit int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Unit: quota.ConcurrentTurns},
		Kind:    quota.Lease, Amount: 1, Limit: limit, Ceiling: -1,
	}
}

// rolling is an entry of so many units a minute.
func (e *env) rolling(key string, kind quota.Kind, amount, limit, burst int64, maxWait time.Duration) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "rolling-1m", Unit: quota.Tokens},
		Kind:    kind, Amount: amount, Limit: limit, Ceiling: -1,
		Rolling: true, Per: time.Minute, Burst: burst, MaxWait: maxWait,
	}
}

// try reserves.
func (e *env) try(id string, entries ...quota.Entry) quota.Reserved {
	e.Helper()
	return e.reserve(quota.Reserve{ID: id, Tree: e.tree, Entries: entries})
}

func (e *env) reserve(r quota.Reserve) quota.Reserved {
	e.Helper()
	res, err := e.Ledger.Reserve(e.ctx(), r)
	if err != nil {
		e.Fatalf("Reserve(%s): %v", r.ID, err)
	}
	if n := len(res.Status); n != len(r.Entries) {
		e.Fatalf("Reserve(%s) returned %d statuses for %d entries", r.ID, n, len(r.Entries))
	}
	return res
}

// take reserves, and must succeed. It returns the id.
func (e *env) take(entries ...quota.Entry) string {
	e.Helper()
	id := budget.NewID()
	if res := e.try(id, entries...); res.Denied >= 0 || res.Held {
		e.Fatalf("Reserve was denied at entry %d (held %v): %+v", res.Denied, res.Held, res.Status)
	}
	return id
}

// refuse reserves, and must be denied at an entry.
func (e *env) refuse(at int, entries ...quota.Entry) quota.Reserved {
	e.Helper()
	res := e.try(budget.NewID(), entries...)
	if res.Denied != at {
		e.Fatalf("Reserve: Denied = %d, want %d: %+v", res.Denied, at, res.Status)
	}
	return res
}

// settle settles all units to one amount.
func (e *env) settle(id string, tokens int64) quota.Settled {
	e.Helper()
	return e.settleWith(quota.Settle{ID: id, Actual: quota.Amounts{quota.Tokens: tokens}})
}

func (e *env) settleWith(s quota.Settle) quota.Settled {
	e.Helper()
	s.Tree = e.tree
	res, err := e.Ledger.Settle(e.ctx(), s)
	if err != nil {
		e.Fatalf("Settle(%s): %v", s.ID, err)
	}
	return res
}

func (e *env) release(id string) {
	e.Helper()
	if err := e.Ledger.Release(e.ctx(), e.tree, id); err != nil {
		e.Fatalf("Release(%s): %v", id, err)
	}
}

func (e *env) renew(ttl time.Duration, ids ...string) (lost []string) {
	e.Helper()
	lost, err := e.Ledger.Renew(e.ctx(), e.tree, ttl, ids...)
	if err != nil {
		e.Fatalf("Renew: %v", err)
	}
	return lost
}

func (e *env) status(entry quota.Entry) quota.Status {
	e.Helper()
	all, err := e.Ledger.Status(e.ctx(), e.tree, entry)
	if err != nil || len(all) != 1 {
		e.Fatalf("Status = %+v, %v", all, err)
	}
	return all[0]
}

// stands checks what is committed and reserved.
func (e *env) stands(entry quota.Entry, committed, reserved int64) {
	e.Helper()
	if st := e.status(entry); st.Committed != committed || st.Reserved != reserved {
		e.Fatalf("%s stands at %d committed and %d reserved, want %d and %d",
			entry.Key, st.Committed, st.Reserved, committed, reserved)
	}
}

// about checks a time that the ledger has reckoned: it may be rounded up to its
// clock's resolution, and be off by the real time that passes meanwhile.
func (e *env) about(what string, got, want time.Duration) {
	e.Helper()
	if got > want+e.Resolution-1+e.Slack || got < want-e.Slack {
		e.Fatalf("%s = %v, want %v", what, got, want)
	}
}

// sameStatus compares statuses; instants may be in different zones.
func sameStatus(a, b []quota.Status) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if !x.FullAt.Equal(y.FullAt) || !sameSpan(x.Span, y.Span) {
			return false
		}
		x.FullAt, x.Span = y.FullAt, y.Span
		if x != y {
			return false
		}
	}
	return true
}

func sameSpan(a, b quota.Span) bool { return a.Start.Equal(b.Start) && a.End.Equal(b.End) }
