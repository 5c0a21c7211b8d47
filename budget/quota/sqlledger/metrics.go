package sqlledger

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/storemetrics"
)

// swept is what a sweep removes rows of.
type swept uint8

const (
	sweptReservations swept = iota
	sweptAudit
	sweptCalls
	sweptWriters
	sweptCounters // and their windows and buckets
	sweptTables
)

var sweptNames = [sweptTables]string{"reservations", "audit", "calls", "writers", "counters"}

// Kinds of failures of transactions: what the error means, and that nobody knows whether it
// was committed.
const (
	unsure   = duplicate + 1
	failures = unsure + 1
)

var failureNames = [failures]string{
	failed: "failed", contended: "contended", disconnected: "disconnected", stale: "stale", duplicate: "duplicate", unsure: "unsure",
}

var (
	// transactionBuckets are seconds: from a disk that is quick to a time limit that is over.
	transactionBuckets = []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5}
	// operationBuckets are numbers of operations, up to the most of a transaction.
	operationBuckets = []float64{1, 2, 4, 8, 16, 32, 64, maxBatch}
)

// metrics are the Prometheus metrics of a ledger. A nil *metrics counts nothing.
type metrics struct {
	*storemetrics.Metrics
	seconds, operations prometheus.Histogram

	combiner *combiner
	failures [failures]atomic.Int64
	ended    atomic.Int64 // expired reservations
	rows     [sweptTables]atomic.Int64
	sweeps   [2]atomic.Int64 // ok and failed

	failuresTotal, expiredTotal, sweptTotal, sweepsTotal, waiting *prometheus.Desc
}

// register registers the metrics, if somebody wants them.
func (l *Ledger) register() error {
	if !storemetrics.Given(l.cfg.Registerer) {
		return nil
	}
	name := cmp.Or(l.cfg.Name, l.cfg.Dialect.String())
	labels := storemetrics.Labels(name)
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_sqlledger_"+name, help, variable, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "headgate", Subsystem: "sqlledger", Name: name, Help: help, ConstLabels: labels, Buckets: buckets,
		})
	}
	m := &metrics{
		Metrics:       storemetrics.New(name),
		seconds:       histogram("transaction_seconds", "Time of a transaction that was committed in seconds, those of sweeps, erasures and health checks left out.", transactionBuckets),
		operations:    histogram("transaction_operations", "Operations that were committed by one transaction.", operationBuckets),
		combiner:      l.combiner,
		failuresTotal: desc("transaction_failures_total", "Transactions that failed, by what the error means; they are tried again while there is time.", "kind"),
		expiredTotal:  desc("expired_reservations_total", "Reservations that expired, as nobody settled, released or renewed them."),
		sweptTotal:    desc("swept_rows_total", "Rows that were removed because they are old, by table.", "table"),
		sweepsTotal:   desc("sweeps_total", "Sweeps for what has expired and is old, by outcome.", "outcome"),
		waiting:       desc("waiting_operations", "Operations that wait for a transaction to begin."),
	}
	if err := l.cfg.Registerer.Register(m); err != nil {
		return fmt.Errorf("sqlledger: Config.Registerer: ledger %q: %w", name, err)
	}
	l.metric = m
	return nil
}

// unregister takes them back, so that who could not make a ledger can try again.
func (l *Ledger) unregister() {
	if l.metric != nil {
		l.cfg.Registerer.Unregister(l.metric)
	}
}

// operationOf is what a request is for.
func operationOf(r request) storemetrics.Operation {
	switch r.(type) {
	case *reserving:
		return storemetrics.Reserve
	case *settling:
		return storemetrics.Settle
	case *releasing:
		return storemetrics.Release
	case *renewing:
		return storemetrics.Renew
	case *asking, *changing:
		return storemetrics.Status
	case *looking:
		return storemetrics.History
	case *erasing, *forgetting:
		return storemetrics.Erase
	}
	return storemetrics.Health
}

// outcomeOf is what an error of an operation says.
func outcomeOf(err error) storemetrics.Outcome {
	switch {
	case errors.Is(err, errClosed):
		return storemetrics.Closed
	case errors.Is(err, errTimeout), errors.Is(err, errNotNow):
		return storemetrics.Timeout
	}
	outcome := storemetrics.OutcomeOf(err)
	if outcome == storemetrics.Unreachable && errors.Is(err, quota.ErrUnavailable) && failureOf(err) != disconnected {
		return storemetrics.Refused
	}
	return outcome
}

// done counts a transaction that was committed, with so many operations in it.
func (m *metrics) done(began time.Time, ops []*op, n int) {
	if m == nil || n == 0 {
		return
	}
	if _, is := ops[0].req.(special); is {
		return
	}
	m.seconds.Observe(time.Since(began).Seconds())
	m.operations.Observe(float64(n))
}

// failed counts a transaction that failed.
func (m *metrics) failed(err error) {
	if m == nil {
		return
	}
	kind := failureOf(err)
	if u := (*unsureError)(nil); errors.As(err, &u) {
		kind = unsure
	}
	m.failures[kind].Add(1)
}

// expired counts reservations that have expired.
func (m *metrics) expired(n int) {
	if m != nil {
		m.ended.Add(int64(n))
	}
}

// removed counts rows that were removed.
func (m *metrics) removed(from swept, rows int64) {
	if m != nil {
		m.rows[from].Add(rows)
	}
}

// sweep counts a sweep.
func (m *metrics) sweep(err error) {
	switch {
	case m == nil:
	case err == nil:
		m.sweeps[0].Add(1)
	default:
		m.sweeps[1].Add(1)
	}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.Metrics.Describe(ch)
	m.seconds.Describe(ch)
	m.operations.Describe(ch)
	for _, d := range []*prometheus.Desc{m.failuresTotal, m.expiredTotal, m.sweptTotal, m.sweepsTotal, m.waiting} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.Metrics.Collect(ch)
	m.seconds.Collect(ch)
	m.operations.Collect(ch)
	count := func(d *prometheus.Desc, n *atomic.Int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	for i, name := range failureNames {
		count(m.failuresTotal, &m.failures[i], name)
	}
	count(m.expiredTotal, &m.ended)
	for i, name := range sweptNames {
		count(m.sweptTotal, &m.rows[i], name)
	}
	count(m.sweepsTotal, &m.sweeps[0], "ok")
	count(m.sweepsTotal, &m.sweeps[1], "failed")
	m.combiner.mu.Lock()
	waiting := len(m.combiner.queue)
	m.combiner.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting))
}
