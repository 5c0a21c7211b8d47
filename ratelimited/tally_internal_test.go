package ratelimited

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"
)

// A tally is the histogram that package prometheus would have made of the same
// observations, in one piece or added up from several.
func TestATallyIsAPrometheusHistogram(t *testing.T) {
	t.Parallel()
	opts := prometheus.HistogramOpts{Name: "x", Buckets: waitBuckets}
	desc := prometheus.NewDesc("x", "", nil, nil)
	written := func(t *rapid.T, m prometheus.Metric) string {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Fatal(err)
		}
		d.Histogram.CreatedTimestamp = nil
		return d.Histogram.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		want := prometheus.NewHistogram(opts)
		var sum tally
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			var part tally
			for range rapid.IntRange(0, 20).Draw(t, "observations") {
				// Whole eighths have exact sums, and some bounds are among them.
				x := float64(rapid.IntRange(0, 8*700).Draw(t, "x")) / 8
				want.Observe(x)
				part.observe(waitBuckets, x)
			}
			sum.add(&part)
		}
		if got, want := written(t, sum.metric(desc, waitBuckets)), written(t, want); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
