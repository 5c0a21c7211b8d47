package quotaconfig_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
)

// Whatever is in a file: there is a configuration or an error, never both, no
// panic; errors have lines that the file has; and what is accepted matches the
// schema, and has no limit that could not be enforced.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("example/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	for _, c := range formatCases {
		f.Add("version: 1\n" + c.doc)
	}
	schema, root := schemaOf(f)
	loader := quotaconfig.Loader{Files: os.DirFS("example")}
	f.Fuzz(func(t *testing.T, doc string) {
		config, err := loader.Load(strings.NewReader(doc))
		if (config == nil) == (err == nil) {
			t.Fatalf("both or none: %v, %v", config, err)
		}
		lines := 1 + strings.Count(doc, "\n") + strings.Count(doc, "\r") + strings.Count(doc, "\u0085") +
			strings.Count(doc, "\u2028") + strings.Count(doc, "\u2029")
		for _, e := range unwrap(err) {
			if at, ok := errors.AsType[*quotaconfig.Error](e); ok && (at.Line < 1 || at.Line > lines) {
				t.Errorf("line %d of %d: %v", at.Line, lines, e)
			}
		}
		if config == nil {
			return
		}
		if problem := schema.check(root, plainValue(t, doc), ""); problem != "" {
			t.Errorf("Load takes it, but the schema says %s", problem)
		}
		for _, plan := range append(config.Limits.Plans(), "") {
			for _, l := range config.Limits.For(quota.Subject{Plan: plan}) {
				if l.Mode != quota.Observe && l.Mode != quota.Enforce {
					t.Errorf("%v is in mode %v", l, l.Mode)
				}
				if len(l.Max) == 0 || !config.Limits.Hierarchy().Has(l.Scope) {
					t.Errorf("%v limits nothing, or nobody", l)
				}
				for unit, most := range l.Max {
					if most < 0 || most > quota.MaxAmount {
						t.Errorf("%v has %d %v", l, most, unit)
					}
					if concurrent := unit == quota.ConcurrentTurns; concurrent != (l.Window == quota.Window{}) {
						t.Errorf("%v of %v is in window %q", l, unit, l.Window.ID())
					}
				}
			}
		}
	})
}
