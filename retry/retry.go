package retry

import (
	"strings"
	"time"
)

// Class is what an error means for the call that met it.
type Class uint8

const (
	// NotRetryable is any error that repeating the call would not mend: a bad
	// request, a refused key, a cancelled context, an unknown failure. It is
	// also any error after which the call may have been executed, and billed:
	// 500, 504, 408, a connection that broke.
	NotRetryable Class = iota
	// Throttled is a refusal for the moment: a per-minute limit, a shared pool
	// that is busy. The call was not executed.
	Throttled
	// QuotaExhausted is a refusal for long: a per-day quota, billing, credits
	// or a spend limit. Waiting seconds does not help.
	QuotaExhausted
	// Overloaded is the provider in trouble, for everybody: 503, 529.
	Overloaded
	// NotSent is a call that never reached the provider: DNS, dial, TLS.
	NotSent
	// Denied is our own refusal: a budget that is spent, a wait that would be
	// too long, a gate that is closed. It is never retried by us.
	Denied
	// NeverFits is our own refusal of a call that is larger than the whole
	// limit. It is never retried by anybody.
	NeverFits
)

var classNames = [...]string{
	NotRetryable:   "not_retryable",
	Throttled:      "throttled",
	QuotaExhausted: "quota_exhausted",
	Overloaded:     "overloaded",
	NotSent:        "not_sent",
	Denied:         "denied",
	NeverFits:      "never_fits",
}

// String returns the name of the class as logs and metrics show it, such as
// "quota_exhausted"; "unknown" for a value that is none of the constants.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Retryable reports whether the same call may succeed if it is repeated soon:
// Throttled, Overloaded and NotSent.
func (c Class) Retryable() bool {
	return c == Throttled || c == Overloaded || c == NotSent
}

// UsesBudget reports whether a retry after an error of this class is to be
// asked of a [Budget] first: Overloaded and NotSent. A throttled call was not
// executed and is merely put back in line, so it does not count as extra load.
func (c Class) UsesBudget() bool {
	return c == Overloaded || c == NotSent
}

// Resource is a set of provider limits that an error names.
type Resource uint8

const (
	// Requests is a limit on the number of requests.
	Requests Resource = 1 << iota
	// InputTokens is a limit on prompt tokens.
	InputTokens
	// OutputTokens is a limit on generated tokens.
	OutputTokens
	// TotalTokens is a limit on tokens without distinction.
	TotalTokens
	// Concurrency is a limit on requests in flight.
	Concurrency
)

var resourceNames = [...]string{"requests", "input_tokens", "output_tokens", "total_tokens", "concurrency"}

// String returns the names of the limits in the set, joined by "+", such as
// "requests+input_tokens"; "none" for the empty set. Bits that are none of the
// constants are left out.
func (r Resource) String() string {
	var names []string
	for i, name := range resourceNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "+")
}

// Verdict is what Classify makes of an error. The zero value means "not
// retryable".
type Verdict struct {
	// Class is what the error means.
	Class Class
	// Hint is how long the provider asked to wait; 0 where HasHint is false,
	// and it may be 0 where it is true ("now"). It is never negative, and not
	// bounded above: a hint of a month is a month here, and [Policy.Delay]
	// refuses to sleep it.
	Hint time.Duration
	// HasHint tells whether a usable hint was found.
	HasHint bool
	// Resources names the limits that were hit; 0 where the error names none.
	Resources Resource
	// PerDay tells that a per-day (or longer) limit is among those hit.
	PerDay bool
}
