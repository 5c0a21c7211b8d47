package gate

// class is a share of the gate with its own fair queue over flows.
type class struct {
	cfg     Class
	core    *Core
	bit     uint64 // 1 << its index
	vt      int64  // virtual counter among the classes, quota-nanoseconds over weight
	vtime   int64  // virtual time over the flows: the latest start tag
	largest int64  // largest recent charge, weighted

	flows  map[string]*flow
	shared flow // the flow with the empty key; it is never forgotten
	groups []group
	ahead  heap[*flow] // idle flows whose counter is ahead of vtime

	active  int // flows that are not idle
	inUse   int64
	unused  int64 // part of MinSlots that is not in use
	waiting int
}

// group holds the flows whose heads need the same resources, in fair order. A
// resource that runs out blocks whole groups, never a scan over flows.
type group struct {
	need resources
	heap heap[*flow]
}

// flow is the queue of one key. Its counter grows by what it was served,
// over its weight; the flow with the least counter is served next.
type flow struct {
	class  *class
	key    string
	weight float64
	vt     int64
	queue  queue
	chosen *call // its head, while it claims a resource outside the queue
	busy   int   // calls that are queued, aside, backing off or in flight
	need   resources
	index  int32 // 1 + index in its group's heap or in class.ahead; 0 is none
	parked bool  // over its ceiling
	ceil   *ceiling
	dead   bool // forgotten; a late correction must not touch its successor
}

func (cl *class) init(c *Core, index int, cfg Class) {
	cl.cfg, cl.core, cl.bit, cl.unused = cfg, c, 1<<index, cfg.MinSlots
	cl.flows = make(map[string]*flow)
	cl.shared = flow{class: cl, weight: 1}
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

// headChanged puts f where it belongs after its head, its chosen call or its
// ceiling has changed.
func (cl *class) headChanged(f *flow) {
	if f.index > 0 {
		cl.groupOf(f.need).heap.remove(int(f.index - 1))
	}
	if f.queue.head == nil || f.chosen != nil || f.parked {
		return
	}
	f.need = f.queue.head.need
	cl.groupOf(f.need).heap.push(f)
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

// fits reports whether the class's own bounds allow so many more slots: its
// cap, and the minimums that are kept free for others. Whatever the bounds, a
// call may run when nothing else does.
func (cl *class) fits(c *Core, slots int32) bool {
	if cl.cfg.MaxSlots > 0 && cl.inUse > 0 && cl.inUse+int64(slots) > cl.cfg.MaxSlots {
		return false
	}
	kept := min(c.reserved-cl.unused, c.eff-1)
	return kept <= 0 || c.inUse == 0 || c.eff-c.inUse-kept >= int64(slots)
}

// use books slots that the class takes (or gives back, if negative).
func (cl *class) use(c *Core, slots int64) {
	c.inUse += slots
	cl.inUse += slots
	unused := max(0, cl.cfg.MinSlots-cl.inUse)
	c.reserved += unused - cl.unused
	cl.unused = unused
}

// join makes k a call of its flow, which becomes active if it was idle. A flow
// that arrives idle starts at max(own counter, virtual time): it has no credit
// for the time when it asked for nothing, and its debt is not forgiven.
func (c *Core) join(k *call, cl *class, s *Spec) {
	f := &cl.shared
	if s.Flow != "" {
		f = cl.flows[s.Flow]
	}
	switch {
	case f == nil:
		f = &flow{class: cl, key: s.Flow, vt: cl.vtime}
		cl.flows[s.Flow] = f
	case f.busy == 0:
		if f.index > 0 {
			cl.ahead.remove(int(f.index - 1))
		}
		f.vt = max(f.vt, cl.vtime)
	}
	if f.busy == 0 {
		if f.weight = s.FlowWeight; !(f.weight > 0) {
			f.weight = 1
		}
		if cl.active == 0 {
			cl.vt = max(cl.vt, c.vtime)
		}
		cl.active++
	}
	f.busy++
	k.flow = f
	if !c.plain {
		c.joinCeilings(k, f, s)
	}
}

// leave ends k's part in its flow. An idle flow is forgotten unless its counter
// is ahead of virtual time: then it still owes.
func (c *Core) leave(k *call) {
	f, cl := k.flow, k.flow.class
	if !c.plain {
		c.leaveCeilings(k)
	}
	if f.busy--; f.busy > 0 {
		return
	}
	cl.active--
	if f.vt > cl.vtime {
		cl.ahead.push(f)
	} else {
		cl.forget(f)
	}
	if cl.active > 0 {
		return
	}
	// The class's busy period ends: all are even, and nobody is ahead.
	for _, f := range cl.ahead.items {
		f.index = 0
		cl.vtime = max(cl.vtime, f.vt)
		cl.forget(f)
	}
	clear(cl.ahead.items)
	cl.ahead.items = cl.ahead.items[:0]
	for i := range c.classes {
		if c.classes[i].active > 0 {
			return
		}
	}
	for i := range c.classes {
		c.vtime = max(c.vtime, c.classes[i].vt)
	}
}

func (cl *class) forget(f *flow) {
	if f == &cl.shared || f.ceil != nil && !f.ceil.forgettable() {
		return
	}
	f.dead = true
	delete(cl.flows, f.key)
}

// charge books the start of a call on its flow and its class, and moves virtual
// time to its start tag. A queued head never counts below virtual time minus
// one largest call, so that a flow which could not use its share (its ceiling,
// its tiny calls) does not store it up and flood later.
func (c *Core) charge(k *call) {
	f, cl, fl := k.flow, k.flow.class, k.flight
	qns := fl.rates.charge(k.costs, float64(k.slots)*c.holdTime)
	fl.charged, fl.used = qns, qns

	d := max(1, int64(float64(qns)/f.weight))
	start := max(f.vt, cl.vtime-cl.largest)
	f.vt = start + d
	cl.vtime = max(cl.vtime, start)
	cl.largest = max(cl.largest-cl.largest>>10, d)
	for cl.ahead.len() > 0 && cl.ahead.items[0].vt <= cl.vtime {
		idle := cl.ahead.items[0]
		cl.ahead.remove(0)
		cl.forget(idle)
	}

	d = max(1, int64(float64(qns)/cl.cfg.Weight))
	start = max(cl.vt, c.vtime-c.largest)
	cl.vt = start + d
	c.vtime = max(c.vtime, start)
	c.largest = max(c.largest-c.largest>>10, d)
}

// correct replaces the charge by what the call really took, with the weight and
// the limits of that charge.
func (c *Core) correct(k *call) {
	f, cl, fl := k.flow, k.flow.class, k.flight
	actual := max(1, fl.used, int64(float64(fl.held)*float64(k.slots)*fl.rates.perSlot))
	c.addService(f, cl, actual-fl.charged)
	fl.charged = actual
}

// addService moves the counters of a flow and its class by an amount of
// quota-nanoseconds, which may be negative.
func (c *Core) addService(f *flow, cl *class, qns int64) {
	if qns == 0 {
		return
	}
	cl.vt += int64(float64(qns) / cl.cfg.Weight)
	if f.dead {
		return
	}
	f.vt += int64(float64(qns) / f.weight)
	switch {
	case f.index == 0:
	case f.busy > 0:
		cl.groupOf(f.need).heap.fix(int(f.index - 1))
	default:
		cl.ahead.fix(int(f.index - 1))
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
	return int64(min(share, 1<<60))
}
