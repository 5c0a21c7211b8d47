// Command filecheck holds the files of a checkout to two rules that no other tool checks: a Go file has at most
// 600 lines, and the Go snippets of the Markdown files at the root are Go.
//
//	go run ./internal/tools/filecheck
//
// It looks at the working directory, which must be the root of the module. It prints one line for each
// finding and exits 1; it exits 2 if a file cannot be read.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintf(os.Stderr, "filecheck: unexpected argument %q\n", os.Args[1])
		os.Exit(2)
	}
	clean, err := run(context.Background(), os.Stdout, ".")
	if err != nil {
		fmt.Fprintf(os.Stderr, "filecheck: %v\n", err)
		os.Exit(2)
	}
	if !clean {
		os.Exit(1)
	}
}

// run checks the checkout in dir, writes what it finds to w and reports whether nothing was found.
func run(ctx context.Context, w io.Writer, dir string) (clean bool, err error) {
	files, long, err := longFiles(dir)
	if err != nil {
		return false, err
	}
	snippets, err := readSnippets(dir)
	if err != nil {
		return false, err
	}
	bad, err := checkSnippets(ctx, dir, snippets)
	if err != nil {
		return false, err
	}
	for _, f := range append(long, bad...) {
		fmt.Fprintf(w, "filecheck: %s\n", f)
	}
	if len(long)+len(bad) > 0 {
		return false, nil
	}
	fmt.Fprintf(w, "filecheck: %d Go files of at most %d lines, %d Go snippets in Markdown\n", files, maxLines, len(snippets))
	return true, nil
}
