package route

import (
	"math"
	"sync"
	"time"
)

// never is a wait that does not end.
const never = time.Duration(math.MaxInt64)

// table is what a pool knows of its routes, in order of tiers. It takes the time
// as an argument, after the pool's epoch, and is safe for concurrent use.
type table struct {
	spill, patience time.Duration

	mu sync.Mutex
	// mu guards all that follows, but for what is marked as fixed. It is never held
	// while anything else is asked.
	lanes    []lane  // their number is fixed
	virtual  float64 // calls over weight of the lane that had the last call, before it
	attempts uint64
	changed  chan struct{} // closed when calls in line should think again
	told     time.Duration // when that was last done for a hint
}

// lane is one route in the table.
type lane struct {
	health
	calls  float64 // over its weight
	hash   uint64  // of its name; fixed
	tier   int     // fixed
	weight float64 // fixed
}

// toldEvery is how often hints of a provider make calls in line think again at
// most: each of them looks at all routes.
const toldEvery = time.Second

func newTable(cfg *Config) *table { // without lanes
	return &table{spill: cfg.Spill, patience: cfg.Patience, changed: make(chan struct{}), told: -toldEvery}
}

// set is a set of routes.
type set uint32

func (s set) has(i int) bool { return s>>i&1 != 0 }
func (s set) with(i int) set { return s | 1<<i }

// question is what a call wants to know.
type question struct {
	key    uint64        // hash of its key
	sticky bool          // it has one
	barred set           // routes that it may not take
	forced bool          // routes that are left out are as good as others
	exact  bool          // the wait must be known
	here   int           // the route whose line it could stay in; -1 is none
	stay   time.Duration // how long it would wait there
}

// ranking is the routes that a call may take, in the order in which they are
// preferred while they have the same wait.
type ranking struct {
	n    int
	at   [maxRoutes]uint8
	rank [maxRoutes]float64
}

// rank lists the routes that a call may take: by tier, and within a tier those
// that belong to its key most, or that have had the fewest calls for their weight.
func (t *table) rank(now time.Duration, q *question, r *ranking) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.n = 0
	for i := range t.lanes {
		l := &t.lanes[i]
		if i != q.here && (q.barred.has(i) || !q.forced && !l.open(now)) {
			continue
		}
		rank := l.calls
		if q.sticky {
			rank = -score(q.key, l.hash, l.weight)
		}
		j := r.n
		for ; j > 0 && t.lanes[r.at[j-1]].tier == l.tier && r.rank[j-1] > rank; j-- {
			r.at[j], r.rank[j] = r.at[j-1], r.rank[j-1]
		}
		r.at[j], r.rank[j] = uint8(i), rank
		r.n++
	}
}

// choose is the best of the ranked routes, and the wait there; -1 if there is none.
// wait predicts it for a route; bound is how long the call may wait there at all.
func (t *table) choose(r *ranking, q *question, wait, bound func(int) time.Duration) (best int, shortest time.Duration) {
	best = -1
	if r.n == 1 && !q.exact {
		return int(r.at[0]), 0 // whatever the wait is
	}
	for j := range r.n {
		i := int(r.at[j])
		if best >= 0 && t.lanes[i].tier != t.lanes[r.at[j-1]].tier && shortest <= min(t.spill, bound(best)) {
			return best, shortest // no need for the next tier
		}
		w := q.stay
		if i != q.here {
			w = wait(i)
		}
		if best < 0 || w < shortest {
			best, shortest = i, w
		}
		if j == 0 && q.sticky && w <= min(t.patience, bound(i)) {
			return best, shortest
		}
		if w == 0 {
			return best, shortest // nothing is shorter
		}
	}
	return best, shortest
}

// take has a call begin an attempt at a route, and returns its number. It is false
// if somebody else has begun to try the route meanwhile. changed tells from now on
// when the call should think again; out whether the route is left out.
func (t *table) take(now time.Duration, i int, forced bool) (attempt uint64, changed <-chan struct{}, out, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.lanes[i]
	if !forced && !l.open(now) {
		return 0, nil, false, false
	}
	t.attempts++
	l.try(now, t.attempts)
	// Start-time fair queueing over the calls that have a choice. Who was not chosen
	// for a while, because calls had to wait there, does not get all that it has
	// missed later.
	l.calls = max(l.calls, t.virtual-1/l.weight)
	t.virtual = max(t.virtual, l.calls)
	l.calls += 1 / l.weight
	return t.attempts, t.changed, l.out, true
}

// isOut reports whether a route is left out.
func (t *table) isOut(i int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lanes[i].out
}

// watch is the channel that is closed when calls in line should think again.
func (t *table) watch() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// served notes that a route has answered a call; it reports whether the route is
// back by that.
func (t *table) served(i int, began time.Duration) (back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if back = t.lanes[i].served(began); back {
		t.tell()
	}
	return back
}

// hit notes a failure of a call at a route. It reports whether that leaves the
// route out, after how many failures, and until when.
func (t *table) hit(now, began time.Duration, i int, b blow, hint time.Duration) (leftOut bool, strikes int, until time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.lanes[i]
	leftOut = l.hit(now, began, b, hint)
	switch {
	case leftOut:
		t.tell()
	case hint >= toldEvery && now-t.told >= toldEvery: // its gate is closed for so long
		t.told = now
		t.tell()
	}
	return leftOut, l.strikes, l.until
}

// untried tells that an attempt has found out nothing of a route.
func (t *table) untried(i int, attempt uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes[i].untried(attempt)
}

// tell has calls in line think again. mu is held.
func (t *table) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}
