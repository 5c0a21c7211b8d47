package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// Ledger is a [quota.Ledger] in a database. Make it with [New].
//
// It is safe for concurrent use, and any number of processes may have one on the same
// tables.
type Ledger struct {
	cfg      Config
	store    store
	combiner *combiner
	cache    *cache
	metric   *metrics     // nil if nobody wants them
	offset   atomic.Int64 // of the store's clock, in nanoseconds; tests only

	sweeping  context.Context // until Close
	stopSweep context.CancelFunc
	sweeps    sync.WaitGroup
}

var _ quota.Ledger = (*Ledger)(nil)

// New makes a ledger on a database, whose tables it makes if they are not there, or are of
// an older version. Close ends it. The error names every field of the configuration that
// is wrong, and matches [quota.ErrUnavailable] if the database is at fault, also if it can
// only be read.
func New(ctx context.Context, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	l := newLedger(cfg, s)
	if err := l.register(); err != nil {
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}
	if err := l.combiner.do(ctx, max(cfg.Timeout, openLimit), 0, probing{}); err != nil {
		l.unregister()
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}
	if cfg.SweepEvery > 0 {
		l.sweeps.Go(l.sweepAgain)
	}
	return l, nil
}

func newLedger(cfg Config, s store) *Ledger {
	l := &Ledger{cfg: cfg, store: s}
	if cfg.Dialect == SQLite {
		cfg.Transactions = 1
	}
	l.cache = newCache(maxRemembered)
	l.combiner = newCombiner(cfg.Transactions, l.run)
	l.sweeping, l.stopSweep = context.WithCancel(context.Background())
	return l
}

func (l *Ledger) do(ctx context.Context, tree int64, req request) error {
	if l.metric == nil || ctx.Err() != nil {
		return l.combiner.do(ctx, l.cfg.Timeout, tree, req)
	}
	begun := time.Now()
	err := l.combiner.do(ctx, l.cfg.Timeout, tree, req)
	l.metric.Ended(operationOf(req), begun, outcomeOf(err))
	return err
}

// Reserve implements [quota.Ledger].
func (l *Ledger) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	none := quota.Reserved{Denied: -1}
	if err := r.Validate(); err != nil {
		return none, err
	}
	op := newReserving(r)
	if err := l.do(ctx, op.tree, op); err != nil {
		return none, err
	}
	op.res.Status = inRoom(r.Room, op.res.Status)
	return op.res, nil
}

// inRoom puts statuses into the room of the caller, if it is enough.
func inRoom(room, all []quota.Status) []quota.Status {
	if cap(room) < len(all) {
		return all
	}
	room = room[:len(all)]
	copy(room, all)
	return room
}

// Settle implements [quota.Ledger].
func (l *Ledger) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	if err := s.Validate(); err != nil {
		return quota.Settled{}, err
	}
	op := newSettling(s)
	if err := l.do(ctx, op.tree, op); err != nil {
		return quota.Settled{}, err
	}
	op.res.Status = inRoom(s.Room, op.res.Status)
	return op.res, nil
}

// Release implements [quota.Ledger]. Releasing what is settled or released changes
// nothing. What has expired can be released, too, and not be settled any more.
func (l *Ledger) Release(ctx context.Context, tree, id string) error {
	op := &releasing{tree: treeOf(tree), id: id, self: refToReservation(tree, id)}
	return l.do(ctx, op.tree, op)
}

// Renew implements [quota.Ledger]. A ttl of 0 is [quota.DefaultTTL].
func (l *Ledger) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	if ttl < 0 {
		return nil, fmt.Errorf("quota: ttl is %v, must not be negative", ttl)
	}
	if ttl == 0 {
		ttl = quota.DefaultTTL
	}
	op := &renewing{tree: treeOf(tree), ttl: ttl}
	for _, id := range ids {
		op.ids = append(op.ids, id)
		op.refs = append(op.refs, refToReservation(tree, id))
	}
	if err := l.do(ctx, op.tree, op); err != nil {
		return nil, err
	}
	return op.lost, nil
}

// Status implements [quota.Ledger].
func (l *Ledger) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	for i := range entries {
		if err := entries[i].Validate(); err != nil {
			return nil, fmt.Errorf("entries[%d]: %w", i, err)
		}
	}
	op := &asking{tree: treeOf(tree), treeName: tree, entries: cloneEntries(entries)}
	if err := l.do(ctx, op.tree, op); err != nil {
		return nil, err
	}
	return op.res, nil
}

// TopUp implements [quota.Ledger]. The amount must not be negative. It is not tried
// again if it is not known whether it was done.
func (l *Ledger) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	if amount < 0 {
		return quota.Status{}, fmt.Errorf("quota: amount is %d, must not be negative", amount)
	}
	return l.change(ctx, &changing{tree: treeOf(tree), treeName: tree, entry: e, amount: amount})
}

// Reset implements [quota.Ledger]. A rolling counter is full afterwards.
func (l *Ledger) Reset(ctx context.Context, tree string, e quota.Entry) (quota.Status, error) {
	return l.change(ctx, &changing{tree: treeOf(tree), treeName: tree, entry: e, reset: true})
}

func (l *Ledger) change(ctx context.Context, op *changing) (quota.Status, error) {
	if err := op.entry.Validate(); err != nil {
		return quota.Status{}, err
	}
	if err := l.do(ctx, op.tree, op); err != nil {
		return quota.Status{}, err
	}
	return op.res, nil
}

// History implements [quota.Ledger]. Windows in which nothing was spent are not
// kept. Limit is the one that was given last in that window.
func (l *Ledger) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	if int(c.Unit) >= quota.Units {
		return nil, fmt.Errorf("quota: Unit is %d, there are %d", c.Unit, quota.Units)
	}
	op := &looking{tree: treeOf(tree), treeName: tree, of: c, n: n}
	if err := l.do(ctx, op.tree, op); err != nil {
		return nil, err
	}
	return op.res, nil
}

// Healthy implements [quota.Ledger]: it makes a transaction that may write, and finds out
// whether the database lets it.
func (l *Ledger) Healthy(ctx context.Context) error { return l.do(ctx, 0, probing{}) }

// Flush implements [quota.Ledger]. There is nothing to wait for: what was answered is
// durable.
func (l *Ledger) Flush(ctx context.Context) error { return l.combiner.ready(ctx) }

// Close implements [quota.Ledger]. It waits for what is under way, and leaves the
// database open. What is called afterwards returns an error that matches
// [quota.ErrUnavailable].
func (l *Ledger) Close(ctx context.Context) error {
	l.stopSweep()
	if err := l.combiner.close(ctx); err != nil {
		return err
	}
	l.sweeps.Wait()
	return l.store.close()
}
