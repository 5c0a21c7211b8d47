package observability

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rule is an alert of alerts.yaml.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// ruleFile is what is read of alerts.yaml.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

// alerts are the rules of alerts.yaml.
func alerts(t *testing.T) (all []rule) {
	t.Helper()
	var f ruleFile
	d := yaml.NewDecoder(bytes.NewReader(file(t, "alerts.yaml")))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("alerts.yaml has no rule")
	}
	return all
}

// dashboard is what is read of dashboard.json.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

func board(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(file(t, "dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// query is an expression, and where it stands.
type query struct {
	where, expr string
	legend      string // of a panel
}

// labelValues is how a variable of a dashboard asks for the values of a label.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// dashboardQueries are all that the dashboard asks, with its variables filled in as
// Grafana does when everything is selected.
func dashboardQueries(t *testing.T) (all []query) {
	t.Helper()
	fill := strings.NewReplacer("$__rate_interval", "10s", "$job", ".*", "$gate", ".*")
	d := board(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{`panel "` + p.Title + `" ` + target.RefID, fill.Replace(target.Expr), target.LegendFormat})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		asked, _ := v.Query.(map[string]any)
		text, _ := asked["query"].(string)
		parts := labelValues.FindStringSubmatch(text)
		if parts == nil {
			t.Fatalf("variable %s asks %q", v.Name, text)
		}
		all = append(all, query{"variable " + v.Name, fill.Replace("count by (" + parts[2] + ") (" + parts[1] + ")"), ""})
	}
	for _, a := range d.Annotations.List {
		all = append(all, query{"annotation " + a.Name, fill.Replace(a.Expr), ""})
	}
	for _, q := range all {
		if strings.Contains(q.expr, "$") {
			t.Errorf("%s has a variable that this test does not know: %s", q.where, q.expr)
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard asks %d things only", len(all))
	}
	return all
}

// alertQueries are what the alerts ask.
func alertQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, r := range alerts(t) {
		all = append(all, query{"alert " + r.Alert, r.Expr, ""})
	}
	return all
}

// selector is a metric in an expression, with the labels that its matchers name.
type selector struct {
	metric string
	labels []string
}

var (
	metricName = regexp.MustCompile(`\b(headgate_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`)
	legendPart = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// selectors are the metrics of an expression.
func (q query) selectors() (all []selector) {
	for _, m := range metricName.FindAllStringSubmatch(q.expr, -1) {
		s := selector{metric: m[1]}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			s.labels = append(s.labels, l[1])
		}
		all = append(all, s)
	}
	return all
}

// groups are the labels by which an expression groups.
func (q query) groups() (all []string) {
	for _, m := range grouping.FindAllStringSubmatch(q.expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			all = append(all, strings.TrimSpace(l))
		}
	}
	return all
}
