package observability

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/usagemetrics"
)

// described notes what is registered with it by its descriptions, so that metrics
// count that have no series yet: of a 429, say.
type described struct {
	*prometheus.Registry
	t      *testing.T
	labels map[string][]string // by metric
}

// description is how a [prometheus.Desc] prints itself.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", .*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		parts := description.FindStringSubmatch(desc.String())
		if parts == nil {
			d.t.Errorf("a description is %s", desc)
			continue
		}
		labels := d.labels[parts[1]]
		for l := range strings.SplitSeq(parts[2], ",") {
			name, _, _ := strings.Cut(l, "=")
			labels = append(labels, name)
		}
		d.labels[parts[1]] = append(labels, strings.Split(parts[3], ",")...)
	}
	return d.Registry.Register(c)
}

// exported are the metrics of all packages, with their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	reg := &described{prometheus.NewRegistry(), t, map[string][]string{}}
	gate, err := ratelimited.NewGate(ratelimited.Config{
		Slots: 1, Profile: ratelimited.GeminiAPI(ratelimited.Quota{RequestsPerMinute: 60}), Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gate.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	bus := quota.NewBus(quota.BusConfig{})
	t.Cleanup(func() {
		if err := bus.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	catalog, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{{
		AsOf: time.Now(), Models: []usage.Model{{Name: "m", Prices: []usage.Price{{Rates: usage.Rates{Input: usage.PerMillion(1)}}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	people, err := quota.NewMetrics(quota.MetricsConfig{Bus: bus, Catalog: catalog, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	if err := reg.Register(people); err != nil {
		t.Fatal(err)
	}
	if err := usagemetrics.Catalog(reg, "main", catalog); err != nil {
		t.Fatal(err)
	}
	stores(t, reg)
	history, err := usage.NewHistory(usage.HistoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := usagemetrics.History(reg, "main", history); err != nil {
		t.Fatal(err)
	}
	return reg.labels
}

// family is the metric that a series belongs to: those of a histogram have names of
// their own.
func family(known map[string][]string, series string) (name string, ok bool) {
	if _, ok = known[series]; ok {
		return series, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, cut := strings.CutSuffix(series, suffix); cut {
			_, ok = known[name]
			return name, ok
		}
	}
	return series, false
}

// scraped are the labels that Prometheus adds, and that of a histogram's buckets.
var scraped = []string{"job", "instance", "le"}

func TestQueriesAskOnlyForMetricsAndLabelsThatAreExported(t *testing.T) {
	t.Parallel()
	known := exported(t)
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		labels := slices.Clone(scraped)
		for _, s := range q.selectors() {
			name, ok := family(known, s.metric)
			if !ok {
				t.Errorf("%s: nothing exports %s", q.where, s.metric)
				continue
			}
			for _, l := range s.labels {
				if !slices.Contains(known[name], l) && !slices.Contains(scraped, l) {
					t.Errorf("%s: %s has no label %s", q.where, s.metric, l)
				}
			}
			labels = append(labels, known[name]...)
		}
		groups := q.groups()
		for _, l := range groups {
			if !slices.Contains(labels, l) {
				t.Errorf("%s: groups by %s, which none of its metrics has", q.where, l)
			}
		}
		for _, l := range legendPart.FindAllStringSubmatch(q.legend, -1) {
			if !slices.Contains(labels, l[1]) || len(groups) > 0 && !slices.Contains(groups, l[1]) {
				t.Errorf("%s: the legend %q shows %s, which the result has not", q.where, q.legend, l[1])
			}
		}
	}
}

func TestNoMetricIsForgotten(t *testing.T) {
	t.Parallel()
	known := exported(t)
	shown := map[string]bool{}
	for _, q := range dashboardQueries(t) {
		for _, s := range q.selectors() {
			name, _ := family(known, s.metric)
			shown[name] = true
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

// A plan is enforced once it is seen what that would deny.
func TestDashboardShowsWhatEachPlanWouldDeny(t *testing.T) {
	t.Parallel()
	for _, p := range board(t).Panels {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, `outcome="observed"`) && strings.Contains(target.Expr, "by (plan") {
				return
			}
		}
	}
	t.Error("no panel has what limits that observe would have denied, by plan")
}

func TestDashboardIsLaidOut(t *testing.T) {
	t.Parallel()
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range board(t).Panels {
		if ids[p.ID] || p.ID <= 0 {
			t.Errorf("panel %q has the id %d, which is none or taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		at := p.GridPos
		if at.W <= 0 || at.H <= 0 || at.X < 0 || at.X+at.W > 24 {
			t.Errorf("panel %q is outside the 24 columns: %+v", p.Title, at)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other, there := taken[[2]int{x, y}]; there {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d (%q) lacks a title, a description, a unit or a query", p.ID, p.Title)
		}
	}
}
