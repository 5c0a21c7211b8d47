package quota_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// dollars are micro-dollars.
const dollars = 1_000_000

// mustLimits makes limits that are valid.
func mustLimits(t testing.TB, config quota.LimitsConfig) *quota.Limits {
	t.Helper()
	l, err := quota.NewLimits(config)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// brief writes limits down by name, amounts and mode.
func brief(limits []quota.Limit) string {
	var lines []string
	for _, l := range limits {
		lines = append(lines, fmt.Sprintf("%v %v", l, l.Mode))
	}
	return strings.Join(lines, "\n")
}

// allowance is the example of the plans: a dollar a day for everybody, ten on pro.
func allowance() quota.LimitsConfig {
	return quota.LimitsConfig{
		Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 1 * dollars}},
			{Scope: quota.Global, Window: quota.Month, Max: quota.Max{quota.Money: 200 * dollars}},
		},
		Plans: []quota.Plan{{Name: "pro", Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Money: 10 * dollars}},
			{Scope: quota.User, Window: quota.Minute, Max: quota.Max{quota.Tokens: 20_000}},
		}}},
	}
}

func TestPlanReplacesOrAddsAndUnknownPlanIsCommon(t *testing.T) {
	t.Parallel()
	l := mustLimits(t, allowance())
	common := "user/day: 1000000 money per user and day enforce\n" +
		"global/month: 200000000 money per global and month enforce"
	pro := "user/day: 10000000 money per user and day enforce\n" +
		"global/month: 200000000 money per global and month enforce\n" +
		"user/minute: 20000 tokens per user and minute enforce"
	for plan, want := range map[string]string{"": common, "pro": pro, "Pro": common, "platinum": common} {
		if got := brief(l.For(quota.Subject{User: "alice", Plan: plan})); got != want {
			t.Errorf("plan %q has\n%s\nwant\n%s", plan, got, want)
		}
	}
	if got := l.Plans(); !slices.Equal(got, []string{"pro"}) {
		t.Errorf("plans are %q", got)
	}
	if known, unknown := l.PlanOf(quota.Subject{Plan: "pro"}), l.PlanOf(quota.Subject{Plan: "platinum"}); known != "pro" || unknown != "" {
		t.Errorf("PlanOf is %q for a known and %q for an unknown plan", known, unknown)
	}
}

// A limit that replaces another one replaces all its amounts: what the common one
// limits besides is not limited on the plan.
func TestPlanLimitReplacesAllAmounts(t *testing.T) {
	t.Parallel()
	l := mustLimits(t, quota.LimitsConfig{
		Limits: []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000, quota.Calls: 5}}},
		Plans: []quota.Plan{{Name: "big", Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 9000}},
		}}},
	})
	want := quota.Max{quota.Tokens: 9000}
	if got := l.For(quota.Subject{Plan: "big"})[0].Max; !reflect.DeepEqual(got, want) {
		t.Errorf("on the plan there is %v, want %v", got, want)
	}
}

// counters are the counters that a subject's limits count in.
func counters(t *testing.T, l *quota.Limits, s quota.Subject) map[quota.Counter]int64 {
	t.Helper()
	out := map[quota.Counter]int64{}
	for _, limit := range l.For(s) {
		key, ok := l.Hierarchy().Key(s, limit.Scope)
		if !ok {
			t.Fatalf("%v has no key for %v", s, limit.Scope)
		}
		for unit, most := range limit.Max {
			out[quota.Counter{Key: key, Window: limit.Window.ID(), Unit: unit}] = most
		}
	}
	return out
}

// Whatever plan a subject changes to, the same spend stands against another
// amount: 0.80 of 1.00 becomes 0.80 of 10.00.
func TestPlanChangeKeepsCounters(t *testing.T) {
	t.Parallel()
	l := mustLimits(t, allowance())
	free := counters(t, l, quota.Subject{Tenant: "acme", User: "alice"})
	pro := counters(t, l, quota.Subject{Tenant: "acme", User: "alice", Plan: "pro"})
	daily := quota.Counter{Key: "tenant=acme/user=alice", Window: "day", Unit: quota.Money}
	if free[daily] != 1*dollars || pro[daily] != 10*dollars {
		t.Errorf("the counter %v has limits %d and %d, want 1 and 10 dollars", daily, free[daily], pro[daily])
	}
	for c := range free {
		if _, ok := pro[c]; !ok {
			t.Errorf("the upgrade leaves the counter %v", c)
		}
	}
	// New limits of another version count in the same counters.
	changed := allowance()
	changed.Version = "2"
	changed.Limits[0].Name = "renamed"
	changed.Limits[0].Max = quota.Max{quota.Money: 3 * dollars}
	if again := counters(t, mustLimits(t, changed), quota.Subject{Tenant: "acme", User: "alice"}); again[daily] != 3*dollars {
		t.Errorf("after a reload the counter %v has limit %d, want 3 dollars", daily, again[daily])
	}
}

func TestModeIsTheFirstThatIsSet(t *testing.T) {
	t.Parallel()
	const unset, off, observe, enforce = quota.ModeUnset, quota.Off, quota.Observe, quota.Enforce
	for _, c := range []struct {
		all, plan, limit, override quota.Mode
		scope                      quota.Scope
		want                       quota.Mode // off: the limit is not there
	}{
		{unset, unset, unset, unset, quota.User, enforce},
		{observe, unset, unset, unset, quota.User, observe},
		{off, unset, unset, unset, quota.User, off},
		{observe, enforce, unset, unset, quota.User, enforce},
		{enforce, observe, unset, unset, quota.User, observe},
		{enforce, off, unset, unset, quota.User, off},
		{observe, observe, enforce, unset, quota.User, enforce},
		{enforce, enforce, off, unset, quota.User, off},
		{off, off, observe, unset, quota.User, observe},
		// A plan has no say about what everybody shares.
		{observe, enforce, unset, unset, quota.Global, observe},
		{enforce, off, unset, unset, quota.Global, enforce},
		{enforce, off, observe, unset, quota.Global, observe},
		// An override goes before all, but not for what everybody shares.
		{enforce, enforce, enforce, observe, quota.User, observe},
		{enforce, off, off, enforce, quota.User, enforce},
		{enforce, unset, unset, off, quota.User, off},
		{enforce, unset, unset, off, quota.Global, enforce},
	} {
		config := quota.LimitsConfig{
			Mode:   c.all,
			Limits: []quota.Limit{{Scope: c.scope, Window: quota.Day, Max: quota.Max{quota.Calls: 1}, Mode: c.limit}},
			Plans:  []quota.Plan{{Name: "p", Mode: c.plan}},
		}
		if c.override != unset {
			config.Overrides = []quota.Override{{Scope: quota.User, Subject: quota.Subject{User: "u"}, Mode: c.override}}
		}
		got := off
		if limits := mustLimits(t, config).For(quota.Subject{User: "u", Plan: "p"}); len(limits) > 0 {
			got = limits[0].Mode
		}
		if got != c.want {
			t.Errorf("all %v, plan %v, limit %v, override %v on a %v limit: %v, want %v",
				c.all, c.plan, c.limit, c.override, c.scope, got, c.want)
		}
	}
}

// A rollout goes plan by plan: the common limits are enforced for one plan, and
// only observed for all others.
func TestRolloutGoesPlanByPlan(t *testing.T) {
	t.Parallel()
	config := allowance()
	config.Mode = quota.Observe
	config.Plans = append(config.Plans, quota.Plan{Name: "free", Mode: quota.Enforce})
	l := mustLimits(t, config)
	for plan, want := range map[string]quota.Mode{"free": quota.Enforce, "pro": quota.Observe, "": quota.Observe} {
		if got := l.For(quota.Subject{User: "u", Plan: plan})[0].Mode; got != want {
			t.Errorf("plan %q: daily limit is in mode %v, want %v", plan, got, want)
		}
	}
}

func TestEffectiveLimitsAreComplete(t *testing.T) {
	t.Parallel()
	wait := time.Second
	l := mustLimits(t, quota.LimitsConfig{Limits: []quota.Limit{
		{Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Turns: 20, quota.Tokens: 60_000}, Burst: quota.Max{quota.Turns: 5}, MaxWait: &wait},
		{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}},
		{Scope: quota.Team, Window: quota.Month, Max: quota.Max{quota.Credits: 20}, Soft: true, Ceiling: quota.Max{quota.Credits: 25}},
		{Name: "quiet", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Credits: 50}, Thresholds: []int{}},
		{Scope: quota.Session, Window: quota.Hour, Max: quota.Max{quota.Calls: 0}, Thresholds: []int{50, 120}},
	}})
	got := l.For(quota.Subject{})
	want := []quota.Limit{
		{
			Name: "user/rolling:1m", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Turns: 20, quota.Tokens: 60_000},
			Burst: quota.Max{quota.Turns: 5, quota.Tokens: 60_000}, MaxWait: &wait, Mode: quota.Enforce,
		},
		{Name: "user/concurrent", Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}, Mode: quota.Enforce},
		{
			Name: "team/month", Scope: quota.Team, Window: quota.Month, Max: quota.Max{quota.Credits: 20}, Mode: quota.Enforce,
			Soft: true, Ceiling: quota.Max{quota.Credits: 25}, Thresholds: []int{80, 100},
		},
		{Name: "quiet", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Credits: 50}, Mode: quota.Enforce, Thresholds: []int{}},
		{Name: "session/hour", Scope: quota.Session, Window: quota.Hour, Max: quota.Max{quota.Calls: 0}, Mode: quota.Enforce, Thresholds: []int{50, 120}},
	}
	if len(got) != len(want) {
		t.Fatalf("there are %d limits, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("limit %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	names := []string{"quiet", "session/hour", "team/month", "user/concurrent", "user/rolling:1m"}
	if got := l.Names(); !slices.Equal(got, names) {
		t.Errorf("names are %q, want %q", got, names)
	}
}

// What the caller does to its configuration afterwards has no effect.
func TestLimitsDoNotShareMemoryWithTheirConfiguration(t *testing.T) {
	t.Parallel()
	wait := time.Second
	config := quota.LimitsConfig{
		Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Rolling(time.Hour), Max: quota.Max{quota.Calls: 7}, Burst: quota.Max{quota.Calls: 3}, MaxWait: &wait},
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: 7}, Soft: true, Ceiling: quota.Max{quota.Calls: 9}, Thresholds: []int{50}},
		},
		Overrides: []quota.Override{{
			Scope: quota.User, Subject: quota.Subject{User: "u"},
			Limits: []quota.Limit{{Scope: quota.User, Window: quota.Week, Max: quota.Max{quota.Calls: 1}}},
		}},
	}
	l := mustLimits(t, config)
	before := fmt.Sprintf("%+v", l.For(quota.Subject{User: "u"})[1:])
	config.Limits[0].Max[quota.Calls], config.Limits[0].Burst[quota.Calls] = 0, 0
	config.Limits[1].Ceiling[quota.Calls], config.Limits[1].Thresholds[0] = 0, 0
	config.Overrides[0].Limits[0].Max[quota.Calls] = 0
	wait = 0
	got := l.For(quota.Subject{User: "u"})
	if after := fmt.Sprintf("%+v", got[1:]); after != before {
		t.Errorf("limits have changed from\n%s to\n%s", before, after)
	}
	if first := got[0]; *first.MaxWait != time.Second || first.Max[quota.Calls] != 7 || first.Burst[quota.Calls] != 3 {
		t.Errorf("the rolling limit has changed: %v, burst %v, wait %v", first.Max, first.Burst, *first.MaxWait)
	}
}

func TestForAllocatesNothingWithoutOverride(t *testing.T) {
	config := allowance()
	config.Overrides = []quota.Override{{Scope: quota.User, Subject: quota.Subject{User: "mallory"}, Mode: quota.Observe}}
	l := mustLimits(t, config)
	s := quota.Subject{Tenant: "acme", User: "alice", Plan: "pro"}
	if n := testing.AllocsPerRun(100, func() { l.For(s) }); n != 0 {
		t.Errorf("For allocates %v times", n)
	}
}

func TestOverrideIsForExactlyOneSubject(t *testing.T) {
	t.Parallel()
	config := allowance()
	block := []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: 0}}}
	config.Overrides = []quota.Override{
		{Scope: quota.User, Subject: quota.Subject{Tenant: "acme", User: "mallory"}, Limits: block},
		{Scope: quota.Tenant, Subject: quota.Subject{Tenant: "globex"}, Mode: quota.Observe, Reason: "their launch day"},
		{Scope: quota.User, Subject: quota.Subject{Tenant: "globex", User: "gus"}, Mode: quota.Enforce},
	}
	l := mustLimits(t, config)
	for _, c := range []struct {
		name    string
		subject quota.Subject
		want    string
	}{
		{"the one", quota.Subject{Tenant: "acme", User: "mallory"}, "0 calls enforce"},
		{"the one, on a plan", quota.Subject{Tenant: "acme", User: "mallory", Plan: "pro", Session: "s"}, "0 calls enforce"},
		{"the same name elsewhere", quota.Subject{Tenant: "initech", User: "mallory"}, "1000000 money enforce"},
		{"the same name nowhere", quota.Subject{User: "mallory"}, "1000000 money enforce"},
		{"a colleague", quota.Subject{Tenant: "acme", User: "alice"}, "1000000 money enforce"},
		{"all of a tenant", quota.Subject{Tenant: "globex", User: "anyone"}, "1000000 money observe"},
		{"but for one, later in the list", quota.Subject{Tenant: "globex", User: "gus"}, "1000000 money enforce"},
	} {
		daily := l.For(c.subject)[0]
		var got string
		for unit, most := range daily.Max {
			got += fmt.Sprintf("%d %v %v", most, unit, daily.Mode)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestOverrideEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := allowance()
		config.Overrides = []quota.Override{{
			Scope: quota.User, Subject: quota.Subject{User: "alice"}, Mode: quota.Observe, Until: time.Now().Add(time.Hour),
		}}
		l := mustLimits(t, config)
		mode := func() quota.Mode { return l.For(quota.Subject{User: "alice"})[0].Mode }
		time.Sleep(time.Hour - 1)
		if got := mode(); got != quota.Observe {
			t.Errorf("a nanosecond before its end the mode is %v, want observe", got)
		}
		time.Sleep(time.Nanosecond)
		if got := mode(); got != quota.Enforce {
			t.Errorf("at its end the mode is %v, want enforce", got)
		}
	})
}

// Unset is no limit and 0 is one, in every scope and every unit.
func TestUnsetIsNoLimitAndZeroIsOne(t *testing.T) {
	t.Parallel()
	for _, scope := range []quota.Scope{quota.User, quota.Team, quota.Tenant, quota.Session, quota.Global} {
		for u := range quota.Units {
			unit, window := quota.Unit(u), quota.Day
			if unit == quota.ConcurrentTurns {
				window = quota.Window{}
			}
			l := mustLimits(t, quota.LimitsConfig{Limits: []quota.Limit{{Scope: scope, Window: window, Max: quota.Max{unit: 0}}}})
			max := l.For(quota.Subject{})[0].Max
			for other := range quota.Units {
				amount, limited := max[quota.Unit(other)]
				if limited != (other == u) || amount != 0 {
					t.Errorf("%v limit of 0 %v: %v is %d, limited: %v", scope, unit, quota.Unit(other), amount, limited)
				}
			}
		}
	}
	if got := mustLimits(t, quota.LimitsConfig{}).For(quota.Subject{User: "u"}); len(got) != 0 {
		t.Errorf("without limits there are %v", got)
	}
}

func TestOverlayChangesNeitherList(t *testing.T) {
	t.Parallel()
	day := quota.Limit{Name: "base", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: 1}}
	month := quota.Limit{Name: "month", Scope: quota.User, Window: quota.Month, Max: quota.Max{quota.Calls: 1}}
	other := quota.Limit{Name: "over", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Calls: 2}}
	week := quota.Limit{Name: "week", Scope: quota.User, Window: quota.Week, Max: quota.Max{quota.Calls: 3}}
	base, over := make([]quota.Limit, 2, 9), []quota.Limit{other, week}
	base[0], base[1] = day, month
	var names []string
	for _, l := range quota.Overlay(base, over) {
		names = append(names, l.Name)
	}
	if want := []string{"over", "month", "week"}; !slices.Equal(names, want) {
		t.Errorf("the overlay is %q, want %q", names, want)
	}
	if base[0].Name != "base" || base[:3][2].Name != "" || over[0].Name != "over" {
		t.Error("a list has changed")
	}
}
