package redisledger

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/storemetrics"
)

// Why a script runs again within an operation.
const (
	isRare   = iota // its fast way does not do that
	isLarge         // amounts are large
	isBehind        // more had expired than one run sweeps
	reruns
)

var rerunNames = [reruns]string{"rare", "large", "expired"}

// metrics are the Prometheus metrics of a ledger. A nil *metrics counts nothing.
type metrics struct {
	*storemetrics.Metrics
	sender *sender
	reruns [reruns]atomic.Int64

	trips, resent, repeated, waiting *prometheus.Desc
}

// register registers the metrics, if somebody wants them.
func (l *Ledger) register() error {
	if !storemetrics.Given(l.cfg.Registerer) {
		return nil
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_redisledger_"+name, help, labels, storemetrics.Labels(l.cfg.Name))
	}
	m := &metrics{
		Metrics:  storemetrics.New(l.cfg.Name),
		sender:   &l.sender,
		trips:    desc("round_trips_total", "Round trips to Redis for scripts; operations that come together share them."),
		resent:   desc("resent_scripts_total", "Scripts that Redis did not know, and were sent with their text: it was restarted, or they were flushed."),
		repeated: desc("repeated_scripts_total", "Scripts that ran once more in an operation, by reason: something rare, large amounts, or more expired than one run sweeps.", "reason"),
		waiting:  desc("waiting_operations", "Operations that wait for a round trip to return, as there are as many as may be."),
	}
	if err := l.cfg.Registerer.Register(m); err != nil {
		return fmt.Errorf("redisledger: Config.Registerer: ledger %q: %w", l.cfg.Name, err)
	}
	l.metric = m
	return nil
}

// operationOf is the operation of a script.
var operationOf = map[*script]storemetrics.Operation{
	reserveScript: storemetrics.Reserve, settleScript: storemetrics.Settle, releaseScript: storemetrics.Release,
	renewScript: storemetrics.Renew, statusScript: storemetrics.Status, historyScript: storemetrics.History, eraseScript: storemetrics.Erase,
}

// ended counts a run of a script.
func (m *metrics) ended(s *script, began time.Time, answer string, err error) {
	outcome := outcomeOf(err)
	if err == nil && answer[0] == 'U' {
		outcome = storemetrics.Unknown
	}
	m.Ended(operationOf[s], began, outcome)
}

// asked counts a look at whether Redis works.
func (m *metrics) asked(began time.Time, err error) {
	m.Ended(storemetrics.Health, began, outcomeOf(err))
}

// outcomeOf is what an error of an operation says.
func outcomeOf(err error) storemetrics.Outcome {
	switch {
	case errors.Is(err, errClosed):
		return storemetrics.Closed
	case errors.Is(err, errLate):
		return storemetrics.Timeout
	case errors.Is(err, errGarbled), errors.Is(err, quota.ErrUnavailable) && isAnswer(err):
		return storemetrics.Refused
	}
	return storemetrics.OutcomeOf(err)
}

// again counts a script that has to run once more.
func (m *metrics) again(why int) {
	if m != nil {
		m.reruns[why].Add(1)
	}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.Metrics.Describe(ch)
	for _, d := range []*prometheus.Desc{m.trips, m.resent, m.repeated, m.waiting} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.Metrics.Collect(ch)
	count := func(d *prometheus.Desc, n *atomic.Int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	count(m.trips, &m.sender.counts.trips)
	count(m.resent, &m.sender.counts.resent)
	for i, name := range rerunNames {
		count(m.repeated, &m.reruns[i], name)
	}
	m.sender.mu.Lock()
	waiting := len(m.sender.waiting)
	m.sender.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting))
}
