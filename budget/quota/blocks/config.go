package blocks

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [Config].
const (
	DefaultAhead         = 2 * time.Second
	DefaultIdle          = time.Second
	DefaultMaxRemembered = 1 << 14
	DefaultName          = "blocks"
	DefaultRecheck       = 250 * time.Millisecond
	DefaultRemember      = time.Hour
	DefaultShare         = 1.0 / 16
	DefaultTimeout       = 500 * time.Millisecond
	DefaultTTL           = 15 * time.Second
)

// Config says what is leased, and how much of it. The zero value is ready to use.
type Config struct {
	// Ahead is how long a block lasts at the demand of the last while of the same
	// length. Longer is fewer round trips, and more that lies idle with one replica
	// while another one could use it. Defaults to [DefaultAhead].
	Ahead time.Duration
	// Crossed is called with every threshold that the ledger underneath says was
	// crossed, once over all replicas. It must not call the ledger. nil has them
	// come in the results of Settle and Reserve, as they do from any ledger: in that
	// of the call that is known to have crossed it, or else of the next one on the
	// counter.
	Crossed func(tree string, c quota.Crossing)
	// Idle is how long nothing may be taken from a block until what is left of it
	// is returned. Defaults to [DefaultIdle].
	Idle time.Duration
	// Leased says which counters are served from blocks, always the same for one.
	// It is called for every entry of every reservation, and must answer at once.
	// It is best to lease all counters of a tree or none: a reservation that has an
	// entry which is not leased makes a round trip for it. Defaults to those of the
	// tree of [quota.Global].
	Leased func(tree string, c quota.Counter) bool
	// Logger is told of blocks that lapsed while they were in use, and of spend that
	// could not be booked. Defaults to [slog.Default].
	Logger *slog.Logger
	// Margin is how long before its end a block is not spent from any more: it
	// stands for how differently two clocks run within TTL, and how long a process
	// may stop between looking at the clock and sending a call. Defaults to a tenth
	// of TTL.
	Margin time.Duration
	// Max is the largest block, by unit, unless calls that wait need more; 0 is no
	// other bound than Share.
	Max quota.Amounts
	// MaxRemembered is about how many reservations that have ended are remembered
	// for repeats, adjustments and late settlements, of less than 1 KB each.
	// Defaults to [DefaultMaxRemembered].
	MaxRemembered int
	// Min is the smallest block, by unit, as far as Share lets it. 0 leases no more
	// than is asked for where calls are rare, so that nothing lies idle.
	Min quota.Amounts
	// Name stands as the agent in the notes of blocks, for audits, and is the label
	// ledger of the metrics, to tell several ledgers of a program apart. Defaults to
	// [DefaultName].
	Name string
	// Recheck is how long it is believed that a limit is used up, without asking
	// again. Only what is spent counts for that, and not what others hold or have
	// leased. Defaults to [DefaultRecheck].
	Recheck time.Duration
	// Registerer for the Prometheus metrics, which stay registered after Close.
	// Defaults to none.
	Registerer prometheus.Registerer
	// Remember is how long reservations that have ended are remembered, as far as
	// MaxRemembered goes. Defaults to [DefaultRemember].
	Remember time.Duration
	// Share is the largest part of what is left of a limit that is leased ahead of
	// demand, above 0 and at most 1: so blocks become smaller as a limit comes near
	// its end. Defaults to [DefaultShare].
	Share float64
	// Timeout is how long an operation of the ledger underneath may take that is
	// made for no single caller. Defaults to [DefaultTimeout].
	Timeout time.Duration
	// TTL is how long a block lives without being renewed: how long it outlives this
	// process, and how long this process can spend from it while the ledger cannot be
	// reached. Defaults to [DefaultTTL].
	TTL time.Duration
}

// withDefaults fills in what is not set. The error names all fields that are wrong.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("blocks: Config."+format, args...))
	}
	duration := func(field string, d *time.Duration, value time.Duration) {
		if *d < 0 {
			fail("%s is %v, must not be negative", field, *d)
		}
		if *d == 0 {
			*d = value
		}
	}
	duration("Ahead", &c.Ahead, DefaultAhead)
	duration("Idle", &c.Idle, DefaultIdle)
	duration("Recheck", &c.Recheck, DefaultRecheck)
	duration("Remember", &c.Remember, DefaultRemember)
	duration("Timeout", &c.Timeout, DefaultTimeout)
	duration("TTL", &c.TTL, DefaultTTL)
	duration("Margin", &c.Margin, c.TTL/10)
	if c.TTL > 0 && c.Margin > c.TTL/2 {
		fail("Margin is %v, must be at most half of the TTL of %v", c.Margin, c.TTL)
	}
	if c.TTL > 0 && c.TTL < time.Millisecond {
		fail("TTL is %v, must be at least 1ms", c.TTL)
	}
	if c.MaxRemembered < 0 {
		fail("MaxRemembered is %d, must not be negative", c.MaxRemembered)
	}
	if c.MaxRemembered == 0 {
		c.MaxRemembered = DefaultMaxRemembered
	}
	for u := range quota.Unit(quota.Units) {
		if c.Max[u] < 0 {
			fail("Max[%v] is %d, must not be negative", u, c.Max[u])
		}
		if c.Min[u] < 0 {
			fail("Min[%v] is %d, must not be negative", u, c.Min[u])
		}
		if c.Max[u] > 0 && c.Min[u] > c.Max[u] {
			fail("Min[%v] is %d, above Max[%v] of %d", u, c.Min[u], u, c.Max[u])
		}
	}
	if c.Share == 0 {
		c.Share = DefaultShare
	}
	if !(c.Share > 0 && c.Share <= 1) {
		fail("Share is %v, must be above 0 and at most 1", c.Share)
	}
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Leased == nil {
		c.Leased = leasedGlobal
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

func leasedGlobal(tree string, _ quota.Counter) bool { return tree == string(quota.Global) }
