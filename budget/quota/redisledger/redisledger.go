package redisledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
)

// Defaults of a [Config].
const (
	DefaultForget      = 400 * 24 * time.Hour
	DefaultKeepWindows = 12
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
	// Prefix begins all keys. It has no braces. Defaults to [DefaultPrefix].
	Prefix string
	// Remember is how long reservations that have ended are remembered for repeats,
	// adjustments and late settlements, at least an hour. Each is about 600 bytes with
	// five entries. Defaults to [DefaultRemember].
	Remember time.Duration
	// Timeout bounds each operation, besides the caller's context. Defaults to
	// [DefaultTimeout].
	Timeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("redisledger: Config."+format, args...))
	}
	if c.Client == nil {
		wrong("Client is nil, must be set")
	}
	c.Forget = cmp.Or(c.Forget, DefaultForget)
	c.KeepWindows = cmp.Or(c.KeepWindows, DefaultKeepWindows)
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
	begun  time.Time    // instants of the monotonic clock count from here
	ahead  atomic.Int64 // how far the server's clock is ahead of that, in microseconds, at least

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

// head is what scripts are told first, all but that of Reserve.
func (l *Ledger) head() []byte {
	offset, still := l.time()
	b := order.AppendUint64(make([]byte, 0, 128), uint64(offset))
	b = append(b, still)
	b = order.AppendUint64(b, uint64(microsUp(l.cfg.Remember)))
	b = order.AppendUint64(b, uint64(microsUp(l.cfg.Forget)))
	return order.AppendUint16(b, uint16(l.cfg.KeepWindows))
}

// run runs a script of a tree, as often as it takes: with exact amounts if they turn
// out to be large, and again while more reservations have expired than one run sweeps.
// The answer's first byte is its code. ask writes the keys and arguments.
func (l *Ledger) run(ctx context.Context, s *script, tree string, ask func(*encoder, keys) ([]string, []any)) (answer string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	until := time.Now().Add(l.cfg.Timeout)
	way := lean
	if l.exact.has(tree) {
		way = exact
	}
	k := l.keysOf(tree)
	for {
		w := &encoder{exact: way == exact, whole: way != lean}
		names, args := ask(w, k)
		if w.large && way != exact {
			way = exact
			continue
		}
		answer, err = l.sender.do(ctx, s.way(way), arguments(names, args), until)
		switch {
		case err != nil && (errors.Is(err, quota.ErrUnavailable) || ctx.Err() != nil):
			return "", err
		case err != nil:
			return "", unavailable(s.name, err)
		case answer == "":
			return "", errGarbled
		case answer[0] == 'X' && way == lean:
			way = full
		case answer[0] == 'E' && way != exact:
			l.exact.add(tree)
			way = exact
		case answer[0] != 'B':
			return answer, nil
		}
	}
}

// arguments are those of EVALSHA; the first two are for the sender.
func arguments(names []string, args []any) []any {
	all := make([]any, 0, 3+len(names)+len(args))
	all = append(all, nil, nil, len(names))
	for _, name := range names {
		all = append(all, name)
	}
	return append(all, args...)
}

// Settle implements [quota.Ledger].
func (l *Ledger) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	if err := s.Validate(); err != nil {
		return quota.Settled{}, err
	}
	answer, err := l.run(ctx, settleScript, s.Tree, func(w *encoder, k keys) ([]string, []any) {
		adjust := byte(0)
		if s.Adjust {
			adjust = 1
		}
		a := append(l.head(), adjust)
		a = order.AppendUint64(a, uint64(s.Seq))
		a = order.AppendUint64(a, uint64(s.WriterSeq))
		counts := len(a)
		a = append(a, 0, 0, 0, 0)
		for _, n := range s.Actual {
			a = w.amount(a, n)
		}
		w.asked = a
		for i := range s.More {
			e := s.More[i]
			if e.Kind != quota.Check {
				e.Kind = quota.Count
			}
			w.asked = appendLimit(appendSlot(w.asked, w.entry(&e)), &e)
			if !e.Rolling {
				w.span(&e.Spans)
			}
		}
		order.PutUint16(w.asked[counts:], uint16(len(w.keys)))
		order.PutUint16(w.asked[counts+2:], uint16(len(s.More)))
		names := []string{k.index(), k.reservation(s.ID)}
		if s.Writer != "" {
			names = append(names, k.writer(s.Writer))
		}
		args := []any{w.asked, w.said, w.names, strconv.FormatInt(l.cfg.Remember.Milliseconds(), 10)}
		for _, key := range w.keys {
			args = append(args, k.account(key))
		}
		return names, args
	})
	if err != nil {
		return quota.Settled{}, err
	}
	switch answer[0] {
	case 'U':
		return quota.Settled{}, unknown(s.ID)
	case 'P':
		return quota.Settled{Repeated: true}, nil
	}
	d := decoder{s: answer}
	if answer[0] == 'R' {
		d.byte()
	}
	rec, err := d.record(l.keysOf(s.Tree))
	if err != nil {
		return quota.Settled{}, err
	}
	res := rec.settled(s.Room)
	res.Repeated = answer[0] == 'R'
	return res, nil
}

func unknown(id string) error { return fmt.Errorf("%w: %q", quota.ErrUnknownReservation, id) }

// Release implements [quota.Ledger]. Releasing what is settled or released changes
// nothing. What has expired can be released, too, and not be settled any more.
func (l *Ledger) Release(ctx context.Context, tree, id string) error {
	answer, err := l.run(ctx, releaseScript, tree, func(_ *encoder, k keys) ([]string, []any) {
		return []string{k.index(), k.reservation(id)}, []any{l.head()}
	})
	if err == nil && answer[0] == 'U' {
		err = unknown(id)
	}
	return err
}

// renewals is how many reservations a script renews. It is a number of the contract
// with lua/renew.lua only in that a script must be short.
const renewals = 32

// Renew implements [quota.Ledger]. A ttl of 0 is [quota.DefaultTTL]. Each 32 ids are a
// step by themselves.
func (l *Ledger) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	if ttl < 0 {
		return nil, fmt.Errorf("quota: ttl is %v, must not be negative", ttl)
	}
	for len(ids) > 0 {
		some := ids[:min(len(ids), renewals)]
		ids = ids[len(some):]
		answer, err := l.run(ctx, renewScript, tree, func(_ *encoder, k keys) ([]string, []any) {
			names := []string{k.index()}
			for _, id := range some {
				names = append(names, k.reservation(id))
			}
			return names, []any{order.AppendUint64(l.head(), uint64(microsUp(cmp.Or(ttl, quota.DefaultTTL))))}
		})
		if err != nil {
			return lost, err
		}
		d := decoder{s: answer[1:]}
		for d.s != "" {
			i := d.uint16()
			if d.short || i >= len(some) {
				return lost, errGarbled
			}
			lost = append(lost, some[i])
		}
	}
	return lost, nil
}

// Status implements [quota.Ledger].
func (l *Ledger) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	return l.status(ctx, tree, entries, "", 0)
}

// TopUp implements [quota.Ledger]. The amount must not be negative.
func (l *Ledger) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	if amount < 0 {
		return quota.Status{}, fmt.Errorf("quota: amount is %d, must not be negative", amount)
	}
	return l.change(ctx, tree, e, "top-up", amount)
}

// Reset implements [quota.Ledger]. A rolling counter is full afterwards.
func (l *Ledger) Reset(ctx context.Context, tree string, e quota.Entry) (quota.Status, error) {
	return l.change(ctx, tree, e, "reset", 0)
}

func (l *Ledger) change(ctx context.Context, tree string, e quota.Entry, what string, by int64) (quota.Status, error) {
	all, err := l.status(ctx, tree, []quota.Entry{e}, what, by)
	if err != nil {
		return quota.Status{}, err
	}
	return all[0], nil
}

func (l *Ledger) status(ctx context.Context, tree string, entries []quota.Entry, change string, by int64) ([]quota.Status, error) {
	for i := range entries {
		if err := entries[i].Validate(); err != nil {
			return nil, err
		}
	}
	if len(entries) > math.MaxUint16 {
		return nil, fmt.Errorf("quota: %d entries, at most %d are allowed", len(entries), math.MaxUint16)
	}
	number := ""
	if change != "" {
		number = budget.NewID() // a client may send it again if the answer is lost
	}
	answer, err := l.run(ctx, statusScript, tree, func(w *encoder, k keys) ([]string, []any) {
		w.asked = w.amount(order.AppendUint16(l.head(), uint16(len(entries))), by)
		for i := range entries {
			e := &entries[i]
			w.asked = order.AppendUint16(w.asked, uint16(w.place(e.Key)))
			w.asked = append(w.asked, flagsOf(e))
			w.asked = appendSlot(w.asked, appendName(nil, e))
			var units, per int64
			if e.Rolling {
				units, per = rate(e)
			}
			w.asked = w.amount(w.asked, units)
			w.asked = w.amount(w.asked, per)
			if !e.Rolling {
				w.span(&e.Spans)
			}
		}
		names := []string{k.index(), k.change(number)}
		for _, key := range w.keys {
			names = append(names, k.account(key))
		}
		return names, []any{change, w.asked}
	})
	if err != nil {
		return nil, err
	}
	d := decoder{s: answer[1:]}
	d.int64() // the time
	all := make([]quota.Status, len(entries))
	for i := range entries {
		d.status(&entries[i], &all[i])
	}
	return all, d.err()
}

// History implements [quota.Ledger]. Windows in which nothing was spent are not kept.
// Limit is the one that was given last in that window.
func (l *Ledger) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	answer, err := l.run(ctx, historyScript, tree, func(_ *encoder, k keys) ([]string, []any) {
		return []string{k.index(), k.account(c.Key), k.past(c.Key)},
			[]any{l.head(), appendSlot(nil, appendName(nil, &quota.Entry{Counter: c}))}
	})
	if err != nil {
		return nil, err
	}
	d := decoder{s: answer[1:]}
	now := d.int64()
	var history []quota.Status
	for all := d.s; len(all) >= periodLen; {
		d := decoder{s: all[len(all)-periodLen:]}
		all = all[:len(all)-periodLen]
		from, to := d.int64(), d.int64()
		st := quota.Status{Counter: c, Span: spanOf(from, to), Committed: d.int64(), Reserved: d.int64(), Limit: d.int64()}
		crossed := d.uint16()
		if len(history) < n && to <= now && (st.Committed|st.Reserved != 0 || crossed != 0) {
			history = append(history, st)
		}
	}
	return history, d.err()
}

// periodLen is the length of a window's counts, as lua/store.lua writes them.
const periodLen = 48

// Erase implements [quota.Ledger]. What reservations hold under other keys stays, to
// be settled there; their own ids say nothing about anybody. The key itself is still
// part of reservations that have ended, as [Config].Remember says, and nothing that is
// returned comes from there.
func (l *Ledger) Erase(ctx context.Context, tree, key string) error {
	for cursor := "0"; ; {
		answer, err := l.run(ctx, eraseScript, tree, func(_ *encoder, k keys) ([]string, []any) {
			return []string{k.index(), k.account(key), k.past(key)}, []any{cursor}
		})
		if err != nil {
			return err
		}
		if cursor = answer[1:]; cursor == "0" {
			return nil
		}
	}
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
