// Package storemetrics has the Prometheus metrics that all ledgers in a store have in
// common, so that one panel shows all of them and one alert is about any. What only one of
// them can tell is in its own package.
package storemetrics

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/internal/unset"
	"github.com/headgate-go/headgate/budget/quota"
)

// Operation is what a ledger is asked for.
type Operation uint8

// The operations. Top-ups and resets count as Status, which they are with a change.
const (
	Reserve Operation = iota
	Settle
	Release
	Renew
	Status
	History
	Erase
	Health
	operations
)

var operationNames = [operations]string{"reserve", "settle", "release", "renew", "status", "history", "erase", "health"}

// String is the value of the label.
func (o Operation) String() string { return operationNames[o] }

// Outcome is what came of an operation.
type Outcome uint8

const (
	// OK is that the store has answered, whatever it was.
	OK Outcome = iota
	// Unknown is that it knows no such reservation: it has ended long ago, or was lost.
	Unknown
	// Timeout is that it did not answer in time.
	Timeout
	// Cancelled is that the caller has left.
	Cancelled
	// Unreachable is that there is no connection to it.
	Unreachable
	// Refused is that it has answered with an error.
	Refused
	// Closed is that the ledger is closed.
	Closed
	outcomes
)

var outcomeNames = [outcomes]string{"ok", "unknown", "timeout", "cancelled", "unreachable", "refused", "closed"}

// String is the value of the label.
func (o Outcome) String() string { return outcomeNames[o] }

// OutcomeOf is what an error says of itself. What matches [quota.ErrUnavailable] and says no
// more is Unreachable, and any other error of a store is Refused.
func OutcomeOf(err error) Outcome {
	var network net.Error
	switch {
	case err == nil:
		return OK
	case errors.Is(err, quota.ErrUnknownReservation):
		return Unknown
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return Timeout
	case errors.Is(err, quota.ErrUnavailable):
		return Unreachable
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Refused
}

// buckets reach from a store in the same process to one that is hardly there, in seconds.
var buckets = []float64{.0001, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5}

// Metrics count operations. A nil *Metrics counts nothing. They are safe for concurrent use.
type Metrics struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	// A look-up hashes its labels, so series are kept once they were needed.
	of [operations]struct {
		total   [outcomes]atomic.Pointer[prometheus.Counter]
		seconds atomic.Pointer[prometheus.Observer]
	}
}

// New makes the metrics of a ledger, which has a name.
func New(ledger string) *Metrics {
	opts := prometheus.Opts{Namespace: "headgate", Subsystem: "store", ConstLabels: Labels(ledger)}
	counting, timing := opts, opts
	counting.Name, counting.Help = "operations_total", "Operations that a ledger has made in its store, by what came of them."
	timing.Name, timing.Help = "operation_seconds", "Time of an operation in seconds, with what it waited for in the ledger, whatever came of it."
	return &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts(counting), []string{"operation", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: timing.Namespace, Subsystem: timing.Subsystem, Name: timing.Name, Help: timing.Help,
			ConstLabels: timing.ConstLabels, Buckets: buckets,
		}, []string{"operation"}),
	}
}

// Labels tell the ledgers of a program apart.
func Labels(ledger string) prometheus.Labels { return prometheus.Labels{"ledger": ledger} }

// Ended counts an operation that has begun at an instant and has ended now.
func (m *Metrics) Ended(op Operation, began time.Time, outcome Outcome) {
	if m == nil {
		return
	}
	of := &m.of[op]
	seconds := of.seconds.Load()
	if seconds == nil {
		o := m.seconds.WithLabelValues(op.String())
		seconds = &o
		of.seconds.Store(seconds)
	}
	total := of.total[outcome].Load()
	if total == nil {
		c := m.total.WithLabelValues(op.String(), outcome.String())
		total = &c
		of.total[outcome].Store(total)
	}
	(*seconds).Observe(time.Since(began).Seconds())
	(*total).Inc()
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.total.Describe(ch)
	m.seconds.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.total.Collect(ch)
	m.seconds.Collect(ch)
}

// Given reports whether there is a registerer: not nil, and no nil pointer.
func Given(r prometheus.Registerer) bool { return !unset.Is(r) }
