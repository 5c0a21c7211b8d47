package quota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/usage"
)

// listening makes a world whose events are heard.
func listening(t *testing.T, limits quota.LimitsConfig, change ...func(*quota.Config)) (*world, func() []quota.Event) {
	t.Helper()
	var h heard
	bus := quota.NewBus(quota.BusConfig{Listeners: []quota.Listener{h.listen}, Logger: silent})
	w := newWorld(t, limits, append(change, func(c *quota.Config) { c.Bus = bus })...)
	return w, func() []quota.Event {
		t.Helper()
		if err := bus.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h.all()
	}
}

// only are the events of one type.
func only[E quota.Event](events []quota.Event) (found []E) {
	for _, e := range events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

func TestAThresholdIsToldOncePerSubjectLimitAndWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, events := listening(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}},
			{Name: "ours", Scope: quota.Team, Window: quota.Day, Max: quota.Max{quota.Tokens: 2000}},
		}})
		use := func(user string, n int64) { w.call(as(user), tokens(n)) }
		told := func() string {
			var s []string
			for _, e := range only[quota.ThresholdReached](events()) {
				s = append(s, fmt.Sprintf("%s %s %d%% %d/%d", e.Subject.User, e.Limit, e.Percent, e.Spent, e.Max))
			}
			return strings.Join(s, "\n")
		}
		use("alice", 790)
		use("alice", 20) // 81 %
		use("alice", 20)
		use("bob", 800)  // 80 %, and 1630 of 2000
		use("alice", 30) // nothing new
		use("bob", 200)  // 100 %
		use("carol", 140)
		want := strings.Join([]string{
			"alice mine 80% 810/1000",
			"bob mine 80% 800/1000",
			"bob ours 80% 1630/2000",
			"bob mine 100% 1000/1000",
			"carol ours 100% 2000/2000",
		}, "\n")
		if got := told(); got != want {
			t.Errorf("told:\n%s\nwant:\n%s", got, want)
		}
		time.Sleep(24 * time.Hour) // another window
		use("alice", 900)
		want += "\nalice mine 80% 900/1000"
		if got := told(); got != want {
			t.Errorf("on the next day, told:\n%s\nwant:\n%s", got, want)
		}
		for _, e := range only[quota.ThresholdReached](events()) {
			if e.Limit == "ours" && (e.Counter.Key != "tenant=acme/team=support" || e.Scope != quota.Team) {
				t.Errorf("the team's threshold is of %q, scope %q", e.Counter.Key, e.Scope)
			}
			if !e.Span.Contains(e.At) {
				t.Errorf("it was told at %v, outside of its window %v", e.At, e.Span)
			}
		}
	})
}

func TestAThresholdNamesTheTurnAndTheCallThatHaveReachedIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, events := listening(t, limitsOf(
			quota.Limit{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100, quota.Turns: 1}},
			quota.Limit{Name: "all", Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Turns: 1}},
		))
		turn := w.admit(as("alice"))
		r, err := w.Budget().Reserve(turn.Context(), budget.Call{ID: "call-1", Model: "m-1", Usage: tokens(90)})
		if err != nil {
			t.Fatal(err)
		}
		w.settle(r, tokens(90))
		turn.End()
		var got []string
		for _, e := range only[quota.ThresholdReached](events()) {
			if e.Turn != turn.ID() {
				t.Errorf("%s %v: the turn is %q, want %q", e.Limit, e.Counter.Unit, e.Turn, turn.ID())
			}
			got = append(got, fmt.Sprintf("%s %v %d%% by %q", e.Limit, e.Counter.Unit, e.Percent, e.Call))
		}
		slices.Sort(got)
		if want := []string{`all turns 100% by ""`, `mine tokens 80% by "call-1"`, `mine turns 100% by ""`}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

func TestAThresholdOfATenantsDayNamesItsLimit(t *testing.T) {
	t.Parallel()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, events := listening(t, limitsOf(
			quota.Limit{Name: "mine", Scope: quota.User, Window: quota.Day.InTenantZone(), Max: quota.Max{quota.Tokens: 100}},
		), func(c *quota.Config) { c.Zone = func(quota.Subject) *time.Location { return tokyo } })
		w.call(as("alice"), tokens(100))
		told := only[quota.ThresholdReached](events())
		if len(told) != 1 || told[0].Limit != "mine" || told[0].Scope != quota.User || told[0].Counter.Window != "day@Asia/Tokyo" {
			t.Errorf("told %+v", told)
		}
	})
}

func TestTurnsThatAreCountedAtTheirEndReachThresholdsToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		everybodys := quota.Limit{Scope: quota.Global, Window: quota.Day, Max: quota.Max{quota.Turns: 1000}}
		mine := quota.Limit{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 2}}
		atOnce := quota.Limit{Scope: quota.User, Max: quota.Max{quota.ConcurrentTurns: 2}}
		for _, limits := range [][]quota.Limit{{mine}, {mine, everybodys}, {mine, atOnce, everybodys}} {
			w, events := listening(t, limitsOf(limits...))
			w.admit(as("alice")).End()
			w.admit(as("alice")).End()
			var told []string
			for _, e := range only[quota.ThresholdReached](events()) {
				told = append(told, fmt.Sprintf("%s %s %d%% %d/%d", e.Subject.User, e.Limit, e.Percent, e.Spent, e.Max))
			}
			if got, want := strings.Join(told, "\n"), "alice mine 100% 2/2"; got != want {
				t.Errorf("with %d limits, told:\n%s\nwant:\n%s", len(limits), got, want)
			}
		}
	})
}

func TestATurnTellsWhereItCountsAndOnlyWhereAnythingDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := func(name string, scope quota.Scope, mode quota.Mode) quota.Limit {
			return quota.Limit{Name: name, Scope: scope, Window: quota.Day, Max: quota.Max{quota.Turns: 1, quota.Tokens: 100}, Mode: mode}
		}
		w, events := listening(t, quota.LimitsConfig{
			Limits: []quota.Limit{day("all", quota.Global, quota.Observe), day("mine", quota.User, quota.Enforce)},
			Plans:  []quota.Plan{{Name: "off", Mode: quota.Off}},
		})
		turn := w.admit(as("alice"))
		again := w.admit(turn.Context()) // the same one
		again.End()
		turn.End()
		w.refused(as("alice"))
		var got []string
		for _, e := range only[quota.TurnBegan](events()) {
			if e.Turn != turn.ID() || e.Subject.User != "alice" {
				t.Errorf("it is told of %+v", e.Occasion)
			}
			for _, c := range e.Counted {
				got = append(got, fmt.Sprintf("%s %s %v %d observed=%v %v", c.Limit, c.Counter.Key, c.Counter.Unit, c.Amount, c.Observed, c.Span.Contains(e.At)))
			}
		}
		want := []string{"mine tenant=acme/user=alice turns 1 observed=false true", "all global turns 1 observed=true true"}
		if !slices.Equal(got, want) {
			t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		w, events = listening(t, limitsOf(quota.Limit{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 100}}))
		w.admit(as("bob")).End()
		if all := events(); len(all) != 0 {
			t.Errorf("where no limit counts turns, told: %v", all)
		}
	})
}

func TestASettledCallTellsWhatItUsedAndWhereItCounted(t *testing.T) {
	t.Parallel()
	limits := quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "mine", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1e6, quota.Money: 1e6}},
		{Name: "rate", Scope: quota.User, Window: quota.Rolling(time.Minute), Max: quota.Max{quota.Calls: 100}},
		{Name: "watched", Scope: quota.Tenant, Window: quota.Month, Max: quota.Max{quota.Credits: 1e6}, Mode: quota.Observe},
		{Name: "projects", Scope: "project", Window: quota.Day, Max: quota.Max{quota.Tokens: 5}, Missing: quota.Skip},
		{Name: "turns", Scope: quota.User, Window: quota.Hour, Max: quota.Max{quota.Turns: 5}},
	}}
	h, err := quota.NewHierarchy(append(quota.DefaultScopes(), quota.ScopeSpec{Scope: "project"})...)
	if err != nil {
		t.Fatal(err)
	}
	limits.Hierarchy = h
	estimate := usage.Usage{Input: 100, Output: 50, Flags: usage.Estimated}
	reported := usage.Usage{Input: 100, Output: 20}

	for _, c := range []struct {
		name    string
		end     func(context.Context, *world) error
		outcome quota.CallOutcome
		counted string
		money   int64
	}{
		{"reported", func(ctx context.Context, w *world) error {
			return w.reserve(ctx, estimate).Settle(ctx, reported)
		}, quota.CallCharged, "mine user tokens 120, mine user money 180, rate user calls 1, watched tenant credits 180 observed", 180},
		{"not reported", func(ctx context.Context, w *world) error {
			return w.reserve(ctx, estimate).Settle(ctx, usage.Usage{})
		}, quota.CallEstimated, "mine user tokens 150, mine user money 300, rate user calls 1, watched tenant credits 300 observed", 300},
		{"released", func(ctx context.Context, w *world) error {
			return w.reserve(ctx, estimate).Release(ctx)
		}, quota.CallReleased, "", 0},
		{"paid tool", func(ctx context.Context, w *world) error {
			tool, err := w.Meter(ctx, quota.Cost{Tool: "search", Money: 5000})
			if err != nil {
				return err
			}
			return tool.Settle(ctx, quota.Cost{Tool: "search", Money: 4000})
		}, quota.CallCharged, "mine user money 4000", 4000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, events := listening(t, limits)
			turn := w.admit(as("alice"))
			defer turn.End()
			if err := c.end(turn.Context(), w); err != nil {
				t.Fatal(err)
			}
			calls := only[quota.CallSettled](events())
			if len(calls) != 1 {
				t.Fatalf("%d calls were told, want 1", len(calls))
			}
			got := calls[0]
			if got.Outcome != c.outcome || got.Charged[quota.Money] != c.money || got.Corrects {
				t.Errorf("it is %+v, want %s for %d", got, c.outcome, c.money)
			}
			var counted []string
			for _, n := range got.Counted {
				s := fmt.Sprintf("%s %s %v %d", n.Limit, n.Scope, n.Counter.Unit, n.Amount)
				if n.Observed {
					s += " observed"
				}
				counted = append(counted, s)
				if rolling := n.Limit == "rate"; rolling != (n.Span == quota.Span{}) || !n.Span.Contains(got.At) {
					t.Errorf("%s has the window %v", n.Limit, n.Span)
				}
			}
			if s := strings.Join(counted, ", "); s != c.counted {
				t.Errorf("counted:\n%s\nwant:\n%s", s, c.counted)
			}
			if got.Turn != turn.ID() || got.Call == "" || got.Subject.User != "alice" || got.Subject.Tenant != "acme" {
				t.Errorf("it is about %+v, want alice's turn %s", got.Occasion, turn.ID())
			}
			if tool := c.name == "paid tool"; tool != got.Tool || !tool && (got.Model != "m-1" || got.Estimate != estimate) {
				t.Errorf("it is a call of %q with the estimate %v, tool %v", got.Model, got.Estimate, got.Tool)
			}
		})
	}
}

// Whoever asks later what a charge rests on finds the weights and the price of the time of
// the reservation, whatever has come in their place.
func TestASettledCallNamesTheWeightsAndThePriceThatChargedIt(t *testing.T) {
	t.Parallel()
	var prices *usage.Catalog
	w, events := listening(t, limitsOf(
		daily("credits", quota.User, quota.Credits, 1e6), daily("money", quota.Team, quota.Money, 1e6),
	), func(c *quota.Config) { prices = c.Catalog })
	ctx := as("alice")
	first := w.reserve(ctx, tokens(10))
	released := w.reserve(ctx, tokens(10))
	newer := usage.PriceList{AsOf: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), Models: []usage.Model{{Name: "m-1", Prices: []usage.Price{
		{Rates: usage.Rates{Input: usage.PerMillion(7e6), Output: usage.PerMillion(7e6)}},
	}}}}
	twice := usage.Credits{Version: "twice", Input: usage.Thousandths(2000), Output: usage.Thousandths(8000)}
	if err := errors.Join(prices.Replace(newer), w.ReloadCredits(twice)); err != nil {
		t.Fatal(err)
	}
	w.settle(first, tokens(10))
	if err := errors.Join(first.(budget.Adjuster).Adjust(ctx, usage.Usage{Output: 12}), released.Release(ctx)); err != nil {
		t.Fatal(err)
	}
	w.call(ctx, tokens(10))
	tool, err := w.Meter(ctx, quota.Cost{Tool: "search", Money: 5, Credits: 5})
	if err == nil {
		err = tool.Settle(ctx, quota.Cost{Tool: "search", Money: 5, Credits: 5})
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range only[quota.CallSettled](events()) {
		got = append(got, fmt.Sprintf("%s %q %q %s", e.Outcome, e.Weights, e.Price.Model, e.Price.AsOf.Format(time.DateOnly)))
	}
	old := fmt.Sprintf(`charged %q "m-1" 2026-01-01`, fourToOne.Version)
	want := []string{old, old, `released "" "" 0001-01-01`, `charged "twice" "m-1" 2026-02-01`, `charged "" "" 0001-01-01`}
	if !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What an event says was charged is what the ledger has, counter by counter.
func TestEventsAddUpToTheLedger(t *testing.T) {
	t.Parallel()
	w, events := listening(t, quota.LimitsConfig{Limits: []quota.Limit{
		{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 3000, quota.Money: 1e6, quota.Calls: 100}},
		{Scope: quota.Team, Window: quota.Month, Max: quota.Max{quota.Tokens: 5000, quota.Credits: 1e6}},
		{Scope: quota.Global, Window: quota.Hour, Max: quota.Max{quota.Tokens: 100_000}},
	}})
	for i := range 60 {
		ctx := as([]string{"alice", "bob", "carol"}[i%3])
		r, err := w.try(ctx, tokens(int64(100+i)))
		if err != nil {
			continue // some are denied: that is part of it
		}
		if i%5 == 0 {
			err = r.Release(ctx)
		} else {
			err = r.Settle(ctx, usage.Usage{Input: int64(i), Output: int64(3 * i)})
		}
		if err == nil && i%3 == 0 { // its provider reports something else afterwards
			err = r.(budget.Adjuster).Adjust(ctx, usage.Usage{Input: int64(2 * i), Output: int64(i)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type window struct {
		c     quota.Counter
		start time.Time
	}
	sums := map[window]int64{}
	for _, e := range only[quota.CallSettled](events()) {
		for _, c := range e.Counted {
			sums[window{c.Counter, c.Span.Start}] += c.Amount - e.Before[c.Counter.Unit]
		}
	}
	if len(sums) < 3*3+2+1 {
		t.Fatalf("%d counters were told: %v", len(sums), sums)
	}
	for at, sum := range sums {
		tree, _, _ := strings.Cut(at.c.Key, "/")
		window, err := quota.ParseWindow(at.c.Window)
		if err != nil {
			t.Fatal(err)
		}
		status, err := w.ledger.Status(t.Context(), tree, quota.Entry{Counter: at.c, Kind: quota.Check, Limit: -1, Spans: window.Spans(at.start)})
		if err != nil {
			t.Fatal(err)
		}
		if got := status[0].Committed; got != sum {
			t.Errorf("%v: events add up to %d, the ledger has %d", at.c, sum, got)
		}
	}
}

// An observed rate that is used up takes nothing more, and one that the ledger could not
// be asked about nothing at all. What was not charged must not be told.
func TestEventsNameOnlyCountersThatWereCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		w, events := listening(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Name: "watched", Scope: quota.User, Window: quota.Rolling(time.Hour), Max: quota.Max{quota.Tokens: 100, quota.Turns: 1}, Mode: quota.Observe, Failure: quota.Open},
			{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000, quota.Turns: 10}, Failure: quota.Open},
		}}, func(c *quota.Config) { c.Ledger = store })
		one := func() {
			turn := w.admit(as("alice"))
			defer turn.End()
			r := w.reserve(turn.Context(), tokens(60))
			w.settle(r, tokens(50))
			if err := r.(budget.Adjuster).Adjust(turn.Context(), tokens(55)); err != nil {
				t.Fatal(err)
			}
		}
		told := func() string {
			var all []string
			for _, e := range events() {
				kind, counted := "turn", []quota.Counted(nil)
				switch e := e.(type) {
				case quota.TurnBegan:
					counted = e.Counted
				case quota.CallSettled:
					if kind, counted = "call", e.Counted; e.Corrects {
						kind = "correction"
					}
				default:
					continue
				}
				for _, c := range counted {
					kind += fmt.Sprintf(" %s %d", c.Limit, c.Amount)
				}
				all = append(all, kind)
			}
			return strings.Join(all, "; ")
		}
		one()
		want := "turn watched 1 day 1; call watched 50 day 50; correction watched 55 day 55"
		if got := told(); got != want {
			t.Errorf("with room, told:\n%s\nwant:\n%s", got, want)
		}
		one()
		want += "; turn day 1; call day 50; correction day 55"
		if got := told(); got != want {
			t.Errorf("without room, told:\n%s\nwant:\n%s", got, want)
		}
		time.Sleep(2 * time.Hour)
		store.set(down)
		one()
		want += "; turn day 1; call day 50; correction day 55"
		if got := told(); got != want {
			t.Errorf("without the ledger, told:\n%s\nwant:\n%s", got, want)
		}
		store.set(nil)
		time.Sleep(time.Minute) // the ledger is told late
		one()
		want += "; turn watched 1 day 1; call watched 50 day 50; correction watched 55 day 55"
		if got := told(); got != want {
			t.Errorf("with room again, told:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestDenialsAndOveragesAreTold(t *testing.T) {
	t.Parallel()
	w, events := listening(t, quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "hard", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}},
		{Name: "soft", Scope: quota.Team, Window: quota.Day, Max: quota.Max{quota.Tokens: 500}, Soft: true},
		{Name: "watched", Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Tokens: 400}, Mode: quota.Observe},
	}})
	ctx := as("alice")
	w.call(ctx, tokens(600))
	if _, err := w.try(ctx, tokens(600)); err == nil {
		t.Fatal("a call above the limit passed")
	}
	over := only[quota.Overage](events())
	if len(over) != 1 || over[0].Limit != "soft" || over[0].Max != 500 || over[0].Requested != 600 || over[0].Used != 0 || over[0].ResetsAt.IsZero() {
		t.Errorf("overages are %+v, want one of soft, 600 on top of 0", over)
	}
	var told []string
	for _, e := range only[quota.Denied](events()) {
		told = append(told, fmt.Sprintf("%s observed=%v by %s", e.Denial.Limit, e.Denial.Observed, e.Subject.User))
	}
	if got, want := strings.Join(told, ", "), "watched observed=true by alice, hard observed=false by alice"; got != want {
		t.Errorf("denials are %s, want %s", got, want)
	}
}

// Whoever adds up overages gets what was taken above the limit: a turn asks whether there
// is room, and takes nothing but a turn.
func TestOveragesAddUpToWhatWasTaken(t *testing.T) {
	t.Parallel()
	for _, room := range []quota.Max{nil, {quota.Tokens: 600}} {
		w, events := listening(t, limitsOf(
			quota.Limit{Name: "soft", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 500, quota.Turns: 1}, Soft: true},
		), func(c *quota.Config) { c.Turn.Room = room })
		for range 3 {
			turn := w.admit(as("alice"))
			w.call(turn.Context(), tokens(500))
			turn.End()
		}
		var told []string
		for _, o := range only[quota.Overage](events()) {
			told = append(told, fmt.Sprintf("%v: %d on %d of %d", o.Unit, o.Requested, o.Used, o.Max))
		}
		want := "turns: 1 on 1 of 1; tokens: 500 on 500 of 500; turns: 1 on 2 of 1; tokens: 500 on 1000 of 500"
		if got := strings.Join(told, "; "); got != want {
			t.Errorf("with room for %v asked for, overages are\n%s\nwant\n%s", room, got, want)
		}
	}
}

func TestACallThatHasUsedMoreThanThereWasIsToldAsAnOverrun(t *testing.T) {
	t.Parallel()
	w, events := listening(t, quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "day", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000, quota.Calls: 1}},
		{Name: "roomy", Scope: quota.Tenant, Window: quota.Day, Max: quota.Max{quota.Tokens: 5000}},
		{Name: "watched", Scope: quota.Team, Window: quota.Day, Max: quota.Max{quota.Tokens: 10}, Mode: quota.Observe},
	}})
	r := w.reserve(as("alice"), tokens(900))
	w.settle(r, tokens(1200))
	if err := r.(budget.Adjuster).Adjust(as("alice"), tokens(1250)); err != nil {
		t.Fatal(err)
	}
	if err := r.(budget.Adjuster).Adjust(as("alice"), tokens(1240)); err != nil { // less is none
		t.Fatal(err)
	}
	var told []string
	for _, o := range only[quota.Overage](events()) {
		told = append(told, fmt.Sprintf("%s %v: %d on %d of %d, overrun=%v, resets=%v", o.Limit, o.Unit, o.Requested, o.Used, o.Max, o.Overrun, !o.ResetsAt.IsZero()))
	}
	want := "day tokens: 300 on 900 of 1000, overrun=true, resets=true; day tokens: 50 on 1200 of 1000, overrun=true, resets=true"
	if got := strings.Join(told, "; "); got != want {
		t.Errorf("overruns are %s, want %s", got, want)
	}
}

func TestAnOutageIsAnEventAtItsBeginningAndItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		w, events := listening(t, quota.LimitsConfig{Limits: []quota.Limit{
			{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 1000}},
		}}, func(c *quota.Config) { c.Ledger = store })
		store.set(down)
		for range 3 {
			if _, err := w.try(as("alice"), tokens(1)); err == nil {
				t.Fatal("a call passed without a ledger")
			}
			time.Sleep(time.Second)
		}
		store.set(nil)
		time.Sleep(10 * time.Second)
		w.call(as("alice"), tokens(1))
		var kinds []quota.EventKind
		for _, e := range events() {
			if k := e.Kind(); k == quota.KindOutageBegan || k == quota.KindOutageEnded {
				kinds = append(kinds, k)
			}
		}
		if fmt.Sprint(kinds) != "[outage_began outage_ended]" {
			t.Errorf("told %v", kinds)
		}
		if ended := only[quota.OutageEnded](events()); len(ended) == 1 && (ended[0].Lasted < 3*time.Second || ended[0].Failed < 3) {
			t.Errorf("it says that it lasted %v with %d failures", ended[0].Lasted, ended[0].Failed)
		}
	})
}

func ExampleBus() {
	bus := quota.NewBus(quota.BusConfig{Listeners: []quota.Listener{func(e quota.Event) {
		switch e := e.(type) {
		case quota.ThresholdReached:
			fmt.Printf("%s has used %d%% of %s\n", e.Subject.User, e.Percent, e.Limit)
		case quota.Denied:
			fmt.Printf("%s was denied: %v\n", e.Subject.User, e.Denial.Reason)
		}
	}}, Logger: slog.Default()})
	defer bus.Close(context.Background())

	limits, err := quota.NewLimits(quota.LimitsConfig{Limits: []quota.Limit{
		{Name: "daily", Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Tokens: 10_000}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ledger, err := quota.NewMemory(quota.MemoryConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	enforcer, err := quota.New(quota.Config{Limits: limits, Ledger: ledger, Bus: bus})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer enforcer.Close(context.Background())

	ctx := quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", User: "alice"})
	for range 2 {
		call := budget.Call{ID: budget.NewID(), Model: "gemini-2.5-flash", Usage: usage.Usage{Input: 6000, Output: 1000}}
		r, err := enforcer.Budget().Reserve(ctx, call)
		if err != nil {
			break
		}
		if err := r.Settle(ctx, usage.Usage{Input: 6200, Output: 2100}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// alice has used 80% of daily
	// alice was denied: exhausted
}
