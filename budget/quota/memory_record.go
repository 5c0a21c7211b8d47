package quota

import (
	"slices"
	"time"
)

// recordKey names a reservation, or an exclusive value, of a tree.
type recordKey struct{ tree, id string }

// state is what became of a reservation.
type state uint8

const (
	open state = iota
	settled
	released
	expired
)

var recordStates = []string{"open", "settled", "released", "expired"}

// record is a reservation, and the results that were given for it.
type record struct {
	key       recordKey
	held      []held // its entries, and after these what Settle brought with it
	entries   int    // how many of held are its entries
	exclusive string
	state     state
	expires   int64   // nanoseconds of the monotonic clock
	ended     int64   // the same
	place     int     // in shard.expiring
	next      *record // in shard.ended

	reserved reservedResult
	settled  settledResult
	seq      int64 // of the last settlement
}

// reservedResult is what a repeat of Reserve is told, besides Status.
type reservedResult struct {
	now     int64 // Unix nanoseconds
	wait    time.Duration
	over    []int
	crossed []Crossing
}

// settledResult is what a repeat of Settle is told, besides Status.
type settledResult struct {
	over, late bool
	crossed    []Crossing
}

// held is an entry of a reservation: what it holds, and in which counter.
type held struct {
	account *account // nil if it was erased
	counter int      // its index in calendars or buckets
	kind    Kind
	unit    Unit
	rolling bool
	passed  bool // nothing is taken: it is a Check, or has no limit, or is only observed

	limit      int64
	thresholds []int
	amount     int64 // what was taken
	used       int64 // what it was settled to
	kept       int64 // the part of used that no reset has cleared since
	epoch      uint32

	start, end  int64 // of a calendar's window
	burst, mark int64 // of a bucket, and of its charge

	first, last standing // after Reserve, and after Settle
}

// standing is what a status says besides what the entry says.
type standing struct {
	committed, reserved int64
	full                int64 // Unix nanoseconds; 0 for none
}

// status fills in the status of what is held, as it stood then. It writes field by
// field, which costs a garbage collector at work less than a copy of the whole.
func (h *held) status(to *Status, st standing) {
	to.Limit = h.limit
	if h.account == nil {
		to.Limit = -1
		return
	}
	to.Counter.Key, to.Counter.Unit = h.account.key, h.unit
	to.Committed, to.Reserved = st.committed, st.reserved
	if h.rolling {
		to.Counter.Window = h.account.buckets[h.counter].window
		to.Rolling, to.Burst = true, h.burst
	} else {
		to.Counter.Window = h.account.calendars[h.counter].window
		to.Span = spanOf(h.start, h.end)
	}
	if st.full != 0 {
		to.FullAt = time.Unix(0, st.full).UTC()
	}
}

// newRecord makes a record with room for n entries, of an old one or in one piece.
func (s *shard) newRecord(n int) *record {
	if last := len(s.free) - 1; last >= 0 {
		r := s.free[last]
		s.free[last] = nil
		s.free = s.free[:last]
		if cap(r.held) >= n {
			*r = record{held: r.held[:0]}
			return r
		}
	}
	switch {
	case n <= 1:
		r := new(struct {
			record
			room [1]held
		})
		r.held = r.room[:0]
		return &r.record
	case n <= 2:
		r := new(struct {
			record
			room [2]held
		})
		r.held = r.room[:0]
		return &r.record
	case n <= 5:
		r := new(struct {
			record
			room [5]held
		})
		r.held = r.room[:0]
		return &r.record
	case n <= 8:
		r := new(struct {
			record
			room [8]held
		})
		r.held = r.room[:0]
		return &r.record
	}
	return &record{held: make([]held, 0, n)}
}

// repeatReserve is the first result of a Reserve.
func (r *record) repeatReserve(room []Status) Reserved {
	res := Reserved{
		Denied: -1, Wait: r.reserved.wait, Now: time.Unix(0, r.reserved.now).UTC(), Repeated: true,
		Over: slices.Clone(r.reserved.over), Crossed: slices.Clone(r.reserved.crossed),
		Status: statusesIn(room, r.entries),
	}
	for i := range res.Status {
		r.held[i].status(&res.Status[i], r.held[i].first)
	}
	return res
}

// result is that of the last Settle that took effect.
func (r *record) result(room []Status) Settled {
	res := Settled{Over: r.settled.over, Late: r.settled.late, Crossed: slices.Clone(r.settled.crossed)}
	n := 0
	for i := range r.held {
		if r.held[i].settles(i, r) {
			n++
		}
	}
	res.Status = statusesIn(room, n)
	n = 0
	for i := range r.held {
		if h := &r.held[i]; h.settles(i, r) {
			h.status(&res.Status[n], h.last)
			n++
		}
	}
	return res
}

// settles reports whether the i-th of what r holds is settled.
func (h *held) settles(i int, r *record) bool { return h.kind == Hold || i >= r.entries }

// start makes a record an open one.
func (s *shard) start(r *record) {
	s.records[r.key] = r
	if r.exclusive != "" {
		s.exclusive[recordKey{r.key.tree, r.exclusive}] = r
	}
	r.place = len(s.expiring)
	s.expiring = append(s.expiring, r)
	s.up(r.place)
	s.opened.Store(int64(len(s.expiring)))
}

// finish makes an open record an ended one, which is remembered for a while.
func (s *shard) finish(r *record, to state, now int64) {
	last := len(s.expiring) - 1
	moved := s.expiring[last]
	s.expiring[r.place], moved.place = moved, r.place
	s.expiring[last] = nil
	s.expiring = s.expiring[:last]
	if moved != r {
		s.fix(moved.place)
	}
	s.opened.Store(int64(len(s.expiring)))
	if r.exclusive != "" {
		delete(s.exclusive, recordKey{r.key.tree, r.exclusive})
	}
	r.state, r.ended = to, now
	s.ended.push(r)
	s.remembered.Store(int64(s.ended.len))
	if s.ends++; s.ends%addUpEvery == 0 {
		s.crowded = s.m.remembered() > int64(s.m.cfg.MaxRemembered)
	}
	// Two at most, so that an end costs the same always.
	for range 2 {
		old := s.ended.first
		crowded := s.crowded && s.ended.len > s.m.cfg.MaxRemembered/memoryShards+1
		if !crowded && now-old.ended < int64(s.m.cfg.Remember) {
			break
		}
		s.ended.pop()
		delete(s.records, old.key)
		if len(s.free) < maxFree {
			s.free = append(s.free, old)
		}
	}
}

// maxFree bounds how many records are kept to be used again.
const maxFree = 64

// addUpEvery is how many ends of a shard share the work to add up what all shards
// remember.
const addUpEvery = 16

// remembered is how many reservations that have ended are remembered.
func (m *Memory) remembered() (n int64) {
	for i := range m.shards {
		n += m.shards[i].remembered.Load()
	}
	return n
}

// The heap of what expires.

func (s *shard) fix(i int) {
	if !s.up(i) {
		s.down(i)
	}
}

func (s *shard) up(i int) (moved bool) {
	h := s.expiring
	for i > 0 {
		parent := (i - 1) / 2
		if h[i].expires >= h[parent].expires {
			break
		}
		s.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (s *shard) down(i int) {
	h := s.expiring
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].expires < h[child].expires {
			child++
		}
		if h[child].expires >= h[i].expires {
			return
		}
		s.swap(i, child)
		i = child
	}
}

func (s *shard) swap(i, j int) {
	h := s.expiring
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// fifo is a list of records.
type fifo struct {
	first, last *record
	len         int
}

func (f *fifo) push(r *record) {
	if f.last == nil {
		f.first = r
	} else {
		f.last.next = r
	}
	f.last = r
	f.len++
}

func (f *fifo) pop() {
	r := f.first
	f.first, r.next = r.next, nil
	if f.first == nil {
		f.last = nil
	}
	f.len--
}
