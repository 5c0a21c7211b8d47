package quota_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/ledgertest"
)

// restarting is a ledger that is written, and read into a new one, before each of
// its first operations, and before some of the later ones.
type restarting struct {
	t   testing.TB
	mu  sync.Mutex
	m   *quota.Memory
	ops int
}

func (r *restarting) restart() (m *quota.Memory, unlock func()) {
	r.mu.Lock()
	if r.ops++; r.ops > 12 && r.ops%23 != 0 || r.ops > 500 && r.ops != 5000 {
		return r.m, r.mu.Unlock
	}
	next, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		r.t.Fatal(err)
	}
	quota.Step(next, quota.Skew(r.m))
	var file bytes.Buffer
	if err := r.m.Snapshot(&file); err != nil {
		r.t.Fatal(err)
	}
	text := file.String()
	if err := next.Restore(&file); err != nil {
		r.t.Fatalf("Restore: %v\n%s", err, text)
	}
	if r.m.Healthy(context.Background()) == nil {
		r.m = next
	}
	return r.m, r.mu.Unlock
}

// step sets the clock, and returns how far it is from the program's.
func (r *restarting) step(d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	quota.Step(r.m, d)
	return quota.Skew(r.m)
}

func (r *restarting) Reserve(ctx context.Context, x quota.Reserve) (quota.Reserved, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.Reserve(ctx, x)
}

func (r *restarting) Settle(ctx context.Context, x quota.Settle) (quota.Settled, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.Settle(ctx, x)
}

func (r *restarting) Release(ctx context.Context, tree, id string) error {
	m, unlock := r.restart()
	defer unlock()
	return m.Release(ctx, tree, id)
}

func (r *restarting) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) ([]string, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.Renew(ctx, tree, ttl, ids...)
}

func (r *restarting) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.Status(ctx, tree, entries...)
}

func (r *restarting) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.TopUp(ctx, tree, e, amount)
}

func (r *restarting) Reset(ctx context.Context, tree string, e quota.Entry) (quota.Status, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.Reset(ctx, tree, e)
}

func (r *restarting) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	m, unlock := r.restart()
	defer unlock()
	return m.History(ctx, tree, c, n)
}

func (r *restarting) Erase(ctx context.Context, tree, key string) error {
	m, unlock := r.restart()
	defer unlock()
	return m.Erase(ctx, tree, key)
}

func (r *restarting) Healthy(ctx context.Context) error {
	m, unlock := r.restart()
	defer unlock()
	return m.Healthy(ctx)
}

func (r *restarting) Flush(ctx context.Context) error {
	m, unlock := r.restart()
	defer unlock()
	return m.Flush(ctx)
}

func (r *restarting) Close(ctx context.Context) error {
	m, unlock := r.restart()
	defer unlock()
	return m.Close(ctx)
}

func TestRestartsGoUnnoticed(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t testing.TB) ledgertest.Store {
		r := &restarting{t: t, m: newMemory(t, quota.MemoryConfig{})}
		return ledgertest.Store{
			Ledger:  r,
			Now:     func() time.Time { return time.Now().Add(r.step(0)) },
			SetBack: func(d time.Duration) { r.step(-d) },
		}
	}, ledgertest.Options{Virtual: true})
}

func snapshotOf(t testing.TB, m *quota.Memory) string {
	t.Helper()
	var file bytes.Buffer
	if err := m.Snapshot(&file); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

func TestTimePassesBetweenSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{})
		mustReserve(t, m, "t", "call", hourly("u", quota.Hold, 5, 100), perMinute("u", quota.Hold, 60, 60))
		mustReserve(t, m, "t", "turn", allTime("u", quota.Lease, 1, 1))
		mustSettle(t, m, "t", "call", 60)
		file := snapshotOf(t, m)
		for _, c := range []struct {
			down                      time.Duration
			step                      time.Duration // of the wall clock, besides
			committed, missing, lease int64
		}{
			{20 * time.Second, 0, 60, 40, 1},
			{10 * time.Minute, 0, 60, 0, 0},
			{2 * time.Hour, 0, 0, 0, 0},
			{0, -time.Hour, 0, 60, 1}, // set back: nothing is refilled, and the refill goes on
		} {
			synctestSleep := c.down
			m := newMemory(t, quota.MemoryConfig{})
			quota.Step(m, synctestSleep+c.step)
			if err := m.Restore(strings.NewReader(file)); err != nil {
				t.Fatal(err)
			}
			hour := hourly("u", quota.Hold, 0, 100)
			for i := range hour.Spans { // around the ledger's time
				d := (c.down + c.step).Truncate(time.Hour)
				hour.Spans[i] = quota.Span{Start: hour.Spans[i].Start.Add(d), End: hour.Spans[i].End.Add(d)}
			}
			got := [3]int64{
				statusOf(t, m, "t", hour).Committed,
				statusOf(t, m, "t", perMinute("u", quota.Hold, 0, 60)).Committed,
				statusOf(t, m, "t", allTime("u", quota.Lease, 0, 1)).Reserved,
			}
			if got != [3]int64{c.committed, c.missing, c.lease} {
				t.Errorf("after %v, set by %v: committed, missing and leased are %v, want %v",
					c.down, c.step, got, [3]int64{c.committed, c.missing, c.lease})
			}
		}
		m = newMemory(t, quota.MemoryConfig{})
		quota.Step(m, -time.Hour)
		if err := m.Restore(strings.NewReader(file)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if st := statusOf(t, m, "t", perMinute("u", quota.Hold, 0, 60)); st.Committed != 40 {
			t.Errorf("20s after a restart with the clock set back: %+v, want 40 missing", st)
		}
	})
}

func TestRestoreIsForNewLedgersOnly(t *testing.T) {
	t.Parallel()
	m := newMemory(t, quota.MemoryConfig{})
	file := snapshotOf(t, m)
	mustReserve(t, m, "t", "a", allTime("u", quota.Hold, 5, 10))
	if err := m.Restore(strings.NewReader(file)); err == nil {
		t.Error("restored into a ledger that has been used")
	}
	if st := statusOf(t, m, "t", allTime("u", quota.Hold, 0, 10)); st.Reserved != 5 {
		t.Errorf("afterwards stands at %+v", st)
	}
}

// The file is a promise to those who have one: this is what version 1 looks like.
func TestRestoreReadsVersion1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, err := os.ReadFile(filepath.Join("testdata", "memory_v1.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		m := newMemory(t, quota.MemoryConfig{})
		if err := m.Restore(bytes.NewReader(file)); err != nil {
			t.Fatal(err)
		}
		if st := statusOf(t, m, "tenant=acme", hourly("tenant=acme/user=alice", quota.Hold, 0, 100)); st.Committed != 7 || st.Reserved != 30 {
			t.Errorf("alice stands at %+v", st)
		}
		if st := statusOf(t, m, "tenant=acme", perMinute("tenant=acme", quota.Hold, 0, 60)); st.Committed != 37 || st.Reserved != 30 {
			t.Errorf("acme stands at %+v", st)
		}
		if res := mustSettle(t, m, "tenant=acme", "settled", 99); !res.Repeated || res.Status[0].Committed != 7 {
			t.Errorf("repeated Settle = %+v", res)
		}
		if res := mustSettle(t, m, "tenant=acme", "open", 10); res.Repeated || res.Status[0].Committed != 17 || res.Status[1].Committed != 17 {
			t.Errorf("Settle = %+v", res)
		}
	})
}

func TestRestoreNamesTheLineAndWhatIsWrong(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("testdata", "memory_v1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(file)
	for _, c := range []struct{ old, new, want string }{
		{`{"headgate_ledger":1`, `{"headgate_ledger":2`, "line 1: headgate_ledger is 2, this program reads 1"},
		{`{"headgate_ledger":1`, `{"x":1`, "line 1: "},
		{`"committed":7`, `"committed":-7`, "committed is -7"},
		{`"unit":"tokens"`, `"unit":"gold"`, `unit is "gold"`},
		{`"per":60000000000`, `"per":-1`, "per is -1"},
		{`"id":"open"`, `"id":"settled"`, "reservation is there twice"},
		{`"id":"open"`, `"id":""`, "ID has 0 bytes"},
		{`"state":"open"`, `"state":"lost"`, `state is "lost"`},
		{`"kind":"hold"`, `"kind":"steal"`, `kind is "steal"`},
		{`"entries":2`, `"entries":2,"over":[2]`, "over is [2]"},
		{`"entries":2`, `"entries":2,"wait":-1`, "wait is -1ns"},
		{`"mark":2`, `"mark":9223372036854775807`, "mark is 9223372036854775807"},
		{`"amount":30`, `"amount":9223372036854775807`, "no room"},
		{`{"end":true`, `{"end":false`, "has nothing that is known"},
		{`"lines":5`, `"lines":6`, "lines is 6, there are 5"},
		{"\n{\"end\"", "\n\n{\"end\"", "line 6: EOF"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%q is not in the file", c.old)
		}
		m := newMemory(t, quota.MemoryConfig{})
		err := m.Restore(strings.NewReader(strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want one with %q", c.new, err, c.want)
		}
		if st := m.Stats(); st != (quota.MemoryStats{}) {
			t.Errorf("%s: the ledger has %+v afterwards", c.new, st)
		}
	}
	lines := strings.SplitAfter(good, "\n")
	for n := range len(lines) - 1 {
		m := newMemory(t, quota.MemoryConfig{})
		if err := m.Restore(strings.NewReader(strings.Join(lines[:n], ""))); err == nil && n < len(lines)-1 {
			t.Errorf("a file that is torn after line %d was read", n)
		}
	}
}

// Settle takes whatever a call turns out to count against, and what it has taken can
// be read again.
func TestRestoreReadsCallsThatCountAgainstVeryMuch(t *testing.T) {
	t.Parallel()
	m := newMemory(t, quota.MemoryConfig{})
	mustReserve(t, m, "acme", "call", hourly("acme", quota.Hold, 1, 100))
	for seq := range int64(5) {
		var more []quota.Entry
		for i := range quota.MaxEntries {
			e := hourly("acme", quota.Count, 1, 100)
			e.Window = fmt.Sprintf("hour-%d-%d", seq, i)
			more = append(more, e)
		}
		if _, err := m.Settle(t.Context(), quota.Settle{ID: "call", Tree: "acme", More: more, Adjust: true, Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	if err := newMemory(t, quota.MemoryConfig{}).Restore(strings.NewReader(snapshotOf(t, m))); err != nil {
		t.Error(err)
	}
}

// Whatever is read is as good as what was written: it can be used, and written and
// read again.
func FuzzRestore(f *testing.F) {
	file, err := os.ReadFile(filepath.Join("testdata", "memory_v1.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Fuzz(func(t *testing.T, file []byte) {
		m := newMemory(t, quota.MemoryConfig{})
		if m.Restore(bytes.NewReader(file)) != nil {
			return
		}
		tree := "tenant=acme"
		ctx := t.Context()
		for _, id := range []string{"settled", "open"} {
			_, _ = m.Settle(ctx, quota.Settle{ID: id, Tree: tree, Adjust: true, Seq: 9, Actual: quota.Amounts{quota.Tokens: 10}})
			_ = m.Release(ctx, tree, id)
		}
		e := []quota.Entry{hourly("tenant=acme/user=alice", quota.Hold, 5, 100), perMinute("tenant=acme", quota.Hold, 5, 100)}
		res, err := m.Reserve(ctx, quota.Reserve{ID: "new", Tree: tree, Entries: e})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range res.Status {
			if st.Committed < 0 || st.Reserved < 0 {
				t.Fatalf("stands at %+v", st)
			}
		}
		again := newMemory(t, quota.MemoryConfig{})
		if err := again.Restore(strings.NewReader(snapshotOf(t, m))); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}

func TestAHoldOfNothingInAWindowThatIsPastIsRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, quota.MemoryConfig{})
		time.Sleep(59 * time.Minute)
		mustReserve(t, m, "t", "call", hourly("u", quota.Hold, 0, 100))
		time.Sleep(2 * time.Minute)
		mustReserve(t, m, "t", "next", hourly("u", quota.Hold, 5, 100))
		after := newMemory(t, quota.MemoryConfig{})
		if err := after.Restore(strings.NewReader(snapshotOf(t, m))); err != nil {
			t.Fatal(err)
		}
		mustSettle(t, after, "t", "call", 7) // in its own window
		past, err := after.History(t.Context(), "t", hourly("u", quota.Hold, 0, 100).Counter, 2)
		if err != nil || len(past) != 1 || past[0].Committed != 7 {
			t.Errorf("%+v, %v, want 7 in the window before", past, err)
		}
	})
}
