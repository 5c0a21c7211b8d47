package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A graph is what the packages of this module import, directly and through others, on one operating system.
type graph struct {
	module string          // path of this module
	nodes  map[string]node // by import path
}

// A node is one package of the graph.
type node struct {
	name    string   // folder relative to the module's root, for packages of this module; else ""
	module  string   // path of the third-party module that holds it; "" for this module and the standard library
	imports []string // import paths, those of tests left out
}

// load asks the go command for the graph of the module in dir on the given operating system. It neither
// changes go.mod nor looks at a workspace file. cgo counts as enabled, whatever this machine has, so that the
// answer is the same everywhere.
func load(ctx context.Context, dir, goos string) (graph, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-deps",
		"-json=ImportPath,Standard,Module,Imports,ImportMap,GoFiles,CgoFiles", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=1", "GOWORK=off")
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return graph{}, fmt.Errorf("go list for %s: %w\n%s", goos, err, strings.TrimSpace(stderr.String()))
	}
	return decode(strings.NewReader(out.String()))
}

// decode reads the packages that "go list -deps -json" printed. Packages without a Go file that can be
// compiled (test files only) are left out.
func decode(r io.Reader) (graph, error) {
	g := graph{nodes: map[string]node{}}
	dec := json.NewDecoder(r)
	for {
		var p struct {
			ImportPath string
			Standard   bool
			Module     *struct {
				Path string
				Main bool
			}
			Imports   []string
			ImportMap map[string]string
			GoFiles   []string
			CgoFiles  []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return graph{}, fmt.Errorf("read the answer of go list: %w", err)
		}
		if len(p.GoFiles)+len(p.CgoFiles) == 0 {
			continue
		}
		n := node{}
		for _, imp := range p.Imports {
			if mapped, ok := p.ImportMap[imp]; ok {
				imp = mapped
			}
			n.imports = append(n.imports, imp)
		}
		switch {
		case p.Standard:
		case p.Module == nil:
			return graph{}, fmt.Errorf("package %q belongs to no module", p.ImportPath)
		case p.Module.Main:
			g.module = p.Module.Path
			n.name = folder(p.ImportPath, g.module)
		default:
			n.module = p.Module.Path
		}
		g.nodes[p.ImportPath] = n
	}
	if g.module == "" {
		return graph{}, errors.New("go list found no package of this module")
	}
	return g, nil
}

// folder returns the folder of a package relative to the root of its module; "." is the root itself.
func folder(importPath, module string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// own returns the import paths of this module's packages, sorted.
func (g graph) own() []string {
	var paths []string
	for path, n := range g.nodes {
		if n.name != "" {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// reach returns every package that compiling root needs, root included, each with the package that first
// led to it (root leads to itself). The walk is breadth first in sorted order, so chains are shortest and
// the same on every run.
func (g graph) reach(root string) (order []string, via map[string]string) {
	via = map[string]string{root: root}
	order = []string{root}
	for i := 0; i < len(order); i++ {
		imports := slices.Sorted(slices.Values(g.nodes[order[i]].imports))
		for _, imp := range imports {
			if _, known := g.nodes[imp]; !known {
				continue // "C" and "unsafe" lead nowhere
			}
			if _, seen := via[imp]; !seen {
				via[imp] = order[i]
				order = append(order, imp)
			}
		}
	}
	return order, via
}

// chain names the packages on the way to path, from the root of a reach on.
func (g graph) chain(path string, via map[string]string) string {
	steps := []string{}
	for {
		step := path
		if n := g.nodes[path]; n.name != "" {
			step = n.name
		}
		steps = append(steps, step)
		if via[path] == path {
			break
		}
		path = via[path]
	}
	slices.Reverse(steps)
	return strings.Join(steps, " -> ")
}
