package redisledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/internal/unset"
	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [Config].
const (
	DefaultForget      = 400 * 24 * time.Hour
	DefaultKeepWindows = 12
	DefaultName        = "redis"
	DefaultPrefix      = "headgate:"
	DefaultRemember    = time.Hour
	DefaultTimeout     = 500 * time.Millisecond
)

// Config describes a [Ledger]. Only Client must be set.
//
// All ledgers of one prefix and server share one state. They should have the same
// configuration: each operation goes by that of the ledger which makes it.
type Config struct {
	// Client is of a single server, of Sentinel, of a Cluster or a Ring. It is the
	// caller's: Close does not close it. With its ContextTimeoutEnabled set, a
	// connection that hangs is given up when Timeout is over; without it, the client's
	// own ReadTimeout decides when, while callers have left already.
	Client redis.UniversalClient
	// Forget is after how long anything is forgotten that nobody has touched: what was
	// spent under limits without windows, and windows that go on for longer. It is at
	// least a day and at least Remember. Defaults to [DefaultForget].
	Forget time.Duration
	// KeepWindows is how many past windows of a counter are kept for History, and for
	// calls that are settled after their window. Those in which something is held are
	// kept besides. Those of a key that is not used any more go after as much time as
	// they would have been kept for. Defaults to [DefaultKeepWindows].
	KeepWindows int
	// Name is the label ledger of the metrics, to tell several ledgers of a program apart.
	// Defaults to [DefaultName].
	Name string
	// Prefix begins all keys. It has no braces. Defaults to [DefaultPrefix].
	Prefix string
	// Registerer for the Prometheus metrics, which stay registered after Close. Defaults to
	// none.
	Registerer prometheus.Registerer
	// Remember is how long reservations that have ended are remembered for repeats,
	// adjustments and late settlements, at least an hour. Each is 1.4 kB with five
	// entries. Defaults to [DefaultRemember].
	Remember time.Duration
	// Replaced is called by Healthy, before it returns, when a server answers as a master
	// that was none at the last Healthy which returned nil, or at New: another one has
	// taken over, or it was restarted, and may lack what was acknowledged last. since is when
	// that Healthy began. That costs Healthy an INFO of each master; one that refuses it is an
	// error of New. It must return at once, and calls may overlap. nil is fine.
	Replaced func(since time.Time)
	// Timeout bounds each operation, besides the caller's context. Defaults to
	// [DefaultTimeout].
	Timeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("redisledger: Config."+format, args...))
	}
	if unset.Is(c.Client) {
		wrong("Client is nil, must be set")
	}
	c.Forget = cmp.Or(c.Forget, DefaultForget)
	c.KeepWindows = cmp.Or(c.KeepWindows, DefaultKeepWindows)
	c.Name = cmp.Or(c.Name, DefaultName)
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Remember = cmp.Or(c.Remember, DefaultRemember)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Remember < time.Hour {
		wrong("Remember is %v, must be at least %v", c.Remember, time.Hour)
	}
	if least := max(24*time.Hour, c.Remember); c.Forget < least {
		wrong("Forget is %v, must be at least %v", c.Forget, least)
	}
	if c.KeepWindows < 0 || c.KeepWindows > math.MaxUint16 {
		wrong("KeepWindows is %d, must be 1 to %d", c.KeepWindows, math.MaxUint16)
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		wrong("Prefix is %q, must have no braces", c.Prefix)
	}
	if c.Timeout < 0 {
		wrong("Timeout is %v, must not be negative", c.Timeout)
	}
	return c, errors.Join(errs...)
}

// Ledger is a [quota.Ledger] in Redis. See the documentation of the package.
//
// All methods are safe for concurrent use.
type Ledger struct {
	cfg    Config
	sender sender
	exact  exactTrees
	metric *metrics     // nil if nobody wants them
	begun  time.Time    // instants of the monotonic clock count from here
	ahead  atomic.Int64 // how far the server's clock is ahead of that, in microseconds, at least
	ids    masterIDs    // if there is a Config.Replaced
	masters

	// Tests only: what is added to the store's clock, in microseconds, or a clock in
	// its place.
	offset atomic.Int64
	clock  func() time.Time
}

var _ quota.Ledger = (*Ledger)(nil)

// New returns a ledger after it has seen that the server can run its scripts. The
// error names every field of the configuration that is wrong, or says what the server
// refuses, and matches [quota.ErrUnavailable] then.
func New(ctx context.Context, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Ledger{cfg: cfg, begun: time.Now()}
	l.sender.client, l.sender.limit, l.sender.bounded = cfg.Client, cfg.Timeout, keepsDeadlines(cfg.Client)
	if err := check(ctx, cfg.Client); err != nil {
		return nil, err
	}
	l.sender.apart.Store(!standsAlone(ctx, cfg.Client))
	if cfg.Replaced != nil {
		now := newLook()
		err := each(ctx, cfg.Client, now.at)
		if errors.Is(err, errNoRunID) {
			return nil, fmt.Errorf("%w: Redis, or a proxy before it: %w", quota.ErrUnavailable, err)
		}
		if err != nil {
			return nil, startError(ctx, "INFO", err)
		}
		l.ids.saw(now)
	}
	if err := l.register(); err != nil { // last, so that who fails can try again
		return nil, err
	}
	return l, nil
}

// keysOf are the keys of a tree. What stands between the first brace and the next
// closing one decides where they are in a Cluster, if it is not empty: so a tree's own
// braces are written otherwise.
func (l *Ledger) keysOf(tree string) keys {
	if tree == "" {
		tree = "%"
	} else if strings.ContainsAny(tree, "{}%") {
		tree = tagEscapes.Replace(tree)
	}
	return keys(l.cfg.Prefix + "{" + tree + "}:")
}

var tagEscapes = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// head writes what scripts are told first, all but that of Reserve.
func (l *Ledger) head(b []byte) []byte {
	offset, still := l.time()
	b = order.AppendUint64(b, uint64(offset))
	b = append(b, still)
	b = order.AppendUint64(b, uint64(microsUp(l.cfg.Remember)))
	b = order.AppendUint64(b, uint64(microsUp(l.cfg.Forget)))
	return order.AppendUint16(b, uint16(l.cfg.KeepWindows))
}

// run runs a script of a tree, as often as it takes: with exact amounts if they turn
// out to be large, and again while more reservations have expired than one run sweeps.
// The answer's first byte is its code. ask writes the keys and arguments.
func (l *Ledger) run(ctx context.Context, s *script, tree string, ask func(*encoder, keys)) (answer string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	now := time.Now()
	if l.metric != nil {
		defer func() { l.metric.ended(s, now, answer, err) }()
	}
	until := now.Add(l.cfg.Timeout)
	way := lean
	if l.exact.has(tree) {
		way = exact
	}
	k := l.keysOf(tree)
	for {
		w := newEncoder(way)
		ask(w, k)
		if w.large && way != exact {
			w.free()
			way = exact
			continue
		}
		answer, err = l.sender.do(ctx, s.way(way), k, w.args, until)
		if err != nil { // perhaps it is still being sent
			return "", l.failed(ctx, s.name, err)
		}
		w.free()
		switch {
		case answer == "":
			return "", errGarbled
		case answer[0] == 'X' && way == lean:
			way = full
			l.metric.again(isRare)
		case answer[0] == 'E' && way != exact:
			l.exact.add(tree)
			way = exact
			l.metric.again(isLarge)
		case answer[0] != 'B':
			return answer, nil
		default:
			l.metric.again(isBehind)
		}
	}
}

// failed is the error of a script that did not run: that of ctx if it has ended.
func (l *Ledger) failed(ctx context.Context, name string, err error) error {
	l.lost(l.cfg.Client, err, time.Since(l.begun))
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded // a connection's deadline comes a moment before
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, quota.ErrUnavailable) {
		return err
	}
	return unavailable(name, err)
}

// Flush implements [quota.Ledger]. There is nothing to wait for: what was answered is
// in the store, and as durable as the store's configuration says.
func (l *Ledger) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.sender.isClosed() {
		return errClosed
	}
	return nil
}

// Close implements [quota.Ledger]. It waits for what is under way, and does not close
// the client. What is called afterwards returns an error that matches
// [quota.ErrUnavailable].
func (l *Ledger) Close(ctx context.Context) error { return l.sender.close(ctx) }
