package gate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// machine does the same to a Core and to the reference, chosen at random, and
// compares all that they answer.
type machine struct {
	t     failer
	data  []uint16 // all randomness; the machine stops when it is used up
	cfg   Config
	core  *Core
	ref   *reference
	spies []*spy
	now   time.Time
	live  []pairing
	stale []ID
	lends *lender // nil if the slots are the Core's own
	steps bool    // the clock may step backwards
	mixed bool    // requests have calls in several flows

	next   time.Time
	polled time.Time
	fresh  bool // next is right: nothing has happened since the Core was polled

	lone   *refCall // started by Start, and counters before that
	before counters
}

// failer is what the machine needs of a test.
type failer interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// pairing is one call in both.
type pairing struct {
	id ID
	k  *refCall
}

// run does what the data says, and ends with nothing in hand.
func run(t failer, data []uint16, s setting) {
	t.Helper()
	var lends *lender
	if s.borrowed {
		lends = &lender{t: t, lent: 3, limit: s.cfg.Slots}
		s.cfg.Lender = lends
	}
	m := newMachine(t, data, s.cfg, s.search, s.limiters...)
	m.mixed, m.lends, m.ref.lends = s.mixed, lends, lends
	for len(m.data) > 0 {
		m.step()
	}
	m.drain()
}

// pick is a number in [0, n).
func (m *machine) pick(n int) int {
	if len(m.data) == 0 {
		return 0
	}
	v := m.data[0]
	m.data = m.data[1:]
	return int(v) % n
}

func newMachine(t failer, data []uint16, cfg Config, search []*Search, limiters ...func() budget.Limiter) *machine {
	m := &machine{t: t, data: data, now: time.Unix(1_000_000, 0)}
	var books []*book
	for i, limiter := range limiters {
		b := &book{twin: limiter(), scale: 1}
		d := Dim{Window: 10 * time.Second}
		if i < len(search) && search[i] != nil {
			d.Window, d.Search = 100*time.Second, search[i]
			b.search = newRefSearch(search[i], b.twin, d.Window)
		}
		s := &spy{Limiter: limiter(), t: t, book: b, open: make(map[budget.Hold]int)}
		books, m.spies = append(books, b), append(m.spies, s)
		d.Limiter = s
		cfg.Dims = append(cfg.Dims, d)
	}
	m.cfg = cfg
	m.core = New(cfg)
	for i, s := range m.spies {
		_, m.core.dims[i].timeless = s.Limiter.(*budget.TokenBudget)
	}
	m.ref = newReference(cfg, books)
	m.steps = cfg.FlowShare <= 0 && cfg.RequestShare <= 0
	return m
}

// log is shown if the test fails.
func (m *machine) log(format string, args ...any) {
	m.t.Logf("%v: %s", m.now.Sub(time.Unix(1_000_000, 0)), fmt.Sprintf(format, args...))
}

// step does one thing at random.
func (m *machine) step() {
	m.t.Helper()
	m.tick(0)
	if m.core.searching && m.pick(2) == 0 {
		m.decide()
	}
	switch op := m.pick(48); {
	case op < 11:
		m.enqueue(m.spec())
	case op < 12:
		m.start()
	case op < 22:
		m.onCall(op)
	case op < 24:
		m.requeue()
	case op < 26:
		m.onStale()
	case op < 27 && m.lends != nil && m.pick(3) > 0:
		m.lends.lent = m.change(func(int64) {}, 0, 9)
	case op < 27:
		m.core.SetSlots(m.change(m.ref.setSlots, 1, 10))
	case op < 28:
		m.setLimit()
	case op < 30:
		m.feedback()
	case op < 33:
		m.finishLast()
	case op < 34 && m.steps:
		m.now = m.now.Add(-time.Duration(1001+m.pick(9000)) * time.Millisecond)
		m.fresh = false
	case op < 35:
		m.toNext()
	case op < 36:
		m.onCall(complete)
	case op < 39:
		m.onCall(revise)
	default:
		m.now = m.now.Add(time.Duration(m.pick(1500)) * time.Millisecond)
	}
	if m.pick(3) > 0 {
		m.poll()
	}
	m.check()
}

// tick lets time pass, and lets all clocks see it: what a clock makes of a step
// backwards hangs on when it was asked.
func (m *machine) tick(d time.Duration) {
	m.now = m.now.Add(d)
	m.core.at(m.now)
	m.ref.clock.at(m.now)
	for i, s := range m.spies {
		s.Level(m.now)
		m.ref.books[i].twin.Level(m.now)
	}
}

func (m *machine) change(set func(int64), low, n int) int64 {
	v := int64(low + m.pick(n))
	m.log("slots become %d", v)
	set(v)
	m.fresh = false
	return v
}

var (
	flowKeys    = []string{"", "a", "b", "c"}
	flowWeights = []float64{0, 1, 2, 0.5}
)

// cost is sometimes nothing and sometimes more than there ever is.
func (m *machine) cost(dim int) int64 {
	limit := m.ref.books[dim].twin.Limit()
	if m.ref.books[dim].search != nil {
		limit = 60
	}
	most := []int64{limit / 8, limit / 3, limit, limit, limit * 3 / 2}[m.pick(5)]
	n := int64(m.pick(int(most) + 1))
	if !m.ref.plain() {
		n = max(n, 1) // see reference.head: a call that steps aside needs all
	}
	return n
}

func (m *machine) spec() Spec {
	s := Spec{Class: m.pick(len(m.cfg.Classes)), Slots: 1}
	if m.pick(4) == 0 {
		s.Slots = int32(1 + m.pick(6))
	}
	flow := m.pick(len(flowKeys))
	s.Flow, s.FlowWeight = flowKeys[flow], flowWeights[flow]
	if m.pick(3) > 0 {
		s.Request = []string{"", "r", "s"}[m.pick(3)]
		if s.Request != "" && !m.cfg.FIFO && !m.mixed {
			s.Request += s.Flow + string(rune('0'+s.Class)) // requests of one flow
		}
	}
	for i := range m.spies {
		s.Costs = append(s.Costs, m.cost(i))
	}
	if m.pick(3) == 0 {
		s.Deadline = m.now.Add(time.Duration(m.pick(12)-1) * 900 * time.Millisecond)
	}
	return s
}

func (m *machine) enqueue(s Spec) {
	m.t.Helper()
	m.log("enqueue %+v", s)
	id, granted, refused := m.core.Enqueue(m.now, s)
	k, want, err := m.ref.enqueue(m.now, s)
	if granted != want || !errors.Is(refused.Err, err) {
		m.t.Fatalf("Enqueue(%+v): granted %v, refused %v; want %v, %v", s, granted, refused, want, err)
	}
	if err == nil {
		m.live = append(m.live, pairing{id, k})
	}
	stuck := err == nil && !granted && m.fresh && m.polled.Equal(m.now) && m.core.Stuck()
	m.fresh = false
	if stuck && s.Deadline != m.now {
		next := m.next
		if !s.Deadline.IsZero() { // as the Core's clock sees it
			if at := m.core.time(m.core.later(m.now, s.Deadline)); next.IsZero() || at.Before(next) {
				next = at
			}
		}
		if n := m.poll(); n > 0 || !m.next.Equal(next) {
			m.t.Fatalf("a call is stuck, but Poll starts or fails %d; next in %v, want %v", n, m.next.Sub(m.now), next.Sub(m.now))
		}
	}
}

// start takes the short way, if it is open.
func (m *machine) start() {
	s := m.spec()
	s.Deadline, s.FlowWeight, s.Request = time.Time{}, 0, ""
	if m.pick(3) == 0 { // alone
		m.endAll()
		s.Flow = ""
	}
	before := m.ref.count()
	id, ok := m.core.Start(m.now, s.Class, s.Flow, s.Slots, s.Costs)
	if !ok {
		m.enqueue(s)
		return
	}
	m.log("start %+v", s)
	k, granted, err := m.ref.enqueue(m.now, s)
	if !granted || err != nil {
		m.t.Fatalf("Start starts a call that must wait or be refused: %v", err)
	}
	m.live = append(m.live, pairing{id, k})
	m.lone, m.before, m.fresh = k, before, false
	if m.pick(2) == 0 {
		m.finishLast()
	}
}

func (m *machine) endAll() {
	for len(m.live) > 0 {
		i := m.pick(len(m.live))
		m.same("End", m.core.End(m.now, m.live[i].id), m.ref.end(m.now, m.live[i].k))
		m.drop(i)
	}
	m.poll()
}

// finishLast ends the only call there is, as if it had never been charged.
func (m *machine) finishLast() {
	if len(m.live) == 0 {
		return
	}
	i := m.pick(len(m.live))
	p := m.live[i]
	actual := m.actual()
	if !m.core.FinishLast(p.id, actual) {
		return
	}
	m.log("finish last call %d", p.k.seq)
	if p.k != m.lone {
		m.t.Fatalf("call %d is ended in passing, though others may depend on it", p.k.seq)
	}
	if actual != nil {
		m.same("Settle", true, m.ref.settle(m.now, p.k, actual))
	}
	m.same("FinishLast", true, m.ref.end(m.now, p.k))
	m.ref.recount(m.before)
	m.drop(i)
	m.fresh = false
}

// actual is less than, more than, or just what was held; or nothing.
func (m *machine) actual() []int64 {
	if m.pick(4) == 0 {
		return nil
	}
	list := make([]int64, len(m.spies))
	for i := range list {
		if m.pick(3) > 0 {
			list[i] = m.cost(i)
		}
	}
	return list
}

func (m *machine) same(what string, got, want bool) {
	m.t.Helper()
	if got != want {
		m.t.Fatalf("%s answered %v, want %v", what, got, want)
	}
}

// Two of onCall's operations.
const (
	complete = 44 + iota
	revise
)

// onCall does something with a call, whatever its state.
func (m *machine) onCall(op int) {
	if len(m.live) == 0 {
		return
	}
	i := m.pick(len(m.live))
	p := m.live[i]
	m.fresh = false
	m.log("operation %d on call %d", op, p.k.seq)
	switch op {
	case complete:
		actual := m.actual()
		m.core.Complete(m.now, p.id, actual)
		m.ref.freeSlot(p.k)
		m.ref.settle(m.now, p.k, actual)
	case revise:
		costs := make([]int64, len(m.spies))
		for i := range costs {
			costs[i] = m.cost(i)
		}
		m.same("Revise", m.core.Revise(m.now, p.id, costs), m.ref.revise(m.now, p.k, costs))
	case 12, 13:
		m.same("FreeSlot", m.core.FreeSlot(m.now, p.id), m.ref.freeSlot(p.k))
	case 14, 15:
		actual := m.actual()
		m.same("Settle", m.core.Settle(m.now, p.id, actual), m.ref.settle(m.now, p.k, actual))
	case 16:
		m.core.Counted(m.now, p.id)
		m.ref.counted(m.now, p.k)
	case 17:
		if p.k.over() && !m.steps {
			return // whether its flow is remembered hangs on its share
		}
		extra := make([]int64, len(m.spies))
		for i := range extra {
			extra[i] = int64(m.pick(20) - 5)
		}
		m.core.Adjust(m.now, p.id, extra)
		m.ref.adjust(m.now, p.k, extra)
	case 18:
		waiting := p.k.waiting()
		m.same("Cancel", m.core.Cancel(m.now, p.id), m.ref.cancel(p.k))
		if waiting {
			m.drop(i)
		}
	case 19:
		actual := m.actual()
		m.ref.settle(m.now, p.k, actual)
		m.same("Finish", m.core.Finish(m.now, p.id, actual), m.ref.end(m.now, p.k))
		m.drop(i)
	default:
		m.same("End", m.core.End(m.now, p.id), m.ref.end(m.now, p.k))
		m.drop(i)
	}
}

// drop makes the ID of an ended call a stale one.
func (m *machine) drop(i int) {
	m.stale = append(m.stale, m.live[i].id)
	m.live = slices.Delete(m.live, i, i+1)
}

func (m *machine) requeue() {
	if len(m.live) == 0 {
		return
	}
	p := m.live[m.pick(len(m.live))]
	actual := m.actual()
	notBefore := m.now.Add(time.Duration(m.pick(12)-3) * 700 * time.Millisecond)
	m.log("requeue call %d, not before %v", p.k.seq, notBefore.Sub(m.now))
	m.same("Requeue", m.core.Requeue(m.now, p.id, actual, notBefore), m.ref.requeue(m.now, p.k, actual, notBefore))
	m.fresh = false
}

// onStale does to an ended call what nobody should.
func (m *machine) onStale() {
	if len(m.stale) == 0 {
		return
	}
	id := m.stale[m.pick(len(m.stale))]
	m.same("FreeSlot", m.core.FreeSlot(m.now, id), false)
	m.same("Settle", m.core.Settle(m.now, id, nil), false)
	m.same("Cancel", m.core.Cancel(m.now, id), false)
	m.same("End", m.core.End(m.now, id), false)
	m.same("Requeue", m.core.Requeue(m.now, id, nil, m.now), false)
	m.same("Revise", m.core.Revise(m.now, id, []int64{9, 9, 9}[:len(m.spies)]), false)
	m.core.Counted(m.now, id)
	m.core.Succeeded(m.now, id)
	m.core.Adjust(m.now, id, []int64{9, 9, 9})
	m.core.CutSlots(m.now, id)
	if len(m.spies) > 0 {
		m.core.Cut(m.now, id, 0)
	}
}

func (m *machine) setLimit() {
	if len(m.spies) == 0 || !m.steps {
		return // what a share was when its flow was forgotten cannot be told
	}
	i := m.pick(len(m.spies))
	if m.ref.books[i].search != nil && m.pick(4) > 0 {
		return // or no search would last
	}
	limit := int64(m.pick(150))
	if m.pick(8) == 0 {
		limit = 0
	}
	m.log("limit %d becomes %d", i, limit)
	m.core.SetLimit(m.now, i, limit)
	m.ref.books[i].search = nil
	m.ref.newRates()
	m.ref.unfit = true
	m.fresh = false
}

func (m *machine) feedback() {
	m.fresh = false
	if len(m.live) == 0 || len(m.spies) == 0 {
		return
	}
	p := m.live[m.pick(len(m.live))]
	i := m.pick(len(m.spies))
	what := m.pick(13)
	m.log("feedback %d about limit %d, call %d", what, i, p.k.seq)
	switch what {
	case 0:
		until := m.now.Add(time.Duration(m.pick(8)-1) * time.Second)
		m.core.CloseBudget(m.now, i, until)
		m.ref.closeBudget(m.now, i, until)
	case 1:
		m.cut(p, i)
	case 10, 11:
		m.core.Crowded(m.now, p.id)
		m.ref.crowded(p.k)
	case 12:
		m.ref.replicas = 1 + m.pick(4)
		m.core.SetReplicas(m.ref.replicas)
	case 2:
		m.core.CutSlots(m.now, p.id)
		m.ref.cutSlots(p.k)
	case 3:
		m.core.Emptied(m.now, p.id, i)
		m.ref.emptied(m.now, p.k, i)
	case 4:
		if got, want := m.core.Overloaded(m.now, p.id), m.ref.overloaded(p.k); got != want {
			m.t.Fatalf("Overloaded answers %d, want %d", got, want)
		}
	case 5:
		if m.pick(4) == 0 {
			until := m.now.Add(time.Duration(m.pick(8)-1) * time.Second)
			m.core.Pause(m.now, until)
			m.ref.pause(m.now, until)
		}
	case 6:
		m.core.Answered(p.id)
		m.ref.answer(p.k)
	case 7:
		m.core.Lower(m.now, i, int64(m.pick(100)), time.Duration(m.pick(12000))*time.Millisecond)
	default:
		m.succeeded(p)
	}
}

// The reference hears of these first: what the Core makes of them changes a limiter's
// scale, which the twin has in the same moment.

func (m *machine) cut(p pairing, i int) {
	want := m.ref.cut(m.now, p.k, i)
	if got := m.core.Cut(m.now, p.id, i); got != want {
		m.t.Fatalf("Cut answers %d, want %d", got, want)
	}
}

func (m *machine) succeeded(p pairing) {
	m.ref.succeeded(m.now, p.k)
	m.core.Succeeded(m.now, p.id)
}

// decide lets the provider decide about a call in flight, for a while mostly so and
// for a while mostly so: limits that are searched for move only then.
func (m *machine) decide() {
	if len(m.live) == 0 || len(m.spies) == 0 {
		return
	}
	p := m.live[m.pick(len(m.live))]
	if p.k.state != refRunning {
		return
	}
	m.fresh = false
	m.tick([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 11 * time.Second}[m.pick(4)])
	if full := m.now.Unix()/40%2 == 0; full == (m.pick(8) > 0) {
		i := m.pick(len(m.spies))
		m.log("call %d is refused for limit %d", p.k.seq, i)
		m.cut(p, i)
		if m.pick(2) == 0 {
			m.core.Crowded(m.now, p.id)
			m.ref.crowded(p.k)
		}
		m.same("Requeue", m.core.Requeue(m.now, p.id, nil, m.now), m.ref.requeue(m.now, p.k, nil, m.now))
		return
	}
	m.log("call %d is served", p.k.seq)
	m.succeeded(p)
	if m.pick(3) > 0 {
		m.core.Complete(m.now, p.id, nil)
		m.ref.freeSlot(p.k)
		m.ref.settle(m.now, p.k, nil)
	}
}

// toNext goes to the instant that the Core asked for. Just before it nothing may
// happen.
func (m *machine) toNext() {
	if !m.fresh || !m.next.After(m.now) {
		m.poll()
	}
	next := m.next
	if !next.After(m.now) || next.Sub(m.now) > time.Hour { // none, or time went past it
		return
	}
	m.log("on to the next instant")
	m.tick(next.Add(-1).Sub(m.now))
	if n := m.poll(); n > 0 {
		m.t.Fatalf("%d calls started or failed before the instant at which Poll wanted to be called", n)
	}
	m.tick(next.Sub(m.now))
	m.poll()
}
