package audit

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// MaxDays is how many pairs of a day and a model are told apart. More is an error, so
// that the memory of a report is bounded.
const MaxDays = 1 << 17

// Day names a row of a report: a day, and a model.
type Day struct {
	// Date is the day, as 2006-01-02.
	Date  string
	Model string
}

// Sum is what was used on a day with a model.
type Sum struct {
	// Calls is how many calls there were; −1 if that is not known.
	Calls int64
	// Input and Output are in tokens.
	Input, Output int64
	// Nanos is the cost in thousand-millionths of a US dollar: providers' exports are
	// finer than micro-dollars. It is 0 where it is not known; see Unpriced.
	Nanos int64
	// Unpriced is how many calls have a cost that is not known.
	Unpriced int64
	// Estimated is how many calls were charged by an estimate, as the provider had
	// reported nothing.
	Estimated int64
}

// DaysConfig says how [Days] adds up. The zero value is ready to use.
type DaysConfig struct {
	// Catalog prices calls of which no cost is recorded, as happens where money is not
	// limited. nil counts them as unpriced.
	Catalog *usage.Catalog
	// Model names the row of a model. nil is the name as it is, in lower case.
	Model func(string) string
	// Variant is what calls are priced as. Defaults to [usage.Standard].
	Variant usage.Variant
	// Zone is where days begin. Defaults to UTC, in which the large providers bill.
	Zone *time.Location
}

// Days adds up the model calls of records by day and model. A call belongs to the day
// on which it was settled, which is when it ended. Released calls and paid tools are
// left out. The error is the first one of records, or says that a sum or the number of
// rows is too large.
func Days(records iter.Seq2[Record, error], cfg DaysConfig) (map[Day]Sum, error) {
	zone, model := cfg.Zone, cfg.Model
	if zone == nil {
		zone = time.UTC
	}
	if model == nil {
		model = strings.ToLower
	}
	days := map[Day]Sum{}
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		if r.Kind != quota.KindCall || r.Tool || r.Outcome == quota.CallReleased {
			continue
		}
		at := Day{r.At.In(zone).Format(time.DateOnly), model(r.Model)}
		sum, known := days[at]
		if !known && len(days) >= MaxDays {
			return nil, fmt.Errorf("audit: there are more than %d pairs of a day and a model", MaxDays)
		}
		if err := sum.call(&r, &cfg); err != nil {
			return nil, fmt.Errorf("audit: %s of %.80q: %w", at.Date, at.Model, err)
		}
		days[at] = sum
	}
	return days, nil
}

// call adds a call, or what its correction changes.
func (s *Sum) call(r *Record, cfg *DaysConfig) error {
	cost, priced := cfg.cost(r, r.Charged.Money, r.Usage)
	if !r.Corrects {
		s.Calls++
		if r.Outcome == quota.CallEstimated {
			s.Estimated++
		}
		if !priced {
			s.Unpriced++
		}
		return s.add(Sum{Input: r.Usage.Input, Output: r.Usage.Output, Nanos: cost})
	}
	before, _ := cfg.cost(r, r.Before.Money, r.BeforeUsage)
	return s.add(Sum{
		Input: r.Usage.Input - r.BeforeUsage.Input, Output: r.Usage.Output - r.BeforeUsage.Output, Nanos: cost - before,
	})
}

// nanosPerMicro is how many thousand-millionths are in a millionth.
const nanosPerMicro = 1000

// cost is what a call cost: what was charged, or else what the catalogue says.
func (c *DaysConfig) cost(r *Record, charged int64, t Tokens) (nanos int64, priced bool) {
	if charged == 0 && c.Catalog != nil {
		price, err := c.Catalog.Price(r.Model, r.At, c.Variant)
		if err != nil {
			return 0, false
		}
		cost, err := price.Cost(t.usage())
		if err != nil {
			return 0, false
		}
		return saturate(int64(cost)), true
	}
	return saturate(charged), charged != 0
}

// saturate is micro-dollars in thousand-millionths.
func saturate(micros int64) int64 { return min(micros, math.MaxInt64/nanosPerMicro) * nanosPerMicro }

// add adds tokens and cost.
func (s *Sum) add(o Sum) error {
	for _, f := range []struct {
		name  string
		to    *int64
		value int64
	}{{"input tokens", &s.Input, o.Input}, {"output tokens", &s.Output, o.Output}, {"cost", &s.Nanos, o.Nanos}} {
		sum := *f.to + f.value
		if (sum > *f.to) != (f.value > 0) && f.value != 0 {
			return fmt.Errorf("the sum of its %s does not fit into an int64", f.name)
		}
		*f.to = sum
	}
	return nil
}

// sorted are the rows by date and model.
func sorted(days map[Day]Sum) []Day {
	return slices.SortedFunc(maps.Keys(days), func(a, b Day) int {
		return cmp.Or(cmp.Compare(a.Date, b.Date), cmp.Compare(a.Model, b.Model))
	})
}
