package blocks

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/unasked"
)

// AnswersAlone reports that what is leased is served without the ledger underneath. An
// Enforcer asks for no more than that while it knows that the store is away: blocks are
// spent until they end, as they are while nobody has noticed.
func (l *Ledger) AnswersAlone() bool { return true }

var _ unasked.Ledger = (*Ledger)(nil)

// underneath is the ledger underneath, which is not asked where it must not be.
type underneath struct{ quota.Ledger }

// Reserve implements [quota.Ledger].
func (u underneath) Reserve(ctx context.Context, r quota.Reserve) (quota.Reserved, error) {
	if err := unasked.Barred(ctx); err != nil {
		return quota.Reserved{Denied: -1}, err
	}
	return u.Ledger.Reserve(ctx, r)
}

// Settle implements [quota.Ledger].
func (u underneath) Settle(ctx context.Context, s quota.Settle) (quota.Settled, error) {
	if err := unasked.Barred(ctx); err != nil {
		return quota.Settled{}, err
	}
	return u.Ledger.Settle(ctx, s)
}

// Release implements [quota.Ledger].
func (u underneath) Release(ctx context.Context, tree, id string) error {
	if err := unasked.Barred(ctx); err != nil {
		return err
	}
	return u.Ledger.Release(ctx, tree, id)
}

// Renew implements [quota.Ledger].
func (u underneath) Renew(ctx context.Context, tree string, ttl time.Duration, ids ...string) (lost []string, err error) {
	if err := unasked.Barred(ctx); err != nil {
		return nil, err
	}
	return u.Ledger.Renew(ctx, tree, ttl, ids...)
}

// Status implements [quota.Ledger].
func (u underneath) Status(ctx context.Context, tree string, entries ...quota.Entry) ([]quota.Status, error) {
	if err := unasked.Barred(ctx); err != nil {
		return nil, err
	}
	return u.Ledger.Status(ctx, tree, entries...)
}
