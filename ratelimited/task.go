package ratelimited

import (
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/gate"
)

// task is what a goroutine that finds mu taken leaves to the one that has it:
// the end of a call, or a call that gets in line. Neither needs an answer before
// it can go on, so that nobody waits for the lock, and the gate's memory stays in
// the cache of one processor (flat combining: Hendler, Incze, Shavit, Tzafrir,
// SPAA 2010). Tasks are done in the order in which they were posted.
type task struct {
	next    *task
	arrival *arrival      // of a call that gets in line; nil for an end
	id      gate.ID       // of the call: given for an end, told for an arrival
	at      time.Duration // of an end: when it came, after the gate's epoch
	success bool          // of an end: the provider has answered
	limits  int8          // how many costs there are; see held
	costs   costs
}

// held, in place of a number of costs, stands for what the call was admitted
// with.
const held = -1

// arrival is a call that gets in line, posted.
type arrival struct {
	task
	entry     entry
	raw       costs // of the estimate before it was corrected
	corrected bool  // raw is given

	ready chan struct{} // the waiter waits on it; it has room for one
	err   error
	// kept: the core has the channel now, and spare is what it had before.
	kept  bool
	spare chan struct{}
}

// pools keep what posting needs for the next time. They are the gate's, because
// the channels in them belong to where the gate is used: tests in virtual time
// may not share them.
type pools struct {
	ends     sync.Pool // of *task
	arrivals sync.Pool // of *arrival
	asides   sync.Pool // of *aside
}

func (p *pools) init() {
	p.ends.New = func() any { return new(task) }
	p.arrivals.New = func() any {
		a := &arrival{ready: make(chan struct{}, 1)}
		a.arrival = a
		return a
	}
	p.asides.New = func() any { return &aside{done: make(chan struct{}, 1)} }
}

// post leaves a task to whoever has mu, or does it.
func (g *Gate) post(t *task) {
	for {
		t.next = g.posted.Load()
		if g.posted.CompareAndSwap(t.next, t) {
			break
		}
	}
	g.serve()
}

// postEnd posts the end of a call; costs must be few.
func (g *Gate) postEnd(at time.Duration, id gate.ID, costs []int64, success bool) {
	t := g.pools.ends.Get().(*task)
	t.at, t.id, t.success, t.limits = at, id, success, held
	if costs != nil {
		t.limits = int8(copy(t.costs[:], costs))
	}
	g.post(t)
}

// postArrival posts a call that gets in line; n must be few.
func (g *Gate) postArrival(e *entry, n, raw []int64) *arrival {
	a := g.pools.arrivals.Get().(*arrival)
	a.entry = *e
	a.limits = int8(copy(a.costs[:], n))
	a.corrected = raw != nil
	copy(a.raw[:], raw)
	g.post(&a.task)
	return a
}

// drain does what was posted. mu is held.
func (g *Gate) drain() {
	if g.posted.Load() != nil {
		g.drainAll()
	}
}

func (g *Gate) drainAll() {
	var first *task // the list has the latest first
	for t := g.posted.Swap(nil); t != nil; {
		next := t.next
		t.next, first = first, t
		t = next
	}
	ended := time.Duration(-1)
	for t := first; t != nil; {
		next := t.next
		t.next = nil
		if a := t.arrival; a != nil {
			g.arrive(a)
		} else {
			ended = t.at
			g.finish(t)
			t.id = gate.ID{}
			g.pools.ends.Put(t)
		}
		t = next
	}
	if ended >= 0 {
		g.poll(g.epoch.Add(ended))
		g.noteCompany()
	}
}

// finish ends a call whose end was posted. mu is held.
func (g *Gate) finish(t *task) {
	var n []int64
	if t.limits != held {
		n = t.costs[:t.limits]
	}
	g.endRunning(g.epoch.Add(t.at), t.id, n, t.success)
}

// arrive takes a posted call in, and answers at once if it need not wait. mu is
// held.
func (g *Gate) arrive(a *arrival) {
	var raw []int64
	if a.corrected {
		raw = a.raw[:a.limits]
	}
	id, inLine, err := g.admit(&a.entry, a.costs[:a.limits], raw, a)
	if inLine == nil {
		a.id, a.err = id, err
		a.ready <- struct{}{}
	}
}

// answer tells what became of a posted call, once it was taken in; received is
// whether its channel has said so.
func (g *Gate) answer(a *arrival, received bool) (gate.ID, error) {
	id, err := a.id, a.err
	switch {
	case a.kept:
		a.ready, a.spare, a.kept = a.spare, nil, false
		if a.ready == nil {
			a.ready = make(chan struct{}, 1)
		}
	case !received:
		<-a.ready // it is there
	}
	a.entry.flow, a.entry.request, a.entry.revised = "", "", nil
	a.id, a.err = gate.ID{}, nil
	g.pools.arrivals.Put(a)
	return id, err
}
