package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A snippet is a block of a Markdown file that is fenced as "go".
type snippet struct {
	file string // Markdown file it stands in
	line int    // line of its first line of code, counted from 1
	code string
}

// isProgram reports whether the snippet is a whole file; anything else is a fragment.
func (s snippet) isProgram() bool {
	for line := range strings.Lines(s.code) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			return strings.HasPrefix(line, "package ")
		}
	}
	return false
}

// at returns code with a directive before it that makes Go's tools count its lines as those of the Markdown
// file, line being the one where code begins.
func (s snippet) at(line int, code string) string {
	return fmt.Sprintf("//line %s:%d\n%s\n", s.file, line, code)
}

// readSnippets returns the Go snippets of the Markdown files that stand in dir itself.
func readSnippets(dir string) ([]snippet, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	var all []snippet
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, findSnippets(filepath.Base(path), string(text))...)
	}
	return all, nil
}

// findSnippets returns the Go snippets of one Markdown text: what stands between a line that begins a fence of
// three or more backticks with the info string "go" (CommonMark 0.31, section "Fenced code blocks") and the
// line that ends it. A fence that is never closed ends with the text. Blocks of other languages are passed
// over whole, so a fence inside them begins nothing.
func findSnippets(file, text string) []snippet {
	var found []snippet
	fence, isGo := "", false
	var code strings.Builder
	first := 0
	n := 0
	for line := range strings.Lines(text) {
		n++
		trimmed := strings.TrimSpace(line)
		ticks := len(trimmed) - len(strings.TrimLeft(trimmed, "`"))
		switch {
		case fence == "" && ticks >= 3:
			info := strings.Fields(trimmed[ticks:])
			fence, isGo = trimmed[:ticks], len(info) > 0 && info[0] == "go"
			first = n + 1
			code.Reset()
		case fence != "" && ticks == len(trimmed) && ticks >= len(fence):
			if isGo {
				found = append(found, snippet{file: file, line: first, code: code.String()})
			}
			fence = ""
		case fence != "":
			code.WriteString(line)
		}
	}
	if fence != "" && isGo {
		found = append(found, snippet{file: file, line: first, code: code.String()})
	}
	return found
}

// checkSnippets returns a finding for each snippet that is not Go: a whole file must compile as a package of
// the module in dir, a fragment must parse.
func checkSnippets(ctx context.Context, dir string, snippets []snippet) (findings []string, err error) {
	var programs []snippet
	for _, s := range snippets {
		if s.isProgram() {
			programs = append(programs, s)
		} else if err := parseFragment(s); err != nil {
			findings = append(findings, err.Error())
		}
	}
	if len(programs) == 0 {
		return findings, nil
	}
	broken, err := compile(ctx, dir, programs)
	return append(findings, broken...), err
}

// parseFragment reports why a snippet is neither a list of declarations nor a list of statements, with
// imports before either or not.
func parseFragment(s snippet) error {
	declarations := "package p\n" + s.at(s.line, s.code)
	if _, err := parser.ParseFile(token.NewFileSet(), "", declarations, parser.SkipObjectResolution); err == nil {
		return nil
	}
	imports, body := splitImports(s.code)
	statements := "package p\n" + s.at(s.line, imports) +
		"func _() {\n" + s.at(s.line+strings.Count(imports, "\n"), body) + "}\n"
	_, err := parser.ParseFile(token.NewFileSet(), "", statements, parser.SkipObjectResolution)
	var all scanner.ErrorList
	if errors.As(err, &all) {
		return all[0] // the first; the others follow from it
	}
	return err
}

// splitImports parts the import declarations that code begins with from the rest.
func splitImports(code string) (imports, rest string) {
	end, inGroup := 0, false
	n := 0
	for line := range strings.Lines(code) {
		n += len(line)
		trimmed := strings.TrimSpace(line)
		switch {
		case inGroup:
			inGroup = trimmed != ")"
		case strings.HasPrefix(trimmed, "import "):
			inGroup = strings.HasSuffix(trimmed, "(")
		case trimmed == "" || strings.HasPrefix(trimmed, "//"):
			continue
		default:
			return code[:end], code[end:]
		}
		end = n
	}
	return code[:end], code[end:]
}

// compile type-checks each program as a package of the module in dir, without writing into it: the go command is
// told to see files that are not there.
func compile(ctx context.Context, dir string, programs []snippet) (findings []string, err error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "filecheck-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)

	overlay := struct{ Replace map[string]string }{map[string]string{}}
	args := []string{"build", "-mod=readonly", "-o", os.DevNull, "-overlay", filepath.Join(tmp, "overlay.json")}
	for i, s := range programs {
		onDisk := filepath.Join(tmp, fmt.Sprintf("snippet%d.go", i))
		if err := os.WriteFile(onDisk, []byte(s.at(s.line, s.code)), 0o600); err != nil {
			return nil, err
		}
		pkg := fmt.Sprintf("internal/snippet%d", i)
		overlay.Replace[filepath.Join(root, filepath.FromSlash(pkg), "snippet.go")] = onDisk
		args = append(args, "./"+pkg)
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			findings = append(findings, line)
		}
	}
	if len(findings) == 0 {
		return nil, fmt.Errorf("compile the snippets: %w", err)
	}
	return slices.Compact(findings), nil
}
