package main

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
)

// A house is the set of rules that importcheck holds the module to. Package names in it are folders relative
// to the module's root.
type house struct {
	groups map[string][]string // third-party module paths by group; a path that ends in "/*" stands for all below it
	rows   []row
	apart  [][2]string // pairs of trees that must not reach each other
	leaves []string    // trees that nothing outside the leaves may import
}

// A row is the rule for one package.
type row struct {
	name    string
	imports []string // packages of this module that it may import directly
	groups  []string // groups of modules that compiling it may pull in
}

// parseHouse reads the rules from text.
//
// The text has sections, each opened by a line in brackets. [modules NAME] lists one module path a line and
// names the group that they form. [packages] has three columns separated by blanks: the package, what it may
// import of this module, and the groups that compiling it may pull in; the last two are comma-separated, and
// "-" is the empty list. [apart] has two trees a line, [leaves] one. Empty lines and lines that begin with "#"
// are skipped. An error names the line and the value; a name that is used but not declared, declared
// twice, or declared and never used is an error.
func parseHouse(text string) (house, error) {
	h := house{groups: map[string][]string{}}
	section, group := "", ""
	sc := bufio.NewScanner(strings.NewReader(text))
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if inner, ok := strings.CutPrefix(line, "["); ok {
			inner, closed := strings.CutSuffix(inner, "]")
			f := strings.Fields(inner)
			switch {
			case closed && len(f) == 2 && f[0] == "modules":
				section, group = f[0], f[1]
				if _, dup := h.groups[group]; dup {
					return house{}, fmt.Errorf("line %d: group %q is declared twice", n, group)
				}
				h.groups[group] = nil
			case closed && len(f) == 1 && (f[0] == "packages" || f[0] == "apart" || f[0] == "leaves"):
				section = f[0]
			default:
				return house{}, fmt.Errorf("line %d: unknown section %q", n, line)
			}
			continue
		}
		if err := h.add(section, group, strings.Fields(line)); err != nil {
			return house{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return house{}, fmt.Errorf("read the rules: %w", err)
	}
	return h, h.validate()
}

// add puts one line's fields into the section that the line stands in.
func (h *house) add(section, group string, f []string) error {
	want := map[string]int{"modules": 1, "packages": 3, "apart": 2, "leaves": 1}[section]
	if want == 0 {
		return fmt.Errorf("%q stands before the first section", f[0])
	}
	if len(f) != want {
		return fmt.Errorf("section %s wants %d columns, got %d: %q", section, want, len(f), strings.Join(f, " "))
	}
	switch section {
	case "modules":
		if slices.Contains(h.groups[group], f[0]) {
			return fmt.Errorf("module %q stands twice in group %q", f[0], group)
		}
		h.groups[group] = append(h.groups[group], f[0])
	case "packages":
		if h.row(f[0]) != nil {
			return fmt.Errorf("package %q is declared twice", f[0])
		}
		h.rows = append(h.rows, row{name: f[0], imports: columns(f[1]), groups: columns(f[2])})
	case "apart":
		h.apart = append(h.apart, [2]string{f[0], f[1]})
	case "leaves":
		h.leaves = append(h.leaves, f[0])
	}
	return nil
}

// columns splits a comma-separated list; "-" is the empty one.
func columns(s string) []string {
	if s == "-" {
		return nil
	}
	return strings.Split(s, ",")
}

// validate reports a name that a rule uses and no rule declares, and a group that no rule uses.
func (h *house) validate() error {
	named := map[string]bool{}
	for _, r := range h.rows {
		if h.isLeaf(r.name) {
			return fmt.Errorf("package %q stands in a leaf and needs no line", r.name)
		}
		for _, imp := range r.imports {
			if h.row(imp) == nil {
				return fmt.Errorf("package %q may import %q, which has no line of its own", r.name, imp)
			}
		}
		for _, g := range r.groups {
			if _, ok := h.groups[g]; !ok {
				return fmt.Errorf("package %q may pull in group %q, which is not declared", r.name, g)
			}
			named[g] = true
		}
	}
	for g := range h.groups {
		if !named[g] {
			return fmt.Errorf("group %q is named by no package", g)
		}
	}
	return nil
}

// row returns the rule for the named package, or nil.
func (h *house) row(name string) *row {
	i := slices.IndexFunc(h.rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &h.rows[i]
}

// isLeaf reports whether the named package stands in one of the leaves.
func (h *house) isLeaf(name string) bool {
	return slices.ContainsFunc(h.leaves, func(tree string) bool { return inTree(name, tree) })
}

// inTree reports whether the named package is tree or stands below it.
func inTree(name, tree string) bool {
	return name == tree || strings.HasPrefix(name, tree+"/")
}

// matches reports whether a module path is the one that entry names, or stands below it where entry ends in "/*".
func matches(entry, module string) bool {
	if prefix, ok := strings.CutSuffix(entry, "*"); ok && strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(module, prefix)
	}
	return entry == module
}
