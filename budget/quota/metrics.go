package quota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// MaxMetricLabels is how many values a label has whose values come from calls: model
// names, names of tools, of limits and of plans. Whatever comes later counts as
// "other".
const MaxMetricLabels = 64

// labelOther and labelNone stand for one value too many, and for none.
const (
	labelOther = "other"
	labelNone  = "none"
)

// MetricsConfig is what [Metrics] are made of. The zero value is ready to use.
type MetricsConfig struct {
	// Bus, Catalog and Memory are looked at when the metrics are collected. Those that
	// are nil have no metrics.
	Bus     *Bus
	Catalog *usage.Catalog
	Memory  *Memory
	// ConstLabels are put on all metrics, to tell several enforcers of a program
	// apart. Never somebody's id.
	ConstLabels prometheus.Labels
	// Models are the model names that are told apart; all others count as "other".
	// nil tells apart the first [MaxMetricLabels] that are called, which is for
	// programs that choose the models themselves: where users may name one, they
	// choose the labels.
	Models []string
	// Plans are the plans that are told apart; all others count as "other". It is for
	// programs whose [LimitResolver] is their own; [Limits.Plans] are those of a fixed
	// set. nil tells apart the first [MaxMetricLabels] that come, which is for programs
	// that choose the plans themselves. With fixed [Limits] a plan that they do not have
	// is none.
	Plans []string
}

// Metrics are the Prometheus metrics of an [Enforcer]. They are a
// [prometheus.Collector]: register them, and give their [Metrics.Hooks] to the
// enforcer's [Config].
//
//	headgate_quota_decisions_total{stage,outcome,scope,plan}    checks, by what came of them
//	headgate_quota_denials_total{stage,reason,limit,unit,mode}  denials; mode is enforce or observe
//	headgate_quota_wait_seconds{plan}                           waits of calls that passed
//	headgate_quota_calls_total{kind,outcome}                    calls and tools that have ended
//	headgate_quota_charged_tokens_total{model,tool,basis}       basis is reported or estimated
//	headgate_quota_charged_credits_total{model,tool}
//	headgate_quota_charged_dollars_total{model,tool}
//	headgate_quota_thresholds_total{limit,scope,unit,percent}   subjects that have reached a part of a limit, once a window
//	headgate_quota_estimate_ratio{model}                        reported ÷ estimated tokens
//	headgate_quota_outage                                       1 while the ledger cannot be reached
//	headgate_quota_outages_total
//	headgate_quota_outage_seconds_total                         how long it could not
//	headgate_quota_paused                                       1 while it is not asked but by one operation at a time
//	headgate_quota_fail_open_total{stage}                       what passed without the ledger
//	headgate_quota_lapsed_total                                 holds that expired while still needed
//	headgate_quota_late_operations                              what waits for the ledger to come back
//	headgate_quota_told_late_total                              of these, what it was told in the end
//	headgate_quota_lost_operations_total                        what the ledger was never told
//	headgate_quota_catalog_age_seconds                          of the prices
//	headgate_quota_ledger_subjects                              of a [Memory]
//	headgate_quota_ledger_reservations{state}                   open or ended
//	headgate_quota_events_total{result}                         delivered or dropped
//	headgate_quota_events_queued
//	headgate_quota_listener_panics_total
//
// How many series there are does not depend on how many subjects there are: no label
// is anybody's id, or the text of an error. Reasons, stages, outcomes, scopes and
// units are fixed sets; models, tools, limits, percents and plans have at most
// [MaxMetricLabels] values each and then "other". "none" is what has no such thing,
// or a plan that fixed [Limits] do not know. An observed denial counts as a decision of
// its own for every limit that would have denied, besides the one of the check, and a
// request that [Middleware] turns away as unidentified is no check at all: leave the
// outcomes observed and unidentified out of shares. What a provider reports once a call
// was booked is added to what was charged if it is more, and not taken back if it is
// less.
//
// Who uses most is for the log; see [TopUsers]. Metrics are safe for concurrent use.
type Metrics struct {
	cfg    MetricsConfig
	models map[string]bool // nil for the first ones
	plans  map[string]bool // nil for the first ones

	names struct{ model, tool, limit, plan, scope, percent labelSet }

	decisions, denials, calls, reached *prometheus.CounterVec
	tokens, credits, dollars, failOpen *prometheus.CounterVec
	waits, ratios                      *prometheus.HistogramVec
	outages, lapsed, told, lost        prometheus.Counter
	byDecision                         sync.Map // decisionKey → decisionSeries
	byBooking                          sync.Map // bookingKey → *bookingSeries
	out                                downtime
	paused                             atomic.Bool
	late                               atomic.Int64
	collect                            gauges
	vectors                            []prometheus.Collector
}

// waitBuckets reach from "at once" to longer than anybody should wait in the middle
// of an answer.
var waitBuckets = []float64{.001, .01, .05, .1, .25, .5, 1, 2, 5, 10, 30}

// ratioBuckets lie around 1, an exact estimate.
var ratioBuckets = []float64{.1, .25, .5, .7, .8, .9, 1, 1.1, 1.25, 1.5, 2, 4, 10}

// ownLabels are the labels of the metrics themselves.
var ownLabels = []string{
	"stage", "outcome", "scope", "plan", "reason", "limit", "unit", "mode", "kind", "model", "tool", "basis", "percent", "state", "result", "le",
}

// NewMetrics makes metrics. The error names the field that is wrong.
func NewMetrics(cfg MetricsConfig) (*Metrics, error) {
	for name, value := range cfg.ConstLabels {
		if !labelName(name) || slices.Contains(ownLabels, name) {
			return nil, fmt.Errorf("quota: MetricsConfig.ConstLabels has the name %.40q, which is none of a label, or one that is taken", name)
		}
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("quota: MetricsConfig.ConstLabels[%q] is %.40q, which is not UTF-8", name, value)
		}
	}
	models, err := closedSet("Models", cfg.Models)
	if err != nil {
		return nil, err
	}
	plans, err := closedSet("Plans", cfg.Plans)
	if err != nil {
		return nil, err
	}
	m := &Metrics{cfg: cfg, models: models, plans: plans}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "headgate", Subsystem: "quota", Name: name, Help: help, ConstLabels: cfg.ConstLabels}
	}
	add := func(c prometheus.Collector) { m.vectors = append(m.vectors, c) }
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
		add(c)
		return c
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
		add(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "headgate", Subsystem: "quota", Name: name, Help: help,
			ConstLabels: cfg.ConstLabels, Buckets: buckets,
		}, []string{label})
		add(h)
		return h
	}
	m.decisions = counters("decisions_total", "Checks of turns and calls, by what came of them.", "stage", "outcome", "scope", "plan")
	m.denials = counters("denials_total", "Denials, and what observed limits would have denied.", "stage", "reason", "limit", "unit", "mode")
	m.waits = histogram("wait_seconds", "How long calls that passed waited for rolling limits.", waitBuckets, "plan")
	m.calls = counters("calls_total", "Model calls and uses of paid tools that have ended, by what was charged.", "kind", "outcome")
	m.tokens = counters("charged_tokens_total", "Tokens charged; basis tells who counted them.", "model", "tool", "basis")
	m.credits = counters("charged_credits_total", "Credits charged, where credits are limited.", "model", "tool")
	m.dollars = counters("charged_dollars_total", "Money charged in US dollars, where money is limited.", "model", "tool")
	m.reached = counters("thresholds_total", "Subjects that have reached a part of a limit, once for each of its windows.", "limit", "scope", "unit", "percent")
	m.ratios = histogram("estimate_ratio", "Reported tokens divided by estimated ones; above 1 the estimate was too low.", ratioBuckets, "model")
	m.failOpen = counters("fail_open_total", "Checks that passed without the ledger, which could not be reached.", "stage")
	m.outages = counter("outages_total", "How often the ledger could not be reached any more.")
	m.lapsed = counter("lapsed_total", "Leases and holds that had expired in the ledger while they were still needed.")
	m.told = counter("told_late_total", "Operations that the ledger was told late, because it could not be reached before.")
	m.lost = counter("lost_operations_total", "Operations that the ledger was never told.")
	m.collect.init(cfg.ConstLabels)
	for _, s := range []Stage{Admission, MidTurn} { // alerts need a 0 to begin with
		m.failOpen.WithLabelValues(s.String())
	}
	return m, nil
}

// closedSet are the names of a field, the only values of a label; nil if there is none.
func closedSet(field string, names []string) (map[string]bool, error) {
	if len(names) > MaxMetricLabels {
		return nil, fmt.Errorf("quota: MetricsConfig.%s has %d names, above %d", field, len(names), MaxMetricLabels)
	}
	if names == nil {
		return nil, nil
	}
	set := make(map[string]bool, len(names))
	for i, name := range names {
		if name == "" || !utf8.ValidString(name) {
			return nil, fmt.Errorf("quota: MetricsConfig.%s[%d] is %q, which is no name", field, i, name)
		}
		set[name] = true
	}
	return set, nil
}

// labelName reports whether a label may have the name, by Prometheus's data model.
func labelName(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && !strings.HasPrefix(s, "__")
}

// Hooks are what an [Enforcer] calls; see [Config]. To do more where something
// happens, call them from hooks of your own.
func (m *Metrics) Hooks() Hooks {
	return Hooks{
		Decided: m.decided,
		Booked:  m.booked,
		Reached: m.thresholds,
		Outage:  m.outage,
		Paused:  m.paused.Store,
		Lapsed:  func(n int) { m.lapsed.Add(float64(max(n, 0))) },
		Queued:  func(n int) { m.late.Store(int64(n)) },
		Told:    m.told.Inc,
		Lost:    m.lost.Inc,
	}
}

// decisionKey are the labels of a decision, and decisionSeries its series. A look-up
// in a vector hashes every label, so the path of a call looks up the key instead.
type decisionKey struct {
	stage       Stage
	outcome     Outcome
	scope, plan string
}

type decisionSeries struct {
	count prometheus.Counter
	wait  prometheus.Observer // nil for what did not pass, and for turns
}

func (m *Metrics) decided(d Decision) {
	k := decisionKey{d.Stage, d.Outcome, m.names.scope.of(string(d.Scope)), m.plan(d.Plan)}
	found, ok := m.byDecision.Load(k)
	if !ok {
		s := decisionSeries{count: m.decisions.WithLabelValues(k.stage.String(), string(k.outcome), k.scope, k.plan)}
		if d.Stage == MidTurn && d.Outcome != OutcomeDenied && d.Outcome != OutcomeObserved {
			s.wait = m.waits.WithLabelValues(k.plan)
		}
		found, _ = m.byDecision.LoadOrStore(k, s)
	}
	s := found.(decisionSeries)
	s.count.Inc()
	if s.wait != nil {
		s.wait.Observe(d.Wait.Seconds())
	}
	switch d.Outcome {
	case OutcomeDenied, OutcomeObserved:
		m.denied(&d)
	case OutcomeUnchecked:
		m.failOpen.WithLabelValues(d.Stage.String()).Inc()
	}
}

func (m *Metrics) denied(d *Decision) {
	unit, mode := labelNone, Enforce
	if d.Limit != "" || d.Reason == ReasonTurnCalls || d.Reason == ReasonTurnCost {
		unit = d.Unit.String()
	}
	if d.Outcome == OutcomeObserved {
		mode = Observe
	}
	m.denials.WithLabelValues(d.Stage.String(), string(d.Reason), m.names.limit.of(d.Limit), unit, mode.String()).Inc()
}

// bookingKey are the labels of a booking, and bookingSeries its series; those that
// are seldom needed are nil until then.
type bookingKey struct {
	kind        string
	outcome     CallOutcome
	model, tool string
}

type bookingSeries struct {
	calls, tokens    prometheus.Counter
	ratio            prometheus.Observer
	credits, dollars atomic.Pointer[prometheus.Counter]
}

func (m *Metrics) booked(b Booking) {
	k := bookingKey{kind: "call", outcome: CallCharged, model: labelNone, tool: labelNone}
	if b.Tool {
		k.kind, k.tool = "tool", m.names.tool.of(b.Agent)
	} else {
		k.model = m.model(b.Model)
	}
	switch {
	case b.Released:
		k.outcome = CallReleased
	case b.Guessed:
		k.outcome = CallEstimated
	}
	found, ok := m.byBooking.Load(k)
	if !ok {
		found, _ = m.byBooking.LoadOrStore(k, m.newBooking(k))
	}
	s := found.(*bookingSeries)
	if !b.Corrected {
		s.calls.Inc()
	}
	if b.Released {
		return
	}
	s.tokens.Add(positive(b.Charged[Tokens] - b.Before[Tokens]))
	if n := positive(b.Charged[Credits] - b.Before[Credits]); n > 0 {
		seldom(&s.credits, m.credits, k).Add(n)
	}
	if n := positive(b.Charged[Money] - b.Before[Money]); n > 0 {
		seldom(&s.dollars, m.dollars, k).Add(n / 1e6)
	}
	if s.ratio != nil && !b.Corrected {
		if estimate := b.Estimated.Clamp().Total(); estimate > 0 {
			s.ratio.Observe(float64(b.Actual.Total()) / float64(estimate))
		}
	}
}

func (m *Metrics) newBooking(k bookingKey) *bookingSeries {
	s := &bookingSeries{calls: m.calls.WithLabelValues(k.kind, string(k.outcome))}
	basis := "reported"
	switch {
	case k.outcome == CallReleased:
		return s
	case k.outcome == CallEstimated:
		basis = "estimated"
	case k.kind == "call":
		s.ratio = m.ratios.WithLabelValues(k.model)
	}
	s.tokens = m.tokens.WithLabelValues(k.model, k.tool, basis)
	return s
}

// seldom is a counter of a vector that is made when it first counts.
func seldom(at *atomic.Pointer[prometheus.Counter], of *prometheus.CounterVec, k bookingKey) prometheus.Counter {
	c := at.Load()
	if c == nil {
		made := of.WithLabelValues(k.model, k.tool)
		c = &made
		at.Store(c)
	}
	return *c
}

func (m *Metrics) thresholds(r Reach) {
	m.reached.WithLabelValues(
		m.names.limit.of(r.Limit), m.names.scope.of(string(r.Scope)), r.Unit.String(), m.names.percent.of(strconv.Itoa(r.Percent)),
	).Inc()
}

func (m *Metrics) outage(began bool) {
	m.out.set(began, time.Now())
	if began {
		m.outages.Inc()
	}
}

// model is the label of a model.
func (m *Metrics) model(name string) string {
	if m.models == nil {
		return m.names.model.of(name)
	}
	if m.models[name] {
		return name
	}
	return labelOther
}

// plan is the label of a plan.
func (m *Metrics) plan(name string) string {
	if m.plans == nil || name == "" || m.plans[name] {
		return m.names.plan.of(name)
	}
	return labelOther
}

func positive(n int64) float64 { return float64(max(n, 0)) }

// labelSet bounds the values of a label: the first ones stand for themselves.
type labelSet struct {
	known sync.Map // string → nothing
	n     atomic.Int64
}

// maxLabelLen is the longest value of a label in bytes.
const maxLabelLen = 128

// of is the label of a value.
func (s *labelSet) of(value string) string {
	if value == "" {
		return labelNone
	}
	if _, ok := s.known.Load(value); ok {
		return value
	}
	if len(value) > maxLabelLen || !utf8.ValidString(value) || s.n.Load() >= MaxMetricLabels {
		return labelOther
	}
	if s.n.Add(1) > MaxMetricLabels {
		s.n.Add(-1)
		return labelOther
	}
	value = strings.Clone(value)
	if _, twice := s.known.LoadOrStore(value, struct{}{}); twice {
		s.n.Add(-1)
	}
	return value
}
