package usage_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
	"pgregory.net/rapid"
)

// rate reads a price in dollars per million.
func rate(s string) usage.Rate {
	r, err := usage.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

// flat is a price of input, cached input and output, in dollars per million.
func flat(input, cached, output string) usage.Price {
	p := usage.Price{Model: "m-1", Rates: usage.Rates{Input: rate(input), Output: rate(output)}}
	if cached != "" {
		p.CachedInput = rate(cached)
	}
	return p
}

func TestEveryTokenIsPricedOnce(t *testing.T) {
	t.Parallel()
	price := flat("2", "0.2", "10")
	for _, c := range []struct {
		name   string
		report *report
		tokens int64
		want   usage.Micros
	}{
		{
			"thoughts and tool use beside, cached inside",
			&report{
				PromptTokenCount: 1000, CachedContentTokenCount: 800, ToolUsePromptTokenCount: 50,
				CandidatesTokenCount: 100, ThoughtsTokenCount: 400, TotalTokenCount: 1550,
			},
			1550, 250*2 + 160 + 500*10,
		},
		{"a total without parts is priced as the dearer side", &report{TotalTokenCount: 1550}, 1550, 15_500},
		{
			"parts that do not add up are priced by the larger reading",
			&report{PromptTokenCount: 1000, CandidatesTokenCount: 100, TotalTokenCount: 1550},
			1550, 1000*2 + 550*10,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := usage.FromGenAI(c.report)
			got, err := price.Cost(u)
			if err != nil || got != c.want || u.Total() != c.tokens {
				t.Errorf("%v costs %d, %v, want %d for %d tokens", u, got, err, c.want, c.tokens)
			}
		})
	}
}

// The running totals of a stream are priced once, by their maximum.
func TestStreamedReportsArePricedOnce(t *testing.T) {
	t.Parallel()
	var u usage.Usage
	for _, m := range []*report{
		{PromptTokenCount: 25, CandidatesTokenCount: 1, TotalTokenCount: 26},
		{PromptTokenCount: 25, CandidatesTokenCount: 8, TotalTokenCount: 33},
		nil,
		{PromptTokenCount: 25, CandidatesTokenCount: 15, TotalTokenCount: 40, TrafficType: genai.TrafficTypeOnDemand},
		{PromptTokenCount: 25, CandidatesTokenCount: 9, TotalTokenCount: 34},
	} {
		u = u.Max(usage.FromGenAI(m))
	}
	got, err := flat("2", "", "10").Cost(u)
	if want := usage.Micros(25*2 + 15*10); err != nil || got != want {
		t.Errorf("%v costs %d, %v, want %d", u, got, err, want)
	}
}

func TestFractionsAreRoundedUpOncePerCall(t *testing.T) {
	t.Parallel()
	price := flat("0.1", "0.01", "0.4")
	for _, c := range []struct {
		u    usage.Usage
		want usage.Micros
	}{
		{usage.Usage{}, 0},
		{usage.Usage{Input: 1}, 1},                             // 0.1
		{usage.Usage{Input: 10}, 1},                            // exactly 1
		{usage.Usage{Input: 11}, 2},                            // 1.1
		{usage.Usage{Input: 3, CachedInput: 1, Output: 1}, 1},  // 0.2 + 0.01 + 0.4
		{usage.Usage{Input: 7, Output: 1, Thoughts: 1}, 2},     // 0.7 + 0.4
		{usage.Usage{Input: 10, CacheWrite: 10, Output: 5}, 3}, // 1 + 2
	} {
		if got, err := price.Cost(c.u); err != nil || got != c.want {
			t.Errorf("%v costs %d, %v, want %d", c.u, got, err, c.want)
		}
	}
	var spent usage.Micros
	for range 1000 {
		m, err := price.Cost(usage.Usage{Input: 1})
		if err != nil {
			t.Fatal(err)
		}
		spent += m
	}
	if spent != 1000 {
		t.Errorf("a thousand calls of a tenth of a micro-dollar came to %d", spent)
	}
}

func TestAbsentPricesAreTheDearerOne(t *testing.T) {
	t.Parallel()
	price := flat("2", "", "10")
	for name, c := range map[string]struct {
		u    usage.Usage
		want usage.Micros
	}{
		"cached input is input": {usage.Usage{Input: 1000, CachedInput: 800}, 2000},
		"cache write is input":  {usage.Usage{Input: 1000, CacheWrite: 800}, 2000},
		"thoughts are output":   {usage.Usage{Output: 500, Thoughts: 400}, 5000},
	} {
		if got, err := price.Cost(c.u); err != nil || got != c.want {
			t.Errorf("%s: %v costs %d, %v, want %d", name, c.u, got, err, c.want)
		}
	}
	price.CachedInput, price.CacheWrite, price.Thoughts = rate("0"), rate("2.5"), rate("3")
	u := usage.Usage{Input: 1000, CachedInput: 700, CacheWrite: 200, Output: 500, Thoughts: 400}
	if got, err := price.Cost(u); err != nil || got != 100*2+0+500+100*10+400*3 {
		t.Errorf("with all prices given %v costs %d, %v", u, got, err)
	}
}

func TestWhatHasNoPriceIsAnErrorAndNotFree(t *testing.T) {
	t.Parallel()
	embedding := usage.Price{Model: "embedding", Rates: usage.Rates{Input: rate("0.02")}}
	if got, err := embedding.Cost(usage.Usage{Input: 100}); err != nil || got != 2 {
		t.Errorf("an embedding costs %d, %v", got, err)
	}
	for name, c := range map[string]struct {
		p    usage.Price
		u    usage.Usage
		part usage.Part
	}{
		"output of an embedding model": {embedding, usage.Usage{Input: 100, Output: 7}, usage.PartOutput},
		"its thoughts":                 {embedding, usage.Usage{Output: 7, Thoughts: 7}, usage.PartThoughts},
		"the zero price":               {usage.Price{}, usage.Usage{Input: 7}, usage.PartInput},
	} {
		got, err := c.p.Cost(c.u)
		e, ok := errors.AsType[*usage.UnpricedError](err)
		if !ok || e.Part != c.part || e.Tokens != 7 || got != 0 {
			t.Errorf("%s: %d, %v", name, got, err)
		}
		if charge, err := c.p.Charge(c.u); err == nil || charge != (usage.Charge{}) {
			t.Errorf("%s: a charge of %v comes with %v", name, charge, err)
		}
	}
	free := flat("0", "", "0")
	if got, err := free.Cost(usage.Usage{Input: 100, Output: 7}); err != nil || got != 0 {
		t.Errorf("a model that is free costs %d, %v", got, err)
	}
	free.CachedInput = usage.PerMillion(-1)
	if got, err := free.Cost(usage.Usage{Input: 100}); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative price makes %d, %v", got, err)
	}
}

func TestLongPromptsRepriceTheWholeCall(t *testing.T) {
	t.Parallel()
	price := flat("2", "0.2", "12")
	price.Tiers = []usage.Tier{
		{Above: 200_000, Rates: usage.Rates{Input: rate("4"), CachedInput: rate("0.4"), Output: rate("18")}},
		{Above: 1_000_000, Rates: usage.Rates{Input: rate("8"), CachedInput: rate("0.8"), Output: rate("36")}},
	}
	for _, c := range []struct {
		name  string
		u     usage.Usage
		above int64
		want  usage.Micros
	}{
		{"at the threshold", usage.Usage{Input: 200_000, Output: 1000}, 0, 400_000 + 12_000},
		{"one more", usage.Usage{Input: 200_001, Output: 1000}, 200_000, 800_004 + 18_000},
		{"cached input counts", usage.Usage{Input: 200_001, CachedInput: 200_000, Output: 1000}, 200_000, 4 + 80_000 + 18_000},
		{"output does not", usage.Usage{Input: 1000, Output: 900_000}, 0, 2000 + 10_800_000},
		{"the highest tier", usage.Usage{Input: 1_000_001}, 1_000_000, 8_000_008},
		{"a report that hides its input", usage.Usage{Input: 10, CachedInput: 200_001}, 200_000, 80_001},
	} {
		charge, err := price.Charge(c.u)
		if err != nil || charge.Total != c.want || charge.Above != c.above {
			t.Errorf("%s: %d above %d, %v, want %d above %d", c.name, charge.Total, charge.Above, err, c.want, c.above)
		}
	}
}

func TestBrokenReportsNeverCredit(t *testing.T) {
	t.Parallel()
	price := flat("2", "0.2", "10")
	for _, c := range []struct {
		u    usage.Usage
		want usage.Micros
	}{
		{usage.Usage{Output: -100}, 0},
		{usage.Usage{Input: -5, Output: 10}, 100},
		{usage.Usage{Input: 5, CachedInput: -80}, 10},
		{usage.Usage{Input: 100, CachedInput: 800}, 160},
		{usage.Usage{Output: 10, Thoughts: 40}, 400},
		{usage.Usage{Input: math.MinInt64, CachedInput: math.MinInt64, CacheWrite: math.MinInt64, Output: math.MinInt64, Thoughts: math.MinInt64}, 0},
	} {
		if got, err := price.Cost(c.u); err != nil || got != c.want {
			t.Errorf("%v costs %d, %v, want %d", c.u, got, err, c.want)
		}
	}
}

func TestHugeCountsAreAnErrorAndDoNotWrap(t *testing.T) {
	t.Parallel()
	const huge = math.MaxInt64
	price := flat("2", "0.2", "10")
	for _, u := range []usage.Usage{
		{Input: huge},
		{Output: huge},
		{Input: huge, Output: huge, Thoughts: huge},
		{CachedInput: huge, CacheWrite: huge},
		{Input: huge, CachedInput: huge, CacheWrite: 1},
	} {
		if got, err := price.Cost(u); !errors.Is(err, usage.ErrOverflow) || got != 0 {
			t.Errorf("%v costs %d, %v", u, got, err)
		}
	}
	// Both sums are 2⁶⁴ − 1 micro-dollars and a rest, so that rounding up comes
	// round to 0. In the second one it is the output that takes it there at once.
	for _, edge := range []struct {
		price usage.Price
		u     usage.Usage
	}{
		{flat("2", "", "1.5"), usage.Usage{Input: huge, Output: 1}},
		{flat("1", "", "1.25"), usage.Usage{Input: huge, Output: 7_378_697_629_483_820_647}},
	} {
		if got, err := edge.price.Cost(edge.u); !errors.Is(err, usage.ErrOverflow) || got != 0 {
			t.Errorf("a call that costs 2⁶⁴ micro-dollars costs %d, %v", got, err)
		}
	}
	dear := usage.Price{Rates: usage.Rates{Input: usage.PerMillion(huge), Output: usage.PerMillion(huge)}}
	if got, err := dear.Cost(usage.Usage{Input: huge, Output: huge, CachedInput: huge / 2}); !errors.Is(err, usage.ErrOverflow) {
		t.Errorf("the dearest call costs %d, %v", got, err)
	}
	if got, err := dear.Cost(usage.Usage{Input: 1_000_000}); err != nil || got != huge {
		t.Errorf("a million at the dearest price cost %d, %v", got, err)
	}
	if got, err := flat("1", "", "1").Cost(usage.Usage{Input: huge}); err != nil || got != huge {
		t.Errorf("as many micro-dollars as tokens cost %d, %v", got, err)
	}
}

// drawPrice is a price whose tiers do not become cheaper.
func drawPrice(t *rapid.T) usage.Price {
	rates := func(least usage.Rates) usage.Rates {
		at := func(name string, least usage.Rate) usage.Rate {
			m, _ := least.Micros()
			return usage.PerMillion(m + usage.Micros(rapid.Int64Range(0, 100_000_000).Draw(t, name)))
		}
		return usage.Rates{
			Input: at("input", least.Input), CachedInput: at("cached", least.CachedInput), CacheWrite: at("write", least.CacheWrite),
			Output: at("output", least.Output), Thoughts: at("thoughts", least.Thoughts),
		}
	}
	p := usage.Price{Rates: rates(usage.Rates{})}
	if rapid.Bool().Draw(t, "tiered") {
		p.Tiers = []usage.Tier{{Above: rapid.Int64Range(1, 1000).Draw(t, "above"), Rates: rates(p.Rates)}}
	}
	return p
}

// disjoint are the five parts of a usage, and the usage of them.
type disjoint [5]int64

func (d disjoint) usage() usage.Usage {
	return usage.Usage{
		Input: d[0] + d[1] + d[2], CachedInput: d[1], CacheWrite: d[2],
		Output: d[3] + d[4], Thoughts: d[4],
	}
}

func drawParts(t *rapid.T, name string, most int64) (d disjoint) {
	for i := range d {
		d[i] = rapid.Int64Range(0, most).Draw(t, name)
	}
	return d
}

func TestCostIsMonotoneAdditiveAndNeverNegative(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := drawPrice(t)
		cost := func(d disjoint) usage.Micros {
			m, err := price.Cost(d.usage())
			if err != nil {
				t.Fatalf("%v: %v", d, err)
			}
			if m < 0 {
				t.Fatalf("%v costs %d", d, m)
			}
			return m
		}
		a := drawParts(t, "tokens", 2000)
		base := cost(a)
		for i := range a {
			more := a
			more[i] += rapid.Int64Range(1, 1_000_000).Draw(t, "more")
			if m := cost(more); m < base {
				t.Fatalf("%v costs %d, and %v costs %d", a, base, more, m)
			}
		}
		// Additive, within a tier.
		price.Tiers = nil
		b := drawParts(t, "other", 2000)
		var sum disjoint
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
		if apart, together := cost(a)+cost(b), cost(sum); apart < together || apart > together+1 {
			t.Fatalf("%v and %v cost %d apart and %d together", a, b, apart, together)
		}
	})
}

// Against arithmetic without bounds: the exact sum, rounded up, or an error if it
// does not fit.
func TestCostIsTheExactSumRoundedUpOrAnError(t *testing.T) {
	t.Parallel()
	count := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-10, 1<<40), rapid.Just(int64(math.MaxInt64)))
	rapid.Check(t, func(t *rapid.T) {
		price := drawPrice(t)
		u := usage.Usage{
			Input: count.Draw(t, "input"), CachedInput: count.Draw(t, "cached"), CacheWrite: count.Draw(t, "write"),
			Output: count.Draw(t, "output"), Thoughts: count.Draw(t, "thoughts"),
		}
		at := func(n int64) *big.Int { return big.NewInt(max(n, 0)) }
		cached, write, thoughts := at(u.CachedInput), at(u.CacheWrite), at(u.Thoughts)
		parts := new(big.Int).Add(cached, write)
		input, output := at(u.Input), at(u.Output)
		if input.Cmp(parts) < 0 {
			input = parts
		}
		if output.Cmp(thoughts) < 0 {
			output = thoughts
		}
		rates := price.Rates
		if len(price.Tiers) > 0 && input.Cmp(big.NewInt(price.Tiers[0].Above)) > 0 {
			rates = price.Tiers[0].Rates
		}
		sum := new(big.Int)
		for _, line := range []struct {
			n *big.Int
			r usage.Rate
		}{
			{new(big.Int).Sub(input, parts), rates.Input}, {cached, rates.CachedInput}, {write, rates.CacheWrite},
			{new(big.Int).Sub(output, thoughts), rates.Output}, {thoughts, rates.Thoughts},
		} {
			m, _ := line.r.Micros()
			sum.Add(sum, new(big.Int).Mul(line.n, big.NewInt(int64(m))))
		}
		want, rest := new(big.Int).DivMod(sum, big.NewInt(1_000_000), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		got, err := price.Cost(u)
		switch {
		case parts.IsInt64() && want.IsInt64():
			if err != nil || got != usage.Micros(want.Int64()) {
				t.Fatalf("%+v costs %d, %v, want %v", u, got, err, want)
			}
		case !errors.Is(err, usage.ErrOverflow) || got != 0:
			t.Fatalf("%+v costs %d, %v, want an overflow (%v)", u, got, err, want)
		}
	})
}

func TestItemsOfAChargeAddUpToItsTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := drawPrice(t)
		u := drawParts(t, "tokens", 2000).usage()
		charge, err := price.Charge(u)
		if err != nil {
			t.Fatal(err)
		}
		cost, err := price.Cost(u)
		if err != nil || cost != charge.Total {
			t.Fatalf("the charge is %d, the cost %d, %v", charge.Total, cost, err)
		}
		var sum usage.Micros
		var tokens int64
		for i, item := range charge.Items {
			exact := float64(item.Tokens) * float64(item.Rate) / 1e6
			if item.Part != usage.Part(i) || item.Amount < 0 || math.Abs(float64(item.Amount)-exact) >= 1 {
				t.Fatalf("item %d is %+v, exactly %v", i, item, exact)
			}
			sum += item.Amount
			tokens += item.Tokens
		}
		if sum != charge.Total || tokens != u.Total() {
			t.Fatalf("%d tokens for %d, but the charge is %d for %d", tokens, sum, charge.Total, u.Total())
		}
	})
}

func TestVariantsAreReadAsProvidersNameThem(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]usage.Variant{
		"": usage.Standard, "Standard": usage.Standard, "default": usage.Standard, "ON_DEMAND": usage.Standard,
		"batch": usage.Batch, "flex": usage.Flex, "ON_DEMAND_FLEX": usage.Flex,
		"priority": usage.Priority, "ON_DEMAND_PRIORITY": usage.Priority,
	} {
		if got, err := usage.ParseVariant(name); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", name, got, err, want)
		}
		if got, err := usage.ParseVariant(want.String()); err != nil || got != want {
			t.Errorf("%v is written %q and read as %v, %v", want, want.String(), got, err)
		}
	}
	if got, err := usage.ParseVariant("auto"); err == nil || !strings.Contains(err.Error(), `"auto"`) {
		t.Errorf("auto is %v, %v", got, err)
	}
}
