package pricefile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/usage"
)

const (
	reasonNoRule  = "no rule by which the model is recognised could be read"
	reasonHour    = "the price depends on the hour: the dearer hour is taken"
	reasonOrder   = "dated prices out of order: a price that never counts is left out"
	reasonNoPrice = "no price"
)

// GenAIPrices reads genai-prices' data_slim.json or data.json: a list of
// providers, each with models, with prices in dollars per million tokens.
//
// A model is named "provider/id", and without the provider, too, if that is how
// the file finds the provider ("model_match"). Its match rules (equals,
// starts_with, ends_with, contains, regex, or, and) become names and rules of the
// model, for the provider alone or for all names in the same way. A regular
// expression that package regexp does not have is left out and noted; if nothing
// is left, the model is skipped.
//
// Of a price are read input_mtok, cache_read_mtok, cache_write_mtok and
// output_mtok (and output_reasoning_mtok), flat or with tiers, and prices that
// begin on a date. A price for some hours of the day is merged into those before
// by the dearer rate of each part, and noted. Prices in other units (audio,
// images, requests, searches) are noted.
//
// A model is skipped if it has no input_mtok, if a price is negative or no number
// or has more than six decimals, or if it is listed at 0; see
// [Options.TakeFree]. Of a model with other prices a part at 0 is taken for free,
// as the output of embeddings is, and noted. A tier that is cheaper than what is
// below it is raised to that, and noted.
//
// The error is that of a file which is no such list at all or has a key twice in
// one object, of Options, or of a reader.
func GenAIPrices(r io.Reader, o Options) (usage.PriceList, Report, error) {
	var rep Report
	if err := o.check(); err != nil {
		return usage.PriceList{}, rep, err
	}
	data, err := read(r)
	if err != nil {
		return usage.PriceList{}, rep, err
	}
	if key, ok := keyTwice(data); ok {
		return usage.PriceList{}, rep, fmt.Errorf("pricefile: genai-prices' file: %s: %s", quoted(key), reasonTwice)
	}
	var file []genaiProvider
	if err := json.Unmarshal(data, &file); err != nil {
		return usage.PriceList{}, rep, fmt.Errorf("pricefile: genai-prices' file: %w", err)
	}
	g := genaiReader{options: o, rep: &rep, list: usage.PriceList{AsOf: o.AsOf}, taken: map[string]bool{}}
	seen := map[string]bool{}
	for i := range file {
		if p := &file[i]; o.wants(p.ID, seen) {
			g.provider(p)
		}
	}
	if err := o.missing(seen); err != nil {
		return usage.PriceList{}, rep, err
	}
	return rep.finish(g.list)
}

type genaiProvider struct {
	ID         string       `json:"id"`
	ModelMatch *genaiClause `json:"model_match"`
	Models     []genaiModel `json:"models"`
}

type genaiModel struct {
	ID     string          `json:"id"`
	Match  *genaiClause    `json:"match"`
	Prices json.RawMessage `json:"prices"`
}

// genaiClause is one of its fields.
type genaiClause struct {
	Equals     string        `json:"equals"`
	StartsWith string        `json:"starts_with"`
	EndsWith   string        `json:"ends_with"`
	Contains   string        `json:"contains"`
	Regex      string        `json:"regex"`
	Or         []genaiClause `json:"or"`
	And        []genaiClause `json:"and"`
}

type genaiConditional struct {
	Constraint *struct {
		StartDate string `json:"start_date"`
		StartTime string `json:"start_time"`
		EndTime   string `json:"end_time"`
	} `json:"constraint"`
	Prices map[string]json.RawMessage `json:"prices"`
}

type genaiReader struct {
	options Options
	rep     *Report
	list    usage.PriceList
	taken   map[string]bool // names, in lower case
}

func (g *genaiReader) provider(p *genaiProvider) {
	var open *usage.Rule // recognises names without the provider
	if p.ModelMatch != nil {
		rule, err := p.ModelMatch.rule(0)
		if err != nil {
			g.rep.note(p.ID, "model_match", err.Error())
		} else {
			open = &rule
		}
	}
	for i := range p.Models {
		g.model(p.ID, open, &p.Models[i])
	}
}

func (g *genaiReader) model(provider string, open *usage.Rule, m *genaiModel) {
	path := provider + "/" + m.ID
	if provider == "" || m.ID == "" {
		g.rep.skip(path, "provider or model without an id")
		return
	}
	names, rules, notes := g.match(path, provider, open, m.Match)
	if len(names) == 0 && len(rules) == 0 {
		g.rep.skip(path, reasonNoRule)
		return
	}
	prices, more, bad := genaiPrices(path, m.Prices)
	switch {
	case bad != "":
		g.rep.skip(path, bad)
		return
	case !g.options.TakeFree && !slices.ContainsFunc(prices, func(p usage.Price) bool { return !free(&p) }):
		g.rep.skip(path, reasonFree)
		return
	}
	model := usage.Model{Name: path, Rules: rules, Prices: prices}
	if g.taken[strings.ToLower(path)] || nameError(path) != "" {
		g.rep.skip(path, "the name is empty, too long, or an earlier model's")
		return
	}
	g.taken[strings.ToLower(path)] = true
	for _, name := range names {
		key := strings.ToLower(strings.TrimSpace(name))
		switch {
		case nameError(name) != "":
		case g.taken[key]:
			if key != strings.ToLower(path) && !slices.Contains(model.Aliases, key) {
				notes = append(notes, Note{path, "match", "an earlier model has this name"})
			}
		default:
			g.taken[key] = true
			model.Aliases = append(model.Aliases, key)
		}
	}
	g.rep.Partial = append(append(g.rep.Partial, notes...), more...)
	g.list.Models = append(g.list.Models, model)
}

// match turns the clause of a model into names and rules.
func (g *genaiReader) match(path, provider string, open *usage.Rule, clause *genaiClause) (names []string, rules []usage.Rule, notes []Note) {
	if clause == nil {
		return nil, nil, nil
	}
	clauses := []genaiClause{*clause}
	if len(clause.Or) > 0 {
		clauses = clause.Or
	}
	for i := range clauses {
		rule, err := clauses[i].rule(0)
		if err != nil {
			notes = append(notes, Note{path, "match", err.Error()})
			continue
		}
		if rule.Equals != "" {
			names = append(names, provider+"/"+rule.Equals)
			if open != nil && open.Matches(rule.Equals) {
				names = append(names, rule.Equals)
			}
			continue
		}
		scoped := usage.Rule{Provider: provider, Any: []usage.Rule{rule}}
		rules = append(rules, scoped)
		if open != nil {
			rules = append(rules, usage.Rule{All: []usage.Rule{*open, rule}})
		}
	}
	return names, rules, notes
}

// rule is the clause as a rule.
func (c *genaiClause) rule(depth int) (usage.Rule, error) {
	if depth > 8 {
		return usage.Rule{}, fmt.Errorf("rules nest too deep")
	}
	r := usage.Rule{Equals: c.Equals, StartsWith: c.StartsWith, EndsWith: c.EndsWith, Contains: c.Contains}
	set := 0
	for _, s := range [...]string{c.Equals, c.StartsWith, c.EndsWith, c.Contains, c.Regex} {
		if s != "" {
			set++
		}
	}
	if c.Regex != "" {
		re, err := regexp.Compile(c.Regex)
		if err != nil {
			return r, fmt.Errorf("a regular expression that package regexp does not have")
		}
		r.Regexp = re
	}
	for _, list := range [...]struct {
		clauses []genaiClause
		rules   *[]usage.Rule
	}{{c.Or, &r.Any}, {c.And, &r.All}} {
		for i := range list.clauses {
			rule, err := list.clauses[i].rule(depth + 1)
			if err != nil {
				return r, err
			}
			*list.rules = append(*list.rules, rule)
		}
		if len(list.clauses) > 0 {
			set++
		}
	}
	if set != 1 {
		return r, fmt.Errorf("a rule of %d conditions, or of an unknown kind", set)
	}
	return r, nil
}

// genaiPrices reads the prices of a model: one price, or several with conditions,
// of which the last whose condition holds counts.
func genaiPrices(path string, raw json.RawMessage) (prices []usage.Price, notes []Note, bad string) {
	var one map[string]json.RawMessage
	if json.Unmarshal(raw, &one) == nil && one != nil {
		p, notes, bad := genaiPrice(path, one)
		return []usage.Price{p}, notes, bad
	}
	var list []genaiConditional
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, nil, reasonNoPrice
	}
	for i, conditional := range list {
		p, more, bad := genaiPrice(path, conditional.Prices)
		if bad != "" {
			return nil, nil, bad
		}
		notes = append(notes, more...)
		if c := conditional.Constraint; c != nil {
			switch {
			case c.StartDate != "":
				from, err := time.Parse(time.DateOnly, c.StartDate)
				if err != nil {
					return nil, nil, "a start date that is none"
				}
				if i > 0 { // the first one counts where no other does
					p.ValidFrom = from
				}
			case c.StartTime != "" || c.EndTime != "":
				notes = append(notes, Note{path, "prices", reasonHour})
				if i > 0 {
					for j := range prices {
						dearerPrice(&prices[j], &p)
					}
					continue
				}
			default:
				return nil, nil, "a condition of an unknown kind"
			}
		}
		// A later price hides earlier ones that begin at its date or after it.
		for len(prices) > 0 && !prices[len(prices)-1].ValidFrom.Before(p.ValidFrom) {
			prices = prices[:len(prices)-1]
			notes = append(notes, Note{path, "prices", reasonOrder})
		}
		prices = append(prices, p)
	}
	return prices, notes, ""
}

// dearerPrice raises the parts of p to those of q where q's are dearer.
func dearerPrice(p, q *usage.Price) {
	var starts []int64
	for _, t := range append(slices.Clone(p.Tiers), q.Tiers...) {
		starts = append(starts, t.Above)
	}
	slices.Sort(starts)
	tiers := make([]usage.Tier, 0, len(starts))
	for _, above := range slices.Compact(starts) {
		tiers = append(tiers, usage.Tier{Above: above, Rates: dearerRates(ratesAbove(p, above), ratesAbove(q, above))})
	}
	p.Rates, p.Tiers = dearerRates(p.Rates, q.Rates), tiers
}

// ratesAbove are the rates just above a number of input tokens.
func ratesAbove(p *usage.Price, tokens int64) usage.Rates {
	rates := p.Rates
	for _, t := range p.Tiers {
		if t.Above <= tokens {
			rates = t.Rates
		}
	}
	return rates
}

// genaiKeys are the keys of a price that are read.
var genaiKeys = []string{"input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok", "output_reasoning_mtok"}

// genaiPrice reads one price.
func genaiPrice(path string, fields map[string]json.RawMessage) (p usage.Price, notes []Note, bad string) {
	var rest []string
	for key := range fields {
		if !slices.Contains(genaiKeys, key) {
			rest = append(rest, key)
		}
	}
	slices.Sort(rest)
	for _, key := range rest {
		reason := reasonOtherUnit
		if key == "cache_write_1h_mtok" {
			reason = reasonOneHour
		}
		notes = append(notes, Note{path, key, reason})
	}
	tiered := make([]genaiTiers, len(genaiKeys))
	var starts []int64
	for i, key := range genaiKeys {
		raw, ok := fields[key]
		if !ok || string(raw) == "null" {
			continue
		}
		t, err := readGenAITiers(raw)
		if err != nil {
			return p, nil, key + ": " + reasonOf(err)
		}
		tiered[i] = t
		starts = append(starts, t.starts...)
	}
	rates := func(at func(genaiTiers) usage.Rate) usage.Rates {
		return usage.Rates{
			Input: at(tiered[0]), CachedInput: at(tiered[1]), CacheWrite: at(tiered[2]),
			Output: at(tiered[3]), Thoughts: at(tiered[4]),
		}
	}
	p.Rates = rates(func(t genaiTiers) usage.Rate { return t.base })
	if !isSet(p.Input) {
		return p, nil, reasonNoInput
	}
	slices.Sort(starts)
	for _, start := range slices.Compact(starts) {
		p.Tiers = append(p.Tiers, usage.Tier{Above: start, Rates: rates(func(t genaiTiers) usage.Rate { return t.above(start) })})
	}
	if raised(&p) {
		notes = append(notes, Note{path, "prices", reasonCheaperTier})
	}
	for i, key := range genaiKeys {
		if isZero(tiered[i].base) && !free(&p) {
			notes = append(notes, Note{path, key, reasonFreePart})
		}
	}
	return p, notes, ""
}

// genaiTiers is the rate of one part, by the size of the input.
type genaiTiers struct {
	base   usage.Rate
	starts []int64
	prices []usage.Rate
}

// above is the rate of more than so many tokens.
func (t genaiTiers) above(tokens int64) usage.Rate {
	rate := t.base
	for i, start := range t.starts {
		if start <= tokens {
			rate = t.prices[i]
		}
	}
	return rate
}

// readGenAITiers reads a rate: a number, or a base with tiers.
func readGenAITiers(raw json.RawMessage) (t genaiTiers, err error) {
	type tier struct {
		Start int64           `json:"start"`
		Price json.RawMessage `json:"price"`
	}
	var file struct {
		Base  json.RawMessage `json:"base"`
		Tiers []tier          `json:"tiers"`
	}
	if json.Unmarshal(raw, &file) != nil { // no object
		t.base, err = usage.ParseRate(number(raw))
		return t, err
	}
	if t.base, err = usage.ParseRate(number(file.Base)); err != nil {
		return t, err
	}
	slices.SortStableFunc(file.Tiers, func(a, b tier) int { return cmp.Compare(a.Start, b.Start) })
	for _, tier := range file.Tiers {
		price, err := usage.ParseRate(number(tier.Price))
		if err != nil {
			return t, err
		}
		if tier.Start <= 0 || slices.Contains(t.starts, tier.Start) {
			return t, fmt.Errorf("tiers do not rise from above 0")
		}
		t.starts, t.prices = append(t.starts, tier.Start), append(t.prices, price)
	}
	return t, nil
}
