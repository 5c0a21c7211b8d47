package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/servers"
)

// argsVariable holds the arguments of a replica that runs as a process of a test.
const argsVariable = "FLEET_ARGS"

// TestReplica is the program, in a process of its own.
func TestReplica(t *testing.T) {
	if !servers.Respawned(t) {
		t.Skip("runs as a process of the other tests")
	}
	if code := run(context.Background(), strings.Fields(os.Getenv(argsVariable)), os.Stdout, os.Stderr); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
}

// fleet are the processes that share a quota.
type fleet struct {
	t      *testing.T
	double *gemini.Server
	args   []string
	began  time.Time
	lasts  time.Duration
	// reading counts the processes whose output is read.
	reading sync.WaitGroup

	mu sync.Mutex
	// mu guards:
	answered map[string]int // by replica
	reports  int
}

// The quota of the tests. Its window goes by some times.
const (
	window = 2 * time.Second
	rpm    = 60
	tpm    = 9_000
)

func newFleet(t *testing.T, redis string, lasts time.Duration, args ...string) *fleet {
	double, err := gemini.New(gemini.Config{
		RPM: rpm, TPM: tpm, WindowLength: window, Latency: 150 * time.Millisecond, TTFTShare: 0.5, LatencySigma: 0.4, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(double)
	t.Cleanup(srv.Close)
	f := &fleet{t: t, double: double, began: time.Now(), lasts: lasts, answered: map[string]int{}}
	f.args = append([]string{
		"-redis", redis, "-double", srv.URL, "-rpm", fmt.Sprint(rpm), "-tpm", fmt.Sprint(tpm), "-window", window.String(),
		"-slots", "16", "-users", "6", "-tokens", "300", "-ttl", "1s",
	}, args...)
	return f
}

// start starts a replica, which ends when the time of the fleet is over.
func (f *fleet) start(name string) *servers.Process {
	left := f.lasts - time.Since(f.began)
	args := append(append([]string(nil), f.args...), "-name", name, "-for", max(left, time.Millisecond).String())
	p := servers.Respawn(f.t, "TestReplica", argsVariable+"="+strings.Join(args, " "))
	f.reading.Go(func() { f.read(name, p) })
	return p
}

// read notes what a replica prints.
func (f *fleet) read(name string, p *servers.Process) {
	for line := range p.Lines() {
		f.mu.Lock()
		switch {
		case strings.Contains(line, " failed: "):
			f.t.Error(line)
		case strings.Contains(line, " answered after "):
			f.answered[name]++
		case strings.Contains(line, " on average"):
			f.reports++
			f.t.Log(line)
		}
		f.mu.Unlock()
	}
}

// wait waits for all processes to end.
func (f *fleet) wait(processes map[string]*servers.Process) {
	f.t.Helper()
	for name, p := range processes {
		if err := p.Wait(); err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
	}
	f.reading.Wait()
}

// check fails unless the provider has refused nothing, and had at no time to give more
// than its quota, while it was used.
func (f *fleet) check(replicas int, least float64) {
	f.t.Helper()
	s := f.double.Stats()
	if s.Refused != 0 {
		f.t.Errorf("the provider refused %d of %d requests: %v", s.Refused, s.Requests, s.RefusedBy)
	}
	for _, w := range s.Windows {
		if w.Share > 1 {
			f.t.Errorf("%d of %d %s were used in one window", w.Largest, w.Limit, w.Name)
		}
		f.t.Logf("%s: at most %d of %d in one window", w.Name, w.Largest, w.Limit)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for name, n := range f.answered {
		f.t.Logf("%s: %d calls answered", name, n)
		total += n
	}
	if len(f.answered) != replicas || f.reports != replicas {
		f.t.Errorf("%d replicas had answers, and %d ended by themselves, want %d", len(f.answered), f.reports, replicas)
	}
	// A call takes half of the most tokens on average, so that both limits bind.
	whole := f.lasts.Seconds() / window.Seconds() * rpm
	f.t.Logf("%d calls answered, %.0f %% of the quota", total, 100*float64(total)/whole)
	if float64(total) < least*whole {
		f.t.Errorf("%d calls were answered, want at least %.0f %% of %.0f", total, 100*least, whole)
	}
}

var names = []string{"north", "east", "south", "west"}

// Four processes share a quota. They are killed and started again at random; whatever
// they held is lost for a while, but none is ever refused, and every call of one that
// lives is answered.
func TestAFleetKeepsTheQuotaWhoeverIsKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, servers.SharedRedis(t).Addr(), 12*time.Second, "-quota", t.Name())
	rnd := rand.New(rand.NewPCG(1, 1))
	processes := map[string]*servers.Process{}
	for _, name := range names {
		processes[name] = f.start(name)
	}
	kills := 0
	for f.lasts-time.Since(f.began) > 4*time.Second {
		time.Sleep(time.Duration(300+rnd.IntN(600)) * time.Millisecond)
		name := names[rnd.IntN(len(names))]
		processes[name].Kill()
		kills++
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		processes[name] = f.start(name)
	}
	f.wait(processes)
	t.Logf("%d were killed", kills)
	f.check(len(names), 0.3)
}

// The store is killed and has lost everything when it comes back: the processes go on with
// their parts of the quota, and come back to it, and none is refused.
func TestAFleetGoesOnWhileItsStoreIsDown(t *testing.T) {
	t.Parallel()
	store := servers.StartRedis(t, servers.RedisOptions{})
	f := newFleet(t, store.Addr(), 12*time.Second)
	processes := map[string]*servers.Process{}
	for _, name := range names {
		processes[name] = f.start(name)
	}
	time.Sleep(3 * time.Second)
	store.Kill()
	time.Sleep(3 * time.Second)
	// Calls come in gushes, one in a window.
	before, since := f.double.Stats().Completed, time.Now()
	for f.double.Stats().Completed == before {
		if time.Since(since) > window+window/2 {
			t.Error("nobody was answered while the store was down")
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	store.Restart()
	f.wait(processes)
	f.check(len(names), 0.3)
}
