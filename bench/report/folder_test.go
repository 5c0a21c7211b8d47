package main

import (
	"bytes"
	"encoding/json"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// files lists a folder, with folders below it.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestAReportIsAPageTwoPlotsForEachShapeAndWindowAndTheResults(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.ArtifactDir(), "new", "report")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-out", dir, "-seed", "7"}, &out, &errs, small()); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if out.Len() > 0 {
		t.Errorf("stdout %q, want nothing without -json", out.String())
	}
	want := []string{"index.html", "results.json"}
	for _, s := range []string{"herd", "hog"} {
		for _, w := range []string{"bucket", "fixed", "sliding"} {
			want = append(want, "plots/"+s+"-"+w+".png", "plots/"+s+"-"+w+".svg")
		}
	}
	slices.Sort(want)
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if n := strings.Count(errs.String(), "\n"); n != 18+2+1 { // runs, shapes plotted, where it is
		t.Errorf("%d lines of progress:\n%s", n, errs.String())
	}

	f, err := os.Open(filepath.Join(dir, "plots", "herd-fixed.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() < 800 || b.Dy() < 400 {
		t.Errorf("a picture of %v pixels", b)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "plots", "hog-sliding.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"No gate", "Headgate, fair order", "no result", "at most 100 %", "60 in all"} {
		if !bytes.Contains(svg, []byte(">"+text+"<")) {
			t.Errorf("the plot does not say %q", text)
		}
	}
}

func TestAReportReplacesAReportAndItsPlots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // empty: allowed
	for _, args := range [][]string{{"-out", dir}, {"-out", dir, "-shape", "hog", "-window", "fixed"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs, small()); code != exitOK {
			t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
		}
	}
	want := []string{"index.html", "plots/hog-fixed.png", "plots/hog-fixed.svg", "results.json"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestAFolderThatHoldsSomethingElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"notes.txt":  "mine",
		"index.html": "<!DOCTYPE html><title>mine</title>",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		c := small()
		c.run = func(burst.Shape, burst.Policy, burst.Window, uint64) (burst.Result, error) {
			t.Error("a run before the folder was looked at")
			return burst.Result{}, nil
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"-out", dir}, &out, &errs, c)
		if code != exitUsage || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), dir) {
			t.Errorf("%s: exit code %d, stderr %q; want 2 and one line with the folder", name, code, errs.String())
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != content || len(files(t, dir)) != 1 {
			t.Errorf("%s: now %q (%v), beside %q", name, got, err, files(t, dir))
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkFolder(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in place of a folder: %v", err)
	}
}

func TestResultsAreOneJSONArray(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-json", "-window", "sliding,bucket", "-policy", "oracle,none", "-seed", "9"}, &out, &errs, small()); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var got []burst.Result
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, r := range got {
		if r.Seed != 9 {
			t.Errorf("seed %d", r.Seed)
		}
		cells = append(cells, r.Shape+" "+r.Window+" "+r.Policy)
	}
	want := []string{ // in the order of the catalogue, not of the command line
		"herd sliding none", "herd sliding oracle", "herd bucket none", "herd bucket oracle",
		"hog sliding none", "hog sliding oracle", "hog bucket none", "hog bucket oracle",
	}
	if !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
}
