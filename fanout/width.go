package fanout

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
)

// WithWidth returns a context with a shared width: all fan-outs that are given
// it, or a context derived from it, together run at most n branches at a time,
// nested ones too. Each also keeps to the width of its own call.
//
// A branch counts while its function runs, except while it waits in a nested
// fan-out; see the package comment. Code that is not in a branch, such as the
// caller of the outermost fan-out, does not count. Branches start in the order
// in which they began to wait, but one that takes its place again goes before
// those that have not started: it holds what it has made already. It waits for
// that even if its context has ended, so that the width is kept on the way out
// too; only other branches that come back stand in front of it, and each of them
// waits for one running branch to return or to lend its place.
//
// A branch has one place for all that it does. While it waits in several nested
// fan-outs at a time, on goroutines of its own, the place is lent until the last
// of them ends; what the branch does meanwhile on other goroutines is not
// counted.
//
// A shared width under another is an additional one; it cannot widen the first.
//
// An n below 1 is an error.
func WithWidth(ctx context.Context, n int) (context.Context, error) {
	if ctx == nil {
		return nil, errors.New("fanout: ctx is nil")
	}
	if n < 1 {
		return nil, fmt.Errorf("fanout: shared width is %d, must be at least 1", n)
	}
	s := scopeOf(ctx)
	s.shared = &shared{outer: s.shared, size: n, free: n}
	return context.WithValue(ctx, scopeKey{}, s), nil
}

// scope is what a context says about shared widths.
type scope struct {
	shared *shared // what fan-outs under the context draw from; nil: nothing
	place  *place  // of the branch that the context belongs to; nil: none
}

type scopeKey struct{}

func scopeOf(ctx context.Context) scope {
	s, _ := ctx.Value(scopeKey{}).(scope)
	return s
}

// shared is one shared width: a count of free places, and the branches that wait
// for one. While somebody waits, none is free: who gives one back hands it over.
//
// Under another shared width a branch needs a place in each. All take them in
// the same order, the innermost first, and nobody waits who holds one further
// out; so no circle of branches that wait for each other can close.
type shared struct {
	outer *shared
	size  int

	mu     sync.Mutex
	free   int       // guarded by mu
	back   list.List // of chan struct{}: branches that return to their place; guarded by mu
	starts list.List // of chan struct{}: branches that have not started; guarded by mu
}

// enter waits for a place in s and all around it, and reports whether it has
// them; if ctx ended, it has none.
func (s *shared) enter(ctx context.Context) bool {
	for at := s; at != nil; at = at.outer {
		if !at.take(ctx) {
			s.giveUpTo(at)
			return false
		}
	}
	return true
}

// reenter is enter for a branch that comes back from waiting.
func (s *shared) reenter() {
	for at := s; at != nil; at = at.outer {
		at.takeBack()
	}
}

// exit gives a place in s and all around it back.
func (s *shared) exit() { s.giveUpTo(nil) }

func (s *shared) giveUpTo(end *shared) {
	for at := s; at != end; at = at.outer {
		at.give()
	}
}

// take waits for a place until ctx ends. A context that ended during the wait
// goes before a place that was handed over.
func (s *shared) take(ctx context.Context) bool {
	ready, waiter := s.queue(&s.starts)
	if ready == nil {
		return true
	}
	select {
	case <-ready:
		if ctx.Err() == nil {
			return true
		}
	case <-ctx.Done():
		s.mu.Lock()
		select {
		case <-ready: // handed over in the meantime
		default:
			s.starts.Remove(waiter)
			s.mu.Unlock()
			return false
		}
		s.mu.Unlock()
	}
	s.give()
	return false
}

// takeBack waits for a place before all who have not started.
func (s *shared) takeBack() {
	if ready, _ := s.queue(&s.back); ready != nil {
		<-ready
	}
}

// queue takes a free place and returns nil, or joins the line and returns the
// channel that is closed when a place has been handed over.
func (s *shared) queue(line *list.List) (chan struct{}, *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free > 0 {
		s.free--
		return nil, nil
	}
	ready := make(chan struct{})
	return ready, line.PushBack(ready)
}

// give hands a place to who waits longest, or makes it free.
func (s *shared) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range []*list.List{&s.back, &s.starts} {
		if first := line.Front(); first != nil {
			close(line.Remove(first).(chan struct{}))
			return
		}
	}
	s.free++
}
