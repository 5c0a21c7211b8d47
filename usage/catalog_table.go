package usage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// priceTable is what a Catalog looks prices up in. But for what it remembers, it
// never changes.
type priceTable struct {
	namer   namer
	entries []*entry
	exact   map[string]*entry  // by a name in a list
	loose   map[string][]loose // by what is left of such a name
	rules   []ruled            // those of later lists first

	dates        []listDates
	prices       int
	replacements int64

	// resolved remembers the entries of names that are not in a list as they are.
	resolved   sync.Map
	remembered atomic.Int64
}

// entry is a model in a table.
type entry struct {
	name string
	// prices by variant, each by rising ValidFrom.
	standard, batch, flex, priority []Price
}

// loose is an entry that has a name with something left out.
type loose struct {
	entry *entry
	form
}

// ruled is a rule and the entry that it leads to.
type ruled struct {
	rule  Rule
	entry *entry
}

func newPriceTable(lists []PriceList, prefixes []string) (*priceTable, error) {
	if len(lists) == 0 {
		return nil, errors.New("usage: CatalogConfig.Lists: no price list")
	}
	var errs []error
	for i := range lists {
		if err := lists[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("usage: CatalogConfig.Lists[%d]:\n%w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t := &priceTable{namer: newNamer(prefixes), exact: map[string]*entry{}, loose: map[string][]loose{}}
	for i := range lists {
		t.dates = append(t.dates, datesOf(&lists[i]))
	}
	// From the last list to the first, so that a name is taken by the last one.
	for _, l := range slices.Backward(lists) {
		t.add(&l)
	}
	return t, nil
}

// add adds the models of a list that no later list has.
func (t *priceTable) add(l *PriceList) {
	taken := make(map[string]*entry, len(l.Models)) // by this list
	for i := range l.Models {
		m := &l.Models[i]
		if t.exact[lower(m.Name)] != nil {
			continue // replaced
		}
		e := newEntry(m, l.AsOf)
		t.entries = append(t.entries, e)
		t.prices += len(m.Prices)
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			if key := lower(name); t.exact[key] == nil {
				taken[key] = e
			}
		}
		for _, rule := range m.Rules {
			t.rules = append(t.rules, ruled{rule.folded(), e})
		}
	}
	for key, e := range taken {
		t.exact[key] = e
		for _, f := range t.namer.forms(key)[1:] {
			if f.origin == fromRegion {
				continue // one region's price is not another's
			}
			t.loose[f.name] = append(t.loose[f.name], loose{e, f})
		}
	}
}

func newEntry(m *Model, asOf time.Time) *entry {
	e := &entry{name: m.Name}
	for _, p := range m.Prices {
		p.Model, p.AsOf = m.Name, asOf
		of := e.of(p.Variant)
		*of = append(*of, p)
	}
	for _, prices := range [...][]Price{e.standard, e.batch, e.flex, e.priority} {
		slices.SortFunc(prices, func(a, b Price) int { return a.ValidFrom.Compare(b.ValidFrom) })
	}
	return e
}

// of are the prices of a variant, which is a known one.
func (e *entry) of(v Variant) *[]Price {
	switch v {
	case Batch:
		return &e.batch
	case Flex:
		return &e.flex
	case Priority:
		return &e.priority
	}
	return &e.standard
}

// price is the price at an instant.
func (e *entry) price(at time.Time, v Variant) (Price, bool) {
	prices := *e.of(v)
	for i := len(prices) - 1; i >= 0; i-- {
		if !prices[i].ValidFrom.After(at) {
			return prices[i], true
		}
	}
	if v == Batch || v == Flex {
		return e.price(at, Standard)
	}
	return Price{}, false
}

// equals reports whether two entries have the same prices.
func (e *entry) equals(o *entry) bool {
	same := func(a, b Price) bool {
		return a.Variant == b.Variant && a.ValidFrom.Equal(b.ValidFrom) && a.Rates == b.Rates && slices.Equal(a.Tiers, b.Tiers)
	}
	return e == o || slices.EqualFunc(e.standard, o.standard, same) && slices.EqualFunc(e.batch, o.batch, same) &&
		slices.EqualFunc(e.flex, o.flex, same) && slices.EqualFunc(e.priority, o.priority, same)
}

// price looks a price up. A nil table has none.
func (t *priceTable) price(model string, at time.Time, v Variant) (Price, *UnknownModelError) {
	if t == nil {
		return Price{}, &UnknownModelError{Model: model, Variant: v, At: at}
	}
	e, candidates := t.find(model)
	if e == nil {
		return Price{}, &UnknownModelError{Model: model, Variant: v, At: at, Candidates: candidates}
	}
	p, ok := e.price(at, v)
	if !ok {
		return Price{}, &UnknownModelError{Model: model, Variant: v, At: at, Listed: e.name}
	}
	return p, nil
}

// find finds the entry of a name, or the names of entries among which it does
// not decide.
func (t *priceTable) find(model string) (found *entry, candidates []string) {
	if len(model) > maxName {
		return nil, nil
	}
	name := lower(model)
	if e := t.exact[name]; e != nil {
		return e, nil
	}
	if e, ok := t.resolved.Load(name); ok {
		return e.(*entry), nil
	}
	forms := t.namer.forms(name)
	length := 0
	for _, f := range forms {
		if e := t.exact[f.name]; e != nil {
			found, length = e, len(f.name)
			break
		}
		if candidates != nil {
			continue // what is left of an ambiguous name must be a name to count
		}
		var e *entry
		if e, candidates = choose(t.loose[f.name]); e != nil {
			found, length = e, len(f.name)
			break
		}
	}
	for i := range t.rules {
		r := &t.rules[i]
		for _, f := range forms {
			if n, ok := r.rule.match(f.name); ok && n > length {
				found, length = r.entry, n
			}
		}
	}
	if found == nil {
		return nil, candidates
	}
	if t.remembered.Add(1) <= maxRemembered {
		t.resolved.Store(name, found)
	}
	return found, nil
}

// maxRemembered bounds the names that a table remembers to have looked up, so
// that invented ones do not fill the memory.
const maxRemembered = 1024

// choose takes one of the entries that have a name with something left out, or
// says which ones it cannot choose among. A name without a date is nearer than
// one of a maker, that one nearer than one of a cloud, and a newer date is nearer
// than an older one.
func choose(all []loose) (found *entry, candidates []string) {
	if len(all) == 0 {
		return nil, nil
	}
	best := slices.MaxFunc(all, compareLoose)
	for _, l := range all {
		if compareLoose(l, best) == 0 && !l.entry.equals(best.entry) {
			candidates = append(candidates, l.entry.name)
		}
	}
	if candidates != nil {
		candidates = append(candidates, best.entry.name)
		slices.Sort(candidates)
		return nil, slices.Compact(candidates)
	}
	for _, l := range all { // whichever order they came in
		if compareLoose(l, best) == 0 && l.entry.name < best.entry.name {
			best = l
		}
	}
	return best.entry, nil
}

// compareLoose is positive if a is the nearer one.
func compareLoose(a, b loose) int {
	switch {
	case a.origin != b.origin:
		return cmp.Compare(b.origin, a.origin)
	case a.noSuffix != b.noSuffix:
		if a.noSuffix {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.date, b.date)
}
