package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

func TestBadFlagsGetOneLineThatNamesFlagAndValueAndExitCode2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, flag, value string }{
		{"", "-out", "-json"},
		{"-json -shape nobody", "-shape", `"nobody"`},
		{"-json -shape herd,", "-shape", `""`},
		{"-json -policy herd", "-policy", `"herd"`},
		{"-json -window daily", "-window", `"daily"`},
		{"-json -seed -1", "-seed", "-1"},
		{"-json more", "argument", `"more"`},
		{"-what", "-what", "-what"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(c.line), &out, &errs, small())
		text := errs.String()
		if code != exitUsage || out.Len() > 0 || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") ||
			!strings.Contains(text, c.flag) || !strings.Contains(text, c.value) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want 2, nothing, and one line with %s and %s",
				c.line, code, out.String(), text, c.flag, c.value)
		}
	}
}

func TestHelpNamesEveryShapePolicyAndWindow(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &out, &errs, small()); code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit code %d, stderr %q", code, errs.String())
	}
	for _, name := range []string{"herd, hog", "none, headgate-fair, oracle", "fixed, sliding, bucket"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("%q is missing in\n%s", name, out.String())
		}
	}
}

func TestARunThatFailsStopsTheOthersAndIsNamed(t *testing.T) {
	t.Parallel()
	c := small()
	broken := errors.New("broken")
	var runs atomic.Int32
	c.run = func(s burst.Shape, p burst.Policy, w burst.Window, seed uint64) (burst.Result, error) {
		if runs.Add(1); p.Name == "headgate-fair" {
			return burst.Result{}, broken
		}
		return play(s, p, w, seed)
	}
	dir := t.TempDir()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-out", dir, "-json"}, &out, &errs, c)
	if code != exitFailed || out.Len() > 0 || !strings.Contains(errs.String(), "herd / headgate-fair / ") || !strings.Contains(errs.String(), "broken") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
	if n := runs.Load(); n == 18 {
		t.Error("every cell was run after one had failed")
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("files %q were written", got)
	}
}

func TestAnInterruptEndsTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := small()
	c.run = func(s burst.Shape, p burst.Policy, w burst.Window, seed uint64) (burst.Result, error) {
		cancel()
		return play(s, p, w, seed)
	}
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"-json"}, &out, &errs, c); code != exitFailed || out.Len() > 0 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
}

func TestARealRunMakesAReport(t *testing.T) {
	t.Parallel()
	c := everything()
	if len(c.shapes) == 0 || len(c.policies) == 0 {
		t.Fatal("there is nothing to run")
	}
	dir := t.TempDir()
	var out, errs bytes.Buffer
	args := []string{"-out", dir, "-json", "-shape", "review-ten", "-window", "sliding", "-seed", "3"}
	if code := run(t.Context(), args, &out, &errs, c); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var results []burst.Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Shape != "review-ten" || r.Policy != c.policies[i].Name || r.Window != "sliding" || r.Seed != 3 {
			t.Errorf("result %d is of %s / %s / %s, seed %d", i, r.Shape, r.Policy, r.Window, r.Seed)
		}
		if (r.Err == "") != (len(r.Series) > 0) {
			t.Errorf("%s: %d samples, error %q", r.Policy, len(r.Series), r.Err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if bytes.Contains(text, []byte(bad)) {
			t.Errorf("the page contains %q", bad)
		}
	}
}

func FuzzAChoiceIsAPartOfAllInTheirOrderOrAnError(f *testing.F) {
	for _, s := range []string{"a", "c,a", "a,a", "", ",", "a,", "d", "a b"} {
		f.Add(s)
	}
	all := []string{"a", "b", "c"}
	same := func(s string) string { return s }
	f.Fuzz(func(t *testing.T, list string) {
		got, err := choose(list, all, same)
		if err != nil {
			return
		}
		if len(got) == 0 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%q: %q", list, got)
		}
		for _, w := range strings.Split(list, ",") {
			if !slices.Contains(got, w) {
				t.Errorf("%q: %q lacks %q", list, got, w)
			}
		}
	})
}
