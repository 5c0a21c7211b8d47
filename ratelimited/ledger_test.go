package ratelimited_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// ledger is a customer budget in tokens, kept in memory. Without a delay its
// reservations are local; with one they behave like those of a store far away.
type ledger struct {
	name  string
	limit int64
	hold  int64         // what each call reserves; 0 is the estimate's total
	delay time.Duration // of every operation of a reservation
	slow  time.Duration // of Reserve

	reserveErr error
	settleErr  error
	panics     string // the operation that panics: "reserve", "settle", "release", "adjust"

	mu       sync.Mutex
	held     int64
	spent    int64
	denials  int
	ids      map[string]bool
	ops      []string
	reserved []budget.Call
	settled  []usage.Usage
}

var errStore = errors.New("store is down")

func (l *ledger) Reserve(ctx context.Context, call budget.Call) (budget.Reservation, error) {
	if l.panics == "reserve" {
		panic("ledger: reserve")
	}
	if err := wait(ctx, l.slow); l.slow > 0 && err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserveErr != nil {
		return nil, l.reserveErr
	}
	n := l.hold
	if n == 0 {
		n = call.Usage.Total()
	}
	if l.limit > 0 && l.held+l.spent+n > l.limit {
		l.denials++
		return nil, &budget.DeniedError{Budget: l.name, Unit: "tokens", Limit: l.limit, Used: l.held + l.spent, Requested: n}
	}
	if l.ids == nil {
		l.ids = make(map[string]bool)
	}
	l.ids[call.ID] = true
	l.reserved = append(l.reserved, call)
	l.held += n
	return &entry{l: l, hold: n}, nil
}

// entry is one reservation of a ledger.
type entry struct {
	l    *ledger
	hold int64
	paid int64
	done bool
}

func (e *entry) Local() bool { return e.l.delay == 0 }

func (e *entry) Settle(ctx context.Context, u usage.Usage) error {
	return e.end(ctx, "settle", u.Total(), &u)
}

func (e *entry) Release(ctx context.Context) error { return e.end(ctx, "release", 0, nil) }

func (e *entry) end(ctx context.Context, op string, n int64, u *usage.Usage) error {
	if err := e.before(ctx, op); err != nil {
		return err
	}
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	if e.done {
		return nil
	}
	e.done = true
	e.l.held -= e.hold
	e.l.spent += n
	e.paid = n
	if u != nil {
		e.l.settled = append(e.l.settled, *u)
	}
	return nil
}

func (e *entry) Adjust(ctx context.Context, u usage.Usage) error {
	if err := e.before(ctx, "adjust"); err != nil {
		return err
	}
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	if !e.done {
		return errors.New("adjusted before it was settled")
	}
	e.l.spent += u.Total() - e.paid
	e.paid = u.Total()
	e.l.settled = append(e.l.settled, u)
	return nil
}

func (e *entry) before(ctx context.Context, op string) error {
	e.l.mu.Lock()
	e.l.ops = append(e.l.ops, op)
	e.l.mu.Unlock()
	if e.l.panics == op {
		panic("ledger: " + op)
	}
	if e.l.delay > 0 {
		if err := wait(ctx, e.l.delay); err != nil {
			return err
		}
	}
	return e.l.settleErr
}

// expect checks what the ledger holds and has spent.
func (l *ledger) expect(t *testing.T, held, spent int64) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != held || l.spent != spent {
		t.Errorf("ledger %q: held %d, spent %d; want %d and %d (operations %v)", l.name, l.held, l.spent, held, spent, l.ops)
	}
}

func (l *ledger) count(op string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.ops {
		if o == op {
			n++
		}
	}
	return n
}

// last is the usage that was settled last.
func (l *ledger) last(t *testing.T) usage.Usage {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.settled) == 0 {
		t.Fatalf("ledger %q: nothing was settled (operations %v)", l.name, l.ops)
	}
	return l.settled[len(l.settled)-1]
}

// near and far are the two kinds of ledger that every guarantee is tested with:
// one that is settled in place, one behind a network.
func ledgers(name string, limit, hold int64) map[string]*ledger {
	return map[string]*ledger{
		"local":  {name: name, limit: limit, hold: hold},
		"remote": {name: name, limit: limit, hold: hold, delay: 40 * time.Millisecond, slow: 15 * time.Millisecond},
	}
}
