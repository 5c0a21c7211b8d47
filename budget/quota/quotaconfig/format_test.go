package quotaconfig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
)

// Where a row of the table stands.
const (
	valid   = iota
	invalid // and the schema says so
	deeper  // invalid, but no JSON schema could say it
	lexical // invalid by how it is written, which a schema does not see
)

// formatCase is a document, and what is wrong with it: one line for each error.
type formatCase struct {
	name string
	kind int
	doc  string // without its version, which is line 1
	want string
}

// limit is a document with one limit, in line 2.
func limit(rest string) string { return "limits: [{ " + rest + " }]" }

// day is a document with one limit per user and day, in line 2.
func day(max string) string { return limit("scope: user, window: day, max: { " + max + " }") }

const list = "inline: { version: 1, as_of: 2026-11-30, models: [{ name: m, prices: [{ input: 1 }] }] }"

// The format, row by row.
var formatCases = []formatCase{
	// The file.
	{"nothing limited", valid, "", ""},
	{"all of the head", valid, "revision: 2026-11-30\nmode: \"off\"\nzone: tenant\nscopes: [{ scope: project, within: tenant }]\nlimits: []\nplans: {}\noverrides: []", ""},
	{"an unknown key", invalid, "limit: []", `2 : unknown key "limit"; known are version, revision, mode, zone, scopes, limits, plans, overrides, credits, prices`},
	{"a key twice", lexical, "mode: enforce\nmode: observe", "3 mode: is given twice"},
	{"an empty value", invalid, "limits:", "2 limits: must be a list, but is empty"},
	{"an empty word", invalid, "mode:", "2 mode: is empty; leave the key out if there is no value"},
	{"a list for a mapping", invalid, "plans: [a]", "2 plans: must have the names of plans as keys, but is a list"},
	{"a mapping for a list", invalid, "limits: { a: 1 }", "2 limits: must be a list, but is a mapping"},
	{"an anchor", lexical, "limits: &all []", "2 limits: anchors and aliases are not supported"},
	{"an alias", lexical, "limits: &l []\noverrides: *l", "2 limits: anchors and aliases are not supported\n3 overrides: anchors and aliases are not supported"},
	{"a tag", lexical, "mode: !!str enforce", "2 mode: tags are not supported"},
	{"a merge key", invalid, "plans: { p: { <<: { mode: off } } }", `2 plans.p: unknown key "<<"; known are mode, limits`},
	{"a mode that is none", invalid, "mode: shadow", `2 mode: "shadow" is none of off, observe, enforce`},
	{"a mode that is unset", invalid, "mode: unset", `2 mode: "unset" is none of off, observe, enforce`},
	{"a mode that is a truth", invalid, "mode: true", "2 mode: must be text, but is true; put it into quotes"},
	{"a zone that is none", deeper, "zone: Europe/Berlyn", `2 zone: "Europe/Berlyn" is neither a zone of the time zone database nor "tenant"`},
	{"the process's zone", deeper, "zone: Local", `2 zone: "Local" is neither a zone of the time zone database nor "tenant"`},
	{"a revision that is a number", invalid, "revision: 5", "2 revision: must be text, but is 5; put it into quotes"},
	{"a scope that is built in", invalid, "scopes: [{ scope: team }]", `2 scopes[0].scope: scope "team" is declared twice`},
	{"a scope within nothing", deeper, "scopes: [{ scope: a, within: b }]", `2 scopes[0].within: scope "a" is within "b", which is not declared`},
	{"a scope without a name", invalid, "scopes: [{ within: team }]", "2 scopes[0].scope: is not set; name the scope"},

	// Amounts.
	{"every unit", valid, day("turns: 1, calls: 2, tokens: 60_000, credits: 50000000, money: \"1.00\""), ""},
	{"0 of everything", valid, day("turns: 0, calls: 0, tokens: 0, credits: 0, money: \"0\""), ""},
	{"a number in quotes", valid, day(`tokens: "60_000"`), ""},
	{"the most there is", valid, day("tokens: 9_007_199_254_740_991"), ""},
	{"a micro-dollar", valid, day(`money: "0.000001"`), ""},
	{"negative tokens", invalid, day("tokens: -1"), "2 limits[0].max.tokens: must not be negative: -1"},
	{"negative credits", invalid, day("credits: -1"), "2 limits[0].max.credits: must not be negative: -1"},
	{"negative turns", invalid, day("turns: -1"), "2 limits[0].max.turns: must not be negative: -1"},
	{"negative money", invalid, day(`money: "-0.01"`), "2 limits[0].max.money: must not be negative: -0.01"},
	{"negative money without quotes", invalid, day("money: -0.01"), "2 limits[0].max.money: must not be negative: -0.01"},
	{"no number", invalid, day("tokens: .nan"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is ".nan"`},
	{"no number of dollars", invalid, day("money: .nan"), `2 limits[0].max.money: must be dollars, such as "1.00", but is ".nan"`},
	{"no number of dollars in quotes", invalid, day(`money: "NaN"`), `2 limits[0].max.money: must be dollars, such as "1.00", but is "NaN"`},
	{"infinity", invalid, day("tokens: .inf"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is ".inf"`},
	{"half a token", invalid, day("tokens: 1.5"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is "1.5"`},
	{"an exponent", lexical, day("tokens: 1e6"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is "1e6"`},
	{"octal", lexical, day("tokens: 010"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is "010"`},
	{"hexadecimal", lexical, day("tokens: 0x10"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is "0x10"`},
	{"words", invalid, day("tokens: many"), `2 limits[0].max.tokens: must be a whole number, such as 60_000, but is "many"`},
	{"a list of tokens", invalid, day("tokens: [1]"), "2 limits[0].max.tokens: must be one value, but is a list"},
	{"unlimited", invalid, day("tokens: ~"), "2 limits[0].max.tokens: is empty; leave the key out if there is no value"},
	{"more than there is", invalid, day("tokens: 9_007_199_254_740_992"), "2 limits[0].max.tokens: 9_007_199_254_740_992 is more than 9007199254740991, the most there is"},
	{"more than an int64", invalid, day("tokens: 99999999999999999999"), "2 limits[0].max.tokens: 99999999999999999999 is more than 9007199254740991, the most there is"},
	{"money without quotes", invalid, day("money: 1.00"), `2 limits[0].max.money: must be in quotes, so that no reader makes a binary fraction of it: "1.00"`},
	{"money with a sign", invalid, day(`money: "$1.00"`), `2 limits[0].max.money: must be dollars, such as "1.00", but is "$1.00"`},
	{"money with an exponent", invalid, day(`money: "1e3"`), `2 limits[0].max.money: must be dollars, such as "1.00", but is "1e3"`},
	{"too fine a money", invalid, day(`money: "0.0000001"`), `2 limits[0].max.money: amount "0.0000001" has more than six decimals`},
	{"more money than there is", deeper, day(`money: "9007199254.740992"`), `2 limits[0].max.money: "9007199254.740992" is more than $9007199254.740991, the most there is`},
	{"a misspelt unit", invalid, day("tokns: 1"), `2 limits[0].max: unknown key "tokns"; known are turns, concurrent_turns, calls, tokens, credits, money`},
	{"no unit", invalid, day(""), "2 limits[0].max: has no unit; leave the limit out if nothing is limited"},
	{"no max", invalid, limit("scope: user, window: day"), "2 limits[0].max: has no unit; leave the limit out if nothing is limited"},

	// Limits.
	{
		"all of a rolling limit", valid,
		limit("name: n/a-1, scope: user, window: \"rolling:1m\", max: { turns: 20 }, burst: { turns: 5 }, max_wait: 2s, mode: observe, missing: skip, failure: closed, hold: worst"), "",
	},
	{
		"all of a calendar limit", valid,
		limit("scope: team, window: month:31@Asia/Tokyo, max: { money: \"2\" }, soft: true, ceiling: { money: \"2.5\" }, thresholds: [50, 100, 120], failure: auto, hold: p95, missing: deny"), "",
	},
	{"concurrency", valid, limit("scope: user, max: { concurrent_turns: 2 }, soft: true, ceiling: { concurrent_turns: 3 }"), ""},
	{"no thresholds", valid, limit("scope: user, window: day, max: { calls: 1 }, thresholds: []"), ""},
	{"no waiting", valid, limit(`scope: user, window: "rolling:1h", max: { calls: 1 }, max_wait: 0s`), ""},
	{"a limit that is a word", invalid, "limits: [daily]", `2 limits[0]: must have keys (name, scope, window, max, burst, soft, ceiling, mode, missing, failure, hold, max_wait, thresholds), but is "daily"`},
	{"no scope", invalid, limit("window: day, max: { calls: 1 }"), "2 limits[0].scope: is not set"},
	{"a scope that is not there", deeper, limit("scope: usr, window: day, max: { calls: 1 }"), `2 limits[0].scope: "usr" is no scope of the hierarchy`},
	{"no window", invalid, limit("scope: user, max: { calls: 1 }"), "2 limits[0].window: is not set; only a limit of concurrent_turns alone has none"},
	{"a window of nothing", invalid, limit(`scope: user, window: "rolling:0s", max: { calls: 1 }`), `2 limits[0].window: "rolling:0s": rolling period 0s is not above 0`},
	{"a window that is none", invalid, limit("scope: user, window: daily, max: { calls: 1 }"), `2 limits[0].window: "daily": it is none of minute, hour, day, week, month and rolling`},
	{"a window in no zone", deeper, limit("scope: user, window: day@Mars/Olympus, max: { calls: 1 }"), `2 limits[0].window: "day@Mars/Olympus": zone "Mars/Olympus" is not in the time zone database: unknown time zone Mars/Olympus`},
	{"a month that begins on the 32nd", invalid, limit("scope: user, window: month:32, max: { calls: 1 }"), `2 limits[0].window: "month:32": anchor day 32 is not one of 1 to 31`},
	{"concurrency in a window", invalid, day("concurrent_turns: 2"), "2 limits[0].window: is set, but concurrent_turns are not counted in windows; make them a limit of their own, without one"},
	{"concurrency and more", invalid, limit("scope: user, max: { concurrent_turns: 2, turns: 5 }"), "2 limits[0].window: is not set; only a limit of concurrent_turns alone has none"},
	{"a name with spaces", invalid, limit("name: per user, scope: user, window: day, max: { calls: 1 }"), `2 limits[0].name: "per user" has ' ' in it; it may have letters, digits and -_./:@+`},
	{"a burst of a calendar window", invalid, limit("scope: user, window: day, max: { calls: 1 }, burst: { calls: 1 }"), "2 limits[0].burst: is set, but only rolling windows have a burst"},
	{"a burst of another unit", deeper, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, burst: { turns: 1 }`), "2 limits[0].burst.turns: is set, but max.turns is not"},
	{"a burst of nothing", deeper, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, burst: { calls: 0 }`), "2 limits[0].burst.calls: is 0, but max.calls is not; to let nothing pass, make that 0"},
	{"a burst beside a wrong max", invalid, limit(`scope: user, window: "rolling:1m", max: { calls: x }, burst: { calls: 5 }`), `2 limits[0].max.calls: must be a whole number, such as 60_000, but is "x"`},
	{"a burst in a wrong window", invalid, limit("scope: user, window: rolling, max: { calls: 1 }, burst: { calls: 5 }"), `2 limits[0].window: "rolling": it has no period, as in "rolling:1m"`},
	{"everything wrong at once", invalid, limit("window: dayly, max: { calls: -1 }, burst: { calls: 5 }, soft: perhaps, mode: on"), `2 limits[0].max.calls: must not be negative: -1` + "\n" + `2 limits[0].mode: "on" is none of off, observe, enforce` + "\n" + `2 limits[0].window: "dayly": it is none of minute, hour, day, week, month and rolling` + "\n" + `2 limits[0].soft: must be true or false, but is "perhaps"` + "\n" + "2 limits[0].scope: is not set"},
	{"soft and rolling", invalid, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, soft: true`), "2 limits[0].soft: is set, but a rolling window has no end at which to bill an overage"},
	{"perhaps soft", invalid, limit("scope: user, window: day, max: { calls: 1 }, soft: perhaps, ceiling: { calls: 2 }"), `2 limits[0].soft: must be true or false, but is "perhaps"`},
	{"softly yes", lexical, limit("scope: user, window: day, max: { calls: 1 }, soft: True"), `2 limits[0].soft: must be true or false, but is "True"`},
	{"a ceiling of a hard limit", invalid, limit("scope: user, window: day, max: { calls: 1 }, ceiling: { calls: 2 }"), "2 limits[0].ceiling: is set, but only soft limits have a ceiling"},
	{"a ceiling below the floor", deeper, limit("scope: user, window: day, max: { calls: 3 }, soft: true, ceiling: { calls: 2 }"), "2 limits[0].ceiling.calls: is 2, below max.calls, which is 3"},
	{"policies that are none", invalid, limit("scope: user, window: day, max: { calls: 1 }, mode: on, missing: allow, failure: fail, hold: p99"), `2 limits[0].mode: "on" is none of off, observe, enforce` + "\n" + `2 limits[0].missing: "allow" is none of deny, skip` + "\n" + `2 limits[0].failure: "fail" is none of auto, open, closed` + "\n" + `2 limits[0].hold: "p99" is none of mean, p95, worst`},
	{"a negative wait", invalid, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, max_wait: -2s`), "2 limits[0].max_wait: must not be negative: -2s"},
	{"a wait of 2 somethings", invalid, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, max_wait: 2`), `2 limits[0].max_wait: must be a duration, such as 2s or 500ms, but is "2"`},
	{"a wait for ages", deeper, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, max_wait: 9999999999h`), `2 limits[0].max_wait: must be a duration, such as 2s or 500ms, but is "9999999999h"`},
	{"a wait for the calendar", invalid, limit("scope: user, window: day, max: { calls: 1 }, max_wait: 2s"), "2 limits[0].max_wait: is 2s, but only rolling windows can be waited for"},
	{"thresholds that fall", deeper, limit("scope: user, window: day, max: { calls: 1 }, thresholds: [100, 80]"), "2 limits[0].thresholds[1]: 80 is not above the one before, 100"},
	{"a threshold of nothing", invalid, limit("scope: user, window: day, max: { calls: 1 }, thresholds: [0]"), "2 limits[0].thresholds[0]: 0 is not between 1 and 1000 percent"},
	{"a threshold too far", invalid, limit("scope: user, window: day, max: { calls: 1 }, thresholds: [1001]"), "2 limits[0].thresholds[0]: 1001 is more than 1000, the most there is"},
	{"thresholds of a rate", invalid, limit(`scope: user, window: "rolling:1m", max: { calls: 1 }, thresholds: [80]`), "2 limits[0].thresholds: are set, but only calendar windows have them"},
	{
		"two limits of one window", deeper, "limits:\n  - { scope: user, window: day, max: { calls: 1 } }\n  - { scope: user, window: day, max: { tokens: 1 } }",
		"4 limits[1]: is for user/day, and so is limits[0]; put all amounts into one",
	},

	// Plans.
	{"plans", valid, "plans:\n  free: {}\n  pro-2.0: { mode: observe, limits: [{ scope: user, window: day, max: { calls: 1 } }] }", ""},
	{"a global limit of a plan", invalid, "plans:\n  pro:\n    limits: [{ scope: global, window: day, max: { calls: 1 } }]", `4 plans.pro.limits[0].scope: is "global"; what everybody shares is limited for everybody, not by a plan or an override`},
	{"a misspelt key of a plan", invalid, "plans: { pro: { limit: [] } }", `2 plans.pro: unknown key "limit"; known are mode, limits`},
	{"a plan that cannot be a label", invalid, "plans:\n  pro plan: {}", `3 plans[0].name: "pro plan" has ' ' in it; it may have letters, digits and -_.`},
	{"a plan twice", lexical, "plans:\n  pro: {}\n  pro: {}", "4 plans.pro: is given twice"},
	{
		"a name of two things", deeper, "limits: [{ name: a, scope: user, window: day, max: { calls: 1 } }]\nplans:\n  p:\n    limits: [{ name: a, scope: user, window: hour, max: { calls: 1 } }]",
		`5 plans.p.limits[0].name: "a" stands for user/day already, and here for user/hour`,
	},

	// Overrides.
	{"overrides", valid, "overrides:\n  - { scope: user, subject: { tenant: acme, user: mallory }, until: 2026-12-01T08:00:00+01:00, reason: floods, limits: [{ scope: user, window: day, max: { calls: 0 } }] }\n  - { scope: tenant, subject: { tenant: \"42\" }, until: 2026-12-01, mode: observe }", ""},
	{"an override of nothing", invalid, "overrides: [{ scope: user, subject: { user: u } }]", "2 overrides[0]: changes nothing: it has neither limits nor a mode"},
	{"an override with a wrong mode", invalid, "overrides: [{ scope: user, subject: { user: u }, mode: on }]", `2 overrides[0].mode: "on" is none of off, observe, enforce`},
	{"an override with a wrong mode for nobody", invalid, "overrides: [{ scope: user, mode: on }]", `2 overrides[0].mode: "on" is none of off, observe, enforce` + "\n2 overrides[0].subject: has no id for the scope user"},
	{"an override for everybody", invalid, "overrides: [{ scope: global, subject: { user: u }, mode: off }]", `2 overrides[0].scope: is "global", but everybody is not one subject`},
	{"an override for nobody", invalid, "overrides: [{ scope: user, mode: off }]", "2 overrides[0].subject: has no id for the scope user"},
	{"an override without a scope", invalid, "overrides: [{ subject: { user: u }, mode: off }]", "2 overrides[0].scope: is not set"},
	{"an override for less than it says", deeper, "overrides: [{ scope: tenant, subject: { tenant: acme, user: u }, mode: off }]", "2 overrides[0].subject.user: does not matter to an override for a tenant; leave it out"},
	{"an id that is a number", invalid, "overrides: [{ scope: tenant, subject: { tenant: 42 }, mode: off }]", "2 overrides[0].subject.tenant: must be text, but is 42; put it into quotes"},
	{"an id with a line break", invalid, `overrides: [{ scope: tenant, subject: { tenant: "a\nb" }, mode: off }]`, `2 overrides[0].subject.tenant: "a\nb" has the control character U+000A`},
	{"an end without a zone", invalid, "overrides: [{ scope: tenant, subject: { tenant: a }, mode: off, until: \"2026-12-01T08:00:00\" }]", `2 overrides[0].until: must be a date (2026-11-30) or a time with its zone (2026-11-30T08:00:00Z), but is "2026-12-01T08:00:00"`},

	// Credits and prices.
	{"credits", valid, "credits: { version: a, input: 1, cached_input: 0.25, cache_write: \"1.25\", output: 4, thoughts: 0 }", ""},
	{"credits without a version and output", invalid, "credits: { input: 1 }", "2 credits.version: is not set; name this set of weights, for charges are kept with it\n2 credits.output: is not set; say what a token counts for"},
	{"negative credits a token", invalid, "credits: { version: a, input: -1, output: 4 }", `2 credits.input: weight "-1": must not be negative`},
	{"credits that are no number", invalid, "credits: { version: a, input: .nan, output: four }", `2 credits.input: weight ".nan": not a decimal number` + "\n" + `2 credits.output: weight "four": not a decimal number`},
	{"too fine a weight", deeper, "credits: { version: a, input: 0.0001, output: 4 }", `2 credits.input: weight "0.0001" has more than three decimals`},
	{"prices", valid, "prices: { unknown_model: uncosted, ignore_prefixes: [a/], lists: [{ " + list + " }] }", ""},
	{"a default price", valid, "prices: { unknown_model: default, default: { input: 1, output: \"2\" }, lists: [{ " + list + " }] }", ""},
	{"prices without lists", invalid, "prices: {}", "2 prices.lists: is not set; give at least one price list"},
	{"an unknown policy", invalid, "prices: { unknown_model: free, lists: [{ " + list + " }] }", `2 prices.unknown_model: "free" is none of reject, uncosted, default`},
	{"default without a price", invalid, "prices: { unknown_model: default, lists: [{ " + list + " }] }", "2 prices.default: is not set; unknown_model is default"},
	{"a price without default", invalid, "prices: { default: { input: 1 }, lists: [{ " + list + " }] }", "2 prices.default: is set, but unknown_model is reject"},
	{"a default price per token", deeper, "prices: { unknown_model: default, lists: [{ " + list + " }],\n  default: { input: 0.00002 } }", "3 prices.default.input: a price of $0.00002 for a million tokens is less than any; is \"0.00002\" per token, and should it be per million?"},
	{"a default price with a variant", invalid, "prices: { unknown_model: default, default: { input: 1, variant: batch }, lists: [{ " + list + " }] }", `2 prices.default: unknown key "variant"; known are input, cached_input, cache_write, output, thoughts, tiers`},
	{"two kinds in one list", invalid, "prices: { lists: [{ file: a.yaml, litellm: b.json }] }", "2 prices.lists[0]: must have one of inline, file, litellm and genai_prices, but has 2 of them"},
	{"two kinds in one list with a date", invalid, "prices: { lists: [{ file: a.yaml, litellm: b.json, as_of: 2026-11-30 }] }", "2 prices.lists[0]: must have one of inline, file, litellm and genai_prices, but has 2 of them"},
	{"a list of others without a date", invalid, "prices: { lists: [{ litellm: b.json }] }", "2 prices.lists[0].as_of: is not set; say as of when the file is right\n2 prices.lists[0].litellm: \"b.json\": there is no directory to read from"},
	{"a date beside a list that has its own", invalid, "prices: { lists: [{ " + list + ", as_of: 2026-11-30 }] }", "2 prices.lists[0].as_of: is for litellm and genai_prices, but this is inline"},
	{"a file where there are none", deeper, "prices: { lists: [{ file: a.yaml }] }", `2 prices.lists[0].file: "a.yaml": there is no directory to read from`},
	{
		"mistakes inside of a list", invalid,
		"prices:\n  lists:\n    - inline:\n        version: 1\n        as_of: 2026-11-30\n        models:\n          - name: m\n            prices:\n              - input: -1\n                outptu: 2\n          - name: n",
		"10 prices.lists[0].inline.models[0].prices[0].input: usage: price \"-1\" in dollars per million: must not be negative\n" +
			"11 prices.lists[0].inline.models[0].prices[0]: unknown key \"outptu\"; known are variant, from, tiers, input, cached_input, cache_write, output, thoughts\n" +
			"12 prices.lists[0].inline.models[1].prices: are not set",
	},
	{"an anchor inside of a list", lexical, "prices: { lists: [{ inline: { version: 1, as_of: &d 2026-11-30, models: [] } }] }", "2 prices.lists[0].inline: anchors and aliases are not supported\n2 prices.lists[0].inline: no model was read, and 0 were skipped"},
}

func TestEveryErrorHasItsLineAndPath(t *testing.T) {
	t.Parallel()
	for _, c := range formatCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config, err := quotaconfig.Load(strings.NewReader("version: 1\n" + c.doc))
			if (config == nil) == (err == nil) || (c.kind == valid) != (err == nil) {
				t.Fatalf("the configuration is %v, the error\n%v\nwant\n%s", config, err, c.want)
			}
			var got []string
			for _, e := range unwrap(err) {
				at, ok := errors.AsType[*quotaconfig.Error](e)
				if !ok {
					t.Fatalf("%v is no *Error", e)
				}
				got = append(got, fmt.Sprintf("%d %s: %s", at.Line, at.Path, at.Problem))
			}
			if all := strings.Join(got, "\n"); all != c.want {
				t.Errorf("errors are\n%s\nwant\n%s", all, c.want)
			}
		})
	}
}

// unwrap are the errors that an error joins, or itself.
func unwrap(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func TestVersionOfTheFormatIsRequired(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"mode: observe": "line 1: version: is not set; this is version 1 of the format",
		"version: 2":    "line 1: version: 2 is not 1",
		"version: one":  `line 1: version: must be a whole number, such as 60_000, but is "one"`,
	} {
		if _, err := quotaconfig.Load(strings.NewReader(doc)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: error is %v, want %q", doc, err, want)
		}
	}
}
