package ratelimited

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors that a caller may test for with errors.Is. The errors that are
// returned carry more: see [WaitError] and [NeverFitsError].
var (
	// ErrWait is matched by every refusal of a gate to let a call wait, or to
	// let it wait any longer.
	ErrWait = errors.New("ratelimited: call was not admitted in time")
	// ErrLineFull is matched when too many calls are waiting already.
	ErrLineFull = errors.New("ratelimited: too many calls are waiting")
	// ErrClosed is matched when the gate was closed.
	ErrClosed = errors.New("ratelimited: gate is closed")
	// ErrDiverted is matched when a call has left the line to go elsewhere; see
	// [Diversion].
	ErrDiverted = errors.New("ratelimited: call goes elsewhere")
	// ErrNeverFits is matched when a call is larger than a whole limit.
	ErrNeverFits = errors.New("ratelimited: call can never fit")
)

// WaitError says that a call was not admitted: it would have had to wait, or
// has waited, longer than allowed, or the line was full, or the gate is closed.
// Nothing was sent and nothing is held. It matches [ErrWait], and besides
// [ErrLineFull], [ErrClosed], [ErrDiverted], context.DeadlineExceeded or
// context.Canceled where these are the reason. retry.Classify takes it for an own refusal: it is never
// retried by Headgate.
type WaitError struct {
	// Err is the reason: ErrLineFull, ErrClosed, ErrDiverted, a context's error, or
	// nil if MaxWait was the bound.
	Err error
	// Expected is a forecast of how long the call would wait if it arrived now,
	// or the least that it would have to wait if that is known and more; 0 if
	// nothing is known.
	Expected time.Duration
	// Limit names the limit that the call waited for, as far as that is known:
	// a dimension of the profile, or "slots".
	Limit string
	// Throttled is the provider's refusal that sent the call back into the
	// line, or nil.
	Throttled error
	// Waited is how long ago the call entered the line for the first time.
	Waited time.Duration
}

// Error tells how long the call waited, for what, and when to try again. It
// never holds text of the call, nor that of Throttled.
func (e *WaitError) Error() string {
	s := "ratelimited: call was not admitted"
	if e.Err != nil && e.Err != ErrLineFull && e.Err != ErrClosed && e.Err != ErrDiverted {
		s += " before its context ended"
	}
	s += fmt.Sprintf(" after %v", e.Waited.Round(time.Millisecond))
	if e.Limit != "" {
		s += fmt.Sprintf(" (limit %q)", e.Limit)
	}
	if e.Expected > 0 {
		s += fmt.Sprintf(", expected wait %v", e.Expected.Round(time.Millisecond))
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Throttled != nil {
		s += "; the provider had refused it before" // its text may quote the prompt
	}
	return s
}

// Is matches [ErrWait].
func (e *WaitError) Is(target error) bool { return target == ErrWait }

// Unwrap returns Err and Throttled.
func (e *WaitError) Unwrap() []error {
	var errs []error
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	if e.Throttled != nil {
		errs = append(errs, e.Throttled)
	}
	return errs
}

// Denied tells retry layers that this is an own refusal, not the provider's.
func (e *WaitError) Denied() bool { return true }

// RetryAfter is how long to wait before another try; 0 if that is not known.
// Format it for an HTTP header with retry.AfterSeconds.
func (e *WaitError) RetryAfter() time.Duration { return e.Expected }

// NeverFitsError says that a call needs more than a limit has in a whole
// window. Waiting does not help and nothing was sent. It matches
// [ErrNeverFits].
type NeverFitsError struct {
	// Limit names the dimension of the profile.
	Limit string
	// Max is the largest cost that the limit admits; Requested is what the call
	// needs, both in the limit's units.
	Max, Requested int64
}

// Error names the limit and both numbers.
func (e *NeverFitsError) Error() string {
	return fmt.Sprintf("ratelimited: call can never fit: it needs %d of limit %q, which admits at most %d", e.Requested, e.Limit, e.Max)
}

// Is matches [ErrNeverFits].
func (e *NeverFitsError) Is(target error) bool { return target == ErrNeverFits }

// NeverFits tells retry layers that waiting does not help.
func (e *NeverFitsError) NeverFits() bool { return true }

// contextError is the reason why ctx ended: its cause where it has a special
// one, joined with the plain error so that both can be matched.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err || errors.Is(cause, err) {
		if cause != nil {
			return cause
		}
		return err
	}
	return errors.Join(err, cause)
}
