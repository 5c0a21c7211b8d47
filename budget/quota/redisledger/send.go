package redisledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	// batch is how many requests go in one round trip.
	batch = 64
	// together is how many requests one run of a script does, so that none takes long.
	together = 16
	// smallArgs is of how many arguments a request is at most that goes with others.
	smallArgs = 64
)

// A sender has scripts run. Round trips may outlast their callers, and are made in
// goroutines; but for that of a caller who cannot leave and goes alone, where the client
// keeps deadlines.
type sender struct {
	client  redis.UniversalClient
	limit   time.Duration
	bounded bool        // the client keeps deadlines
	apart   atomic.Bool // a script must keep to one tree
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
	tree   keys
	args   []any // of EVALSHA, with its name
	ctx    context.Context
	until  time.Time
	reply  string
	err    error
	state  atomic.Int32
	done   chan struct{} // has room for one: reply and err are there; nil for who goes alone
	trip   *trip         // sender.mu guards it
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
func (s *sender) do(ctx context.Context, src *source, tree keys, args []any, until time.Time) (string, error) {
	args[0], args[1] = "evalsha", src.sha
	r := &request{source: src, tree: tree, args: args, ctx: ctx, until: until}
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return "", errClosed
	case s.trips == width:
		r.done = make(chan struct{}, 1)
		s.waiting = append(s.waiting, r)
	default:
		s.trips++
		s.running.Add(1)
		if s.bounded && ctx.Done() == nil {
			s.mu.Unlock()
			s.goAlone(r)
			return r.reply, r.err
		}
		r.done = make(chan struct{}, 1)
		s.depart([]*request{r})
	}
	s.mu.Unlock()

	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case <-r.done:
		return r.reply, r.err
	case <-ctx.Done():
		s.leave(r, false)
		return "", ctx.Err()
	case <-limit.C:
		s.leave(r, true)
		return "", fmt.Errorf("%w: %w within %v", quota.ErrUnavailable, errLate, s.limit)
	}
}

// leave has a request not sent any more. If it is in a round trip that takes too long,
// another one begins in its place.
func (s *sender) leave(r *request, late bool) {
	if r.state.CompareAndSwap(queued, left) || !late {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := r.trip; t != nil && !t.over {
		t.over = true
		s.next()
	}
}

// goAlone makes the round trip of a caller in its own goroutine.
func (s *sender) goAlone(r *request) {
	defer s.running.Done()
	ctx, cancel := context.WithDeadline(r.ctx, r.until)
	s.send(ctx, []*request{r})
	cancel()
	s.mu.Lock()
	s.next()
	s.mu.Unlock()
}

// depart begins a round trip in a goroutine. mu is held.
func (s *sender) depart(all []*request) { go s.travel(embark(all), all) }

// embark puts requests on a trip. mu is held.
func embark(all []*request) *trip {
	t := new(trip)
	for _, r := range all {
		r.state.Store(sent)
		r.trip = t
	}
	return t
}

// next has the next round trip made in the place of one that is over. mu is held.
func (s *sender) next() {
	if all := s.gather(); all != nil {
		s.running.Add(1)
		s.depart(all)
	} else {
		s.trips--
	}
}

// travel makes round trips until nobody waits.
func (s *sender) travel(t *trip, all []*request) {
	defer s.running.Done()
	for {
		// It is the round trip of all, some of whom may have more time than others, and
		// a connection does not see that a context is cancelled.
		until := all[0].until
		for _, r := range all[1:] {
			if r.until.After(until) {
				until = r.until
			}
		}
		ctx, cancel := context.WithDeadline(context.WithoutCancel(all[0].ctx), until)
		s.send(ctx, all)
		cancel()
		for _, r := range all {
			r.done <- struct{}{}
		}
		if len(all) > 1 {
			runtime.Gosched() // they may come again at once, and go together again
		}
		s.mu.Lock()
		if t.over {
			s.mu.Unlock()
			return
		}
		t.over = true
		if all = s.gather(); all == nil {
			s.trips--
			s.mu.Unlock()
			return
		}
		t = embark(all)
		s.mu.Unlock()
	}
}

// gather takes those who wait, as many as go in one round trip, or their part of very
// many. mu is held.
func (s *sender) gather() (all []*request) {
	most := min(max(together, len(s.waiting)/width), batch)
	n := 0
	for _, r := range s.waiting {
		if len(all) == most {
			break
		}
		if n++; r.state.CompareAndSwap(queued, sent) {
			all = append(all, r)
		}
	}
	rest := copy(s.waiting, s.waiting[n:])
	clear(s.waiting[rest:])
	s.waiting = s.waiting[:rest]
	return all
}

// send makes a round trip. Scripts that the server does not know, because it was
// restarted or they were flushed, go again with their text.
func (s *sender) send(ctx context.Context, all []*request) {
	for runs := s.runs(all); len(runs) > 0; {
		s.exchange(ctx, runs)
		var again []*run
		for _, r := range runs {
			switch err := r.cmd.Err(); {
			case err == nil:
			case redis.HasErrorPrefix(err, "NOSCRIPT") && r.args[0] == "evalsha": // once
				r.args[0], r.args[1] = "eval", r.source.text
				again = append(again, r)
				s.counts.resent.Add(1)
			case r.mixed && redis.HasErrorPrefix(err, "CROSSSLOT"): // none of them has run
				s.apart.Store(true)
				again = append(again, s.runs(r.of)...)
			}
		}
		for _, r := range runs {
			r.tell()
		}
		runs = again
	}
}

// runs puts requests together that one run of a script can do.
func (s *sender) runs(all []*request) []*run {
	runs, apart := make([]*run, 0, len(all)), s.apart.Load()
	for _, r := range all {
		var with *run
		if r.source.together != nil && len(r.args) <= smallArgs {
			for _, o := range runs {
				if o.source == r.source && len(o.of) < together && (!apart || o.of[0].tree == r.tree) && len(o.of[0].args) <= smallArgs {
					with = o
					break
				}
			}
		}
		if with == nil {
			runs = append(runs, &run{source: r.source, of: []*request{r}, args: r.args})
			continue
		}
		with.mixed = with.mixed || with.of[0].tree != r.tree
		with.of = append(with.of, r)
	}
	for _, r := range runs {
		if len(r.of) > 1 {
			r.join()
		}
	}
	return runs
}

// exchange makes a round trip of some runs.
func (s *sender) exchange(ctx context.Context, runs []*run) {
	s.counts.trips.Add(1)
	for _, r := range runs {
		r.cmd = redis.NewCmd(ctx, r.args...)
	}
	if len(runs) == 1 {
		_ = s.client.Process(ctx, runs[0].cmd) // it has the error
		return
	}
	pipe := s.client.Pipeline()
	for _, r := range runs {
		_ = pipe.Process(ctx, r.cmd) // it only queues
	}
	_, _ = pipe.Exec(ctx) // each has its own error
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
