package redisledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
)

const (
	// width is how many round trips of a ledger are under way at a time. What comes
	// while there are so many waits for the first that returns, and goes with whatever
	// else waits then: a lone caller, and a few, are never kept waiting.
	width = 4
	// batch is how many scripts go in one round trip.
	batch = 64
)

// A sender has scripts run. Round trips may outlast their callers, and are made in
// goroutines; but for that of a caller who cannot leave, where the client keeps deadlines.
type sender struct {
	client  redis.UniversalClient
	limit   time.Duration
	bounded bool // the client keeps deadlines
	counts  struct{ trips, resent atomic.Int64 }

	mu sync.Mutex
	// mu guards:
	waiting []*request
	trips   int // under way, and not given up
	closed  bool

	running sync.WaitGroup // trips
}

// A request is one run of a script.
type request struct {
	source *source
	args   []any // of EVALSHA, with its name
	reply  string
	err    error
	state  atomic.Int32
	turn   chan []*request // has room for one: what to send, or nil if reply and err are there
	trip   *trip           // sender.mu guards it
}

// States of a request.
const (
	queued int32 = iota
	sent         // it is in a round trip
	left         // nobody waits for it any more
)

// A trip is a round trip. sender.mu guards it.
type trip struct {
	over bool // it has ended, or it was given up and another one is in its place
}

var (
	errClosed = fmt.Errorf("%w: it is closed", quota.ErrUnavailable)
	errLate   = errors.New("no answer")
)

// do runs a script once. It returns when there is a reply, when the time limit is
// over, or when ctx ends, whichever is first.
func (s *sender) do(ctx context.Context, src *source, args []any, until time.Time) (string, error) {
	args[0], args[1] = "evalsha", src.sha
	r := &request{source: src, args: args}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", errClosed
	}
	if s.trips < width {
		s.trips++
		s.running.Add(1)
		if s.bounded && ctx.Done() == nil {
			s.mu.Unlock()
			s.travel(ctx, until, new(trip), r)
			return r.reply, r.err
		}
		r.turn = make(chan []*request, 1)
		if s.bounded { // a connection does not see that ctx is cancelled
			r.state.Store(sent)
			go s.travel(context.WithoutCancel(ctx), until, new(trip), r)
		} else {
			s.depart(r)
		}
	} else {
		r.turn = make(chan []*request, 1)
		s.waiting = append(s.waiting, r)
	}
	s.mu.Unlock()

	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	for {
		select {
		case all := <-r.turn:
			if all == nil {
				return r.reply, r.err
			}
			// It is the round trip of others, too, who may have more time than ctx.
			go s.travel(context.WithoutCancel(ctx), until, new(trip), all...)
		case <-ctx.Done():
			s.leave(r, false)
			return "", ctx.Err()
		case <-limit.C:
			s.leave(r, true)
			return "", fmt.Errorf("%w: %w within %v", quota.ErrUnavailable, errLate, s.limit)
		}
	}
}

// leave has a request not sent any more. If it is in a round trip that takes too long,
// another one begins in its place.
func (s *sender) leave(r *request, late bool) {
	if r.state.CompareAndSwap(queued, left) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case all := <-r.turn: // it has just been its turn
		if all != nil {
			go s.travel(context.Background(), time.Now().Add(s.limit), new(trip), slices.Clone(all)...)
		}
	default:
		if t := r.trip; late && t != nil && !t.over {
			t.over = true
			s.next()
		}
	}
}

// travel makes a round trip, and sees to it that somebody makes the next one.
func (s *sender) travel(ctx context.Context, until time.Time, t *trip, all ...*request) {
	defer s.running.Done()
	ctx, cancel := context.WithDeadline(ctx, until)
	s.send(ctx, all)
	cancel()
	s.mu.Lock()
	if !t.over {
		t.over = true
		s.next()
	}
	s.mu.Unlock()
	for _, r := range all {
		if r.turn != nil {
			select {
			case r.turn <- nil:
			default: // it has left
			}
		}
	}
}

// depart begins a round trip in a goroutine. mu is held.
func (s *sender) depart(all ...*request) {
	t := new(trip)
	for _, r := range all {
		r.state.Store(sent)
		r.trip = t
	}
	go s.travel(context.Background(), time.Now().Add(s.limit), t, all...)
}

// next has the next round trip made in the place of one that is over. mu is held.
func (s *sender) next() {
	var all []*request
	n := 0
	for _, r := range s.waiting {
		if len(all) == batch {
			break
		}
		if n++; r.state.CompareAndSwap(queued, sent) {
			all = append(all, r)
		}
	}
	rest := copy(s.waiting, s.waiting[n:])
	clear(s.waiting[rest:])
	s.waiting = s.waiting[:rest]
	if len(all) == 0 {
		s.trips--
		return
	}
	s.running.Add(1)
	if s.bounded {
		all[len(all)-1].turn <- all // who has come last has the most time left
	} else {
		s.depart(all...)
	}
}

// send makes a round trip. Scripts that the server does not know, because it was
// restarted or they were flushed, go again with their text.
func (s *sender) send(ctx context.Context, all []*request) {
	if !s.exchange(ctx, all) {
		return
	}
	var again []*request
	for _, r := range all {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			r.args[0], r.args[1] = "eval", r.source.text
			again = append(again, r)
		}
	}
	s.counts.resent.Add(int64(len(again)))
	s.exchange(ctx, again)
}

// exchange sends requests, and reports whether the server does not know a script.
func (s *sender) exchange(ctx context.Context, all []*request) (unknown bool) {
	s.counts.trips.Add(1)
	if len(all) == 1 {
		cmd := redis.NewCmd(ctx, all[0].args...)
		_ = s.client.Process(ctx, cmd) // cmd has the error
		all[0].read(cmd)
	} else {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.Cmd, len(all))
		for i, r := range all {
			cmds[i] = redis.NewCmd(ctx, r.args...)
			_ = pipe.Process(ctx, cmds[i]) // it only queues
		}
		_, _ = pipe.Exec(ctx) // each has its own error
		for i, r := range all {
			r.read(cmds[i])
		}
	}
	for _, r := range all {
		if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			unknown = true
		}
	}
	return unknown
}

// read takes what a script has answered.
func (r *request) read(cmd *redis.Cmd) {
	if r.err = cmd.Err(); r.err == nil {
		r.reply, _ = cmd.Val().(string)
	}
}

// close ends it, and waits for what is under way, or the end of ctx.
func (s *sender) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sender) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// keepsDeadlines reports whether a client gives up at the deadline of a context.
func keepsDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// unavailable is the error of a script that did not run.
func unavailable(name string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %s: %w in time", quota.ErrUnavailable, name, errLate) // that was not the caller's context
	}
	return fmt.Errorf("%w: %s: %w", quota.ErrUnavailable, name, err)
}
