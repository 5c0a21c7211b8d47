package main

import (
	"slices"
	"strings"
	"testing"
)

const rules = `
[modules sdk]
example.com/sdk
example.com/needed

[modules x]
golang.org/x/*

[packages]
usage           -               sdk
budget          usage           sdk
budget/quota    usage,budget    sdk
gate            usage,budget    sdk,x

[apart]
gate budget/quota

[leaves]
bench
examples
`

// fake builds the graph of a module m. Each line is a package and what it imports, as folders of m or as
// import paths; the first two elements of an example.com path and the first three of a golang.org path are
// its module.
func fake(t *testing.T, lines ...string) graph {
	t.Helper()
	g := graph{module: "m", nodes: map[string]node{}}
	for _, line := range lines {
		f := strings.Fields(line)
		n := node{}
		switch parts := strings.Split(f[0], "/"); {
		case parts[0] == "example.com":
			n.module = strings.Join(parts[:2], "/")
		case parts[0] == "golang.org":
			n.module = strings.Join(parts[:3], "/")
		case f[0] == "fmt":
		default:
			n.name = f[0]
		}
		path := f[0]
		if n.name != "" {
			path = "m/" + n.name
		}
		for _, imp := range f[1:] {
			if !strings.Contains(imp, ".") && imp != "fmt" {
				imp = "m/" + imp
			}
			n.imports = append(n.imports, imp)
		}
		g.nodes[path] = n
	}
	return g
}

// sound is a module that keeps every rule.
var sound = []string{
	"usage example.com/sdk fmt",
	"budget usage",
	"budget/quota budget usage",
	"gate budget usage golang.org/x/sync/errgroup",
	"bench/double gate golang.org/x/time/rate example.com/only-bench",
	"examples/review bench/double gate budget/quota",
	"example.com/sdk example.com/needed/sub",
	"example.com/needed/sub",
	"example.com/only-bench",
	"golang.org/x/sync/errgroup",
	"golang.org/x/time/rate",
	"fmt",
}

// with returns the sound module with some packages replaced or added.
func with(lines ...string) []string {
	all := slices.Clone(sound)
	for _, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		i := slices.IndexFunc(all, func(l string) bool { return l == name || strings.HasPrefix(l, name+" ") })
		if i < 0 {
			all = append(all, line)
		} else {
			all[i] = line
		}
	}
	return all
}

func TestBrokenRulesAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		packages []string
		want     []string
	}{
		{"a sound module has no finding", sound, nil},
		{
			"a package of the lowest floor imports another package of the module",
			with("usage budget example.com/sdk", "budget"),
			[]string{"package usage imports budget: its line allows nothing"},
		},
		{
			"a package imports one that its line does not name",
			with("budget usage gate", "gate usage golang.org/x/sync/errgroup", "budget/quota usage"),
			[]string{
				"package budget imports gate: its line allows usage",
				"package budget pulls in module golang.org/x/sync, which is in none of its groups (sdk): " +
					"budget -> gate -> golang.org/x/sync/errgroup",
			},
		},
		{
			"a package pulls in a module of another group",
			with("budget usage golang.org/x/time/rate"),
			[]string{
				"package budget pulls in module golang.org/x/time, which is in none of its groups (sdk): " +
					"budget -> golang.org/x/time/rate",
				"package budget/quota pulls in module golang.org/x/time, which is in none of its groups (sdk): " +
					"budget/quota -> budget -> golang.org/x/time/rate",
			},
		},
		{
			"an allowed module begins to need a new one",
			with("example.com/needed/sub example.com/heavy/db", "example.com/heavy/db",
				"budget", "budget/quota", "gate golang.org/x/sync/errgroup"),
			[]string{
				"package usage pulls in module example.com/heavy, which is in none of its groups (sdk): " +
					"usage -> example.com/sdk -> example.com/needed/sub -> example.com/heavy/db",
			},
		},
		{
			"two trees that stay apart meet directly",
			with("gate budget/quota golang.org/x/sync/errgroup"),
			[]string{
				"package gate imports budget/quota: its line allows usage, budget",
				"package gate reaches budget/quota, from which it must stay apart: gate -> budget/quota",
			},
		},
		{
			"two trees that stay apart meet through a package between them",
			with("usage gate example.com/sdk", "budget usage", "gate golang.org/x/sync/errgroup", "budget/quota budget"),
			[]string{
				"package budget pulls in module golang.org/x/sync, which is in none of its groups (sdk): " +
					"budget -> usage -> gate -> golang.org/x/sync/errgroup",
				"package budget/quota pulls in module golang.org/x/sync, which is in none of its groups (sdk): " +
					"budget/quota -> budget -> usage -> gate -> golang.org/x/sync/errgroup",
				"package budget/quota reaches gate, from which it must stay apart: budget/quota -> budget -> usage -> gate",
				"package usage imports gate: its line allows nothing",
				"package usage pulls in module golang.org/x/sync, which is in none of its groups (sdk): " +
					"usage -> gate -> golang.org/x/sync/errgroup",
			},
		},
		{
			"a package below one of the trees counts as the tree",
			with("gate/sub budget/quota", "gate budget usage golang.org/x/sync/errgroup"),
			[]string{
				"package gate/sub has no line under [packages]",
				"package gate/sub reaches budget/quota, from which it must stay apart: gate/sub -> budget/quota",
			},
		},
		{
			"a package outside the leaves imports one inside",
			with("gate budget usage bench/double", "bench/double golang.org/x/time/rate"),
			[]string{"package gate imports bench/double: only tests may import what stands in a leaf"},
		},
		{
			"a package has no line",
			with("budgets usage"),
			[]string{"package budgets has no line under [packages]"},
		},
		{
			"the root package has no line",
			with(". usage"),
			[]string{"package . has no line under [packages]"},
		},
		{
			"an allowed module is needed no more",
			with("example.com/sdk"),
			[]string{"group sdk allows module example.com/needed, which no package pulls in"},
		},
		{
			"no module below an allowed prefix is needed, and a leaf's need does not count",
			with("gate budget usage"),
			[]string{"group x allows module golang.org/x/*, which no package pulls in"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, err := parseHouse(rules)
			if err != nil {
				t.Fatal(err)
			}
			got := check(h, map[string]graph{"linux": fake(t, tt.packages...)})
			if !slices.Equal(got.findings, tt.want) {
				t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(got.findings, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestWhatOneSystemPullsInCounts(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(rules)
	if err != nil {
		t.Fatal(err)
	}
	windows := fake(t, with("usage example.com/sdk example.com/registry/key", "example.com/registry/key",
		"budget", "budget/quota", "gate golang.org/x/sync/errgroup")...)
	got := check(h, map[string]graph{"linux": fake(t, sound...), "windows": windows})
	want := []string{"package usage pulls in module example.com/registry, which is in none of its groups (sdk): " +
		"usage -> example.com/registry/key"}
	if !slices.Equal(got.findings, want) {
		t.Errorf("findings = %q, want %q", got.findings, want)
	}

	unneeded := fake(t, with("example.com/sdk")...)
	got = check(h, map[string]graph{"linux": fake(t, sound...), "windows": unneeded})
	if len(got.findings) > 0 {
		t.Errorf("a module that linux needs is reported as unneeded: %q", got.findings)
	}
}

func TestAbsentPackagesAreNamedAndBreakNothing(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(rules)
	if err != nil {
		t.Fatal(err)
	}
	// Without the gate nothing needs a module of group x, which is no finding: its one user does not exist.
	packages := slices.DeleteFunc(with("bench/double usage"), func(l string) bool { return strings.HasPrefix(l, "gate ") })
	got := check(h, map[string]graph{"linux": fake(t, packages...)})
	if len(got.findings) > 0 {
		t.Errorf("findings = %q, want none", got.findings)
	}
	if want := []string{"gate"}; !slices.Equal(got.absent, want) {
		t.Errorf("absent = %q, want %q", got.absent, want)
	}
}

func TestModulesArePerPackageAndLeavesAreLeftOut(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(rules)
	if err != nil {
		t.Fatal(err)
	}
	got := check(h, map[string]graph{"linux": fake(t, sound...)}).modules
	want := map[string][]string{
		"usage":        {"example.com/needed", "example.com/sdk"},
		"budget":       {"example.com/needed", "example.com/sdk"},
		"budget/quota": {"example.com/needed", "example.com/sdk"},
		"gate":         {"example.com/needed", "example.com/sdk", "golang.org/x/sync"},
	}
	if len(got) != len(want) {
		t.Errorf("packages = %v, want %v", got, want)
	}
	for name, mods := range want {
		if !slices.Equal(got[name], mods) {
			t.Errorf("modules of %s = %q, want %q", name, got[name], mods)
		}
	}
}
