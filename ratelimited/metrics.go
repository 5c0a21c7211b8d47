package ratelimited

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gate's Prometheus metrics. Their labels come from bounded
// sets only: models and agent labels up to a cap and then "other", classes,
// outcomes, dimensions. A nil *metrics counts nothing.
type metrics struct {
	gate *Gate

	refusals  *prometheus.CounterVec // class, reason
	attempts  *prometheus.CounterVec // model, class, outcome
	throttles *prometheus.CounterVec // class, agent
	reserved  *prometheus.CounterVec // model
	spent     *prometheus.CounterVec // model, basis
	oddities  *prometheus.CounterVec
	lost      prometheus.Counter
}

// partyMetrics are the children of the metric vectors that most calls of a party
// need. A look-up hashes its labels, so they are looked up once, when they are
// first needed: a series that counts nothing is not made.
type partyMetrics struct {
	once    sync.Once
	waits   []waits                              // per class
	served  []atomic.Pointer[prometheus.Counter] // per class
	settles atomic.Pointer[settleMetrics]
}

// settleMetrics are the children of one model.
type settleMetrics struct {
	reserved, reported, estimated prometheus.Counter
}

func (m *metrics) of(p *party) *partyMetrics {
	p.metrics.once.Do(func() {
		n := len(m.gate.cfg.Classes)
		p.metrics.waits = make([]waits, n)
		p.metrics.served = make([]atomic.Pointer[prometheus.Counter], n)
	})
	return &p.metrics
}

// waitBuckets reach from "at once" to longer than a quota's window.
var waitBuckets = []float64{.001, .01, .1, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600}

// ratioBuckets lie around 1, an exact estimate.
var ratioBuckets = []float64{.1, .25, .5, .7, .8, .9, .95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4, 10}

func newMetrics(g *Gate) (*metrics, error) {
	constant := prometheus.Labels{"gate": g.cfg.Name}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "headgate", Name: name, Help: help, ConstLabels: constant}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	m := &metrics{
		gate:      g,
		refusals:  counter("refusals_total", "Calls that were not admitted, by reason.", "class", "reason"),
		attempts:  counter("attempts_total", "Attempts to send a call, by outcome.", "model", "class", "outcome"),
		throttles: counter("throttles_total", "Refusals of the provider for the moment (429).", "class", "agent"),
		reserved:  counter("reserved_tokens_total", "Tokens estimated for calls that have ended.", "model"),
		spent:     counter("settled_tokens_total", "Tokens that ended calls were settled at; basis tells who counted them.", "model", "basis"),
		oddities:  counter("usage_oddities_total", "Usage reports that did not add up; the larger reading was taken.", "kind"),
		lost:      prometheus.NewCounter(prometheus.CounterOpts(opts("settlements_lost_total", "Reservations that could not be settled and lapse by themselves."))),
	}
	all := []prometheus.Collector{m.refusals, m.attempts, m.throttles, m.reserved, m.spent, m.oddities, m.lost, newLevels(m, constant)}
	for i, c := range all {
		if err := g.cfg.Registerer.Register(c); err != nil {
			for _, c := range all[:i] {
				g.cfg.Registerer.Unregister(c)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) class(i uint8) string { return m.gate.cfg.Classes[i].Name }

func (m *metrics) admitted(p *party, class uint8, waited time.Duration) {
	if m == nil {
		return
	}
	w := &m.of(p).waits[class]
	if waited <= 0 { // most calls
		w.none.Add(1)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.some.observe(waitBuckets, waited.Seconds())
}

func (m *metrics) refused(class uint8, err error) {
	if m == nil {
		return
	}
	m.refusals.WithLabelValues(m.class(class), reasonOf(err)).Inc()
}

// reasonOf is the reason of a refusal, from a fixed list.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrNeverFits):
		return "never_fits"
	case errors.Is(err, ErrLineFull):
		return "line_full"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, ErrDiverted):
		return "diverted"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, ErrWait):
		return "max_wait"
	case errors.Is(err, budget.ErrDenied):
		return "budget"
	default:
		return "error" // of a budget's store
	}
}

// attempt counts the end of an attempt.
func (m *metrics) attempt(p *party, class uint8, outcome outcome) {
	if m == nil {
		return
	}
	if outcome != outcomeOK {
		m.attempts.WithLabelValues(p.model, m.class(class), outcome.String()).Inc()
		return
	}
	at := &m.of(p).served[class]
	served := at.Load()
	if served == nil {
		c := m.attempts.WithLabelValues(p.model, m.class(class), outcome.String())
		served = &c
		at.Store(served)
	}
	(*served).Inc()
}

func (m *metrics) throttled(p *party, class uint8, v retry.Verdict) {
	if m == nil || v.Class != retry.Throttled {
		return
	}
	m.throttles.WithLabelValues(m.class(class), p.agent).Inc()
}

func (m *metrics) model(p *party) *settleMetrics {
	at := &m.of(p).settles
	s := at.Load()
	if s == nil {
		s = &settleMetrics{
			reserved: m.reserved.WithLabelValues(p.model),
			reported: m.spent.WithLabelValues(p.model, "reported"), estimated: m.spent.WithLabelValues(p.model, "estimated"),
		}
		at.Store(s)
	}
	return s
}

// settled counts a call that ended with a bill for usage. It returns the ratio
// of what was reported to what was reserved, or 0 where there is none.
func (m *metrics) settled(p *party, reserved *usage.Usage, b *bill) (ratio float64) {
	if m == nil {
		return 0
	}
	s := m.model(p)
	s.reserved.Add(float64(reserved.Total()))
	total := float64(b.provider.Total())
	// A total that the provider did not divide is a report all the same.
	if b.provider.Has(usage.Estimated) && b.reported&usage.TotalOnly == 0 {
		s.estimated.Add(total)
	} else {
		s.reported.Add(total)
		if n := reserved.Total(); n > 0 {
			ratio = total / float64(n)
		}
	}
	if (b.provider.Flags|b.reported)&usage.Mismatch != 0 {
		m.oddities.WithLabelValues("mismatch").Inc()
	}
	if b.reported&usage.TotalOnly != 0 {
		m.oddities.WithLabelValues("total_only").Inc()
	}
	return ratio
}

// corrected counts usage that was reported after a call was counted as settled.
func (m *metrics) corrected(p *party, from, to usage.Usage) {
	if m == nil {
		return
	}
	m.model(p).reported.Add(float64(max(0, to.Total()-from.Total())))
}

// levels reads what a scrape needs from the gate, so that the path of a call
// does not keep gauges.
type levels struct {
	gate    *Gate
	metrics *metrics

	wait, hold, ratio              *prometheus.Desc
	slots, inUse, waiting, running *prometheus.Desc
	paused                         *prometheus.Desc
	level, limit, share, closed    *prometheus.Desc
}

func newLevels(m *metrics, constant prometheus.Labels) *levels {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_"+name, help, labels, constant)
	}
	return &levels{
		gate:    m.gate,
		metrics: m,
		wait:    desc("acquire_seconds", "Time from asking for a permit to its grant.", "class", "agent"),
		hold:    desc("slot_hold_seconds", "Time that a call held its slots."),
		ratio:   desc("estimate_ratio", "Reported tokens divided by estimated ones; above 1 the estimate was too low.", "model"),
		slots:   desc("slots_limit", "Slots in force."),
		inUse:   desc("slots_in_use", "Slots held by calls in flight.", "class"),
		waiting: desc("waiting_calls", "Calls in line.", "class"),
		running: desc("running_calls", "Calls in flight."),
		paused:  desc("paused", "1 while no call may start because the provider is down."),
		level:   desc("budget_level", "Units that could be taken now; negative while an overrun is repaid.", "dimension"),
		limit:   desc("budget_limit", "Units per window as published or found.", "dimension"),
		share:   desc("budget_share", "Part of the limit in force after cuts.", "dimension"),
		closed:  desc("budget_closed_seconds_total", "Time for which a hint of the provider closed the budget.", "dimension"),
	}
}

func (l *levels) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.wait, l.hold, l.ratio, l.slots, l.inUse, l.waiting, l.running, l.paused, l.level, l.limit, l.share, l.closed} {
		ch <- d
	}
}

func (l *levels) Collect(ch chan<- prometheus.Metric) {
	s := l.gate.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(l.slots, float64(s.Slots))
	gauge(l.running, float64(s.Running))
	paused := 0.0
	if !s.PausedUntil.IsZero() {
		paused = 1
	}
	gauge(l.paused, paused)
	for _, c := range s.Classes {
		gauge(l.inUse, float64(c.SlotsInUse), c.Name)
		gauge(l.waiting, float64(c.Waiting), c.Name)
	}
	for _, d := range s.Dimensions {
		gauge(l.level, float64(d.Level), d.Name)
		gauge(l.limit, float64(d.Limit), d.Name)
		gauge(l.share, d.Share, d.Name)
		ch <- prometheus.MustNewConstMetric(l.closed, prometheus.CounterValue, d.Closed.Seconds(), d.Name)
	}
	all := l.metrics.tallies()
	ch <- all.hold.metric(l.hold, waitBuckets)
	for model, t := range all.ratio {
		ch <- t.metric(l.ratio, ratioBuckets, model)
	}
	for at, t := range all.wait {
		ch <- t.metric(l.wait, waitBuckets, l.gate.cfg.Classes[at.class].Name, at.agent)
	}
}
