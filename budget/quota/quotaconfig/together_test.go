package quotaconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
)

// togetherDoc uses all of the format, with places (in angle brackets) where mistakes can be
// made.
const togetherDoc = `
version: <version>
revision: <revision>
mode: <mode>
zone: <zone>
scopes:
  - { scope: project, within: <within> }
  - { scope: <scope> }
  - { scope: area<scope key> }
limits:
  - name: <name>
    scope: user
    window: <rolling>
    max: { calls: <max>, turns: 10<unit> }
    burst: { calls: <burst> }
    max_wait: <wait>
    missing: <missing>
    failure: <failure>
    hold: <hold>
    mode: <limit mode>
  - scope: project
    window: <calendar>
    max: { tokens: 100, money: <money> }
    soft: <soft>
    ceiling: { tokens: <ceiling> }
    thresholds: [<threshold>, 80, <threshold after>, 100]<limit key>
  - { scope: <limit scope>, window: week, max: { calls: 5 } }
  - { scope: team, <max or window>window: hour, max: { calls: 5 } }
  - { scope: user, window: month@UTC, max: <whole max>, thresholds: [90] }
<one limit more>
plans:
  <plan>:
    mode: <plan mode>
    limits: [{ scope: user, window: <plan window>, max: { calls: <plan max> } }]<plan key>
overrides:
  - scope: <override scope>
    subject: { tenant: <tenant>, user: <user> }
    until: <until>
    reason: <reason>
    limits: [{ scope: user, window: day, max: { calls: 5 }, mode: <override mode> }]<override key>
credits: { version: <weights>, input: <input>, output: <output> }
prices:
  unknown_model: <unknown model>
  ignore_prefixes: [<prefix>]
  lists:
    - { litellm: <litellm>, as_of: <as of>, take_free: <free> }
    - { <source>as_of: 2026-11-30, providers: [<provider>] }
    - inline: { version: 1, as_of: 2026-11-30, models: [{ name: m, prices: [{ input: <price>, output: 1 }] }] }
<document>`

// mistake is something wrong in one place of togetherDoc, and the errors that tell it,
// each as path and problem.
type mistake struct {
	bad  string
	want []string
}

// place is a place of togetherDoc.
type place struct {
	name, good string
	mistakes   []mistake
}

// one is a mistake that one error tells.
func one(bad, want string) mistake { return mistake{bad, []string{want}} }

var togetherPlaces = []place{
	{"version", "1", []mistake{one("2", "version: 2 is not 1"), one("[]", "version: must be one value, but is a list")}},
	{"revision", "a", []mistake{one("5", "revision: must be text, but is 5; put it into quotes")}},
	{"mode", "observe", []mistake{one("shadow", `mode: "shadow" is none of off, observe, enforce`)}},
	{"zone", "Europe/Berlin", []mistake{one("Berlyn", `zone: "Berlyn" is neither a zone of the time zone database nor "tenant"`)}},
	{"within", "tenant", []mistake{one("nowhere", `scopes[0].within: scope "project" is within "nowhere", which is not declared`), one("project", `scopes[0].within: scope "project" is within itself, by way of "project"`)}},
	{"scope", "region", []mistake{
		one("team", `scopes[1].scope: scope "team" is declared twice`), one("No", `scopes[1].scope: scope "No" has a name that is not a lower-case letter and then lower-case letters, digits and underscores`),
		one("global", `scopes[1].scope: scope "global" is always there and cannot be declared`), one("7", "scopes[1].scope: must be text, but is 7; put it into quotes"),
	}},
	{"scope key", "", []mistake{one(", inside: tenant", `scopes[2]: unknown key "inside"; known are scope, within`)}},
	{"name", "rate", []mistake{one("rate of calls", `limits[0].name: "rate of calls" has ' ' in it; it may have letters, digits and -_./:@+`)}},
	{"rolling", "rolling:1m", []mistake{one("rolling", `limits[0].window: "rolling": it has no period, as in "rolling:1m"`), one("daily", `limits[0].window: "daily": it is none of minute, hour, day, week, month and rolling`)}},
	{"max", "20", []mistake{one("-1", "limits[0].max.calls: must not be negative: -1"), one("many", `limits[0].max.calls: must be a whole number, such as 60_000, but is "many"`)}},
	{"unit", "", []mistake{one(", euros: 5", `limits[0].max: unknown key "euros"; known are turns, concurrent_turns, calls, tokens, credits, money`)}},
	{"burst", "5", []mistake{one("x", `limits[0].burst.calls: must be a whole number, such as 60_000, but is "x"`), one("5, turns: 0", "limits[0].burst.turns: is 0, but max.turns is not; to let nothing pass, make that 0")}},
	{"wait", "2s", []mistake{one("2", `limits[0].max_wait: must be a duration, such as 2s or 500ms, but is "2"`)}},
	{"missing", "deny", []mistake{one("allow", `limits[0].missing: "allow" is none of deny, skip`)}},
	{"failure", "auto", []mistake{one("fail", `limits[0].failure: "fail" is none of auto, open, closed`)}},
	{"hold", "mean", []mistake{one("p99", `limits[0].hold: "p99" is none of mean, p95, worst`)}},
	{"limit mode", "enforce", []mistake{one("on", `limits[0].mode: "on" is none of off, observe, enforce`)}},
	{"calendar", "day", []mistake{one("dayly", `limits[1].window: "dayly": it is none of minute, hour, day, week, month and rolling`), one("day@Berlyn", `limits[1].window: "day@Berlyn": zone "Berlyn" is not in the time zone database: unknown time zone Berlyn`)}},
	{"money", `"1.00"`, []mistake{one("1.00", `limits[1].max.money: must be in quotes, so that no reader makes a binary fraction of it: "1.00"`)}},
	{"soft", "true", []mistake{one("perhaps", `limits[1].soft: must be true or false, but is "perhaps"`)}},
	{"ceiling", "200", []mistake{one("50", "limits[1].ceiling.tokens: is 50, below max.tokens, which is 100"), one("{}", "limits[1].ceiling.tokens: must be one value, but is a mapping")}},
	{"threshold", "50", []mistake{one("0", "limits[1].thresholds[0]: 0 is not between 1 and 1000 percent"), one("half", `limits[1].thresholds[0]: must be a whole number, such as 60_000, but is "half"`)}},
	{"threshold after", "90", []mistake{
		one("70", "limits[1].thresholds[2]: 70 is not above the one before, 80"), one("1001", "limits[1].thresholds[2]: 1001 is more than 1000, the most there is"),
		one("-5", "limits[1].thresholds[2]: must not be negative: -5"),
	}},
	{"limit key", "", []mistake{one("\n    treshold: 5", `limits[1]: unknown key "treshold"; known are name, scope, window, max, burst, soft, ceiling, mode, missing, failure, hold, max_wait, thresholds`)}},
	{"limit scope", "team", []mistake{one("nobody", `limits[2].scope: "nobody" is no scope of the hierarchy`), one("~", "limits[2].scope: is empty; leave the key out if there is no value")}},
	{"max or window", "", []mistake{one("thresholds: [], window: day, ", "limits[3].window: is given twice")}},
	{"whole max", "{ calls: 5 }", []mistake{one("5", "limits[4].max: must have keys (turns, concurrent_turns, calls, tokens, credits, money), but is \"5\""), one("{}", "limits[4].max: has no unit; leave the limit out if nothing is limited")}},
	{"one limit more", "", []mistake{one("  - { scope: user, window: month@UTC, max: { tokens: 1 } }", "limits[5]: is for user/month, and so is limits[4]; put all amounts into one"), one("  - 5", `limits[5]: must have keys (name, scope, window, max, burst, soft, ceiling, mode, missing, failure, hold, max_wait, thresholds), but is "5"`)}},
	{"plan", "pro", []mistake{one("pro plan", `plans[0].name: "pro plan" has ' ' in it; it may have letters, digits and -_.`)}},
	{"plan mode", "off", []mistake{one("on", `plans.PLAN.mode: "on" is none of off, observe, enforce`)}},
	{"plan window", "day", []mistake{one("dayly", `plans.PLAN.limits[0].window: "dayly": it is none of minute, hour, day, week, month and rolling`)}},
	{"plan max", "1", []mistake{one("-1", "plans.PLAN.limits[0].max.calls: must not be negative: -1")}},
	{"plan key", "", []mistake{one("\n    limit: []", `plans.PLAN: unknown key "limit"; known are mode, limits`)}},
	{"override scope", "user", []mistake{one("nobody", `overrides[0].scope: "nobody" is no scope of the hierarchy`), one("global", `overrides[0].scope: is "global", but everybody is not one subject`)}},
	{"tenant", "acme", []mistake{one("42", "overrides[0].subject.tenant: must be text, but is 42; put it into quotes"), one(`"a\nb"`, `overrides[0].subject.tenant: "a\nb" has the control character U+000A`)}},
	{"user", "mallory", []mistake{one(`"a\nb"`, `overrides[0].subject.user: "a\nb" has the control character U+000A`)}},
	{"until", "2026-12-01", []mistake{one("tomorrow", `overrides[0].until: must be a date (2026-11-30) or a time with its zone (2026-11-30T08:00:00Z), but is "tomorrow"`)}},
	{"reason", "floods", []mistake{one("[]", "overrides[0].reason: must be one value, but is a list")}},
	{"override mode", "off", []mistake{one("on", `overrides[0].limits[0].mode: "on" is none of off, observe, enforce`)}},
	{"override key", "", []mistake{one("\n    end: x", `overrides[0]: unknown key "end"; known are scope, subject, until, reason, mode, limits`)}},
	{"weights", "a", []mistake{one("5", "credits.version: must be text, but is 5; put it into quotes")}},
	{"input", "1", []mistake{one("-1", `credits.input: weight "-1": must not be negative`)}},
	{"output", "4", []mistake{one("four", `credits.output: weight "four": not a decimal number`)}},
	{"unknown model", "reject", []mistake{one("free", `prices.unknown_model: "free" is none of reject, uncosted, default`), one("default", "prices.default: is not set; unknown_model is default")}},
	{"prefix", "a/", []mistake{one("5", "prices.ignore_prefixes[0]: must be text, but is 5; put it into quotes")}},
	{"litellm", "prices.json", []mistake{one("broken.json", "prices.lists[0].litellm: broken.json: "), one("none.json", `prices.lists[0].litellm: open none.json: file does not exist`)}},
	{"as of", "2026-11-30", []mistake{one("today", `prices.lists[0].as_of: must be a date (2026-11-30) or a time with its zone (2026-11-30T08:00:00Z), but is "today"`)}},
	{"free", "true", []mistake{one("yes", `prices.lists[0].take_free: must be true or false, but is "yes"`)}},
	{"source", "litellm: prices.json, ", []mistake{one("", "prices.lists[1]: must have one of inline, file, litellm and genai_prices, but has 0 of them")}},
	{"provider", "gemini", []mistake{one("5", "prices.lists[1].providers[0]: must be text, but is 5; put it into quotes")}},
	{"price", "1", []mistake{one("-1", `prices.lists[2].inline.models[0].prices[0].input: usage: price "-1" in dollars per million: must not be negative`)}},
	{"document", "", []mistake{one("---\nversion: 1", ": the file has more than one document")}},
}

// problemsIn loads togetherDoc with the mistakes made, and returns what is told.
func problemsIn(t *testing.T, made map[string]mistake) (told, want []string) {
	t.Helper()
	plan := "pro"
	if m, ok := made["plan"]; ok {
		plan = m.bad
	}
	var pairs []string
	for _, p := range togetherPlaces {
		value := p.good
		if m, ok := made[p.name]; ok {
			value = m.bad
			for _, w := range m.want {
				want = append(want, strings.ReplaceAll(w, "PLAN", plan))
			}
		}
		pairs = append(pairs, "<"+p.name+">", value)
	}
	doc := strings.NewReplacer(pairs...).Replace(togetherDoc)
	files := fstest.MapFS{
		"prices.json": {Data: []byte(`{"m": {"input_cost_per_token": 0.000001, "output_cost_per_token": 0.000002, "litellm_provider": "gemini", "mode": "chat"}}`)},
		"broken.json": {Data: []byte(`{"m": `)},
	}
	_, err := quotaconfig.Loader{Files: files}.Load(strings.NewReader(doc))
	for _, e := range unwrap(err) {
		at, ok := errors.AsType[*quotaconfig.Error](e)
		if !ok {
			t.Fatalf("%v is no *Error", e)
		}
		told = append(told, at.Path+": "+at.Problem)
	}
	return told, want
}

// compareProblems reports what is told and should not be, and the reverse. What is
// expected may end early, in ": ".
func compareProblems(t *testing.T, what string, told, want []string) {
	t.Helper()
	same := func(told, want string) bool {
		return told == want || strings.HasSuffix(want, ".json: ") && strings.HasPrefix(told, want)
	}
	for _, w := range want {
		if !slices.ContainsFunc(told, func(s string) bool { return same(s, w) }) {
			t.Errorf("%s: not told: %s", what, w)
		}
	}
	for _, s := range told {
		if !slices.ContainsFunc(want, func(w string) bool { return same(s, w) }) {
			t.Errorf("%s: told without a reason: %s", what, s)
		}
	}
	if len(told) != len(want) {
		t.Errorf("%s: %d errors for %d mistakes", what, len(told), len(want))
	}
}

func TestDocumentWithoutMistakesLoads(t *testing.T) {
	t.Parallel()
	if told, _ := problemsIn(t, nil); told != nil {
		t.Fatalf("it has errors:\n%s", strings.Join(told, "\n"))
	}
}

// Mistakes in any two places are told together: none hides another, and none is told
// twice or has another told that was not made.
func TestEveryTwoMistakesAreToldTogether(t *testing.T) {
	t.Parallel()
	for i, p := range togetherPlaces {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, m := range p.mistakes {
				told, want := problemsIn(t, map[string]mistake{p.name: m})
				compareProblems(t, p.name+" is "+m.bad, told, want)
			}
			for _, q := range togetherPlaces[i+1:] {
				for k := range max(len(p.mistakes), len(q.mistakes)) {
					m, n := p.mistakes[k%len(p.mistakes)], q.mistakes[k%len(q.mistakes)]
					told, want := problemsIn(t, map[string]mistake{p.name: m, q.name: n})
					compareProblems(t, p.name+" is "+m.bad+", "+q.name+" is "+n.bad, told, want)
				}
			}
		})
	}
}

func TestAllMistakesOfAFileAreToldTogether(t *testing.T) {
	t.Parallel()
	for kind := range 4 {
		made := map[string]mistake{}
		for _, p := range togetherPlaces {
			made[p.name] = p.mistakes[min(kind, len(p.mistakes)-1)]
		}
		told, want := problemsIn(t, made)
		compareProblems(t, "all at once", told, want)
	}
}
