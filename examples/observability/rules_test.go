package observability

import (
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestPromtoolAcceptsTheFiles(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "alerts.yaml"},
		{"check", "config", "prometheus.yaml"},
		{"test", "rules", "alerts_test.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// An alert that was never seen to fire may never fire.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	t.Parallel()
	var tests struct {
		Tests []struct {
			Rules []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(file(t, "alerts_test.yaml"), &tests); err != nil {
		t.Fatal(err)
	}
	fires := map[string]bool{}
	for _, test := range tests.Tests {
		for _, r := range test.Rules {
			fires[r.Alert] = fires[r.Alert] || len(r.Fires) > 0
		}
	}
	readme := string(file(t, "README.md"))
	seen := map[string]bool{}
	for _, r := range alerts(t) {
		if seen[r.Alert] {
			t.Errorf("there are two alerts %s", r.Alert)
		}
		seen[r.Alert] = true
		if !fires[r.Alert] {
			t.Errorf("no test of alerts_test.yaml makes %s fire", r.Alert)
		}
		if !strings.Contains(readme, "| "+r.Alert+" |") {
			t.Errorf("README.md does not say what to do about %s", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
	}
}
