package quota_test

import (
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
