// Package usage says what a model call uses: the tokens that a provider
// reported for it, normalised over providers, and an estimate of them before
// the call is made.
package usage

import "math"

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

// Total is Input + Output, saturating at math.MaxInt64.
func (u Usage) Total() int64 { return satAdd(u.Input, u.Output) }

// IsZero reports whether nothing is known: no part is above zero.
func (u Usage) IsZero() bool {
	return u.Input <= 0 && u.Output <= 0 && u.CachedInput <= 0 && u.CacheWrite <= 0 && u.Thoughts <= 0
}

// Has reports whether all of the given flags are set.
func (u Usage) Has(f Flags) bool { return u.Flags&f == f }

func satAdd(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
