package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/internal/servers"
)

// stack is a store with callers that are processes.
type stack struct {
	*testing.T
	chance *rand.Rand
	// at is where callers find the store, and direct where the test does.
	at, direct storeAt
	journaled  bool
	change     func(*caller)

	dir     string
	books   *books
	callers []*process
	ledger  quota.Ledger // of the test, without a journal
	begun   time.Time
	made    []string // what havoc was made

	watched sync.WaitGroup
	unwatch context.CancelFunc
}

// process is a caller as a process, of which there is always one.
type process struct {
	s *stack
	n int
	*servers.Process
	reader sync.WaitGroup
}

// callers is how many there are, and workers how many calls each makes at a time.
const (
	callers = 3
	workers = 3
)

var trees = []string{"acme", "globex"}

// newStack begins callers on a store.
func newStack(t *testing.T, at, direct storeAt, journaled bool) *stack {
	t.Helper()
	s := &stack{T: t, at: at, direct: direct, journaled: journaled}
	s.begin()
	return s
}

// begin opens the store and begins callers.
func (s *stack) begin() {
	t := s.T
	t.Helper()
	s.chance, s.dir, s.books, s.begun = chance(t), t.TempDir(), newBooks(), time.Now()
	ledger, end, err := s.direct.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.ledger = ledger
	t.Cleanup(func() {
		if err := ledger.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = end()
		if t.Failed() {
			for _, line := range s.made {
				t.Log(line)
			}
			s.books.mu.Lock()
			defer s.books.mu.Unlock()
			for why, n := range s.books.failed {
				t.Logf("%d times without an answer: %s", n, why)
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.unwatch = cancel
	s.watched.Go(func() { s.watch(ctx) })
	t.Cleanup(func() { cancel(); s.watched.Wait() })
	for n := range callers {
		p := &process{s: s, n: n}
		p.start()
		s.callers = append(s.callers, p)
	}
}

// journalOf is the directory of a caller's journal.
func (s *stack) journalOf(n int) string { return filepath.Join(s.dir, "journal-"+strconv.Itoa(n)) }

// journals are those of all callers.
func (s *stack) journals() (dirs []string) {
	for n := range s.callers {
		dirs = append(dirs, s.journalOf(n))
	}
	return dirs
}

// start begins a caller. Its clock and its zone are others than those of the rest.
func (p *process) start() {
	p.s.Helper()
	c := caller{
		Store: p.s.at, Trees: trees, Seed: p.s.chance.Uint64(), Workers: workers,
		Skew: time.Duration(p.n-1) * 50 * time.Second,
	}
	if p.s.journaled {
		c.Journal = p.s.journalOf(p.n)
	}
	if p.s.change != nil {
		p.s.change(&c)
	}
	text, err := json.Marshal(c)
	if err != nil {
		p.s.Fatal(err)
	}
	zones := []string{"UTC", "Pacific/Kiritimati", "America/St_Johns"}
	p.Process = servers.Respawn(p.s, "TestCaller", callerVariable+"="+string(text), "TZ="+zones[p.n%len(zones)])
	lines := p.Lines()
	p.reader.Go(func() {
		for line := range lines {
			p.s.books.note(line)
		}
	})
}

// end kills a caller, and notes the rest of what it has said.
func (p *process) end() {
	p.s.Helper()
	p.Kill()
	p.reader.Wait()
}

// watch looks at a limit that nothing may pass.
func (s *stack) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for _, tree := range trees {
			all, err := s.ledger.Status(ctx, tree, leaseOf(opener))
			if err != nil {
				continue
			}
			if n := all[0].Reserved; n > callsAtATime {
				s.Errorf("%d calls of %s in %s are under way at a time, %d may be", n, opener, tree, callsAtATime)
				return
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// fault is something that goes wrong.
type fault struct {
	name string
	do   func()
}

// havoc has things go wrong at random.
func (s *stack) havoc(d time.Duration, faults ...fault) {
	s.Helper()
	time.Sleep(200 * time.Millisecond)
	order := s.chance.Perm(len(faults)) // each once, and then any
	for i := 0; i < len(order) || time.Since(s.begun) < d; i++ {
		f := faults[s.chance.IntN(len(faults))]
		if i < len(order) {
			f = faults[order[i]]
		}
		s.made = append(s.made, fmt.Sprintf("%8v %s", time.Since(s.begun).Round(time.Millisecond), f.name))
		f.do()
		if s.Failed() {
			return
		}
		time.Sleep(between(s.chance, 100*time.Millisecond, 400*time.Millisecond))
	}
	_, denied, settled, _ := s.books.count()
	before := denied + settled // what had an answer
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, denied, settled, _ := s.books.count(); denied+settled >= before+10 {
			return
		}
		if time.Since(begun) > 20*time.Second {
			s.Error("all is well again, and callers do not go on")
			return
		}
	}
}

func (s *stack) anyCaller() *process { return s.callers[s.chance.IntN(len(s.callers))] }

// killCaller is a fault: a caller is killed, and another one takes its place.
func (s *stack) killCaller() fault {
	return fault{"a caller is killed", func() {
		p := s.anyCaller()
		p.end()
		p.start()
	}}
}

// pauseCaller is a fault: a caller stands still for longer than its holds live.
func (s *stack) pauseCaller() fault {
	return fault{"a caller stands still", func() {
		p := s.anyCaller()
		p.Pause()
		time.Sleep(between(s.chance, ttl/10, ttl+500*time.Millisecond))
		p.Resume()
	}}
}

// server is a server that can be treated badly.
type server interface {
	Kill()
	Restart()
	Pause()
	Resume()
}

// serverFaults are those of a server and of the network before it.
func (s *stack) serverFaults(server server, net *servers.Proxy) []fault {
	wait := func(low, high time.Duration) { time.Sleep(between(s.chance, low, high)) }
	return []fault{
		{"the server is killed", func() {
			server.Kill()
			wait(0, 300*time.Millisecond)
			server.Restart()
		}},
		{"the server stands still", func() {
			server.Pause()
			wait(50*time.Millisecond, 2*timeout)
			server.Resume()
		}},
		{"replies are lost", func() { net.DropReplies(1 + s.chance.IntN(20)) }},
		{"the network is cut", func() {
			net.Cut()
			wait(0, 300*time.Millisecond)
			net.Mend()
		}},
		{"the network stands still", func() {
			net.Stall(true)
			wait(50*time.Millisecond, 2*timeout)
			net.Stall(false)
		}},
	}
}

// settle kills all callers, and compares what is left with what they have said. quiet waits
// until the server has done what they have sent to it; nil is when they are gone.
func (s *stack) settle(quiet func()) {
	s.Helper()
	for _, p := range s.callers {
		p.end()
	}
	if quiet != nil {
		quiet()
	}
	s.unwatch()
	s.watched.Wait()
	elapsed := time.Since(s.begun)
	s.books.complaints(s.T)
	lapse(s.T, s.ledger, trees)
	var recorded map[string]bool
	if s.journaled {
		recorded = s.tellAgain()
	}
	least, most := s.books.acknowledged()
	have := s.books.standing(s.T, s.ledger)
	have.within(s.T, "after havoc", least, most)
	doubtful := s.books.resolve(s.T, s.ledger, recorded)
	least, most = s.books.acknowledged()
	have = s.books.standing(s.T, s.ledger)
	have.within(s.T, "when all calls have ended", least, most)
	s.books.bounds(s.T, elapsed, nil)
	if s.journaled {
		s.books.audit(s.T, have, s.journals())
	}
	all, denied, settled, late := s.books.count()
	s.Logf("%d calls, %d denied, %d settled, %d of them late, %d that nobody was told of", all, denied, settled, late, doubtful)
	if settled < 10 {
		s.Errorf("only %d calls were settled: nothing was tested", settled)
	}
}

// lapse waits until nothing is held any more, which is when the TTL of all holds is over. All
// callers are gone.
func lapse(t *testing.T, ledger quota.Ledger, trees []string) {
	t.Helper()
	for dead := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		held := ""
		for _, tree := range trees {
			var entries []quota.Entry
			for _, user := range users {
				entries = append(entries, totalOf(user), minuteOf(user, time.Now()), leaseOf(user))
			}
			for _, st := range statusOf(t, ledger, tree, entries) {
				if st.Reserved != 0 {
					held += fmt.Sprintf(" %d %v of %s in %s", st.Reserved, st.Counter.Unit, st.Counter.Key, tree)
				}
			}
		}
		if held == "" {
			return
		}
		if time.Since(dead) > ttl+lapseMargin {
			t.Fatalf("%v after all callers are gone, whose holds live for %v, there is still held:%s", time.Since(dead).Round(time.Millisecond), ttl, held)
		}
	}
}
