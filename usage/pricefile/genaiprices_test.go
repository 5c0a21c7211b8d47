package pricefile_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

func genai(t testing.TB, o pricefile.Options) (usage.PriceList, pricefile.Report) {
	t.Helper()
	o.AsOf = asOf
	l, rep, err := pricefile.GenAIPrices(bytes.NewReader(fixture(t, "genai_prices.json")), o)
	if err != nil {
		t.Fatal(err)
	}
	return l, rep
}

func TestGenAIPricesAreReadToTheMicroDollar(t *testing.T) {
	t.Parallel()
	l, _ := genai(t, pricefile.Options{})
	c := catalog(t, l)
	for _, x := range []struct {
		model string
		u     usage.Usage
		want  usage.Micros
	}{
		{"thinker-2", usage.Usage{Input: 1000, CachedInput: 800, Output: 500, Thoughts: 400}, 400 + 160 + 6000},
		{"thinker-2", usage.Usage{Input: 200_000, Output: 1000}, 400_000 + 12_000},
		{"thinker-2", usage.Usage{Input: 200_001, CachedInput: 200_001, Output: 1000}, 40_001 + 18_000},
		{"thinker-2", usage.Usage{Input: 400_001, Output: 1000}, 1_600_004 + 24_000},
		{"thinker-1-pro", usage.Usage{Input: 1000, Output: 1000}, 18_000},
		{"nightly/night-owl", usage.Usage{Input: 1000, CachedInput: 1000, Output: 1000}, 300 + 1000}, // the dearer hour, part by part
		{"maker/vectors", usage.Usage{Input: 1000}, 20},
	} {
		if got, err := cost(t, c, x.model, usage.Standard, x.u); err != nil || got != x.want {
			t.Errorf("%s: %v costs %d, %v, want %d", x.model, x.u, got, err, x.want)
		}
	}
	p, err := c.Price("thinker-1-pro", time.Date(2026, 3, 12, 23, 59, 59, 0, time.UTC), usage.Standard)
	if m, _ := p.Input.Micros(); err != nil || m != 5_000_000 {
		t.Errorf("the day before its new price a model costs %v, %v", p.Input, err)
	}
	if _, err := cost(t, c, "maker/vectors", usage.Standard, usage.Usage{Output: 1}); err == nil {
		t.Error("output of an embedding model is free")
	}
}

func TestGenAIPricesRulesBecomeNamesAndRules(t *testing.T) {
	t.Parallel()
	l, _ := genai(t, pricefile.Options{})
	c := catalog(t, l)
	for asked, want := range map[string]string{
		"thinker-2":              "maker/thinker-2",
		"maker/thinker-2":        "maker/thinker-2",
		"maker/second":           "maker/thinker-2",
		"second":                 "", // the provider is not found by this name
		"models/thinker-2-001":   "maker/thinker-2",
		"thinker-2-preview-x":    "maker/thinker-2",
		"thinker-2x":             "",
		"thinker-1-small-pro":    "maker/thinker-1",
		"thinker-1-small":        "",
		"o3":                     "maker/o3",
		"o3-deep":                "", // by a rule that cannot be read
		"nightly/thinker-2":      "nightly/thinker-2",
		"nightly/great-grey-owl": "nightly/owl",
		"great-grey-owl":         "",
		"gratis":                 "",
		"maker/gratis":           "",
	} {
		if p, err := c.Price(asked, now, usage.Standard); p.Model != want {
			t.Errorf("%q is priced as %q, %v, want %q", asked, p.Model, err, want)
		}
	}
}

func TestGenAIPricesReportsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	_, rep := genai(t, pricefile.Options{})
	if got, want := names(rep.Skipped), []string{
		"maker/ahead", "maker/by-the-image", "maker/fine", "maker/fuzzy", "maker/gratis",
	}; !slices.Equal(got, want) {
		t.Errorf("skipped are %q, want %q", got, want)
	}
	if got, want := names(rep.Partial), []string{
		"maker/o3 match",
		"maker/thinker-2 input_audio_mtok", "maker/thinker-2 requests_kcount", "nightly/owl prices",
	}; !slices.Equal(got, want) {
		t.Errorf("read in part are %q, want %q", got, want)
	}
	if s := rep.String(); !strings.Contains(s, "more than six decimals") {
		t.Errorf("the report does not say why:\n%s", s)
	}
	l, rep := genai(t, pricefile.Options{Providers: []string{"nightly"}})
	if len(l.Models) != 2 || len(rep.Skipped) != 0 {
		t.Errorf("of one provider: %v", rep)
	}
	l, _ = genai(t, pricefile.Options{TakeFree: true})
	if got, err := cost(t, catalog(t, l), "maker/gratis", usage.Standard, usage.Usage{Input: 1e9}); err != nil || got != 0 {
		t.Errorf("a model that was taken for free costs %d, %v", got, err)
	}
}

func TestGenAIPricesZerosAndCheaperTiersAreNoted(t *testing.T) {
	t.Parallel()
	l, rep, err := pricefile.GenAIPrices(strings.NewReader(`[{"id":"p","models":[
		{"id":"falling","match":{"equals":"falling"},"prices":{"input_mtok":{"base":4,"tiers":[{"start":200000,"price":2}]},"output_mtok":8}},
		{"id":"half-free","match":{"equals":"half-free"},"prices":{"input_mtok":1,"cache_read_mtok":0,"output_mtok":0}},
		{"id":"tier-free","match":{"equals":"tier-free"},"prices":{"input_mtok":{"base":1,"tiers":[{"start":10,"price":0}]},"output_mtok":1}}
	]}]`), pricefile.Options{AsOf: asOf})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(rep.Partial), []string{
		"p/falling prices", "p/half-free cache_read_mtok", "p/half-free output_mtok", "p/tier-free prices",
	}; !slices.Equal(got, want) || len(rep.Skipped) != 0 {
		t.Errorf("noted are %q, want %q; skipped %v", got, want, rep.Skipped)
	}
	c := catalog(t, l)
	for model, want := range map[string]usage.Micros{"p/falling": 1_200_000 + 8000, "p/tier-free": 300_000 + 1000} {
		if got, err := cost(t, c, model, usage.Standard, usage.Usage{Input: 300_000, Output: 1000}); err != nil || got != want {
			t.Errorf("%s: a long prompt costs %d, %v, want %d", model, got, err, want)
		}
	}
}

func TestGenAIPricesWithAKeyTwiceAreRefused(t *testing.T) {
	t.Parallel()
	for key, file := range map[string]string{
		"id":         `[{"id":"a","id":"b","models":[]}]`,
		"input_mtok": `[{"id":"a","models":[{"id":"b","match":{"equals":"b"},"prices":{"input_mtok":1,"input_mtok":0}}]}]`,
		"Base":       `[{"id":"a","models":[{"id":"b","match":{"equals":"b"},"prices":{"input_mtok":{"base":1,"Base":0}}}]}]`,
	} {
		l, _, err := pricefile.GenAIPrices(strings.NewReader(file), pricefile.Options{AsOf: asOf})
		if err == nil || !strings.Contains(err.Error(), `"`+key+`"`) || l.Models != nil {
			t.Errorf("%s: %d models, %v", file, len(l.Models), err)
		}
	}
}

func FuzzGenAIPrices(f *testing.F) {
	f.Add(fixture(f, "genai_prices.json"))
	f.Add([]byte(`[{"id":"a","model_match":{"equals":"b"},"models":[{"id":"b","match":{"equals":"B "},"prices":[{"prices":{"input_mtok":1}},{"prices":{"input_mtok":{"base":2,"tiers":[{"start":5,"price":1}]}}}]}]}]`))
	f.Add([]byte(`[{"id":"a","models":[{"id":"b","match":{"or":[{"and":[{"or":[{"contains":"x"}]}]}]},"prices":{"input_mtok":{"base":1,"tiers":[{"start":-1,"price":1}]}}}]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, rep, err := pricefile.GenAIPrices(bytes.NewReader(data), pricefile.Options{AsOf: asOf})
		if err != nil && errors.Is(err, usage.ErrUnknownModel) {
			t.Fatal(err)
		}
		checkFuzzed(t, l, rep, err)
	})
}
