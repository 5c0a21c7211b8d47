package pricefile_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

func TestLiteLLMPricesAreReadToTheMicroDollar(t *testing.T) {
	t.Parallel()
	l, _, err := pricefile.LiteLLM(bytes.NewReader(fixture(t, "litellm.json")), pricefile.Options{AsOf: asOf})
	if err != nil {
		t.Fatal(err)
	}
	if !l.AsOf.Equal(asOf) {
		t.Errorf("the list is of %v", l.AsOf)
	}
	c := catalog(t, l)
	short := usage.Usage{Input: 1000, CachedInput: 800, Output: 500, Thoughts: 400}
	long := usage.Usage{Input: 300_000, CachedInput: 200_000, Output: 1000}
	for _, x := range []struct {
		model   string
		variant usage.Variant
		u       usage.Usage
		want    usage.Micros
	}{
		{"gem/plain", usage.Standard, short, 60 + 60 + 1250},
		{"gem/plain", usage.Batch, short, 60 + 60 + 1250}, // no price of its own
		{"gem/long", usage.Standard, short, 400 + 160 + 1200 + 4400},
		// What the tier does not repeat is from below; cache writes have no price below.
		{"gem/long", usage.Standard, long, 400_000 + 40_000 + 18_000},
		{"gem/long", usage.Standard, usage.Usage{Input: 300_000, CacheWrite: 300_000}, 1_200_000},
		{"gem/long", usage.Priority, short, 1000*36/10 + 500*216/10},
		{"gem/long", usage.Priority, long, 2_160_000 + 32_400},
		{"gem/long", usage.Batch, short, 1000 + 3000},
		{"gem/long", usage.Batch, long, 1_200_000 - 800_000 + 200_000 + 18_000}, // dearer of both, part by part
		{"gem/long", usage.Flex, short, 400 + 160 + 1200 + 4400},                // has no output price
		{"cla/writes", usage.Standard, usage.Usage{Input: 1000, CacheWrite: 1000}, 3750},
		{"das/ranges", usage.Standard, usage.Usage{Input: 256_000, Output: 1000}, 12_800 + 400},
		{"das/ranges", usage.Standard, usage.Usage{Input: 256_001, Output: 1000}, 64_001 + 2000},
		{"emb", usage.Standard, usage.Usage{Input: 1000}, 20},
		{"old-cache-name", usage.Standard, usage.Usage{Input: 1000, CachedInput: 1000}, 14},
	} {
		if got, err := cost(t, c, x.model, x.variant, x.u); err != nil || got != x.want {
			t.Errorf("%s, %v: %v costs %d, %v, want %d", x.model, x.variant, x.u, got, err, x.want)
		}
	}
	for _, model := range []string{"sample_spec", "binary", "zero", "picture", "seconds", "minus", "no-object"} {
		if p, err := c.Price(model, now, usage.Standard); !errors.Is(err, usage.ErrUnknownModel) {
			t.Errorf("%s has the price %+v, %v", model, p, err)
		}
	}
}

func TestLiteLLMReportsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	_, rep, err := pricefile.LiteLLM(bytes.NewReader(fixture(t, "litellm.json")), pricefile.Options{AsOf: asOf})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(rep.Skipped), []string{"EMB", "binary", "minus", "no-object", "picture", "seconds", "zero"}; !slices.Equal(got, want) {
		t.Errorf("skipped are %q, want %q", got, want)
	}
	if got, want := names(rep.Partial), []string{
		"cla/writes cache_creation_input_token_cost_above_1hr",
		"gem/long above_200k_tokens", "gem/long batches", "gem/long flex",
		"gem/plain input_cost_per_audio_token", "gem/plain search_context_cost_per_query",
	}; !slices.Equal(got, want) {
		t.Errorf("read in part are %q, want %q", got, want)
	}
	for _, n := range rep.Skipped {
		want := map[string]string{
			"binary": "more than six decimals", "minus": "negative", "zero": "at 0", "picture": "image_generation",
			"seconds": "per input token", "no-object": "object", "EMB": "name",
		}[n.Model]
		if !strings.Contains(n.String(), want) {
			t.Errorf("%v, want it to speak of %q", n, want)
		}
	}
}

func TestLiteLLMReadsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	o := pricefile.Options{AsOf: asOf, Providers: []string{"gem", "zero"}, TakeFree: true}
	l, rep, err := pricefile.LiteLLM(bytes.NewReader(fixture(t, "litellm.json")), o)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Models != 3 || len(l.Models) != 3 || len(rep.Skipped) != 1 || rep.Skipped[0].Model != "no-object" {
		t.Errorf("%v", rep)
	}
	if got, err := cost(t, catalog(t, l), "zero", usage.Standard, usage.Usage{Input: 1e9}); err != nil || got != 0 {
		t.Errorf("a model that was taken for free costs %d, %v", got, err)
	}
}

// litellm reads a file of one model beside one that is always read, so that
// there is a list.
func litellm(t *testing.T, model string, o pricefile.Options) (usage.PriceList, pricefile.Report) {
	t.Helper()
	o.AsOf = asOf
	file := `{"other":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6},"m":` + model + `}`
	l, rep, err := pricefile.LiteLLM(strings.NewReader(file), o)
	if err != nil {
		t.Fatal(err)
	}
	return l, rep
}

func TestLiteLLMsZerosAreNotTakenForFree(t *testing.T) {
	t.Parallel()
	const standard = `"input_cost_per_token":2e-6,"output_cost_per_token":1e-5`
	for name, c := range map[string]struct {
		model   string
		skipped bool
		notes   []string
		// What a call of 1,000 tokens of each costs in the variant, in micro-dollars.
		variant usage.Variant
		want    usage.Micros
	}{
		"output":                {`{"input_cost_per_token":2e-6,"output_cost_per_token":0}`, true, nil, "", 0},
		"output of a chat":      {`{"mode":"chat","input_cost_per_token":2e-6,"output_cost_per_token":0.0}`, true, nil, "", 0},
		"output of embeddings":  {`{"mode":"embedding","input_cost_per_token":2e-6,"output_cost_per_token":0}`, false, nil, "", 2000},
		"input":                 {`{"input_cost_per_token":0,"output_cost_per_token":1e-5}`, true, nil, "", 0},
		"input of embeddings":   {`{"mode":"embedding","input_cost_per_token":0,"output_cost_per_token":1e-5}`, true, nil, "", 0},
		"everything":            {`{"input_cost_per_token":0,"output_cost_per_token":0}`, true, nil, "", 0},
		"output of a variant":   {`{` + standard + `,"input_cost_per_token_batches":1e-6,"output_cost_per_token_batches":0}`, false, []string{"m batches"}, usage.Batch, 12_000},
		"all of a variant":      {`{` + standard + `,"input_cost_per_token_flex":0,"output_cost_per_token_flex":0}`, false, []string{"m flex"}, usage.Flex, 12_000},
		"output above a tier":   {`{` + standard + `,"output_cost_per_token_above_1k_tokens":0,"input_cost_per_token_above_1k_tokens":4e-6}`, false, []string{"m"}, "", 12_000},
		"cached input is noted": {`{` + standard + `,"cache_read_input_token_cost":0}`, false, []string{"m cache_read_input_token_cost"}, "", 12_000},
	} {
		l, rep := litellm(t, c.model, pricefile.Options{})
		if (len(rep.Skipped) == 1) != c.skipped || !slices.Equal(names(rep.Partial), c.notes) {
			t.Errorf("%s: skipped %v, notes %v", name, rep.Skipped, rep.Partial)
		}
		if !c.skipped {
			if got, err := cost(t, catalog(t, l), "m", c.variant, usage.Usage{Input: 1000, Output: 1000}); err != nil || got != c.want {
				t.Errorf("%s: a call costs %d, %v, want %d", name, got, err, c.want)
			}
		}
		if _, rep := litellm(t, c.model, pricefile.Options{TakeFree: true}); len(rep.Skipped) != 0 {
			t.Errorf("%s: skipped although free is taken: %v", name, rep.Skipped)
		}
	}
}

func TestLiteLLMsCheaperTiersAreRaised(t *testing.T) {
	t.Parallel()
	l, rep := litellm(t, `{
		"input_cost_per_token":4e-6,"output_cost_per_token":8e-6,
		"input_cost_per_token_above_200k_tokens":4e-7,"output_cost_per_token_above_200k_tokens":9e-6,
		"input_cost_per_token_flex":2e-6,"output_cost_per_token_flex":4e-6,
		"input_cost_per_token_above_200k_tokens_flex":1e-6,"output_cost_per_token_above_200k_tokens_flex":4e-6
	}`, pricefile.Options{})
	if got, want := names(rep.Partial), []string{"m", "m flex"}; !slices.Equal(got, want) || !strings.Contains(rep.Partial[0].Reason, "dearer") {
		t.Errorf("the notes are %v", rep.Partial)
	}
	c := catalog(t, l)
	long := usage.Usage{Input: 300_000, Output: 1000}
	for v, want := range map[usage.Variant]usage.Micros{usage.Standard: 1_200_000 + 9000, usage.Flex: 600_000 + 4000} {
		if got, err := cost(t, c, "m", v, long); err != nil || got != want {
			t.Errorf("%v: a long prompt costs %d, %v, want %d", v, got, err, want)
		}
	}
}

func TestLiteLLMsModelsWithAKeyTwiceAreSkipped(t *testing.T) {
	t.Parallel()
	for key, model := range map[string]string{
		"input_cost_per_token": `{"input_cost_per_token":1e-6,"output_cost_per_token":2e-6,"input_cost_per_token":0}`,
		"range":                `{"tiered_pricing":[{"range":[0,1],"input_cost_per_token":1e-6,"range":[0,5]}]}`,
		"MODE":                 `{"mode":"chat","input_cost_per_token":1e-6,"MODE":"chat"}`,
	} {
		_, rep := litellm(t, model, pricefile.Options{})
		if len(rep.Skipped) != 1 || rep.Skipped[0].Model != "m" || rep.Skipped[0].Field != key || !strings.Contains(rep.String(), "twice") {
			t.Errorf("%s: skipped %v", model, rep.Skipped)
		}
	}
	// The same key in another object, or as a value, is not the same.
	_, rep := litellm(t, `{"mode":"chat","input_cost_per_token":1e-6,"output_cost_per_token":1e-6,"a":[{"mode":"mode"},{"mode":["mode","mode"]}],"source":"mode"}`, pricefile.Options{})
	if len(rep.Skipped) != 0 {
		t.Errorf("skipped %v", rep.Skipped)
	}
}

func FuzzLiteLLM(f *testing.F) {
	f.Add(fixture(f, "litellm.json"))
	f.Add([]byte(`{"a":{"input_cost_per_token":"1e-6","input_cost_per_token_above_1k_tokens":2e-6,"input_cost_per_token_above_01k_tokens":3e-6}}`))
	f.Add([]byte(`{"a":{"tiered_pricing":[{"range":[0,1],"input_cost_per_token":1e-6},{"range":[1,2]}]},"A ":{},"":{"input_cost_per_token":1}}`))
	f.Add([]byte(`{"a":{"input_cost_per_token":4e-6,"output_cost_per_token":8e-6,"output_cost_per_token":0,"input_cost_per_token_above_2k_tokens":4e-7}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, rep, err := pricefile.LiteLLM(bytes.NewReader(data), pricefile.Options{AsOf: asOf})
		checkFuzzed(t, l, rep, err)
	})
}

// checkFuzzed checks that what was read is a list that a catalogue takes, and that
// no model of it is free. A file is refused for its form only, never for one model.
func checkFuzzed(t *testing.T, l usage.PriceList, rep pricefile.Report, err error) {
	t.Helper()
	if err != nil {
		if _, ok := errors.AsType[*usage.PriceListError](err); ok {
			t.Fatalf("the whole file is refused: %v", err)
		}
		return
	}
	if rep.Models != len(l.Models) {
		t.Fatalf("%d models are reported as %d", len(l.Models), rep.Models)
	}
	c := catalog(t, l)
	for _, m := range l.Models {
		p, err := c.Price(m.Name, now.AddDate(10, 0, 0), usage.Standard)
		if err != nil {
			t.Fatalf("%q was read and has no price: %v", m.Name, err)
		}
		const million = 1_000_000
		u := usage.Usage{Input: 4 * million, CachedInput: million, CacheWrite: million, Output: 2 * million, Thoughts: million}
		if n, err := p.Cost(u); err == nil && n < 0 {
			t.Fatalf("%q costs %d", m.Name, n)
		}
	}
}
