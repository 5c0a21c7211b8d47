package gate

import (
	"fmt"
	"testing"
	"time"
)

func TestACallWiderThanTheGateRunsAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 2})
	s.ask("a", Spec{Flow: "a"})
	s.ask("wide", Spec{Flow: "b", Slots: 5})
	s.ask("c", Spec{Flow: "c"}) // it would fit, but must not starve the wide one
	s.want("a")
	s.done("a")
	s.want("wide")
	s.done("wide")
	s.want("c")
}

func TestFewerSlotsThanInUseTakeNobodysSlot(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 3})
	for _, name := range []string{"a", "b", "c", "d"} {
		s.ask(name, Spec{Flow: name})
	}
	s.core.SetSlots(1)
	s.poll()
	s.want("a", "b", "c")
	s.done("a")
	s.done("b")
	s.want("c")
	s.done("c")
	s.want("d")
	s.ask("wide", Spec{Flow: "e", Slots: 2}) // wider than what is left of the gate
	s.done("d")
	s.want("wide")
	s.ask("f", Spec{Flow: "f"})
	s.core.SetSlots(3)
	s.poll()
	s.want("wide", "f")
}

func TestAClassNeverExceedsItsCapAndBlocksNoOther(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 6, Classes: []Class{{Weight: 1}, {Weight: 100, MaxSlots: 2}}})
	for i := range 5 {
		s.ask(fmt.Sprint("capped", i), Spec{Class: 1, Flow: fmt.Sprint(i)})
	}
	s.want("capped0", "capped1")
	for i := range 3 {
		s.ask(fmt.Sprint("free", i), Spec{Class: 0, Flow: fmt.Sprint(i)})
	}
	s.want("capped0", "capped1", "free0", "free1", "free2")
	s.done("capped0")
	s.want("capped1", "capped2", "free0", "free1", "free2")
	// Wider than the cap: it runs when the class holds nothing else.
	s.ask("wide", Spec{Class: 1, Flow: "0", Slots: 3})
	for _, name := range []string{"capped1", "capped2", "capped3", "capped4"} {
		s.done(name)
	}
	s.want("free0", "free1", "free2", "wide")
}

// A chosen call keeps its place under its class's cap: it would otherwise find
// the cap reached whenever the units that it waits for are there.
func TestAChosenCallKeepsItsPlaceUnderTheCap(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 6, Classes: []Class{{Weight: 1}, {Weight: 1, MaxSlots: 2}}, Dims: []Dim{refilled(t, 60, 10)}})
	s.ask("spender", Spec{Costs: tokens(10)})
	s.ask("large", Spec{Class: 1, Flow: "large", Slots: 2, Costs: tokens(10)})
	s.ask("free of units", Spec{Class: 1, Flow: "other", Costs: tokens(0)})
	s.want("spender")
	s.pass(10 * time.Second)
	s.want("spender", "large")
	s.done("large")
	s.want("spender", "free of units")
}

func TestAMinimumIsKeptFreeForItsClass(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Classes: []Class{{Weight: 1}, {Weight: 1, MinSlots: 2}}})
	for i := range 4 {
		s.ask(fmt.Sprint("n", i), Spec{Class: 0, Flow: fmt.Sprint(i)})
	}
	s.want("n0", "n1")
	// The others' claim on slots does not reach into the minimum.
	s.ask("r0", Spec{Class: 1})
	s.ask("r1", Spec{Class: 1})
	s.want("n0", "n1", "r0", "r1")
	// Above its minimum it is one class among two: what comes free goes to those
	// who came first in fair order.
	s.ask("r2", Spec{Class: 1})
	s.done("n0")
	s.want("n1", "n2", "r0", "r1")
	s.done("r0") // below its minimum again: the next one is its own
	s.want("n1", "n2", "r1", "r2")
}

func TestAWideCallClaimsPastTheMinimums(t *testing.T) {
	t.Parallel()
	// It needs 3 of 4 slots while 2 are kept for another class: it can only run
	// alone, so a stream of small calls must not keep it out.
	s := newScene(t, Config{Slots: 4, Classes: []Class{{Weight: 1}, {Weight: 1, MinSlots: 2}}})
	s.ask("small0", Spec{Class: 1})
	s.ask("wide", Spec{Class: 0, Slots: 3})
	s.ask("small1", Spec{Class: 1})
	s.want("small0")
	s.done("small0")
	s.want("wide", "small1")
}

func TestSmallCallsOfOtherClassesDoNotStarveAWideOne(t *testing.T) {
	t.Parallel()
	// Class 0 has a minimum that nobody uses; 6 slots are left for the others. The
	// wide call of class 1 needs 4 of them.
	s := newScene(t, Config{Slots: 10, Classes: []Class{{Weight: 1, MinSlots: 4}, {Weight: 1}, {Weight: 1}}})
	for i := range 4 {
		s.ask(fmt.Sprint("small", i), Spec{Class: 2, Flow: fmt.Sprint(i)})
	}
	s.ask("wide", Spec{Class: 1, Slots: 4})
	s.ask("small4", Spec{Class: 2, Flow: "4"}) // a slot is free, but the wide one claims it
	s.want("small0", "small1", "small2", "small3")
	s.ask("reserved", Spec{Class: 0}) // takes nothing from the wide one
	s.want("small0", "small1", "small2", "small3", "reserved")
	s.done("small0")
	s.done("small1")
	s.want("small2", "small3", "reserved", "wide")
}

// The next call of a class is held up by a bound of the class. When another
// class claims units that it needs, it is not the next one any more, and a call
// behind it that needs none of them may go.
func TestAClaimFreesWhomTheClaimantHoldsUp(t *testing.T) {
	t.Parallel()
	// Class 0 is the one to be served first.
	s := newScene(t, Config{Slots: 6, Classes: []Class{{Weight: 100, MaxSlots: 2}, {Weight: 1}}, Dims: []Dim{refilled(t, 60, 10)}})
	s.ask("before", Spec{Class: 1, Costs: tokens(0)})
	s.ask("runs", Spec{Class: 0, Flow: "a", Costs: tokens(5)})
	s.ask("too wide now", Spec{Class: 0, Flow: "b", Slots: 2, Costs: tokens(1)})
	s.ask("behind it", Spec{Class: 0, Flow: "c", Costs: tokens(0)})
	s.want("before", "runs")
	s.ask("claims", Spec{Class: 1, Costs: tokens(9)})
	s.want("before", "runs", "behind it")
}

func TestAGrantFreesWhomItsUnitsHoldUp(t *testing.T) {
	t.Parallel()
	// Class 0 claims a slot, class 1's next call is too wide for its own minimum.
	// What class 2 takes leaves too few units for both, so that a call behind
	// them which needs none may use the minimum of class 1 in the same moment.
	s := newScene(t, Config{
		Slots:   5,
		Classes: []Class{{Weight: 4}, {Weight: 2, MinSlots: 1}, {Weight: 1, MinSlots: 1}},
		Dims:    []Dim{refilled(t, 60, 10)},
	})
	s.ask("runs", Spec{Class: 0, Flow: "a", Slots: 3, Costs: tokens(0)})
	s.ask("claims", Spec{Class: 0, Flow: "b", Costs: tokens(6)})
	s.ask("too wide", Spec{Class: 1, Flow: "a", Slots: 2, Costs: tokens(5)})
	s.ask("narrow", Spec{Class: 1, Flow: "b", Costs: tokens(0)})
	s.want("runs")
	s.ask("takes units", Spec{Class: 2, Costs: tokens(6)})
	s.want("runs", "takes units", "narrow")
}

func TestMinimumsShrinkWithTheGate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slots    int64
		minimums []int64 // as configured
		want     []int64 // in force
	}{
		{10, []int64{4, 2, 0}, []int64{4, 2, 0}},
		{6, []int64{4, 2}, []int64{4, 2}},
		{6, []int64{4, 2, 0}, []int64{3, 1, 0}}, // a slot is left for the third
		{3, []int64{4, 2}, []int64{2, 1}},
		{2, []int64{4, 2}, []int64{1, 0}},
		{3, []int64{2, 2, 2}, []int64{1, 1, 1}},
		{2, []int64{2, 2, 2}, []int64{0, 0, 0}},
		{1, []int64{1, 1}, []int64{0, 0}},
		{1, []int64{1}, []int64{1}},
	} {
		cfg := Config{Slots: 100}
		for _, n := range c.minimums {
			cfg.Classes = append(cfg.Classes, Class{Weight: 1, MinSlots: n})
		}
		core := New(cfg)
		core.SetSlots(c.slots)
		for i, want := range c.want {
			if got := core.classes[i].minimum; got != want {
				t.Errorf("%d slots, minimums %v: class %d keeps %d, want %d", c.slots, c.minimums, i, got, want)
			}
		}
		core.SetSlots(100)
		for i, want := range c.minimums {
			if got := core.classes[i].minimum; got != want {
				t.Errorf("with slots enough again class %d keeps %d, want %d", i, got, want)
			}
		}
	}
}

func TestNobodyIsLockedOutWhereMinimumsTakeTheWholeGate(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Classes: []Class{{Weight: 1, MinSlots: 4}, {Weight: 1}}})
	for i := range 6 {
		s.ask(fmt.Sprint("reserved", i), Spec{Class: 0})
	}
	s.ask("other", Spec{Class: 1})
	for i := range 6 { // slots come back and are taken again, one by one
		s.done(fmt.Sprint("reserved", i))
		if s.id("other").running() != nil {
			return
		}
	}
	t.Fatal("a class without a minimum waits until the gate is empty")
}

func TestFIFOKnowsNeitherClassesNorFlows(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{
		Slots: 2, FIFO: true, FlowSlots: 1, FlowShare: 0.01,
		Classes: []Class{{Weight: 1, MaxSlots: 1}, {Weight: 9, MinSlots: 1}},
		Dims:    []Dim{perMinute(t, 100)},
	})
	for i := range 6 {
		s.ask(fmt.Sprint("call", i), Spec{Class: i % 2, Flow: fmt.Sprint(i % 3), FlowWeight: float64(i), Costs: tokens(10)})
	}
	for i := range 6 {
		s.done(fmt.Sprint("call", i))
	}
	if got, want := fmt.Sprint(s.order), "[call0 call1 call2 call3 call4 call5]"; got != want {
		t.Errorf("calls were started in the order %v, want that of arrival", got)
	}
	s.wantEmpty()
}

func TestACancelledCallWakesTheNext(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Dims: []Dim{refilled(t, 60, 10)}})
	s.ask("spender", Spec{Flow: "a", Costs: tokens(5)})
	s.ask("large", Spec{Flow: "b", Costs: tokens(8)})
	s.ask("small", Spec{Flow: "c", Costs: tokens(3)})
	s.want("spender")
	if !s.core.Cancel(s.now, s.id("large")) {
		t.Fatal("a waiting call cannot be cancelled")
	}
	s.poll()
	s.want("spender", "small")
	s.wantNext(0)
}
