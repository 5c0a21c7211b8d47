package ratelimited

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Bounds of the queue of settlements.
const (
	maxSettlements = 1 << 16          // that wait
	settleWorkers  = 8                // that run at a time
	settleTimeout  = 10 * time.Second // of each
)

// settlement is what is left to do for a reservation after its call has ended.
type settlement struct {
	ctx   context.Context // of the call, without its cancel
	do    func(context.Context) error
	index int // of the budget in WithBudgets
}

// settler settles the reservations of remote budgets, so that the end of a call
// never waits for a store. Its workers end when there is nothing to do.
type settler struct {
	log    *slog.Logger
	failed func() // counts a settlement that was lost; may be nil

	mu sync.Mutex
	// mu guards all that follows.
	queue   []settlement
	workers int
	idle    chan struct{} // closed when the last worker ends; nil without waiters
}

func (s *settler) add(job settlement) {
	s.mu.Lock()
	if len(s.queue) >= maxSettlements {
		s.mu.Unlock()
		s.lost(job, errQueueFull)
		return
	}
	s.queue = append(s.queue, job)
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
		job := s.queue[0]
		s.queue[0] = settlement{}
		s.queue = s.queue[1:]
		s.mu.Unlock()
		s.settle(job)
	}
}

func (s *settler) settle(job settlement) {
	ctx, cancel := context.WithTimeout(job.ctx, settleTimeout)
	defer cancel()
	if err := job.do(ctx); err != nil {
		s.lost(job, err)
	}
}

// lost reports a settlement that failed. The reservation then counts at its
// estimate until its budget lets it lapse: it never becomes free spend.
func (s *settler) lost(job settlement, err error) {
	if s.failed != nil {
		s.failed()
	}
	s.log.Error("ratelimited: a reservation could not be settled; it lapses by itself",
		slog.Int("budget", job.index), slog.Any("error", err))
}

// flush waits until every settlement was made, or until ctx ends.
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
