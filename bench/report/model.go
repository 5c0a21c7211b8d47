package main

import (
	"math"
	"strings"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// report is what was run and what came out.
type report struct {
	shapes   []burst.Shape
	policies []burst.Policy
	windows  []burst.Window
	seed     uint64
	all      catalogue // of which these are a part
	results  []burst.Result
	byCell   map[[3]string]burst.Result
}

func newReport(o options, all catalogue, results []burst.Result) *report {
	r := &report{shapes: o.shapes, policies: o.policies, windows: o.windows, seed: o.seed, all: all, results: results,
		byCell: make(map[[3]string]burst.Result)}
	for _, res := range results {
		r.byCell[[3]string{res.Shape, res.Policy, res.Window}] = res
	}
	return r
}

// at returns the result of a cell.
func (r *report) at(s burst.Shape, p burst.Policy, w burst.Window) burst.Result {
	return r.byCell[[3]string{s.Name, p.Name, w.String()}]
}

// isHeadgate tells a way to use Headgate from what it is compared with.
func isHeadgate(p burst.Policy) bool { return strings.HasPrefix(p.Name, "headgate") }

// isPeer tells what people use today from Headgate and from the oracle, which
// nobody can use.
func isPeer(p burst.Policy) bool { return !isHeadgate(p) && p.Name != "oracle" }

// tie is the difference in share that is none.
const tie = 0.001

// bestPeer is the peer with the largest share of the fluid bound before a kind
// of window, or that with the fewest 429s of those with nearly the same share.
func (r *report) bestPeer(s burst.Shape, w burst.Window) (burst.Policy, burst.Result, bool) {
	var best burst.Policy
	var with burst.Result
	found := false
	for _, p := range r.policies {
		res := r.at(s, p, w)
		if !isPeer(p) || res.Err != "" {
			continue
		}
		ahead := res.Metrics.Share - with.Metrics.Share
		if !found || ahead > tie || ahead > -tie && res.Metrics.Throttled < with.Metrics.Throttled {
			best, with, found = p, res, true
		}
	}
	return best, with, found
}

// scale is what the panels of a shape before a kind of window have in common,
// so that they can be compared by eye.
type scale struct {
	seconds                           float64
	inFlight, waiting, throttled, use float64
}

// scaleOf takes in the samples of every policy. Nothing is 0: an empty panel
// needs a scale, too.
func (r *report) scaleOf(s burst.Shape, w burst.Window) scale {
	c := scale{seconds: 1, inFlight: 1, waiting: 1, throttled: 1, use: 1}
	for _, p := range r.policies {
		for _, x := range thin(r.at(s, p, w).Series) {
			c.seconds = max(c.seconds, x.At)
			c.inFlight = max(c.inFlight, float64(x.InFlight))
			c.waiting = max(c.waiting, float64(x.Waiting))
			c.throttled = max(c.throttled, float64(x.Throttled))
			c.use = max(c.use, x.Use)
		}
	}
	c.use = min(c.use*1.1, max(c.use, 1.1)) // room above the line of a full quota
	return c
}

// points is how many samples a panel of the page shows at most. It has about as
// many pixels.
const points = 160

// thin makes at most so many samples of a series, each of several that follow
// one another: the largest of what they show, so that no peak is lost, and the
// sum of the 429s.
func thin(series []burst.Sample) []burst.Sample {
	if len(series) <= points {
		return series
	}
	step := int(math.Ceil(float64(len(series)) / points))
	var out []burst.Sample
	for start := 0; start < len(series); start += step {
		group := series[start:min(start+step, len(series))]
		s := burst.Sample{At: group[len(group)-1].At}
		for _, x := range group {
			s.InFlight = max(s.InFlight, x.InFlight)
			s.Waiting = max(s.Waiting, x.Waiting)
			s.Use = max(s.Use, x.Use)
			s.Throttled += x.Throttled
		}
		out = append(out, s)
	}
	return out
}
