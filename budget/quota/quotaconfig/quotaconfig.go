// Package quotaconfig reads limits, plans, overrides, credit weights and prices
// from a file, in YAML or JSON, and watches it for changes.
//
//	version: 1                     # of this format; required
//	revision: 2026-11-30           # of what is in the file; any text
//	mode: observe                  # off, observe or enforce (the default)
//	zone: Europe/Berlin            # of calendar windows that name none; "tenant"
//	                               # is each tenant's own; default UTC
//	scopes:                        # besides user, team, tenant, session and global
//	  - { scope: project, within: tenant }
//
//	limits:                        # of everybody; see [quota.Limit]
//	  - name: turns                # default: scope/window
//	    scope: user
//	    window: rolling:1m         # see [quota.ParseWindow]
//	    max: { turns: 20, tokens: 60_000 }
//	    burst: { turns: 5 }        # default: max
//	    max_wait: 2s
//	  - scope: user
//	    max: { concurrent_turns: 2 } # has no window
//	  - scope: team
//	    window: month:15@tenant
//	    max: { money: "200.00" }   # dollars, in quotes
//	    soft: true
//	    ceiling: { money: "250.00" }
//	    thresholds: [50, 80, 100]  # default: 80, 100
//	    mode: enforce
//	    missing: skip              # or deny (the default)
//	    failure: open              # or closed, or auto (the default)
//	    hold: mean                 # or worst, or p95 (the default)
//
//	plans:                         # see [quota.Plan]
//	  pro:
//	    mode: enforce
//	    limits:
//	      - { scope: user, window: day, max: { money: "10.00" } }
//
//	overrides:                     # see [quota.Override]
//	  - scope: user
//	    subject: { tenant: acme, user: mallory }
//	    until: 2026-12-01T08:00:00Z
//	    reason: floods us
//	    limits:
//	      - { scope: user, window: day, max: { calls: 0 } }
//
//	credits:                       # see [usage.Credits]; credits a token
//	  { version: 2026-11, input: 1, cached_input: 0.25, output: 4 }
//
//	prices:                        # see [usage.CatalogConfig]
//	  unknown_model: reject        # or uncosted, or default
//	  ignore_prefixes: [openrouter/]
//	  lists:                       # later ones go over earlier ones
//	    - litellm: model_prices_and_context_window.json
//	      as_of: 2026-11-30
//	      providers: [gemini]
//	    - file: prices.yaml        # see [pricefile.Parse]
//	    - inline: { version: 1, as_of: 2026-11-30, models: [...] }
//
// An amount that is left out is not limited; one of 0 lets nothing pass. Whole
// numbers may have underscores. Money is in dollars with at most six decimals,
// and in quotes, so that no reader makes a binary fraction of it.
//
// The format is strict: an unknown key, a key given twice, a value of another
// kind, an anchor, an alias or a tag is an error, and so is everything that
// [quota.NewLimits], [usage.Credits.Validate] and [usage.NewCatalog] find. All
// errors come at once, each with its line and path; a file with an error has no
// effect at all.
//
// [Schema] is a JSON schema of the format, for editors and checks before a
// deployment. What it cannot say (that a name stands for one thing, for example)
// only Load finds.
package quotaconfig

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

// MaxBytes is the size of the largest file that is read; price lists beside it
// may be larger ([pricefile.MaxBytes]).
const MaxBytes = 4 << 20

// maxErrors is how many errors of one file are told.
const maxErrors = 100

//go:embed quota.schema.json
var schema []byte

// Schema is the JSON schema (draft 2020-12) of the format.
func Schema() []byte { return slices.Clone(schema) }

// Config is what a file says.
type Config struct {
	// Limits are the limits; their Version is the file's revision.
	Limits *quota.Limits
	// Credits are the weights, or nil if the file has none. A program that reloads
	// gives them to [quota.Enforcer.ReloadCredits], before Limits to
	// [quota.Enforcer.Reload].
	Credits *usage.Credits
	// Catalog has the prices; it is nil if the file has none. A program that keeps
	// its catalogue over reloads gives PriceLists to [usage.Catalog.Replace].
	Catalog    *usage.Catalog
	PriceLists []usage.PriceList
	// PriceReports say what became of each list, such as models that were left
	// out.
	PriceReports []pricefile.Report
}

// Error is one thing that is wrong with a file.
type Error struct {
	// Line is where, from 1.
	Line int
	// Path is the place, such as "plans.pro.limits[0].max.tokens"; it is empty if
	// the file as a whole is wrong.
	Path string
	// Problem is what is wrong there, with the value.
	Problem string
}

// Error is the line, the path and the problem.
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("quotaconfig: line %d: %s", e.Line, e.Problem)
	}
	return fmt.Sprintf("quotaconfig: line %d: %s: %s", e.Line, e.Path, e.Problem)
}

// Loader reads files. The zero Loader is ready for use.
type Loader struct {
	// Files is where price lists are, and what LoadFile and Watch read from.
	// Defaults to the directory of the file that is read; Load has none then, and
	// price lists must be inline. Paths are those of [io/fs]: they go down only.
	Files fs.FS
	// Hierarchy are the scopes; a file must not declare any then. Defaults to the
	// default scopes and those that the file declares.
	Hierarchy *quota.Hierarchy
	// Every is how often Watch looks. Defaults to [DefaultEvery].
	Every time.Duration
}

// Load reads limits. If anything is wrong, the error joins ([errors.Join]) an
// [*Error] for each thing, in the order of the lines (the first hundred of them).
func Load(r io.Reader) (*Config, error) { return Loader{}.Load(r) }

// LoadFile is [Load] for a file. Price lists are looked for in its directory.
func LoadFile(path string) (*Config, error) { return Loader{}.LoadFile(path) }

// Load is the package's Load.
func (l Loader) Load(r io.Reader) (*Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("quotaconfig: %w", err)
	}
	return l.parse(data, newReading(l.Files))
}

// LoadFile is the package's LoadFile.
func (l Loader) LoadFile(path string) (*Config, error) {
	files, name := l.place(path)
	return l.load(newReading(files), name)
}

// place is where a file is.
func (l Loader) place(path string) (files fs.FS, name string) {
	if l.Files != nil {
		return l.Files, path
	}
	return os.DirFS(filepath.Dir(path)), filepath.Base(path)
}

// load reads a file and what it refers to.
func (l Loader) load(from *reading, name string) (*Config, error) {
	data, err := from.file(name, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("quotaconfig: %w", err)
	}
	return l.parse(data, from)
}

// parse reads a file.
func (l Loader) parse(data []byte, from *reading) (*Config, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("quotaconfig: the file has more than %d bytes", MaxBytes)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err == io.EOF || err == nil && empty(&doc) {
		return nil, &Error{Line: 1, Problem: "the file is empty"}
	} else if err != nil {
		return nil, fmt.Errorf("quotaconfig: %w", err)
	}
	p := newParser(l, from)
	if err := decoder.Decode(&second); err != io.EOF {
		p.errs = append(p.errs, &Error{Line: max(second.Line, 1), Problem: "the file has more than one document"})
	}
	config := p.config(doc.Content[0])
	if len(p.errs) == 0 {
		return config, nil
	}
	slices.SortStableFunc(p.errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, 0, len(p.errs))
	for i, err := range p.errs {
		if i == maxErrors {
			errs = append(errs, fmt.Errorf("quotaconfig: and %d more errors", len(p.errs)-maxErrors))
			break
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// empty reports whether there is nothing in a document.
func empty(doc *yaml.Node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Value == ""
}
