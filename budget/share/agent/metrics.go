package agent

import (
	"time"

	"github.com/headgate-go/headgate/budget/share"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of a Sharing, for all gates that join. A nil
// *metrics counts nothing.
type metrics struct {
	requests  *prometheus.CounterVec   // gate, result
	seconds   *prometheus.HistogramVec // gate
	replicas  *prometheus.GaugeVec     // gate
	answering *prometheus.GaugeVec     // gate
	fallback  *prometheus.GaugeVec     // gate
}

// gateMetrics are those of one gate.
type gateMetrics struct {
	answered, failed, stale       prometheus.Counter
	seconds                       prometheus.Observer
	replicas, answering, fallback prometheus.Gauge
}

// secondsBuckets reach from a store in the same rack to one that is hardly there.
var secondsBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "headgate", Subsystem: "share", Name: name, Help: help}, []string{"gate"})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "headgate", Subsystem: "share", Name: "requests_total",
			Help: "Requests to the store of a shared quota, by result.",
		}, []string{"gate", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "headgate", Subsystem: "share", Name: "request_seconds",
			Help: "Time of a request to the store of a shared quota.", Buckets: secondsBuckets,
		}, []string{"gate"}),
		replicas:  gauge("replicas", "Replicas that share the quota, as the store said last."),
		answering: gauge("store_up", "1 if the store of a shared quota answers, 0 if not."),
		fallback:  gauge("fallback", "1 if the gate goes on with its part of the quota, because the store does not answer."),
	}
	all := []prometheus.Collector{m.requests, m.seconds, m.replicas, m.answering, m.fallback}
	for i, c := range all {
		if err := r.Register(c); err != nil {
			for _, c := range all[:i] {
				r.Unregister(c)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) of(gate string) *gateMetrics {
	if m == nil {
		return nil
	}
	g := &gateMetrics{
		answered: m.requests.WithLabelValues(gate, "answered"), failed: m.requests.WithLabelValues(gate, "failed"),
		stale: m.requests.WithLabelValues(gate, "stale"), seconds: m.seconds.WithLabelValues(gate),
		replicas: m.replicas.WithLabelValues(gate), answering: m.answering.WithLabelValues(gate), fallback: m.fallback.WithLabelValues(gate),
	}
	g.answering.Set(1)
	return g
}

// exchanged counts a request.
func (g *gateMetrics) exchanged(took time.Duration, err error, reply share.Reply) {
	if g == nil {
		return
	}
	g.seconds.Observe(took.Seconds())
	switch {
	case err != nil:
		g.failed.Inc()
		return
	case reply.Stale:
		g.stale.Inc()
	default:
		g.answered.Inc()
	}
	g.replicas.Set(float64(reply.Replicas))
}

// trouble tells what is wrong.
func (g *gateMetrics) trouble(now trouble) {
	if g == nil {
		return
	}
	set := func(m prometheus.Gauge, on bool) {
		if on {
			m.Set(1)
		} else {
			m.Set(0)
		}
	}
	set(g.answering, now == fine || now == fenced)
	set(g.fallback, now == alone)
}
