package quota

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// Defaults of a [Config].
const (
	// DefaultLedgerTimeout is how long an operation of a ledger may take.
	DefaultLedgerTimeout = 500 * time.Millisecond
	// DefaultMaxTurn is the longest turn.
	DefaultMaxTurn = time.Hour
	// DefaultMaxWait is how long a call waits for a rolling limit. People bear a
	// pause of about two seconds in the middle of an answer.
	DefaultMaxWait = 2 * time.Second
)

// busyRetry is what a caller is told to wait when what is left is reserved by
// calls under way: they end after seconds, and not at a known instant.
const busyRetry = time.Second

// Config is what an [Enforcer] is made of. Ledger and Limits must be set.
type Config struct {
	// Bus is told what happens, for alerts and audits. nil is nobody. The enforcer
	// does not close it.
	Bus *Bus
	// Catalog has the prices. It must be set where money is limited.
	Catalog *usage.Catalog
	// Credits are the weights of credits. They must be set where credits are
	// limited. [Enforcer.ReloadCredits] replaces them.
	Credits usage.Credits
	// FinalOutput lets a call pass that would not fit into what is left of a
	// calendar limit any more, if with at most that much output, and at least
	// FinalOutput tokens of it, it does. Its reservation is a budget.Final: whoever
	// sends the call must limit the output to its MaxOutput, as a RateLimitedModel
	// does. Such calls of a subject go
	// one at a time. 0 refuses them.
	FinalOutput int64
	// Hierarchy are the scopes. Defaults to that of Limits, if it is a [*Limits],
	// and else to [DefaultHierarchy].
	Hierarchy *Hierarchy
	// History learns from settled calls how much to hold for others like them. nil
	// holds the estimates.
	History *usage.History
	// Hooks are called for metrics.
	Hooks Hooks
	// Ledger keeps what is spent. The enforcer does not close it.
	Ledger Ledger
	// LedgerTimeout is how long an operation of the ledger may take before the
	// failure policies of limits decide; Erase may take longer. Defaults to
	// [DefaultLedgerTimeout].
	LedgerTimeout time.Duration
	// Limits says what is limited for whom: a [*Limits], or a [LimitCache] before
	// what knows. [Enforcer.Reload] replaces it.
	Limits LimitResolver
	// Logger is told of outages, of what went wrong, and at most once an hour of a ledger
	// whose clock is more than a minute from this process's. Defaults to
	// [slog.Default].
	Logger *slog.Logger
	// MaxTurn is the longest turn: after it a turn ends by itself, and what its
	// calls still hold is not renewed any more. Defaults to [DefaultMaxTurn].
	MaxTurn time.Duration
	// MaxWait is how long a call may wait for rolling limits that do not say.
	// Negative is not at all. Defaults to [DefaultMaxWait].
	MaxWait time.Duration
	// Mode is how much may be denied at all: [Observe] has no limit deny, whatever
	// its own mode is, and with [Off] nothing is counted. Defaults to [Enforce].
	Mode Mode
	// TTL is how long leases and holds live without being renewed, so how long
	// they outlive this process. Defaults to [DefaultTTL].
	TTL time.Duration
	// Turn are the bounds of turns that have no others. Calls defaults to
	// [DefaultTurnCalls].
	Turn TurnLimits
	// Variant is what calls are priced as. Defaults to [usage.Standard].
	Variant usage.Variant
	// Zone is the time zone of a subject's tenant, for windows that are in it; nil
	// is UTC. It is called for every call and must answer at once. Zones are taken by
	// their names in the time zone database; see [Window.In].
	Zone func(Subject) *time.Location
}

// withDefaults fills in what is not set. The error names all fields that are
// wrong.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("quota: Config."+format, args...))
	}
	if c.Ledger == nil {
		fail("Ledger is not set")
	}
	limits, fixed := c.Limits.(*Limits)
	switch {
	case c.Limits == nil || fixed && limits == nil:
		fail("Limits is not set")
	case c.Hierarchy == nil && fixed:
		c.Hierarchy = limits.Hierarchy()
	}
	if c.Hierarchy == nil {
		c.Hierarchy = DefaultHierarchy()
	}
	duration := func(field string, d *time.Duration, value time.Duration) {
		if *d < 0 {
			fail("%s is %v, must not be negative", field, *d)
		}
		if *d == 0 {
			*d = value
		}
	}
	duration("LedgerTimeout", &c.LedgerTimeout, DefaultLedgerTimeout)
	duration("MaxTurn", &c.MaxTurn, DefaultMaxTurn)
	duration("TTL", &c.TTL, DefaultTTL)
	if c.TTL < time.Second {
		fail("TTL is %v, must be at least 1s", c.TTL)
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
	}
	c.MaxWait = max(c.MaxWait, 0)
	if c.FinalOutput < 0 {
		fail("FinalOutput is %d, must not be negative", c.FinalOutput)
	}
	switch c.Mode {
	case ModeUnset:
		c.Mode = Enforce
	case Off, Observe, Enforce:
	default:
		fail("Mode is %v", c.Mode)
	}
	if c.Credits != (usage.Credits{}) {
		if err := c.Credits.Validate(); err != nil {
			fail("Credits: %w", err)
		}
	}
	if _, err := usage.ParseVariant(string(c.Variant)); err != nil {
		fail("Variant: %w", err)
	}
	if err := c.Turn.Validate(); err != nil {
		fail("Turn: %w", err)
	}
	if c.Turn.Calls == 0 {
		c.Turn.Calls = DefaultTurnCalls
	}
	if c.Turn.Cost > 0 && c.Catalog == nil {
		fail("Turn.Cost is %v, but Catalog is not set", c.Turn.Cost)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if fixed && limits != nil {
		if err := c.check(limits, c.Credits != (usage.Credits{})); err != nil {
			errs = append(errs, err)
		}
	}
	return c, errors.Join(errs...)
}

// check returns an error if limits cannot be enforced with the rest of the
// configuration. weighed is true if there are weights of credits.
func (c *Config) check(l *Limits, weighed bool) error {
	var errs []error
	if own := l.Hierarchy(); own != c.Hierarchy && !reflect.DeepEqual(own, c.Hierarchy) {
		errs = append(errs, errors.New("quota: Config.Hierarchy is another than that of the limits, so that counters would change their names"))
	}
	missing := map[Unit]bool{}
	look := func(list []Limit) {
		entries := 0
		for i := range list {
			entries += len(list[i].Max)
			if _, ok := list[i].Max[Money]; ok && c.Catalog == nil && !missing[Money] {
				missing[Money] = true
				errs = append(errs, fmt.Errorf("quota: Config.Catalog is not set, but limit %q has money", list[i].name()))
			}
			if _, ok := list[i].Max[Credits]; ok && !weighed && !missing[Credits] {
				missing[Credits] = true
				errs = append(errs, fmt.Errorf("quota: Config.Credits is not set, but limit %q has credits", list[i].name()))
			}
		}
		if entries > MaxEntries {
			errs = append(errs, fmt.Errorf("quota: Config.Limits has %d amounts for one subject, at most %d are possible", entries, MaxEntries))
		}
	}
	look(l.common.raw)
	for _, list := range l.plans {
		look(list.raw)
	}
	for i := range l.overrides {
		look(l.overrides[i].Limits)
	}
	return errors.Join(errs...)
}

// name is the limit's name, or the one that it is given.
func (l *Limit) name() string {
	if l.Name != "" {
		return l.Name
	}
	return l.slot().String()
}
