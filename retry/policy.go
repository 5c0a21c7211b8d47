package retry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Defaults of [Policy].
const (
	// DefaultMaxAttempts is how often a call is tried in all: Google's
	// "Handling Overload" (Site Reliability Engineering, chapter 21) and the AWS
	// SDKs stop at 3 as well.
	DefaultMaxAttempts = 3
	// DefaultBase is the upper bound of the wait after the first failure.
	DefaultBase = 500 * time.Millisecond
	// DefaultCap is the upper bound of every wait that nobody asked for.
	DefaultCap = 30 * time.Second
	// DefaultMaxHint is the longest hint that is slept. It covers every limit
	// per minute.
	DefaultMaxHint = time.Minute
)

// leastHintedWait is the shortest wait after a hint, unless Base is shorter: a
// hint of 0 must not become a hot loop.
const leastHintedWait = 100 * time.Millisecond

// Policy says which errors are worth another attempt, how many there are, and
// how long to wait before each. The zero value, and a nil *Policy, have the
// defaults below. A Policy is configuration only: no call changes it, and it is
// safe for concurrent use as long as its fields are not changed.
type Policy struct {
	// MaxAttempts is how often a call is tried in all, the first time
	// included; 1 means that nothing is retried. Defaults to
	// DefaultMaxAttempts.
	MaxAttempts int

	// Base is the upper bound of the random wait after the first failure; it
	// doubles with each further one. Defaults to DefaultBase.
	Base time.Duration

	// Cap bounds the random part of a wait, but not a hint. Defaults to
	// DefaultCap.
	Cap time.Duration

	// MaxHint is the longest hint that is slept. A longer one ends the call at
	// once: a shorter sleep would only spend an attempt on a window that is
	// still closed. Defaults to DefaultMaxHint.
	MaxHint time.Duration

	// Classifiers are asked in order, before the built-in rules; the first that
	// knows the error decides. Our own refusals are settled before any of them
	// is asked. Defaults to none.
	Classifiers []Classifier
}

// Validate returns an error that names the first field with an unusable value,
// and the value; nil if there is none. Zero values are usable. Methods of a
// Policy that Validate refuses read the default in place of a negative value and
// skip a nil classifier.
func (p *Policy) Validate() error {
	if p == nil {
		return nil
	}
	switch {
	case p.MaxAttempts < 0:
		return fmt.Errorf("retry: MaxAttempts is %d; want at least 1, or 0 for the default of %d", p.MaxAttempts, DefaultMaxAttempts)
	case p.Base < 0:
		return fmt.Errorf("retry: Base is %v; want a positive duration, or 0 for the default of %v", p.Base, DefaultBase)
	case p.Cap < 0:
		return fmt.Errorf("retry: Cap is %v; want a positive duration, or 0 for the default of %v", p.Cap, DefaultCap)
	case p.MaxHint < 0:
		return fmt.Errorf("retry: MaxHint is %v; want a positive duration, or 0 for the default of %v", p.MaxHint, DefaultMaxHint)
	case p.Cap > 0 && p.Base > p.Cap:
		return fmt.Errorf("retry: Base is %v, which is more than Cap, %v", p.Base, p.Cap)
	}
	for i, c := range p.Classifiers {
		if c == nil {
			return fmt.Errorf("retry: Classifiers[%d] is nil", i)
		}
	}
	return nil
}

// Classify is the function [Classify] with p.Classifiers in front of the
// built-in rules, but behind our own refusals, which nobody may reinterpret. A
// verdict of a classifier is made consistent: a negative hint is no hint, and a
// class that is none of the constants is NotRetryable.
func (p *Policy) Classify(err error) Verdict {
	if v, ok := ownRefusal(err); ok {
		return v
	}
	if p != nil && err != nil {
		for _, classify := range p.Classifiers {
			if classify == nil {
				continue
			}
			if v, ok := classify(err); ok {
				return v.consistent()
			}
		}
	}
	return builtin(err)
}

// consistent is v with the promises of Verdict's fields kept.
func (v Verdict) consistent() Verdict {
	if v.Class > NeverFits {
		v.Class = NotRetryable
	}
	if v.Hint < 0 || !v.HasHint {
		v.Hint, v.HasHint = 0, false
	}
	return v
}

// Delay returns how long to wait before the next attempt, and false if there is
// to be none. attempt is the number of attempts made so far, the failed one
// included: 1 after the first failure; less than 1 counts as 1.
//
// There is none when the verdict's class is not [Class.Retryable], when attempt
// has reached MaxAttempts, and when the hint is longer than MaxHint. Whether the
// wait fits into the caller's deadline is for the caller to see: a wait that
// does not should not be begun.
//
// Without a hint the wait is uniform over
//
//	[0, min(Cap, Base·2ⁿ)), n = attempt − 1
//
// that is exponential backoff with full jitter (M. Brooker, "Exponential
// Backoff And Jitter", AWS Architecture Blog). With a hint it is
//
//	max(hint + u, the same), u uniform over [0, hint/10)
//
// so it is never shorter than the hint, and callers that were refused together
// with the same hint come back spread over a tenth of it. For this a hint below
// 100 ms (or below Base, if that is less) counts as that, so that a hint of 0 is
// a short, spread wait and not a hot loop.
func (p *Policy) Delay(v Verdict, attempt int) (time.Duration, bool) {
	if p == nil {
		p = &Policy{}
	}
	if !v.Class.Retryable() || attempt >= orDefault(p.MaxAttempts, DefaultMaxAttempts) {
		return 0, false
	}
	base := orDefault(p.Base, DefaultBase)
	wait := fullJitter(base, orDefault(p.Cap, DefaultCap), attempt-1)
	if v.HasHint && v.Hint >= 0 {
		if v.Hint > orDefault(p.MaxHint, DefaultMaxHint) {
			return 0, false
		}
		hinted := max(v.Hint, min(leastHintedWait, base))
		if spread := hinted / 10; spread > 0 {
			hinted += min(rand.N(spread), math.MaxInt64-hinted)
		}
		wait = max(wait, hinted)
	}
	return wait, true
}

// Backoff returns how long to wait after so many failures in a row where there
// is no hint and no bound on attempts: uniform over [0, min(Cap, Base·2ⁿ)), with
// n = failures − 1; less than 1 counts as 1.
func (p *Policy) Backoff(failures int) time.Duration {
	if p == nil {
		p = &Policy{}
	}
	return fullJitter(orDefault(p.Base, DefaultBase), orDefault(p.Cap, DefaultCap), max(failures, 1)-1)
}

// orDefault is value, or def where value is not set (or not usable).
func orDefault[T int | time.Duration](value, def T) T {
	if value > 0 {
		return value
	}
	return def
}

// fullJitter is a random duration, uniform over [0, min(limit, base·2ⁿ)).
//
// It is the (n+1)-th interval of an ExponentialBackOff. That type spreads an
// interval i evenly over i·(1 ± RandomizationFactor); with a factor of 1 this is
// [0, 2i], so an interval of half the bound gives full jitter. One less before
// halving keeps the bound itself out.
func fullJitter(base, limit time.Duration, n int) time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval((min(base, limit)-1)/2),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval((limit-1)/2),
		backoff.WithRandomizationFactor(1),
		backoff.WithMaxElapsedTime(0),
	)
	// After 63 doublings every interval has reached any limit.
	for range min(n, 63) {
		b.NextBackOff()
	}
	return b.NextBackOff()
}
