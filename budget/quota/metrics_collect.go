package quota

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// downtime is how long something was down.
type downtime struct {
	mu sync.Mutex
	// mu guards all that follows.
	is     bool
	since  time.Time // while it is
	before time.Duration
}

func (d *downtime) set(is bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.is {
		d.before += now.Sub(d.since)
	}
	d.is, d.since = is, now
}

// at is whether it is down, and for how long it was until now.
func (d *downtime) at(now time.Time) (is bool, lasted time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lasted = d.before; d.is {
		lasted += now.Sub(d.since)
	}
	return d.is, lasted
}

// gauges are read when they are collected.
type gauges struct {
	outage, down, paused, late, age, subjects, reservations, events, queued, panics *prometheus.Desc
}

func (g *gauges) init(constant prometheus.Labels) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_quota_"+name, help, labels, constant)
	}
	g.outage = desc("outage", "1 while the ledger cannot be reached.")
	g.down = desc("outage_seconds_total", "Seconds in which the ledger could not be reached.")
	g.paused = desc("paused", "1 while the ledger is not asked but by one operation at a time, because many have failed.")
	g.late = desc("late_operations", "Operations that wait for the ledger to come back.")
	g.age = desc("catalog_age_seconds", "Age of the prices.")
	g.subjects = desc("ledger_subjects", "Subjects that have counters in the ledger.")
	g.reservations = desc("ledger_reservations", "Reservations that the ledger knows.", "state")
	g.events = desc("events_total", "Events for listeners, by what became of them.", "result")
	g.queued = desc("events_queued", "Events that wait for listeners.")
	g.panics = desc("listener_panics_total", "How often listeners panicked.")
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.vectors {
		c.Describe(ch)
	}
	g := &m.collect
	for _, d := range []*prometheus.Desc{g.outage, g.down, g.paused, g.late, g.age, g.subjects, g.reservations, g.events, g.queued, g.panics} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.vectors {
		c.Collect(ch)
	}
	g := &m.collect
	put := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	is := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	out, lasted := m.out.at(time.Now())
	put(g.outage, prometheus.GaugeValue, is(out))
	put(g.down, prometheus.CounterValue, lasted.Seconds())
	put(g.paused, prometheus.GaugeValue, is(m.paused.Load()))
	put(g.late, prometheus.GaugeValue, float64(m.late.Load()))
	if c := m.cfg.Catalog; c != nil {
		put(g.age, prometheus.GaugeValue, c.Age(time.Now()).Seconds())
	}
	if l := m.cfg.Memory; l != nil {
		s := l.Stats()
		put(g.subjects, prometheus.GaugeValue, float64(s.Subjects))
		put(g.reservations, prometheus.GaugeValue, float64(s.Open), "open")
		put(g.reservations, prometheus.GaugeValue, float64(s.Remembered), "ended")
	}
	if m.cfg.Bus != nil {
		s := m.cfg.Bus.Stats()
		put(g.events, prometheus.CounterValue, float64(s.Delivered), "delivered")
		put(g.events, prometheus.CounterValue, float64(s.Dropped), "dropped")
		put(g.queued, prometheus.GaugeValue, float64(s.Queued))
		put(g.panics, prometheus.CounterValue, float64(s.Panics))
	}
}
