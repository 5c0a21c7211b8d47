package usage_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// day is the beginning of a day, in UTC.
func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

// listed is a model that costs so much for input, and ten times that for output,
// in dollars per million.
func listed(input string, names ...string) usage.Model {
	in := rate(input)
	m, _ := in.Micros()
	return usage.Model{
		Name: names[0], Aliases: names[1:],
		Prices: []usage.Price{{Rates: usage.Rates{Input: in, Output: usage.PerMillion(10 * m)}}},
	}
}

func list(models ...usage.Model) usage.PriceList {
	return usage.PriceList{AsOf: day("2026-11-30"), Models: models}
}

func catalog(t *testing.T, c usage.CatalogConfig) *usage.Catalog {
	t.Helper()
	cat, err := usage.NewCatalog(c)
	if err != nil {
		t.Fatal(err)
	}
	return cat
}

func catalogOf(t *testing.T, models ...usage.Model) *usage.Catalog {
	t.Helper()
	return catalog(t, usage.CatalogConfig{Lists: []usage.PriceList{list(models...)}})
}

func TestUnknownModelsAreNeverSilentlyFree(t *testing.T) {
	t.Parallel()
	at := day("2026-12-01")
	lists := []usage.PriceList{list(listed("2", "m-1"), listed("0", "m-free"))}
	u := usage.Usage{Input: 1000, Output: 100}

	t.Run("reject", func(t *testing.T) {
		t.Parallel()
		c := catalog(t, usage.CatalogConfig{Lists: lists})
		p, err := c.Price("m.1", at, usage.Standard)
		e, ok := errors.AsType[*usage.UnknownModelError](err)
		if !ok || e.Model != "m.1" || !errors.Is(err, usage.ErrUnknownModel) {
			t.Fatalf("a typo has a price: %+v, %v", p, err)
		}
		if cost, err := p.Cost(u); err == nil {
			t.Errorf("the price beside the error costs %d", cost)
		}
		if !e.Denied() {
			t.Error("it does not call itself our own denial")
		}
		if s := c.Snapshot(); s.Rejected != 1 || s.Uncosted != 0 || s.Defaulted != 0 {
			t.Errorf("it is counted as %+v", s)
		}
	})
	t.Run("uncosted", func(t *testing.T) {
		t.Parallel()
		c := catalog(t, usage.CatalogConfig{Lists: lists, Unknown: usage.UnknownUncosted})
		p, err := c.Price("m.1", at, usage.Standard)
		if err != nil || p.Basis != usage.Uncosted || p.Model != "m.1" {
			t.Fatalf("a typo is priced as %+v, %v", p, err)
		}
		charge, err := p.Charge(u)
		if err != nil || charge.Total != 0 || charge.Basis != usage.Uncosted || charge.Items[0].Tokens != 1000 {
			t.Errorf("it is charged as %+v, %v", charge, err)
		}
		if s := c.Snapshot(); s.Uncosted != 1 {
			t.Errorf("it is counted as %+v", s)
		}
	})
	t.Run("default price", func(t *testing.T) {
		t.Parallel()
		c := catalog(t, usage.CatalogConfig{Lists: lists, Unknown: usage.UnknownDefault, Default: flat("20", "", "100")})
		p, err := c.Price("m.1", at, usage.Priority)
		if err != nil || p.Basis != usage.Defaulted || p.Model != "m.1" || p.Variant != usage.Priority {
			t.Fatalf("a typo is priced as %+v, %v", p, err)
		}
		if cost, err := p.Cost(u); err != nil || cost != 20_000+10_000 {
			t.Errorf("it costs %d, %v", cost, err)
		}
		if s := c.Snapshot(); s.Defaulted != 1 {
			t.Errorf("it is counted as %+v", s)
		}
	})
	t.Run("what is known is listed under every policy, the free one, too", func(t *testing.T) {
		t.Parallel()
		for _, config := range []usage.CatalogConfig{
			{Lists: lists}, {Lists: lists, Unknown: usage.UnknownUncosted},
			{Lists: lists, Unknown: usage.UnknownDefault, Default: flat("20", "", "100")},
		} {
			c := catalog(t, config)
			for name, want := range map[string]usage.Micros{"m-1": 2000 + 2000, "m-free": 0} {
				p, err := c.Price(name, at, usage.Standard)
				if err != nil || p.Basis != usage.Listed || p.Model != name {
					t.Fatalf("%v: %s is priced as %+v, %v", config.Unknown, name, p, err)
				}
				if cost, err := p.Cost(u); err != nil || cost != want {
					t.Errorf("%v: %s costs %d, %v, want %d", config.Unknown, name, cost, err, want)
				}
			}
			if s := c.Snapshot(); s.Rejected+s.Uncosted+s.Defaulted != 0 {
				t.Errorf("%v: they are counted as %+v", config.Unknown, s)
			}
		}
	})
	t.Run("the zero catalogue knows nothing", func(t *testing.T) {
		t.Parallel()
		var c usage.Catalog
		if p, err := c.Price("m-1", at, usage.Standard); !errors.Is(err, usage.ErrUnknownModel) {
			t.Errorf("it prices a model as %+v, %v", p, err)
		}
		if age, s := c.Age(at), c.Snapshot(); age != 0 || s.Models != 0 {
			t.Errorf("it is %v old and holds %+v", age, s)
		}
	})
}

func TestAnswersUnderAnotherNameArePricedByARule(t *testing.T) {
	t.Parallel()
	c := catalogOf(t, listed("2", "m-1"), listed("3", "m-2"))
	at := day("2026-12-01")
	for _, x := range []struct{ asked, answered, want string }{
		{"m-1", "m-1", "m-1"},
		{"m-1", "m-2", "m-2"},
		{"m-1", "m-1-2026-10-01", "m-1"},
		{"m-1", "something-else", "m-1"},
		{"m-1", "", "m-1"},
		{"alias-of-mine", "m-2", "m-2"},
		{"unknown", "something-else", ""},
	} {
		p, err := c.PriceAnswered(x.asked, x.answered, at, usage.Standard)
		if p.Model != x.want || (err == nil) != (x.want != "") {
			t.Errorf("asked %q, answered %q: priced as %q, %v, want %q", x.asked, x.answered, p.Model, err, x.want)
		}
	}
	if s := c.Snapshot(); s.Rejected != 1 {
		t.Errorf("%d calls are counted as rejected, want the one", s.Rejected)
	}
}

func TestPricesHoldFromTheirDateOn(t *testing.T) {
	t.Parallel()
	at := func(from, input string, v usage.Variant) usage.Price {
		p := usage.Price{Variant: v, Rates: usage.Rates{Input: rate(input), Output: rate("9")}}
		if from != "" {
			p.ValidFrom = day(from)
		}
		return p
	}
	c := catalogOf(t,
		usage.Model{Name: "changed", Prices: []usage.Price{
			at("2026-06-01", "3", usage.Standard), at("", "5", usage.Standard), at("2026-03-01", "4", usage.Standard),
			at("2026-04-01", "1", usage.Batch), at("2026-05-01", "8", usage.Priority),
		}},
		usage.Model{Name: "new", Prices: []usage.Price{at("2026-06-01", "3", usage.Standard)}},
	)
	for _, x := range []struct {
		model, at string
		variant   usage.Variant
		want      string
		is        usage.Variant
	}{
		{"changed", "2026-01-01T00:00:00Z", usage.Standard, "5", usage.Standard},
		{"changed", "2026-02-28T23:59:59Z", usage.Standard, "5", usage.Standard},
		{"changed", "2026-03-01T00:00:00Z", usage.Standard, "4", usage.Standard},
		{"changed", "2026-03-01T08:59:59+09:00", usage.Standard, "5", usage.Standard}, // instants, not wall clocks
		{"changed", "2026-12-01T00:00:00Z", usage.Standard, "3", usage.Standard},
		{"changed", "2026-03-15T00:00:00Z", usage.Batch, "4", usage.Standard}, // no batch price yet
		{"changed", "2026-12-01T00:00:00Z", usage.Batch, "1", usage.Batch},
		{"changed", "2026-12-01T00:00:00Z", usage.Flex, "3", usage.Standard},
		{"changed", "2026-04-01T00:00:00Z", usage.Priority, "", ""}, // dearer, so standard does not stand in
		{"changed", "2026-05-01T00:00:00Z", usage.Priority, "8", usage.Priority},
		{"new", "2026-05-31T00:00:00Z", usage.Standard, "", ""},
		{"new", "2026-05-31T00:00:00Z", usage.Batch, "", ""},
	} {
		when, err := time.Parse(time.RFC3339, x.at)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Price(x.model, when, x.variant)
		if x.want == "" {
			e, ok := errors.AsType[*usage.UnknownModelError](err)
			if !ok || e.Listed != x.model || e.Variant != x.variant || !e.At.Equal(when) {
				t.Errorf("%s, %v, at %s: %+v, %v", x.model, x.variant, x.at, p, err)
			}
			continue
		}
		if err != nil || p.Input != rate(x.want) || p.Variant != x.is {
			t.Errorf("%s, %v, at %s: %v as %v, %v, want %s as %v", x.model, x.variant, x.at, p.Input, p.Variant, err, x.want, x.is)
		}
	}
	if _, err := c.Price("changed", day("2026-12-01"), "turbo"); err == nil || !strings.Contains(err.Error(), `"turbo"`) || errors.Is(err, usage.ErrUnknownModel) {
		t.Errorf("a variant that does not exist: %v", err)
	}
}

func TestLaterListsCorrectEarlierOnes(t *testing.T) {
	t.Parallel()
	first, second := list(listed("1", "a", "also-a"), listed("2", "b")), list(listed("3", "A"), listed("4", "c"))
	first.AsOf, second.AsOf = day("2026-01-01"), day("2026-06-01")
	c := catalog(t, usage.CatalogConfig{Lists: []usage.PriceList{first, second}})
	for model, want := range map[string]string{"a": "3", "b": "2", "c": "4"} {
		if p, err := c.Price(model, day("2026-12-01"), usage.Standard); err != nil || p.Input != rate(want) {
			t.Errorf("%s costs %v, %v, want %s", model, p.Input, err, want)
		}
	}
	if p, err := c.Price("also-a", day("2026-12-01"), usage.Standard); err == nil {
		t.Errorf("a name of the model that was replaced leads to %+v", p)
	}
	if s := c.Snapshot(); s.Models != 3 || s.Prices != 3 || !s.AsOf.Equal(day("2026-01-01")) || !s.NewestPrice.Equal(day("2026-06-01")) {
		t.Errorf("the catalogue holds %+v", s)
	}
}

// Of what was charged it can be told by which list, however often lists were replaced.
func TestAPriceNamesTheDateOfItsList(t *testing.T) {
	t.Parallel()
	dated := func(asOf string, models ...usage.Model) usage.PriceList {
		return usage.PriceList{AsOf: day(asOf), Models: models}
	}
	c := catalog(t, usage.CatalogConfig{
		Lists:   []usage.PriceList{dated("2026-10-01", listed("1", "m-1"), listed("2", "m-2")), dated("2026-11-01", listed("3", "m-2"))},
		Unknown: usage.UnknownDefault,
		Default: usage.Price{AsOf: day("2020-01-01"), Rates: usage.Rates{Input: rate("5"), Output: rate("5")}},
	})
	asOf := func(model string) time.Time {
		t.Helper()
		p, err := c.Price(model, day("2026-12-01"), usage.Standard)
		if err != nil {
			t.Fatal(err)
		}
		return p.AsOf
	}
	for model, want := range map[string]time.Time{"m-1": day("2026-10-01"), "m-2": day("2026-11-01"), "unknown": {}} {
		if got := asOf(model); !got.Equal(want) {
			t.Errorf("the price of %s is of a list of %v, want %v", model, got, want)
		}
	}
	if err := c.Replace(dated("2026-11-30", listed("1", "m-1"))); err != nil {
		t.Fatal(err)
	}
	if got := asOf("m-1"); !got.Equal(day("2026-11-30")) {
		t.Errorf("after the list was replaced the price is of one of %v", got)
	}
}

func TestAgeIsThatOfTheStalestList(t *testing.T) {
	t.Parallel()
	stale, fresh := list(listed("1", "a")), list(listed("2", "b"))
	stale.AsOf, fresh.AsOf = day("2026-01-01"), day("2026-06-01")
	fresh.Models[0].Prices[0].ValidFrom = day("2026-09-01") // announced in June
	both := catalog(t, usage.CatalogConfig{Lists: []usage.PriceList{stale, fresh}})
	one := catalog(t, usage.CatalogConfig{Lists: []usage.PriceList{fresh}})
	const hours = 24 * time.Hour
	for _, x := range []struct {
		c    *usage.Catalog
		now  string
		want time.Duration
	}{
		{one, "2026-06-01", 0},
		{one, "2026-06-11", 10 * hours},
		{one, "2026-08-31", 91 * hours}, // the announced price does not count yet
		{one, "2026-09-01", 0},
		{one, "2026-09-03", 2 * hours},
		{one, "2020-01-01", 0}, // never negative
		{both, "2026-06-11", 161 * hours},
	} {
		if got := x.c.Age(day(x.now)); got != x.want {
			t.Errorf("on %s the prices are %v old, want %v", x.now, got, x.want)
		}
	}
	if s := one.Snapshot(); !s.NewestPrice.Equal(day("2026-09-01")) {
		t.Errorf("the newest price is of %v", s.NewestPrice)
	}
}

func TestReplacingIsAllOrNothingAndAtOnce(t *testing.T) {
	t.Parallel()
	at := day("2026-12-01")
	c := catalogOf(t, listed("1", "a"), listed("1", "b"))
	before, err := c.Price("a", at, usage.Standard)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Replace(list(listed("2", "a")), usage.PriceList{}); err == nil {
		t.Error("a list without a date was taken")
	}
	if p, err := c.Price("a", at, usage.Standard); err != nil || p.Input != rate("1") {
		t.Errorf("after a refused replacement a costs %v, %v", p.Input, err)
	}

	// Readers see prices of one list, whichever it is.
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if p, err := c.Price("models/a-latest", at, usage.Standard); err != nil || p.Input == (usage.Rate{}) {
					t.Errorf("a costs %v, %v", p.Input, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		if err := c.Replace(list(listed(fmt.Sprint(1+i%9), "a"))); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if _, err := c.Price("b", at, usage.Standard); err == nil {
		t.Error("a model of the old list is still there")
	}
	if cost, err := before.Cost(usage.Usage{Input: 1000}); err != nil || cost != 1000 {
		t.Errorf("a price taken before costs %d, %v now", cost, err)
	}
	if s := c.Snapshot(); s.Replacements != 200 || s.Models != 1 {
		t.Errorf("the catalogue holds %+v", s)
	}
}

func TestAllThatIsWrongWithAListIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	broken := usage.PriceList{Models: []usage.Model{
		listed("1", "a", "b"),
		{Name: " B ", Prices: []usage.Price{{
			Variant: "turbo", Basis: usage.Uncosted,
			Rates: usage.Rates{CachedInput: usage.PerMillion(-1), Output: rate("1")},
			Tiers: []usage.Tier{
				{Above: 5, Rates: usage.Rates{Input: rate("1"), CachedInput: rate("1")}},
				{Above: 5, Rates: usage.Rates{CachedInput: rate("1"), Output: usage.PerMillion(-2)}},
				{Above: -1, Rates: usage.Rates{CachedInput: rate("1"), Output: rate("1")}},
			},
		}}},
		{Name: "", Aliases: []string{strings.Repeat("x", 600)}},
		{Name: "twice", Prices: []usage.Price{flat("1", "", "1"), flat("2", "", "2")}},
		{
			Name: "rules", Prices: []usage.Price{flat("1", "", "1")},
			Rules: []usage.Rule{{}, {Equals: "x", Contains: "y"}, {Any: []usage.Rule{{All: []usage.Rule{{}}}}}},
		},
	}}
	err := broken.Validate()
	got := map[string]bool{}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			e, ok := errors.AsType[*usage.PriceListError](err)
			if !ok || e.Problem == "" || len(err.Error()) > 300 {
				t.Fatalf("%v", err)
			}
			got[e.Path] = true
		}
	}
	for _, path := range []string{
		"as_of",
		"models[1].name", "models[1].prices[0].variant", "models[1].prices[0].basis",
		"models[1].prices[0].input", "models[1].prices[0].cached_input",
		"models[1].prices[0].tiers[0].output", "models[1].prices[0].tiers[1].above",
		"models[1].prices[0].tiers[1].input", "models[1].prices[0].tiers[1].output",
		"models[1].prices[0].tiers[2].above",
		"models[2].name", "models[2].aliases[0]", "models[2].prices",
		"models[3].prices[1].from",
		"models[4].match[0]", "models[4].match[1]", "models[4].match[2]",
	} {
		if !got[path] {
			t.Errorf("%s is not named", path)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("named for no reason: %v\n%v", got, err)
	}

	for name, config := range map[string]usage.CatalogConfig{
		"Lists":         {},
		"Lists[0]":      {Lists: []usage.PriceList{broken}},
		"Unknown":       {Lists: []usage.PriceList{list(listed("1", "a"))}, Unknown: 9},
		"Default is":    {Lists: []usage.PriceList{list(listed("1", "a"))}, Default: flat("1", "", "1")},
		"default.input": {Lists: []usage.PriceList{list(listed("1", "a"))}, Unknown: usage.UnknownDefault},
	} {
		if c, err := usage.NewCatalog(config); err == nil || c != nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A prompt that grows over a threshold must not become cheaper, or a reservation
// for more tokens would hold less.
func TestATierThatIsCheaperThanTheOneBeforeIsRefused(t *testing.T) {
	t.Parallel()
	rates := func(input, cached, output, thoughts string) usage.Rates {
		at := func(s string) (r usage.Rate) {
			if s != "" {
				r = rate(s)
			}
			return r
		}
		return usage.Rates{Input: at(input), CachedInput: at(cached), Output: at(output), Thoughts: at(thoughts)}
	}
	for name, c := range map[string]struct {
		tiers []usage.Rates // the first one is the price below all tiers
		want  []string      // places
	}{
		"rising":         {[]usage.Rates{rates("2", "0.2", "12", ""), rates("4", "0.4", "18", "")}, nil},
		"the same":       {[]usage.Rates{rates("2", "0.2", "12", ""), rates("2", "0.2", "12", "")}, nil},
		"input falls":    {[]usage.Rates{rates("4", "", "8", ""), rates("2", "", "8", "")}, []string{"tiers[0].input"}},
		"all fall":       {[]usage.Rates{rates("4", "1", "8", "9"), rates("2", "0.5", "4", "8")}, []string{"tiers[0].cached_input", "tiers[0].input", "tiers[0].output", "tiers[0].thoughts"}},
		"the last falls": {[]usage.Rates{rates("2", "", "8", ""), rates("4", "", "9", ""), rates("3", "", "9", "")}, []string{"tiers[1].input"}},
		"less than what stood in for it": {
			[]usage.Rates{rates("2", "", "8", ""), rates("4", "1", "9", "7")}, []string{"tiers[0].cached_input", "tiers[0].thoughts"},
		},
		"not less than what stood in for it": {[]usage.Rates{rates("2", "", "8", ""), rates("4", "2", "9", "8")}, nil},
		"forgotten from one tier to the next": {
			[]usage.Rates{rates("2", "", "8", ""), rates("4", "2", "9", ""), rates("4", "", "9", "")}, []string{"tiers[1].cached_input"},
		},
	} {
		p := usage.Price{Rates: c.tiers[0]}
		for i, r := range c.tiers[1:] {
			p.Tiers = append(p.Tiers, usage.Tier{Above: int64(i+1) * 100, Rates: r})
		}
		var got []string
		if joined, ok := list(usage.Model{Name: "m", Prices: []usage.Price{p}}).Validate().(interface{ Unwrap() []error }); ok {
			for _, err := range joined.Unwrap() {
				if e, ok := errors.AsType[*usage.PriceListError](err); ok {
					got = append(got, strings.TrimPrefix(e.Path, "models[0].prices[0]."))
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: named are %q, want %q", name, got, c.want)
		}
	}
}

func TestRulesRecogniseNames(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		rule    usage.Rule
		yes, no []string
	}{
		{usage.Rule{Equals: "M-1"}, []string{"m-1", "M-1", " m-1 "}, []string{"m-10", ""}},
		{usage.Rule{StartsWith: "gpt-"}, []string{"gpt-5", "GPT-5"}, []string{"xgpt-5", "gpt"}},
		{usage.Rule{EndsWith: ":Free"}, []string{"a:free"}, []string{"a:free2"}},
		{usage.Rule{Contains: "claude"}, []string{"claude", "us.anthropic.claude-x"}, []string{"clade"}},
		{usage.Rule{Regexp: regexp.MustCompile(`^o[134](-|$)`)}, []string{"o1", "O3-mini"}, []string{"o2", "gpt-o1"}},
		{usage.Rule{Any: []usage.Rule{{Equals: "a"}, {Equals: "b"}}}, []string{"a", "b"}, []string{"c"}},
		{usage.Rule{All: []usage.Rule{{StartsWith: "a"}, {EndsWith: "z"}}}, []string{"az", "abcz"}, []string{"a", "z"}},
		{usage.Rule{Provider: "AWS/", StartsWith: "claude"}, []string{"aws/claude-x"}, []string{"claude-x", "awsclaude-x", "aws/x"}},
		{usage.Rule{}, nil, []string{"", "a"}},
	} {
		for _, name := range x.yes {
			if !x.rule.Matches(name) {
				t.Errorf("%+v does not recognise %q", x.rule, name)
			}
		}
		for _, name := range x.no {
			if x.rule.Matches(name) {
				t.Errorf("%+v recognises %q", x.rule, name)
			}
		}
	}
}
