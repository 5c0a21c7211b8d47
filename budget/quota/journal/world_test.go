package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// store is a ledger elsewhere: it can be down, lose replies, and fail over to what it was
// before.
type store struct {
	t testing.TB

	mu sync.Mutex
	// mu guards all that follows.
	m      *quota.Memory
	broken func(op string) fault // nil is in order
	calls  map[string]int
	closed bool            // and is there for the next process all the same
	part   string          // a tree that is gone
	never  map[string]bool // reservations whose settlements it refuses
}

// fault is what becomes of an operation.
type fault int

const (
	fine fault = iota
	down       // it is not done
	lost       // it is done, and its reply is lost
)

var errRefused = errors.New("a number is too large")

var errDown = fmt.Errorf("dial tcp 10.0.0.7:6379: %w", quota.ErrUnavailable)

func newStore(t testing.TB) *store { return &store{t: t, m: newMemory(t), calls: map[string]int{}} }

func newMemory(t testing.TB) *quota.Memory {
	t.Helper()
	m, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// set breaks the store, or mends it.
func (s *store) set(f fault) { s.setFor(func(string) fault { return f }) }

// gone has a tree be gone.
func (s *store) gone(tree string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = tree
}

// refuses has settlements of some reservations be refused.
func (s *store) refuses(ids map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.never = ids
}

// takes reports whether nothing can be settled of a tree or a reservation.
func (s *store) takes(tree, id string) (gone, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tree == s.part, s.never[id]
}

func (s *store) setFor(broken func(op string) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// snapshot is a copy of the store.
func (s *store) snapshot() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var file bytes.Buffer
	if err := s.m.Snapshot(&file); err != nil {
		s.t.Fatal(err)
	}
	return file.Bytes()
}

// failOver makes the store what it was when a copy was made: whatever it has been told since
// is lost. nil is an empty store.
func (s *store) failOver(copied []byte) {
	m := newMemory(s.t)
	if copied != nil {
		if err := m.Restore(bytes.NewReader(copied)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m = m
}

func (s *store) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// memory is the store as it is, for tests to look into.
func (s *store) memory() *quota.Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m
}

// do does an operation, or not.
func (s *store) do(op string, do func(m *quota.Memory) error) error {
	s.mu.Lock()
	s.calls[op]++
	broken := s.broken
	s.mu.Unlock()
	f := fine
	if broken != nil {
		f = broken(op)
	}
	m := s.memory()
	if f == down {
		return errDown
	}
	err := do(m)
	if f == lost {
		return errDown
	}
	return err
}

func (s *store) Reserve(ctx context.Context, r quota.Reserve) (res quota.Reserved, err error) {
	err = s.do("reserve", func(m *quota.Memory) (err error) { res, err = m.Reserve(ctx, r); return err })
	return res, err
}

func (s *store) Settle(ctx context.Context, x quota.Settle) (res quota.Settled, err error) {
	if gone, refused := s.takes(x.Tree, x.ID); gone {
		return res, errDown
	} else if refused {
		return res, errRefused
	}
	err = s.do("settle", func(m *quota.Memory) (err error) { res, err = m.Settle(ctx, x); return err })
	return res, err
}

func (s *store) Release(ctx context.Context, tree, id string) error {
	return s.do("release", func(m *quota.Memory) error { return m.Release(ctx, tree, id) })
}

func (s *store) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (gone []string, err error) {
	err = s.do("renew", func(m *quota.Memory) (err error) { gone, err = m.Renew(ctx, tree, ttl, ids...); return err })
	return gone, err
}

func (s *store) Status(ctx context.Context, tree string, entries ...quota.Entry) (all []quota.Status, err error) {
	err = s.do("status", func(m *quota.Memory) (err error) { all, err = m.Status(ctx, tree, entries...); return err })
	return all, err
}

func (s *store) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (st quota.Status, err error) {
	err = s.do("top up", func(m *quota.Memory) (err error) { st, err = m.TopUp(ctx, tree, e, amount); return err })
	return st, err
}

func (s *store) Reset(ctx context.Context, tree string, e quota.Entry) (st quota.Status, err error) {
	err = s.do("reset", func(m *quota.Memory) (err error) { st, err = m.Reset(ctx, tree, e); return err })
	return st, err
}

func (s *store) History(ctx context.Context, tree string, c quota.Counter, n int) (all []quota.Status, err error) {
	err = s.do("history", func(m *quota.Memory) (err error) { all, err = m.History(ctx, tree, c, n); return err })
	return all, err
}

func (s *store) Erase(ctx context.Context, tree, key string) error {
	return s.do("erase", func(m *quota.Memory) error { return m.Erase(ctx, tree, key) })
}

func (s *store) Healthy(ctx context.Context) error {
	return s.do("healthy", func(m *quota.Memory) error { return m.Healthy(ctx) })
}

func (s *store) Flush(ctx context.Context) error { return s.memory().Flush(ctx) }

func (s *store) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

var _ quota.Ledger = (*store)(nil)

// world is a process with a journal before a store.
type world struct {
	*testing.T
	store *store
	dir   string
	cfg   journal.Config
	log   *record
	j     *journal.Journal
	l     *journal.Ledger
}

// between is a time at which a journal does nothing by itself, as it does so at whole
// seconds after something was settled.
const between = time.Second / 2

// tree of all that a world does.
const tree = "acme"

// virtual runs a test in virtual time.
func virtual(t *testing.T, cfg journal.Config, test func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		t.Cleanup(w.stop)
		test(w)
	})
}

func newWorld(t *testing.T, cfg journal.Config) *world {
	w := &world{T: t, store: newStore(t), dir: t.TempDir(), cfg: cfg, log: &record{}}
	w.cfg.Logger = slog.New(slog.NewTextHandler(w.log, nil))
	w.start()
	return w
}

// start starts the process.
func (w *world) start() {
	w.Helper()
	j, err := journal.Open(w.dir, w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.j, w.l = j, before(w, w.store, j)
}

// before puts a journal before a ledger.
func before(t testing.TB, ledger quota.Ledger, j *journal.Journal) *journal.Ledger {
	t.Helper()
	l, err := journal.New(ledger, j)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stop ends it.
func (w *world) stop() {
	w.Helper()
	if err := w.l.Close(context.Background()); err != nil { // the test's context may have ended
		w.Error(err)
	}
	if err := w.j.Close(); err != nil {
		w.Error(err)
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if !w.store.closed {
		w.Error("the ledger was not closed")
	}
	w.store.closed = false
}

// restart is a process that ended without having been able to tell the store more, and
// the next one.
func (w *world) restart() {
	w.Helper()
	w.stop()
	w.start()
}

// day is a calendar entry of the day, with the windows around now.
func (w *world) day(key string, kind quota.Kind, amount int64) quota.Entry {
	start := time.Now().UTC().Truncate(24 * time.Hour)
	span := func(n int) quota.Span {
		at := start.AddDate(0, 0, n)
		return quota.Span{Start: at, End: at.AddDate(0, 0, 1)}
	}
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "day", Unit: quota.Tokens},
		Kind:    kind, Amount: amount, Limit: 2000, Ceiling: -1,
		Spans: [3]quota.Span{span(-1), span(0), span(1)},
	}
}

func (w *world) turns(key string) quota.Entry {
	e := w.day(key, quota.Count, 1)
	e.Unit = quota.Turns
	return e
}

func (w *world) lease(key string) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Unit: quota.ConcurrentTurns},
		Kind:    quota.Lease, Amount: 1, Limit: 3, Ceiling: -1,
	}
}

func (w *world) rolling(key string, amount int64) quota.Entry {
	return quota.Entry{
		Counter: quota.Counter{Key: key, Window: "rolling-1m", Unit: quota.Tokens},
		Kind:    quota.Hold, Amount: amount, Limit: 60, Ceiling: -1, Rolling: true, Per: time.Minute, Burst: 100,
	}
}

// reserve reserves, and must succeed.
func (w *world) reserve(id string, entries ...quota.Entry) {
	w.Helper()
	res, err := w.l.Reserve(w.Context(), quota.Reserve{
		ID: id, Tree: tree, Entries: entries, Note: quota.Note{Subject: "user:ann", Call: "call-" + id, Model: "m"},
	})
	if err != nil || res.Denied >= 0 || res.Held {
		w.Fatalf("Reserve(%s) = %+v, %v", id, res, err)
	}
}

func used(id string, tokens int64) quota.Settle {
	return quota.Settle{ID: id, Tree: tree, Actual: quota.Amounts{quota.Tokens: tokens}}
}

// settle settles, and must succeed.
func (w *world) settle(id string, tokens int64) quota.Settled {
	w.Helper()
	res, err := w.l.Settle(w.Context(), used(id, tokens))
	if err != nil {
		w.Fatalf("Settle(%s): %v", id, err)
	}
	return res
}

// unsettled settles, and must fail.
func (w *world) unsettled(id string, tokens int64, want error) {
	w.Helper()
	if _, err := w.l.Settle(w.Context(), used(id, tokens)); !errors.Is(err, want) {
		w.Fatalf("Settle(%s): %v, want %v", id, err, want)
	}
}

// stands checks what is committed and reserved in the window of today.
func (w *world) stands(e quota.Entry, committed, reserved int64) {
	w.Helper()
	all, err := w.store.memory().Status(w.Context(), tree, e)
	if err != nil || len(all) != 1 || all[0].Committed != committed || all[0].Reserved != reserved {
		w.Fatalf("%s stands at %+v, %v, want %d committed and %d reserved", e.Key, all, err, committed, reserved)
	}
}

// tokens checks what a user has spent today, with nothing reserved.
func (w *world) tokens(key string, want int64) {
	w.Helper()
	w.stands(w.day(key, quota.Hold, 0), want, 0)
}

func (w *world) recovered(want journal.Report) {
	w.Helper()
	got, err := w.l.Recover(w.Context())
	if err != nil || got != want {
		w.Fatalf("Recover = %+v, %v, want %+v", got, err, want)
	}
}

func (w *world) replayed(since time.Time, want journal.Report) {
	w.Helper()
	got, err := w.l.Replay(w.Context(), since)
	if err != nil || got != want {
		w.Fatalf("Replay = %+v, %v, want %+v", got, err, want)
	}
}

// unanswered checks how many settlements the store has not answered.
func (w *world) unanswered(want int) {
	w.Helper()
	if st := w.j.Stats(); st.Unanswered != want {
		w.Fatalf("%d settlements are unanswered, want %d", st.Unanswered, want)
	}
}

// record is a log.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// count is how many lines have a text.
func (r *record) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), text)
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

func contextWithTimeout(w *world, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.Context(), d)
}
