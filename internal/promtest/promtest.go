// Package promtest reads Prometheus metrics in tests.
package promtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Series are the values of all series by name, without the prefix, and labels, without those
// that are left out: name{label=value,…}. A histogram has two, name_count and name_sum.
// Metrics that cannot be gathered fail the test without ending it, so that any goroutine may
// call it.
func Series(t testing.TB, g prometheus.Gatherer, prefix string, leftOut ...string) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Error(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), prefix)
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if !slices.Contains(leftOut, l.GetName()) {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			at := "{" + strings.Join(labels, ",") + "}"
			if h := m.Histogram; h != nil {
				all[name+"_count"+at], all[name+"_sum"+at] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			all[name+at] = m.Counter.GetValue() + m.Gauge.GetValue()
		}
	}
	return all
}
