package blocks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/blocks"
)

// link is the way from a replica to the ledger, which can break.
type link struct {
	quota.Ledger

	mu sync.Mutex
	// mu guards all that follows.
	cut     bool          // nothing gets through
	lose    int           // so many operations are done whose replies are lost
	away    time.Duration // how long a request takes to the ledger, and a reply back
	stalled chan struct{} // nothing is done until it is closed, but then it is
	trips   map[string]int
	last    map[string]time.Time // when an operation was sent
}

var errCut = fmt.Errorf("connection refused: %w", quota.ErrUnavailable)

func newLink(ledger quota.Ledger) *link {
	return &link{Ledger: ledger, trips: map[string]int{}, last: map[string]time.Time{}}
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// stall has the ledger not answer until the returned function is called. What was sent
// meanwhile is done then, whether or not anybody waits for it.
func (l *link) stall() (resume func()) {
	ch := make(chan struct{})
	l.set(func(l *link) { l.stalled = ch })
	return func() {
		l.set(func(l *link) { l.stalled = nil })
		close(ch)
	}
}

// all is how many operations were sent.
func (l *link) all() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.trips {
		n += k
	}
	return n
}

func (l *link) sent(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trips[op]
}

func over[T any](ctx context.Context, l *link, op string, do func(context.Context) (T, error)) (T, error) {
	var none T
	l.mu.Lock()
	l.trips[op]++
	l.last[op] = time.Now()
	cut, away, stalled := l.cut, l.away, l.stalled
	l.mu.Unlock()
	travel := func() error {
		if away == 0 {
			return ctx.Err()
		}
		select {
		case <-time.After(away):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if cut {
		return none, errCut
	}
	if err := travel(); err != nil {
		return none, err
	}
	if stalled != nil {
		type result struct {
			v   T
			err error
		}
		done := make(chan result, 1)
		go func() {
			<-stalled
			v, err := do(context.WithoutCancel(ctx))
			done <- result{v, err}
		}()
		select {
		case r := <-done:
			return r.v, r.err
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	v, err := do(ctx)
	l.mu.Lock()
	lost := l.lose > 0
	if lost {
		l.lose--
	}
	l.mu.Unlock()
	if lost {
		return none, errCut
	}
	if err := travel(); err != nil {
		return none, err
	}
	return v, err
}

func (l *link) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	return over(ctx, l, "reserve", func(ctx context.Context) (quota.Reserved, error) { return l.Ledger.Reserve(ctx, r) })
}

func (l *link) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	return over(ctx, l, "settle", func(ctx context.Context) (quota.Settled, error) { return l.Ledger.Settle(ctx, s) })
}

func (l *link) Release(ctx context.Context, tree, id string) error {
	_, err := over(ctx, l, "release", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.Ledger.Release(ctx, tree, id)
	})
	return err
}

func (l *link) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) ([]string, error) {
	return over(ctx, l, "renew", func(ctx context.Context) ([]string, error) { return l.Ledger.Renew(ctx, tree, ttl, ids...) })
}

func (l *link) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	return over(ctx, l, "status", func(ctx context.Context) ([]quota.Status, error) { return l.Ledger.Status(ctx, tree, entries...) })
}

func (l *link) Healthy(ctx context.Context) error {
	_, err := over(ctx, l, "healthy", func(ctx context.Context) (struct{}, error) { return struct{}{}, l.Ledger.Healthy(ctx) })
	return err
}

// world is some replicas that share a ledger. Its windows are ten minutes long, and
// begin when it does.
type world struct {
	testing.TB
	ledger   quota.Ledger
	links    []*link
	replicas []*blocks.Ledger
	began    time.Time
}

const window = 10 * time.Minute

func newWorld(t testing.TB, replicas int, cfg blocks.Config) *world {
	t.Helper()
	w := &world{TB: t, ledger: newMemory(t), began: time.Now().UTC()}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for range replicas {
		k := newLink(w.ledger)
		l, err := blocks.New(k, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.links, w.replicas = append(w.links, k), append(w.replicas, l)
		t.Cleanup(func() { _ = l.Close(context.Background()) })
	}
	return w
}

// span is the n-th window.
func (w *world) span(n int) quota.Span {
	start := w.began.Add(time.Duration(n) * window)
	return quota.Span{Start: start, End: start.Add(window)}
}

// entry is one of a limit of everybody together.
func (w *world) entry(kind quota.Kind, amount, limit int64) quota.Entry {
	n := int(time.Since(w.began) / window)
	return quota.Entry{
		Counter: quota.Counter{Key: "global", Window: "ten-minutes", Unit: quota.Tokens},
		Kind:    kind, Amount: amount, Limit: limit, Ceiling: -1,
		Spans: [3]quota.Span{w.span(n - 1), w.span(n), w.span(n + 1)},
	}
}

func (w *world) hold(amount, limit int64) quota.Entry { return w.entry(quota.Hold, amount, limit) }

// perMinute is one of a rolling limit.
func (w *world) perMinute(kind quota.Kind, amount, limit, burst int64, maxWait time.Duration) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: "global", Window: "minute", Unit: quota.Tokens},
		Kind:    kind, Amount: amount, Limit: limit, Ceiling: -1,
		Rolling: true, Per: time.Minute, Burst: burst, MaxWait: maxWait,
	}
}

func (w *world) try(l quota.Ledger, id string, entries ...quota.Entry) quota.Reserved {
	w.Helper()
	res, err := l.Reserve(context.Background(), quota.Reserve{ID: id, Tree: "global", Entries: entries})
	if err != nil {
		w.Fatalf("Reserve: %v", err)
	}
	return res
}

// take reserves, and must succeed.
func (w *world) take(l quota.Ledger, entries ...quota.Entry) string {
	w.Helper()
	id := budget.NewID()
	if res := w.try(l, id, entries...); res.Denied >= 0 || res.Held {
		w.Fatalf("Reserve was denied: %+v", res)
	}
	return id
}

// refuse reserves, and must be denied.
func (w *world) refuse(l quota.Ledger, entries ...quota.Entry) quota.Reserved {
	w.Helper()
	res := w.try(l, budget.NewID(), entries...)
	if res.Denied < 0 {
		w.Fatalf("Reserve passed: %+v", res)
	}
	return res
}

func (w *world) settle(l quota.Ledger, id string, tokens int64) quota.Settled {
	w.Helper()
	res, err := l.Settle(context.Background(), quota.Settle{ID: id, Tree: "global", Actual: quota.Amounts{quota.Tokens: tokens}})
	if err != nil {
		w.Fatalf("Settle: %v", err)
	}
	return res
}

func (w *world) release(l quota.Ledger, id string) {
	w.Helper()
	if err := l.Release(context.Background(), "global", id); err != nil {
		w.Fatalf("Release: %v", err)
	}
}

// stands checks what a ledger says about the counter of an entry.
func (w *world) stands(l quota.Ledger, e quota.Entry, committed, reserved int64) {
	w.Helper()
	all, err := l.Status(context.Background(), "global", e)
	if err != nil || len(all) != 1 {
		w.Fatalf("Status = %+v, %v", all, err)
	}
	if st := all[0]; st.Committed != committed || st.Reserved != reserved {
		w.Fatalf("stands at %d committed and %d reserved, want %d and %d", st.Committed, st.Reserved, committed, reserved)
	}
}

// flush has all replicas settle what they know, and return what is idle.
func (w *world) flush() {
	w.Helper()
	for i, l := range w.replicas {
		if err := l.Flush(context.Background()); err != nil {
			w.Fatalf("Flush of replica %d: %v", i, err)
		}
	}
}

// pass lets time pass, and all that it brings be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// bubbles makes random runs, each in a bubble of its own, because rapid itself must see
// the time that really passes.
func bubbles(t *testing.T, run func(t *testing.T, rt *rapid.T)) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			run(t, rt)
		})
		// rapid's own, in the goroutine where it waits for it. It tells failures apart
		// by where they come from, and what it could not draw is none.
		if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
			panic(failure)
		}
		if failure != nil {
			panic(failure)
		}
	})
}

func unavailable(err error) bool { return errors.Is(err, quota.ErrUnavailable) }
