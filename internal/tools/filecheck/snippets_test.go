package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyClosedGoFencesAreSnippets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []snippet
	}{
		{"no fence", "x := 1\n", nil},
		{"another language", "```sh\ngo test\n```\n", nil},
		{"a language that begins with go", "```gomod\nmodule m\n```\n", nil},
		{"no language", "```\nx := 1\n```\n", nil},
		{"one", "a\n\n```go\nx := 1\n```\nb\n", []snippet{{"F.md", 4, "x := 1\n"}}},
		{"attributes after the language", "```go title=\"a\"\nx := 1\n```\n", []snippet{{"F.md", 2, "x := 1\n"}}},
		{"two", "```go\na()\n```\n```go\nb()\n```\n", []snippet{{"F.md", 2, "a()\n"}, {"F.md", 5, "b()\n"}}},
		{"indented in a list", "- a\n  ```go\n  a()\n  ```\n", []snippet{{"F.md", 3, "  a()\n"}}},
		{"empty", "```go\n```\n", []snippet{{"F.md", 2, ""}}},
		{"never closed", "```go\na()\n", []snippet{{"F.md", 2, "a()\n"}}},
		{"no line break at the end", "```go\na()\n```", []snippet{{"F.md", 2, "a()\n"}}},
		{"inside a longer fence", "````md\n```\na\n```go\nx := 1\n```\n````\n", nil},
		{"a longer fence closes", "```go\nx := 1\n````\ny\n", []snippet{{"F.md", 2, "x := 1\n"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := findSnippets("F.md", tt.text); !slices.Equal(got, tt.want) {
				t.Errorf("findSnippets = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestFragmentsAreDeclarationsOrStatements(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, code, want string }{
		{"statements", "x, err := f()\nif err != nil {\n\treturn err\n}\n", ""},
		{"declarations", "type T struct{}\n\nfunc (T) M() {}\n", ""},
		{"imports and declarations", "import \"fmt\"\n\nvar x = fmt.Sprint()\n", ""},
		{"imports and statements", "import (\n\t\"a\"\n\t\"b\"\n)\n\nx := a.F()\n", ""},
		{"single imports and statements", "// A comment.\nimport \"a\"\nimport b \"c\"\n\nx := a.F(b.C)\n", ""},
		{"comments only", "// nothing\n", ""},
		{"ellipsis for left out code", "f()\n...\n", "F.md:11:"},
		{"broken after imports", "import \"a\"\n\nx := a.F(]\n", "F.md:12:"},
		{"broken import", "import a.b\n\nx := 1\n", "F.md:10:"},
		{"brace not closed", "if x {\n", "F.md:"},
		{"brace closed twice", "f()\n}\ng()\n", "F.md:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := parseFragment(snippet{file: "F.md", line: 10, code: tt.code})
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("parseFragment(%q) = %v, want no error", tt.code, err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)):
				t.Errorf("parseFragment(%q) = %v, want an error at %s", tt.code, err, tt.want)
			}
		})
	}
}

func TestAProgramBeginsWithItsPackageClause(t *testing.T) {
	t.Parallel()
	tests := []struct {
		code string
		want bool
	}{
		{"package main\n", true},
		{"\n// Command a does b.\n\npackage main\n", true},
		{"x := 1\npackage main\n", false},
		{"packages := 1\n", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := (snippet{code: tt.code}).isProgram(); got != tt.want {
			t.Errorf("isProgram(%q) = %v, want %v", tt.code, got, tt.want)
		}
	}
}

// Snippets come in the order of the text, and their lines are lines of the text.
func FuzzFindSnippets(f *testing.F) {
	f.Add("a\n```go\nx := 1\n```\n")
	f.Add("````md\n```go\n```\n````\n```go\n")
	f.Add("- a\n  ```go\n  f()\n  ```")
	f.Fuzz(func(t *testing.T, text string) {
		lines := slices.Collect(strings.Lines(text))
		last := 0
		for _, s := range findSnippets("F.md", text) {
			if s.line <= last {
				t.Errorf("snippet at line %d comes after one that reaches line %d", s.line, last)
			}
			code := slices.Collect(strings.Lines(s.code))
			last = s.line + len(code)
			if end := s.line - 1 + len(code); end > len(lines) || strings.Join(lines[s.line-1:end], "") != s.code {
				t.Errorf("snippet %q is not what stands at line %d of %q", s.code, s.line, text)
			}
			_ = parseFragment(s)
		}
	})
}
