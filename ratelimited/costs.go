package ratelimited

import (
	"reflect"

	"github.com/headgate-go/headgate/usage"
)

// What a call costs in units of every limit of the core. The functions of the
// profile are the user's, so none of these is called under a lock.

// fewLimits is how many limits almost every provider has at most. A call clears
// room for these, and not for all that a core can hold.
const fewLimits = 4

// costs is room for the costs of a call, on its stack where there is enough.
type costs [fewLimits]int64

func (c *costs) of(g *Gate) []int64 {
	if n := len(g.owner); n <= fewLimits {
		return c[:n]
	}
	return manyCosts(len(g.owner))
}

func manyCosts(n int) []int64 { return make([]int64, n) }

// counter counts the units of one limit.
type counter struct {
	kind kind
	f    func(usage.Usage) int64
}

// kind tells the counting functions of this package, which every call would call
// several times, from others.
type kind uint8

const (
	byFunction kind = iota
	oneRequest
	inputTokens
	outputTokens
	totalTokens
)

func newCounter(f func(usage.Usage) int64) counter {
	// Two function values are one if they have the same code and bind nothing,
	// and functions of a package bind nothing.
	code := func(f func(usage.Usage) int64) uintptr { return reflect.ValueOf(f).Pointer() }
	c := counter{f: f}
	switch code(f) {
	case code(OneRequest):
		c.kind = oneRequest
	case code(InputTokens):
		c.kind = inputTokens
	case code(OutputTokens):
		c.kind = outputTokens
	case code(TotalTokens):
		c.kind = totalTokens
	}
	return c
}

// atAdmission reports whether the provider knows all of a call's units when it
// admits it. What it counts as an answer grows, or in a way that only the user's
// function knows, may still grow.
func (c *counter) atAdmission() bool { return c.kind == oneRequest || c.kind == inputTokens }

// of counts the units of a usage.
func (c *counter) of(u *usage.Usage) int64 {
	switch c.kind {
	case oneRequest:
		return 1
	case inputTokens:
		return max(0, u.Input)
	case outputTokens:
		return max(0, u.Output)
	case totalTokens:
		return max(0, u.Total())
	}
	return max(0, c.f(*u))
}

// admissionCosts turns an estimate into units.
func (g *Gate) admissionCosts(costs []int64, u *usage.Usage) {
	for i := range costs {
		costs[i] = g.count[i].of(u)
	}
}

// settledCosts turns actual usage into units.
func (g *Gate) settledCosts(costs []int64, u *usage.Usage) {
	for i := range costs {
		costs[i] = g.settle[i].of(u)
	}
}

// failedCosts is what the provider counts for a request that it refused or
// failed.
func (g *Gate) failedCosts(costs []int64, u usage.Usage) {
	for i, d := range g.owner {
		dim := &g.cfg.Profile.Dimensions[d]
		costs[i] = 0
		if dim.FailuresCount {
			costs[i] = max(0, dim.Count(u))
		}
	}
}

// keepLimit counts, in the dimensions that keep it, the limit of a call's output
// and not its estimate u. Costs that are higher stay where atLeast is set.
func (g *Gate) keepLimit(costs []int64, u usage.Usage, limit int64, atLeast bool) {
	if !g.keeps {
		return
	}
	for i, d := range g.owner {
		dim := &g.cfg.Profile.Dimensions[d]
		if !dim.KeepsLimit {
			continue
		}
		u.Output = max(limit, 0)
		cost := max(0, dim.Count(u))
		if atLeast {
			cost = max(cost, costs[i])
		}
		costs[i] = cost
	}
}
