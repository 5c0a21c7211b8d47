// Package usage says what a model call uses: the tokens that a provider
// reported for it, normalised over providers, an estimate of them before the
// call is made, and what they are worth in credits and in money.
//
// A call has three moments. Before it, an [Estimator] says what the request
// will probably use, so that the tokens can be reserved. While it runs, each
// report of the provider becomes a [Usage] ([FromGenAI]) and is merged into
// the earlier ones with [Usage.Max], because streamed reports are running
// totals. After it, the merged Usage is what is settled; a [Catalog] of prices
// and weights of [Credits] turn it into what a customer is charged, and a
// [History] learns from it how the next estimates must be corrected.
//
// Nothing here does I/O or reads the clock, and all but a Catalog and a History
// are pure functions of their arguments. All of it is safe for concurrent use as
// long as nobody changes the request while it is being estimated. Prompt text
// is measured, never stored, logged or put into an error.
package usage

import (
	"math"
	"strconv"
)

// Usage is what one model call used, or is expected to use, in tokens.
//
// The parts are normalised, so that the same fields mean the same thing for
// every provider: Input holds every prompt token (cached ones and tool-use
// prompts inside), Output every generated token (thoughts inside). CachedInput
// and CacheWrite are parts of Input, Thoughts is a part of Output; they are
// never added to it again.
//
// The zero value means "nothing is known": a provider that reports zeros only
// has not reported. Usage is a plain value; copies are independent.
type Usage struct {
	// Input is the number of prompt tokens, in total.
	Input int64
	// CachedInput is the part of Input that was read from the provider's cache.
	CachedInput int64
	// CacheWrite is the part of Input that was written to the provider's cache.
	CacheWrite int64
	// Output is the number of generated tokens, in total.
	Output int64
	// Thoughts is the part of Output that the model spent on thinking.
	Thoughts int64
	// Flags tell how far the numbers can be trusted.
	Flags Flags
}

// Flags tell how far the numbers of a Usage can be trusted. The zero value is
// a consistent report.
type Flags uint8

const (
	// Estimated marks numbers that no provider reported.
	Estimated Flags = 1 << iota
	// TotalOnly marks a report that gave a total but no parts. The total then
	// stands in Output, which is the dearer part; see [Usage.Split].
	TotalOnly
	// Mismatch marks a report whose parts disagree with each other or with its
	// total, or that held a negative number. The larger reading was taken.
	Mismatch
)

// Total is Input + Output, saturating at the ends of int64.
func (u Usage) Total() int64 { return satAdd(u.Input, u.Output) }

// IsZero reports whether nothing is known: no part is above zero. Flags do not
// count; a report of nothing but negative numbers is zero and flagged
// [Mismatch].
func (u Usage) IsZero() bool {
	return u.Input <= 0 && u.Output <= 0 && u.CachedInput <= 0 && u.CacheWrite <= 0 && u.Thoughts <= 0
}

// Has reports whether all of the given flags are set.
func (u Usage) Has(f Flags) bool { return u.Flags&f == f }

// Max merges two reports about the same call: each field is the larger of the
// two. This is how streamed reports become the usage of the call, since every
// chunk carries a running total: a sum would count the prompt once per chunk,
// the first report lacks most of the output, and the last may be missing, empty
// or lower than an earlier one.
//
// Flags are united, with one exception: a real report (not zero, and without
// [Estimated]) on either side clears Estimated, because the result then rests
// on something that a provider said. To drop what was estimated altogether,
// merge the reports among themselves and fall back to the estimate only while
// the result [Usage.IsZero].
//
// Max is commutative, associative and idempotent, and the zero Usage is
// neutral for numbers that are not negative. It does not mend inconsistent
// parts; see [Usage.Clamp].
func (u Usage) Max(v Usage) Usage {
	flags := u.Flags | v.Flags
	if u.real() || v.real() {
		flags &^= Estimated
	}
	return Usage{
		Input:       max(u.Input, v.Input),
		CachedInput: max(u.CachedInput, v.CachedInput),
		CacheWrite:  max(u.CacheWrite, v.CacheWrite),
		Output:      max(u.Output, v.Output),
		Thoughts:    max(u.Thoughts, v.Thoughts),
		Flags:       flags,
	}
}

// real reports whether u is something that a provider said.
func (u Usage) real() bool { return u.Flags&Estimated == 0 && !u.IsZero() }

// Clamp returns u with the invariants of a Usage restored, always in the
// direction of the larger reading: negative numbers become 0, and a whole that
// is smaller than its parts (CachedInput + CacheWrite of Input, Thoughts of
// Output) is raised to them. What had to be mended is flagged [Mismatch]; a
// consistent Usage comes back unchanged. Sums saturate at math.MaxInt64.
func (u Usage) Clamp() Usage {
	if u.Input|u.CachedInput|u.CacheWrite|u.Output|u.Thoughts < 0 {
		u = Usage{
			Input: max(u.Input, 0), CachedInput: max(u.CachedInput, 0), CacheWrite: max(u.CacheWrite, 0),
			Output: max(u.Output, 0), Thoughts: max(u.Thoughts, 0), Flags: u.Flags | Mismatch,
		}
	}
	if parts := satAdd(u.CachedInput, u.CacheWrite); parts > u.Input {
		u.Input, u.Flags = parts, u.Flags|Mismatch
	}
	if u.Thoughts > u.Output {
		u.Output, u.Flags = u.Thoughts, u.Flags|Mismatch
	}
	return u
}

// Split divides a [TotalOnly] usage with the help of an estimate of the same
// call: the estimated input, but no more than the total, becomes Input, and
// the rest stays in Output, so that the total is unchanged. The provider did
// not report this division, which is therefore flagged [Estimated] instead of
// TotalOnly.
//
// Other usages are returned unchanged. So is a TotalOnly usage that has an
// Input, which comes from merging it with a report that had parts: its
// Output may be too large, but which of the two is right cannot be told.
func (u Usage) Split(est Usage) Usage {
	if !u.Has(TotalOnly) || u.Input > 0 {
		return u
	}
	input := min(max(est.Input, 0), max(u.Output-max(u.Thoughts, 0), 0))
	u.Input = input
	u.Output -= input
	u.Flags = u.Flags&^TotalOnly | Estimated
	return u
}

// String gives the numbers in one line for logs, for example
// "input=1050 cached=800 output=500 thoughts=400 total=1550 mismatch". Parts
// that are 0 and flags that are not set are left out.
func (u Usage) String() string {
	b := make([]byte, 0, 96)
	add := func(name string, n int64) {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(append(b, name...), '=')
		b = strconv.AppendInt(b, n, 10)
	}
	addPart := func(name string, n int64) {
		if n != 0 {
			add(name, n)
		}
	}
	add("input", u.Input)
	addPart("cached", u.CachedInput)
	addPart("cache_write", u.CacheWrite)
	add("output", u.Output)
	addPart("thoughts", u.Thoughts)
	add("total", u.Total())
	if u.Flags != 0 {
		b = append(append(b, ' '), u.Flags.String()...)
	}
	return string(b)
}

// String names the flags that are set, joined by commas, in the order in which
// they are declared: "estimated", "total_only", "mismatch". No flag is "".
func (f Flags) String() string {
	var b []byte
	for i, name := range [...]string{"estimated", "total_only", "mismatch"} {
		if f&(1<<i) == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(b, name...)
	}
	return string(b)
}

// satAdd is a + b, stopping at the ends of int64.
func satAdd(a, b int64) int64 {
	switch {
	case a > 0 && b > math.MaxInt64-a:
		return math.MaxInt64
	case a < 0 && b < math.MinInt64-a:
		return math.MinInt64
	}
	return a + b
}

// satMul is a × b for numbers that are not negative, stopping at
// math.MaxInt64.
func satMul(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}
