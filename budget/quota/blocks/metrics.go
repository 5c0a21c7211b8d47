package blocks

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/internal/storemetrics"
)

// metrics reads the Prometheus metrics of a ledger from its Stats, when they are scraped.
type metrics struct {
	l *Ledger

	reservations, denied, deniedBusy  *prometheus.Desc
	trips, blocks, renewals, failures *prometheus.Desc
	open, units, leased, returned     *prometheus.Desc
	lapsed, late, lost                *prometheus.Desc
}

// register registers the metrics, if somebody wants them.
func (l *Ledger) register() error {
	if !storemetrics.Given(l.cfg.Registerer) {
		return nil
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_blocks_"+name, help, labels, storemetrics.Labels(l.cfg.Name))
	}
	m := &metrics{
		l:            l,
		reservations: desc("reservations_total", "Reservations that were decided here, or after a word from the ledger underneath (way is local or waited).", "way"),
		denied:       desc("denied_total", "Reservations that were denied by what is leased."),
		deniedBusy:   desc("denied_busy_total", "Entries that were denied while calls or idle blocks of other replicas had something reserved: it may be that nothing was used up."),
		trips:        desc("round_trips_total", "Operations of the ledger underneath, for blocks or passed on.", "purpose"),
		blocks:       desc("requests_total", "Blocks that were asked for, by outcome: leased or refused.", "outcome"),
		renewals:     desc("renewals_total", "Operations that renewed blocks, up to 256 each."),
		failures:     desc("failures_total", "Operations for blocks that failed."),
		open:         desc("open_blocks", "Blocks that are leased now."),
		units:        desc("units", "Units of blocks, by state: held by calls, spent and not settled yet, settled without an answer (unanswered), or idle. Their sum bounds what may be spent above limits if the blocks lapse.", "unit", "state"),
		leased:       desc("leased_units_total", "Units that blocks had in them when they were leased.", "unit"),
		returned:     desc("returned_units_total", "Units that were given back unspent.", "unit"),
		lapsed:       desc("lapsed_total", "Blocks that had ended in the ledger underneath while they were in use, so that others could get what was in them."),
		late:         desc("late_total", "Blocks whose spend was booked after they had ended."),
		lost:         desc("lost_total", "Blocks whose spend could not be booked at all."),
	}
	if err := l.cfg.Registerer.Register(m); err != nil {
		return fmt.Errorf("blocks: Config.Registerer: ledger %q: %w", l.cfg.Name, err)
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.reservations, m.denied, m.deniedBusy, m.trips, m.blocks, m.renewals, m.failures,
		m.open, m.units, m.leased, m.returned, m.lapsed, m.late, m.lost,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.l.Stats()
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	count(m.reservations, s.Local, "local")
	count(m.reservations, s.Waited, "waited")
	count(m.denied, s.Denied)
	count(m.deniedBusy, s.DeniedBusy)
	count(m.trips, s.RoundTrips-s.Passed, "blocks")
	count(m.trips, s.Passed, "passed")
	count(m.blocks, s.BlocksLeased, "leased")
	count(m.blocks, s.BlocksRefused, "refused")
	count(m.renewals, s.Renewals)
	count(m.failures, s.Failures)
	gauge(m.open, int64(s.Blocks))
	count(m.lapsed, s.Lapsed)
	count(m.late, s.Late)
	count(m.lost, s.Lost)
	for u := range quota.Unit(quota.Units) {
		if s.Taken[u]|s.Held[u]|s.Spent[u] == 0 {
			continue // nothing of the kind is leased
		}
		gauge(m.units, s.Held[u], u.String(), "held")
		gauge(m.units, s.Spent[u], u.String(), "spent")
		gauge(m.units, s.Unanswered[u], u.String(), "unanswered")
		gauge(m.units, s.Idle[u], u.String(), "idle")
		count(m.leased, s.Taken[u], u.String())
		count(m.returned, s.Returned[u], u.String())
	}
}
