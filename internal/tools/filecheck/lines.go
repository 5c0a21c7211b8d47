package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLines is how long a Go file may be: a longer one has more than one subject.
const maxLines = 600

// longFiles returns how many Go files stand in dir and below it, and a finding for each that is longer than
// maxLines. Folders whose names begin with a dot or an underscore are left out, as the go command does, and so
// is testdata.
func longFiles(dir string) (files int, findings []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != dir && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || filepath.Ext(name) != ".go" {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := countLines(text); n > maxLines {
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			findings = append(findings, fmt.Sprintf("%s has %d lines, more than %d: give each subject its own file",
				filepath.ToSlash(rel), n, maxLines))
		}
		return nil
	})
	return files, findings, err
}

// countLines returns how many lines text has; a last line without a line break counts.
func countLines(text []byte) int {
	n := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}
