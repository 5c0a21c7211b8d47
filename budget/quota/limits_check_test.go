package quota_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestEveryErrorOfAConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	negative, second := -time.Second, time.Second
	one := func(l quota.Limit) quota.LimitsConfig { return quota.LimitsConfig{Limits: []quota.Limit{l}} }
	day := func(m quota.Max) quota.LimitsConfig {
		return one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: m})
	}
	calls := quota.Max{quota.Calls: 10}
	override := func(o quota.Override) quota.LimitsConfig {
		return quota.LimitsConfig{Overrides: []quota.Override{o}}
	}
	for _, c := range []struct {
		name   string
		config quota.LimitsConfig
		want   string // one line for each error
	}{
		{"negative tokens", day(quota.Max{quota.Tokens: -1}), "limits[0].max.tokens: must not be negative: -1"},
		{"negative credits", day(quota.Max{quota.Credits: -1}), "limits[0].max.credits: must not be negative: -1"},
		{"negative money", day(quota.Max{quota.Money: -500_000}), "limits[0].max.money: must not be negative: -$0.50"},
		{
			"a NaN that became an integer", day(quota.Max{quota.Tokens: math.MinInt64}),
			"limits[0].max.tokens: must not be negative: -9223372036854775808",
		},
		{
			"more than stores can tell", day(quota.Max{quota.Tokens: quota.MaxAmount + 1}),
			"limits[0].max.tokens: 9007199254740992 is more than 9007199254740991, the most there is",
		},
		{"no such unit", day(quota.Max{9: 1}), "limits[0].max.unit(9): there is no such unit"},
		{"no unit", day(nil), "limits[0].max: has no unit; leave the limit out if nothing is limited"},
		{
			"neither scope nor window nor unit", one(quota.Limit{}),
			"limits[0].scope: is not set\n" +
				"limits[0].window: is not set; only a limit of concurrent_turns alone has none\n" +
				"limits[0].max: has no unit; leave the limit out if nothing is limited",
		},
		{
			"a scope that is not declared", one(quota.Limit{Scope: "projct", Window: quota.Day, Max: calls}),
			`limits[0].scope: "projct" is no scope of the hierarchy`,
		},
		{
			"a window of nothing", one(quota.Limit{Scope: quota.User, Window: quota.Rolling(0), Max: calls}),
			"limits[0].window: quota: window: rolling period 0s is not above 0",
		},
		{
			"concurrency in a window", day(quota.Max{quota.ConcurrentTurns: 2}),
			"limits[0].window: is set, but concurrent_turns are not counted in windows; make them a limit of their own, without one",
		},
		{
			"concurrency and more without a window", one(quota.Limit{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2, quota.Turns: 1}}),
			"limits[0].window: is not set; only a limit of concurrent_turns alone has none",
		},
		{
			"a name that cannot be a label", one(quota.Limit{Name: "per user", Scope: quota.User, Window: quota.Day, Max: calls}),
			`limits[0].name: "per user" has ' ' in it; it may have letters, digits and -_./:@+`,
		},
		{
			"a long name", one(quota.Limit{Name: strings.Repeat("n", 65), Scope: quota.User, Window: quota.Day, Max: calls}),
			`limits[0].name: "` + strings.Repeat("n", 64) + `…" has 65 bytes, more than 64`,
		},
		{
			"burst of a calendar window", one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: calls, Burst: calls}),
			"limits[0].burst: is set, but only rolling windows have a burst",
		},
		{
			"burst of 0, and of what is not limited",
			one(quota.Limit{Scope: quota.User, Window: quota.Rolling(time.Hour), Max: calls, Burst: quota.Max{quota.Calls: 0, quota.Tokens: 1}}),
			"limits[0].burst.calls: is 0, but max.calls is not; to let nothing pass, make that 0\n" +
				"limits[0].burst.tokens: is set, but max.tokens is not",
		},
		{
			"burst of nothing",
			one(quota.Limit{Scope: quota.User, Window: quota.Rolling(time.Hour), Max: quota.Max{quota.Calls: 0}, Burst: quota.Max{quota.Calls: 5}}),
			"limits[0].burst.calls: is 5, but max.calls is 0, which lets nothing pass",
		},
		{
			"ceiling of a hard limit", one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: calls, Ceiling: calls}),
			"limits[0].ceiling: is set, but only soft limits have a ceiling",
		},
		{
			"ceiling below the limit",
			one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 2 * dollars}, Soft: true, Ceiling: quota.Max{quota.Money: 1 * dollars}}),
			"limits[0].ceiling.money: is $1.00, below max.money, which is $2.00",
		},
		{
			"soft and rolling", one(quota.Limit{Scope: quota.User, Window: quota.Rolling(time.Hour), Max: calls, Soft: true}),
			"limits[0].soft: is set, but a rolling window has no end at which to bill an overage",
		},
		{
			"values out of range",
			one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: calls, Mode: 9, Missing: 9, Failure: 9, Hold: 9}),
			"limits[0].mode: 9 is none of unset, off, observe, enforce\n" +
				"limits[0].missing: 9 is none of deny, skip\n" +
				"limits[0].failure: 9 is none of auto, open, closed\n" +
				"limits[0].hold: 9 is none of p95, mean, worst",
		},
		{
			"negative wait", one(quota.Limit{Scope: quota.User, Window: quota.Rolling(time.Hour), Max: calls, MaxWait: &negative}),
			"limits[0].max_wait: must not be negative: -1s",
		},
		{
			"waiting for a calendar", one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: calls, MaxWait: &second}),
			"limits[0].max_wait: is 1s, but only rolling windows can be waited for",
		},
		{
			"thresholds that do not rise", one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: calls, Thresholds: []int{0, 80, 80, 1001}}),
			"limits[0].thresholds[0]: 0 is not between 1 and 1000 percent\n" +
				"limits[0].thresholds[2]: 80 is not above the one before, 80\n" +
				"limits[0].thresholds[3]: 1001 is not between 1 and 1000 percent",
		},
		{
			"thresholds of a rate", one(quota.Limit{Scope: quota.User, Window: quota.Rolling(time.Hour), Max: calls, Thresholds: []int{80}}),
			"limits[0].thresholds: are set, but only calendar windows have them",
		},
		{
			"two of one scope and window",
			quota.LimitsConfig{Limits: []quota.Limit{
				{Scope: quota.User, Window: quota.Day, Max: calls},
				{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1}},
			}},
			"limits[1]: is for user/day, and so is limits[0]; put all amounts into one",
		},
		{
			"one name for two things",
			quota.LimitsConfig{
				Limits: []quota.Limit{{Name: "daily", Scope: quota.User, Window: quota.Day, Max: calls}},
				Plans: []quota.Plan{{Name: "p", Limits: []quota.Limit{
					{Name: "daily", Scope: quota.Tenant, Window: quota.Day, Max: calls},
				}}},
			},
			`plans.p.limits[0].name: "daily" stands for user/day already, and here for tenant/day`,
		},
		{
			"a global limit of a plan",
			quota.LimitsConfig{Plans: []quota.Plan{{Name: "p", Limits: []quota.Limit{{Scope: quota.Global, Window: quota.Day, Max: calls}}}}},
			`plans.p.limits[0].scope: is "global"; what everybody shares is limited for everybody, not by a plan or an override`,
		},
		{
			"plans without names, with odd ones and with one twice",
			quota.LimitsConfig{Mode: 9, Plans: []quota.Plan{{}, {Name: "a b"}, {Name: "p"}, {Name: "p", Mode: 9}}},
			"mode: 9 is none of unset, off, observe, enforce\n" +
				"plans[0].name: is not set\n" +
				`plans[1].name: "a b" has ' ' in it; it may have letters, digits and -_.` + "\n" +
				"plans.p: is the name of two plans\n" +
				"plans.p.mode: 9 is none of unset, off, observe, enforce",
		},
		{
			"an override of nothing for nobody", override(quota.Override{}),
			"overrides[0]: changes nothing: it has neither limits nor a mode\n" +
				"overrides[0].scope: is not set",
		},
		{
			"an override for everybody", override(quota.Override{Scope: quota.Global, Mode: quota.Off}),
			`overrides[0].scope: is "global", but everybody is not one subject`,
		},
		{
			"an override of an unknown scope", override(quota.Override{Scope: "flat", Mode: quota.Off}),
			`overrides[0].scope: "flat" is no scope of the hierarchy`,
		},
		{
			"an override of a scope without id",
			override(quota.Override{Scope: quota.User, Subject: quota.Subject{Tenant: "acme"}, Mode: quota.Off}),
			"overrides[0].subject: has no id for the scope user",
		},
		{
			"an override by an id that would not be looked at, and by a plan",
			override(quota.Override{
				Scope: quota.Tenant, Mode: quota.Off,
				Subject: quota.Subject{Tenant: "acme", User: "alice", Plan: "pro", Other: map[quota.Scope]string{"project": "x"}},
			}),
			`overrides[0].subject.plan: is "pro", but an override is for a subject and not for a plan` + "\n" +
				"overrides[0].subject.user: does not matter to an override for a tenant; leave it out\n" +
				"overrides[0].subject.project: does not matter to an override for a tenant; leave it out",
		},
		{
			"an override with an id that cannot be one, and without a scope",
			override(quota.Override{Subject: quota.Subject{Tenant: "a\nb", User: "c\nd"}, Mode: quota.Off}),
			"overrides[0].subject.user: " + `"c\nd" has the control character U+000A` +
				"\noverrides[0].subject.tenant: " + `"a\nb" has the control character U+000A` +
				"\noverrides[0].scope: is not set",
		},
		{
			"a window that is none beside thresholds, a burst and a wait that are wrong in any", one(quota.Limit{
				Scope: quota.User, Window: quota.Rolling(-1), Max: calls, Burst: quota.Max{quota.Tokens: -1}, MaxWait: new(time.Duration(-1)), Thresholds: []int{1001, 90, 80},
			}),
			"limits[0].window: quota: window: rolling period -1ns is not above 0\nlimits[0].burst.tokens: must not be negative: -1\n" +
				"limits[0].max_wait: must not be negative: -1ns\n" +
				"limits[0].thresholds[0]: 1001 is not between 1 and 1000 percent\n" +
				"limits[0].thresholds[2]: 80 is not above the one before, 90",
		},
		{
			"a burst of a calendar window that no window could have", one(quota.Limit{Scope: quota.User, Window: quota.Day, Max: calls, Burst: quota.Max{quota.Calls: -1}}),
			"limits[0].burst: is set, but only rolling windows have a burst\nlimits[0].burst.calls: must not be negative: -1",
		},
		{
			"a limit given twice under a name that is taken", quota.LimitsConfig{Limits: []quota.Limit{
				{Scope: quota.User, Window: quota.Day, Max: calls}, {Scope: quota.Team, Name: "a", Window: quota.Day, Max: calls},
				{Scope: quota.User, Name: "a", Window: quota.Day, Max: calls},
			}},
			"limits[2]: is for user/day, and so is limits[0]; put all amounts into one\n" +
				`limits[2].name: "a" stands for team/day already, and here for user/day`,
		},
		{
			"an override with an id that cannot be one",
			override(quota.Override{Scope: quota.User, Subject: quota.Subject{User: "a\nb"}, Mode: quota.Off}),
			"overrides[0].subject.user: " + `"a\nb" has the control character U+000A`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := quota.NewLimits(c.config)
			if l != nil || err == nil {
				t.Fatalf("there is no error, want\n%s", c.want)
			}
			var got []string
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				problem, ok := errors.AsType[*quota.LimitError](e)
				if !ok {
					t.Fatalf("%v is no *LimitError", e)
				}
				got = append(got, problem.Path+": "+problem.Problem)
			}
			if all := strings.Join(got, "\n"); all != c.want {
				t.Errorf("errors are\n%s\nwant\n%s", all, c.want)
			}
		})
	}
}
