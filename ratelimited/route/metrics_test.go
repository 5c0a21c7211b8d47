package route_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/route"
)

// The metrics of a scripted run, to the last one.
func TestMetricsTellWhatHappened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		script := []error{nil, throttled(), overloaded(), badRequest(), notSent(), perDay()}
		a := &fakeLLM{play: func(_ context.Context, n int, yield yields) {
			if err := script[n-1]; err != nil {
				yield(nil, err)
				return
			}
			yield(final(1, 1), nil)
		}}
		opts := ratelimited.WithoutRetries()
		p := newPool(t, route.Config{Name: "chat", Registerer: reg}, via(t, "a", a, opts), at(1, via(t, "b", answers(0))), at(1, via(t, "c", answers(0))))
		for range script {
			_ = call(t.Context(), p)
		}
		got := gather(t, reg)
		want := map[string]float64{
			"calls_total{outcome=ok,route=a}":                  1,
			"calls_total{outcome=throttled,route=a}":           1,
			"calls_total{outcome=overloaded,route=a}":          1,
			"calls_total{outcome=failed,route=a}":              1,
			"calls_total{outcome=not_sent,route=a}":            1,
			"calls_total{outcome=quota_exhausted,route=a}":     1,
			"calls_total{outcome=ok,route=b}":                  2,
			"calls_total{outcome=ok,route=c}":                  2,
			"spills_total{from=a,reason=throttled,to=b}":       1,
			"spills_total{from=a,reason=overloaded,to=c}":      1,
			"spills_total{from=a,reason=not_sent,to=b}":        1,
			"spills_total{from=a,reason=quota_exhausted,to=c}": 1,
			"up{route=a}": 0, "up{route=b}": 1, "up{route=c}": 1,
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if got[key] != want[key] {
				t.Errorf("%s is %v, want %v", key, got[key], want[key])
			}
		}
		for key := range want {
			if _, ok := got[key]; !ok {
				t.Errorf("%s is missing", key)
			}
		}
	})
}
