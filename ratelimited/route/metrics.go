package route

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the pool's Prometheus metrics. A nil *metrics counts nothing.
type metrics struct {
	calls  *prometheus.CounterVec // route, outcome
	spills *prometheus.CounterVec // from, to, reason
	names  []string
	// served are the children of calls that almost every attempt needs, by route. A
	// look-up hashes its labels, so they are kept once they were needed.
	served []atomic.Pointer[prometheus.Counter]
}

func newMetrics(cfg *Config, t *table, names []string) (*metrics, error) {
	if cfg.Registerer == nil {
		return nil, nil
	}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "headgate", Subsystem: "route", Name: name, Help: help, ConstLabels: prometheus.Labels{"pool": cfg.Name}}
	}
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts(opts("calls_total",
			"Attempts to have a route serve a call, by outcome; ok is one that began to answer.")), []string{"route", "outcome"}),
		spills: prometheus.NewCounterVec(prometheus.CounterOpts(opts("spills_total",
			"Calls that went on from one route to another, by reason.")), []string{"from", "to", "reason"}),
		names:  names,
		served: make([]atomic.Pointer[prometheus.Counter], len(names)),
	}
	up := &upness{t, names, prometheus.NewDesc("headgate_route_up",
		"0 while a route is left out because its calls fail.", []string{"route"}, prometheus.Labels{"pool": cfg.Name})}
	all := []prometheus.Collector{m.calls, m.spills, up}
	for i, c := range all {
		if err := cfg.Registerer.Register(c); err != nil {
			for _, c := range all[:i] {
				cfg.Registerer.Unregister(c)
			}
			return nil, err
		}
	}
	return m, nil
}

// attempt counts what came of an attempt.
func (m *metrics) attempt(route int, o outcome) {
	if m == nil {
		return
	}
	if o != outcomeOK {
		m.calls.WithLabelValues(m.names[route], o.String()).Inc()
		return
	}
	served := m.served[route].Load()
	if served == nil {
		c := m.calls.WithLabelValues(m.names[route], o.String())
		served = &c
		m.served[route].Store(served)
	}
	(*served).Inc()
}

func (m *metrics) spill(from, to int, reason string) {
	if m != nil {
		m.spills.WithLabelValues(m.names[from], m.names[to], reason).Inc()
	}
}

// upness reads from the table which routes are left out.
type upness struct {
	table *table
	names []string
	desc  *prometheus.Desc
}

func (u *upness) Describe(ch chan<- *prometheus.Desc) { ch <- u.desc }

func (u *upness) Collect(ch chan<- prometheus.Metric) {
	for i, name := range u.names {
		up := 1.0
		if u.table.isOut(i) {
			up = 0
		}
		ch <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, up, name)
	}
}
