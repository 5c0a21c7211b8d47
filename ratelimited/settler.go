package ratelimited

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// Bounds of the queue of settlements.
const (
	maxSettlements = 1 << 16          // that wait
	settleWorkers  = 8                // that run at a time
	settleTimeout  = 10 * time.Second // of each
)

// errQueueFull: too many settlements wait for a slow store.
var errQueueFull = errors.New("too many settlements are waiting")

// operation is what is done to a reservation at the end of its call.
type operation uint8

const (
	settle operation = iota
	release
	adjust
)

// account is a reservation of a call, with what is left to do for it.
type account struct {
	reservation budget.Reservation
	ctx         context.Context // of the call, without its cancel
	index       int             // of the budget in WithBudgets
	local       bool            // its operations only touch memory

	// The settler's lock guards all that follows.
	todo   []settlement
	queued bool // it is in the queue, or a worker has it
}

// settlement is one operation that waits.
type settlement struct {
	op    operation
	usage usage.Usage
}

func newAccount(ctx context.Context, r budget.Reservation, index int) account {
	l, ok := r.(budget.Local)
	return account{reservation: r, ctx: context.WithoutCancel(ctx), index: index, local: ok && l.Local()}
}

// do makes one operation. A reservation that panics must not take the program,
// or a finished answer, with it.
func (a *account) do(ctx context.Context, s settlement) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	switch s.op {
	case settle:
		return a.reservation.Settle(ctx, s.usage)
	case release:
		return a.reservation.Release(ctx)
	default:
		if r, ok := a.reservation.(budget.Adjuster); ok {
			return r.Adjust(ctx, s.usage)
		}
		return nil
	}
}

// settler settles the reservations of remote budgets, so that the end of a call
// never waits for a store. The operations of one reservation are made in order,
// one at a time. Its workers end when there is nothing to do.
type settler struct {
	log    *slog.Logger
	failed func() // counts an operation that was lost; may be nil

	mu sync.Mutex
	// mu guards all that follows, and what accounts say.
	queue   []*account
	length  int // operations that wait
	workers int
	idle    chan struct{} // closed when the last worker ends; nil without waiters
}

// book makes an operation: at once if it only touches memory, otherwise soon.
func (s *settler) book(a *account, op operation, u usage.Usage) {
	if op == adjust {
		if _, ok := a.reservation.(budget.Adjuster); !ok {
			return
		}
	}
	job := settlement{op, u}
	if a.local {
		s.report(a, a.do(a.ctx, job))
		return
	}
	s.mu.Lock()
	if s.length >= maxSettlements {
		s.mu.Unlock()
		s.report(a, errQueueFull)
		return
	}
	s.length++
	a.todo = append(a.todo, job)
	if a.queued {
		s.mu.Unlock()
		return
	}
	a.queued = true
	s.queue = append(s.queue, a)
	start := s.workers < settleWorkers
	if start {
		s.workers++
	}
	s.mu.Unlock()
	if start {
		go s.work()
	}
}

func (s *settler) work() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			if s.workers--; s.workers == 0 && s.idle != nil {
				close(s.idle)
				s.idle = nil
			}
			s.mu.Unlock()
			return
		}
		a := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		job := a.todo[0]
		a.todo = a.todo[1:]
		s.length--
		s.mu.Unlock()

		ctx, cancel := context.WithTimeout(a.ctx, settleTimeout)
		err := a.do(ctx, job)
		cancel()
		s.report(a, err)

		s.mu.Lock()
		if a.queued = len(a.todo) > 0; a.queued {
			s.queue = append(s.queue, a)
		}
		s.mu.Unlock()
	}
}

// report tells of an operation that failed. The reservation then counts at its
// estimate until its budget lets it lapse: it never becomes free spend.
func (s *settler) report(a *account, err error) {
	if err == nil {
		return
	}
	if s.failed != nil {
		s.failed()
	}
	s.log.Error("ratelimited: a reservation could not be settled; it lapses by itself",
		slog.Int("budget", a.index), slog.Any("error", err))
}

// flush waits until every operation was made, or until ctx ends.
func (s *settler) flush(ctx context.Context) error {
	s.mu.Lock()
	if s.workers == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}
