package gate

import (
	stdheap "container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sim drives a Core in virtual time: flows of closed-loop workers or of calls
// that arrive at random, a provider that answers each after its own time, and
// the books of what every flow was served.
type sim struct {
	core  *Core
	cfg   Config
	rng   *rand.Rand
	now   time.Time
	start time.Time
	todo  events
	calls map[ID]*simCall
	flows []*simFlow

	inFlight, maxInFlight int
	largest, epsilon      float64 // U and eps of the bound, in quota-seconds over a weight of 1
	pairs                 []pair
	next                  time.Time // when the Core wants to be polled
}

// simFlow is one party: a number of workers that each have one call in line or
// in flight at all times, or calls that arrive at random.
type simFlow struct {
	name    string
	class   int
	weight  float64
	workers int
	every   time.Duration            // mean time between arrivals; 0 for workers
	draw    func(*rand.Rand) simWork // its next call
	from    time.Duration            // when it starts

	waiting int
	served  float64   // quota-seconds of actual usage, booked at the start of a call
	minutes []float64 // the same by minute
	starts  []int     // calls started by minute
	waits   []time.Duration
}

// simWork is what a call asks for, what it uses, and how long it takes.
type simWork struct {
	estimate, actual []int64
	hold             time.Duration
}

type simCall struct {
	simWork
	flow  *simFlow
	since time.Time
	again bool // a worker's: it makes the next call at once
}

// pair watches two flows for as long as both have calls waiting.
type pair struct {
	f, g      *simFlow
	both      bool
	low, high float64
	gap       float64 // largest seen
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type events struct {
	list []event
	seq  int
}

func (e *events) Len() int { return len(e.list) }
func (e *events) Less(i, j int) bool {
	a, b := e.list[i], e.list[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.seq < b.seq
}
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) }
func (e *events) Pop() any {
	x := e.list[len(e.list)-1]
	e.list = e.list[:len(e.list)-1]
	return x
}

func newSim(cfg Config, seed uint64, flows ...*simFlow) *sim {
	s := &sim{
		core: New(cfg), cfg: cfg, rng: rand.New(rand.NewPCG(seed, 1)),
		start: time.Unix(1_700_000_000, 0), calls: make(map[ID]*simCall), flows: flows,
	}
	s.now = s.start
	for i, f := range flows {
		if f.weight == 0 {
			f.weight = 1
		}
		s.at(f.from, func() { s.launch(f) })
		for _, g := range flows[:i] {
			s.pairs = append(s.pairs, pair{f: f, g: g})
		}
	}
	return s
}

func (s *sim) at(after time.Duration, do func()) { s.schedule(s.start.Add(after), do) }

func (s *sim) schedule(at time.Time, do func()) {
	s.todo.seq++
	stdheap.Push(&s.todo, event{at, s.todo.seq, do})
}

func (s *sim) launch(f *simFlow) {
	if f.every == 0 {
		for range f.workers {
			s.ask(f, true)
		}
		return
	}
	var arrive func()
	arrive = func() {
		s.ask(f, false)
		s.schedule(s.now.Add(time.Duration(s.rng.ExpFloat64()*float64(f.every))), arrive)
	}
	arrive()
}

// ask puts a call of the flow in line.
func (s *sim) ask(f *simFlow, again bool) {
	k := &simCall{simWork: f.draw(s.rng), flow: f, since: s.now, again: again}
	k.estimate, k.actual = k.estimate[:len(s.cfg.Dims)], k.actual[:len(s.cfg.Dims)]
	id, granted, refused := s.core.Enqueue(s.now, Spec{
		Class: f.class, Flow: f.name, FlowWeight: f.weight, Slots: 1, Costs: k.estimate,
	})
	if refused.Err != nil {
		panic(refused.Err)
	}
	s.calls[id] = k
	f.waiting++
	if granted {
		s.granted(id)
	}
}

// share is the dominant share in quota-seconds.
func (s *sim) share(units []int64, hold time.Duration) float64 {
	most := hold.Seconds() / float64(s.cfg.Slots)
	for i, n := range units {
		d := s.cfg.Dims[i]
		most = max(most, float64(n)*d.Window.Seconds()/float64(d.Limiter.Limit()))
	}
	return most
}

func (s *sim) granted(id ID) {
	k := s.calls[id]
	f := k.flow
	f.waiting--
	f.waits = append(f.waits, s.now.Sub(k.since))
	actual := s.share(k.actual, k.hold)
	f.served += actual
	minute := int(s.now.Sub(s.start) / time.Minute)
	for len(f.minutes) <= minute {
		f.minutes, f.starts = append(f.minutes, 0), append(f.starts, 0)
	}
	f.minutes[minute] += actual
	f.starts[minute]++
	charged := float64(id.c.flight.charged) / 1e9
	s.largest = max(s.largest, actual/f.weight, charged/f.weight)
	s.epsilon = max(s.epsilon, math.Abs(charged-actual)/f.weight)
	s.inFlight++
	s.maxInFlight = max(s.maxInFlight, s.inFlight)
	s.watch()
	s.schedule(s.now.Add(min(k.hold, time.Second)), func() { s.core.Counted(s.now, id) })
	s.schedule(s.now.Add(k.hold), func() {
		s.inFlight--
		delete(s.calls, id)
		s.core.FreeSlot(s.now, id)
		s.core.Settle(s.now, id, k.actual)
		s.core.End(s.now, id)
		if k.again {
			s.ask(f, true)
		}
	})
}

// watch brings the gaps up to date.
func (s *sim) watch() {
	for i := range s.pairs {
		p := &s.pairs[i]
		d := p.f.served/p.f.weight - p.g.served/p.g.weight
		if p.both {
			p.low, p.high = min(p.low, d), max(p.high, d)
			p.gap = max(p.gap, p.high-p.low)
		}
		if p.both = p.both && p.f.waiting > 0 && p.g.waiting > 0; !p.both {
			p.low, p.high = d, d
			p.both = p.f.waiting > 0 && p.g.waiting > 0
		}
	}
}

func (s *sim) poll() {
	grants, failed, next := s.core.Poll(s.now)
	if len(failed) > 0 {
		panic("a call without a deadline has failed")
	}
	for _, id := range slices.Clone(grants) {
		s.granted(id)
	}
	s.watch()
	s.next = next
}

// run lets so much virtual time pass.
func (s *sim) run(t testing.TB, d time.Duration) {
	t.Helper()
	end := s.now.Add(d)
	for {
		at := s.next
		if s.todo.Len() > 0 && (at.IsZero() || s.todo.list[0].at.Before(at)) {
			at = s.todo.list[0].at
		}
		if at.IsZero() || at.After(end) {
			break
		}
		s.now = at
		for s.todo.Len() > 0 && s.todo.list[0].at.Equal(at) {
			stdheap.Pop(&s.todo).(event).do()
		}
		s.poll()
	}
	s.now = end
}
