package quota_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestTurnsThatPassedDuringAnOutageAreCountedAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := func(name string, scope quota.Scope, window quota.Window) quota.Limit {
			return quota.Limit{Name: name, Scope: scope, Window: window, Max: quota.Max{quota.Turns: 100}, Failure: quota.Open}
		}
		everybodys, rate := open("ours", quota.Global, quota.Day), open("rate", quota.User, aMinute)
		for _, limits := range [][]quota.Limit{{open("mine", quota.User, quota.Day)}, {open("mine", quota.User, quota.Day), rate, everybodys}} {
			s := newStore(t)
			w := newWorld(t, limitsOf(limits...), s.over(nil))
			s.set(down)
			w.admit(as("ann")).End()
			w.admit(as("ann")).End()
			s.set(nil)
			time.Sleep(time.Minute)
			for _, limit := range limits {
				if limit.Name == "rate" {
					w.stands(as("ann"), limit.Name, quota.Turns, 0, 0) // it would be full again
					continue
				}
				w.stands(as("ann"), limit.Name, quota.Turns, 2, 0)
			}
		}
	})
}

func TestLimitsThatAreChangedDuringAnOutageHoldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := daily("day", quota.User, quota.Tokens, 100_000)
		day.Failure = quota.Open
		s := newStore(t)
		w := newWorld(t, limitsOf(day), s.over(nil))
		s.set(down)
		w.reserve(as("ann"), tokens(100))
		day.Max = quota.Max{quota.Tokens: 1000}
		set, err := quota.NewLimits(limitsOf(day))
		if err == nil {
			err = w.Reload(set)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.reserve(as("ann"), tokens(100)) // a tenth
		if d := w.denied(as("ann"), tokens(100)); d.Limit != "day" {
			t.Errorf("got %v", d)
		}
	})
}

func TestWhatDeniesNothingDeniesNothingDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		soft, observed, ceiling := daily("soft", quota.User, quota.Tokens, 1000), daily("watched", quota.Team, quota.Tokens, 10), daily("end", quota.Tenant, quota.Tokens, 1000)
		soft.Soft, soft.Failure = true, quota.Open
		observed.Mode, observed.Failure = quota.Observe, quota.Open
		ceiling.Soft, ceiling.Ceiling, ceiling.Failure = true, quota.Max{quota.Tokens: 20_000}, quota.Open
		s := newStore(t)
		w := newWorld(t, limitsOf(soft, observed, ceiling), s.over(nil))
		s.set(down)
		for range 4 { // a tenth of the ceiling
			w.reserve(as("ann"), tokens(500))
		}
		if d := w.denied(as("ann"), tokens(500)); d.Limit != "end" {
			t.Errorf("got %v", d)
		}
	})
}

func TestWhatEverybodySharesIsAskedLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		w := newWorld(t, limitsOf(daily("all", quota.Global, quota.Tokens, 100), daily("mine", quota.User, quota.Tokens, 10)), s.over(nil))
		var asked []string
		s.set(func(op, tree string) error {
			asked = append(asked, op+" "+tree)
			return nil
		})
		w.reserve(as("ann"), tokens(1))
		w.denied(as("ann"), tokens(10))
		if got, want := strings.Join(asked, ", "), "reserve tenant=acme, reserve global, reserve tenant=acme"; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
	})
}
