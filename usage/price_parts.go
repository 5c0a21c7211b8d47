package usage

import "fmt"

// Part names one of the disjoint parts of a call's usage. Every token belongs
// to exactly one of them, so that none is charged twice and none is left out:
// cached tokens are not charged as input once more, and thoughts are charged.
type Part uint8

// The parts, in the order in which they are charged.
const (
	// PartInput is input that was neither read from a cache nor written to it.
	PartInput Part = iota
	// PartCachedInput is input that was read from the provider's cache.
	PartCachedInput
	// PartCacheWrite is input that was written to the provider's cache.
	PartCacheWrite
	// PartOutput is output without the thoughts.
	PartOutput
	// PartThoughts is output that the model spent on thinking.
	PartThoughts

	numParts = 5
)

var partNames = [numParts]string{"input", "cached_input", "cache_write", "output", "thoughts"}

// String is the part's name as price lists write it, such as "cached_input".
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return fmt.Sprintf("Part(%d)", uint8(p))
}

// parts divides a usage into disjoint parts, none of them negative, after
// [Usage.Clamp]: what a report says inconsistently is charged by its larger
// reading. It also returns the whole of the input.
func (u Usage) parts() (p [numParts]int64, input int64, err error) {
	u = u.Clamp()
	p = [numParts]int64{
		PartInput:       u.Input - u.CachedInput - u.CacheWrite,
		PartCachedInput: u.CachedInput,
		PartCacheWrite:  u.CacheWrite,
		PartOutput:      u.Output - u.Thoughts,
		PartThoughts:    u.Thoughts,
	}
	if p[PartInput] < 0 { // the two parts leave int64, and Clamp stopped at its end
		return p, 0, ErrOverflow
	}
	return p, u.Input, nil
}

// substitute is the part whose price or weight stands in for that of a part
// which has none of its own: the input's for both kinds of cached input, the
// output's for thoughts. For the other two it is the part itself.
func (p Part) substitute() Part {
	switch p {
	case PartCachedInput, PartCacheWrite:
		return PartInput
	case PartThoughts:
		return PartOutput
	}
	return p
}
