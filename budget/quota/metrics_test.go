package quota_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/internal/promtest"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

func newMetrics(t testing.TB, cfg quota.MetricsConfig) (*quota.Metrics, *prometheus.Registry) {
	t.Helper()
	m, err := quota.NewMetrics(cfg)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(m); err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// series are the values of all series, by name and labels.
func series(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	return promtest.Series(t, reg, "headgate_quota_")
}

func wantSeries(t *testing.T, reg *prometheus.Registry, want map[string]float64) {
	t.Helper()
	got := series(t, reg)
	for at, v := range want {
		if have, ok := got[at]; !ok || math.Abs(have-v) > 1e-12 {
			t.Errorf("%s is %v (there: %v), want %v", at, have, ok, v)
		}
	}
	if t.Failed() {
		t.Logf("there are:\n%s", strings.Join(slices.Sorted(maps.Keys(got)), "\n"))
	}
}

// Identities, model names from requests, and errors: however many there are, the
// series are the same.
func TestSeriesDoNotGrowWithUsers(t *testing.T) {
	t.Parallel()
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	store := &store{Ledger: memory, calls: map[string]int{}}
	bus := quota.NewBus(quota.BusConfig{Logger: silent})
	m, reg := newMetrics(t, quota.MetricsConfig{Bus: bus, Memory: memory, Catalog: catalog(t)})
	w := newWorld(t, quota.LimitsConfig{
		Plans: []quota.Plan{{Name: "pro", Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000, quota.Turns: 1}},
		}}},
		Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}},
			{Scope: quota.Session, Window: quota.Hour, Max: quota.Max{quota.Credits: 150}, Mode: quota.Observe},
		},
	}, func(c *quota.Config) { c.Hooks, c.Bus, c.Ledger = m.Hooks(), bus, store })

	const models = 200
	one := func(i int) {
		if i%50 == 49 { // an error with a text of its own
			store.set(func(string, string) error { return fmt.Errorf("%w: %d", errStoreDown, i) })
			defer store.set(nil)
		}
		user := fmt.Sprintf("user-%d", i)
		ctx := quota.WithSubject(context.Background(), quota.Subject{
			Tenant: fmt.Sprintf("tenant-%d", i%7), User: user, Session: "s-" + user, Plan: []string{"", "pro", "made-up-" + user}[i%3],
		})
		turn, err := w.Admit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer turn.End()
		for _, n := range []int64{60, 60} {
			r, err := w.Budget().Reserve(turn.Context(), budget.Call{
				ID: budget.NewID(), Model: fmt.Sprintf("model-%d", i%models), Agent: "agent-" + user, Usage: tokens(n),
			})
			if err == nil {
				err = r.Settle(ctx, usage.Usage{Output: n})
			}
			_ = err // some are denied
		}
	}
	for i := range models {
		one(i)
	}
	after := func() map[string]float64 { return series(t, reg) }
	few := after()
	for i := models; i < 5000; i++ {
		one(i)
	}
	many := after()
	if len(few) != len(many) {
		t.Errorf("there are %d series after %d users and %d after 5,000", len(few), models, len(many))
		for at := range many {
			if _, ok := few[at]; !ok {
				t.Errorf("%s has come later", at)
			}
		}
	}
	for at := range many {
		if strings.Contains(at, "user-") || strings.Contains(at, "tenant-") || strings.Contains(at, "made-up") ||
			strings.Contains(at, "refused") || strings.Contains(at, "model-100") {
			t.Errorf("a label shows too much: %s", at)
		}
	}
	if n := many["decisions_total{outcome=denied,plan=pro,scope=user,stage=mid_turn}"]; n != 0 {
		t.Errorf("a pro user was denied %v calls: the test does not do what it says", n)
	}
	for _, at := range []string{
		"decisions_total{outcome=denied,plan=none,scope=user,stage=mid_turn}",
		"decisions_total{outcome=observed,plan=none,scope=session,stage=mid_turn}",
		"charged_tokens_total{basis=reported,model=other,tool=none}",
		"denials_total{limit=user/day,mode=enforce,reason=unavailable,stage=admission,unit=turns}",
	} {
		if many[at] == 0 {
			t.Errorf("%s is 0", at)
		}
	}
}

func TestMetricsCountWhatHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, quota.MetricsConfig{ConstLabels: prometheus.Labels{"app": "x"}})
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "daily", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000, quota.Money: 1e9}, Thresholds: []int{50, 80}},
			{Name: "rate", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Tokens: 600}, MaxWait: wait(30 * time.Second)},
		}}, func(c *quota.Config) { c.Hooks = m.Hooks() })
		turn := w.admit(as("alice"))
		defer turn.End()
		ctx := turn.Context()
		r := w.reserve(ctx, usage.Usage{Output: 600, Flags: usage.Estimated})
		w.settle(r, usage.Usage{Output: 600})
		r = w.reserve(ctx, usage.Usage{Input: 100, Output: 100, Flags: usage.Estimated}) // waits 20 s
		w.settle(r, usage.Usage{Input: 100, Output: 40})
		for _, output := range []int64{50, 30} { // corrections
			if err := r.(budget.Adjuster).Adjust(ctx, usage.Usage{Input: 100, Output: output}); err != nil {
				t.Fatal(err)
			}
		}
		w.denied(ctx, tokens(500)) // 250 are left
		if err := w.reserve(ctx, tokens(10)).Release(ctx); err != nil {
			t.Fatal(err)
		}
		tool, err := w.Meter(ctx, quota.Cost{Tool: "search", Money: 5_000_000})
		if err != nil {
			t.Fatal(err)
		}
		if err := tool.Settle(ctx, quota.Cost{Money: 2_000_000}); err != nil {
			t.Fatal(err)
		}
		wantSeries(t, reg, map[string]float64{
			"decisions_total{app=x,outcome=allowed,plan=none,scope=none,stage=admission}":               1,
			"decisions_total{app=x,outcome=allowed,plan=none,scope=none,stage=mid_turn}":                3,
			"decisions_total{app=x,outcome=waited,plan=none,scope=user,stage=mid_turn}":                 1,
			"decisions_total{app=x,outcome=denied,plan=none,scope=user,stage=mid_turn}":                 1,
			"denials_total{app=x,limit=daily,mode=enforce,reason=exhausted,stage=mid_turn,unit=tokens}": 1,
			"wait_seconds_count{app=x,plan=none}":                                                       4,
			"calls_total{app=x,kind=call,outcome=charged}":                                              2,
			"calls_total{app=x,kind=call,outcome=released}":                                             1,
			"calls_total{app=x,kind=tool,outcome=charged}":                                              1,
			"charged_tokens_total{app=x,basis=reported,model=m-1,tool=none}":                            750,
			"charged_dollars_total{app=x,model=m-1,tool=none}":                                          (600*4 + 100 + 50*4) / 1e6,
			"charged_dollars_total{app=x,model=none,tool=search}":                                       2,
			"estimate_ratio_count{app=x,model=m-1}":                                                     2,
			"thresholds_total{app=x,limit=daily,percent=50,scope=user,unit=tokens}":                     1,
			"outage{app=x}":                          0,
			"fail_open_total{app=x,stage=admission}": 0,
		})
	})
}

func TestFailingOpenShowsWhileItGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, quota.MetricsConfig{})
		store := newStore(t)
		w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}, Failure: quota.Open},
		}}, func(c *quota.Config) { c.Hooks, c.Ledger = m.Hooks(), store })
		store.set(down)
		w.call(as("alice"), tokens(10))
		time.Sleep(3 * time.Second)
		got := series(t, reg)
		if got["outage{}"] != 1 || got["outage_seconds_total{}"] != 3 || got["paused{}"] != 0 || got["told_late_total{}"] != 0 || got["outages_total{}"] != 1 || got["fail_open_total{stage=mid_turn}"] != 1 || got["late_operations{}"] == 0 {
			t.Errorf("during the outage: %v", got)
		}
		late := got["late_operations{}"]
		for range 5 {
			w.call(as("alice"), tokens(10))
		}
		if got := series(t, reg); got["paused{}"] != 1 || got["late_operations{}"] <= late {
			t.Errorf("after failures in a row: %v", got)
		}
		late = series(t, reg)["late_operations{}"]
		store.set(nil)
		time.Sleep(time.Minute)
		w.call(as("alice"), tokens(10))
		time.Sleep(time.Minute)
		got = series(t, reg)
		if lasted := got["outage_seconds_total{}"]; lasted <= 3 || lasted > 63 {
			t.Errorf("the outage lasted %v s", lasted)
		}
		if got["told_late_total{}"] != late || got["paused{}"] != 0 || got["lost_operations_total{}"] != 0 {
			t.Errorf("%v operations have waited, and there is %v", late, got)
		}
		if got["outage{}"] != 0 || got["outages_total{}"] != 1 || got["fail_open_total{stage=mid_turn}"] != 6 || got["late_operations{}"] != 0 {
			t.Errorf("after the outage: %v", got)
		}
	})
}

func TestMetricsShowTheStateOfWhatIsAround(t *testing.T) {
	t.Parallel()
	memory, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	bus := quota.NewBus(quota.BusConfig{Logger: silent, Listeners: []quota.Listener{func(quota.Event) { panic("no") }}})
	_, reg := newMetrics(t, quota.MetricsConfig{Bus: bus, Memory: memory, Catalog: catalog(t)})
	_, none := newMetrics(t, quota.MetricsConfig{})
	w := newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{
		{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}},
	}}, func(c *quota.Config) { c.Ledger, c.Bus = memory, bus })
	w.call(as("alice"), tokens(10))
	open := w.reserve(as("bob"), tokens(10))
	defer w.settle(open, tokens(10))
	if err := bus.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSeries(t, reg, map[string]float64{
		"ledger_subjects{}": 2, "ledger_reservations{state=open}": 1, "ledger_reservations{state=ended}": 1,
		"events_total{result=delivered}": 1, "events_total{result=dropped}": 0, "listener_panics_total{}": 1, "events_queued{}": 0,
	})
	if age := series(t, reg)["catalog_age_seconds{}"]; age < 24*3600 {
		t.Errorf("prices of January are %v seconds old", age)
	}
	for at := range series(t, none) {
		for _, name := range []string{"ledger_", "events_", "catalog_"} {
			if strings.HasPrefix(at, name) {
				t.Errorf("%s is there, though nobody said what to look at", at)
			}
		}
	}
}

func TestModelsBeyondAClosedSetAreOther(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t, quota.MetricsConfig{Models: []string{"m-1"}})
	hooks := m.Hooks()
	for _, model := range []string{"m-1", "m-2", "", "m-1\xff"} {
		hooks.Booked(quota.Booking{Model: model, Charged: quota.Amounts{quota.Tokens: 1}})
	}
	wantSeries(t, reg, map[string]float64{
		"charged_tokens_total{basis=reported,model=m-1,tool=none}":   1,
		"charged_tokens_total{basis=reported,model=other,tool=none}": 3,
	})
}

// What a resolver of the program's own is asked about has a plan as well, and only the
// metrics can say which names there are.
func TestPlansOfACallersOwnLimitsAreToldApart(t *testing.T) {
	t.Parallel()
	own := quota.LimitResolverFunc(func(_ context.Context, s quota.Subject) ([]quota.Limit, error) {
		if s.Plan == "broken" {
			return nil, errStoreDown
		}
		return []quota.Limit{{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 10}, Mode: quota.Enforce}}, nil
	})
	for _, c := range []struct {
		name                 string
		plans                []string
		pro, broken, unnamed string
	}{
		{"a closed set", []string{"pro"}, "pro", "other", "none"},
		{"an empty set", []string{}, "other", "other", "none"},
		{"those that come first", nil, "pro", "broken", "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, reg := newMetrics(t, quota.MetricsConfig{Plans: c.plans})
			w := newWorld(t, quota.LimitsConfig{}, func(cfg *quota.Config) { cfg.Hooks, cfg.Limits = m.Hooks(), own })
			ask := func(plan string) {
				ctx := quota.WithSubject(t.Context(), quota.Subject{Tenant: "acme", User: "user-" + plan, Plan: plan})
				if r, err := w.Budget().Reserve(ctx, budget.Call{ID: budget.NewID(), Model: "m-1", Usage: tokens(5)}); err == nil {
					w.settle(r, tokens(5))
				}
			}
			ask("pro")
			ask("broken")
			ask("")
			at := func(outcome, plan string) string {
				return fmt.Sprintf("decisions_total{outcome=%s,plan=%s,scope=none,stage=mid_turn}", outcome, plan)
			}
			want := map[string]float64{at("allowed", c.pro): 1, at("denied", c.broken): 1, at("allowed", c.unnamed): 1}
			wantSeries(t, reg, want)
		})
	}
}

func TestLabelsStayBoundedWhoeverComesAtOnce(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t, quota.MetricsConfig{})
	hooks := m.Hooks()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("n-%d", (i*7+g)%150)
				hooks.Booked(quota.Booking{Model: name, Charged: quota.Amounts{quota.Tokens: 1}})
				hooks.Decided(quota.Decision{Outcome: quota.OutcomeDenied, Limit: name, Plan: name})
			}
		})
	}
	all.Wait()
	hooks.Booked(quota.Booking{Model: strings.Repeat("x", 5000)})
	hooks.Booked(quota.Booking{Model: "\xff"})
	values := map[string]map[string]bool{"model": {}, "plan": {}, "limit": {}}
	sum := 0.0
	for at, v := range series(t, reg) {
		name, labels, _ := strings.Cut(strings.TrimSuffix(at, "}"), "{")
		if name == "charged_tokens_total" {
			sum += v
		}
		for pair := range strings.SplitSeq(labels, ",") {
			if k, v, _ := strings.Cut(pair, "="); values[k] != nil {
				values[k][v] = true
			}
		}
	}
	for label, seen := range values {
		if len(seen) != quota.MaxMetricLabels+1 || !seen["other"] {
			t.Errorf("label %s has %d values, want %d and other", label, len(seen), quota.MaxMetricLabels)
		}
	}
	if sum != 8*200 {
		t.Errorf("%v tokens were counted, want 1600: some got lost with their label", sum)
	}
}

func TestMetricsConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  quota.MetricsConfig
		want string
	}{
		{quota.MetricsConfig{ConstLabels: prometheus.Labels{"a b": "c"}}, `ConstLabels has the name "a b"`},
		{quota.MetricsConfig{ConstLabels: prometheus.Labels{"__a": "c"}}, `ConstLabels has the name "__a"`},
		{quota.MetricsConfig{ConstLabels: prometheus.Labels{"stage": "c"}}, `ConstLabels has the name "stage"`},
		{quota.MetricsConfig{ConstLabels: prometheus.Labels{"a": "\xff"}}, `ConstLabels["a"] is "\xff"`},
		{quota.MetricsConfig{Models: []string{"m", ""}}, `Models[1] is ""`},
		{quota.MetricsConfig{Models: make([]string, 65)}, "Models has 65 names, above 64"},
		{quota.MetricsConfig{Plans: []string{"pro", "\xff"}}, `Plans[1] is "\xff"`},
		{quota.MetricsConfig{Plans: make([]string, 65)}, "Plans has 65 names, above 64"},
	} {
		if _, err := quota.NewMetrics(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %s", c.cfg, err, c.want)
		}
	}
}

func BenchmarkMetrics(b *testing.B) {
	m, _ := newMetrics(b, quota.MetricsConfig{})
	hooks := m.Hooks()
	b.ReportAllocs()
	for b.Loop() {
		hooks.Decided(quota.Decision{Stage: quota.MidTurn, Outcome: quota.OutcomeAllowed, Plan: "pro"})
		hooks.Booked(quota.Booking{
			Model: "m-1", Estimated: usage.Usage{Output: 10}, Actual: usage.Usage{Output: 10}, Charged: quota.Amounts{quota.Tokens: 10},
		})
	}
}
