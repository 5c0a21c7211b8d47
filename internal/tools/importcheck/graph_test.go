package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheAnswerOfGoListIsRead(t *testing.T) {
	t.Parallel()
	const answer = `
{"ImportPath": "fmt", "Standard": true, "GoFiles": ["print.go"], "Imports": ["errors"]}
{"ImportPath": "net/http", "Standard": true, "GoFiles": ["h.go"],
 "Imports": ["golang.org/x/net/http/httpguts"], "ImportMap": {"golang.org/x/net/http/httpguts": "vendor/golang.org/x/net/http/httpguts"}}
{"ImportPath": "vendor/golang.org/x/net/http/httpguts", "Standard": true, "GoFiles": ["g.go"]}
{"ImportPath": "x.org/lib/sub", "Module": {"Path": "x.org/lib"}, "CgoFiles": ["c.go"], "Imports": ["C"]}
{"ImportPath": "m.org/m/a", "Module": {"Path": "m.org/m", "Main": true}, "GoFiles": ["a.go"], "Imports": ["fmt", "net/http", "x.org/lib/sub"]}
{"ImportPath": "m.org/m", "Module": {"Path": "m.org/m", "Main": true}, "GoFiles": ["m.go"]}
{"ImportPath": "m.org/m/onlytests", "Module": {"Path": "m.org/m", "Main": true}, "TestGoFiles": ["a_test.go"]}
`
	g, err := decode(strings.NewReader(answer))
	if err != nil {
		t.Fatal(err)
	}
	if g.module != "m.org/m" {
		t.Errorf("module = %q, want m.org/m", g.module)
	}
	if got, want := g.own(), []string{"m.org/m", "m.org/m/a"}; !slices.Equal(got, want) {
		t.Errorf("own packages = %q, want %q", got, want)
	}
	if got := g.nodes["m.org/m"].name; got != "." {
		t.Errorf("name of the root package = %q, want .", got)
	}
	if got := g.nodes["x.org/lib/sub"].module; got != "x.org/lib" {
		t.Errorf("module of x.org/lib/sub = %q, want x.org/lib", got)
	}
	order, via := g.reach("m.org/m/a")
	want := []string{"m.org/m/a", "fmt", "net/http", "x.org/lib/sub", "vendor/golang.org/x/net/http/httpguts"}
	if !slices.Equal(order, want) {
		t.Errorf("reach = %q, want %q", order, want)
	}
	if got, want := g.chain("vendor/golang.org/x/net/http/httpguts", via), "a -> net/http -> vendor/golang.org/x/net/http/httpguts"; got != want {
		t.Errorf("chain = %q, want %q", got, want)
	}
}

func TestAnUnreadableAnswerIsAnError(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, answer, want string }{
		{"no packages", "", "no package of this module"},
		{"cut short", `{"ImportPath": "m.org/m"`, "unexpected EOF"},
		{"outside a module", `{"ImportPath": "a", "GoFiles": ["a.go"]}`, `package "a" belongs to no module`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := decode(strings.NewReader(tt.answer)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("decode = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// module writes the files of a module into a new folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const tinyRules = "[packages]\nlow - -\nhigh low -\n[leaves]\nbench\n"

func TestARealModuleThatKeepsTheRulesPasses(t *testing.T) {
	t.Parallel()
	dir := module(t, map[string]string{
		"go.mod":           "module m.org/m\n\ngo 1.26\n",
		"low/low.go":       "package low\n",
		"low/low_test.go":  "package low_test\n\nimport _ \"m.org/m/bench\"\n",
		"high/high.go":     "package high\n\nimport _ \"m.org/m/low\"\n",
		"bench/bench.go":   "package bench\n\nimport _ \"m.org/m/high\"\n",
		"tests/my_test.go": "package tests\n",
	})
	var out strings.Builder
	clean, err := run(t.Context(), &out, dir, tinyRules, true)
	if err != nil || !clean {
		t.Fatalf("run = %v, %v\n%s", clean, err, out.String())
	}
	want := "high: nothing\nlow: nothing\nimportcheck: 2 packages keep the rules on linux, darwin, windows\n"
	if out.String() != want {
		t.Errorf("output = %q, want %q", out.String(), want)
	}
}

func TestARealModuleThatBreaksARuleOnOneSystemFails(t *testing.T) {
	t.Parallel()
	dir := module(t, map[string]string{
		"go.mod":             "module m.org/m\n\ngo 1.26\n",
		"low/low.go":         "package low\n",
		"low/low_windows.go": "package low\n\nimport _ \"m.org/m/bench\"\n",
		"bench/bench.go":     "package bench\n",
	})
	var out strings.Builder
	clean, err := run(t.Context(), &out, dir, tinyRules, false)
	if err != nil || clean {
		t.Fatalf("run = %v, %v, want a finding\n%s", clean, err, out.String())
	}
	want := "importcheck: package low imports bench: only tests may import what stands in a leaf\n"
	if out.String() != want {
		t.Errorf("output = %q, want %q", out.String(), want)
	}
}

func TestAModuleThatCannotBeReadIsAnErrorAndNotAPass(t *testing.T) {
	t.Parallel()
	dir := module(t, map[string]string{
		"go.mod":     "module m.org/m\n\ngo 1.26\n",
		"low/low.go": "package low\n\nimport _ \"m.org/m/missing\"\n",
	})
	var out strings.Builder
	clean, err := run(t.Context(), &out, dir, tinyRules, false)
	if err == nil || clean || !strings.Contains(err.Error(), "missing") {
		t.Errorf("run = %v, %v, want an error that names the missing package", clean, err)
	}
	_, err = run(t.Context(), &out, dir, "[packages]\nlow -", false)
	if err == nil || !strings.Contains(err.Error(), "house.txt: line 2") {
		t.Errorf("run with bad rules = %v, want an error that names the line", err)
	}
}
