package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrGoexit is the error of a branch whose function neither returned nor
// panicked but ended its goroutine with [runtime.Goexit].
var ErrGoexit = errors.New("the branch ended its goroutine (runtime.Goexit)")

// ErrQuorum is the cause ([context.Cause]) with which [Quorum] cancels the
// branches that are no longer needed: enough have succeeded, or too many have
// failed.
var ErrQuorum = errors.New("the quorum is decided")

// Error is the error of one branch.
type Error struct {
	// Index is the index of the branch's item.
	Index int
	// Err is what the function returned; or a [*PanicError], or [ErrGoexit]; or,
	// for a branch that never started, an error that matches the error of the
	// context and its cause.
	Err error
}

// Error names the branch by its index.
func (e *Error) Error() string { return "fanout: " + e.text() }

// text is the message without the package's name, which stands once in front of
// a chain of nested branches.
func (e *Error) text() string {
	if nested, ok := e.Err.(*Error); ok {
		return fmt.Sprintf("branch %d: %s", e.Index, nested.text())
	}
	return fmt.Sprintf("branch %d: %v", e.Index, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// PanicError is the error of a branch that panicked. Its message contains the
// value, as a crash of the program would.
type PanicError struct {
	// Value is the value that the branch panicked with.
	Value any
	// Stack is the branch's stack, as [runtime/debug.Stack] formats it, with the
	// place of the panic. It is not part of the message.
	Stack []byte
}

// Error is "panic: " and the value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, such as a [runtime.Error].
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Errors are the errors of several branches, in the order of their items.
type Errors []*Error

// shownErrors is how many errors the message of Errors spells out.
const shownErrors = 3

// Error gives the number of errors and spells out the first few.
func (e Errors) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "fanout: %d failed", len(e))
	for i, err := range e {
		if i == shownErrors {
			fmt.Fprintf(&b, "; and %d more", len(e)-i)
			break
		}
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + err.text())
	}
	return b.String()
}

// Unwrap returns the errors, so that [errors.Is] and [errors.As] look at each.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, err := range e {
		list[i] = err
	}
	return list
}

// QuorumError is the error of a [Quorum] that cannot be reached any more.
type QuorumError struct {
	// Need is how many branches had to succeed, Of how many there were, and
	// Succeeded how many did before it was decided.
	Need, Of, Succeeded int
	// Failed are the errors that decided it, in the order of the items. Those of
	// branches that were cancelled because of them are not among them.
	Failed Errors
}

// Error gives the numbers and the first few errors.
func (e *QuorumError) Error() string {
	return fmt.Sprintf("fanout: %d of %d branches succeeded, need %d: %s",
		e.Succeeded, e.Of, e.Need, strings.TrimPrefix(e.Failed.Error(), "fanout: "))
}

// Unwrap returns Failed, so that [errors.Is] and [errors.As] look at each.
func (e *QuorumError) Unwrap() error { return e.Failed }

// notStarted is the error of a branch whose context ended before its turn.
func notStarted(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("not started: %w", cause)
	}
	return fmt.Errorf("not started: %w: %w", err, cause)
}
