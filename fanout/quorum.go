package fanout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// Quorum calls fn for every item, at most width at a time, until need of them
// have succeeded, and returns the outcomes of all items, in their order. What is
// no longer needed is cancelled with the cause [ErrQuorum], or not started.
//
// If so many fail that need cannot be reached any more, the rest is cancelled
// too, and the error is a [*QuorumError].
//
// Quorum waits until the branches that it cancelled have returned. The provider
// charges for a call that was sent, whether or not its answer was needed;
// waiting means that the gate has settled a cancelled call for what it used by
// the time that Quorum returns, and that its outcome is known: one that succeeded
// in spite of the cancel keeps its value, so there may be more than need values.
// A branch that ignores its context delays the return.
//
// A width below 1, a nil function, or a need below 1 or above the number of
// items is an error, and fn is not called. Otherwise it is like [MapAll].
func Quorum[T, R any](ctx context.Context, width, need int, items []T, fn func(ctx context.Context, item T) (R, error)) ([]Outcome[R], error) {
	if err := check(ctx, width, fn != nil); err != nil {
		return nil, err
	}
	n := len(items)
	if need < 1 || need > n {
		return nil, fmt.Errorf("fanout: need is %d, must lie between 1 and the number of items, %d", need, n)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make([]Outcome[R], n)
	v := vote{need: need, of: n}
	f := fan[R]{n: n, width: width,
		call: func(ctx context.Context, i int) (R, error) { return fn(ctx, items[i]) },
		done: func(i int, o Outcome[R]) error {
			outcomes[i] = o
			if v.count(o.Err) {
				cancel(ErrQuorum)
			}
			return nil
		}}
	_ = f.run(ctx) // done returns none
	return outcomes, v.err()
}

// vote counts outcomes until it is decided.
type vote struct {
	need, of int

	mu        sync.Mutex
	succeeded int    // guarded by mu
	failed    Errors // guarded by mu
}

// count takes one outcome and reports whether it is decided.
func (v *vote) count(err error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.decided() {
		return true // what comes after the decision changes nothing
	}
	if failed, ok := err.(*Error); ok {
		v.failed = append(v.failed, failed)
	} else {
		v.succeeded++
	}
	return v.decided()
}

// reached and decided are for callers that hold mu.
func (v *vote) reached() bool { return v.succeeded >= v.need }
func (v *vote) decided() bool { return v.reached() || len(v.failed) > v.of-v.need }

// err is the decision, once all branches have returned.
func (v *vote) err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reached() {
		return nil
	}
	slices.SortFunc(v.failed, func(a, b *Error) int { return cmp.Compare(a.Index, b.Index) })
	return &QuorumError{Need: v.need, Of: v.of, Succeeded: v.succeeded, Failed: v.failed}
}
