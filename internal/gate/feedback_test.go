package gate

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestAClosedBudgetIsClosedForEveryoneWhoNeedsIt(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 9, Dims: []Dim{perMinute(t, 100), perMinute(t, 100)}})
	s.core.CloseBudget(s.now, 0, s.now.Add(20*time.Second))
	for i := range 4 {
		s.ask(fmt.Sprint("call", i), Spec{Flow: fmt.Sprint(i), Costs: tokens(1, 1)})
	}
	s.ask("other", Spec{Flow: "other", Costs: tokens(0, 1)})
	s.want("other")
	s.wantNext(20 * time.Second)
	if until := s.core.Stats(s.now).Dims[0].Until; !until.Equal(s.now.Add(20 * time.Second)) {
		t.Errorf("it reopens after %v, want 20s", until.Sub(s.now))
	}
}

func TestAReopenedBudgetLetsOneCallThroughUntilASuccess(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 9, Dims: []Dim{perMinute(t, 100)}})
	s.ask("before", Spec{Costs: tokens(1)})
	s.core.CloseBudget(s.now, 0, s.now.Add(20*time.Second))
	for i := range 4 {
		s.ask(fmt.Sprint("call", i), Spec{Flow: fmt.Sprint(i), Costs: tokens(1)})
	}
	s.pass(20 * time.Second)
	s.want("before", "call0")
	s.wantNext(0) // time alone changes nothing
	// A call that was sent before the budget was closed proves nothing.
	s.core.Succeeded(s.now, s.id("before"))
	s.poll()
	s.want("before", "call0")
	// The probe that ends without success makes room for another one,
	s.done("call0")
	s.want("before", "call1")
	// however it ends.
	s.core.Requeue(s.now, s.id("call1"), tokens(0), s.now.Add(time.Minute))
	s.poll()
	s.want("before", "call2")
	s.core.Settle(s.now, s.id("call2"), tokens(0))
	s.poll()
	s.want("before", "call2", "call3")
	s.ask("call4", Spec{Flow: "4", Costs: tokens(1)})
	s.want("before", "call2", "call3")
	s.core.Succeeded(s.now, s.id("call3"))
	s.poll()
	s.want("before", "call2", "call3", "call4")
	s.pass(time.Minute)
	s.want("before", "call1", "call2", "call3", "call4")
}

func TestClosingAgainOnlyLengthensAndSilencesTheProbe(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 9, Dims: []Dim{perMinute(t, 100)}})
	s.core.CloseBudget(s.now, 0, s.now.Add(20*time.Second))
	s.core.CloseBudget(s.now, 0, s.now.Add(10*time.Second))
	s.ask("probe", Spec{Flow: "a", Costs: tokens(1)})
	s.ask("next", Spec{Flow: "b", Costs: tokens(1)})
	s.pass(20*time.Second - 1)
	s.want()
	s.pass(1)
	s.want("probe")
	// Another call that was in flight is refused with a later hint: what the
	// probe says now is older than that.
	s.core.CloseBudget(s.now, 0, s.now.Add(5*time.Second))
	s.core.Succeeded(s.now, s.id("probe"))
	s.poll()
	s.want("probe")
	s.wantNext(5 * time.Second)
	s.pass(5 * time.Second)
	s.want("probe", "next")
}

func TestAHintThatIsOverAlreadyOnlyAsksForAProbe(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 9, Dims: []Dim{perMinute(t, 100)}})
	s.core.CloseBudget(s.now, 0, s.now.Add(-time.Second))
	s.ask("a", Spec{Flow: "a", Costs: tokens(1)})
	s.ask("b", Spec{Flow: "b", Costs: tokens(1)})
	s.want("a")
	s.core.Succeeded(s.now, s.id("a"))
	s.poll()
	s.want("a", "b")
}

func TestClosedTimeIsCountedOnceAndWithoutTheProbing(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 9, Dims: []Dim{perMinute(t, 100)}})
	wantClosed := func(d time.Duration) {
		t.Helper()
		if got := s.core.Stats(s.now).Dims[0].Closed; got != d {
			t.Errorf("after %v it was closed for %v, want %v", s.now.Sub(s.start), got, d)
		}
	}
	wantClosed(0)
	s.core.CloseBudget(s.now, 0, s.now.Add(10*time.Second))
	s.pass(2 * time.Second)
	wantClosed(2 * time.Second)
	s.pass(2 * time.Second)
	s.core.CloseBudget(s.now, 0, s.now.Add(8*time.Second)) // until 12 s
	s.pass(30 * time.Second)
	wantClosed(12 * time.Second) // half-open since
	s.core.CloseBudget(s.now, 0, s.now.Add(3*time.Second))
	s.pass(3 * time.Second)
	s.ask("probe", Spec{Costs: tokens(1)})
	s.core.Succeeded(s.now, s.id("probe"))
	s.pass(time.Hour)
	wantClosed(15 * time.Second)
}

func TestABurstOfRefusalsIsOneCut(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 99, Dims: []Dim{perMinute(t, 100)}})
	for i := range 10 {
		s.ask(fmt.Sprint("sent before", i), Spec{Costs: tokens(1)})
	}
	s.pass(time.Second)
	share := func() float64 { return s.core.Stats(s.now).Dims[0].Share }
	for i := range 10 {
		s.core.Cut(s.now, s.id(fmt.Sprint("sent before", i)), 0)
		s.core.Cut(s.now, s.id(fmt.Sprint("sent before", i)), 0)
	}
	if got := share(); got != cutFactor {
		t.Fatalf("after a burst of refusals the share is %v, want one cut", got)
	}
	if level := s.core.Stats(s.now).Dims[0].Level; level != 70-10 {
		t.Errorf("%d units are free, want 70 − 10", level)
	}
	s.pass(time.Second)
	s.ask("sent after", Spec{Costs: tokens(1)})
	s.pass(time.Second)
	s.core.Cut(s.now, s.id("sent after"), 0)
	if got, want := share(), cutFactor*cutFactor; math.Abs(got-want) > 0.01 {
		t.Errorf("after a refusal of a later call the share is %v, want %v", got, want)
	}
	for i := range 10 {
		s.pass(time.Second)
		name := fmt.Sprint("again", i)
		s.ask(name, Spec{Costs: tokens(1)})
		s.pass(time.Second)
		s.core.Cut(s.now, s.id(name), 0)
	}
	if got := share(); got != minShare {
		t.Errorf("after many cuts the share is %v, want not less than %v", got, minShare)
	}
}

func TestACutRateRecoversAdditively(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 99, Dims: []Dim{perMinute(t, 1000)}})
	s.ask("cut", Spec{Costs: tokens(1)})
	s.pass(time.Nanosecond)
	s.core.Cut(s.now, s.id("cut"), 0)
	s.done("cut")
	for _, c := range []struct {
		after time.Duration
		share float64
	}{{30 * time.Second, 0.75}, {90 * time.Second, 0.9}, {60 * time.Second, 1}, {time.Hour, 1}} {
		s.pass(c.after)
		s.ask(fmt.Sprint(c), Spec{Costs: tokens(1)})
		if got := s.core.Stats(s.now).Dims[0].Share; math.Abs(got-c.share) > 1e-9 {
			t.Errorf("after %v the share is %v, want %v", s.now.Sub(s.start), got, c.share)
		}
	}
}

// A hold that is not counted yet leaves a window at no known time, so that only
// the recovery of a cut makes room.
func TestARecoveringRateWakesTheLine(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 9, Dims: []Dim{perMinute(t, 100)}})
	s.ask("held", Spec{Costs: tokens(20)})
	s.pass(time.Nanosecond)
	s.core.Cut(s.now, s.id("held"), 0) // 70 in force
	s.ask("waits", Spec{Costs: tokens(60)})
	s.want("held")
	s.pass(59 * time.Second)
	s.want("held")
	s.pass(2 * time.Second) // 0.7 + 60 s / 600 s = 0.8
	s.want("held", "waits")
}

func TestHeadroomBindsBelowTheLimitButNotASingleCall(t *testing.T) {
	t.Parallel()
	w := perMinute(t, 100)
	w.Headroom = 0.9
	s := newScene(t, Config{Slots: 9, Dims: []Dim{w}})
	s.ask("large", Spec{Costs: tokens(95)})
	s.want("large")
	s.core.Counted(s.now, s.id("large"))
	s.done("large", 0)
	s.ask("a", Spec{Flow: "a", Costs: tokens(45)})
	s.ask("b", Spec{Flow: "b", Costs: tokens(45)})
	s.ask("c", Spec{Flow: "c", Costs: tokens(1)})
	s.want("a", "b")
	s.core.SetLimit(s.now, 0, 200) // headroom stays: 180
	s.poll()
	s.want("a", "b", "c")
	s.core.Cut(s.now.Add(1), s.id("a"), 0)
	if level := s.core.Stats(s.now).Dims[0].Level; level != 126-91 { // 200·0.9·0.7
		t.Errorf("%d units are free after a cut, want 126 − 91", level)
	}
}

func TestAnOverloadedProviderGetsFewerCallsAndRecoversBySuccesses(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 10})
	slots := func() int64 { return s.core.Stats(s.now).Slots }
	for i := range 10 {
		s.ask(fmt.Sprint(i), Spec{})
	}
	s.pass(time.Second)
	for i := range 10 {
		s.core.CutSlots(s.now, s.id(fmt.Sprint(i)))
	}
	if n := slots(); n != 7 {
		t.Fatalf("%d slots after a burst of overloads, want 7: one cut", n)
	}
	for i := range 10 {
		s.done(fmt.Sprint(i))
	}
	successes := func(n int) {
		for range n {
			s.pass(time.Second)
			s.ask("call", Spec{})
			s.core.Succeeded(s.now, s.id("call"))
			s.core.Succeeded(s.now, s.id("call")) // telling it again changes nothing
			s.done("call")
		}
	}
	successes(6)
	if n := slots(); n != 7 {
		t.Errorf("%d slots after 6 successes, want 7 still", n)
	}
	successes(2) // a slot takes as many successes as there are slots
	if n := slots(); n != 8 {
		t.Errorf("%d slots after 8 successes, want 8", n)
	}
	successes(20)
	if n, l := slots(), s.core.Stats(s.now).SlotLimit; n != 10 || l != 10 {
		t.Errorf("%d of %d slots after 28 successes, want all 10", n, l)
	}
	for i := range 20 {
		s.pass(time.Second)
		s.ask("call", Spec{})
		s.pass(time.Second)
		s.core.CutSlots(s.now, s.id("call"))
		s.done("call")
		if n := slots(); n < 1 {
			t.Fatalf("%d slots after %d cuts", n, i+1)
		}
	}
	if n := slots(); n != 1 {
		t.Errorf("%d slots after many cuts, want 1", n)
	}
	s.core.SetSlots(100)
	if n := slots(); n != 10 {
		t.Errorf("%d of 100 slots while a tenth is in force, want 10", n)
	}
}
