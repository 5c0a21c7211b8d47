package httpgate_test

import (
	"context"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// ledger is a customer's budget that counts tokens and refuses when told to.
type ledger struct {
	deny error

	mu          sync.Mutex
	calls       []budget.Call
	held, spent int64
	settled     int
}

func (l *ledger) Reserve(_ context.Context, call budget.Call) (budget.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deny != nil {
		return nil, l.deny
	}
	l.calls = append(l.calls, call)
	l.held += call.Usage.Total()
	return &entry{ledger: l, held: call.Usage.Total()}, nil
}

// entry is one of its reservations.
type entry struct {
	ledger      *ledger
	held, spent int64
	closed      bool
}

func (e *entry) Local() bool { return true }

func (e *entry) Settle(_ context.Context, u usage.Usage) error { return e.close(u.Total()) }

func (e *entry) Release(context.Context) error { return e.close(0) }

func (e *entry) close(spent int64) error {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	if !e.closed {
		e.closed = true
		e.ledger.held -= e.held
		e.ledger.spent += spent
		e.ledger.settled++
		e.spent = spent
	}
	return nil
}

func (e *entry) Adjust(_ context.Context, u usage.Usage) error {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	e.ledger.spent += u.Total() - e.spent
	e.spent = u.Total()
	return nil
}

// expect checks what is held and what was spent.
func (l *ledger) expect(t *testing.T, held, spent int64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != held || l.spent != spent {
		t.Errorf("the customer's budget holds %d and has spent %d, want %d and %d", l.held, l.spent, held, spent)
	}
}

func (l *ledger) last(t *testing.T) budget.Call {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == 0 {
		t.Fatal("nothing was reserved")
	}
	return l.calls[len(l.calls)-1]
}
