package openaimodel_test

import (
	"context"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// ledger is a customer budget that allows everything and keeps books.
type ledger struct {
	mu     sync.Mutex
	open   int
	closed []usage.Usage // what every call was charged; zero if it was released
}

func (l *ledger) Reserve(_ context.Context, _ budget.Call) (budget.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	return &reservation{ledger: l}, nil
}

// Local tells the gate that nothing here waits.
func (l *ledger) Local() bool { return true }

type reservation struct {
	ledger *ledger
	call   int // of ledger.closed, once it is there
}

func (r *reservation) Local() bool { return true }

func (r *reservation) Settle(_ context.Context, actual usage.Usage) error {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.ledger.open--
	r.call = len(r.ledger.closed)
	r.ledger.closed = append(r.ledger.closed, actual)
	return nil
}

func (r *reservation) Release(ctx context.Context) error { return r.Settle(ctx, usage.Usage{}) }

func (r *reservation) Adjust(_ context.Context, actual usage.Usage) error {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.ledger.closed[r.call] = actual
	return nil
}

// spent is what the one call that was made was charged.
func (l *ledger) spent(t *testing.T) usage.Usage {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != 0 || len(l.closed) != 1 {
		t.Fatalf("%d reservations are open, %d closed; want 0 and 1", l.open, len(l.closed))
	}
	return l.closed[0]
}

// expect fails unless that is what the one call was charged.
func (l *ledger) expect(t *testing.T, want usage.Usage) {
	t.Helper()
	if got := l.spent(t); got != want {
		t.Errorf("charged %v (%+v), want %v", got, got, want)
	}
}
