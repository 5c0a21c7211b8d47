package redisbudget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/internal/unset"
	"github.com/headgate-go/headgate/budget/share"
	"github.com/headgate-go/headgate/budget/share/agent"
)

// Defaults of a [Config].
const (
	DefaultPrefix  = "headgate:"
	DefaultTimeout = 500 * time.Millisecond
)

// Config describes a [Sharing]. Only Client must be set.
//
// All replicas of a quota should have the same configuration, but for Replica, Client,
// Logger and Registerer: each step goes by that of the replica which makes it.
type Config struct {
	// Client is of a single server, of Sentinel, of a Cluster or a Ring. It is the
	// caller's: nothing here closes it. With its ContextTimeoutEnabled set, a
	// connection that hangs is given up when Timeout is over; without it, the client's
	// own ReadTimeout decides when, while the gate has gone on already.
	Client redis.UniversalClient
	// Fallback is the part of its share of the quota that a gate goes on with while
	// the store is down. Defaults to share.DefaultFallback; negative is none: calls
	// then wait until the store is back.
	Fallback float64
	// Idle is after how long unused credit is given back. Defaults to
	// share.DefaultIdle.
	Idle time.Duration
	// Late is how long after the lease of a replica that is gone its last requests
	// may be counted by the provider. Defaults to share.DefaultLate.
	Late time.Duration
	// Logger is told, once, when the store is down, and when it is back. Defaults to
	// slog.Default.
	Logger *slog.Logger
	// Mode is how gates come by what they may spend. Defaults to share.Leased.
	Mode share.Mode
	// Name of the quota: gates of one name, prefix and server share it. Defaults to
	// the name of the gate that joins, so that a Sharing can serve several gates with a
	// quota each.
	Name string
	// OwnSlots: the slots are not shared; every gate has all of its Config.Slots.
	OwnSlots bool
	// Prefix begins all keys. It has no braces. Defaults to [DefaultPrefix].
	Prefix string
	// Registerer for the Prometheus metrics. Defaults to none.
	Registerer prometheus.Registerer
	// Replica is the name of the replica, the same after a restart, and another one
	// for every gate that shares a quota. With it a replica that comes back takes the
	// place of the one that has died, whatever the clock of its host says. Defaults to a
	// random one.
	Replica string
	// Replicas is how many replicas there are at least. Static ones have their part
	// of the quota at once, then, rather than after all others have heard of them; and
	// a replica that is started while the store is down goes on with its part.
	Replicas int
	// Stock is for how long the credit of a leased replica lasts. Defaults to
	// share.DefaultStock.
	Stock time.Duration
	// Timeout is how long an answer is waited for. Defaults to [DefaultTimeout].
	Timeout time.Duration
	// TTL is how long a replica may use what it was granted without asking again, at
	// least 100 ms. Defaults to share.DefaultTTL.
	TTL time.Duration
}

func (c Config) withDefaults() (Config, error) {
	c.Late = cmp.Or(c.Late, share.DefaultLate)
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.TTL = cmp.Or(c.TTL, share.DefaultTTL)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("redisbudget: Config."+format, args...))
	}
	if unset.Is(c.Client) {
		wrong("Client is nil, must be set")
	}
	if c.Late < 0 {
		wrong("Late is %v, must not be negative", c.Late)
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		wrong("Prefix is %q, must have no braces", c.Prefix)
	}
	if c.Timeout < 0 {
		wrong("Timeout is %v, must not be negative", c.Timeout)
	}
	if c.TTL < minTTL {
		wrong("TTL is %v, must be at least %v", c.TTL, minTTL)
	}
	return c, errors.Join(errs...)
}

// minTTL leaves time for some round trips.
const minTTL = 100 * time.Millisecond

// Sharing shares the quotas of gates through Redis. Give it to the Config.Share of
// each gate; a gate that joins is a replica of its own. It is safe for concurrent use.
type Sharing struct {
	cfg   Config
	agent *agent.Sharing
	learn int64
	clock clock
}

var _ budget.Sharing = (*Sharing)(nil)

// New returns a Sharing. It looks whether the server can do what is needed, for as long
// as Timeout: one that refuses it is an error. One that cannot be reached is not; gates
// wait until it can be, or go by Replicas and Fallback. The error names every field that
// is wrong.
func New(ctx context.Context, cfg Config) (*Sharing, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sharing{cfg: cfg, learn: learnAfterRestart}
	of := agent.Config{
		Fallback: cfg.Fallback, Idle: cfg.Idle, Logger: cfg.Logger, Mode: cfg.Mode, Open: s.open, OwnSlots: cfg.OwnSlots,
		Replica: cfg.Replica, Replicas: cfg.Replicas, Stock: cfg.Stock, Timeout: cfg.Timeout,
	}
	if _, err := agent.New(of); err != nil {
		return nil, fmt.Errorf("redisbudget: %w", err)
	}
	if err := check(ctx, &cfg); err != nil {
		return nil, err
	}
	of.Registerer = cfg.Registerer // last, so that who fails can try again
	if s.agent, err = agent.New(of); err != nil {
		return nil, fmt.Errorf("redisbudget: %w", err)
	}
	return s, nil
}

// Join implements [budget.Sharing].
func (s *Sharing) Join(q budget.SharedQuota) (budget.Shared, error) { return s.agent.Join(q) }
