package journal

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// reservation is one that is open: what is needed to book it anew.
type reservation struct {
	taken time.Time // before the ledger was asked
	ttl   time.Duration
	note  quota.Note
	holds bool // some of entries are of kind Hold
	// unmade is true if the ledger has never granted it: what it counts was not
	// recorded by itself.
	unmade bool

	// reservations.mu guards all that follows.
	until time.Time // when the ledger has forgotten it, unless it is renewed
	tried time.Time // when the ledger was first told what it was settled to
	// entries are those of kind Hold and Count, and leases those of kind Lease, encoded.
	// Rolling ones are not among them.
	entries, leases []byte
}

// newReservation is what is to be remembered of a reservation that the ledger has
// granted after taken: its entries in the windows of the ledger's answer. holds is true if there is
// something to be settled or released, and counts if something has counted for good.
func newReservation(r *quota.Reserve, res *quota.Reserved, taken time.Time) (x *reservation, holds, counts bool) {
	if res.Repeated && res.Now.Before(taken) && !res.Now.IsZero() {
		taken = res.Now // of the first result
	}
	x = &reservation{taken: taken, ttl: r.TTL, note: r.Note}
	if x.ttl == 0 {
		x.ttl = quota.DefaultTTL
	}
	for i := range r.Entries {
		e := &r.Entries[i]
		holds = holds || e.Kind == quota.Hold || e.Kind == quota.Lease
		x.holds = x.holds || e.Kind == quota.Hold && !e.Rolling
		counts = counts || e.Kind == quota.Count && !e.Rolling && e.Amount > 0
	}
	window := func(i int) quota.Span {
		if i < len(res.Status) {
			return res.Status[i].Span
		}
		return r.Entries[i].SpanAt(res.Now)
	}
	x.entries = appendEntries(nil, r.Entries, func(e *quota.Entry) bool {
		return !e.Rolling && (e.Kind == quota.Hold || e.Kind == quota.Count)
	}, window)
	x.leases = appendEntries(nil, r.Entries, func(e *quota.Entry) bool {
		return !e.Rolling && e.Kind == quota.Lease
	}, window)
	return x, holds, counts
}

// decodeEntries are entries that were encoded here.
func decodeEntries(b []byte) []quota.Entry {
	d := decoder{b: b}
	return d.entries()
}

// reservations are those that are open. They are forgotten when they end, or when
// the ledger has forgotten them.
type reservations struct {
	max      int
	remember time.Duration

	mu sync.Mutex
	// mu guards all that follows.
	all       map[key]*reservation
	sweepAt   int // how many there are when those that are over are looked for
	swept     time.Time
	forgotten int64
}

// leastSweep is how many reservations there are at least before those that are over are
// looked for.
const leastSweep = 1 << 10

// fullSweep is how often they are looked for while there is no room.
const fullSweep = 10 * time.Second

func (t *reservations) init(cfg *Config) {
	t.max, t.remember = cfg.MaxOpen, cfg.Remember
	t.all, t.sweepAt = map[key]*reservation{}, leastSweep
}

// put remembers a reservation, unless it is remembered already.
func (t *reservations) put(k key, x *reservation) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[k] != nil {
		return
	}
	if n := len(t.all); n >= t.sweepAt || n >= t.max && now.Sub(t.swept) >= fullSweep {
		maps.DeleteFunc(t.all, func(_ key, x *reservation) bool { return now.After(x.until) })
		t.sweepAt = max(2*len(t.all), leastSweep) // so that each is looked at about once
		t.swept = now
	}
	if len(t.all) >= t.max {
		t.forgotten++
		return
	}
	x.until = now.Add(x.ttl + t.remember)
	t.all[k] = x
}

func (t *reservations) get(k key) *reservation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[k]
}

func (t *reservations) drop(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, k)
}

// renewed notes that the ledger has renewed some, but for those that it has lost.
func (t *reservations) renewed(tree string, ttl time.Duration, ids, lost []string) {
	if ttl == 0 {
		ttl = quota.DefaultTTL
	}
	until := time.Now().Add(ttl + t.remember)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if x := t.all[key{tree, id}]; x != nil && until.After(x.until) && !slices.Contains(lost, id) {
			x.until = until
		}
	}
}

// settles notes that the ledger is about to be told what a reservation was settled to, and
// returns what is known of that. x may be nil.
func (t *reservations) settles(x *reservation) (of known) {
	if x == nil {
		return of
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.again = !x.tried.IsZero(); !of.again {
		x.tried = time.Now()
	}
	of.taken, of.told, of.note, of.entries = x.taken, x.tried, x.note, x.entries
	return of
}

// erase forgets the entries of a key.
func (t *reservations) erase(tree, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	without := func(b []byte) []byte {
		kept := slices.DeleteFunc(decodeEntries(b), func(e quota.Entry) bool { return e.Key == id })
		return appendEntries(nil, kept, isCalendar, func(i int) quota.Span { return kept[i].Spans[1] })
	}
	for k, x := range t.all {
		if k.tree == tree {
			x.entries, x.leases = without(x.entries), without(x.leases)
		}
	}
}

// open are the keys of all.
func (t *reservations) open() []key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.all))
}

// held are the entries of an open reservation: all that it has taken. There are none of one
// that is being settled.
func (t *reservations) held(k key) (x *reservation, entries []quota.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x = t.all[k]; x == nil || !x.tried.IsZero() {
		return nil, nil
	}
	return x, append(decodeEntries(x.entries), decodeEntries(x.leases)...)
}

func (t *reservations) count() (open int, forgotten int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all), t.forgotten
}
