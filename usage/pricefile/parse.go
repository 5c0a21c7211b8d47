package pricefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-go/headgate/usage"
)

// maxErrors is how many errors of one file are told.
const maxErrors = 100

// formatVersion is the version of our own format.
const formatVersion = "1"

// Parse reads a price list in our own format, in YAML or in JSON:
//
//	version: 1
//	as_of: 2026-11-30            # when somebody last looked; required
//	models:
//	  - name: gemini-3-pro-preview
//	    aliases: [gemini-3-pro]  # further names
//	    match:                   # further names by rule; any of them suffices
//	      - starts_with: gemini-3-pro-preview-
//	    prices:                  # in dollars per million tokens
//	      - input: 2.00
//	        cached_input: 0.20   # absent: as input
//	        cache_write: 2.00    # absent: as input
//	        output: 12.00        # absent: the model has no output
//	        thoughts: 12.00      # absent: as output
//	        tiers:               # the whole call, if its input is above
//	          - above: 200000
//	            input: 4.00
//	            cached_input: 0.40
//	            cache_write: 4.00
//	            output: 18.00
//	            thoughts: 18.00
//	      - variant: batch       # standard (the default), batch, flex or priority
//	        from: 2026-01-01     # a date, in UTC, or a time with its zone; absent: ever since
//	        input: 1.00
//	        output: 6.00
//
// A rule is one of equals, starts_with, ends_with, contains and regexp; see
// [usage.Rule]. A tier sets what the price below it sets, and is not cheaper.
//
// The format is strict. An unknown key, a key given twice, a value of the wrong
// kind, a price with more than six decimals or below $0.0001 per million ("per
// million?": it looks like one per token) and everything that
// [usage.PriceList.Validate] finds is an error. All errors come at once, joined,
// each with its line and path (the first hundred of them). YAML anchors, aliases and further documents are
// refused. Nothing is ever skipped, so the report only counts.
func Parse(r io.Reader) (usage.PriceList, Report, error) {
	var rep Report
	data, err := read(r)
	if err != nil {
		return usage.PriceList{}, rep, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := d.Decode(&doc); err == io.EOF {
		return usage.PriceList{}, rep, errors.New("pricefile: the file is empty")
	} else if err != nil {
		return usage.PriceList{}, rep, fmt.Errorf("pricefile: %w", err)
	}
	if len(doc.Content) == 0 {
		return usage.PriceList{}, rep, errors.New("pricefile: the file is empty")
	}
	if err := d.Decode(&second); err != io.EOF {
		return usage.PriceList{}, rep, errors.New("pricefile: the file has more than one document")
	}
	p := parser{failed: map[string]bool{}, lines: map[string]int{}}
	l := p.list(doc.Content[0])
	p.validate(l)
	if n := len(p.errs); n > maxErrors {
		p.errs = append(p.errs[:maxErrors:maxErrors], fmt.Errorf("pricefile: and %d more errors", n-maxErrors))
	}
	if len(p.errs) > 0 {
		return usage.PriceList{}, rep, errors.Join(p.errs...)
	}
	return rep.finish(l)
}

// validate adds what is wrong with a list as such, with the lines. It leaves out
// what follows from something that was found already.
func (p *parser) validate(l usage.PriceList) {
	joined, ok := l.Validate().(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		e, ok := errors.AsType[*usage.PriceListError](err)
		if !ok || p.failedAt(e.Path) {
			continue
		}
		line := 0
		for path := e.Path; line == 0 && path != ""; path = around(path) {
			line = p.lines[path] // of what is not there, the line of what it should be in
		}
		p.errs = append(p.errs, fmt.Errorf("pricefile: line %d: %s: %s", max(line, 1), e.Path, e.Problem))
	}
}

// failedAt reports whether there was something wrong in a place, or around it.
func (p *parser) failedAt(path string) bool {
	for ; path != ""; path = around(path) {
		if p.failed[path] {
			return true
		}
	}
	return false
}

// around is the path of what a value stands in.
func around(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// parser walks a file and gathers what is wrong with it.
type parser struct {
	errs   []error
	failed map[string]bool // their paths
	lines  map[string]int  // by path
}

// node is a value and where it stands.
type node struct {
	*yaml.Node
	path string
}

func (p *parser) fail(n node, format string, args ...any) {
	p.failed[n.path] = true
	where := n.path
	if where == "" {
		where = "the file"
	}
	p.errs = append(p.errs, fmt.Errorf("pricefile: line %d: %s: %s", n.Line, where, fmt.Sprintf(format, args...)))
}

func (p *parser) list(root *yaml.Node) (l usage.PriceList) {
	top := node{root, ""}
	fields := p.object(top, "version", "as_of", "models")
	if fields == nil {
		return l
	}
	if version, ok := fields["version"]; !ok {
		p.fail(node{root, "version"}, "is not set; this is version %s", formatVersion)
	} else if s, ok := p.scalar(version); ok && s != formatVersion {
		p.fail(version, "%s is not %s", quoted(s), formatVersion)
	}
	if asOf, ok := fields["as_of"]; ok {
		l.AsOf = p.instant(asOf)
	} else {
		p.fail(node{root, "as_of"}, "is not set; say as of when the prices are right")
	}
	models, ok := fields["models"]
	if !ok {
		p.fail(node{root, "models"}, "are not set")
	}
	for _, m := range p.array(models) {
		l.Models = append(l.Models, p.model(m))
	}
	return l
}

func (p *parser) model(n node) (m usage.Model) {
	fields := p.object(n, "name", "aliases", "match", "prices")
	if fields == nil {
		return m
	}
	if name, ok := fields["name"]; ok {
		m.Name, _ = p.scalar(name)
	} else {
		p.fail(node{n.Node, n.path + ".name"}, "is not set")
	}
	for _, alias := range p.array(fields["aliases"]) {
		if s, ok := p.scalar(alias); ok {
			m.Aliases = append(m.Aliases, s)
		}
	}
	for _, rule := range p.array(fields["match"]) {
		m.Rules = append(m.Rules, p.rule(rule))
	}
	prices, ok := fields["prices"]
	if !ok {
		p.fail(node{n.Node, n.path + ".prices"}, "are not set")
	}
	for _, price := range p.array(prices) {
		m.Prices = append(m.Prices, p.price(price))
	}
	return m
}

func (p *parser) rule(n node) (r usage.Rule) {
	fields := p.object(n, "equals", "starts_with", "ends_with", "contains", "regexp")
	if fields != nil && len(fields) != 1 {
		p.fail(n, "a rule has one condition, not %d", len(fields))
	}
	for key, value := range fields {
		s, ok := p.scalar(value)
		if !ok {
			continue
		}
		switch key {
		case "equals":
			r.Equals = s
		case "starts_with":
			r.StartsWith = s
		case "ends_with":
			r.EndsWith = s
		case "contains":
			r.Contains = s
		case "regexp":
			re, err := regexp.Compile(s)
			if err != nil {
				p.fail(value, "%v", err)
			}
			r.Regexp = re
		}
	}
	return r
}

// rateKeys are the keys of rates.
var rateKeys = []string{"input", "cached_input", "cache_write", "output", "thoughts"}

func (p *parser) price(n node) (price usage.Price) {
	fields := p.object(n, append([]string{"variant", "from", "tiers"}, rateKeys...)...)
	if fields == nil {
		return price
	}
	if variant, ok := fields["variant"]; ok {
		if s, ok := p.scalar(variant); ok {
			var err error
			if price.Variant, err = usage.ParseVariant(s); err != nil {
				p.fail(variant, "%v", err)
			}
		}
	}
	if from, ok := fields["from"]; ok {
		price.ValidFrom = p.instant(from)
	}
	price.Rates = p.rates(fields)
	for _, t := range p.array(fields["tiers"]) {
		price.Tiers = append(price.Tiers, p.tier(t))
	}
	return price
}

func (p *parser) tier(n node) (t usage.Tier) {
	fields := p.object(n, append([]string{"above"}, rateKeys...)...)
	if fields == nil {
		return t
	}
	above, ok := fields["above"]
	if !ok {
		p.fail(node{n.Node, n.path + ".above"}, "is not set; say above how many input tokens the tier applies")
	} else if s, ok := p.scalar(above); ok {
		var err error
		if t.Above, err = strconv.ParseInt(s, 10, 64); err != nil {
			p.fail(above, "%s is no number of tokens", quoted(s))
		}
	}
	t.Rates = p.rates(fields)
	return t
}

func (p *parser) rates(fields map[string]node) usage.Rates {
	at := func(key string) usage.Rate {
		n, ok := fields[key]
		if !ok {
			return usage.Rate{}
		}
		s, ok := p.scalar(n)
		if !ok {
			return usage.Rate{}
		}
		r, err := usage.ParseRate(s)
		if err != nil {
			p.fail(n, "%v", err)
		} else if m, _ := r.Micros(); m > 0 && m < leastRate {
			p.fail(n, "a price of %v for a million tokens is less than any; is %s per token, and should it be per million?", r, quoted(s))
		}
		return r
	}
	return usage.Rates{
		Input: at("input"), CachedInput: at("cached_input"), CacheWrite: at("cache_write"),
		Output: at("output"), Thoughts: at("thoughts"),
	}
}

// leastRate is the lowest price above 0 that is taken for one per million tokens.
// The cheapest models of 2026 cost $0.005; a price per token that was written by
// mistake is below $0.0001 unless the model costs $100 per million.
const leastRate usage.Micros = 100

// instant is a date, which begins at midnight in UTC, or a time with its zone.
func (p *parser) instant(n node) time.Time {
	s, ok := p.scalar(n)
	if !ok {
		return time.Time{}
	}
	for _, layout := range [...]string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil && !t.IsZero() {
			return t
		}
	}
	p.fail(n, "%s is neither a date (2026-11-30) nor a time with its zone (2026-11-30T08:00:00Z)", quoted(s))
	return time.Time{}
}

// object are the members of a mapping, of which all keys must be known.
func (p *parser) object(n node, known ...string) map[string]node {
	if !p.check(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, "must have keys (%s), but is %s", strings.Join(known, ", "), kind(n))
		return nil
	}
	fields := make(map[string]node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := key.Value
		if n.path != "" {
			path = n.path + "." + path
		}
		at := node{value, path}
		p.lines[path] = key.Line
		switch _, twice := fields[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			p.fail(node{key, n.path}, "a key must be a word, but is %s", kind(node{key, ""}))
		case !slices.Contains(known, key.Value):
			p.fail(node{key, n.path}, "unknown key %s; known are %s", quoted(key.Value), strings.Join(known, ", "))
		case twice:
			p.fail(node{key, path}, "is given twice")
		default:
			fields[key.Value] = at
		}
	}
	return fields
}

// array are the elements of a sequence. A node that is not there has none.
func (p *parser) array(n node) []node {
	if n.Node == nil || !p.check(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "must be a list, but is %s", kind(n))
		return nil
	}
	out := make([]node, len(n.Content))
	for i, c := range n.Content {
		out[i] = node{c, n.path + "[" + strconv.Itoa(i) + "]"}
		p.lines[out[i].path] = c.Line
	}
	return out
}

// scalar is the text of a value, as it is written.
func (p *parser) scalar(n node) (string, bool) {
	switch {
	case !p.check(n):
		return "", false
	case n.Kind != yaml.ScalarNode:
		p.fail(n, "must be one value, but is %s", kind(n))
		return "", false
	case n.Tag == "!!null" || n.Value == "":
		p.fail(n, "is empty; leave the key out if there is no value")
		return "", false
	}
	return n.Value, true
}

// check refuses what could mean more than is written there.
func (p *parser) check(n node) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.fail(n, "anchors and aliases are not supported")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		p.fail(n, "tags are not supported")
		return false
	}
	return true
}

func kind(n node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return quoted(n.Value)
}

// quoted is a text of the file for an error, cut short.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
