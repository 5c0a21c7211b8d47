package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PriceList is a list of prices and the date as of which it was right. Package
// pricefile reads such lists from files.
type PriceList struct {
	// AsOf is the instant as of which somebody knew that the prices were right.
	// It must be set, because a list without a date goes stale unnoticed.
	AsOf time.Time
	// Models are the models. A name may occur only once.
	Models []Model
}

// Model is a model and its prices.
type Model struct {
	// Name is the name that charges show.
	Name string
	// Aliases are further names.
	Aliases []string
	// Rules recognise further names. Any of them suffices.
	Rules []Rule
	// Prices are the prices, in any order; their Model need not be set. Of one
	// variant there may be several that differ in ValidFrom.
	Prices []Price
}

// PriceListError is one thing that is wrong with a PriceList.
type PriceListError struct {
	// Path is the place, as a file has it, such as
	// "models[3].prices[0].tiers[1].above".
	Path string
	// Problem is what is wrong there, with the value.
	Problem string
}

// Error is the path and the problem.
func (e *PriceListError) Error() string { return "usage: price list: " + e.Path + ": " + e.Problem }

// Validate reports all that is wrong with the list at once: an error that joins
// ([errors.Join]) a [*PriceListError] for each.
func (l PriceList) Validate() error {
	var found problems
	if l.AsOf.IsZero() {
		found.add("as_of", "is not set; say as of when the prices are right")
	}
	taken := make(map[string]int, len(l.Models))
	for i := range l.Models {
		l.Models[i].validate(i, taken, &found)
	}
	return errors.Join(found...)
}

// problems gathers what is wrong with a list.
type problems []error

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, &PriceListError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

// validate is Validate for a model, whose names it enters into taken.
func (m *Model) validate(at int, taken map[string]int, found *problems) {
	path := fmt.Sprintf("models[%d]", at)
	for i, name := range append([]string{m.Name}, m.Aliases...) {
		where := path + ".name"
		if i > 0 {
			where = fmt.Sprintf("%s.aliases[%d]", path, i-1)
		}
		key := lower(name)
		by, twice := taken[key]
		switch {
		case key == "":
			found.add(where, "is empty")
		case len(key) > maxName:
			found.add(where, "%q has %d bytes, more than %d", clip(key), len(key), maxName)
		case twice && by != at:
			found.add(where, "%q is also a name of models[%d]", clip(name), by)
		default:
			taken[key] = at
		}
	}
	for i := range m.Rules {
		if err := m.Rules[i].validate(0); err != nil {
			found.add(fmt.Sprintf("%s.match[%d]", path, i), "%v", err)
		}
	}
	if len(m.Prices) == 0 {
		found.add(path+".prices", "model %q has none", clip(m.Name))
	}
	type key struct {
		variant Variant
		from    int64
	}
	seen := make(map[key]int, len(m.Prices))
	for i := range m.Prices {
		p, where := &m.Prices[i], fmt.Sprintf("%s.prices[%d]", path, i)
		p.validate(where+".", found)
		k := key{p.Variant, p.ValidFrom.Unix()}
		if by, twice := seen[k]; twice {
			found.add(where+".from", "prices[%d] is a %v price from the same second on", by, p.Variant)
		}
		seen[k] = i
	}
}

// maxName bounds the names of models, in bytes.
const maxName = 512

// validate finds what is wrong with a price, in a place.
func (p *Price) validate(path string, found *problems) {
	if !p.Variant.known() {
		found.add(path+"variant", "%q is none of standard, batch, flex and priority", clip(string(p.Variant)))
	}
	if p.Basis != Listed {
		found.add(path+"basis", "is %v, but a price that is given is %v", p.Basis, Listed)
	}
	if !p.Input.set {
		found.add(path+"input", "is not set; say 0 if it is free")
	}
	base := p.byPart()
	for part, rate := range base {
		if rate.micros < 0 {
			found.add(path+Part(part).String(), "%v is negative", rate)
		}
	}
	below := &p.Rates
	for i := range p.Tiers {
		tier, where := &p.Tiers[i], fmt.Sprintf("%stiers[%d].", path, i)
		if tier.Above <= 0 {
			found.add(where+"above", "%d is not above 0", tier.Above)
		} else if i > 0 && tier.Above <= p.Tiers[i-1].Above {
			found.add(where+"above", "%d does not rise from the tier before, %d", tier.Above, p.Tiers[i-1].Above)
		}
		before, charged := below.byPart(), below.charged()
		for part, rate := range tier.byPart() {
			switch {
			case rate.micros < 0:
				found.add(where+Part(part).String(), "%v is negative", rate)
			case !rate.set && before[part].set:
				found.add(where+Part(part).String(), "is not set, but below the tier it is %v", before[part])
			case !rate.set && base[part].set:
				found.add(where+Part(part).String(), "is not set, but below all tiers it is %v", base[part])
			case rate.set && rate.micros < charged[part].micros:
				found.add(where+Part(part).String(), "%v is less than below the tier, %v; a longer call must not cost less", rate, charged[part])
			}
		}
		below = &tier.Rates
	}
}

// listDates are the dates of a list.
type listDates struct {
	asOf time.Time
	from []time.Time // the ValidFroms, rising
}

func datesOf(l *PriceList) listDates {
	d := listDates{asOf: l.AsOf}
	for i := range l.Models {
		for j := range l.Models[i].Prices {
			if from := l.Models[i].Prices[j].ValidFrom; !from.IsZero() {
				d.from = append(d.from, from)
			}
		}
	}
	slices.SortFunc(d.from, time.Time.Compare)
	d.from = slices.CompactFunc(d.from, time.Time.Equal)
	return d
}

// newest is the latest date that is not after now, or now if all are.
func (d *listDates) newest(now time.Time) time.Time {
	var newest time.Time
	if !d.asOf.After(now) {
		newest = d.asOf
	}
	for _, from := range d.from {
		if !from.After(now) && from.After(newest) {
			newest = from
		}
	}
	if newest.IsZero() {
		return now
	}
	return newest
}

// latest is the latest date of all.
func (d *listDates) latest() time.Time {
	if n := len(d.from); n > 0 && d.from[n-1].After(d.asOf) {
		return d.from[n-1]
	}
	return d.asOf
}

// lower is how names are compared.
func lower(name string) string { return strings.ToLower(strings.TrimSpace(name)) }
