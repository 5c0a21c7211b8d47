// Package pricefile reads price lists for a [usage.Catalog] from files.
//
// Headgate ships no prices: a list inside a library goes stale without anybody
// noticing. Bring one of these instead, and say as of when it is right, so that
// [usage.Catalog.Age] can tell how old it has become.
//
//   - [Parse] reads a small format of our own, in YAML or JSON. It is strict: an
//     unknown key, a price that looks like one per token or a tier that forgets
//     the output is an error, and all errors come at once, each with its line
//     and its path. Write such a file for the few models that a program uses, or
//     to correct one of the others.
//   - [LiteLLM] reads LiteLLM's model_prices_and_context_window.json.
//   - [GenAIPrices] reads genai-prices' data_slim.json and data.json.
//
// The last two belong to others and hold more than a [usage.Price] can say: prices
// for images, seconds or searches, conditions on the hour, zeros that mean
// "unknown". Where such a file leaves a choice between two prices of a part, the
// dearer one is taken; what cannot be expressed is left out. Neither happens
// without a word: see [Report]. What is left out can make calls dearer than they
// are priced. Anthropic's cache writes for one hour, for instance, cost 1.6 times
// those for five minutes, and are priced as these, because a usage does not tell
// them apart.
//
// Prices are read from their decimal text, never by way of a binary fraction.
// A list of which no model could be read is an error, so that a broken download
// cannot replace good prices. All functions are safe for concurrent use.
package pricefile

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// MaxBytes is the size of the largest file that is read. LiteLLM's list has about
// 1.5 MB.
const MaxBytes = 32 << 20

// Options say how to read a list that others keep.
type Options struct {
	// AsOf is the instant as of which the file is right: when it was downloaded,
	// or the date of its commit. It must be set, for the file does not say.
	AsOf time.Time
	// Providers limits the list to providers, by the file's names of them
	// ("litellm_provider" in LiteLLM's file, "id" in genai-prices'). Defaults to
	// all. Models of others are not reported as skipped, but a name that the file
	// does not have is an error.
	Providers []string
	// TakeFree takes what is listed at 0 for free. By default models of which all
	// is listed at 0 are skipped and reported, because such lists also write 0
	// where a price is unknown or is part of a subscription; of LiteLLM's, which
	// also has zeros in place of a missing price, those of which the input or the
	// output is.
	TakeFree bool
}

// Report says what became of a file.
type Report struct {
	// Models and Prices are how many were read.
	Models, Prices int
	// Skipped are the models that were left out altogether, in the order of the
	// file.
	Skipped []Note
	// Partial are the models that were read, but for something that a price
	// cannot express, in the order of the file.
	Partial []Note
}

// Note is one thing that was left out, or read in a way that has to be known.
type Note struct {
	// Model is the model, as the file names it. It is empty if the note is about
	// the file.
	Model string
	// Field is what it is about; it may be empty.
	Field string
	// Reason says why.
	Reason string
}

// String is the note in one line.
func (n Note) String() string {
	if n.Field == "" {
		return n.Model + ": " + n.Reason
	}
	return n.Model + ": " + n.Field + ": " + n.Reason
}

// String sums the report up: how many models and prices, and how many were left
// out for which reason.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d models, %d prices; %d models skipped, %d notes on others", r.Models, r.Prices, len(r.Skipped), len(r.Partial))
	for _, part := range [...]struct {
		what  string
		notes []Note
	}{{"skipped", r.Skipped}, {"read in part", r.Partial}} {
		count := map[string]int{}
		for _, n := range part.notes {
			count[n.Reason]++
		}
		reasons := make([]string, 0, len(count))
		for reason := range count {
			reasons = append(reasons, reason)
		}
		slices.SortFunc(reasons, func(a, b string) int {
			if count[a] != count[b] {
				return count[b] - count[a]
			}
			return strings.Compare(a, b)
		})
		for _, reason := range reasons {
			fmt.Fprintf(&b, "\n%s: %d × %s", part.what, count[reason], reason)
		}
	}
	return b.String()
}

func (r *Report) skip(model, reason string) {
	r.Skipped = append(r.Skipped, Note{Model: model, Reason: reason})
}

func (r *Report) note(model, field, reason string) {
	r.Partial = append(r.Partial, Note{Model: model, Field: field, Reason: reason})
}

// finish counts what was read and checks it. A list of nothing is an error: it is
// more likely a download that went wrong than a wish to price no model.
func (r *Report) finish(l usage.PriceList) (usage.PriceList, Report, error) {
	if len(l.Models) == 0 {
		return usage.PriceList{}, *r, fmt.Errorf("pricefile: no model was read, and %d were skipped", len(r.Skipped))
	}
	r.Models = len(l.Models)
	for i := range l.Models {
		r.Prices += len(l.Models[i].Prices)
	}
	if err := l.Validate(); err != nil {
		return usage.PriceList{}, *r, err
	}
	return l, *r, nil
}

// read reads a whole file.
func read(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("pricefile: %w", err)
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("pricefile: the file has more than %d bytes", MaxBytes)
	}
	return data, nil
}

// check checks options before a file is read.
func (o Options) check() error {
	if o.AsOf.IsZero() {
		return errors.New("pricefile: Options.AsOf is not set: say as of when the file is right")
	}
	return nil
}

// wants reports whether a provider is to be read, and ticks it off.
func (o Options) wants(provider string, seen map[string]bool) bool {
	seen[provider] = true
	return len(o.Providers) == 0 || slices.Contains(o.Providers, provider)
}

// missing is the error of providers that the file does not have.
func (o Options) missing(seen map[string]bool) error {
	for _, p := range o.Providers {
		if !seen[p] {
			return fmt.Errorf("pricefile: Options.Providers: the file has no provider %q", p)
		}
	}
	return nil
}

// free reports whether a price is one of 0 for everything.
func free(p *usage.Price) bool {
	zero := func(r usage.Rate) bool {
		m, _ := r.Micros()
		return m == 0
	}
	all := func(r *usage.Rates) bool {
		return zero(r.Input) && zero(r.CachedInput) && zero(r.CacheWrite) && zero(r.Output) && zero(r.Thoughts)
	}
	for i := range p.Tiers {
		if !all(&p.Tiers[i].Rates) {
			return false
		}
	}
	return all(&p.Rates)
}

// Reasons of both reports.
const (
	reasonOneHour     = "cache writes for one hour are dearer, and are priced as cache writes"
	reasonCheaperTier = "long prompts are listed at less than short ones: the dearer price is taken"
	reasonTwice       = "a key is given twice"
)

// raised makes no tier cheaper than what is below it, and reports whether one was.
func raised(p *usage.Price) (was bool) {
	below := p.Rates
	for i := range p.Tiers {
		t := &p.Tiers[i]
		if rates := dearerRates(below, t.Rates); rates != t.Rates {
			t.Rates, was = rates, true
		}
		below = t.Rates
	}
	return was
}

// dearer is the higher of two rates, of which either may be unset.
func dearer(a, b usage.Rate) usage.Rate {
	m, ok := a.Micros()
	n, also := b.Micros()
	if !ok || also && n > m {
		return b
	}
	return a
}

// dearerRates are the dearer rates of two, part by part. A part that only one of
// them has a rate for is compared with what stands in for it in the other.
func dearerRates(a, b usage.Rates) usage.Rates {
	part := func(a, insteadOfA, b, insteadOfB usage.Rate) usage.Rate {
		if !isSet(a) && !isSet(b) {
			return usage.Rate{}
		}
		return dearer(or(a, insteadOfA), or(b, insteadOfB))
	}
	return usage.Rates{
		Input:       dearer(a.Input, b.Input),
		CachedInput: part(a.CachedInput, a.Input, b.CachedInput, b.Input),
		CacheWrite:  part(a.CacheWrite, a.Input, b.CacheWrite, b.Input),
		Output:      dearer(a.Output, b.Output),
		Thoughts:    part(a.Thoughts, a.Output, b.Thoughts, b.Output),
	}
}

// or is the first rate that is set.
func or(rates ...usage.Rate) usage.Rate {
	for _, r := range rates {
		if _, ok := r.Micros(); ok {
			return r
		}
	}
	return usage.Rate{}
}

// isSet reports whether a rate is set.
func isSet(r usage.Rate) bool {
	_, ok := r.Micros()
	return ok
}

// isZero reports whether a rate is set to 0.
func isZero(r usage.Rate) bool {
	m, ok := r.Micros()
	return ok && m == 0
}
