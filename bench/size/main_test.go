package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// genai's HTTP client pulls in a worker that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// review is the command line of the review agent: 40 user requests a minute of
// five calls, 5,800 tokens each, against a million tokens a minute.
const review = "-users-per-min 40 -calls 5 -tokens 5800 -count total -headroom 0.9 -latency 8s -rpm 1000 -tpm 1000000 -replicas 3"

func mustParse(t *testing.T, line string) options {
	t.Helper()
	o, err := parseFlags(strings.Fields(line), t.Output())
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return o
}

func TestTheAnswerIsPrintedBesideItsCheck(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(strings.Fields(review), &out, &errs); code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit code %d, stderr %q", code, errs.String())
	}
	text := out.String()
	for _, row := range [][]string{ // what stands on one line: the name, by hand, simulated
		{"by hand", "simulated"},
		{"limit that binds", "tokens", "tokens"},
		{"calls a minute", "51 (51.7)", "a demand of 2 times that"},
		{"user requests a minute", "10 (10.3)", "9"},
		{"calls in flight, if nothing held them back", "26.7", "2"},
		{"slots", "10", "all in use"},
		{"429s", "0", "0"},
	} {
		found := false
		for line := range strings.Lines(text) {
			rest, all := line, true
			for _, cell := range row {
				_, after, ok := strings.Cut(rest, cell)
				rest, all = after, all && ok
			}
			found = found || all
		}
		if !found {
			t.Errorf("no line with %q in\n%s", row, text)
		}
	}
	for _, advice := range []string{
		"Set Slots: 10 in each replica, and give its gate 333 requests and 333,333 tokens a minute.",
		"a quota of 1,288,889 tokens a minute instead of 1,000,000",
		"calls of at most 4,500 counted tokens",
		"at most 3 calls for a user request",
		"at most 31 user requests a minute",
	} {
		if !strings.Contains(text, advice) {
			t.Errorf("%q is missing in\n%s", advice, text)
		}
	}
}

func TestJSONIsOneObjectOnOneLine(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(strings.Fields(review+" -json -peak 6m"), &out, &errs); code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit code %d, stderr %q", code, errs.String())
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "}\n") {
		t.Errorf("not one line: %q", text)
	}
	var s struct {
		Reckoned struct {
			Binds string  `json:"binds"`
			Calls float64 `json:"calls_per_minute_per_replica"`
			Slots int     `json:"slots_per_replica"`
		}
		Simulated struct {
			Most struct {
				Calls float64 `json:"calls_per_minute_per_replica"`
			} `json:"saturated"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Reckoned.Binds != "tokens" || s.Reckoned.Slots != 10 || s.Reckoned.Calls < 51 || s.Simulated.Most.Calls < 45 {
		t.Errorf("%+v", s)
	}
}

func TestBadFlagsGetOneLineThatNamesFlagAndValueAndExitCode2(t *testing.T) {
	t.Parallel()
	const good = "-users-per-min 40 -calls 5 -tokens 5800 -latency 8s -rpm 1000 -tpm 1000000 "
	for _, c := range []struct{ line, flag, value string }{
		{"", "-users-per-min", "0"},
		{good + "-users-per-min -1", "-users-per-min", "-1"},
		{good + "-users-per-min NaN", "-users-per-min", "NaN"},
		{good + "-users-per-min +Inf", "-users-per-min", "+Inf"},
		{good + "-users-per-min many", "-users-per-min", `"many"`},
		{good + "-tenant a=3", "-tenant", "40"},
		{"-tenant a=3 -tenant a=4", "-tenant", `"a"`},
		{"-tenant =3", "-tenant", `"=3"`},
		{"-tenant a", "-tenant", `"a"`},
		{"-tenant a=x", "-tenant", `"a=x"`},
		{"-tenant a=0", "-tenant", `"a=0"`},
		{good + "-calls 0", "-calls", "0"},
		{good + "-tokens 0", "-tokens", "0"},
		{good + "-tokens 99999999999", "-tokens", "99999999999"},
		{good + "-output 5801", "-output", "5801"},
		{good + "-count both", "-count", `"both"`},
		{good + "-count input", "-output", "5800"},
		{good + "-count input -output 5800", "-output", "5800"},
		{good + "-headroom 0", "-headroom", "0"},
		{good + "-headroom 1.1", "-headroom", "1.1"},
		{good + "-headroom NaN", "-headroom", "NaN"},
		{good + "-latency 0s", "-latency", "0s"},
		{good + "-latency 25h", "-latency", "25h"},
		{good + "-rpm -1", "-rpm", "-1"},
		{good + "-tpm -1", "-tpm", "-1"},
		{good + "-rpm 0 -tpm 0", "-rpm", "-tpm"},
		{good + "-replicas 0", "-replicas", "0"},
		{good + "-replicas 200", "-replicas", "5000"}, // what is left for each
		{good + "-burst 0", "-burst", "0"},
		{good + "-max-wait -1s", "-max-wait", "-1s"},
		{good + "-peak 1s", "-peak", "1s"},
		{good + "-window daily", "-window", "daily"},
		{good + "-window hourly", "-window", "hourly"},
		{good + "-spread 2", "-spread", "2"},
		{good + "-seed -1", "-seed", "-1"},
		{good + "more", "argument", `"more"`},
		{good + "-what", "-what", "-what"},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(c.line), &out, &errs)
		text := errs.String()
		if code != exitUsage || out.Len() > 0 || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") ||
			!strings.Contains(text, c.flag) || !strings.Contains(text, c.value) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want 2, nothing, and one line with %s and %s",
				c.line, code, out.String(), text, c.flag, c.value)
		}
	}
}

func TestHelpGoesToStdoutAndIsNoError(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run([]string{"-h"}, &out, &errs); code != exitOK || errs.Len() > 0 || !strings.Contains(out.String(), "-users-per-min") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
}

func FuzzATenantIsANameAndARateOrAnError(f *testing.F) {
	for _, s := range []string{"acme=25", "a=1e3", "=1", "a=", "a=b=1", "a=-0", "a=0x1p-2", "a=Inf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var q question
		if err := q.addTenant(s); err != nil {
			if len(q.Tenants) > 0 {
				t.Errorf("%q: an error and a tenant", s)
			}
			return
		}
		got := q.Tenants[0]
		if got.Name == "" || !strings.HasPrefix(s, got.Name+"=") || !(got.PerMinute > 0 && got.PerMinute <= maxPerMinute) {
			t.Errorf("%q: %+v", s, got)
		}
		if q.addTenant(s) == nil {
			t.Errorf("%q is accepted twice", s)
		}
	})
}
