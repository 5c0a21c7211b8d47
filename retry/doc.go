// Package retry says what an error of a model call means and how long to wait
// before the call is tried again.
//
// # What an error means
//
// A 429 may mean "wait a few seconds", "come back tomorrow" or "pay first", and
// a budget of one's own that is spent looks much like a provider's. Repeating
// the call helps in the first case only. [Classify] tells them apart and returns
// a [Verdict]: a [Class], the wait that the provider asked for (the hint), and
// the limits that it named.
//
//	v := retry.Classify(err)
//	switch v.Class {
//	case retry.Throttled:      // not executed; wait, then again
//	case retry.QuotaExhausted: // not executed; seconds of waiting do not help
//	case retry.Overloaded:     // the provider is in trouble; again, within a Budget
//	case retry.NotSent:        // never left this machine; again, within a Budget
//	default:                   // Denied, NeverFits, NotRetryable: hand it on
//	}
//
// Errors of google.golang.org/genai and of the connection (DNS, dial, TLS) are
// understood as they come, wrapped or joined. For another SDK, put a
// [Classifier] into [Policy]; it is asked before the built-in rules, and
// [ClassOf] and [ParseRetryAfter] do most of its work. An error that says of
// itself that it is our own refusal (see [Classify]) is settled before anybody
// is asked, so that no layer takes a spent budget for a busy provider.
//
// # How long to wait
//
// [Policy.Delay] turns a verdict and the number of attempts made into a wait:
// exponential backoff with full jitter, never shorter than the hint, with some
// jitter on top of the hint so that a fleet that was refused together does not
// return together. It says no when the attempts are used up, when the class is
// not one to repeat, and when the hint is longer than anybody should sleep; the
// hint stays readable in the verdict.
//
//	wait, ok := policy.Delay(v, attempts)
//	if !ok || wait > untilDeadline {
//		return err // at once, not after a wait that cannot succeed
//	}
//
// This package never sleeps and never calls anything again: who owns the call
// also owns the loop. Two rules are the owner's: nothing is repeated once the
// first item of an answer has been delivered, and the context is looked at
// before the verdict, because an expired context can surface as almost any
// error. One layer retries; switch the retries of SDKs off, or attempts
// multiply.
//
// [Budget] bounds the retries of a whole process to a share of its calls, so
// that a provider in trouble is not given several times its normal load. It is
// meant for Overloaded and NotSent ([Class.UsesBudget]). A throttled call was
// not executed and waits for its turn, so it needs no budget.
//
// # Headers
//
// The error type of the genai SDK carries no response headers. [Transport], an
// [net/http.RoundTripper], writes a Retry-After or retry-after-ms header into
// the JSON body of the error response, where it survives. It also tells when a
// request has been written completely ([WithWritten]). For the other direction,
// [AfterSeconds] makes the Retry-After value of an answer of one's own.
package retry
