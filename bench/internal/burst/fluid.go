package burst

import (
	"math"
	"slices"
	"time"
)

// Demand is what a call asks for, and when.
type Demand struct {
	At     time.Duration
	Tokens int64
}

// Bound is G*, the fluid bound on goodput, for a plain quota per minute that serves all
// the time and has no places: the most tokens of the calls, which are in order of time,
// that anybody can get let in before end. 0 is no limit of tokens, or of requests.
func Bound(w Window, tokensPerMinute, requestsPerMinute int64, calls []Demand, end time.Duration) float64 {
	tokens := supply{w, minute, float64(tokensPerMinute)}
	requests := supply{w, minute, float64(requestsPerMinute)}
	var demand, n float64
	least, leastRequests := math.Inf(1), math.Inf(1)
	for _, c := range calls {
		least = min(least, demand+tokens.between(c.At, end-1))
		leastRequests = min(leastRequests, n+requests.between(c.At, end-1))
		demand += float64(c.Tokens)
		n++
	}
	least = min(least, demand)
	if leastRequests >= n {
		return least
	}
	sizes := make([]int64, len(calls))
	for i, c := range calls {
		sizes[i] = c.Tokens
	}
	slices.Sort(sizes)
	var most float64
	for _, size := range slices.Backward(sizes) {
		part := min(leastRequests, 1)
		most += part * float64(size)
		if leastRequests -= part; leastRequests <= 0 {
			break
		}
	}
	return min(least, most)
}
