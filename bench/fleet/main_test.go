package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/bench/internal/fleet"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A module that the genai SDK needs starts this goroutine when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// small are the flags of a run that takes a moment.
var small = []string{"-replicas", "3", "-rate", "2", "-minutes", "1", "-shape", "steady", "-load", "1.5"}

// ran runs the program, or ends the test if it does not succeed.
func ran(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	if code := run(args, &out, &err); code != exitOK {
		t.Fatalf("exit code %d: %s", code, err.String())
	}
	return out.String(), err.String()
}

func TestTheTableHasALineForEachModeAndProgressGoesToStandardError(t *testing.T) {
	t.Parallel()
	stdout, stderr := ran(t, append(small, "-mode", "leased,static", "-kill", "1@20s")...)
	for _, want := range []string{"3 replicas, 30 users, steady calls at 1.5 of the quota for 1m0s", "goodput/G*", " leased ", " static ", "settled after -1@20s"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "central ") || strings.Contains(stdout, "events") {
		t.Errorf("too much in\n%s", stdout)
	}
	if !strings.Contains(stderr, "leased") || !strings.Contains(stderr, "events in") {
		t.Errorf("no progress in %q", stderr)
	}
}

func TestJSONHasTheConfigurationAndTheFiguresOfEachMode(t *testing.T) {
	t.Parallel()
	stdout, _ := ran(t, append(small, "-json", "-mode", "all", "-guard=false", "-window", "bucket")...)
	var list []struct {
		Config struct {
			Mode    string `json:"mode"`
			Window  string `json:"window"`
			NoGuard bool   `json:"no_guard"`
			Length  int64  `json:"length"`
		}
		Metrics map[string]any
		Events  int64
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatal(err)
	}
	var modes []string
	for _, r := range list {
		modes = append(modes, r.Config.Mode)
		if r.Config.Window != "bucket" || !r.Config.NoGuard || r.Config.Length != int64(time.Minute) || r.Events < 100 {
			t.Errorf("%+v", r)
		}
		for _, name := range []string{"goodput", "throttled", "wait_mean", "jain_users", "trips_per_call", "max_use"} {
			if _, ok := r.Metrics[name].(float64); !ok {
				t.Errorf("%s: no number %q", r.Config.Mode, name)
			}
		}
	}
	if !slices.Equal(modes, []string{"central", "leased", "static", "alone"}) {
		t.Errorf("modes %v", modes)
	}
}

func TestThePlotIsWrittenAsAVectorAndAsAPicture(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "plot")
	ran(t, append(small, "-mode", "leased,alone", "-join", "1@30s", "-plot", name)...)
	svg, err := os.ReadFile(name + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"leased", "alone", "429s in a second", "Upright lines", "of G*", "overshoot", "p50", "p99", "trips per call",
		"over users", "over replicas", "Jain over homes", "settled after +1@30s",
	} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("no %q in the SVG", want)
		}
	}
	f, err := os.Open(name + ".png")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}
}

func TestAPlotThatCannotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	var out, err bytes.Buffer
	args := append(slices.Clone(small), "-mode", "alone", "-plot", filepath.Join(t.TempDir(), "no", "plot"))
	if code := run(args, &out, &err); code != exitFailed || !strings.Contains(err.String(), "plot.svg") {
		t.Errorf("exit code %d: %s", code, err.String())
	}
}

func TestFlagsSayWhatIsSimulated(t *testing.T) {
	t.Parallel()
	o, err := parseFlags(strings.Fields("-replicas 20 -users 500 -mode leased -shape skewed -rate 3 -load 0.9 -window fixed -minutes 2.5 -seed 9 -guard=false "+
		"-error 0.2 -tokens 10 -tokens-sigma 0.1 -slots 77 -max-wait 3s -on 9s -to-store 2ms -to-provider 30ms -jitter 0.25 -join 2@2m -kill 4@1m -down 10s-20s -json -plot x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := o.fleet
	if !slices.Equal(o.modes, []fleet.Mode{fleet.Leased}) || !o.json || o.plot != "x" {
		t.Errorf("%+v", o)
	}
	if c.Replicas != 20 || c.Users != 500 || c.Shape != fleet.Skewed || c.Rate != 3 || c.Load != 0.9 || c.Window != engine.Fixed ||
		c.Length != 150*time.Second || c.Seed != 9 || !c.NoGuard || c.Error != 0.2 || c.Tokens != 10 || c.TokensSigma != 0.1 || c.Slots != 77 ||
		c.MaxWait != 3*time.Second || c.On != 9*time.Second || c.DownFrom != 10*time.Second || c.DownTo != 20*time.Second {
		t.Errorf("%+v", c)
	}
	if (c.ToStore != fleet.Spread{Median: 2 * time.Millisecond, Sigma: 0.25}) || (c.ToProvider != fleet.Spread{Median: 30 * time.Millisecond, Sigma: 0.25}) {
		t.Errorf("%+v, %+v", c.ToStore, c.ToProvider)
	}
	if !slices.Equal(c.Changes, []fleet.Change{{At: time.Minute, Kill: 4}, {At: 2 * time.Minute, Join: 2}}) {
		t.Errorf("%+v", c.Changes)
	}
}

func TestAWrongFlagIsSaidInOneLineThatNamesIt(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"-replicas 0":            "Replicas is 0",
		"-mode leased,best":      `"best"`,
		"-shape x":               "bursty, steady, skewed",
		"-window daily":          "Window is daily",
		"-window x":              "sliding, fixed or bucket",
		"-kill 2":                "-kill",
		"-kill x@3m":             "-kill",
		"-join 1@x":              "-join",
		"-down 3m":               "-down",
		"-kill 8@1m":             "no replica is left",
		"-kill 1@1h":             "Changes[0].At",
		"-kill 9@1m -join 1@2m":  "Changes[0].Kill is 9, but 8 replicas live then",
		"-kill 1@-1s":            "Changes[0].At is -1s",
		"-down 30m-40m":          "DownTo is 40m0s, must be from DownFrom (30m0s) to Length (10m0s)",
		"-down 2m-1m":            "DownTo is 1m0s",
		"-load 0.5 more":         `"more"`,
		"-minutes 0.001":         "Length is 60ms",
		"-minutes 0":             "-minutes is 0",
		"-minutes NaN":           "-minutes is NaN",
		"-minutes 1e300":         "-minutes is 1e+300",
		"-rate 0":                "-rate is 0",
		"-load 0":                "-load is 0",
		"-tokens 0":              "-tokens is 0",
		"-on 0s":                 "-on is 0",
		"-jitter 9":              "ToStore",
		"-to-provider -1s":       "ToProvider",
		"-users 3 -replicas 100": "Users is 3",
	} {
		var out, err bytes.Buffer
		code := run(strings.Fields(flags), &out, &err)
		if code != exitUsage || !strings.Contains(err.String(), want) || strings.Count(err.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q", flags, code, err.String())
		}
	}
}

func TestHelpShowsEveryFlag(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if _, err := parseFlags([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, name := range []string{"-replicas", "-users", "-mode", "-shape", "-guard", "-kill", "-join", "-down", "-json", "-plot", "-seed"} {
		if !strings.Contains(out.String(), "\n  "+name+" ") && !strings.Contains(out.String(), "\n  "+name+"\n") && !strings.Contains(out.String(), "\n  "+name+"\t") {
			t.Errorf("no %s in\n%s", name, out.String())
		}
	}
}

func TestFiguresAreWrittenWithTheirUnits(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 0.0023: "2.3 ms", 0.5: "0.50 s", 97.67: "97.7 s"} {
		if got := seconds(x); got != want {
			t.Errorf("%v s is %q, want %q", x, got, want)
		}
	}
	for x, want := range map[float64]string{0: "0", 0.00001: "<0.01 %", 0.5946: "59.46 %", 1: "100.00 %"} {
		if got := percent(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

func TestANetworkThatTakesNoTime(t *testing.T) {
	t.Parallel()
	o, err := parseFlags(strings.Fields("-to-store 0s -to-provider 0s -jitter 0"), &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.fleet.WithDefaults()
	if err != nil || c.ToStore.Median > time.Nanosecond || c.ToProvider.Median > time.Nanosecond || c.ToStore.Sigma != 0 {
		t.Errorf("%+v, %+v, %v: want no time", c.ToStore, c.ToProvider, err)
	}
}
