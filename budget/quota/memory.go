package quota

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget/quota/internal/rolling"
)

// Defaults of a [MemoryConfig].
const (
	DefaultMaxSubjects   = 1 << 20
	DefaultMaxOpen       = 1 << 20
	DefaultMaxRemembered = 1 << 14
	DefaultRemember      = time.Hour
	DefaultKeepWindows   = 12
)

// MemoryConfig describes a [Memory]. The zero value is ready to use.
type MemoryConfig struct {
	// KeepWindows is how many past windows of a counter are kept for History, and
	// for calls that are settled after their window. Those in which something is
	// held are kept besides. Defaults to [DefaultKeepWindows].
	KeepWindows int
	// MaxOpen is how many reservations may be open at a time. Defaults to
	// [DefaultMaxOpen].
	MaxOpen int
	// MaxRemembered is about how many reservations that have ended are remembered
	// for repeats, adjustments and late settlements, of about 1 KB each. Defaults to
	// [DefaultMaxRemembered].
	MaxRemembered int
	// MaxSubjects is how many keys may have counters at a time, of less than 400
	// bytes each with two limits. Defaults to [DefaultMaxSubjects].
	MaxSubjects int
	// Remember is how long reservations that have ended are remembered, as far as
	// MaxRemembered goes. Defaults to [DefaultRemember].
	Remember time.Duration
}

func (c MemoryConfig) withDefaults() (MemoryConfig, error) {
	var errs []error
	number := func(field string, n *int, value int) {
		if *n < 0 {
			errs = append(errs, fmt.Errorf("quota: MemoryConfig.%s is %d, must not be negative", field, *n))
		}
		if *n == 0 {
			*n = value
		}
	}
	number("KeepWindows", &c.KeepWindows, DefaultKeepWindows)
	number("MaxOpen", &c.MaxOpen, DefaultMaxOpen)
	number("MaxRemembered", &c.MaxRemembered, DefaultMaxRemembered)
	number("MaxSubjects", &c.MaxSubjects, DefaultMaxSubjects)
	if c.Remember < 0 {
		errs = append(errs, fmt.Errorf("quota: MemoryConfig.Remember is %v, must not be negative", c.Remember))
	}
	if c.Remember == 0 {
		c.Remember = DefaultRemember
	}
	return c, errors.Join(errs...)
}

// Memory is a [Ledger] in the memory of one process. What is in it is lost with
// the process, unless it is written with Snapshot and read with Restore, and
// every process counts for itself.
//
// It is exact. Rolling counters are token buckets in integers, and a refund leaves
// them as if the smaller amount had been taken in the first place. The only
// exception is a correction downwards of a call that was settled before: it is
// given back as far as no later call stands between.
//
// It is bounded. A key that has no counters yet is refused with an error that
// matches [ErrUnavailable] when MaxSubjects is reached, unless others can be
// forgotten: those that have nothing reserved and whose spend is in windows that
// have passed, or in buckets that are full again, the longest idle ones first. What
// is spent in a window that goes on is never forgotten. The notes of reservations
// are not kept.
//
// Calendar windows follow the wall clock, also where it is set back: spend is
// then found where it was left. Everything else follows the monotonic clock.
//
// There is no goroutine behind it. Reservations expire before the next operation
// on their shard looks at anything, and all of them before one is refused because
// MaxOpen is reached; where that was in vain, not again for a second.
//
// All methods are safe for concurrent use. Operations on different trees hardly
// ever wait for each other.
type Memory struct {
	cfg    MemoryConfig
	base   time.Time // instants of the monotonic clock count from here
	skew   atomic.Int64
	seed   maphash.Seed
	closed atomic.Bool
	shards [memoryShards]shard

	// One search at a time for what can be forgotten, or has expired; search is locked
	// before any shard, and guards:
	search   sync.Mutex
	searchAt int64 // not again before this time
	expireAt int64 // nor what has expired
}

var _ Ledger = (*Memory)(nil)

// memoryShards is how many parts a Memory has, each with a lock of its own. Two
// callers of different trees meet at one of them once in 256 times.
const memoryShards = 256

// NewMemory returns an empty ledger. The error names every field that is wrong,
// and its value.
func NewMemory(cfg MemoryConfig) (*Memory, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Memory{cfg: cfg, base: time.Now(), seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].init(m)
	}
	return m, nil
}

// shard is a part of the trees. It has everything about them.
type shard struct {
	m  *Memory
	mu sync.Mutex

	// mu guards:
	accounts  map[accountKey]*account
	records   map[recordKey]*record
	exclusive map[recordKey]*record // by tree and value; the open ones
	expiring  []*record             // the open ones, a heap by when they expire
	ended     fifo                  // the others, in the order in which they ended
	names     map[name]*name        // of counters, one copy of each
	free      []*record             // to be used again
	sets      [][]int               // one copy of each set of thresholds
	pool      rolling.Pool
	mark      int64 // of the newest charge of a bucket
	ends      int   // how many reservations have ended
	crowded   bool  // all shards remember more than they should

	// How many accounts, open and ended reservations there are, to be read without
	// mu.
	subjects, opened, remembered atomic.Int64

	_ [64]byte // so that neighbours do not share a cache line
}

func (s *shard) init(m *Memory) {
	s.m = m
	s.accounts = make(map[accountKey]*account)
	s.records = make(map[recordKey]*record)
	s.exclusive = make(map[recordKey]*record)
	s.names = make(map[name]*name)
}

func (m *Memory) shard(tree string) *shard {
	return &m.shards[maphash.String(m.seed, tree)%memoryShards]
}

// reading is one of the clock.
type reading struct {
	mono int64 // nanoseconds of the monotonic clock since the ledger was made
	wall time.Time
}

func (m *Memory) now() reading {
	now := time.Now()
	r := reading{int64(now.Sub(m.base)), now}
	if skew := m.skew.Load(); skew != 0 { // tests only
		r.wall = now.Add(time.Duration(skew))
	}
	return r
}

// after is a time of the wall clock in Unix nanoseconds, some nanoseconds from
// now. 0 stands for never.
func (r reading) after(d int64) int64 {
	if n := sum(r.wall.UnixNano(), d); n < math.MaxInt64 {
		return n
	}
	return 0
}

// ready returns an error if nothing must be done.
func (m *Memory) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.closed.Load() {
		return fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	return nil
}

// Local tells that no operation waits for anything but memory.
func (m *Memory) Local() bool { return true }

// Healthy implements [Ledger].
func (m *Memory) Healthy(ctx context.Context) error { return m.ready(ctx) }

// Flush implements [Ledger]. There is nothing to wait for.
func (m *Memory) Flush(ctx context.Context) error { return m.ready(ctx) }

// Close implements [Ledger]. What is called afterwards returns an error that
// matches [ErrUnavailable]; only Snapshot and Stats still work.
func (m *Memory) Close(context.Context) error {
	m.closed.Store(true)
	return nil
}

// MemoryStats is how large a [Memory] is.
type MemoryStats struct {
	// Subjects are keys that have counters.
	Subjects int
	// Open reservations hold something; Remembered ones have ended.
	Open, Remembered int
}

// Stats says how large the ledger is.
func (m *Memory) Stats() MemoryStats {
	var st MemoryStats
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.expire(m.now().mono)
		st.Subjects += len(s.accounts)
		st.Open += len(s.expiring)
		st.Remembered += s.ended.len
		s.mu.Unlock()
	}
	return st
}
