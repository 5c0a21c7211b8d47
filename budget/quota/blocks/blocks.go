package blocks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/internal/unset"
	"github.com/headgate-go/headgate/budget/quota"
)

// Ledger is a [quota.Ledger] in front of another one that several replicas share.
// See the documentation of the package. It is safe for concurrent use.
type Ledger struct {
	next       underneath
	cfg        Config
	base       time.Time // instants of the monotonic clock count from here
	ctx        context.Context
	stop       context.CancelFunc
	stats      stats
	remembered atomic.Int64
	work       sync.WaitGroup
	id         string // names what it tells the ledger

	signing sync.Mutex
	// signing guards what follows. It is locked last.
	writer string
	part   int64 // of time, of which that is
	signed int64 // how many settlements are

	mu sync.RWMutex
	// mu guards all that follows. A tree's lock is locked before it.
	trees  map[string]*tree
	timer  *time.Timer
	soon   bool      // the timer is set for a moment from now
	toldAt time.Time // when it was logged that blocks had lapsed
	closed bool
}

var _ quota.Ledger = (*Ledger)(nil)

var (
	errClosed     = fmt.Errorf("%w: it is closed", quota.ErrUnavailable)
	errNoStatus   = fmt.Errorf("%w: it did not say how the counter stands", quota.ErrUnavailable)
	errNotCovered = fmt.Errorf("%w: it did not take what is spent already", quota.ErrUnavailable)
)

// New returns a ledger that leases blocks from another one, which all replicas share.
// The error names every field that is wrong.
func New(ledger quota.Ledger, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if unset.Is(ledger) {
		err = errors.Join(errors.New("blocks: ledger is nil, must be set"), err)
	}
	if err != nil {
		return nil, err
	}
	// An instant of 0 is long ago.
	l := &Ledger{next: underneath{ledger}, cfg: cfg, base: time.Now().Add(-time.Hour), trees: map[string]*tree{}, id: budget.NewID()}
	l.ctx, l.stop = context.WithCancel(context.Background())
	if err := l.register(); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// Unwrap returns the ledger underneath. An Enforcer tells it what has passed while no
// ledger could be reached, if it is one with a journal.
func (l *Ledger) Unwrap() quota.Ledger { return l.next.Ledger }

// now is the time by the monotonic clock.
func (l *Ledger) now() int64 { return int64(time.Since(l.base)) }

// ready returns an error if nothing must be done.
func (l *Ledger) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return errClosed
	}
	return nil
}

// find returns a tree of which something is known, locked, or nil.
func (l *Ledger) find(name string) *tree {
	for {
		l.mu.RLock()
		t := l.trees[name]
		l.mu.RUnlock()
		if t == nil {
			return nil
		}
		t.mu.Lock()
		if !t.gone {
			return t
		}
		t.mu.Unlock()
	}
}

// tree returns a tree, locked, and makes it if need be.
func (l *Ledger) tree(name string) *tree {
	for {
		if t := l.find(name); t != nil {
			return t
		}
		l.mu.Lock()
		if l.trees[name] == nil {
			t := newTree(l, name)
			l.trees[t.name] = t
		}
		l.mu.Unlock()
	}
}

// all are all trees.
func (l *Ledger) all() []*tree {
	l.mu.RLock()
	defer l.mu.RUnlock()
	trees := make([]*tree, 0, len(l.trees))
	for _, t := range l.trees {
		trees = append(trees, t)
	}
	return trees
}

// begin runs something in a goroutine that Close waits for; false if the ledger is
// closed.
func (l *Ledger) begin(do func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Go(do)
	return true
}

// Healthy implements [quota.Ledger]: it asks the ledger underneath.
func (l *Ledger) Healthy(ctx context.Context) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	return l.next.Healthy(ctx)
}

// Flush implements [quota.Ledger]. All that was spent is settled, all that is idle is
// returned, and the ledger underneath is flushed.
func (l *Ledger) Flush(ctx context.Context) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	return errors.Join(l.settleAll(ctx), l.next.Flush(ctx))
}

// settleAll settles what was spent and returns what is idle of all counters.
func (l *Ledger) settleAll(ctx context.Context) error {
	var errs []error
	for _, t := range l.all() {
		t.mu.Lock()
		t.expire(l.now())
		counters := t.busy()
		t.mu.Unlock()
		for _, c := range counters {
			if err := c.sync(ctx, everything); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// sync does all that there is to be done about a counter.
func (c *counter) sync(ctx context.Context, x extent) error {
	if err := c.turn(ctx); err != nil {
		return err
	}
	defer c.pass()
	return c.settleAll(ctx, x)
}

// Close implements [quota.Ledger]. It settles what was spent and returns what is
// idle, until ctx ends; what calls still hold lapses in the ledger underneath after
// TTL. That is not closed.
func (l *Ledger) Close(ctx context.Context) error {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	if was {
		return nil
	}
	err := l.settleAll(ctx)
	l.stop()
	ended := make(chan struct{})
	go func() {
		l.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		// What is at work has been told to end, and gets a moment for that.
		select {
		case <-ended:
		case <-time.After(l.cfg.Timeout):
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	if err != nil {
		return fmt.Errorf("blocks: not all could be settled: %w", err)
	}
	return nil
}
