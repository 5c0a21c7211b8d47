package usage

import (
	"fmt"
	"time"
)

// perMillion is how many tokens a [Rate] is for.
const perMillion = 1_000_000

// Rate is a price for a million tokens, in whole micro-dollars. The zero Rate is
// "not set", which is not the same as a rate of 0: a model is free only if
// somebody says so.
type Rate struct {
	micros Micros
	set    bool
}

// PerMillion is the Rate of so many micro-dollars per million tokens:
// PerMillion(2_500_000) is $2.50 per million.
func PerMillion(m Micros) Rate { return Rate{m, true} }

// ParseRate reads a price in dollars per million tokens, such as "2.50" or "0.3",
// exactly and never by way of a binary fraction. It must not be negative. More
// than six decimals are refused, because no provider prices that finely: it is
// more likely a price per token, for which there is [ParseRatePerToken].
func ParseRate(dollars string) (Rate, error) { return parseRate(dollars, 6, "dollars per million") }

// ParseRatePerToken reads a price in dollars per token, such as "2.5e-06", in the
// same way. In dollars per million tokens it must have no more than six
// decimals.
func ParseRatePerToken(dollars string) (Rate, error) {
	return parseRate(dollars, 12, "dollars per token")
}

func parseRate(s string, scale int, unit string) (Rate, error) {
	n, err := parseDecimal(s, scale)
	switch {
	case err == errFine && scale == 6:
		return Rate{}, fmt.Errorf("usage: price %q has more than six decimals; is it in %s, or should it be per million?", clip(s), unit)
	case err == errFine:
		return Rate{}, fmt.Errorf("usage: price %q in %s has more than six decimals in dollars per million; is it per million?", clip(s), unit)
	case err != nil:
		return Rate{}, fmt.Errorf("usage: price %q in %s: %w", clip(s), unit, err)
	}
	return PerMillion(Micros(n)), nil
}

// Micros is the rate in micro-dollars per million tokens, and whether it is set.
func (r Rate) Micros() (m Micros, ok bool) { return r.micros, r.set }

// String gives the rate in dollars per million tokens, such as "$2.50", or
// "unset".
func (r Rate) String() string {
	if !r.set {
		return "unset"
	}
	return r.micros.String()
}

// Variant is a way of processing that a provider prices by itself. The zero
// value is [Standard].
type Variant string

const (
	// Standard is what a call costs without any agreement.
	Standard Variant = ""
	// Batch is processing within hours. Usually it is cheaper.
	Batch Variant = "batch"
	// Flex is processing when there is room. Usually it is cheaper.
	Flex Variant = "flex"
	// Priority is processing before others. It is dearer.
	Priority Variant = "priority"
)

// ParseVariant reads a variant as price lists and responses name it, ignoring
// case: "" and "standard", "batch", "flex" and "priority"; the service tiers
// "default" and "on_demand" (Standard), "on_demand_flex" and
// "on_demand_priority" (OpenAI's service_tier and Vertex AI's trafficType). Any
// other name is an error.
func ParseVariant(name string) (Variant, error) {
	switch lower(name) {
	case "", "standard", "default", "on_demand":
		return Standard, nil
	case "batch":
		return Batch, nil
	case "flex", "on_demand_flex":
		return Flex, nil
	case "priority", "on_demand_priority":
		return Priority, nil
	}
	return Standard, fmt.Errorf("usage: variant %q is none of standard, batch, flex and priority", clip(name))
}

// String is the variant's name; that of [Standard] is "standard".
func (v Variant) String() string {
	if v == Standard {
		return "standard"
	}
	return string(v)
}

func (v Variant) known() bool {
	switch v {
	case Standard, Batch, Flex, Priority:
		return true
	}
	return false
}

// Rates are what the parts of a call cost, per million tokens.
type Rates struct {
	// Input is the rate of input that was neither read from a cache nor written
	// to it. It must be set.
	Input Rate
	// CachedInput is the rate of input read from a cache. Defaults to Input.
	CachedInput Rate
	// CacheWrite is the rate of input written to a cache. Defaults to Input.
	CacheWrite Rate
	// Output is the rate of output without the thoughts. Models without output
	// (embeddings) need none; output of a model without this rate is an error,
	// never free.
	Output Rate
	// Thoughts is the rate of thoughts. Defaults to Output.
	Thoughts Rate
}

// byPart are the rates by part, as they are set.
func (r *Rates) byPart() [numParts]Rate {
	return [numParts]Rate{
		PartInput: r.Input, PartCachedInput: r.CachedInput, PartCacheWrite: r.CacheWrite,
		PartOutput: r.Output, PartThoughts: r.Thoughts,
	}
}

// charged are the rates by part, as they are charged: with what stands in for
// those that are not set.
func (r *Rates) charged() [numParts]Rate {
	rates := r.byPart()
	for part, rate := range rates {
		if !rate.set {
			rates[part] = rates[Part(part).substitute()]
		}
	}
	return rates
}

// Tier is what a whole call costs from a size on.
type Tier struct {
	// Above is the number of input tokens, cached ones inside, above which the
	// tier applies.
	Above int64
	// Rates are the rates of the tier. What the rates below it set, they set, too,
	// and no part is cheaper than there: a longer call never costs less.
	Rates
}

// Basis says where a Price comes from.
type Basis uint8

const (
	// Listed is a price that a price list gives for the model.
	Listed Basis = iota
	// Defaulted is the price that stands in for that of unknown models; see
	// [UnknownDefault].
	Defaulted
	// Uncosted is no price at all, as configured; see [UnknownUncosted]. Its
	// Cost is 0.
	Uncosted
)

// String is "listed", "default" or "uncosted".
func (b Basis) String() string {
	switch b {
	case Listed:
		return "listed"
	case Defaulted:
		return "default"
	case Uncosted:
		return "uncosted"
	}
	return fmt.Sprintf("Basis(%d)", uint8(b))
}

// Price is what calls of one model cost from a date on, in one variant.
//
// The rate of a part is that of the highest tier whose Above is less than the
// call's whole input, and the whole call is priced by that tier, output
// included. This is how Google, OpenAI and Anthropic price long prompts (their
// pricing pages: "prompts > 200k tokens").
//
// A call's cost is the sum over its parts of tokens × rate ÷ 1,000,000, rounded
// up to a whole micro-dollar once per call. So nothing that has a price ever
// becomes free, and charging two usages of the same tier apart costs at most one
// micro-dollar more than charging their sum.
//
// The zero Price prices nothing, and its Cost is an error. Price is a value to
// be read; its methods are safe for concurrent use.
type Price struct {
	// Model is the name under which a price list has the model, or the name that
	// was asked for if none has it. A [Catalog] sets it.
	Model string
	// Variant is the variant that the price is for. A catalogue that has no price
	// for the variant asked for may have taken another; see [Catalog.Price].
	Variant Variant
	// ValidFrom is the instant from which on the price holds; the zero time is
	// "ever since".
	ValidFrom time.Time
	// AsOf is the date of the price list that the price is from; zero if it is from
	// none. A [Catalog] sets it. With Model, Variant and ValidFrom it says which price
	// this is.
	AsOf time.Time
	// Basis says where the price comes from. In a price list it is Listed.
	Basis Basis
	// Rates are the rates of calls below the first tier.
	Rates
	// Tiers are further rates, by rising Above. They must not be changed.
	Tiers []Tier
}

// UnpricedError is the error of a call that used what its price has no rate for:
// output of a model that is priced as having none, or anything by the zero
// [Price].
type UnpricedError struct {
	// Model is the model of the price.
	Model string
	// Part is what has no rate.
	Part Part
	// Tokens is how many tokens the call used of it.
	Tokens int64
}

// Error names the model, the part and the number of tokens.
func (e *UnpricedError) Error() string {
	return fmt.Sprintf("usage: the price of model %q has no rate for %d tokens of %v", clip(e.Model), e.Tokens, e.Part)
}

// ratesFor are the rates of a call with so many input tokens, and the tier's
// threshold.
func (p *Price) ratesFor(input int64) (*Rates, int64) {
	for i := len(p.Tiers) - 1; i >= 0; i-- {
		if input > p.Tiers[i].Above {
			return &p.Tiers[i].Rates, p.Tiers[i].Above
		}
	}
	return &p.Rates, 0
}

// Cost is what u costs, rounded up once; it is the Total of [Price.Charge],
// without the items. It is never negative: an inconsistent usage is charged by
// its larger reading (see [Usage.Clamp]). It does not fall when a part grows, if
// no tier is cheaper than the one before, which [PriceList.Validate] demands.
// The error is an [*UnpricedError] or [ErrOverflow].
//
// To price a usage that is a total only, divide it first ([Usage.Split]);
// otherwise all of it is priced as output.
func (p Price) Cost(u Usage) (Micros, error) {
	var c Charge
	err := p.charge(u, &c)
	return c.Total, err
}

// Item is one line of a Charge.
type Item struct {
	// Part is what is charged.
	Part Part
	// Tokens is how many of them.
	Tokens int64
	// Rate is their price in micro-dollars per million tokens.
	Rate Micros
	// Amount is what the line comes to. It is rounded so that the lines add up to
	// the total exactly: each line is what it adds to the sum, rounded up, of the
	// lines before it.
	Amount Micros
}

// Charge is the cost of one call, itemised.
type Charge struct {
	// Model, Variant, ValidFrom and Basis are those of the price.
	Model     string
	Variant   Variant
	ValidFrom time.Time
	Basis     Basis
	// Above is the threshold of the tier that applied; 0 is the price below all
	// tiers.
	Above int64
	// Items are the parts, in the order in which they are declared, those without
	// tokens included.
	Items [5]Item
	// Total is the sum of the items' amounts.
	Total Micros
}

// Charge is what u costs, part by part. See [Price.Cost].
func (p Price) Charge(u Usage) (Charge, error) {
	c := Charge{Model: p.Model, Variant: p.Variant, ValidFrom: p.ValidFrom, Basis: p.Basis}
	if err := p.charge(u, &c); err != nil {
		return Charge{}, err
	}
	return c, nil
}

// charge fills in the items and the total, which is 0 where it fails.
func (p *Price) charge(u Usage, c *Charge) error {
	parts, input, err := u.parts()
	if err != nil {
		return err
	}
	rates, above := p.ratesFor(input)
	c.Above = above
	byPart, sum := rates.charged(), wide{}
	var total Micros
	for i, tokens := range parts {
		part, rate := Part(i), byPart[i]
		if p.Basis == Uncosted {
			rate = PerMillion(0)
		}
		switch {
		case !rate.set && tokens > 0:
			return &UnpricedError{Model: p.Model, Part: part, Tokens: tokens}
		case rate.micros < 0:
			return fmt.Errorf("usage: the price of model %q has a negative rate for %v: %v", clip(p.Model), part, rate)
		}
		if !sum.addProduct(tokens, int64(rate.micros)) {
			return ErrOverflow
		}
		upTo, err := sum.ceilDiv(perMillion)
		if err != nil {
			return err
		}
		c.Items[part] = Item{Part: part, Tokens: tokens, Rate: rate.micros, Amount: Micros(upTo) - total}
		total = Micros(upTo)
	}
	c.Total = total
	return nil
}
