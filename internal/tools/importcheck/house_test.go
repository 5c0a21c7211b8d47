package main

import (
	"strings"
	"testing"
)

func TestTheRulesOfThisModuleAreReadable(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(houseText)
	if err != nil {
		t.Fatal(err)
	}
	for _, floor := range []string{"usage", "retry", "fanout"} {
		if r := h.row(floor); r == nil || len(r.imports) > 0 {
			t.Errorf("%s must have a line and import no package of the module: %+v", floor, r)
		}
	}
	c := checker{house: h}
	for _, pair := range [][2]string{
		{"ratelimited", "budget/quota"},
		{"budget/quota", "ratelimited"},
		{"ratelimited/genaimodel", "budget/quota/sqlledger"},
	} {
		if !c.areApart(pair[0], pair[1]) {
			t.Errorf("%s and %s must stay apart", pair[0], pair[1])
		}
	}
	for _, leaf := range []string{"bench", "bench/gemini", "examples/review"} {
		if !h.isLeaf(leaf) {
			t.Errorf("%s must be a leaf", leaf)
		}
	}
	if h.isLeaf("benchmark") {
		t.Error("a leaf is a folder, not the beginning of a name")
	}
}

func TestBadRulesAreRefusedWithLineAndValue(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"unknown section", "\n[modulez a]", `line 2: unknown section "[modulez a]"`},
		{"section not closed", "[packages", `line 1: unknown section "[packages"`},
		{"group without a name", "[modules]", `line 1: unknown section "[modules]"`},
		{"text before a section", "usage - -", `line 1: "usage" stands before the first section`},
		{"group declared twice", "[modules a]\n[modules a]", `line 2: group "a" is declared twice`},
		{"module twice in a group", "[modules a]\nm.org/b\nm.org/b", `line 3: module "m.org/b" stands twice in group "a"`},
		{"too few columns", "[packages]\nusage -", `line 2: section packages wants 3 columns, got 2: "usage -"`},
		{"too many columns", "[leaves]\nbench examples", `line 2: section leaves wants 1 columns, got 2: "bench examples"`},
		{"package twice", "[packages]\nusage - -\nusage - -", `line 3: package "usage" is declared twice`},
		{"import without a line", "[packages]\nusage bugdet -", `package "usage" may import "bugdet", which has no line of its own`},
		{"group not declared", "[packages]\nusage - sdk", `package "usage" may pull in group "sdk", which is not declared`},
		{"group never named", "[modules sdk]\nm.org/b\n[packages]\nusage - -", `group "sdk" is named by no package`},
		{"line for a leaf", "[packages]\nbench/a - -\n[leaves]\nbench", `package "bench/a" stands in a leaf and needs no line`},
		{"empty element", "[packages]\nusage , -", `package "usage" may import "", which has no line of its own`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := parseHouse(tt.text); err == nil || err.Error() != tt.want {
				t.Errorf("parseHouse(%q) = %v, want %s", tt.text, err, tt.want)
			}
		})
	}
}

func TestPrefixesMatchBelowTheSlashOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		entry, module string
		want          bool
	}{
		{"golang.org/x/*", "golang.org/x/net", true},
		{"golang.org/x/*", "golang.org/x", false},
		{"golang.org/x/*", "golang.org/xtra/net", false},
		{"m.org/a", "m.org/a", true},
		{"m.org/a", "m.org/a/v2", false},
		{"m.org/a*", "m.org/ab", false},
		{"*", "m.org/a", false},
	}
	for _, tt := range tests {
		if got := matches(tt.entry, tt.module); got != tt.want {
			t.Errorf("matches(%q, %q) = %v, want %v", tt.entry, tt.module, got, tt.want)
		}
	}
}

// Rules that are accepted refer only to what they declare.
func FuzzParseHouse(f *testing.F) {
	f.Add(houseText)
	f.Add(rules)
	f.Add("[modules a]\nb\n[packages]\nc - a\n[apart]\nc d\n[leaves]\ne")
	f.Add("[packages]\nusage - -\n[leaves]\nusage")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHouse(text)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error says nothing")
			}
			return
		}
		seen := map[string]bool{}
		for _, r := range h.rows {
			if seen[r.name] {
				t.Errorf("package %q has two lines", r.name)
			}
			seen[r.name] = true
			if h.isLeaf(r.name) {
				t.Errorf("package %q stands in a leaf", r.name)
			}
			for _, g := range r.groups {
				if _, ok := h.groups[g]; !ok {
					t.Errorf("group %q is not declared", g)
				}
			}
			for _, imp := range r.imports {
				if h.row(imp) == nil {
					t.Errorf("package %q has no line", imp)
				}
			}
		}
	})
}
