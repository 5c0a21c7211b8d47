package share_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"pgregory.net/rapid"
)

// quota is a small one of all shapes: everything binds.
func quota() []share.Dim {
	return []share.Dim{
		{Shape: share.Bucket, Limit: 600, Burst: 200, Window: 20 * time.Second},
		{Shape: share.Window, Limit: 300, Window: 20 * time.Second},
		{Shape: share.Slots, Limit: 9},
	}
}

// setting is what may happen to a fleet.
type setting struct {
	name   string
	mode   share.Mode
	debit  bool // at the grant: without the guard
	lost   bool // messages are lost, late and repeated
	crash  bool // replicas crash and come back
	clocks bool // on a host whose clock may be behind
	outage bool // the store is down for a while
	state  bool // and loses its state
}

// machine does to a fleet what the data says.
func machine(fail func(string, ...any), s setting, seed uint64, ops []uint16) *world {
	cfg := worldConfig{Late: 2 * time.Second, Way: 100 * time.Millisecond, Timeout: time.Second}
	cfg.Dims, cfg.DebitAtGrant = quota(), s.debit
	cfg.Lessee.Mode, cfg.Lessee.Fallback, cfg.Clocks = s.mode, -1, s.clocks
	if s.outage {
		cfg.Lessee.Fallback = 0
	}
	if s.lost {
		cfg.Way, cfg.Lost, cfg.Twice = 900*time.Millisecond, 15, 10
	}
	most := []int64{60, 40, 2}
	if s.outage || s.mode == share.Static {
		most = []int64{25, 30, 1} // within a replica's part
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(cfg, rnd, fail)
	w.cfg.Replicas = 1 + rnd.IntN(5)
	w.coordinator = w.newCoordinator()
	for range w.cfg.Replicas {
		w.join()
	}
	w.advance(25 * time.Second) // all know how many they are
	for _, op := range ops {
		n := w.replicas[int(op>>8)%len(w.replicas)]
		switch op := op & 0xff; {
		case op < 90:
			if n.lessee != nil {
				for range 1 + rnd.IntN(6) {
					n.queue = append(n.queue, []int64{1 + rnd.Int64N(most[0]), 1 + rnd.Int64N(most[1]), 1 + rnd.Int64N(most[2])})
				}
			}
		case op < 96 && most[0] == 60:
			if n.lessee != nil {
				n.queue = append(n.queue, []int64{200, 300, 1}) // as much as there ever is
			}
		case op < 104:
			n.queue = nil
		case op < 112 && s.crash:
			if n.lessee != nil {
				w.crash(n)
			}
		case op < 124 && s.crash:
			if n.lessee == nil {
				w.start(n)
			}
		case op < 127 && s.crash && len(w.replicas) < 8:
			w.join()
		case op < 130 && s.outage:
			w.down = true
		case op < 140 && s.outage:
			if w.down && s.state {
				w.lose()
			}
			w.down = false
		case op < 200:
			w.advance(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		default:
			w.advance(time.Duration(rnd.IntN(8000)) * time.Millisecond)
		}
		w.check()
	}
	w.calm()
	return w
}

// calm lets everything end. Whoever waits must be served, and nothing may be lost:
// in the end all of the quota is there again, and nobody has any of it.
func (w *world) calm() {
	w.down, w.cfg.Lost, w.cfg.Twice = false, 0, 0
	for _, n := range w.replicas {
		if n.lessee == nil {
			w.start(n)
		}
	}
	busy := func() bool {
		return slices.ContainsFunc(w.replicas, func(n *node) bool { return len(n.queue) > 0 })
	}
	for began := w.now; busy() && w.now.Sub(began) < time.Hour; {
		w.advance(10 * time.Second)
		w.check()
	}
	w.advance(2 * time.Minute)
	w.check()
	for _, n := range w.replicas {
		if len(n.queue) > 0 {
			w.fail("%s waits for ever for %v, and %d more", n.name, n.queue[0], len(n.queue)-1)
		}
	}
	for i, b := range w.coordinator.Books(w.now) {
		if b.Outstanding != 0 || b.Level != b.Limit && w.cfg.Dims[i].Shape != share.Bucket || b.Level != float64(w.cfg.Dims[i].Burst) && w.cfg.Dims[i].Shape == share.Bucket {
			w.fail("long after the last call the books of dimension %d are %+v", i, b)
		}
	}
}

var settings = []setting{
	{name: "leased"},
	{name: "central", mode: share.Central},
	{name: "leased, messages are lost, late and repeated", lost: true},
	{name: "central, messages are lost, late and repeated", mode: share.Central, lost: true},
	{name: "leased, replicas crash", crash: true},
	{name: "leased, replicas crash and messages are lost", crash: true, lost: true},
	{name: "central, replicas crash and messages are lost", mode: share.Central, crash: true, lost: true},
	{name: "leased, replicas crash and come back under older clocks", crash: true, clocks: true},
	{name: "central, replicas crash and come back under older clocks, and messages are lost", mode: share.Central, crash: true, clocks: true, lost: true},
	{name: "leased, the store is down at times", outage: true},
	{name: "central, the store is down at times", mode: share.Central, outage: true},
	{name: "leased, the store loses its state", outage: true, state: true},
	{name: "static", mode: share.Static},
	{name: "static, replicas crash", mode: share.Static, crash: true},
	{name: "static, replicas crash and come back under older clocks", mode: share.Static, crash: true, clocks: true},
}

// Whatever is lost, late or repeated, and whoever crashes: the provider, which
// counts each request up to two seconds after it was admitted, is never asked for
// more than its window or its bucket has, nor for more calls at a time than there are
// slots; and when all is over everything is there again.
func TestTheProviderIsNeverAskedForMoreThanItHas(t *testing.T) {
	t.Parallel()
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				seed := rapid.Uint64().Draw(t, "seed")
				ops := rapid.SliceOfN(rapid.Uint16(), 20, 100).Draw(t, "ops")
				machine(t.Fatalf, s, seed, ops)
			})
		})
	}
}

// The guard for spend after debit matters: a coordinator that books units as spent
// when it grants them, as a central bucket or window would, asks a bucket and a window
// for more than they have, though nothing goes wrong.
func TestWithoutTheGuardTheProviderIsAskedForMore(t *testing.T) {
	t.Parallel()
	for _, mode := range []share.Mode{share.Leased, share.Central} {
		over := make([]float64, 2)
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			ops := make([]uint16, 100)
			for i := range ops {
				ops[i] = uint16(rnd.Uint32())
			}
			w := machine(func(string, ...any) {}, setting{mode: mode, debit: true}, seed, ops)
			for i, p := range w.providers {
				over[i] = max(over[i], p.worst/float64(p.dim.Limit))
			}
		}
		t.Logf("%v without the guard: the bucket was asked for %.1f %% of its limit more than it had, the window for %.1f %%", mode, 100*over[0], 100*over[1])
		if over[0] < 0.01 || over[1] < 0.05 {
			t.Errorf("%v: it makes no difference", mode)
		}
	}
}
