package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// reopening is how often it is tried to open a store that is away.
const reopening = time.Second

// away reports whether an error at the start is that of a store which may be there later.
func away(err error) bool {
	return errors.Is(err, quota.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// late is the ledger of a store that was away when the server began. It is opened in a goroutine of
// its own; until then it is unavailable, which is an outage like any other.
type late struct {
	opened atomic.Pointer[store] // nil until it is
	stop   context.CancelFunc
	ended  chan struct{} // closed when nothing is tried any more
}

var _ quota.Ledger = (*late)(nil)

// openLate begins to open a store that is away; why is the error of the first try.
func openLate(open func(context.Context) (*store, error), why error, logger *slog.Logger) *store {
	ctx, stop := context.WithCancel(context.Background())
	l := &late{stop: stop, ended: make(chan struct{})}
	go l.run(ctx, open, why, logger)
	return &store{Ledger: l, close: func() error {
		if s := l.opened.Load(); s != nil {
			return s.close()
		}
		return nil
	}}
}

func (l *late) run(ctx context.Context, open func(context.Context) (*store, error), why error, logger *slog.Logger) {
	defer close(l.ended)
	said := ""
	for ctx.Err() == nil {
		if text := why.Error(); text != said {
			logger.Warn("support: the store cannot be opened yet, and limits are checked without", slog.Any("error", why))
			said = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopening):
		}
		var s *store
		if s, why = open(ctx); why == nil {
			l.opened.Store(s)
			logger.Info("support: the store is there now")
			return
		}
	}
}

var errLate = fmt.Errorf("%w: it was never there since the server began", quota.ErrUnavailable)

// ledger is that of the store, or one that is unavailable.
func (l *late) ledger() (quota.Ledger, error) {
	if s := l.opened.Load(); s != nil {
		return s.Ledger, nil
	}
	return nil, errLate
}

// with asks the ledger, if it is there.
func with[T any](l *late, ask func(quota.Ledger) (T, error)) (answer T, err error) {
	ledger, err := l.ledger()
	if err != nil {
		return answer, err
	}
	return ask(ledger)
}

// do has the ledger do something, if it is there.
func (l *late) do(f func(quota.Ledger) error) error {
	ledger, err := l.ledger()
	if err != nil {
		return err
	}
	return f(ledger)
}

func (l *late) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	return with(l, func(to quota.Ledger) (quota.Reserved, error) { return to.Reserve(ctx, r) })
}

func (l *late) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	return with(l, func(to quota.Ledger) (quota.Settled, error) { return to.Settle(ctx, s) })
}

func (l *late) Release(ctx context.Context, tree, id string) error {
	return l.do(func(to quota.Ledger) error { return to.Release(ctx, tree, id) })
}

func (l *late) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	return with(l, func(to quota.Ledger) ([]string, error) { return to.Renew(ctx, tree, ttl, ids...) })
}

func (l *late) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	return with(l, func(to quota.Ledger) ([]quota.Status, error) { return to.Status(ctx, tree, entries...) })
}

func (l *late) TopUp(ctx context.Context, tree string, e quota.Entry, amount int64) (quota.Status, error) {
	return with(l, func(to quota.Ledger) (quota.Status, error) { return to.TopUp(ctx, tree, e, amount) })
}

func (l *late) Reset(ctx context.Context, tree string, e quota.Entry) (quota.Status, error) {
	return with(l, func(to quota.Ledger) (quota.Status, error) { return to.Reset(ctx, tree, e) })
}

func (l *late) History(ctx context.Context, tree string, c quota.Counter, n int) ([]quota.Status, error) {
	return with(l, func(to quota.Ledger) ([]quota.Status, error) { return to.History(ctx, tree, c, n) })
}

func (l *late) Erase(ctx context.Context, tree, key string) error {
	return l.do(func(to quota.Ledger) error { return to.Erase(ctx, tree, key) })
}

func (l *late) Healthy(ctx context.Context) error {
	return l.do(func(to quota.Ledger) error { return to.Healthy(ctx) })
}

func (l *late) Flush(ctx context.Context) error {
	return l.do(func(to quota.Ledger) error { return to.Flush(ctx) })
}

// Close ends trying to open the store, and closes the ledger if it was opened.
func (l *late) Close(ctx context.Context) error {
	l.stop()
	select {
	case <-l.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s := l.opened.Load(); s != nil {
		return s.Ledger.Close(ctx)
	}
	return nil
}
