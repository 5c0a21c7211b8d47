package pricefile_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

func TestTheExampleFileIsRight(t *testing.T) {
	t.Parallel()
	l, rep, err := pricefile.Parse(bytes.NewReader(fixture(t, "prices.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	if rep.Models != 6 || rep.Prices != 9 || rep.Skipped != nil || rep.Partial != nil {
		t.Errorf("it holds %v", rep)
	}
	c := catalog(t, l)
	for _, x := range []struct {
		model   string
		variant usage.Variant
		u       usage.Usage
		want    usage.Micros
	}{
		{"gemini-3-pro", usage.Standard, usage.Usage{Input: 1050, CachedInput: 800, Output: 500, Thoughts: 400}, 500 + 160 + 6000},
		{"gemini-3-pro", usage.Batch, usage.Usage{Input: 200_001, Output: 1000}, 400_002 + 9000},
		{"claude-opus-4-6", usage.Standard, usage.Usage{Input: 300_000}, 1_500_000},
		{"claude-haiku-4.5-20251001", usage.Standard, usage.Usage{Input: 1000}, 1000},
		{"openai/text-embedding-3-small", usage.Standard, usage.Usage{Input: 1000}, 20},
		{"my-own-llama", usage.Standard, usage.Usage{Input: 1000, Output: 1000}, 0},
	} {
		if got, err := cost(t, c, x.model, x.variant, x.u); err != nil || got != x.want {
			t.Errorf("%s, %v: %v costs %d, %v, want %d", x.model, x.variant, x.u, got, err, x.want)
		}
	}
	if got := c.Age(now); got != now.Sub(asOf) {
		t.Errorf("its prices are %v old", got)
	}
}

func TestJSONIsReadLikeYAML(t *testing.T) {
	t.Parallel()
	// Tabs, an exponent and a number in quotes, which only JSON's writers use.
	const file = "{\n\t\"version\": 1,\n\t\"as_of\": \"2026-11-30T08:00:00+09:00\",\n\t\"models\": [\n\t\t" +
		`{"name": "m-1", "match": [{"regexp": "^m-1[a-z]$"}, {"ends_with": "/m"}], "prices": [{"from": "2026-01-01", "input": 25e-1, "output": "10"}]}` +
		"\n\t]\n}\n"
	l, _, err := pricefile.Parse(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if got := l.AsOf.UTC().Format("2006-01-02T15:04"); got != "2026-11-29T23:00" {
		t.Errorf("it is of %s", got)
	}
	if got, err := cost(t, catalog(t, l), "m-1x", usage.Standard, usage.Usage{Input: 1000, Output: 100}); err != nil || got != 2500+1000 {
		t.Errorf("a call costs %d, %v", got, err)
	}
}

func TestEverythingWrongInAFileIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	const file = `version: 2
as_of: yesterday
modles: []
models:
  - name: a
    prices:
      - input: 1.25e-06
        outptu: 3
        cached_input: 0.000002
      - input:
        output: -1
        variant: turbo
        from: 2026-13-01
        tiers:
          - above: 200k
            input: 1
          - input: 1
            output: [2]
  - alias: b
    match: starts_with
  - name: c
    aliases: [A]
    match: [{equals: x, contains: y}, {regexp: "("}, {sounds: z}]
    prices: &anchor
      - input: 1
  - name: d
    prices: *anchor
  - name: d
    name: e
    prices:
      - !!float input: 3
  - 7
`
	_, _, err := pricefile.Parse(strings.NewReader(file))
	if err == nil {
		t.Fatal("the file was read")
	}
	got := err.Error()
	for _, want := range []string{
		`line 1: version: "2"`,
		`line 2: as_of: "yesterday"`,
		`line 3: the file: unknown key "modles"`,
		`line 7: models[0].prices[0].input: `,
		`per million?`,
		`line 8: models[0].prices[0]: unknown key "outptu"`,
		`line 9: models[0].prices[0].cached_input: a price of $0.000002`,
		`line 10: models[0].prices[1].input: is empty`,
		`line 11: models[0].prices[1].output: `,
		`line 12: models[0].prices[1].variant: `,
		`line 13: models[0].prices[1].from: "2026-13-01"`,
		`line 15: models[0].prices[1].tiers[0].above: "200k"`,
		`line 17: models[0].prices[1].tiers[1].above: is not set`,
		`line 18: models[0].prices[1].tiers[1].output: must be one value, but is a list`,
		`line 19: models[1]: unknown key "alias"`,
		`models[1].name: is not set`,
		`models[1].prices: are not set`,
		`line 20: models[1].match: must be a list, but is "starts_with"`,
		`line 22: models[2].aliases[0]: "A" is also a name of models[0]`,
		`line 23: models[2].match[0]: a rule has one condition, not 2`,
		`line 23: models[2].match[1].regexp: `,
		`line 23: models[2].match[2]: unknown key "sounds"`,
		`models[2].prices: anchors and aliases`,
		`models[3].prices: anchors and aliases`,
		`line 29: models[4].name: is given twice`,
		`line 32: models[5]: must have keys`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not named", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestFilesOfAnotherFormAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"empty":            {"", "empty"},
		"comments only":    {"# nothing\n", "empty"},
		"no YAML":          {"a: [", "line 1"},
		"a list":           {"- a\n", "must have keys"},
		"two documents":    {"version: 1\n---\nversion: 1\n", "more than one document"},
		"nothing set":      {"{}", "version: is not set"},
		"no date":          {"version: 1\nmodels: []\n", "as_of: is not set"},
		"a zero date":      {"version: 1\nas_of: 0001-01-01\nmodels: []\n", "as_of"},
		"null models":      {"version: 1\nas_of: 2026-11-30\nmodels:\n", "models"},
		"no input":         {"version: 1\nas_of: 2026-11-30\nmodels: [{name: a, prices: [{output: 1}]}]\n", "line 3: models[0].prices[0].input: is not set"},
		"forgotten output": {"version: 1\nas_of: 2026-11-30\nmodels:\n- name: a\n  prices:\n  - input: 1\n    output: 2\n    tiers:\n    - above: 5\n      input: 3\n", "line 9: models[0].prices[0].tiers[0].output: is not set, but below the tier it is $2.00"},
		"cheaper above":    {"version: 1\nas_of: 2026-11-30\nmodels:\n- name: a\n  prices:\n  - input: 2\n    tiers:\n    - above: 5\n      input: 1\n", "line 9: models[0].prices[0].tiers[0].input: $1.00 is less than below the tier, $2.00"},
		"twice from a day": {"version: 1\nas_of: 2026-11-30\nmodels:\n- name: a\n  prices:\n  - input: 1\n  - input: 2\n", "line 7: models[0].prices[1].from"},
		"NaN":              {"version: 1\nas_of: 2026-11-30\nmodels: [{name: a, prices: [{input: .nan}]}]\n", `".nan"`},
		"no models":        {"version: 1\nas_of: 2026-11-30\nmodels: []\n", "no model"},
		"a merge key":      {"version: 1\nas_of: 2026-11-30\nmodels: [{name: a, prices: [{<<: {input: 1}}]}]\n", `"<<"`},
	} {
		l, _, err := pricefile.Parse(strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || l.Models != nil {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestAFileOfNothingButErrorsMakesABoundedOne(t *testing.T) {
	t.Parallel()
	file := "version: 1\nas_of: 2026-11-30\nmodels:\n" + strings.Repeat("  - {name: a}\n", 1000)
	_, _, err := pricefile.Parse(strings.NewReader(file))
	if err == nil || len(err.Error()) > 20_000 || !strings.HasSuffix(err.Error(), "more errors") {
		t.Errorf("%.100v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(fixture(f, "prices.yaml"))
	f.Add([]byte(`{"version":1,"as_of":"2026-11-30","models":[{"name":"a","prices":[{"input":1,"tiers":[{"above":5,"input":2}]}]}]}`))
	f.Add([]byte("version: 1\nas_of: 2026-11-30\nmodels: [{name: a, match: [{regexp: a+}], prices: [{input: 1, from: 2026-01-01T00:00:00Z}]}]\n"))
	f.Add([]byte("a: &a [*a]\n? [b]\n: c\n--- \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, rep, err := pricefile.Parse(bytes.NewReader(data))
		if err != nil {
			if l.Models != nil || !strings.HasPrefix(err.Error(), "pricefile: ") {
				t.Fatalf("%d models and %v", len(l.Models), err)
			}
			return
		}
		if rep.Models != len(l.Models) || rep.Skipped != nil || rep.Partial != nil || l.AsOf.IsZero() {
			t.Fatalf("%v for %d models of %v", rep, len(l.Models), l.AsOf)
		}
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
