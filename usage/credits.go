package usage

import (
	"errors"
	"fmt"
)

// Weight is what one token counts for, in thousandths of a credit. The zero
// Weight is "not set", which is not the same as a weight of 0: tokens of weight
// 0 are free.
type Weight struct {
	thousandths int64
	set         bool
}

// Thousandths is the Weight of n thousandths of a credit a token; 1000 makes
// one token one credit.
func Thousandths(n int64) Weight { return Weight{n, true} }

// ParseWeight reads a weight in credits a token, such as "1", "0.25" or "4".
// It must not be negative and must have no more than three decimals.
func ParseWeight(credits string) (Weight, error) {
	n, err := parseDecimal(credits, 3)
	switch {
	case err == errFine:
		return Weight{}, fmt.Errorf("usage: weight %q has more than three decimals", clip(credits))
	case err != nil:
		return Weight{}, fmt.Errorf("usage: weight %q: %w", clip(credits), err)
	}
	return Thousandths(n), nil
}

// Thousandths is the weight, and whether it is set.
func (w Weight) Thousandths() (n int64, ok bool) { return w.thousandths, w.set }

// String gives the weight in credits a token, such as "0.25", or "unset".
func (w Weight) String() string {
	switch {
	case !w.set:
		return "unset"
	case w.thousandths < 0:
		return "-" + decimalString(-uint64(w.thousandths), 3, 0)
	}
	return decimalString(uint64(w.thousandths), 3, 0)
}

// Credits turns the usage of a call into credits, the unit in which plans and
// limits on people can be counted without showing anybody prices. One Credits
// is one version of the weights; a new version is a new value, and a charge is
// stored together with the Version that made it.
//
// Each token counts once, by the weight of the part that it belongs to. Input
// and Output must be set. CachedInput and CacheWrite weigh what Input weighs
// unless they are set, and Thoughts what Output weighs: what nobody thought of
// is not free.
//
// A call's credits are the sum over its parts, rounded up to a whole credit
// once per call. So a call whose weights are not all 0 never becomes free, and
// charging two usages apart costs at most one credit more than charging their
// sum.
//
// Credits is a plain value, and its methods are safe for concurrent use.
type Credits struct {
	// Version names this set of weights, for example "2026-11". It is not
	// interpreted.
	Version string
	// Input is the weight of input that was neither read from a cache nor
	// written to it. It must be set.
	Input Weight
	// CachedInput is the weight of input read from a cache. Defaults to Input.
	CachedInput Weight
	// CacheWrite is the weight of input written to a cache. Defaults to Input.
	CacheWrite Weight
	// Output is the weight of output without the thoughts. It must be set.
	Output Weight
	// Thoughts is the weight of thoughts. Defaults to Output.
	Thoughts Weight
}

// weights are the weights by part.
func (c *Credits) weights() [numParts]Weight {
	return [numParts]Weight{
		PartInput: c.Input, PartCachedInput: c.CachedInput, PartCacheWrite: c.CacheWrite,
		PartOutput: c.Output, PartThoughts: c.Thoughts,
	}
}

// Validate reports what is wrong with the weights: that there is no Version,
// that Input or Output is not set, or that a weight is negative. The error names
// the field and the value.
func (c Credits) Validate() error {
	if c.Version == "" {
		return errors.New("usage: Credits.Version is empty")
	}
	return c.check()
}

// check is Validate without the version.
func (c *Credits) check() error {
	for part, w := range c.weights() {
		part := Part(part)
		switch {
		case !w.set && part.substitute() == part:
			return fmt.Errorf("usage: Credits %q: weight of %v is not set", clip(c.Version), part)
		case w.thousandths < 0:
			return fmt.Errorf("usage: Credits %q: weight of %v is negative: %v", clip(c.Version), part, w)
		}
	}
	return nil
}

// Cost is the number of credits that u costs, rounded up once. It is never
// negative: an inconsistent usage is charged by its larger reading (see
// [Usage.Clamp]). It does not fall when a part grows. The error is that of
// weights which are not valid, or [ErrOverflow].
func (c Credits) Cost(u Usage) (int64, error) {
	parts, _, err := u.parts()
	if err != nil {
		return 0, err
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	weights, sum := c.weights(), wide{}
	for part, n := range parts {
		w := weights[part]
		if !w.set {
			w = weights[Part(part).substitute()]
		}
		if !sum.addProduct(n, w.thousandths) {
			return 0, ErrOverflow
		}
	}
	return sum.ceilDiv(1000)
}
