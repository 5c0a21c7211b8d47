package retry

import (
	"context"
	"reflect"

	"google.golang.org/genai"
)

// Classifier gives a verdict on errors that it knows, and false on all others.
// It must not panic on any error, must look through wrapping by itself
// ([errors.As], [errors.AsType]), and must be safe for concurrent use.
type Classifier func(error) (Verdict, bool)

// Classify says what an error of a model call means. It looks through wrapping
// and through [errors.Join], and asks in this order:
//
//  1. Our own refusals. An error anywhere in the tree that has a method
//     NeverFits() bool which answers true makes the verdict NeverFits;
//     otherwise one with Denied() bool that answers true makes it Denied. This
//     wins over everything else that the tree holds: a denial that wraps a
//     provider's 429 stays a denial.
//  2. The caller's context: [context.Canceled] and [context.DeadlineExceeded]
//     are NotRetryable, however they are wrapped.
//  3. An error anywhere in the tree that has a method RetryVerdict() Verdict:
//     an adapter of another SDK knows what its errors mean. The outermost one
//     is asked.
//  4. [genai.APIError], by value or by pointer, whether it came as a response
//     or as an event in a stream. See below.
//  5. The connection: an error of name resolution, of dialling, of a proxy's
//     connect or of the TLS handshake is NotSent. An error in reading or
//     writing after that is NotRetryable, because the provider may have
//     executed the call.
//
// Anything else, nil included, is NotRetryable.
//
// An API error is judged by its code, and by its status where the code is no
// HTTP error code:
//
//	402                      QuotaExhausted
//	429, RESOURCE_EXHAUSTED  Throttled, or QuotaExhausted as below
//	503, 529, UNAVAILABLE    Overloaded
//	all others               NotRetryable
//
// A 5xx, or an error without a code, whose text says "overloaded" is Overloaded.
// 500, 502, 504 and 408 are among the others: the request may have been
// executed, and a repeated generation is billed again.
//
// A 429 becomes QuotaExhausted when one of the violations that it names is of a
// limit per day or longer, when a limit that it names is 0 (the model is not
// part of that tier), or when it says that prepaid credits are used up or that
// a spending cap is reached. If limits per minute and per day are named
// together, the verdict is QuotaExhausted with PerDay, and the hint, which then
// belongs to the limit per minute, stays readable.
//
// The hint is google.rpc.RetryInfo's retryDelay, exact to the nanosecond; the
// longest one if there are several. A delay that only the message text mentions
// is not taken for a hint, because texts are not an interface.
//
// A dial that ran into the dialer's own time limit is NotSent, although
// errors.Is finds [context.DeadlineExceeded] in it: package net reports its own
// limits and the caller's in the same way. Look at the context before the
// verdict.
//
// Classify keeps no state and is safe for concurrent use.
func Classify(err error) Verdict {
	if v, ok := ownRefusal(err); ok {
		return v
	}
	return builtin(err)
}

// builtin is Classify for an error that is no refusal of our own.
func builtin(err error) Verdict {
	if endedByContext(err) {
		return Verdict{}
	}
	if v, ok := toldBy(err); ok {
		return v
	}
	if e, ok := apiErrorIn(err); ok {
		return apiVerdict(e)
	}
	if notSent(err) {
		return Verdict{Class: NotSent}
	}
	return Verdict{}
}

// ownRefusal finds an error in the tree that calls itself a refusal of ours.
func ownRefusal(err error) (Verdict, bool) {
	var denied, neverFits bool
	walk(err, func(err error) bool {
		if e, ok := err.(interface{ NeverFits() bool }); ok && e.NeverFits() {
			neverFits = true
		}
		if e, ok := err.(interface{ Denied() bool }); ok && e.Denied() {
			denied = true
		}
		return !neverFits
	})
	switch {
	case neverFits:
		return Verdict{Class: NeverFits}, true
	case denied:
		return Verdict{Class: Denied}, true
	}
	return Verdict{}, false
}

// toldBy is the verdict of the first error in the tree that gives one itself.
func toldBy(err error) (v Verdict, ok bool) {
	walk(err, func(err error) bool {
		if e, is := err.(interface{ RetryVerdict() Verdict }); is && !ok {
			v, ok = e.RetryVerdict().consistent(), true
		}
		return !ok
	})
	return v, ok
}

// apiErrorIn finds the first API error in the tree.
func apiErrorIn(err error) (found genai.APIError, ok bool) {
	walk(err, func(err error) bool {
		if ok {
			return false
		}
		switch e := err.(type) {
		case genai.APIError:
			found, ok = e, true
		case *genai.APIError:
			found, ok = *e, true
		}
		return !ok
	})
	return found, ok
}

// endedByContext reports whether a context's end is among the causes of err.
//
// It differs from errors.Is in one point. Package net answers "is it
// context.DeadlineExceeded" with yes for every time limit of a dial or a
// lookup, its own included. So inside of those only the context's error itself
// counts. It is what net/http returns when the caller's deadline passes during
// a dial, because it dials on a context of its own.
func endedByContext(err error) bool {
	ended := false
	inDial := func(err error) bool {
		ended = ended || isItself(err, context.Canceled) || err == context.DeadlineExceeded
		return !ended
	}
	walk(err, func(err error) bool {
		if connecting(err) {
			walk(err, inDial)
			return false
		}
		ended = ended || isItself(err, context.Canceled) || isItself(err, context.DeadlineExceeded)
		return !ended
	})
	return ended
}

// isItself reports whether err is target or says so, without looking at what it
// wraps.
func isItself(err, target error) bool {
	if err == target {
		return true
	}
	e, ok := err.(interface{ Is(error) bool })
	return ok && e.Is(target)
}

// walk visits err and everything that it wraps, an error before its causes and
// in the order in which errors.Is visits them. Where visit returns false, the
// causes of that error are left out. Unlike errors.Is, it stops at a nil pointer
// that is dressed up as an error, instead of calling its methods.
func walk(err error, visit func(error) bool) {
	for err != nil && !isNilPointer(err) && visit(err) {
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, cause := range e.Unwrap() {
				walk(cause, visit)
			}
			return
		default:
			return
		}
	}
}

func isNilPointer(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
