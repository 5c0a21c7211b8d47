package quota

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// accountKey names the counters of one key.
type accountKey struct{ tree, key string }

// account is the counters of one key. Counters are never removed from it, so that
// their indices stay.
type account struct {
	key       string
	calendars []calendar
	buckets   []bucket
	used      int64 // when it was used last
	gone      bool  // it was forgotten, and there may be another one by now
}

// name tells the counters of an account apart. There is one copy in a shard, for
// all accounts.
type name struct {
	window string
	unit   Unit
	per    int64 // of a rolling one, in nanoseconds
}

// maxCounters bounds how many counters of a kind a key may have: limits differ by
// window and unit, and those of a plan that is no more stay.
const maxCounters = 256

// find returns the index of an entry's counter, or −1.
func (a *account) find(e *Entry) int {
	switch {
	case a == nil:
	case e.Rolling:
		for i := range a.buckets {
			if b := &a.buckets[i]; b.unit == e.Unit && b.per == int64(e.Per) && b.window == e.Window {
				return i
			}
		}
	default:
		return a.calendar(e.Counter)
	}
	return -1
}

func (a *account) calendar(c Counter) int {
	for i := range a.calendars {
		if x := &a.calendars[i]; x.unit == c.Unit && x.window == c.Window {
			return i
		}
	}
	return -1
}

// idle reports whether nothing is lost of what still matters when a is forgotten.
func (a *account) idle(now reading) bool {
	wall := now.wall.UnixNano()
	for i := range a.calendars {
		if !a.calendars[i].idle(wall) {
			return false
		}
	}
	for i := range a.buckets {
		if b := &a.buckets[i]; b.Open != nil || b.Full > now.mono {
			return false
		}
	}
	return true
}

// counter makes an entry's counter, with the window in which it begins, and returns
// its index.
func (s *shard) counter(a *account, e *Entry, start, end int64, now reading) int {
	n := name{window: e.Window, unit: e.Unit}
	if e.Rolling {
		n.per = int64(e.Per)
	}
	own := s.names[n]
	if own == nil {
		n.window = strings.Clone(n.window)
		own = &n
		s.names[n] = own
	}
	if e.Rolling {
		a.buckets = append(a.buckets, bucket{name: own, Bucket: rolling.Bucket{At: now.mono}})
		return len(a.buckets) - 1
	}
	a.calendars = append(a.calendars, calendar{name: own, cur: period{start: start, end: end, limit: -1}})
	return len(a.calendars) - 1
}

// account returns a key's counters, and makes it if need be.
func (s *shard) account(tree, key string) *account {
	k := accountKey{tree, key}
	if a := s.accounts[k]; a != nil {
		return a
	}
	k.key = strings.Clone(key) // what is kept must not keep a request alive
	if strings.HasPrefix(key, tree) {
		k.tree = k.key[:len(tree)]
	} else {
		k.tree = strings.Clone(tree)
	}
	a := &account{key: k.key}
	s.accounts[k] = a
	s.subjects.Store(int64(len(s.accounts)))
	return a
}

// current returns the counter of what is held, as it may have been forgotten since.
func (s *shard) current(tree string, h *held, now reading) {
	old := h.account
	if !old.gone {
		return
	}
	e := Entry{Rolling: h.rolling}
	if h.rolling {
		b := &old.buckets[h.counter]
		e.Unit, e.Window, e.Per = b.unit, b.window, time.Duration(b.per)
	} else {
		c := &old.calendars[h.counter]
		e.Unit, e.Window = c.unit, c.window
	}
	h.account = s.account(tree, old.key)
	if h.counter = h.account.find(&e); h.counter < 0 {
		h.counter = s.counter(h.account, &e, h.start, h.end, now)
	}
}

// thresholds returns the ledger's own copy of a set of thresholds.
func (s *shard) thresholds(set []int) []int {
	if len(set) == 0 {
		return nil
	}
	for _, own := range s.sets {
		if slices.Equal(own, set) {
			return own
		}
	}
	own := slices.Clone(set)
	if len(s.sets) < 64 {
		s.sets = append(s.sets, own)
	}
	return own
}

// A fullError is what there is no room for.
type fullError struct {
	what string
	max  int
}

func (e *fullError) Error() string {
	return fmt.Sprintf("%v: MemoryConfig.%s of %d reached", ErrUnavailable, e.what, e.max)
}

func (e *fullError) Unwrap() error { return ErrUnavailable }

// roomForCounter returns an error if an account can have no more counters.
func (f *found) roomForCounter() error {
	if a := f.account; f.counter < 0 && a != nil && (len(a.calendars) >= maxCounters || len(a.buckets) >= maxCounters) {
		return fmt.Errorf("%w: a key has %d counters already", ErrUnavailable, maxCounters)
	}
	return nil
}

// roomFor reports whether so many accounts can be added. The shards are only
// added up when this one has more than its share.
func (s *shard) roomFor(accounts int) bool {
	limit := s.m.cfg.MaxSubjects
	if accounts == 0 || len(s.accounts)+accounts <= limit/memoryShards {
		return true
	}
	all := int64(accounts)
	for i := range s.m.shards {
		all += s.m.shards[i].subjects.Load()
	}
	return all <= int64(limit)
}

// roomForOpen reports whether another reservation can be opened.
func (s *shard) roomForOpen() bool {
	return len(s.expiring) < s.m.cfg.MaxOpen/memoryShards || s.m.opened() < int64(s.m.cfg.MaxOpen)
}

// opened is how many reservations are open, those among them that have expired where
// nothing has happened since.
func (m *Memory) opened() (n int64) {
	for i := range m.shards {
		n += m.shards[i].opened.Load()
	}
	return n
}

// idleness is how many accounts are idle, and when they were used last.
type idleness struct {
	n      int
	oldest int64
	total  float64
}

func (s *shard) idle(now reading, x *idleness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now.mono)
	for _, a := range s.accounts {
		if a.idle(now) {
			x.n++
			x.oldest = min(x.oldest, a.used)
			x.total += float64(a.used)
		}
	}
}

// forget forgets the idle accounts that have not been used since a time.
func (s *shard) forget(since int64, now reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, a := range s.accounts {
		if a.used <= since && a.idle(now) {
			a.gone = true
			delete(s.accounts, k)
		}
	}
	s.subjects.Store(int64(len(s.accounts)))
}

// makeRoom forgets the idle accounts that have not been used for longer than the
// average idle one, which is about half of them, and reports whether there are
// any. That takes a while, as it goes through all accounts: so a search that found
// none is not made again for a second.
func (m *Memory) makeRoom() bool {
	m.search.Lock()
	defer m.search.Unlock()
	now := m.now()
	all := int64(0)
	for i := range m.shards {
		all += m.shards[i].subjects.Load()
	}
	switch {
	case all < int64(m.cfg.MaxSubjects):
		return true // somebody else has made room meanwhile
	case now.mono < m.searchAt:
		return false
	}
	x := idleness{oldest: math.MaxInt64}
	for i := range m.shards {
		m.shards[i].idle(now, &x)
	}
	if x.n == 0 {
		m.searchAt = now.mono + int64(time.Second)
		return false
	}
	since := max(x.oldest, int64(x.total/float64(x.n)))
	for i := range m.shards {
		m.shards[i].forget(since, now)
	}
	return true
}

// expireAll ends what has expired in any shard, as those where nothing happens any
// more do not do so by themselves, and reports whether another reservation can be
// opened. If not, it is not tried again for a second.
func (m *Memory) expireAll() bool {
	m.search.Lock()
	defer m.search.Unlock()
	now := m.now()
	if now.mono < m.expireAt {
		return false
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.expire(now.mono)
		s.mu.Unlock()
	}
	if m.opened() < int64(m.cfg.MaxOpen) {
		return true
	}
	m.expireAt = now.mono + int64(time.Second)
	return false
}

// makeRoomFor makes room for what there was none, and reports whether there is some.
func (m *Memory) makeRoomFor(what string) bool {
	switch what {
	case "MaxSubjects":
		return m.makeRoom()
	case "MaxOpen":
		return m.expireAll()
	}
	return false
}
