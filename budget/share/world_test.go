package share_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/share"
)

// world is replicas, the network between them and a coordinator, and a provider
// that looks at every request as it comes in. Its time is its own, and all chance
// comes from rnd.
type world struct {
	fail func(format string, args ...any)
	rnd  *rand.Rand
	cfg  worldConfig

	now         time.Time
	coordinator *share.Coordinator
	epoch       int64
	replicas    []*node
	events      events
	providers   []*provider   // per dimension but the slots
	runs        map[*run]bool // in flight
	down        bool

	slots    int64 // in use
	orphans  int64 // slots of calls whose lease has ended
	requests int
	seq      int
	stale    int

	exact   bool // calls use what they were held at
	onStart func(n *node, costs []int64, at time.Time)
}

type worldConfig struct {
	share.CoordinatorConfig
	Lessee share.LesseeConfig
	// Late is the longest time from admission to the provider.
	Late time.Duration
	// Way is the longest time of a message, and Lost and Twice the chance in a
	// hundred that it is lost or comes again later.
	Way         time.Duration
	Lost, Twice int
	// Clocks of the hosts differ, on which the lives of a replica run.
	Clocks bool
	// Timeout of a request.
	Timeout time.Duration
}

// node is a replica.
type node struct {
	name   string
	life   int64
	behind bool // the clock of its next life may be behind
	lessee *share.Lessee
	queue  [][]int64 // costs of calls that wait
	flows  int
	asked  *message // the request that it waits for
	gaveUp time.Time
	heard  time.Time // when the coordinator took something in
	taken  []int64   // in all
}

// message is a request on its way, and then its reply.
type message struct {
	from  *node
	life  int64 // of the node
	req   share.Request
	reply *share.Reply
}

// run is a call in flight.
type run struct {
	by       *node
	life     int64
	holds    []budget.Hold
	costs    []int64
	actual   []int64
	slots    int64
	orphaned bool
	marks    []int // of each provider's entry
}

// provider is one dimension as the provider enforces it, exactly.
type provider struct {
	dim    share.Dim
	log    []entry // of a window, in order
	first  int     // of them, that is still in the window
	sum    int64   // of these
	level  float64 // of a bucket
	at     time.Time
	worst  float64 // how far over the limit it was, in units
	served int64
}

type entry struct {
	at     time.Time
	amount int64
}

func newWorld(cfg worldConfig, rnd *rand.Rand, fail func(string, ...any)) *world {
	w := &world{cfg: cfg, rnd: rnd, fail: fail, now: time.Unix(1_000_000, 0), epoch: 1, runs: make(map[*run]bool)}
	w.cfg.Lessee.Dims = cfg.Dims
	w.coordinator = w.newCoordinator()
	for _, d := range cfg.Dims {
		if d.Shape != share.Slots {
			if d.Window == 0 {
				d.Window = time.Minute
			}
			w.providers = append(w.providers, &provider{dim: d, level: float64(d.Burst), at: w.now})
		}
	}
	return w
}

func (w *world) newCoordinator() *share.Coordinator {
	cfg := w.cfg.CoordinatorConfig
	cfg.Epoch = w.epoch
	c, err := share.NewCoordinator(cfg)
	if err != nil {
		w.fail("%v", err)
	}
	return c
}

func (w *world) join() *node {
	n := &node{name: fmt.Sprint("r", len(w.replicas)), taken: make([]int64, len(w.providers))}
	w.replicas = append(w.replicas, n)
	w.start(n)
	return n
}

// start begins another life of a replica. Where clocks differ, its epoch may be older than
// that of a life before it, which the coordinator has heard of.
func (w *world) start(n *node) {
	n.life++
	cfg := w.cfg.Lessee
	cfg.Replica, cfg.Epoch = n.name, n.life<<40
	if w.cfg.Clocks && n.behind {
		cfg.Epoch = 1 + w.rnd.Int64N(cfg.Epoch)
	}
	n.behind = false
	l, err := share.NewLessee(cfg)
	if err != nil {
		w.fail("%v", err)
	}
	n.lessee, n.asked, n.heard = l, nil, w.now
}

// crash ends a replica: what it has sent goes on.
func (w *world) crash(n *node) {
	n.queue = nil
	for r := range w.runs {
		if r.by == n && r.life == n.life && !r.orphaned {
			r.orphaned = true
			w.orphans += r.slots
		}
	}
	n.lessee = nil
}

// lose loses the coordinator's state.
func (w *world) lose() {
	w.epoch++
	w.cfg.Learn = true
	w.coordinator = w.newCoordinator()
}

// advance lets time pass, one event after the other.
func (w *world) advance(d time.Duration) {
	until := w.now.Add(d)
	for spins, at := 0, w.now; ; spins++ {
		if w.now.After(at) {
			spins, at = 0, w.now
		} else if spins > 10_000 {
			for _, n := range w.replicas {
				if n.lessee != nil {
					println(n.name)
				}
			}
			w.fail("time stands still")
		}
		next := until
		if len(w.events) > 0 {
			next = earlier(next, w.events[0].at)
		}
		for _, n := range w.replicas {
			if n.lessee == nil {
				continue
			}
			if n.asked != nil {
				next = earlier(next, n.gaveUp)
			}
			if due := n.lessee.Due(w.now); !due.IsZero() {
				next = earlier(next, due)
			}
		}
		if next.After(w.now) {
			w.now = next.Truncate(time.Millisecond)
			if w.now.Before(next) {
				w.now = w.now.Add(time.Millisecond)
			}
		}
		w.orphan(w.cfg.coordinatorLease())
		w.settle()
		if !w.now.Before(until) {
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settle does what is due now.
func (w *world) settle() {
	for len(w.events) > 0 && !w.events[0].at.After(w.now) {
		heap.Pop(&w.events).(*event).do()
	}
	for _, n := range w.replicas {
		if n.lessee == nil {
			continue
		}
		if n.asked != nil && !w.now.Before(n.gaveUp) {
			r := n.asked.req
			n.asked = nil
			n.lessee.Failed(w.now, r)
		}
		w.pump(n)
		w.ask(n)
	}
}

// pump starts the calls that fit.
func (w *world) pump(n *node) {
	for len(n.queue) > 0 {
		costs := n.queue[0]
		slots := costs[len(w.providers):]
		if len(slots) > 0 && !n.lessee.Slots().Fits(w.now, slots[0]) {
			return
		}
		for i := range w.providers {
			if ok, at := n.lessee.Limiter(i).Fits(w.now, costs[i]); !ok {
				if !at.IsZero() && !at.After(w.now) {
					w.fail("%s: %d units do not fit, but would at %v, now", n.name, costs[i], at)
				}
				return
			}
		}
		n.queue = n.queue[1:]
		w.launch(n, costs)
	}
}

func (w *world) launch(n *node, costs []int64) {
	r := &run{by: n, life: n.life, costs: costs}
	for i := range w.providers {
		r.holds = append(r.holds, n.lessee.Limiter(i).Take(w.now, costs[i]))
		actual := costs[i]
		if !w.exact && w.rnd.IntN(3) == 0 {
			actual = w.rnd.Int64N(costs[i] + 1)
		}
		r.actual = append(r.actual, actual)
		n.taken[i] += costs[i]
	}
	if len(costs) > len(w.providers) {
		r.slots = costs[len(w.providers)]
		n.lessee.Slots().Use(w.now, r.slots)
		w.slots += r.slots
	}
	arrives := w.now.Add(w.upTo(w.cfg.Late))
	w.at(arrives, func() { w.arrive(r) })
	w.at(arrives.Add(w.upTo(3*time.Second)), func() { w.tell(r) })
	w.at(arrives.Add(w.upTo(12*time.Second)), func() { w.end(r) })
	w.runs[r] = true
	if w.onStart != nil {
		w.onStart(n, costs, w.now)
	}
}

func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rnd.Int64N(d.Milliseconds()+1)) * time.Millisecond
}

// event is something that happens at its time; events of one instant in the order
// in which they were made.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []*event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e *events) Push(x any) { *e = append(*e, x.(*event)) }

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) at(at time.Time, do func()) {
	w.seq++
	heap.Push(&w.events, &event{at, w.seq, do})
}

// lives reports whether the replica of a call still knows of it.
func (r *run) lives() bool { return r.by.lessee != nil && r.by.life == r.life }

// arrive lets a call come to the provider.
func (w *world) arrive(r *run) {
	for i, p := range w.providers {
		r.marks = append(r.marks, p.count(w.now, r.costs[i]))
	}
}

// tell lets the replica know that the call was counted.
func (w *world) tell(r *run) {
	if w.runs[r] && r.lives() {
		for i := range w.providers {
			r.holds[i] = r.by.lessee.Limiter(i).Counted(w.now, r.holds[i])
		}
	}
}

// end ends a call.
func (w *world) end(r *run) {
	for i, p := range w.providers {
		p.settle(w.now, r.marks[i], r.costs[i], r.actual[i])
		if r.lives() {
			r.by.lessee.Limiter(i).Settle(w.now, r.holds[i], r.actual[i])
		}
	}
	if r.slots > 0 {
		if r.lives() {
			r.by.lessee.Slots().Use(w.now, -r.slots)
		}
		w.slots -= r.slots
		if r.orphaned {
			w.orphans -= r.slots
		}
	}
	delete(w.runs, r)
}

// demand is what a gate would say.
func (w *world) demand(n *node) *budget.Demand {
	d := &budget.Demand{Flows: n.flows, Backlog: make([]int64, len(w.providers))}
	for _, costs := range n.queue {
		for i := range w.providers {
			d.Backlog[i] += costs[i]
		}
		if len(costs) > len(w.providers) {
			d.BacklogSlots += costs[len(w.providers)]
		}
	}
	if len(n.queue) > 0 {
		d.Next = n.queue[0][:len(w.providers)]
		if len(n.queue[0]) > len(w.providers) {
			d.Slots = n.queue[0][len(w.providers)]
		}
	}
	return d
}

// ask sends the request that is due.
func (w *world) ask(n *node) {
	if due := n.lessee.Due(w.now); due.IsZero() || due.After(w.now) {
		return
	}
	r, ok := n.lessee.Request(w.now, w.demand(n))
	if !ok {
		return
	}
	m := &message{from: n, life: n.life, req: r}
	n.asked, n.gaveUp = m, w.now.Add(w.cfg.Timeout)
	w.send(m)
}

// send sends a message on its way, if it is not lost.
func (w *world) send(m *message) {
	if w.rnd.IntN(100) < w.cfg.Twice && m.reply == nil {
		again := *m
		w.at(w.now.Add(w.upTo(20*w.cfg.Way)), func() { w.deliver(&again) })
	}
	if w.rnd.IntN(100) >= w.cfg.Lost {
		w.at(w.now.Add(w.upTo(w.cfg.Way)), func() { w.deliver(m) })
	}
}

// deliver hands over what arrives now.
func (w *world) deliver(m *message) {
	n := m.from
	if m.reply != nil {
		if n.asked == m && n.life == m.life && n.lessee != nil {
			n.asked, n.behind = nil, n.behind || !m.reply.Stale
			n.lessee.Reply(w.now, m.req, *m.reply)
			w.pump(n)
		}
		return
	}
	if w.down {
		return
	}
	w.requests++
	reply := w.coordinator.Do(w.now, m.req)
	if reply.Stale {
		w.stale++
	} else if n.life == m.life {
		n.heard = w.now
	}
	m.reply = &reply
	if n.asked == m {
		w.send(m)
	}
}

// count takes in a request, and returns the entry for settle.
func (p *provider) count(now time.Time, n int64) int {
	p.served += n
	if p.dim.Shape == share.Bucket {
		p.refill(now)
		p.level -= float64(n)
		p.worst = max(p.worst, -p.level)
		return 0
	}
	for ; p.first < len(p.log) && now.Sub(p.log[p.first].at) >= p.dim.Window; p.first++ {
		p.sum -= p.log[p.first].amount
	}
	p.log = append(p.log, entry{now, n})
	p.sum += n
	p.worst = max(p.worst, float64(p.sum-p.dim.Limit))
	return len(p.log) - 1
}

// settle gives back what was not used.
func (p *provider) settle(now time.Time, mark int, held, actual int64) {
	p.served -= held - actual
	if p.dim.Shape == share.Bucket {
		p.refill(now)
		p.level = min(float64(p.dim.Burst), p.level+float64(held-actual))
		return
	}
	p.log[mark].amount -= held - actual
	if mark >= p.first {
		p.sum -= held - actual
	}
}

func (p *provider) refill(now time.Time) {
	p.level = min(float64(p.dim.Burst), p.level+float64(p.dim.Limit)*now.Sub(p.at).Seconds()/p.dim.Window.Seconds())
	p.at = now
}

// coordinatorLease is after what time a replica that was not heard of has no lease.
func (c *worldConfig) coordinatorLease() time.Duration {
	return cmp.Or(c.TTL, share.DefaultTTL) + cmp.Or(c.CoordinatorConfig.Late, share.DefaultLate)
}

// orphan notes the slots that the coordinator thinks are back, though calls are
// still in flight in them.
func (w *world) orphan(after time.Duration) {
	for r := range w.runs {
		if !r.orphaned && r.slots > 0 && w.now.Sub(r.by.heard) >= after {
			r.orphaned = true
			w.orphans += r.slots
		}
	}
}

// check is what must be true at any time.
func (w *world) check() {
	for i, p := range w.providers {
		if p.worst > 1e-6 {
			w.fail("the provider was asked for %.3f more of dimension %d than it has", p.worst, i)
		}
	}
	if last := w.cfg.Dims[len(w.cfg.Dims)-1]; last.Shape == share.Slots && w.cfg.Lessee.Fallback < 0 && w.slots-w.orphans > last.Limit {
		w.fail("%d slots are in use, %d of them by calls that were given up; there are %d", w.slots, w.orphans, last.Limit)
	}
}
