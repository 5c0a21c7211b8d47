package quotaconfig

import (
	"bytes"
	"encoding/json"
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
	"github.com/headgate-go/headgate/usage/pricefile"
)

// credits reads the weights of credits.
func (p *parser) credits(n node) *usage.Credits {
	fields, ok := p.object(n, "version", "input", "cached_input", "cache_write", "output", "thoughts")
	if !ok {
		return nil
	}
	before := len(p.errs)
	if !fields["version"].there() {
		p.miss(n, "version", "name this set of weights, for charges are kept with it")
	}
	weight := func(key string, required bool) (w usage.Weight) {
		if !fields[key].there() {
			if required {
				p.miss(n, key, "say what a token counts for")
			}
			return w
		}
		s, tag, ok := p.scalar(fields[key])
		if !ok {
			return w
		}
		var err error
		switch w, err = usage.ParseWeight(s); {
		case tag != "!!str" && tag != "!!int" && tag != "!!float":
			p.fail(fields[key], "must be credits a token, such as 0.25, but is %s", quoted(s))
		case err != nil:
			p.fail(fields[key], "%s", strings.TrimPrefix(err.Error(), "usage: "))
		}
		return w
	}
	c := usage.Credits{
		Input: weight("input", true), CachedInput: weight("cached_input", false), CacheWrite: weight("cache_write", false),
		Output: weight("output", true), Thoughts: weight("thoughts", false),
	}
	c.Version, _ = p.text(fields["version"])
	if len(p.errs) > before {
		return nil
	}
	if err := c.Validate(); err != nil {
		p.fail(n, "%v", err)
		return nil
	}
	return &c
}

// prices reads the price lists.
func (p *parser) prices(n node, out *Config) {
	fields, ok := p.object(n, "unknown_model", "default", "ignore_prefixes", "lists")
	if !ok {
		return
	}
	before := len(p.errs)
	var config usage.CatalogConfig
	if s, ok := p.text(fields["unknown_model"]); ok {
		policies := []usage.UnknownPolicy{usage.UnknownReject, usage.UnknownUncosted, usage.UnknownDefault}
		i := slices.IndexFunc(policies, func(policy usage.UnknownPolicy) bool { return policy.String() == s })
		if i < 0 {
			p.fail(fields["unknown_model"], "%s is none of reject, uncosted, default", quoted(s))
		} else {
			config.Unknown = policies[i]
		}
	}
	switch price := fields["default"]; {
	case config.Unknown == usage.UnknownDefault && !price.there():
		p.miss(n, "default", "unknown_model is default")
	case price.there():
		config.Default = p.price(price)
		if config.Unknown != usage.UnknownDefault && !p.failed[join(n.path, "unknown_model")] {
			p.fail(price, "is set, but unknown_model is %v", config.Unknown)
		}
	}
	config.IgnorePrefixes = p.texts(fields["ignore_prefixes"])
	if len(p.array(fields["lists"])) == 0 && !p.failed[join(n.path, "lists")] {
		p.miss(n, "lists", "give at least one price list")
	}
	for _, element := range p.array(fields["lists"]) {
		list, report := p.priceList(element)
		config.Lists = append(config.Lists, list)
		out.PriceReports = append(out.PriceReports, report)
	}
	if len(p.errs) > before {
		return
	}
	catalog, err := usage.NewCatalog(config)
	if err != nil { // what depends on all lists together
		p.fail(n, "%s", problemsOf(err))
		return
	}
	out.Catalog, out.PriceLists = catalog, config.Lists
}

// price reads the price of unknown models: it is the price of a model in a list
// that has nothing else.
func (p *parser) price(n node) usage.Price {
	fields, ok := p.object(n, "input", "cached_input", "cache_write", "output", "thoughts", "tiers")
	if !ok {
		return usage.Price{}
	}
	known := *n.Node
	known.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; fields[key.Value].Node == n.Content[i+1] {
			known.Content = append(known.Content, key, n.Content[i+1])
		}
	}
	list, _ := p.inline(node{&known, n.path}, `{"version": 1, "as_of": 2000-01-01, "models": [{"name": "default", "prices": [`, `]}]}`, "models[0].prices[0]")
	if len(list.Models) == 0 || len(list.Models[0].Prices) == 0 {
		return usage.Price{}
	}
	return list.Models[0].Prices[0]
}

// priceList reads one price list.
func (p *parser) priceList(n node) (usage.PriceList, pricefile.Report) {
	fields, ok := p.object(n, "inline", "file", "litellm", "genai_prices", "as_of", "providers", "take_free")
	if !ok {
		return usage.PriceList{}, pricefile.Report{}
	}
	var sources []string
	for _, key := range [...]string{"inline", "file", "litellm", "genai_prices"} {
		if fields[key].there() {
			sources = append(sources, key)
		}
	}
	if len(sources) != 1 {
		p.tell(n, "must have one of inline, file, litellm and genai_prices, but has %d of them", len(sources))
		p.instant(fields["as_of"])
		p.texts(fields["providers"])
		p.truth(fields["take_free"])
		return usage.PriceList{}, pricefile.Report{}
	}
	source := fields[sources[0]]
	var options pricefile.Options
	others := sources[0] == "litellm" || sources[0] == "genai_prices"
	for _, key := range [...]string{"as_of", "providers", "take_free"} {
		if fields[key].there() && !others {
			p.fail(fields[key], "is for litellm and genai_prices, but this is %s", sources[0])
		}
	}
	if others {
		options.AsOf, _ = p.instant(fields["as_of"])
		options.Providers = p.texts(fields["providers"])
		options.TakeFree, _ = p.truth(fields["take_free"])
		if !fields["as_of"].there() {
			p.miss(n, "as_of", "say as of when the file is right")
		}
		if options.AsOf.IsZero() { // so that what is wrong with the list is told, too
			options.AsOf = time.Unix(0, 0)
		}
	}
	if sources[0] == "inline" {
		return p.inline(source, "", "", "")
	}
	name, ok := p.text(source)
	if !ok {
		return usage.PriceList{}, pricefile.Report{}
	}
	data, err := p.from.file(name, pricefile.MaxBytes)
	if err != nil {
		p.fail(source, "%v", err)
		return usage.PriceList{}, pricefile.Report{}
	}
	read := map[string]func(io.Reader) (usage.PriceList, pricefile.Report, error){
		"file": pricefile.Parse,
		"litellm": func(r io.Reader) (usage.PriceList, pricefile.Report, error) {
			return pricefile.LiteLLM(r, options)
		},
		"genai_prices": func(r io.Reader) (usage.PriceList, pricefile.Report, error) {
			return pricefile.GenAIPrices(r, options)
		},
	}[sources[0]]
	list, report, err := read(bytes.NewReader(data))
	for _, e := range each(err) {
		p.fail(source, "%s: %s", clip(name), strings.TrimPrefix(e.Error(), "pricefile: "))
	}
	return list, report
}

// inline reads a price list out of the file itself, with what stands around it.
// The list is written out again such that every value stays in its line, so that
// the errors are right. Paths begin with the node's instead of root.
func (p *parser) inline(n node, before, after, root string) (usage.PriceList, pricefile.Report) {
	if !p.allPlain(n) {
		return usage.PriceList{}, pricefile.Report{}
	}
	w := lineWriter{line: 1}
	w.text(before)
	w.value(n.Node)
	w.text(after)
	list, report, err := pricefile.Parse(&w.b)
	for _, e := range each(err) {
		line, path, problem := located(e)
		if line == 0 {
			p.fail(n, "%s", problem)
			continue
		}
		if rest, ok := strings.CutPrefix(path, root); ok && root != "" {
			path = n.path + rest
		} else if path != "the file" {
			path = join(n.path, path)
		} else {
			path = n.path
		}
		p.failed[path], p.failed[n.path] = true, true
		p.errs = append(p.errs, &Error{Line: line, Path: path, Problem: problem})
	}
	return list, report
}

// each are the errors that an error joins.
func each(err error) []error {
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		return joined.Unwrap()
	}
	return []error{err}
}

// location is how package pricefile says where something is wrong.
var location = regexp.MustCompile(`(?s)^pricefile: line (\d+): ([^ ]+|the file): (.*)$`)

// located takes an error of package pricefile apart. The line is 0 if it has none.
func located(err error) (line int, path, problem string) {
	m := location.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, "", strings.TrimPrefix(err.Error(), "pricefile: ")
	}
	line, _ = strconv.Atoi(m[1])
	return line, m[2], m[3]
}

// allPlain is plain for a value and everything in it.
func (p *parser) allPlain(n node) bool {
	if !p.plain(n) {
		return false
	}
	ok := true
	for _, c := range n.Content {
		ok = p.allPlain(node{c, n.path}) && ok
	}
	return ok
}

// lineWriter writes values as JSON, each in the line in which it was read.
type lineWriter struct {
	b    bytes.Buffer
	line int
}

func (w *lineWriter) text(s string) { w.b.WriteString(s) }

// value writes a value.
func (w *lineWriter) value(n *yaml.Node) {
	for ; w.line < n.Line; w.line++ {
		w.text("\n")
	}
	switch n.Kind {
	case yaml.MappingNode:
		w.text("{")
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				w.text(", ")
			}
			w.value(n.Content[i])
			w.text(": ")
			w.value(n.Content[i+1])
		}
		w.text("}")
	case yaml.SequenceNode:
		w.text("[")
		for i, c := range n.Content {
			if i > 0 {
				w.text(", ")
			}
			w.value(c)
		}
		w.text("]")
	default:
		if n.ShortTag() == "!!null" {
			w.text("null")
			return
		}
		s, err := json.Marshal(n.Value)
		if err != nil { // it cannot be: n.Value is text
			s = []byte(fmt.Sprintf("%q", n.Value))
		}
		w.b.Write(s)
	}
}
