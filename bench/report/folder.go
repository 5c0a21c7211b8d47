package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The files of a report.
const (
	pageFile    = "index.html"
	resultsFile = "results.json"
	plotsFolder = "plots"
)

// generator marks a page as one of ours, near its beginning.
const generator = `<meta name="generator" content="headgate bench/report">`

// checkFolder refuses a folder that holds something else than a report, so that
// a slip of the pen overwrites nothing.
func checkFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("-out %s: %w", dir, err)
	case len(entries) == 0:
		return nil
	}
	f, err := os.Open(filepath.Join(dir, pageFile))
	if err == nil {
		defer f.Close()
		head := make([]byte, 1024)
		n, _ := io.ReadFull(f, head) // a short file is no report either
		if bytes.Contains(head[:n], []byte(generator)) {
			return nil
		}
	}
	return fmt.Errorf("-out %s: the folder is not empty and holds no report", dir)
}

// writeFolder writes the report into the folder, in place of the one that may
// be there.
func writeFolder(dir string, r *report, progress io.Writer) error {
	plots := filepath.Join(dir, plotsFolder)
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	old, err := os.ReadDir(plots)
	if err != nil {
		return err
	}
	for _, f := range old {
		if ext := filepath.Ext(f.Name()); ext == ".svg" || ext == ".png" {
			if err := os.Remove(filepath.Join(plots, f.Name())); err != nil {
				return err
			}
		}
	}
	// The page comes first: it is what makes the folder a report's, should the
	// rest not be finished.
	var page, results bytes.Buffer
	if err := r.writePage(&page); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, pageFile), page.Bytes(), 0o644); err != nil {
		return err
	}
	if err := writeJSON(&results, r.results); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, resultsFile), results.Bytes(), 0o644); err != nil {
		return err
	}
	for i, s := range r.shapes {
		for _, w := range r.windows {
			name := plotName(s, w)
			if err := r.writePlots(filepath.Join(plots, name), s, w); err != nil {
				return fmt.Errorf("plot %s: %w", name, err)
			}
		}
		fmt.Fprintf(progress, "plots: %d of %d shapes\n", i+1, len(r.shapes))
	}
	fmt.Fprintf(progress, "%s\n", filepath.Join(dir, pageFile))
	return nil
}
