package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [Config].
const (
	// DefaultKeep is how long files are kept after the last that has happened to what
	// is in them.
	DefaultKeep = time.Hour
	// DefaultMaxBytes is how large a directory becomes: an hour of 500 settlements of
	// 500 bytes a second.
	DefaultMaxBytes = 1 << 30
	// DefaultMaxOpen is how many open reservations are remembered.
	DefaultMaxOpen = 1 << 18
	// DefaultMaxUnanswered is how many settlements may be without an answer.
	DefaultMaxUnanswered = 1 << 18
	// DefaultSegmentBytes is how large a file becomes.
	DefaultSegmentBytes = 16 << 20
	// DefaultSyncEvery is how often [SyncInterval] makes records durable.
	DefaultSyncEvery = time.Second
	// DefaultSyncTimeout is how long a settlement waits for the disk.
	DefaultSyncTimeout = 250 * time.Millisecond
	// DefaultWorkers is how many settlements are told again at a time.
	DefaultWorkers = 8
)

// Bounds of a [Config].
const (
	minSegment = 4 << 10
	maxSegment = 64 << 20 // they are read as a whole
	maxWorkers = 256
)

// Sync says when records are made durable (fsync).
type Sync uint8

const (
	// SyncAlways makes each record durable before the ledger is told of it. Callers
	// that wait at the same time share one fsync.
	SyncAlways Sync = iota
	// SyncInterval makes records durable every Config.SyncEvery, and hands each to the
	// operating system at once: nothing is lost if the program dies, and so much if the
	// machine does.
	SyncInterval
)

// Config is what a [Journal] is made of. The zero value is ready to use.
type Config struct {
	// Keep is how long files are kept after all that is in them was acknowledged. It
	// must not be below Remember. Defaults to [DefaultKeep], or to Remember if that is
	// more.
	Keep time.Duration
	// Logger is told when records cannot be written, and when they can again, and what
	// was told again. Defaults to [slog.Default].
	Logger *slog.Logger
	// MaxBytes is how large all files together may become. To stay below, acknowledged
	// ones are removed before their time, which Replay reports; if there are none,
	// records cannot be written. Defaults to [DefaultMaxBytes].
	MaxBytes int64
	// MaxOpen is how many open reservations are remembered, of about 1 KB each. What
	// others use is recorded, too, and can be told again, but not be booked anew.
	// Defaults to [DefaultMaxOpen].
	MaxOpen int
	// MaxUnanswered is how many settlements may be recorded that the ledger has not
	// answered, of about 300 bytes of memory each. More cannot be written. Defaults to
	// [DefaultMaxUnanswered].
	MaxUnanswered int
	// Progress is called now and then while a Replay is under way, and at its end. It
	// must not take long. nil is fine.
	Progress func(Report)
	// Remember is how long the ledger remembers reservations that have ended, at the
	// least. Defaults to [quota.DefaultRemember], which all ledgers of this module do; a
	// [quota.Memory] only as far as its MaxRemembered goes. Where outages may last longer,
	// have the ledger remember longer, and say so here.
	Remember time.Duration
	// SegmentBytes is how large a file may become, from 4 KiB to 64 MiB and at most a
	// quarter of MaxBytes. Defaults to [DefaultSegmentBytes], or to that quarter if it is
	// less.
	SegmentBytes int64
	// Sync says when records are made durable. Defaults to [SyncAlways].
	Sync Sync
	// SyncEvery is the interval of [SyncInterval]. Defaults to [DefaultSyncEvery].
	SyncEvery time.Duration
	// SyncTimeout is how long a settlement waits for the disk, before it goes on to the
	// ledger without. Defaults to [DefaultSyncTimeout].
	SyncTimeout time.Duration
	// Watermarks is true if the ledger keeps watermarks of writers (see
	// [quota.Settle].Writer). Then settlements that are older than Remember need not be
	// doubtful for a day: the ledger tells whether it has taken them, unless a later one of
	// the same tree and the same quarter of Remember has overtaken them. It must not be
	// set for a ledger that ignores writers, and forgets.
	Watermarks bool
	// Workers is how many settlements are told again at a time; those of one reservation
	// are told in order. Defaults to [DefaultWorkers].
	Workers int

	wrap func(file) file // tests only: files that fail
}

// withDefaults fills in what is not set. The error names all fields that are wrong.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("journal: Config."+format, args...))
	}
	duration := func(field string, d *time.Duration, value time.Duration) {
		if *d < 0 {
			fail("%s is %v, must not be negative", field, *d)
		}
		if *d == 0 {
			*d = value
		}
	}
	duration("Remember", &c.Remember, quota.DefaultRemember)
	duration("Keep", &c.Keep, max(DefaultKeep, c.Remember))
	duration("SyncEvery", &c.SyncEvery, DefaultSyncEvery)
	duration("SyncTimeout", &c.SyncTimeout, DefaultSyncTimeout)
	if c.Keep < c.Remember && c.Keep > 0 {
		fail("Keep is %v, must not be below Remember, which is %v", c.Keep, c.Remember)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.MaxBytes < 4*minSegment {
		fail("MaxBytes is %d, must be at least %d", c.MaxBytes, 4*minSegment)
		c.MaxBytes = max(4*minSegment, 4*c.SegmentBytes) // that of segments is no other error
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = max(min(DefaultSegmentBytes, c.MaxBytes/4), minSegment)
	}
	if c.SegmentBytes < minSegment || c.SegmentBytes > maxSegment || c.SegmentBytes > c.MaxBytes/4 {
		fail("SegmentBytes is %d, must be from %d to %d and at most a quarter of MaxBytes", c.SegmentBytes, minSegment, maxSegment)
	}
	number := func(field string, n *int, value, most int) {
		if *n < 0 || *n > most {
			fail("%s is %d, must be from 1 to %d", field, *n, most)
		}
		if *n == 0 {
			*n = value
		}
	}
	number("MaxOpen", &c.MaxOpen, DefaultMaxOpen, math.MaxInt32)
	number("MaxUnanswered", &c.MaxUnanswered, DefaultMaxUnanswered, math.MaxInt32)
	number("Workers", &c.Workers, DefaultWorkers, maxWorkers)
	if c.Sync > SyncInterval {
		fail("Sync is %d, there are %d", c.Sync, SyncInterval+1)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// safely is for how long an id is surely known: a little less than Remember, so that
// what is found unknown within it is booked before it could have been forgotten.
func (c *Config) safely() time.Duration { return c.Remember - c.Remember/60 }

// watermarksLast is for how long it is surely known which settlements of a writer were
// taken.
const watermarksLast = 24 * time.Hour

// ago is how long ago an instant was by the clock that says it was longer, as the
// monotonic one may stand still while the machine is suspended, and the other one may be
// set back. An earlier process has left only the latter: if that says that it is still to
// come, nobody knows how long ago it was, and it was for ever ago.
func (c *Config) ago(t, now time.Time) time.Duration {
	d := max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
	if d < -c.Remember/60 { // clocks are set right by less
		return math.MaxInt64
	}
	return d
}

// surely reports whether what the ledger does not know of was surely not charged: told is
// when it was told first. numbered is true if it was by the number that it is told by now.
func (c *Config) surely(told time.Time, numbered bool, now time.Time) bool {
	ago := c.ago(told, now)
	return ago <= c.safely() || c.Watermarks && numbered && ago <= watermarksLast
}
