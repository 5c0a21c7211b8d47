package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkout writes the files of a module into a new folder.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module m.org/m\n\ngo 1.26\n"
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

// goFile returns a Go file of n lines.
func goFile(n int) string {
	return "package p\n" + strings.Repeat("//\n", n-1)
}

func TestFindingsAreReportedAndNothingElseIs(t *testing.T) {
	t.Parallel()
	const fence = "```"
	tests := []struct {
		name  string
		files map[string]string
		want  string // output
	}{
		{
			"files at the limit pass, and folders that Go leaves out are left out",
			map[string]string{
				"p/p.go":            goFile(600),
				"p/q.txt":           strings.Repeat("\n", 601),
				"p/testdata/big.go": goFile(601),
				".hidden/big.go":    goFile(601),
				"_gone/big.go":      goFile(601),
			},
			"filecheck: 1 Go files of at most 600 lines, 0 Go snippets in Markdown\n",
		},
		{
			"a file over the limit is a finding",
			map[string]string{"p/p.go": goFile(601), "p/p_test.go": strings.TrimSuffix(goFile(602), "\n")},
			"filecheck: p/p.go has 601 lines, more than 600: give each subject its own file\n" +
				"filecheck: p/p_test.go has 602 lines, more than 600: give each subject its own file\n",
		},
		{
			"a whole program compiles against the module, and a fragment parses",
			map[string]string{
				"p/p.go": "package p\n\nfunc F() int { return 1 }\n",
				"README.md": fence + "go\npackage main\n\nimport \"m.org/m/p\"\n\nfunc main() { println(p.F()) }\n" + fence + "\n" +
					fence + "go\nx, err := call(ctx)\n" + fence + "\n",
			},
			"filecheck: 1 Go files of at most 600 lines, 2 Go snippets in Markdown\n",
		},
		{
			"a program that does not compile is a finding with the line of the Markdown file",
			map[string]string{
				"p/p.go":    "package p\n",
				"README.md": "# Title\n\n" + fence + "go\npackage main\n\nimport \"m.org/m/p\"\n\nfunc main() { println(p.F()) }\n" + fence + "\n",
			},
			"filecheck: README.md:8: undefined: p.F\n",
		},
		{
			"a fragment that does not parse is a finding with the line of the Markdown file",
			map[string]string{"USE.md": "text\n" + fence + "go\nok()\nx := f(]\n" + fence + "\n"},
			"filecheck: USE.md:4: expected operand, found ']'\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			clean, err := run(t.Context(), &out, checkout(t, tt.files))
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("output:\n%s\nwant:\n%s", out.String(), tt.want)
			}
			if wantClean := strings.Contains(tt.want, "at most"); clean != wantClean {
				t.Errorf("clean = %v, want %v", clean, wantClean)
			}
		})
	}
}

func TestNothingIsWrittenIntoTheCheckout(t *testing.T) {
	t.Parallel()
	dir := checkout(t, map[string]string{"README.md": "```go\npackage main\n\nfunc main() {}\n```\n"})
	var out strings.Builder
	if clean, err := run(t.Context(), &out, dir); err != nil || !clean {
		t.Fatalf("run = %v, %v\n%s", clean, err, out.String())
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "README.md go.mod" {
		t.Errorf("the checkout holds %s, want README.md go.mod", got)
	}
}

func TestAMissingCheckoutIsAnErrorAndNotAPass(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if clean, err := run(t.Context(), &out, filepath.Join(t.TempDir(), "none")); err == nil || clean {
		t.Errorf("run = %v, %v, want an error", clean, err)
	}
}
