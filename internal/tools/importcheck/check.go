package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A report says how a module stands to the rules of its house.
type report struct {
	findings []string // broken rules, sorted, each once
	absent   []string // packages that the rules name and that do not exist, in the order of the rules
	// modules lists the third-party modules that compiling a package pulls in, sorted, by package.
	modules map[string][]string
}

// check compares the graphs of a module, one for each operating system, with the rules. What holds on one
// system only counts like what holds on all.
func check(h house, graphs map[string]graph) report {
	c := checker{house: h, found: map[string]bool{}, modules: map[string]map[string]bool{}}
	for _, goos := range slices.Sorted(maps.Keys(graphs)) {
		g := graphs[goos]
		for _, path := range g.own() {
			c.checkPackage(g, path)
		}
	}
	c.checkUnused()

	rep := report{findings: slices.Sorted(maps.Keys(c.found)), modules: map[string][]string{}}
	for name, mods := range c.modules {
		rep.modules[name] = slices.Sorted(maps.Keys(mods))
	}
	for _, r := range h.rows {
		if c.modules[r.name] == nil {
			rep.absent = append(rep.absent, r.name)
		}
	}
	return rep
}

// A checker gathers what the packages of all graphs break.
type checker struct {
	house   house
	found   map[string]bool
	modules map[string]map[string]bool // third-party modules by the package outside the leaves that pulls them in
}

func (c *checker) findf(format string, args ...any) { c.found[fmt.Sprintf(format, args...)] = true }

// checkPackage holds one package of this module to the rules.
func (c *checker) checkPackage(g graph, path string) {
	name := g.nodes[path].name
	if c.house.isLeaf(name) {
		return
	}
	if c.modules[name] == nil {
		c.modules[name] = map[string]bool{}
	}
	r := c.house.row(name)
	if r == nil {
		c.findf("package %s has no line under [packages]", name)
	}
	for _, imp := range g.nodes[path].imports {
		to := g.nodes[imp].name
		switch {
		case to == "":
		case c.house.isLeaf(to):
			c.findf("package %s imports %s: only tests may import what stands in a leaf", name, to)
		case r != nil && !slices.Contains(r.imports, to):
			c.findf("package %s imports %s: its line allows %s", name, to, list(r.imports))
		}
	}

	order, via := g.reach(path)
	for _, dep := range order {
		n := g.nodes[dep]
		if n.name != "" && c.areApart(name, n.name) {
			c.findf("package %s reaches %s, from which it must stay apart: %s", name, n.name, g.chain(dep, via))
		}
		if n.module == "" || c.modules[name][n.module] {
			continue
		}
		c.modules[name][n.module] = true
		if r != nil && !c.allows(r.groups, n.module) {
			c.findf("package %s pulls in module %s, which is in none of its groups (%s): %s",
				name, n.module, list(r.groups), g.chain(dep, via))
		}
	}
}

// areApart reports whether the rules keep two packages from reaching each other.
func (c *checker) areApart(a, b string) bool {
	return slices.ContainsFunc(c.house.apart, func(p [2]string) bool {
		return inTree(a, p[0]) && inTree(b, p[1]) || inTree(a, p[1]) && inTree(b, p[0])
	})
}

// allows reports whether one of the groups holds the module.
func (c *checker) allows(groups []string, module string) bool {
	return slices.ContainsFunc(groups, func(g string) bool {
		return slices.ContainsFunc(c.house.groups[g], func(entry string) bool { return matches(entry, module) })
	})
}

// checkUnused reports an allowed module that no package needs any more, for an allowance that nobody uses
// would let it come back unseen. A group says nothing while none of the packages that name it exists.
func (c *checker) checkUnused() {
	for group, entries := range c.house.groups {
		exists := false
		used := map[string]bool{}
		for _, r := range c.house.rows {
			if slices.Contains(r.groups, group) && c.modules[r.name] != nil {
				exists = true
				maps.Copy(used, c.modules[r.name])
			}
		}
		for _, entry := range entries {
			isUsed := slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(m string) bool { return matches(entry, m) })
			if exists && !isUsed {
				c.findf("group %s allows module %s, which no package pulls in", group, entry)
			}
		}
	}
}

// list joins names for a message.
func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
