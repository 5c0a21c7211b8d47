package pricefile

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/usage"
)

// The reasons of a LiteLLM report, each a constant so that they can be counted.
const (
	reasonNotObject = "not an object"
	reasonNoInput   = "no price per input token"
	reasonFree      = "listed at 0, which may mean unknown"
	reasonVariant   = "the variant lacks a price for input or output; it is left out"
	reasonTierGuess = "the variant has no price for long prompts: those are priced at the dearer of its own price and the standard one"
	reasonTierOnly  = "a part has a price for long prompts only; it is left out"
	reasonOtherUnit = "a price that tokens of text cannot be told apart by; what it is for is priced as text, or not at all"
	reasonFreeSide  = "input or output is listed at 0 and the other is not, which may mean unknown"
	reasonFreeKind  = "the variant is listed at 0, which may mean unknown; it is left out"
	reasonFreePart  = "listed at 0 beside other prices, and taken for free"
)

// LiteLLM reads LiteLLM's model_prices_and_context_window.json: an object of
// models, with prices in dollars per token.
//
// Read are the models whose mode is chat, completion, responses or embedding, or
// not given. Names are taken as they are ("gemini/gemini-3-pro-preview"), since a
// catalogue finds them without the provider, too. Of a price are read the input
// and output per token, cached input, cache writes, reasoning tokens, the tiers
// "_above_Nk_tokens" and "tiered_pricing", and the variants "_batches", "_flex"
// and "_priority". What a tier does not repeat it has from the price below, as
// LiteLLM itself does it.
//
// A model is skipped if its mode is another one, if it has no price per input
// token, if it has a key twice, if a price is negative or no number or has more
// than six decimals per million tokens (some are the result of binary
// arithmetic), or if its input or its output is listed at 0, but for the output
// of embeddings; see [Options.TakeFree]. A tier that is cheaper than what is below
// it is raised to that, and noted. Everything else that is a cost and is not read
// (images, audio, seconds, searches, one-hour cache writes) is a note in
// [Report.Partial].
//
// The error is that of a file which is no JSON object at all, of Options, or of a
// reader.
func LiteLLM(r io.Reader, o Options) (usage.PriceList, Report, error) {
	var rep Report
	if err := o.check(); err != nil {
		return usage.PriceList{}, rep, err
	}
	data, err := read(r)
	if err != nil {
		return usage.PriceList{}, rep, err
	}
	file, err := members(data)
	if err != nil {
		return usage.PriceList{}, rep, fmt.Errorf("pricefile: LiteLLM's file: %w", err)
	}
	l := usage.PriceList{AsOf: o.AsOf}
	taken, seen := map[string]bool{}, map[string]bool{}
	for _, m := range file {
		if m.name == "sample_spec" { // documentation in the form of a model
			continue
		}
		if model, ok := litellmModel(m, o, seen, &rep); ok {
			if key := strings.ToLower(strings.TrimSpace(m.name)); taken[key] {
				rep.skip(m.name, "a model of that name came before")
			} else {
				taken[key] = true
				l.Models = append(l.Models, model)
			}
		}
	}
	if err := o.missing(seen); err != nil {
		return usage.PriceList{}, rep, err
	}
	return rep.finish(l)
}

// litellmModel reads one model.
func litellmModel(m member, o Options, seen map[string]bool, rep *Report) (usage.Model, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(m.value, &fields) != nil || fields == nil {
		rep.skip(m.name, reasonNotObject)
		return usage.Model{}, false
	}
	if !o.wants(text(fields["litellm_provider"]), seen) {
		return usage.Model{}, false
	}
	if err := nameError(m.name); err != "" {
		rep.skip(m.name, err)
		return usage.Model{}, false
	}
	if key, ok := keyTwice(m.value); ok {
		rep.Skipped = append(rep.Skipped, Note{m.name, key, reasonTwice})
		return usage.Model{}, false
	}
	mode := text(fields["mode"])
	switch mode {
	case "", "chat", "completion", "responses", "embedding":
	default:
		rep.skip(m.name, "mode "+strconv.Quote(mode)+" is not priced by tokens of text alone")
		return usage.Model{}, false
	}
	c := litellmCosts{name: m.name, fields: fields, takeFree: o.TakeFree, used: map[string]bool{}, rep: rep}
	prices, ok := c.prices()
	if c.bad != "" {
		rep.skip(m.name, c.bad)
		return usage.Model{}, false
	}
	if !ok {
		rep.skip(m.name, reasonNoInput)
		return usage.Model{}, false
	}
	switch p := &prices[0]; {
	case o.TakeFree:
	case free(p):
		rep.skip(m.name, reasonFree)
		return usage.Model{}, false
	case isZero(p.Input), isZero(p.Output) && mode != "embedding":
		rep.skip(m.name, reasonFreeSide)
		return usage.Model{}, false
	}
	c.reportFree(&prices[0].Rates)
	c.reportRest()
	rep.Partial = append(rep.Partial, c.notes...)
	return usage.Model{Name: m.name, Prices: prices}, true
}

// litellmCosts reads the costs of a model.
type litellmCosts struct {
	name   string
	fields map[string]json.RawMessage
	used   map[string]bool
	rep    *Report
	notes  []Note // for the report, if the model is taken
	bad    string // the first price that cannot be read

	takeFree bool // a variant at 0 is free
}

// prices are the prices of all variants, the standard one first.
func (c *litellmCosts) prices() (prices []usage.Price, ok bool) {
	standard, ok := c.variant(usage.Standard, "")
	if c.fields["tiered_pricing"] != nil {
		standard.Tiers, standard.Rates = c.tieredPricing(standard.Rates)
		ok = isSet(standard.Input)
	}
	if !ok {
		return nil, false
	}
	c.raise(&standard, "")
	prices = append(prices, standard)
	for _, v := range [...]struct {
		variant usage.Variant
		suffix  string
	}{{usage.Batch, "_batches"}, {usage.Flex, "_flex"}, {usage.Priority, "_priority"}} {
		p, ok := c.variant(v.variant, v.suffix)
		if !ok {
			if p.Rates != (usage.Rates{}) || p.Tiers != nil {
				c.notes = append(c.notes, Note{c.name, v.suffix[1:], reasonVariant})
			}
			continue
		}
		if isSet(standard.Output) && !isSet(p.Output) {
			c.notes = append(c.notes, Note{c.name, v.suffix[1:], reasonVariant})
			continue
		}
		if !c.takeFree && (isZero(p.Input) && !isZero(standard.Input) || isZero(p.Output) && !isZero(standard.Output)) {
			c.notes = append(c.notes, Note{c.name, v.suffix[1:], reasonFreeKind})
			continue
		}
		c.raise(&p, v.suffix)
		if len(p.Tiers) == 0 && len(standard.Tiers) > 0 {
			p.Tiers = dearerTiers(&p.Rates, standard.Tiers)
			c.notes = append(c.notes, Note{c.name, v.suffix[1:], reasonTierGuess})
		}
		prices = append(prices, p)
	}
	return prices, true
}

// raise makes no tier of a price cheaper than what is below it, and notes it.
func (c *litellmCosts) raise(p *usage.Price, suffix string) {
	if raised(p) {
		c.notes = append(c.notes, Note{c.name, strings.TrimPrefix(suffix, "_"), reasonCheaperTier})
	}
}

// dearerTiers are the tiers of a variant that has none, while the standard price
// has some.
func dearerTiers(base *usage.Rates, standard []usage.Tier) []usage.Tier {
	tiers := make([]usage.Tier, len(standard))
	for i, t := range standard {
		tiers[i] = usage.Tier{Above: t.Above, Rates: dearerRates(*base, t.Rates)}
	}
	return tiers
}

// variant is the price with a suffix; it is false without an input price.
func (c *litellmCosts) variant(v usage.Variant, suffix string) (usage.Price, bool) {
	p := usage.Price{Variant: v, Rates: c.rates(suffix, "")}
	for _, above := range c.thresholds(suffix) {
		t := below(c.rates(suffix, above.text), p.Rates, p.Tiers)
		for _, part := range [...]struct {
			tier *usage.Rate
			base usage.Rate
		}{
			{&t.CachedInput, p.CachedInput}, {&t.CacheWrite, p.CacheWrite}, {&t.Output, p.Output}, {&t.Thoughts, p.Thoughts},
		} {
			if isSet(*part.tier) && !isSet(part.base) {
				*part.tier = usage.Rate{} // what stands in for it below does so above, too
				c.notes = append(c.notes, Note{c.name, above.text[1:] + suffix, reasonTierOnly})
			}
		}
		p.Tiers = append(p.Tiers, usage.Tier{Above: above.tokens, Rates: t})
	}
	return p, isSet(p.Input)
}

// below fills what a tier does not say from the tier or the rates below it.
func below(t, base usage.Rates, tiers []usage.Tier) usage.Rates {
	if n := len(tiers); n > 0 {
		base = tiers[n-1].Rates
	}
	return usage.Rates{
		Input: or(t.Input, base.Input), CachedInput: or(t.CachedInput, base.CachedInput),
		CacheWrite: or(t.CacheWrite, base.CacheWrite), Output: or(t.Output, base.Output),
		Thoughts: or(t.Thoughts, base.Thoughts),
	}
}

// rates are the rates with a suffix, such as "_flex", above a threshold, such as
// "_above_200k_tokens".
func (c *litellmCosts) rates(suffix, above string) usage.Rates {
	end := above + suffix
	return usage.Rates{
		Input:       c.rate("input_cost_per_token" + end),
		CachedInput: or(c.rate("cache_read_input_token_cost"+end), c.rate("input_cost_per_token_cache_hit"+end)),
		CacheWrite:  c.rate("cache_creation_input_token_cost" + end),
		Output:      c.rate("output_cost_per_token" + end),
		Thoughts:    c.rate("output_cost_per_reasoning_token" + end),
	}
}

// rate is the rate of a field. A field that is absent or null is no rate.
func (c *litellmCosts) rate(field string) usage.Rate {
	raw, ok := c.fields[field]
	if !ok || string(raw) == "null" {
		return usage.Rate{}
	}
	c.used[field] = true
	r, err := usage.ParseRatePerToken(number(raw))
	if err != nil && c.bad == "" {
		c.bad = field + ": " + reasonOf(err)
	}
	return r
}

// threshold is a number of tokens and how a field writes it.
type threshold struct {
	tokens int64
	text   string
}

// thresholds are the thresholds of the tiers with a suffix, rising.
func (c *litellmCosts) thresholds(suffix string) (out []threshold) {
	for field := range c.fields {
		for _, start := range [...]string{"input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost"} {
			rest, ok := strings.CutPrefix(field, start+"_above_")
			if !ok {
				continue
			}
			count, end, ok := strings.Cut(rest, "k_tokens")
			if n, err := strconv.ParseInt(count, 10, 32); ok && err == nil && end == suffix && n > 0 {
				t := threshold{n * 1000, "_above_" + count + "k_tokens"}
				if !slices.Contains(out, t) {
					out = append(out, t)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b threshold) int { return int(a.tokens - b.tokens) })
	return slices.CompactFunc(out, func(a, b threshold) bool { return a.tokens == b.tokens })
}

// tieredPricing reads the other way of writing tiers: a list of prices with
// ranges of input tokens. What the first range does not say comes from base.
func (c *litellmCosts) tieredPricing(base usage.Rates) ([]usage.Tier, usage.Rates) {
	raw := c.fields["tiered_pricing"]
	c.used["tiered_pricing"] = true
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		c.bad = "tiered_pricing: not a list of prices"
		return nil, base
	}
	var tiers []usage.Tier
	last := int64(0)
	for i, fields := range list {
		var bounds []json.RawMessage
		if json.Unmarshal(fields["range"], &bounds) != nil || len(bounds) != 2 {
			c.bad = "tiered_pricing: a price without a range"
			return nil, base
		}
		from, ok := wholeNumber(bounds[0])
		if !ok || i == 0 && from != 0 || i > 0 && from <= last {
			c.bad = "tiered_pricing: ranges do not rise from 0"
			return nil, base
		}
		at := litellmCosts{name: c.name, fields: fields, used: map[string]bool{"range": true}, rep: c.rep}
		rates := at.rates("", "")
		if at.bad != "" {
			c.bad = "tiered_pricing: " + at.bad
			return nil, base
		}
		at.reportRest()
		c.notes = append(c.notes, at.notes...)
		if i == 0 {
			base = below(rates, base, nil)
		} else {
			tiers, last = append(tiers, usage.Tier{Above: from, Rates: below(rates, base, tiers)}), from
		}
	}
	return tiers, base
}

// reportFree notes the parts of a call that are free while its input is not.
func (c *litellmCosts) reportFree(r *usage.Rates) {
	for _, part := range [...]struct {
		field string
		rate  usage.Rate
	}{
		{"cache_read_input_token_cost", r.CachedInput}, {"cache_creation_input_token_cost", r.CacheWrite},
		{"output_cost_per_reasoning_token", r.Thoughts},
	} {
		if isZero(part.rate) && !isZero(r.Input) {
			c.notes = append(c.notes, Note{c.name, part.field, reasonFreePart})
		}
	}
}

// reportRest notes every cost that was not read.
func (c *litellmCosts) reportRest() {
	var rest []string
	for field := range c.fields {
		if !c.used[field] && (strings.Contains(field, "cost") || strings.Contains(field, "pricing") || strings.Contains(field, "uplift")) &&
			!strings.HasPrefix(field, "input_dbu_") && !strings.HasPrefix(field, "output_dbu_") {
			rest = append(rest, field)
		}
	}
	slices.Sort(rest)
	for _, field := range rest {
		reason := reasonOtherUnit
		if strings.HasPrefix(field, "cache_creation_input_token_cost_above_1hr") {
			reason = reasonOneHour
		}
		c.notes = append(c.notes, Note{c.name, field, reason})
	}
}

// reasonOf is an error as a reason: without the value, so that equal reasons can
// be counted together.
func reasonOf(err error) string {
	switch s := err.Error(); {
	case strings.Contains(s, "per million?"):
		return "more than six decimals in dollars per million"
	case strings.Contains(s, "negative"):
		return "negative"
	}
	return "not a price"
}

// nameError says what is wrong with a model's name.
func nameError(name string) string {
	switch trimmed := strings.TrimSpace(name); {
	case trimmed == "":
		return "the name is empty"
	case len(trimmed) > 512:
		return "the name is too long"
	}
	return ""
}
