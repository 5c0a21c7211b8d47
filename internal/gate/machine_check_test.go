package gate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// poll polls both and compares what they start and fail. It returns how many
// calls that are.
func (m *machine) poll() int {
	m.t.Helper()
	grants, failed, next := m.core.Poll(m.now)
	var got outcome
	for _, id := range grants {
		got.grants = append(got.grants, m.find(id))
	}
	for _, f := range failed {
		k := m.find(f.ID)
		if f.Never {
			got.never = append(got.never, k)
			if k.spec.Costs[f.Dim] <= m.ref.books[f.Dim].twin.Max() {
				m.t.Fatalf("call %d failed for ever because of limit %d, in which it fits", k.seq, f.Dim)
			}
		} else {
			got.late = append(got.late, k)
		}
	}
	dispatch := m.ref.dispatch
	if m.mixed {
		dispatch = m.follow(got.grants)
	}
	want := m.ref.poll(m.now, dispatch)
	bySeq := func(list []*refCall) []*refCall {
		slices.SortFunc(list, func(a, b *refCall) int { return a.seq - b.seq })
		return list
	}
	m.sameCalls("are started", got.grants, want.grants)
	m.sameCalls("are past their deadline", bySeq(got.late), bySeq(want.late))
	m.sameCalls("can never fit", bySeq(got.never), bySeq(want.never))
	if !next.IsZero() && !next.After(m.now) {
		m.t.Fatalf("Poll at %v wants to be called next at %v, which is not later", m.now, next)
	}
	m.next, m.polled, m.fresh = next, m.now, true
	m.noLostWaiter()
	if again, late, then := m.core.Poll(m.now); len(again)+len(late) > 0 || !then.Equal(next) {
		m.t.Fatalf("polled again at once it starts %d and fails %d more calls, next in %v instead of %v", len(again), len(late), then.Sub(m.now), next.Sub(m.now))
	}
	return len(grants) + len(failed)
}

// follow is what the reference does where the order is left to the Core: a
// request with calls in several flows lets whichever comes first have its place.
// Every grant must be allowed all the same.
func (m *machine) follow(grants []*refCall) func(time.Time) []*refCall {
	return func(now time.Time) []*refCall {
		for _, k := range grants {
			if _, lacking := m.ref.lacks(now, k); lacking || k.request != nil && k.request.blocks(now, m.cfg.RequestSlots, k) {
				m.t.Fatalf("call %d is started over a limit", k.seq)
			}
			m.ref.unchoose(k)
			m.ref.start(now, k)
		}
		done := grants
		grants = nil
		for _, k := range m.ref.chosen {
			k.claims = nil
		}
		m.ref.chosen = nil
		for _, c := range m.core.chosen {
			k := m.find(ID{c, c.gen})
			for i := range m.spies {
				k.claims = append(k.claims, c.flow.claim&dimBit(i) != 0)
			}
			k.claims = append(k.claims, c.flow.claim&slotsBit != 0)
			m.ref.chosen = append(m.ref.chosen, k)
		}
		return done
	}
}

func (m *machine) sameCalls(what string, got, want []*refCall) {
	m.t.Helper()
	name := func(list []*refCall) string {
		var s []string
		for _, k := range list {
			s = append(s, fmt.Sprint(k.seq))
		}
		return strings.Join(s, " ")
	}
	if g, w := name(got), name(want); g != w {
		m.t.Fatalf("calls %q %s, want %q", g, what, w)
	}
}

func (m *machine) find(id ID) *refCall {
	for _, p := range m.live {
		if p.id == id {
			return p.k
		}
	}
	m.t.Fatalf("Poll answered with a call that has ended")
	return nil
}

// noLostWaiter looks for a call that could have started: it is the next of its
// flow, no bound of its own forbids it, all that it needs is free, and nobody
// who came to it earlier in fair order claims any of that.
func (m *machine) noLostWaiter() {
	slots := len(m.spies)
	for _, k := range m.ref.heads(m.now) {
		if _, lacking := m.ref.lacks(m.now, k); lacking || !m.ref.underCap(k) {
			continue
		}
		excused := false
		for _, c := range m.ref.chosen {
			for i, claimed := range c.claims {
				excused = excused || claimed && (i == slots || k.spec.Costs[i] > 0)
			}
		}
		// A class may be held up by its own next call, which is not this one.
		for _, h := range m.ref.heads(m.now) {
			excused = excused || h != k && h.flow.class == k.flow.class && m.ref.sooner(h, k) < 0 && !m.ref.underCap(h)
		}
		if !excused {
			m.t.Fatalf("call %d could have started, but waits", k.seq)
		}
	}
}

// check compares the books after every step.
func (m *machine) check() {
	m.t.Helper()
	c, r := m.core, m.ref
	waiting, running := 0, 0
	held := make([]int64, len(m.spies))
	for _, k := range r.calls {
		if k.waiting() {
			waiting++
		}
		if k.state == refRunning && !k.over() {
			running++
		}
		if k.state == refRunning && !k.settled {
			for i := range held {
				held[i] += k.spec.Costs[i]
			}
		}
	}
	m.equal("waiting calls", int64(c.waiting), int64(waiting))
	m.equal("running calls", int64(c.running), int64(running))
	m.equal("slots in force", c.eff, r.limit())
	for i, s := range m.spies {
		m.equal("units held", s.held, held[i])
		m.equal("level of a limit", s.Level(m.now), r.books[i].twin.Level(m.now))
		if f := r.books[i].search; f != nil {
			if got := c.dims[i].found(); math.Abs(got-f.limit) > 1e-9*f.limit {
				m.t.Fatalf("limit %d was found to be %v, want %v", i, got, f.limit)
			}
		} else if c.dims[i].search != nil {
			m.t.Fatalf("limit %d is searched for", i)
		}
	}
	if c.lone != nil { // it is not booked yet
		m.equal("running calls", int64(running), 1)
		return
	}
	m.equal("slots in use", c.inUse, r.inUse(-1))
	if m.lends != nil {
		m.equal("slots borrowed", m.lends.used, c.inUse)
		m.equal("slots of all", m.lends.limit, r.slots)
	}
	reserved := int64(0)
	for i := range c.classes {
		m.equal("slots in use by a class", c.classes[i].inUse, r.inUse(i))
		reserved += r.unused(i)
		m.equal("counter of a class", c.classes[i].vt, r.classes[i].at)
		m.equal("virtual time of a class", c.classes[i].order.now, r.classes[i].level.now)
	}
	m.equal("reserved slots", c.reserved, reserved)
	m.equal("virtual time", c.order.now, r.top.now)
	for key, want := range r.flows {
		f := &c.classes[key.class].shared
		if key.flow != "" {
			f = c.classes[key.class].flows[key.flow]
		}
		if f != nil && f.busy > 0 {
			m.equal("counter of a flow", f.vt, want.at)
		} else if r.active(key.class, want) {
			m.t.Fatalf("the flow %q is forgotten while it has calls", key.flow)
		}
	}
	m.chosenAlike()
	if err := c.intact(); err != nil {
		m.t.Fatalf("%v", err)
	}
}

func (m *machine) equal(what string, got, want int64) {
	m.t.Helper()
	if got != want {
		m.t.Fatalf("%s: %d, want %d", what, got, want)
	}
}

func (m *machine) chosenAlike() {
	var got, want []int
	for _, k := range m.core.chosen {
		got = append(got, m.find(ID{k, k.gen}).seq)
	}
	for _, k := range m.ref.chosen {
		want = append(want, k.seq)
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("calls %v claim something, want %v", got, want)
	}
}

// intact checks that every flow, call and ceiling is where it says it is.
func (c *Core) intact() error {
	for i := range c.classes {
		cl := &c.classes[i]
		flows := []*flow{&cl.shared}
		for _, f := range cl.flows {
			flows = append(flows, f)
		}
		queued := make(map[*flow]bool)
		for g := range cl.groups {
			h := &cl.groups[g].heap
			for j, f := range h.items {
				switch {
				case int(f.index) != j+1:
					return fmt.Errorf("flow %q has index %d, is at %d", f.key, f.index, j)
				case j > 0 && h.less(f, h.items[(j-1)/2]):
					return fmt.Errorf("flow %q is out of order", f.key)
				case f.queue.head == nil || f.chosen != nil || f.parked || f.busy == 0 || f.dead:
					return fmt.Errorf("flow %q does not belong into the fair queue", f.key)
				case f.queue.head.need != cl.groups[g].need:
					return fmt.Errorf("flow %q is in the wrong group", f.key)
				}
				queued[f] = true
			}
		}
		for j, f := range cl.ahead.items {
			if int(f.index) != j+1 || f.busy > 0 || f.dead || j > 0 && cl.ahead.less(f, cl.ahead.items[(j-1)/2]) {
				return fmt.Errorf("flow %q does not belong among the idle ones", f.key)
			}
		}
		for _, f := range flows {
			if f.queue.head != nil && f.chosen == nil && !f.parked && !queued[f] {
				return fmt.Errorf("flow %q is lost: it has calls, but is in no queue", f.key)
			}
			var last *call
			for k := f.queue.head; k != nil; last, k = k, k.next {
				if k.state != stateQueued || k.flow != f || k.prev != last || last != nil && last.seq >= k.seq {
					return fmt.Errorf("the queue of flow %q is broken at call %d", f.key, k.seq)
				}
			}
			if f.queue.tail != last {
				return fmt.Errorf("the queue of flow %q has a wrong end", f.key)
			}
		}
	}
	for i, t := range c.timers.items {
		if int(t.call.timer) != i+1 || i > 0 && t.before(c.timers.items[(i-1)/2]) {
			return fmt.Errorf("the timer of call %d is out of order", t.call.seq)
		}
	}
	for i, r := range c.wakes.items {
		if int(r.wakeIndex) != i+1 || i > 0 && r.wakeAt < c.wakes.items[(i-1)/2].wakeAt {
			return fmt.Errorf("the wake-up of %q is out of order", r.key)
		}
	}
	return nil
}

// drain ends every call. Nothing may be left, and after the shares are whole
// again nothing may be remembered.
func (m *machine) drain() {
	m.t.Helper()
	m.tick(0)
	for len(m.live) > 0 {
		i := m.pick(len(m.live))
		m.same("End", m.core.End(m.now, m.live[i].id), m.ref.end(m.now, m.live[i].k))
		m.drop(i)
		m.poll()
		m.check()
	}
	for range 3 { // the first may find shares that are not whole
		m.tick(1000 * time.Hour)
		m.poll()
	}
	if err := m.core.empty(); err != nil {
		m.t.Fatalf("%v", err)
	}
	for i, s := range m.spies {
		m.equal("units held at the end", s.held, 0)
		for h, n := range s.open {
			if n != 0 {
				m.t.Fatalf("a hold of %d units of limit %d was never settled", h.Cost(), i)
			}
		}
	}
}

// empty checks that a Core without calls remembers nothing.
func (c *Core) empty() error {
	if c.inUse != 0 || c.running != 0 || c.waiting != 0 || c.waitSlot != 0 || c.reserved != c.minimums {
		return fmt.Errorf("%d slots in use, %d calls running, %d waiting for %d slots, %d of %d slots reserved; want nothing",
			c.inUse, c.running, c.waiting, c.waitSlot, c.reserved, c.minimums)
	}
	if n := len(c.chosen) + c.timers.len() + c.wakes.len() + len(c.requests); n > 0 {
		return fmt.Errorf("%d chosen calls, %d timers, %d wake-ups, %d requests are left", len(c.chosen), c.timers.len(), c.wakes.len(), len(c.requests))
	}
	for i := range c.classes {
		cl := &c.classes[i]
		if n := len(cl.flows) + cl.ahead.len() + cl.active + cl.waiting + cl.shared.busy; n > 0 || cl.pending != 0 || cl.shared.queue.head != nil {
			return fmt.Errorf("class %d has %d flows, %d ahead, %d active, %d waiting", i, len(cl.flows), cl.ahead.len(), cl.active, cl.waiting)
		}
		for _, g := range cl.groups {
			if g.heap.len() > 0 {
				return fmt.Errorf("class %d has flows in its fair queue", i)
			}
		}
	}
	for i := range c.dims {
		if d := &c.dims[i]; d.queued != 0 || d.probe != nil {
			return fmt.Errorf("limit %d has %d units queued", i, d.queued)
		}
	}
	return nil
}
