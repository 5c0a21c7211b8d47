package usage_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/usage"
)

func TestNamesAreFoundWithoutProviderDateAndCase(t *testing.T) {
	t.Parallel()
	c := catalog(t, usage.CatalogConfig{
		IgnorePrefixes: []string{"OpenRouter/", "corp/gateway"},
		Lists: []usage.PriceList{list(
			listed("1", "gemini-3-pro-preview"),
			listed("2", "gpt-4o"),
			listed("2.1", "gpt-4o-2024-05-13"),
			listed("3", "claude-sonnet-4-5"),
			listed("3.3", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
			listed("4", "amazon.nova-lite-v1:0"),
			listed("5", "m-1"),
			listed("6", "claude-opus-4-20250514"),
			listed("6.1", "claude-opus-4-20240101"),
			listed("7", "Gemini-2.5-Flash-Preview-09-2025"),
			listed("8", "openrouter/z-model"),
		)},
	})
	for _, x := range []struct{ asked, want string }{
		{"gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"GEMINI-3-Pro-Preview", "gemini-3-pro-preview"},
		{" gemini-3-pro-preview\n", "gemini-3-pro-preview"},
		{"gemini/gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"models/gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"google/gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"vertex_ai/gemini-3-pro-preview-05-06", "gemini-3-pro-preview"},
		{"publishers/google/models/gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"projects/p/locations/global/publishers/google/models/gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"openrouter/google/gemini-3-pro-preview", "gemini-3-pro-preview"},
		{"corp/gateway/models/gemini-3-pro-preview-latest", "gemini-3-pro-preview"},

		{"openai/gpt-4o", "gpt-4o"},
		{"gpt-4o-latest", "gpt-4o"},
		{"gpt-4o-2024-11-20", "gpt-4o"},
		{"gpt-4o-2024-05-13", "gpt-4o-2024-05-13"}, // the longest wins
		{"azure/eu/gpt-4o-2024-05-13", "gpt-4o-2024-05-13"},
		{"azure/us-east-1/gpt-4o", "gpt-4o"},

		{"claude-sonnet-4-5-20250929", "claude-sonnet-4-5"},
		{"claude-sonnet-4-5@20250929", "claude-sonnet-4-5"},
		{"anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"},
		{"us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"},
		{"eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"},
		{
			"arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
			"us.anthropic.claude-sonnet-4-5-20250929-v1:0",
		},
		{"bedrock/us-gov-west-1/anthropic.claude-sonnet-4-5", "claude-sonnet-4-5"},
		{"us.amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0"},
		{"nova-lite", "amazon.nova-lite-v1:0"},

		{"claude-opus-4", "claude-opus-4-20250514"}, // the newest stands for the name without a date
		{"claude-opus-4-latest", "claude-opus-4-20250514"},
		{"claude-opus-4-20240101", "claude-opus-4-20240101"},
		{"gemini-2.5-flash-preview", "Gemini-2.5-Flash-Preview-09-2025"},
		{"z-model", "openrouter/z-model"},

		{"m.1", ""}, {"m-10", ""}, {"m", ""}, {"m-", ""}, {"xm-1", ""}, {"m-1-mini", ""}, {"m-1-preview", ""}, {"m-1:free", ""},
		{"m-1-1", ""}, {"m-1-20251301", ""}, {"m-1-2025-02-32", ""}, {"m-1-99999999", ""},
		{"other/m-1", ""}, {"corp/m-1", ""},
		{"", ""}, {"/", ""}, {"models/", ""}, {"-latest", ""}, {"arn:aws:bedrock", ""}, {strings.Repeat("models/", 100) + "m-1", ""},
	} {
		p, err := c.Price(x.asked, day("2026-12-01"), usage.Standard)
		if p.Model != x.want || (err == nil) != (x.want != "") {
			t.Errorf("%q is priced as %q, %v, want %q", x.asked, p.Model, err, x.want)
		}
		if again, _ := c.Price(x.asked, day("2026-12-01"), usage.Standard); again.Model != p.Model {
			t.Errorf("%q is priced as %q the second time", x.asked, again.Model)
		}
	}
}

func TestNamesThatDoNotDecideAreUnknown(t *testing.T) {
	t.Parallel()
	c := catalogOf(t,
		listed("1", "azure/x"), listed("2", "bedrock/x"),
		listed("3", "azure/same"), listed("3", "vertex_ai/same"),
		listed("4", "azure/made"), listed("5", "openai/made"),
		listed("6", "azure/y-2025-01-01"), listed("7", "bedrock/y-2025-01-01"), listed("8", "y"),
		listed("9", "us.anthropic.z"), listed("9.9", "eu.anthropic.z"),
	)
	for asked, want := range map[string]string{
		"azure/x":        "azure/x",
		"azure_ai/same":  "azure/same",
		"same":           "azure/same",
		"made":           "openai/made", // its maker's
		"y-2025-01-01":   "y",
		"us.anthropic.z": "us.anthropic.z",
		"jp.anthropic.z": "", // one region's price is not another's
		"x":              "",
	} {
		p, err := c.Price(asked, day("2026-12-01"), usage.Standard)
		if p.Model != want || (err == nil) != (want != "") {
			t.Errorf("%q is priced as %q, %v, want %q", asked, p.Model, err, want)
		}
	}
	_, err := c.Price("x", day("2026-12-01"), usage.Standard)
	e, ok := errors.AsType[*usage.UnknownModelError](err)
	if !ok || !slices.Equal(e.Candidates, []string{"azure/x", "bedrock/x"}) || !strings.Contains(err.Error(), "azure/x") {
		t.Errorf("the error does not name the candidates: %v", err)
	}
}

func TestOfNamesAndRulesTheLongestMatchWins(t *testing.T) {
	t.Parallel()
	ruled := func(input, name string, rules ...usage.Rule) usage.Model {
		m := listed(input, name)
		m.Rules = rules
		return m
	}
	c := catalogOf(t,
		ruled("1", "any-flash", usage.Rule{Contains: "flash"}),
		ruled("2", "flash-lite", usage.Rule{StartsWith: "flash-lite"}),
		ruled("3", "flash-lite-dated", usage.Rule{Regexp: regexp.MustCompile(`^flash-lite-2025\d{4}$`)}),
		listed("4", "flash-lite-preview"),
		ruled("5", "rented", usage.Rule{Provider: "rent", Contains: "flash"}),
	)
	for asked, want := range map[string]string{
		"new-flash":                   "any-flash",
		"flash-lite":                  "flash-lite",
		"google/flash-lite-3":         "flash-lite",
		"flash-lite-20250101":         "flash-lite-dated",
		"flash-lite-20260101":         "flash-lite",
		"flash-lite-preview-20250101": "flash-lite-preview", // a name of more letters than the rules
		"rent/flash-9":                "rented",
		"flasch":                      "",
	} {
		if p, err := c.Price(asked, day("2026-12-01"), usage.Standard); p.Model != want {
			t.Errorf("%q is priced as %q, %v, want %q", asked, p.Model, err, want)
		}
	}
}

func FuzzCatalogPrice(f *testing.F) {
	m := listed("1", "gpt-4o", "openai/gpt-4o-2024-05-13")
	m.Rules = []usage.Rule{{Provider: "aws", Contains: "nova"}, {Regexp: regexp.MustCompile(`^o[134]`)}}
	c, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{list(m, listed("2", "us.anthropic.claude-x-v1:0"))}})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"gpt-4o", "models/gpt-4o-latest", "us.anthropic.claude-x-20250101-v1:0", "arn:/", "projects//models/", "aws/nova", "-v:", "@20250101"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, model string) {
		p, err := c.Price(model, day("2026-12-01"), usage.Standard)
		if (err == nil) != (p.Input != usage.Rate{}) {
			t.Fatalf("%q: %+v, %v", model, p, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Fatalf("%q makes an error of %d bytes", model, len(err.Error()))
		}
		if err == nil && !strings.ContainsAny(strings.ToLower(model), "gcno") {
			t.Fatalf("%q is priced as %q", model, p.Model)
		}
	})
}
