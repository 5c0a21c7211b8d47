package promtest_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/internal/promtest"
)

func TestSeriesHaveTheirNamesLabelsAndValues(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "app_calls_total", ConstLabels: prometheus.Labels{"who": "me"}}, []string{"by"})
	open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "app_open"})
	wait := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "wait_seconds"})
	reg.MustRegister(calls, open, wait)
	calls.WithLabelValues("a").Add(2)
	calls.WithLabelValues("b").Inc()
	open.Set(-4)
	wait.Observe(1.5)
	wait.Observe(2)
	want := map[string]float64{
		"calls_total{by=a,who=me}": 2, "calls_total{by=b,who=me}": 1, "open{}": -4, "wait_seconds_count{}": 2, "wait_seconds_sum{}": 3.5,
	}
	if got := promtest.Series(t, reg, "app_"); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := promtest.Series(t, reg, "", "who")["app_calls_total{by=a}"]; got != 2 {
		t.Errorf("without a label: %v, want 2", got)
	}
}
