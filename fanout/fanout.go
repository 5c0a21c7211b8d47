package fanout

import "context"

// Outcome is what became of one branch: a value or an error.
type Outcome[R any] struct {
	// Value is what the function returned; the zero value if Err is not nil.
	Value R
	// Err is nil or an [*Error].
	Err error
}

// ForEach calls fn for every item, at most width at a time, and returns the
// first error: an [*Error]. That error also cancels the context of the branches
// that still run, with itself as the cause, and no further branch starts.
// ForEach returns when all that started have returned.
//
// If ctx ends, branches that run are told by their context and no further one
// starts; if one was left, the error says so and matches the context's error. A
// width below 1 or a nil function is an error, and fn is not called.
//
// The items must not change while ForEach runs. ForEach is safe for concurrent
// use, and fn may itself fan out.
func ForEach[T any](ctx context.Context, width int, items []T, fn func(ctx context.Context, item T) error) error {
	if err := check(ctx, width, fn != nil); err != nil {
		return err
	}
	f := fan[struct{}]{n: len(items), width: width, done: firstError[struct{}],
		call: func(ctx context.Context, i int) (struct{}, error) {
			return struct{}{}, fn(ctx, items[i])
		}}
	return f.run(ctx)
}

// Map is [ForEach] with results: it returns what fn made of each item, in the
// order of the items, or nil and the first error.
func Map[T, R any](ctx context.Context, width int, items []T, fn func(ctx context.Context, item T) (R, error)) ([]R, error) {
	if err := check(ctx, width, fn != nil); err != nil {
		return nil, err
	}
	results := make([]R, len(items))
	f := fan[R]{n: len(items), width: width,
		call: func(ctx context.Context, i int) (R, error) { return fn(ctx, items[i]) },
		done: func(i int, o Outcome[R]) error {
			results[i] = o.Value
			return o.Err
		}}
	if err := f.run(ctx); err != nil {
		return nil, err
	}
	return results, nil
}

// ForEachAll calls fn for every item, at most width at a time, whatever happens
// to the others, and returns the errors of those that failed as [Errors], or nil
// if none did.
//
// If ctx ends, the branches that have not started yet do not start, and each of
// them has an error that says so. A width below 1 or a nil function is an error
// that is not Errors, and fn is not called. Otherwise it is like [ForEach].
func ForEachAll[T any](ctx context.Context, width int, items []T, fn func(ctx context.Context, item T) error) error {
	if err := check(ctx, width, fn != nil); err != nil {
		return err
	}
	outcomes := all(ctx, width, len(items), func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, fn(ctx, items[i])
	})
	var failed Errors
	for i := range outcomes {
		if err, ok := outcomes[i].Err.(*Error); ok {
			failed = append(failed, err)
		}
	}
	if failed == nil {
		return nil
	}
	return failed
}

// MapAll is [ForEachAll] with results: it returns the outcome of every item, in
// the order of the items. Failed branches are outcomes and not an error of
// MapAll, which is for a width below 1 or a nil function alone; that of a ctx
// that ended is found in the outcomes of the branches that it kept from
// starting.
func MapAll[T, R any](ctx context.Context, width int, items []T, fn func(ctx context.Context, item T) (R, error)) ([]Outcome[R], error) {
	if err := check(ctx, width, fn != nil); err != nil {
		return nil, err
	}
	return all(ctx, width, len(items), func(ctx context.Context, i int) (R, error) {
		return fn(ctx, items[i])
	}), nil
}

// all runs n branches and records each.
func all[R any](ctx context.Context, width, n int, call func(ctx context.Context, i int) (R, error)) []Outcome[R] {
	outcomes := make([]Outcome[R], n)
	f := fan[R]{n: n, width: width, call: call,
		done: func(i int, o Outcome[R]) error {
			outcomes[i] = o
			return nil
		}}
	_ = f.run(ctx) // done returns none
	return outcomes
}
