package main

import (
	"math"
	"testing"

	"github.com/headgate-go/headgate/bench/internal/burst"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A module that genai needs starts this goroutine when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// small is a catalogue of made-up results: two shapes, a gate, a peer that
// is throttled, and an oracle without results.
func small() catalogue {
	return catalogue{
		shapes: []burst.Shape{{Name: "herd", Title: "Thundering herd at a minute's edge"}, {Name: "hog", Title: `One "hog" <beside> ten small users`}},
		policies: []burst.Policy{
			{Name: "none", Title: "No gate", Settings: "Every call is sent at once, & once."},
			{Name: "headgate-fair", Title: "Headgate, fair order", Settings: "The profile of the window."},
			{Name: "oracle", Title: "Oracle", Settings: "Knows the future."},
		},
		windows: burst.Windows(),
		run:     play,
	}
}

// play makes up a result that depends on its arguments only.
func play(s burst.Shape, p burst.Policy, w burst.Window, seed uint64) (burst.Result, error) {
	r := burst.Result{Shape: s.Name, Policy: p.Name, Window: w.String(), Seed: seed}
	switch p.Name {
	case "oracle":
		r.Err = "nobody knows the best order of this shape"
	case "none":
		r.Metrics = burst.Metrics{Calls: 200, Completed: 140, Failed: 60, Attempts: 200, Throttled: 60, ThrottledPerAttempt: 0.3,
			Goodput: 0.7, Share: 0.7, Guard: 1, Wasted: 0.3, WaitP50: map[string]float64{"normal": 0}, WaitP99: map[string]float64{"normal": 0}, MaxUse: 1}
		r.Series = wave(120, 60, 60)
	default:
		r.Metrics = burst.Metrics{Calls: 200, Completed: 200, Attempts: 200, Goodput: 0.98, Share: 0.95, Guard: 0.968,
			Makespan: 104.5, LowerBound: 100, MakespanRatio: 1.045, QuotaBinds: true,
			WaitP50: map[string]float64{"batch": 30, "interactive": 2}, WaitP99: map[string]float64{"batch": 90, "interactive": 8},
			Jain: 0.995, Gap: 1.5, GapBound: 3, Idle: 0.002, MaxUse: 0.997}
		if s.Name == "hog" && w.String() == "bucket" {
			r.Metrics.Goodput = 0.9
		}
		r.Series = wave(105, 20, 0)
	}
	return r, nil
}

// wave is a series of so many seconds with a peak of calls in flight, and so
// many 429s at 61 s.
func wave(seconds int, peak float64, throttled int) []burst.Sample {
	var all []burst.Sample
	for i := 1; i <= seconds; i++ {
		part := float64(i) / float64(seconds)
		s := burst.Sample{At: float64(i), InFlight: int(peak * math.Sin(part*math.Pi)), Waiting: int(100 * (1 - part)), Use: math.Min(1, 2*part)}
		if i == 61 {
			s.Throttled = throttled
		}
		all = append(all, s)
	}
	return all
}

// smallReport is the report of all of small.
func smallReport(t *testing.T) *report {
	t.Helper()
	c := small()
	o := options{shapes: c.shapes, policies: c.policies, windows: c.windows, seed: 7}
	var results []burst.Result
	for _, cell := range o.cells() {
		r, err := c.run(cell.shape, cell.policy, cell.window, o.seed)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	return newReport(o, c, results)
}
