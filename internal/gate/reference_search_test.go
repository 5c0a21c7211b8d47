package gate

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// refSearch is the rules by which a limit is found that nobody has told, written
// down once more: what the provider has done is kept, and looked at when it is asked
// for.
type refSearch struct {
	Search
	most  float64 // per Search.Window
	limit float64
	order float64 // the limit by which calls are charged

	served   []refServed
	mean     float64 // of a served call's units
	decided  float64
	runs     float64
	unserved int // cuts since a call was served
	since    int // calls served since the last cut

	quick    float64 // the limit doubles up to this one
	dropping bool    // the first refusals after that are not over
	cutAt    int64   // -1 is never
	runAt    int64   // when the last run of cuts began
	before   float64 // the limit then
}

type refServed struct {
	at    int64
	units int64
}

func newRefSearch(s *Search, limiter budget.Limiter, window time.Duration) *refSearch {
	r := &refSearch{Search: *s, quick: math.Inf(1), cutAt: -1, most: float64(limiter.Limit()) * (float64(s.Window) / float64(window))}
	if r.limit = r.most; s.Start > 0 {
		r.limit = min(r.most, float64(s.Start))
		r.order = r.limit
	}
	return r
}

// usage is what was served in the window of now and, so far as a window that ends now
// reaches into it, in the one before; and all of the one before.
func (s *refSearch) usage(now int64) (both, before float64) {
	w := int64(s.Window)
	for _, x := range s.served {
		switch x.at / w {
		case now / w:
			both += float64(x.units)
		case now/w - 1:
			before += float64(x.units)
		}
	}
	return both + before*(1-float64(now%w)/float64(w)), before
}

// p is the share of runs of refusals.
func (s *refSearch) p() float64 { return s.runs / max(s.decided, 100) }

func (s *refSearch) decide() {
	if s.decided >= 400 {
		s.decided, s.runs = s.decided/2, s.runs/2
	}
	s.decided++
}

// found puts a limit in force. Charges follow it in steps of a tenth.
func (r *reference) found(i int, limit float64) {
	b := r.books[i]
	s := b.search
	share := min(1, max(limit/s.most, 1/float64(b.twin.Limit())))
	s.limit = share * s.most
	if s.order == 0 || s.limit > s.order*1.1 || s.limit < s.order/1.1 {
		s.order = s.limit
		r.newRates()
	}
}

// meet sees the costs of a call that comes.
func (r *reference) meet(costs []int64) {
	for i, b := range r.books {
		if b.search != nil && b.search.order == 0 && costs[i] > 0 {
			r.found(i, 10*float64(costs[i]))
		}
	}
}

// grow is what a served call does to a limit.
func (r *reference) grow(i int, cost int64) {
	s, now := r.books[i].search, r.clock.last
	s.decide()
	s.unserved = 0
	s.since++
	if s.mean == 0 {
		s.mean = float64(cost)
	}
	s.mean += (float64(cost) - s.mean) / 32
	s.served = append(s.served, refServed{now, cost})
	use, _ := s.usage(now)
	if s.limit < s.quick {
		if use*4 >= s.limit {
			r.found(i, s.limit+4*float64(cost))
		}
		return
	}
	if use*2 < s.limit {
		return
	}
	t := max(600, 10*s.Window.Seconds())
	step := float64(cost) * s.Window.Seconds() / t * math.Sqrt(60*s.mean/s.limit)
	if p := s.p() / 0.005; p > 1 {
		step /= min(p, 16)
	}
	if h := min(float64(now-s.cutAt)/1e9/(t/2), float64(s.since)/500); h > 1 {
		step *= h * h
	}
	r.found(i, s.limit+step)
}

// cut is what a refusal does to a limit that is searched for.
func (r *reference) cut(now time.Time, k *refCall, i int) int {
	b := r.books[i]
	s := b.search
	if s == nil || k.state != refRunning || k.settled || k.spec.Costs[i] <= 0 {
		return 0
	}
	if k.refused == nil {
		k.refused = make([]bool, len(r.books))
	}
	if !k.refused[i] {
		s.decide()
	}
	k.refused[i] = true
	b.dry(now, k.holds[i], k.spec.Costs[i]-1)
	if k.started <= s.cutAt {
		return 0
	}
	ns := r.clock.last
	first := s.cutAt < 0 || ns-s.runAt > int64(s.Window)
	if first {
		s.runAt, s.before = ns, s.limit
		s.runs++
		s.dropping = false
	}
	s.cutAt, s.since = ns, 0
	s.unserved++
	use, before := s.usage(ns)
	s.dropping = s.dropping || s.limit < s.quick
	switch {
	case use > 0:
		s.quick = 0
	case s.quick < s.limit/2:
		s.quick = s.limit / 2
	}
	target := use / 2
	if !s.dropping {
		if before > 0 && before < use {
			use = before
		}
		if first && s.limit < use {
			use = s.limit
		}
		target = use * (1 - min(max(10*s.p(), 0.03), 0.3))
	}
	least := min(s.limit, float64(s.Least)/float64(r.replicas))
	r.found(i, max(min(s.limit, target), 0.7*s.limit, least))
	return max(0, s.unserved-3)
}

// dry takes what is left out of a bucket.
func (b *book) dry(now time.Time, h budget.Hold, left int64) {
	if bucket, ok := b.twin.(*budget.TokenBudget); ok {
		bucket.Emptied(now, h, left)
	}
}

// explain takes the cuts back that came while k was on its way.
func (r *reference) explain(i int, k *refCall) {
	if s := r.books[i].search; s != nil && s.limit < s.before && k.started <= s.runAt {
		r.found(i, s.before)
	}
}

// refSlots is the rules by which the number of slots is found.
type refSlots struct {
	most  int64
	found float64
	quick bool
	cutAt int64
	order int64 // the slots by which calls are charged
}

// setFoundSlots puts a number of slots in force.
func (r *reference) setFoundSlots(n float64) {
	f := r.finds
	f.found, r.slots = n, int64(n)
	if 10*r.slots > 11*f.order || 11*r.slots < 10*f.order { // by more than a tenth
		f.order = r.slots
		r.newRates()
	}
}

// growSlots is what an answer to k does to the slots.
func (r *reference) growSlots(k *refCall) {
	f := r.finds
	if f == nil || r.share < 1 || 2*r.inUse(-1) < r.slots {
		return
	}
	more := float64(k.spec.Slots)
	if !f.quick {
		more /= f.found
	}
	r.setFoundSlots(min(f.found+more, float64(f.most)))
}

// crowded is what a refusal for want of a place does.
func (r *reference) crowded(k *refCall) {
	f := r.finds
	switch {
	case f == nil:
		r.cutSlots(k)
	case k.state == refRunning && k.started > f.cutAt:
		f.cutAt, f.quick = r.clock.last, false
		r.setFoundSlots(max(0.9*f.found, 1))
	}
}
