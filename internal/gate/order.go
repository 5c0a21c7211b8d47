package gate

// virtual is the virtual time of one level of the order: of the classes, or of
// the flows of a class.
type virtual struct {
	now     int64 // the latest start tag
	largest int64 // largest recent charge, in quota-nanoseconds
}

// maxCharge bounds one charge (13 days of the whole quota) and maxTag a
// counter, so that absurd costs and weights do not overflow.
const (
	maxCharge = 1 << 50
	maxTag    = 1 << 62
)

// over is an amount of quota-nanoseconds over a weight.
func over(qns int64, weight float64) int64 {
	if weight == 1 {
		return qns
	}
	x := float64(qns) / weight
	if x > maxCharge {
		return maxCharge
	}
	if x < -maxCharge {
		return -maxCharge
	}
	return int64(x)
}

// account is the counter of a flow among the flows of its class, or of a class
// among the classes: what it was served, over its weight. Who has the least is
// served next.
type account struct {
	weight float64
	vt     int64 // quota-nanoseconds over the weight
	// credit is how far below its floor refunds have brought the counter. The
	// floor is virtual time minus one largest call: who could not use its share
	// (its ceiling, its tiny calls) falls behind virtual time, and must not store
	// that up and flood later. But a refund is no share that was not used: it
	// takes back a charge that was never due.
	credit int64
}

// rise lifts the account of who arrives idle: there is no credit for the time
// when it asked for nothing, and its debt is not forgiven.
func (a *account) rise(v *virtual) { a.vt, a.credit = max(a.vt, v.now), 0 }

func (a *account) floor(v *virtual) int64 { return v.now - over(v.largest, a.weight) }

// charge books the start of a call, and moves virtual time to its start tag.
func (a *account) charge(v *virtual, qns int64) {
	if a.vt < v.now {
		floor := a.floor(v)
		a.vt = max(a.vt, floor-a.credit) + max(1, over(qns, a.weight))
		a.credit = max(0, floor-a.vt)
	} else {
		v.now = a.vt
		a.vt = min(a.vt+max(1, over(qns, a.weight)), maxTag)
		a.credit = 0
	}
	v.largest = max(v.largest-v.largest>>10, qns)
}

// correct replaces a charge by another one.
func (a *account) correct(v *virtual, old, qns int64) {
	d := max(1, over(qns, a.weight)) - max(1, over(old, a.weight))
	a.vt = min(a.vt+d, maxTag)
	if d < 0 && a.vt < v.now {
		a.credit += max(0, min(-d, a.floor(v)-a.vt))
	}
}

// class is a share of the gate with its own fair queue over flows.
type class struct {
	account
	cfg   Class
	core  *Core
	bit   uint64  // 1 << its index
	order virtual // over its flows

	flows  map[string]*flow
	shared flow // the flow with the empty key; it is never forgotten
	groups []group
	ahead  heap[*flow] // idle flows whose counter is ahead of virtual time

	active  int   // flows that are not idle
	inUse   int64 // slots
	pending int64 // slots that its chosen calls will take: they have their place under its cap
	minimum int64 // MinSlots in force
	unused  int64 // part of that which is not in use
	waiting int
}

// group holds the flows whose heads need the same resources, in fair order. A
// resource that runs out blocks whole groups, never a scan over flows.
type group struct {
	need resources
	heap heap[*flow]
}

// flow is the queue of one key.
type flow struct {
	account
	class  *class
	key    string
	queue  queue
	chosen *call // its head, while it claims a resource outside the queue
	busy   int   // calls that are queued, aside, backing off or in flight
	need   resources
	claim  resources // what its chosen call was found to lack since it was chosen
	index  int32     // 1 + index in its group's heap or in class.ahead; 0 is none
	parked bool      // over its ceiling
	ceil   *ceiling
	dead   bool // forgotten; a late correction must not touch its successor
}

func (cl *class) init(c *Core, index int, cfg Class) {
	cl.cfg, cl.core, cl.bit, cl.weight = cfg, c, 1<<index, cfg.Weight
	cl.flows = make(map[string]*flow)
	cl.shared = flow{class: cl, account: account{weight: 1}}
	cl.ahead.moved = func(f *flow, i int) { f.index = int32(i + 1) }
	cl.ahead.less = func(a, b *flow) bool { return a.vt < b.vt }
}

// groupOf returns the group for a set of resources; there are few of them.
func (cl *class) groupOf(need resources) *group {
	for i := range cl.groups {
		if cl.groups[i].need == need {
			return &cl.groups[i]
		}
	}
	cl.groups = append(cl.groups, group{need: need, heap: heap[*flow]{
		moved: func(f *flow, i int) { f.index = int32(i + 1) },
		less: func(a, b *flow) bool {
			if a.vt != b.vt {
				return a.vt < b.vt
			}
			return a.queue.head.seq < b.queue.head.seq
		},
	}})
	return &cl.groups[len(cl.groups)-1]
}

// headChanged puts f where it belongs after its head or its chosen call has
// changed. A new head may fit under a ceiling that was too low for the last one.
func (cl *class) headChanged(f *flow) {
	f.parked = false
	cl.hide(f)
	if f.queue.head == nil || f.chosen != nil {
		return
	}
	f.need = f.queue.head.need
	cl.groupOf(f.need).heap.push(f)
}

// hide takes f out of the fair queue.
func (cl *class) hide(f *flow) {
	if f.index > 0 {
		cl.groupOf(f.need).heap.remove(int(f.index - 1))
	}
}

// moved restores the order after the counter of f has changed.
func (cl *class) moved(f *flow) {
	switch {
	case f.index == 0:
	case f.busy > 0:
		cl.groupOf(f.need).heap.fix(int(f.index - 1))
	default:
		cl.ahead.fix(int(f.index - 1))
	}
}

// top is the flow to be served next among those whose heads need nothing that
// is claimed.
func (cl *class) top(claimed resources) *flow {
	var best *flow
	for i := range cl.groups {
		g := &cl.groups[i]
		if g.need&claimed != 0 || g.heap.len() == 0 {
			continue
		}
		if f := g.heap.items[0]; best == nil || g.heap.less(f, best) {
			best = f
		}
	}
	return best
}

// join makes k a call of its flow, which becomes active if it was idle.
func (c *Core) join(k *call, cl *class, s *Spec) {
	c.joinFlow(k, cl, s.Flow, s.FlowWeight)
	if !c.plain {
		c.joinCeilings(k, k.flow, s)
	}
}

func (c *Core) joinFlow(k *call, cl *class, key string, weight float64) {
	f := &cl.shared
	if key != "" {
		if f = cl.flows[key]; f == nil {
			f = &flow{class: cl, key: key}
			cl.flows[key] = f
		}
	}
	if f.busy == 0 {
		if f.index > 0 {
			cl.ahead.remove(int(f.index - 1))
		}
		f.rise(&cl.order)
		if f.weight = weight; !(f.weight > 0) {
			f.weight = 1
		}
		if cl.active == 0 {
			cl.rise(&c.order)
			c.active++
		}
		cl.active++
	}
	f.busy++
	k.flow = f
}

// leave ends k's part in its flow.
func (c *Core) leave(k *call) {
	f, cl := k.flow, k.flow.class
	if !c.plain {
		c.leaveCeilings(k)
	}
	if f.busy--; f.busy > 0 {
		return
	}
	cl.active--
	cl.settle(f)
	if cl.active > 0 {
		return
	}
	if cl.ahead.len() > 0 {
		for _, f := range cl.ahead.items {
			f.index = 0
			cl.settle(f)
		}
		clear(cl.ahead.items)
		cl.ahead.items = cl.ahead.items[:0]
	}
	if c.active--; c.active > 0 {
		return
	}
	for i := range c.classes {
		c.order.now = max(c.order.now, c.classes[i].vt)
	}
}

// settle puts an idle flow where it belongs: it is forgotten unless its counter
// is ahead of virtual time, for then it still owes. Where the whole class is
// idle its busy period has ended: all are even, and nobody is ahead.
func (cl *class) settle(f *flow) {
	switch {
	case cl.active == 0:
		cl.order.now = max(cl.order.now, f.vt)
		cl.forget(f)
	case f.vt > cl.order.now:
		cl.ahead.push(f)
	default:
		cl.forget(f)
	}
}

func (cl *class) forget(f *flow) {
	if f == &cl.shared || f.ceil != nil && !cl.core.forgettable(f.ceil) {
		return
	}
	f.dead = true
	delete(cl.flows, f.key)
}

// charge books the start of a call on its flow and its class.
func (c *Core) charge(k *call) {
	f, cl, fl := k.flow, k.flow.class, k.flight
	qns := fl.rates.charge(c.costs(k), float64(k.slots)*c.holdTime)
	fl.charged, fl.used = qns, qns
	f.charge(&cl.order, qns)
	cl.moved(f)
	for len(cl.ahead.items) > 0 && cl.ahead.items[0].vt <= cl.order.now {
		idle := cl.ahead.items[0]
		cl.ahead.remove(0)
		cl.forget(idle)
	}
	cl.charge(&c.order, qns)
}

// correct replaces the charge by what the call really took, with the weight and
// the limits of that charge.
func (c *Core) correct(k *call) {
	fl := k.flight
	actual := max(1, fl.used, min(int64(float64(fl.held)*float64(k.slots)*fl.rates.perSlot), maxCharge))
	c.recharge(k.flow, fl.charged, actual)
	fl.charged = actual
}

// recharge replaces a charge of a flow and its class.
func (c *Core) recharge(f *flow, old, qns int64) {
	if old == qns {
		return
	}
	cl := f.class
	cl.correct(&c.order, old, qns)
	if !f.dead {
		f.correct(&cl.order, old, qns)
		cl.moved(f)
	}
}

// charge is the dominant share of a call in quota-nanoseconds: the largest of
// what it takes from each limit and, with slotTime in slot-nanoseconds, from
// the slots. Always above 0.
func (r *rates) charge(costs []int64, slotTime float64) int64 {
	share := slotTime * r.perSlot
	for i, cost := range costs {
		if s := float64(cost) * r.perUnit[i]; s > share {
			share = s
		}
	}
	if share < 1 {
		return 1
	}
	return int64(min(share, maxCharge))
}
