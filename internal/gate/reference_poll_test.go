package gate

import (
	"slices"
	"time"
)

// outcome is what a Poll must answer.
type outcome struct {
	grants, late, never []*refCall
}

// poll lets dispatch start every call that may start, and ends the waits that
// have failed.
func (r *reference) poll(now time.Time, dispatch func(time.Time) []*refCall) (o outcome) {
	m := r.clock.at(now)
	if r.unfit {
		r.unfit = false
		for _, k := range r.calls {
			if k.waiting() && r.tooLarge(k) {
				o.never = append(o.never, k)
			}
		}
		r.fail(o.never)
	}
	var late []*refCall
	for _, k := range r.calls {
		backing := k.state == refBacking
		switch {
		case !k.waiting():
		case backing && k.notBefore <= m && k.notBefore < k.deadline && m <= k.deadline:
			k.state = refQueued
			for _, c := range slices.Clone(r.chosen) {
				if c.flow == k.flow && c.seq > k.seq {
					r.unchoose(c) // it is not the next of its flow any more
				}
			}
		case k.deadline < m || backing && k.deadline == m:
			late = append(late, k)
		}
	}
	for {
		r.fail(late)
		o.late = append(o.late, late...)
		o.grants = append(o.grants, dispatch(now)...)
		late = nil
		for _, k := range r.calls {
			if k.state == refQueued && k.deadline <= m {
				late = append(late, k) // it could still have started
			}
		}
		if len(late) == 0 {
			return o
		}
	}
}

func (r *reference) fail(calls []*refCall) {
	for _, k := range calls {
		r.unchoose(k)
		k.state = refFailed
		r.left(k)
	}
}

func (r *reference) unchoose(k *refCall) {
	k.claims = nil
	r.chosen = slices.DeleteFunc(r.chosen, func(c *refCall) bool { return c == k })
}

// dispatch lets everybody have what it may.
func (r *reference) dispatch(now time.Time) (grants []*refCall) {
	for {
		more := r.pass(now)
		if len(more) == 0 {
			return grants
		}
		grants = append(grants, more...)
	}
}

// pass goes through the line once, with the claims as they are by then.
func (r *reference) pass(now time.Time) (grants []*refCall) {
	slots := len(r.books) // the place of the slots in a list of resources
	claimed := make([]bool, slots+1)
	claimers := make(map[int]bool) // classes whose calls claim slots
	alone := false
	unitsBlocked := func(k *refCall) bool {
		return slices.ContainsFunc(r.dimsOf(k), func(i int) bool { return claimed[i] })
	}
	slotsBlocked := func(k *refCall) bool {
		class := k.flow.class
		return claimed[slots] && (alone || claimers[class] || int64(k.spec.Slots) > r.unused(class))
	}
	claim := func(k *refCall, lack []bool) {
		for i := range lack {
			k.claims[i] = lack[i] || k.claims[i] && i != slots
			claimed[i] = claimed[i] || k.claims[i]
		}
		if lack[slots] {
			claimers[k.flow.class] = true
			alone = alone || int64(k.spec.Slots) > r.room(k.flow.class)
		}
	}
	grant := func(k *refCall) {
		r.unchoose(k)
		r.start(now, k)
		grants = append(grants, k)
	}
	for _, k := range slices.Clone(r.chosen) {
		if k.flow.blocks(now, r.flowSlots(), k) || k.request != nil && k.request.blocks(now, r.cfg.RequestSlots, k) {
			r.unchoose(k)
			continue
		}
		lack, lacking := r.lacks(now, k)
		if !lacking && !unitsBlocked(k) && !slotsBlocked(k) {
			grant(k)
			continue
		}
		claim(k, lack)
	}
	skip := make(map[int]bool)
	for {
		k := r.next(r.heads(now), skip, unitsBlocked)
		switch {
		case k == nil:
			return grants
		case !r.underCap(k) || slotsBlocked(k):
			skip[k.flow.class] = true
			continue
		}
		lack, lacking := r.lacks(now, k)
		if !lacking {
			grant(k)
			continue
		}
		k.claims = make([]bool, slots+1)
		r.chosen = append(r.chosen, k)
		claim(k, lack)
		clear(skip)
	}
}

// cancel is what Cancel, and End of a call that waits, must do.
func (r *reference) cancel(k *refCall) bool {
	if !k.waiting() {
		return false
	}
	r.unchoose(k)
	r.forget(k)
	r.left(k)
	return true
}

func (r *reference) forget(k *refCall) {
	r.calls = slices.DeleteFunc(r.calls, func(c *refCall) bool { return c == k })
}

func (r *reference) end(now time.Time, k *refCall) bool {
	switch {
	case !slices.Contains(r.calls, k):
		return false
	case k.state == refFailed:
		r.forget(k)
		return true
	case k.waiting():
		return r.cancel(k)
	}
	r.freeSlot(k)
	r.settle(now, k, nil)
	r.forget(k)
	return true
}

func (r *reference) requeue(now time.Time, k *refCall, actual []int64, notBefore time.Time) bool {
	if k.state != refRunning {
		return false
	}
	m := r.clock.at(now)
	if k.over() {
		k.spec.FlowWeight = k.flow.had[k.life] // it comes back with the weight that its flow had
		r.join(k)
	}
	k.stays = true // its flow stays active while the attempt is charged
	r.freeSlot(k)
	r.settle(now, k, actual)
	k.stays = false
	k.state, k.notBefore = refBacking, max(m, m+int64(notBefore.Sub(now)))
	r.unfit = r.unfit || r.tooLarge(k)
	return true
}

func (r *reference) closeBudget(now time.Time, i int, until time.Time) {
	m := r.clock.at(now)
	b := r.books[i]
	at := m + int64(until.Sub(now))
	if at > m {
		b.probe = nil
	}
	if !b.shut {
		b.shut, b.until = true, at
	}
	b.until = max(b.until, at)
}

func (r *reference) succeeded(now time.Time, k *refCall) {
	if k.state != refRunning || k.answered {
		return
	}
	r.clock.at(now)
	for i, b := range r.books {
		if b.probe == k {
			b.shut, b.probe = false, nil
			if b.search != nil {
				b.dry(now, k.holds[i], 0)
			}
		}
		if n := k.spec.Costs[i]; b.search != nil && n > 0 {
			r.grow(i, n)
		}
	}
	slow := r.share >= r.regain && !r.shut
	if r.answer(k); slow && r.share < 1 {
		r.share = min(1, r.share+1/(float64(r.limit())*float64(r.slots)))
	}
	r.growSlots(k)
}

func (r *reference) cutSlots(k *refCall) {
	if k.state == refRunning && k.started > r.cutAt && !r.shut {
		r.cutAt = r.clock.last
		if len(r.refusals) == 0 {
			r.regain *= cutFactor
		}
		r.share = max(r.share*cutFactor, 1/float64(r.slots))
	}
}

// back notes that the provider has answered k.
func (r *reference) back(k *refCall) {
	if k.state != refRunning || len(r.refusals) == 0 || k.started <= r.refusals[0] {
		return
	}
	if r.shut {
		r.regain, r.share = r.whole, min(r.whole, float64(r.inUse(-1))/float64(r.slots))
	}
	r.whole = 0
	r.shut, r.shutUntil, r.prober, r.refusals = false, 0, nil, nil
}

// answer is what both kinds of answers do.
func (r *reference) answer(k *refCall) {
	if k.state != refRunning || k.answered {
		return
	}
	k.answered = true
	r.back(k)
	if r.share < r.regain {
		r.share = min(1, r.share+1/float64(r.slots))
	}
}

func (r *reference) overloaded(k *refCall) int {
	n := len(r.refusals)
	if k.state != refRunning || n > 0 && k.started <= r.refusals[n-1] {
		return 0
	}
	if n == 0 {
		r.whole = max(r.share, r.regain)
		r.regain *= cutFactor
	}
	r.refusals = append(r.refusals, r.clock.last)
	return max(0, len(r.refusals)-4)
}

func (r *reference) pause(now, until time.Time) {
	m := r.clock.at(now)
	if at := m + int64(until.Sub(now)); !r.shut || at > r.shutUntil {
		r.shutUntil = at
	}
	if until.After(now) {
		r.prober = nil
	}
	if !r.shut {
		r.share = max(r.share, r.whole)
	}
	r.shut = true
}

func (r *reference) setSlots(n int64) {
	if f := r.finds; f != nil {
		f.most = n
		r.setFoundSlots(min(f.found, float64(n)))
		return
	}
	r.slots = n
	r.newRates()
}
