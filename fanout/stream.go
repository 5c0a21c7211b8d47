package fanout

import (
	"context"
	"errors"
	"iter"
)

// Stream returns the outcomes of calling fn for every item, at most width at a
// time, as they finish: pairs of the item's index and its [Outcome].
//
//	seq, err := fanout.Stream(ctx, 8, reviewers, review)
//	if err != nil {
//		return err
//	}
//	for i, o := range seq {
//		if o.Err != nil {
//			return o.Err // cancels the other branches, and waits for them
//		}
//		show(reviewers[i], o.Value)
//	}
//
// Nothing runs before the sequence is ranged, and each range is a run of its
// own. A range that is not ended early sees every item once; if ctx ends, the
// branches that it kept from starting are seen with an error that says so.
//
// A failed branch does not cancel the others: the loop decides. When it stops
// (break, return, panic), the branches that run are cancelled, no further one
// starts, and the loop ends when those that ran have returned.
//
// A slow loop holds the branches up: running branches and outcomes not yet seen
// are together never more than width. An outcome that waits to be seen holds no
// place in a shared width ([WithWidth]). In a branch of another fan-out the loop's
// body runs in that branch's place, which is lent only while the loop waits for
// the next outcome.
//
// A sequence that is pulled with [iter.Pull] keeps up to width goroutines until
// it is at its end or its stop function is called.
//
// A width below 1 or a nil function is an error.
func Stream[T, R any](ctx context.Context, width int, items []T, fn func(ctx context.Context, item T) (R, error)) (iter.Seq2[int, Outcome[R]], error) {
	if err := check(ctx, width, fn != nil); err != nil {
		return nil, err
	}
	return func(yield func(int, Outcome[R]) bool) {
		stream(ctx, width, len(items), func(ctx context.Context, i int) (R, error) {
			return fn(ctx, items[i])
		}, yield)
	}, nil
}

// errUnseen ends the goroutines of a stream that nobody ranges any more.
var errUnseen = errors.New("fanout: the loop over the stream has ended")

// finished is an outcome on its way to the loop.
type finished[R any] struct {
	index   int
	outcome Outcome[R]
}

// stream is one range over a Stream.
func stream[R any](ctx context.Context, width, n int, call func(ctx context.Context, i int) (R, error), yield func(int, Outcome[R]) bool) {
	if n == 0 {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	results := make(chan finished[R]) // unbuffered: who finishes waits to be seen
	ended := make(chan struct{})
	f := fan[R]{n: n, width: width, call: call,
		done: func(i int, o Outcome[R]) error {
			select {
			case results <- finished[R]{i, o}:
				return nil
			case <-ended:
				return errUnseen
			}
		}}
	f.start(ctx)
	defer func() { // also when the loop's body panics or ends its goroutine
		cancel(errUnseen)
		close(ended)
		_ = f.wait() // errUnseen at most
	}()
	for range n {
		r := next(results, f.scope.place)
		if !yield(r.index, r.outcome) {
			return
		}
	}
}

// next receives, and lends the place of the branch that it runs in while there
// is nothing to receive.
func next[R any](results <-chan finished[R], p *place) finished[R] {
	select {
	case r := <-results:
		return r
	default:
	}
	p.lend()
	defer p.restore()
	return <-results
}
