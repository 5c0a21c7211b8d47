package fanout

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// fan is one fan-out while it runs. Each of its goroutines takes the next index,
// waits for a place in the shared width if there is one, calls, and hands the
// outcome on, until there is no index left.
type fan[R any] struct {
	n     int
	width int
	// call is a branch; it may panic or end its goroutine.
	call func(ctx context.Context, i int) (R, error)
	// done is told the outcome of each index once, when its place is free again.
	// An error from it ends the fan-out. Goroutines call it concurrently.
	done func(i int, o Outcome[R]) error

	ctx   context.Context // ends with the caller's, or when done returns an error
	scope scope
	group *errgroup.Group
	next  atomic.Int64 // the first index that nobody has taken
}

// start starts the goroutines. It does not wait.
func (f *fan[R]) start(ctx context.Context) {
	f.scope = scopeOf(ctx)
	f.group, f.ctx = errgroup.WithContext(ctx)
	for range f.goroutines() {
		f.group.Go(f.work)
	}
}

// goroutines is how many can be of use. One is enough to tell n branches that
// they do not start.
func (f *fan[R]) goroutines() int {
	if f.ctx.Err() != nil {
		return min(1, f.n)
	}
	g := min(f.width, f.n)
	for s := f.scope.shared; s != nil; s = s.outer {
		g = min(g, s.size)
	}
	return g
}

// wait waits for the goroutines, while the branch that calls it lends its place,
// and returns the first error of done.
func (f *fan[R]) wait() error {
	f.scope.place.lend()
	defer f.scope.place.restore()
	return f.group.Wait()
}

// run is start and wait.
func (f *fan[R]) run(ctx context.Context) error {
	if f.n == 0 {
		return nil
	}
	f.start(ctx)
	return f.wait()
}

// work is one goroutine.
func (f *fan[R]) work() error {
	i, calling := 0, false
	defer func() {
		if calling { // the branch ends this goroutine; another takes over
			f.group.Go(func() error {
				if err := f.done(i, Outcome[R]{Err: &Error{Index: i, Err: ErrGoexit}}); err != nil {
					return err
				}
				return f.work()
			})
		}
	}()
	for {
		i = int(f.next.Add(1) - 1)
		if i >= f.n {
			return nil
		}
		calling = true
		o := f.branch(i)
		calling = false
		if err := f.done(i, o); err != nil {
			return err
		}
	}
}

// branch runs branch i in a place of its own.
func (f *fan[R]) branch(i int) Outcome[R] {
	ctx := f.ctx
	if ctx.Err() != nil {
		return Outcome[R]{Err: &Error{Index: i, Err: notStarted(ctx)}}
	}
	if shared := f.scope.shared; shared != nil {
		if !shared.enter(ctx) {
			return Outcome[R]{Err: &Error{Index: i, Err: notStarted(ctx)}}
		}
		p := newPlace(shared)
		defer p.leave()
		ctx = context.WithValue(ctx, scopeKey{}, scope{shared: shared, place: p})
	}
	v, err := f.recovered(ctx, i)
	if err != nil {
		return Outcome[R]{Err: &Error{Index: i, Err: err}}
	}
	return Outcome[R]{Value: v}
}

// recovered is call with a panic made an error.
func (f *fan[R]) recovered(ctx context.Context, i int) (v R, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return f.call(ctx, i)
}

// firstError is the done of a fan-out that its first error ends.
func firstError[R any](_ int, o Outcome[R]) error { return o.Err }

// check returns an error that names the argument that cannot be used.
func check(ctx context.Context, width int, hasFunc bool) error {
	switch {
	case ctx == nil:
		return errors.New("fanout: ctx is nil")
	case width < 1:
		return fmt.Errorf("fanout: width is %d, must be at least 1", width)
	case !hasFunc:
		return errors.New("fanout: fn is nil")
	}
	return nil
}
