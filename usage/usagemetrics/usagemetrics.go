// Package usagemetrics exports what prices and learned estimates are like as
// Prometheus metrics. It stands apart from package usage so that nobody who only
// counts tokens pulls in the Prometheus client.
//
//	headgate_catalog_age_seconds     how old the stalest price list is
//	headgate_catalog_models          models that have prices
//	headgate_catalog_prices          their prices
//	headgate_catalog_unknown_total   calls of models without a price, by what was answered
//	headgate_history_pairs           pairs of model and agent label that were learned about
//	headgate_history_refused_total   calls not learned from, for want of room for their pair
//
// Alert on the age: prices change, and a catalogue that is not renewed charges
// what used to be right. No metric has a model, an agent or a person for a label.
package usagemetrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/usage"
)

// Catalog registers the metrics of a catalogue. The name becomes the label
// "catalog", for programs that have several. It is an error if the catalogue is
// nil, or if metrics of that name are registered already. The metrics are read
// when they are scraped; a catalogue that is replaced while it runs tells the age
// of what it holds then.
func Catalog(reg prometheus.Registerer, name string, c *usage.Catalog) error {
	if c == nil {
		return fmt.Errorf("usagemetrics: the catalogue %q is nil", name)
	}
	label := prometheus.Labels{"catalog": name}
	return register(reg,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_catalog_age_seconds", ConstLabels: label,
			Help: "Time since the date of the stalest price list.",
		}, func() float64 { return c.Age(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_catalog_models", ConstLabels: label,
			Help: "Models that have prices.",
		}, func() float64 { return float64(c.Snapshot().Models) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_catalog_prices", ConstLabels: label,
			Help: "Prices of these models.",
		}, func() float64 { return float64(c.Snapshot().Prices) }),
		unknown(name, "rejected", func() int64 { return c.Snapshot().Rejected }),
		unknown(name, "uncosted", func() int64 { return c.Snapshot().Uncosted }),
		unknown(name, "defaulted", func() int64 { return c.Snapshot().Defaulted }),
	)
}

func unknown(name, answer string, count func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headgate_catalog_unknown_total", ConstLabels: prometheus.Labels{"catalog": name, "answer": answer},
		Help: "Calls of models without a price, by what was answered.",
	}, func() float64 { return float64(count()) })
}

// History registers the metrics of learned estimates. The name becomes the label
// "history". Errors are like those of Catalog.
func History(reg prometheus.Registerer, name string, h *usage.History) error {
	if h == nil {
		return fmt.Errorf("usagemetrics: the history %q is nil", name)
	}
	label := prometheus.Labels{"history": name}
	return register(reg,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headgate_history_pairs", ConstLabels: label,
			Help: "Pairs of model and agent label that were learned about.",
		}, func() float64 { return float64(h.Len()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "headgate_history_refused_total", ConstLabels: label,
			Help: "Calls that were not learned from, for want of room for their pair.",
		}, func() float64 { return float64(h.Refused()) }),
	)
}

// register registers all or none.
func register(reg prometheus.Registerer, all ...prometheus.Collector) error {
	if reg == nil {
		return fmt.Errorf("usagemetrics: the registerer is nil")
	}
	for i, c := range all {
		if err := reg.Register(c); err != nil {
			for _, done := range all[:i] {
				reg.Unregister(done)
			}
			return fmt.Errorf("usagemetrics: %w", err)
		}
	}
	return nil
}
