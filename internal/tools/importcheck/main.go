// Command importcheck holds the module to its import rules: which package may import which, and which
// third-party modules compiling a package may pull in, so that nobody pays for what they do not import.
//
// The rules stand in house.txt beside this file and are compiled in. The check reads the import graph of the
// non-test files on Linux, macOS and Windows with "go list", in the module of the working directory:
//
//	go run ./internal/tools/importcheck
//	go run ./internal/tools/importcheck -list
//
// It prints one line for each broken rule and exits 1; it exits 2 if the graph cannot be read. With -list it
// also prints, for every package outside the leaves, the third-party modules that compiling it pulls in.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

//go:embed house.txt
var houseText string

// systems are the operating systems whose graphs are read: what a package pulls in differs between them.
var systems = []string{"linux", "darwin", "windows"}

func main() {
	listModules := flag.Bool("list", false, "print the third-party modules that each package pulls in")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "importcheck: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	clean, err := run(context.Background(), os.Stdout, ".", houseText, *listModules)
	if err != nil {
		fmt.Fprintf(os.Stderr, "importcheck: %v\n", err)
		os.Exit(2)
	}
	if !clean {
		os.Exit(1)
	}
}

// run checks the module in dir against the rules in text, writes what it finds to w and reports whether
// nothing was found.
func run(ctx context.Context, w io.Writer, dir, text string, listModules bool) (clean bool, err error) {
	h, err := parseHouse(text)
	if err != nil {
		return false, fmt.Errorf("house.txt: %w", err)
	}
	graphs := map[string]graph{}
	for _, goos := range systems {
		if graphs[goos], err = load(ctx, dir, goos); err != nil {
			return false, err
		}
	}
	rep := check(h, graphs)
	if listModules {
		for _, name := range slices.Sorted(maps.Keys(rep.modules)) {
			fmt.Fprintf(w, "%s: %s\n", name, list(rep.modules[name]))
		}
	}
	for _, f := range rep.findings {
		fmt.Fprintf(w, "importcheck: %s\n", f)
	}
	if len(rep.findings) > 0 {
		return false, nil
	}
	absent := ""
	if len(rep.absent) > 0 {
		absent = "; not there yet: " + strings.Join(rep.absent, ", ")
	}
	fmt.Fprintf(w, "importcheck: %d packages keep the rules on %s%s\n",
		len(rep.modules), strings.Join(systems, ", "), absent)
	return true, nil
}
