package usagemetrics_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/usagemetrics"
)

func list(asOf time.Time) usage.PriceList {
	rate := usage.PerMillion(1_000_000)
	return usage.PriceList{AsOf: asOf, Models: []usage.Model{
		{Name: "m-1", Prices: []usage.Price{{Rates: usage.Rates{Input: rate, Output: rate}}}},
	}}
}

func newCatalog(t *testing.T, asOf time.Time) *usage.Catalog {
	t.Helper()
	c, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{list(asOf)}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// values are the values of all metrics, by name and labels.
func values(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			v := m.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_COUNTER {
				v = m.GetCounter().GetValue()
			}
			got[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = v
		}
	}
	return got
}

func TestTheAgeOfPricesGrowsUntilTheyAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalog(t, time.Now().Add(-24*time.Hour))
		reg := prometheus.NewRegistry()
		if err := usagemetrics.Catalog(reg, "main", c); err != nil {
			t.Fatal(err)
		}
		age := func(want time.Duration) {
			t.Helper()
			if got := values(t, reg)["headgate_catalog_age_seconds{catalog=main}"]; got != want.Seconds() {
				t.Errorf("the prices are %v s old, want %v", got, want)
			}
		}
		age(24 * time.Hour)
		time.Sleep(48 * time.Hour)
		age(72 * time.Hour)
		if err := c.Replace(list(time.Now())); err != nil {
			t.Fatal(err)
		}
		age(0)
	})
}

func TestModelsWithoutAPriceAreCounted(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, time.Now())
	reg := prometheus.NewRegistry()
	if err := usagemetrics.Catalog(reg, "main", c); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Price("no such model", time.Now(), usage.Standard); err == nil {
			t.Fatal("a model without a price has one")
		}
	}
	got := values(t, reg)
	for name, want := range map[string]float64{
		"headgate_catalog_models{catalog=main}":                         1,
		"headgate_catalog_prices{catalog=main}":                         1,
		"headgate_catalog_unknown_total{answer=rejected,catalog=main}":  3,
		"headgate_catalog_unknown_total{answer=uncosted,catalog=main}":  0,
		"headgate_catalog_unknown_total{answer=defaulted,catalog=main}": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
}

func TestWhatAHistoryLearnedIsCounted(t *testing.T) {
	t.Parallel()
	h, err := usage.NewHistory(usage.HistoryConfig{MaxKeys: 2})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	if err := usagemetrics.History(reg, "gate", h); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"a", "b", "c", "a"} {
		h.Observe("m", agent, usage.Usage{Input: 10}, usage.Usage{Input: 12}, time.Now())
	}
	got := values(t, reg)
	if got["headgate_history_pairs{history=gate}"] != 2 || got["headgate_history_refused_total{history=gate}"] != 1 {
		t.Errorf("got %v, want 2 pairs and 1 call refused", got)
	}
}

func TestRegisteringIsAllOrNothing(t *testing.T) {
	t.Parallel()
	c := newCatalog(t, time.Now())
	reg := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headgate_catalog_prices", Help: "Prices of these models.", ConstLabels: prometheus.Labels{"catalog": "main"},
	})
	reg.MustRegister(taken)
	if err := usagemetrics.Catalog(reg, "main", c); err == nil {
		t.Error("two metrics of one name are registered")
	}
	reg.Unregister(taken)
	if err := usagemetrics.Catalog(reg, "main", c); err != nil {
		t.Errorf("something was left behind: %v", err)
	}
	for name, err := range map[string]error{
		"nil catalogue":  usagemetrics.Catalog(reg, "x", nil),
		"nil history":    usagemetrics.History(reg, "x", nil),
		"nil registerer": usagemetrics.Catalog(nil, "x", c),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
