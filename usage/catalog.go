package usage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// UnknownPolicy says what a Catalog answers for a model that it has no price
// for. There is no silent 0 among the answers.
type UnknownPolicy uint8

const (
	// UnknownReject answers with an [*UnknownModelError], so that the call can be
	// refused before it is sent. It is the zero value.
	UnknownReject UnknownPolicy = iota
	// UnknownUncosted answers with a price that costs nothing and says so: its
	// Basis is [Uncosted]. Use it where money is only reported. The catalogue
	// counts such answers ([CatalogSnapshot.Uncosted]).
	UnknownUncosted
	// UnknownDefault answers with [CatalogConfig.Default], whose Basis is then
	// [Defaulted]. The catalogue counts such answers
	// ([CatalogSnapshot.Defaulted]).
	UnknownDefault
)

// String is "reject", "uncosted" or "default".
func (p UnknownPolicy) String() string {
	switch p {
	case UnknownReject:
		return "reject"
	case UnknownUncosted:
		return "uncosted"
	case UnknownDefault:
		return "default"
	}
	return fmt.Sprintf("UnknownPolicy(%d)", uint8(p))
}

// ErrUnknownModel is what every [*UnknownModelError] is, for errors.Is.
var ErrUnknownModel = errors.New("usage: no price for the model")

// UnknownModelError is the error of a model that no price list has a price for.
type UnknownModelError struct {
	// Model is the name that was asked for.
	Model string
	// Variant is the variant that was asked for.
	Variant Variant
	// At is the instant that was asked for.
	At time.Time
	// Listed is the name under which a price list has the model; it is empty if
	// none has it. If it is set, the list has no price for the variant or for the
	// instant.
	Listed string
	// Candidates are the names of the models among which the name asked for does
	// not decide: they differ by provider, and their prices differ.
	Candidates []string
}

// Error names the model, and what was missing.
func (e *UnknownModelError) Error() string {
	switch {
	case e.Listed != "":
		return fmt.Sprintf("usage: model %q has no %v price at %s", clip(e.Listed), e.Variant, e.At.Format(time.RFC3339))
	case len(e.Candidates) > 0:
		const most = 4 // the field has all
		return fmt.Sprintf("usage: no price for model %q: %d models differ in price, such as %q; name one of them",
			clip(e.Model), len(e.Candidates), e.Candidates[:min(len(e.Candidates), most)])
	}
	return fmt.Sprintf("usage: no price for model %q", clip(e.Model))
}

// Is makes the error match [ErrUnknownModel].
func (e *UnknownModelError) Is(target error) bool { return target == ErrUnknownModel }

// Denied is true: a call that is refused for want of a price is refused by us,
// not by the provider.
func (e *UnknownModelError) Denied() bool { return true }

// CatalogConfig is what a Catalog is made of.
type CatalogConfig struct {
	// Lists are the price lists. At least one is needed. A later list replaces
	// the models of earlier ones that it names, each with all its prices.
	Lists []PriceList
	// Unknown is what to answer for a model without a price. Defaults to
	// [UnknownReject].
	Unknown UnknownPolicy
	// Default is the price of unknown models under [UnknownDefault], and must be
	// left out otherwise. Only its rates and tiers count.
	Default Price
	// IgnorePrefixes are further beginnings of model names that do not change the
	// price, such as "openrouter/". Those of the makers and the large clouds are
	// built in; see [Catalog.Price].
	IgnorePrefixes []string
}

// Catalog says what models cost. Its price lists can be replaced while it is in
// use ([Catalog.Replace]); a [Price] that was taken before stays as it was, so a
// call that is reserved and settled with one Price is charged by one list.
//
// A Catalog is safe for concurrent use, and reading it takes no lock. The zero
// Catalog knows no model and rejects all.
type Catalog struct {
	table atomic.Pointer[priceTable]

	rejected, uncosted, defaulted atomic.Int64

	replacing sync.Mutex
	// replacing guards all that follows, and keeps replacements in order.
	config CatalogConfig // without the lists
}

// NewCatalog makes a Catalog. Errors name what is wrong with the configuration,
// all of it at once.
func NewCatalog(config CatalogConfig) (*Catalog, error) {
	switch config.Unknown {
	case UnknownReject, UnknownUncosted:
		if p := config.Default; p.Rates != (Rates{}) || p.Tiers != nil {
			return nil, fmt.Errorf("usage: CatalogConfig.Default is set, but Unknown is %v", config.Unknown)
		}
	case UnknownDefault:
		var found problems
		if config.Default.validate("default.", &found); len(found) > 0 {
			return nil, fmt.Errorf("usage: CatalogConfig.Default:\n%w", errors.Join(found...))
		}
	default:
		return nil, fmt.Errorf("usage: CatalogConfig.Unknown is %v", config.Unknown)
	}
	c := &Catalog{config: config}
	c.config.Lists = nil
	if err := c.Replace(config.Lists...); err != nil {
		return nil, err
	}
	return c, nil
}

// Replace puts other price lists in the place of all that the catalogue has, at
// once: a reader sees either the old lists or the new ones. If there is anything
// wrong with them it returns an error that names all of it, and the old lists
// stay. The lists are copied, but for the tiers of their prices, which must not
// be changed any more.
func (c *Catalog) Replace(lists ...PriceList) error {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	t, err := newPriceTable(lists, c.config.IgnorePrefixes)
	if err != nil {
		return err
	}
	if old := c.table.Load(); old != nil {
		t.replacements = old.replacements + 1
	}
	c.table.Store(t)
	return nil
}

// Price is what calls of a model cost at an instant, in a variant.
//
// A name is looked up as it is and then with less and less of it, and the
// longest form that a list has wins. Case never counts. What may be left out,
// of the name asked for and of the names in the lists alike:
//
//   - in front: the path of a resource ("models/", "publishers/google/models/",
//     "projects/…/models/", an ARN), the maker or the cloud ("gemini/", "openai/",
//     "vertex_ai/", "bedrock/" and so on, and [CatalogConfig.IgnorePrefixes]), and
//     what Amazon Bedrock puts there ("us.", "anthropic.");
//   - at the end: "-latest", a date ("-20250929", "-2024-08-06", "-05-06",
//     "-09-2025", "@20250929") and the version of Amazon Bedrock ("-v1:0").
//
// So a list's "gpt-4o" is the price of "openai/gpt-4o-2024-11-20" unless the list
// has that as well. Where only dated names are listed, the newest stands for the
// name without a date. Where the lists have a name under providers only, its
// maker's price counts before that of a cloud; among several of those whose prices
// differ nothing is chosen: the model is unknown, and the error names them. A
// region of Amazon Bedrock is left out of the name asked for only. Nothing
// else is guessed: "m.1" and "m-10" are not "m-1". A list may have rules
// ([Model.Rules]) to recognise more names; among rules and names, too, what
// matches more of the name wins, and a name wins over a rule that matches as
// much.
//
// Of the model's prices in the variant, the one with the latest ValidFrom that
// is not after at is taken. Without one, Batch and Flex are priced as Standard,
// which is the dearer reading; Priority is not. The Variant of the result says
// which it was.
//
// If there is no price, [CatalogConfig.Unknown] decides. An error is an
// [*UnknownModelError], or says that the variant does not exist. Price does no
// I/O.
func (c *Catalog) Price(model string, at time.Time, variant Variant) (Price, error) {
	if !variant.known() {
		return Price{}, fmt.Errorf("usage: variant %q is none of standard, batch, flex and priority", clip(string(variant)))
	}
	p, unknown := c.table.Load().price(model, at, variant)
	if unknown == nil {
		return p, nil
	}
	return c.unknown(unknown)
}

// PriceAnswered is [Catalog.Price] for a call whose answer came under another
// model name than was asked for: the name that answered counts if a list has it,
// otherwise the one that was asked for. An empty answered is none.
func (c *Catalog) PriceAnswered(asked, answered string, at time.Time, variant Variant) (Price, error) {
	if answered != "" && variant.known() {
		if p, unknown := c.table.Load().price(answered, at, variant); unknown == nil {
			return p, nil
		}
	}
	return c.Price(asked, at, variant)
}

// unknown applies the policy.
func (c *Catalog) unknown(err *UnknownModelError) (Price, error) {
	switch c.config.Unknown { // never changes
	case UnknownUncosted:
		c.uncosted.Add(1)
		return Price{Model: err.Model, Variant: err.Variant, Basis: Uncosted}, nil
	case UnknownDefault:
		c.defaulted.Add(1)
		p := c.config.Default
		p.Model, p.Variant, p.ValidFrom, p.AsOf, p.Basis = err.Model, err.Variant, time.Time{}, time.Time{}, Defaulted
		return p, nil
	}
	c.rejected.Add(1)
	return Price{}, err
}

// Age is how old the prices are at an instant: the time since the newest date of
// a list, which is its AsOf or the latest ValidFrom that is not after now. With
// several lists it is the age of the oldest, so that a few fresh corrections do
// not hide a stale list. It is never negative, and 0 without lists. It is made for
// a metric.
func (c *Catalog) Age(now time.Time) time.Duration {
	var age time.Duration
	if t := c.table.Load(); t != nil {
		for _, dates := range t.dates {
			age = max(age, now.Sub(dates.newest(now)))
		}
	}
	return age
}

// CatalogSnapshot is what a catalogue holds, and what it answered so far.
type CatalogSnapshot struct {
	// Models is the number of models, and Prices that of their prices.
	Models, Prices int
	// AsOf is the oldest AsOf of the price lists.
	AsOf time.Time
	// NewestPrice is the latest date in the lists, be it an AsOf or a ValidFrom,
	// the announced ones included.
	NewestPrice time.Time
	// Replacements is how often the lists were replaced.
	Replacements int64
	// Rejected, Uncosted and Defaulted are how often a model without a price was
	// asked for, by what was answered.
	Rejected, Uncosted, Defaulted int64
}

// Snapshot says what the catalogue holds, and what it answered so far.
func (c *Catalog) Snapshot() CatalogSnapshot {
	s := CatalogSnapshot{Rejected: c.rejected.Load(), Uncosted: c.uncosted.Load(), Defaulted: c.defaulted.Load()}
	t := c.table.Load()
	if t == nil {
		return s
	}
	s.Models, s.Prices, s.Replacements = len(t.entries), t.prices, t.replacements
	for i, dates := range t.dates {
		if i == 0 || dates.asOf.Before(s.AsOf) {
			s.AsOf = dates.asOf
		}
		if last := dates.latest(); last.After(s.NewestPrice) {
			s.NewestPrice = last
		}
	}
	return s
}
