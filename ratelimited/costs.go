package ratelimited

import "github.com/headgate-go/headgate/usage"

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

// admissionCosts turns an estimate into units.
func (g *Gate) admissionCosts(costs []int64, u usage.Usage) {
	for i, count := range g.count {
		costs[i] = max(0, count(u))
	}
}

// settledCosts turns actual usage into units.
func (g *Gate) settledCosts(costs []int64, u usage.Usage) {
	for i, settle := range g.settle {
		costs[i] = max(0, settle(u))
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
