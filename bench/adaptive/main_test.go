package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestOneSettingIsPlayedAndPrinted(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	args := []string{"-clients", "3", "-rate", "5", "-window", "sliding", "-hints", "-warm-up", "5m", "-span", "5m", "-seed", "7"}
	if code := run(args, &out, &progress); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	if table := out.String(); !strings.Contains(table, "5/s sliding") || strings.Count(table, "\n") != 2 {
		t.Errorf("printed:\n%s", table)
	}
	if !strings.Contains(progress.String(), "1 of 1: headgate, 3 clients") {
		t.Errorf("told of the progress: %s", &progress)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-policy none", `Setting.Policy is "none"`},
		{"-clients 0", "Setting.Clients is 0"},
		{"-clients 9 -callers 3", "Setting.Callers is 3"},
		{"-rate 0", "Setting.Rate is 0"},
		{"-rate -1", "Setting.Rate is -1"},
		{"-rate Inf", "Setting.Rate is +Inf"},
		{"-rate NaN", "Setting.Rate is NaN"},
		{"-places -3", "Setting.Places is -3"},
		{"-callers 0", "-callers is 0"},
		{"-depth -1s", "-depth is -1s"},
		{"-depth 0s", "-depth is 0s"},
		{"-latency 0s", "-latency is 0s"},
		{"-span 0s", "Span 0s"},
		{"-latency -1s", "-latency is -1s"},
		{"-window square", "square"},
		{"more", `"more"`},
		{"-no", "-no"},
	} {
		var out, told bytes.Buffer
		if code := run(strings.Fields(c.args), &out, &told); code != exitUsage || !strings.Contains(told.String(), c.want) {
			t.Errorf("%s: exit code %d, told %q, want %s", c.args, code, &told, c.want)
		}
	}
	var out, told bytes.Buffer
	if code := run([]string{"-h"}, &out, &told); code != exitOK || !strings.Contains(out.String(), "-failures-count") || told.Len() > 0 {
		t.Errorf("-h: exit code %d, printed %q, told %q", code, &out, &told)
	}
}
