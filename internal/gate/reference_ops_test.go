package gate

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// book is one limit as the reference sees it: a twin of the Core's limiter,
// which only the reference takes from and settles.
type book struct {
	twin  budget.Limiter
	scale float64 // in force
	shut  bool
	until int64
	probe *refCall

	search *refSearch // nil if the limit is known
}

// enqueue is what Enqueue must answer.
func (r *reference) enqueue(now time.Time, s Spec) (k *refCall, granted bool, err error) {
	m := r.clock.at(now)
	r.seq++
	if r.cfg.FIFO {
		s.Class, s.Flow, s.FlowWeight = 0, "", 0
	}
	s.Costs = slices.Clone(s.Costs)
	r.meet(s.Costs)
	k = &refCall{seq: r.seq, spec: s, deadline: never}
	if !s.Deadline.IsZero() {
		k.deadline = m + int64(s.Deadline.Sub(now))
	}
	f := r.flow(s.Class, s.Flow)
	k.flow = f
	waiting := 0
	for _, o := range r.calls {
		if o.waiting() {
			waiting++
		}
	}
	if r.plain() && waiting == 0 && k.deadline >= m && r.underCap(k) {
		if _, lacking := r.lacks(now, k); !lacking {
			r.join(k)
			r.start(now, k)
			return k, true, nil
		}
	}
	switch {
	case r.tooLarge(k):
		return nil, false, ErrNever
	case k.deadline < m:
		return nil, false, ErrDeadline
	case k.deadline != never && r.earliest(now, k).After(s.Deadline):
		return nil, false, ErrTooLate
	case r.cfg.MaxWaiting > 0 && waiting >= r.cfg.MaxWaiting:
		return nil, false, ErrFull
	}
	r.join(k)
	return k, false, nil
}

// dimsOf are the Dims that k takes from.
func (r *reference) dimsOf(k *refCall) (dims []int) {
	for i, n := range k.spec.Costs {
		if n > 0 {
			dims = append(dims, i)
		}
	}
	return dims
}

// tooLarge reports whether k can never fit.
func (r *reference) tooLarge(k *refCall) bool {
	return slices.ContainsFunc(r.dimsOf(k), func(i int) bool { return k.spec.Costs[i] > r.books[i].twin.Max() })
}

// earliest is when k could start if all that is held came back now.
func (r *reference) earliest(now time.Time, k *refCall) time.Time {
	at := now
	for _, i := range r.dimsOf(k) {
		b := r.books[i]
		if b.search == nil {
			b.twin.Scale(now, 1)
			if t, ok := b.twin.Earliest(now, k.spec.Costs[i]); ok && t.After(at) {
				at = t
			}
			b.twin.Scale(now, b.scale)
		}
		if reopens := now.Add(time.Duration(b.until - r.clock.last)); b.shut && reopens.After(at) {
			at = reopens
		}
	}
	return at
}

func (r *reference) flow(class int, key string) *refFlow {
	f := r.flows[refKey{class, key}]
	if f == nil {
		f = &refFlow{class: class, shared: key == "", had: make(map[int]float64)}
		if !r.cfg.FIFO {
			f.shares = r.newShares(r.cfg.FlowShare)
		}
		r.flows[refKey{class, key}] = f
	}
	return f
}

func (r *reference) newShares(share float64) (list []*budget.TokenBudget) {
	if share <= 0 {
		return nil
	}
	for i, d := range r.cfg.Dims {
		limit := max(1, int64(share*float64(r.books[i].twin.Limit())))
		b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: limit, Window: d.Window})
		if err != nil {
			panic(err)
		}
		list = append(list, b)
	}
	return list
}

// active reports whether a class, or one flow of it, has a call that is not
// over.
func (r *reference) active(class int, f *refFlow) bool {
	return slices.ContainsFunc(r.calls, func(k *refCall) bool {
		return k.flow.class == class && (f == nil || k.flow == f) && (k.waiting() || k.stays || k.state == refRunning && !k.over())
	})
}

// join makes k a call of its flow.
func (r *reference) join(k *refCall) {
	f, cl := k.flow, r.classes[k.flow.class]
	if !r.active(f.class, f) {
		if f.at <= cl.level.now && !f.shared {
			f.life++ // it was forgotten
		}
		f.at, f.credit = max(f.at, cl.level.now), 0
		if f.weight = k.spec.FlowWeight; f.weight == 0 {
			f.weight = 1
		}
		f.had[f.life] = f.weight
	}
	if !r.active(f.class, nil) {
		cl.at, cl.credit = max(cl.at, r.top.now), 0
	}
	k.life = f.life
	if key := k.spec.Request; key != "" && (r.cfg.RequestSlots > 0 || r.cfg.RequestShare > 0) {
		if r.shares[key] == nil {
			r.shares[key] = &refCeiling{shares: r.newShares(r.cfg.RequestShare)}
		}
		k.request = r.shares[key]
	}
	if !slices.Contains(r.calls, k) {
		r.calls = append(r.calls, k)
	}
}

// left is called when a call is no longer part of its flow: where nothing is
// left all are even.
func (r *reference) left(k *refCall) {
	cl := r.classes[k.flow.class]
	if r.active(k.flow.class, nil) {
		return
	}
	for key, f := range r.flows {
		if key.class == k.flow.class {
			cl.level.now = max(cl.level.now, f.at)
		}
	}
	for i := range r.classes {
		if r.active(i, nil) {
			return
		}
	}
	for _, cl := range r.classes {
		r.top.now = max(r.top.now, cl.at)
	}
}

func (k *refCall) ceilings() []*refCeiling {
	if k.request == nil {
		return []*refCeiling{&k.flow.refCeiling}
	}
	return []*refCeiling{&k.flow.refCeiling, k.request}
}

func (r *reference) start(now time.Time, k *refCall) {
	k.state, k.claims, k.started = refRunning, nil, r.clock.last
	k.freed, k.settled, k.answered, k.refused = false, false, false, nil
	k.perUnit, k.perSlot = r.perUnit, r.perSlot
	if r.shut {
		r.prober = k
	}
	k.holds = make([]budget.Hold, len(r.books))
	for _, i := range r.dimsOf(k) {
		b := r.books[i]
		k.holds[i] = b.twin.Take(now, k.spec.Costs[i])
		if b.shut {
			b.probe = k
		}
	}
	for j, c := range k.ceilings() {
		c.slots += int64(k.spec.Slots)
		k.shareHolds[j] = make([]budget.Hold, len(r.books))
		for i, b := range c.shares {
			k.shareHolds[j][i] = b.Take(now, k.spec.Costs[i])
		}
	}
	q := quota(k.perUnit, k.spec.Costs, float64(k.spec.Slots)*r.hold*k.perSlot)
	k.charged, k.used = q, q
	r.classes[k.flow.class].level.charge(&k.flow.refTag, q)
	r.top.charge(&r.classes[k.flow.class].refTag, q)
}

func (r *reference) counted(now time.Time, k *refCall) {
	if k.state != refRunning || k.settled {
		return
	}
	for _, i := range r.dimsOf(k) {
		k.holds[i] = r.books[i].twin.Counted(now, k.holds[i])
	}
}

func (r *reference) freeSlot(k *refCall) bool {
	if k.state != refRunning || k.freed {
		return false
	}
	k.freed, k.held = true, r.clock.last-k.started
	r.hold += (float64(max(k.held, 1)) - r.hold) / 32
	for _, c := range k.ceilings() {
		c.slots -= int64(k.spec.Slots)
	}
	r.done(k)
	return true
}

func (r *reference) settle(now time.Time, k *refCall, actual []int64) bool {
	if k.state != refRunning || k.settled {
		return false
	}
	if actual == nil {
		actual = k.spec.Costs
	}
	k.settled, k.used = true, quota(k.perUnit, actual, 0)
	if r.prober == k {
		r.prober = nil
	}
	for i, b := range r.books {
		used := actual[i]
		if k.refused != nil && k.refused[i] {
			used = max(used, k.holds[i].Cost())
		}
		b.twin.Settle(now, k.holds[i], used)
		if b.probe == k {
			b.probe = nil
		}
	}
	for j, c := range k.ceilings() {
		for i, b := range c.shares {
			b.Settle(now, k.shareHolds[j][i], actual[i])
		}
	}
	r.done(k)
	return true
}

// emptied is what Emptied must do.
func (r *reference) emptied(now time.Time, k *refCall, i int) {
	if b, ok := r.books[i].twin.(*budget.TokenBudget); ok && k.state == refRunning && !k.settled && k.spec.Costs[i] > 0 {
		b.Emptied(now, k.holds[i], k.spec.Costs[i]-1)
	}
}

// revise is what Revise must do.
func (r *reference) revise(now time.Time, k *refCall, costs []int64) bool {
	if !k.waiting() && (k.state != refRunning || k.settled) {
		return false
	}
	old := slices.Clone(k.spec.Costs)
	for _, i := range r.dimsOf(k) {
		n := max(costs[i], 1)
		if most := max(k.spec.Costs[i], r.books[i].twin.Max()); k.waiting() && n > most {
			n = most
		}
		k.spec.Costs[i] = n
	}
	if k.waiting() {
		return true
	}
	for _, i := range r.dimsOf(k) {
		n := k.spec.Costs[i]
		if old[i] > 0 && costs[i]-old[i] > old[i]/4 {
			r.explain(i, k)
		}
		k.holds[i] = r.books[i].twin.(reviser).Revise(now, k.holds[i], n)
		for j, c := range k.ceilings() {
			if c.shares != nil {
				k.shareHolds[j][i] = c.shares[i].Revise(now, k.shareHolds[j][i], n)
			}
		}
	}
	q := quota(k.perUnit, k.spec.Costs, float64(k.spec.Slots)*r.hold*k.perSlot)
	r.recharge(k, k.charged, q, true)
	k.charged, k.used = q, q
	return true
}

// done corrects the charge of a call that is over.
func (r *reference) done(k *refCall) {
	if !k.over() {
		return
	}
	actual := max(1, k.used, int64(float64(k.held)*float64(k.spec.Slots)*k.perSlot))
	r.recharge(k, k.charged, actual, true)
	k.charged = actual
	r.left(k)
}

// recharge replaces a charge, on the flow only while that is remembered.
func (r *reference) recharge(k *refCall, old, q int64, remembered bool) {
	cl := r.classes[k.flow.class]
	r.top.correct(&cl.refTag, old, q)
	if remembered {
		cl.level.correct(&k.flow.refTag, old, q)
	}
}

// remembered reports whether k's flow was never idle and even since k joined it.
func (r *reference) remembered(k *refCall) bool {
	f := k.flow
	even := f.at <= r.classes[f.class].level.now && !f.shared
	return k.life == f.life && (r.active(f.class, f) || !even)
}

func (r *reference) adjust(now time.Time, k *refCall, extra []int64) {
	if k.state != refRunning || !k.settled || !slices.ContainsFunc(extra, func(n int64) bool { return n > 0 }) {
		return
	}
	for i, b := range r.books {
		if extra[i] > 0 {
			b.twin.Settle(now, budget.Hold{}, extra[i])
			for _, c := range k.ceilings() {
				if c.shares != nil {
					c.shares[i].Settle(now, budget.Hold{}, extra[i])
				}
			}
		}
	}
	more := quota(k.perUnit, extra, 0)
	k.used += more
	if k.freed {
		r.recharge(k, k.charged, k.charged+more, r.remembered(k))
		k.charged += more
		if level := &r.classes[k.flow.class].level; k.flow.shared && !r.active(k.flow.class, nil) {
			level.now = max(level.now, k.flow.at)
		}
	}
}
