package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/journal"
)

// A process makes calls, a store fails in all ways and forgets what it has acknowledged,
// and the process dies now and then. In the end the counters have what was used: all of
// it, in its window, and once.
func TestCountersEqualWhatWasSettledWhateverFails(t *testing.T) {
	t.Parallel()
	runMachine(t, machine{length: 10 * time.Minute, step: 3 * time.Minute, most: 40 * time.Minute})
}

// The same over a day, in which the store forgets what has ended: what is doubtful is not
// charged, and nothing is charged twice.
func TestNothingIsChargedTwiceHoweverLateItIsTold(t *testing.T) {
	t.Parallel()
	runMachine(t, machine{length: 48 * time.Hour, step: 65 * time.Minute, most: 24 * time.Hour, late: true})
}

func runMachine(t *testing.T, is machine) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			w := &world{T: t, store: newStore(t), dir: t.TempDir(), log: &record{}}
			w.cfg = journal.Config{Sync: journal.SyncInterval, Workers: 3}
			w.cfg.Logger = slog.New(slog.NewTextHandler(w.log, nil))
			w.start()
			defer func() { w.stop() }()
			m := is
			m.world, m.calls, m.copied, m.since = w, map[string]*modelCall{}, w.store.snapshot(), time.Now()
			rt.Repeat(map[string]func(*rapid.T){
				"reserve":   m.reserveOne,
				"settle":    m.settleOne,
				"settle ":   m.settleOne, // it is done as often as reserve
				"adjust":    m.adjustOne,
				"release":   m.releaseOne,
				"again":     m.again,
				"copy":      m.copy,
				"fail over": m.failOver,
				"replay":    func(rt *rapid.T) { m.replay(rt) },
				"restart":   m.crash,
				"pass":      m.pass,
				"outage":    m.outage,
			})
			m.check(rt)
		})
		if failure != nil {
			panic(failure) // rapid's own, in the goroutine where it waits for it
		}
	})
}

// machine is what a process does, and a model of what that costs.
type machine struct {
	*world
	n      int
	calls  map[string]*modelCall // those of this process
	gone   []*modelCall          // those of processes that have died
	copied []byte
	since  time.Time // when it was copied
	lost   bool      // the store has failed over, and nothing was replayed since
	out    bool      // it cannot be reached for a while

	length time.Duration // of windows
	step   time.Duration // that passes at a time, or a part of it
	most   time.Duration // that passes in all
	past   time.Duration
	late   bool // that is more than the store remembers
}

// modelCall is a call, and what it costs in the end.
type modelCall struct {
	id, user string
	window   quota.Span
	turn     bool // it was counted as one
	used     int64
	most     int64 // of what it was ever settled to
	settled  bool
	answered bool // all that it was settled to
	seq      int64
	over     bool // it can only be told again
}

// window is an entry of a window.
func (m *machine) window(user string, kind quota.Kind, u quota.Unit, amount int64) quota.Entry {
	start := time.Now().UTC().Truncate(m.length)
	span := func(n int) quota.Span {
		at := start.Add(time.Duration(n) * m.length)
		return quota.Span{Start: at, End: at.Add(m.length)}
	}
	return quota.Entry{
		Counter: quota.Counter{Key: user, Window: "window", Unit: u}, Kind: kind, Amount: amount,
		Limit: 1 << 40, Ceiling: -1, Spans: [3]quota.Span{span(-1), span(0), span(1)},
	}
}

// outage begins an outage, or ends it.
func (m *machine) outage(*rapid.T) {
	m.out = !m.out
	if !m.out && m.late {
		m.forget()
	}
	m.mend()
}

// mend has the store do as it does at the time.
func (m *machine) mend() {
	if m.out {
		m.store.set(down)
	} else {
		m.store.set(fine)
	}
}

// fails has the store fail in one of the ways that there are, until mended.
func (m *machine) fails(t *rapid.T) fault {
	if m.out {
		return down
	}
	f := rapid.SampledFrom([]fault{fine, fine, down, lost}).Draw(t, "fault")
	m.store.set(f)
	return f
}

func (m *machine) reserveOne(t *rapid.T) {
	c := &modelCall{id: fmt.Sprint("call-", m.n), user: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user")}
	m.n++
	entries := []quota.Entry{m.window(c.user, quota.Hold, quota.Tokens, 50)}
	c.window = entries[0].Spans[1]
	f := m.fails(t)
	defer m.mend()
	if f != lost && rapid.Bool().Draw(t, "turn") { // of a turn whose reply is lost nobody knows
		entries = append(entries, m.window(c.user, quota.Count, quota.Turns, 1), m.lease(c.user))
		entries[2].Limit = -1
		c.turn = true
	}
	if _, err := m.l.Reserve(m.Context(), quota.Reserve{ID: c.id, Tree: tree, Entries: entries}); (err != nil) != (f != fine) {
		t.Fatalf("Reserve: %v", err)
	} else if err == nil {
		m.calls[c.id] = c
	}
}

// draw draws a call.
func (m *machine) draw(t *rapid.T, which func(c *modelCall) bool) *modelCall {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.calls)) {
		if which(m.calls[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("there is none")
	}
	return m.calls[rapid.SampledFrom(ids).Draw(t, "call")]
}

func (m *machine) settleOne(t *rapid.T) {
	c := m.draw(t, func(c *modelCall) bool { return !c.settled && !c.over })
	c.used, c.settled = rapid.Int64Range(0, 100).Draw(t, "used"), true
	m.tell(t, c)
}

func (m *machine) adjustOne(t *rapid.T) {
	c := m.draw(t, func(c *modelCall) bool { return c.settled && c.answered })
	c.used = rapid.Int64Range(0, 100).Draw(t, "used")
	c.seq++
	m.tell(t, c)
}

// again is what a caller does that got no answer.
func (m *machine) again(t *rapid.T) {
	m.tell(t, m.draw(t, func(c *modelCall) bool { return c.settled && !c.answered }))
}

func (m *machine) tell(t *rapid.T, c *modelCall) {
	f := m.fails(t)
	defer m.mend()
	s := used(c.id, c.used)
	s.Seq, s.Adjust = c.seq, c.seq > 0
	_, err := m.l.Settle(m.Context(), s)
	// A correction finds nothing in a store that has lost the call: Replay puts it right.
	if err != nil && f == fine && (c.seq == 0 || !m.lost) && !m.late {
		t.Fatalf("Settle: %v", err)
	}
	c.answered, c.most = err == nil, max(c.most, c.used)
}

func (m *machine) releaseOne(t *rapid.T) {
	c := m.draw(t, func(c *modelCall) bool { return !c.settled && !c.over })
	m.fails(t)
	defer m.mend()
	_ = m.l.Release(m.Context(), tree, c.id) // what is not released lapses
	c.over = true
}

func (m *machine) copy(t *rapid.T) {
	if m.lost {
		t.Skip("the store is not whole")
	}
	copied := m.store.snapshot()
	if err := newMemory(m).Restore(bytes.NewReader(copied)); err != nil {
		t.Skip(err) // a hold of nothing in a window in which nothing was spent
	}
	m.copied, m.since = copied, time.Now()
}

func (m *machine) failOver(*rapid.T) {
	m.store.failOver(m.copied)
	m.lost = true
}

func (m *machine) replay(t *rapid.T) {
	if m.out {
		t.Skip("there is an outage")
	}
	if m.late {
		report, err := m.l.Replay(m.Context(), m.since)
		if old := time.Since(m.since) > time.Hour; old != errors.Is(err, journal.ErrTooOld) {
			t.Fatalf("Replay since %v ago = %+v, %v", time.Since(m.since), report, err)
		}
		m.lost = false
		return
	}
	if report, err := m.l.Replay(m.Context(), m.since); err != nil {
		t.Fatalf("Replay = %+v, %v", report, err)
	}
	m.lost = false
}

func (m *machine) crash(*rapid.T) {
	m.restart()
	for _, c := range m.calls {
		m.gone = append(m.gone, c)
	}
	clear(m.calls)
}

func (m *machine) pass(t *rapid.T) {
	d := m.step / rapid.SampledFrom([]time.Duration{1, 1, 4, 60}).Draw(t, "part")
	if m.past+d > m.most {
		t.Skip("it is late")
	}
	m.past += d
	time.Sleep(d)
}

// check has all end, and looks at every counter.
func (m *machine) check(t *rapid.T) {
	m.out = false
	m.mend()
	if _, err := m.l.Recover(m.Context()); err != nil {
		t.Fatal(err)
	}
	m.replay(t)
	time.Sleep(quota.DefaultTTL + time.Minute) // what is open lapses
	m.unanswered(0)

	type place struct {
		user  string
		unit  quota.Unit
		start int64
	}
	want, got, recorded := map[place]int64{}, map[place]int64{}, map[place]int64{}
	for _, c := range append(m.gone, slices.Collect(maps.Values(m.calls))...) {
		if c.turn {
			want[place{c.user, quota.Turns, c.window.Start.Unix()}]++
		}
		if m.late { // nobody knows which of them came through
			c.used = c.most
		}
		if c.used > 0 {
			want[place{c.user, quota.Tokens, c.window.Start.Unix()}] += c.used
		}
	}
	for _, user := range []string{"ann", "bob"} {
		for _, u := range []quota.Unit{quota.Turns, quota.Tokens} {
			e := m.window(user, quota.Hold, u, 0)
			all, err := m.store.memory().Status(m.Context(), tree, e)
			if err != nil || all[0].Reserved != 0 {
				t.Fatalf("%+v, %v", all, err)
			}
			past, err := m.store.memory().History(m.Context(), tree, e.Counter, 99)
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range append(past, all...) {
				if st.Committed != 0 {
					got[place{user, u, st.Span.Start.Unix()}] += st.Committed
				}
			}
		}
	}
	if m.late {
		for at, n := range got {
			if n > want[at] {
				t.Fatalf("the counters are\n%v, want at most\n%v", got, want)
			}
		}
		return
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the counters are\n%v, want\n%v", got, want)
	}
	if err := m.l.Flush(m.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for r, err := range journal.All(m.dir) {
		if err != nil || seen[r.ID] {
			t.Fatalf("All has %+v, %v", r, err)
		}
		seen[r.ID] = true
		for _, c := range r.Charges() {
			recorded[place{c.Counter.Key, c.Counter.Unit, c.Span.Start.Unix()}] += c.Amount
		}
	}
	if !maps.Equal(recorded, want) {
		t.Fatalf("the records add up to\n%v, want\n%v", recorded, want)
	}
}
