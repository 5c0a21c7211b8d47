package gate

import (
	"fmt"
	"testing"
	"time"
)

func TestARequestNeverHoldsMoreSlotsThanItsCeilingWhileOthersPass(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestSlots: 4, Dims: []Dim{perMinute(t, 1000)}})
	for i := range 20 {
		s.ask(fmt.Sprint("branch", i), Spec{Flow: "user", Request: "wide", Costs: tokens(1)})
	}
	s.want("branch0", "branch1", "branch2", "branch3")
	s.ask("own", Spec{Flow: "user", Request: "other", Costs: tokens(1)})
	s.ask("none", Spec{Flow: "user", Costs: tokens(1)})
	s.ask("stranger", Spec{Flow: "stranger", Request: "third", Costs: tokens(1)})
	s.want("branch0", "branch1", "branch2", "branch3", "own", "none", "stranger")
	for i := range 20 {
		if i+4 < 20 && s.id(fmt.Sprint("branch", i+4)).running() != nil {
			t.Fatalf("branch %d runs while four before it do", i+4)
		}
		s.done(fmt.Sprint("branch", i))
		if n := s.core.Stats(s.now).InUse; n != int64(min(4, 19-i))+3 {
			t.Fatalf("%d slots are in use after branch %d, want %d", n, i, min(4, 19-i)+3)
		}
	}
	for _, name := range []string{"own", "none", "stranger"} {
		s.done(name)
	}
	s.wantEmpty()
}

func TestAFlowNeverHoldsMoreSlotsThanItsCeilingWhileOthersPass(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, FlowSlots: 3})
	for i := range 6 {
		s.ask(fmt.Sprint("hog", i), Spec{Flow: "hog"})
	}
	s.ask("other", Spec{Flow: "other"})
	s.want("hog0", "hog1", "hog2", "other")
	s.done("hog1")
	s.want("hog0", "hog2", "hog3", "other")
	for _, name := range []string{"hog0", "hog2", "hog3", "hog4", "hog5", "other"} {
		s.done(name)
	}
	s.wantEmpty()
}

func TestAFlowNeverTakesMoreUnitsThanItsShare(t *testing.T) {
	t.Parallel()
	const calls = 90
	s := newScene(t, Config{Slots: 100, FlowShare: 0.2, Dims: []Dim{perMinute(t, 1000)}})
	for i := range calls {
		s.ask(fmt.Sprint("hog", i), Spec{Flow: "hog", Costs: tokens(10)})
		s.ask(fmt.Sprint("other", i), Spec{Flow: fmt.Sprint(i), Costs: tokens(5)})
	}
	started := func() (n int) {
		for i := range calls {
			if s.id(fmt.Sprint("hog", i)).running() != nil {
				n++
			}
			if s.now == s.start && s.id(fmt.Sprint("other", i)).running() == nil && i < 80 {
				t.Fatalf("call %d of the others waits because of the hog's ceiling", i)
			}
		}
		return n
	}
	if n := started(); n != 20 {
		t.Fatalf("the hog takes %d units at once, want its share of 200", 10*n)
	}
	for i := range calls {
		if i < 20 {
			s.core.FreeSlot(s.now, s.id(fmt.Sprint("hog", i)))
		}
		s.core.FreeSlot(s.now, s.id(fmt.Sprint("other", i)))
	}
	s.wantNext(3 * time.Second) // its share refills 200 a minute
	s.pass(30 * time.Second)
	if n := started(); n != 30 {
		t.Fatalf("the hog has taken %d units after half a minute, want 200 + 100", 10*n)
	}
	for i := range calls {
		s.core.End(s.now, s.id(fmt.Sprint("hog", i)))
		s.core.End(s.now, s.id(fmt.Sprint("other", i)))
	}
	s.poll()
	if flows := s.core.Stats(s.now).Flows; flows != 1 {
		t.Errorf("%d flows are remembered, want the one whose share is not whole yet", flows)
	}
	s.now = s.now.Add(time.Hour)
	s.poll()
	s.wantEmpty()
}

func TestARefundRaisesWhatACeilingAllows(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{{Flow: "a"}, {Flow: "a", Request: "r"}} {
		s := newScene(t, Config{Slots: 8, RequestShare: 0.5, FlowShare: 0.5, Dims: []Dim{perMinute(t, 100)}})
		spec.Costs = tokens(40)
		s.ask("first", spec)
		s.ask("second", spec)
		s.want("first")
		s.core.Settle(s.now, s.id("first"), tokens(5))
		s.poll()
		s.want("first", "second")
	}
}

func TestARequestKeepsItsShareWhenItIsBrieflyGone(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestShare: 0.5, RequestSlots: 2, Dims: []Dim{perMinute(t, 100)}})
	s.ask("first", Spec{Request: "r", Costs: tokens(50)})
	s.done("first")
	s.ask("second", Spec{Request: "r", Costs: tokens(50)})
	s.want()
	s.done("second") // gone before it could start
	s.now = s.now.Add(time.Minute)
	s.poll() // whole again, and forgotten
	if n := len(s.core.requests); n != 0 {
		t.Fatalf("%d requests are remembered, want none", n)
	}
	s.ask("third", Spec{Request: "r", Costs: tokens(50)})
	s.ask("fourth", Spec{Request: "r", Costs: tokens(50)})
	s.want("third")
	// A wake-up of the forgotten one must not make the new one forgotten, too.
	s.now = s.now.Add(time.Second)
	s.poll()
	s.ask("fifth", Spec{Request: "r", Costs: tokens(50)})
	s.want("third")
	if n := len(s.core.requests); n != 1 {
		t.Fatalf("%d requests are remembered, want 1", n)
	}
}

func TestAWideCallIsNotStarvedByItsOwnRequest(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestSlots: 3})
	s.ask("a", Spec{Request: "r", Slots: 2})
	s.ask("wide", Spec{Request: "r", Slots: 3})
	s.ask("b", Spec{Request: "r"}) // it would fit, but came later
	s.ask("c", Spec{Request: "q"})
	s.want("a", "c")
	s.done("a")
	s.want("wide", "c")
	s.done("wide")
	s.want("b", "c")
}

func TestARequestOverSeveralFlowsWaitsForNoneOfThem(t *testing.T) {
	t.Parallel()
	// Both branches of the request stand aside. When there is room for one, the
	// first of them is held up by its flow's own ceiling: the other must go.
	s := newScene(t, Config{Slots: 8, RequestSlots: 1, FlowSlots: 1})
	s.ask("holder", Spec{Flow: "c", Request: "r"})
	s.ask("first", Spec{Flow: "a", Request: "r"})
	s.ask("second", Spec{Flow: "b", Request: "r"})
	s.ask("other", Spec{Flow: "a", Request: "q"})
	s.want("holder", "other")
	s.core.FreeSlot(s.now, s.id("holder"))
	s.poll()
	s.want("holder", "second", "other")
}

func TestEveryCallThatHasRoomUnderItsCeilingStarts(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestSlots: 3, FlowSlots: 5})
	s.ask("wide", Spec{Flow: "a", Request: "r", Slots: 3})
	for _, name := range []string{"b", "c", "d", "e"} {
		s.ask(name, Spec{Flow: "a", Request: "r"})
	}
	s.want("wide")
	s.core.FreeSlot(s.now, s.id("wide")) // and nothing else
	s.poll()
	s.want("wide", "b", "c", "d")
}

func TestACallThatGivesUpHandsItsPlaceUnderTheCeilingOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestSlots: 1, Dims: []Dim{perMinute(t, 100)}})
	s.ask("holder", Spec{Request: "r", Costs: tokens(40)})
	s.ask("large", Spec{Request: "r", Costs: tokens(70)})
	s.ask("small", Spec{Request: "r", Costs: tokens(10)})
	s.core.FreeSlot(s.now, s.id("holder"))
	s.poll()
	s.want("holder") // it is the large one's turn, which waits for units now
	s.core.Cancel(s.now, s.id("large"))
	s.poll()
	s.want("holder", "small")
}

// While a call waits for units an older one of its flow comes back from under
// its request's ceiling; then the flow is over its own share. Neither may be
// lost.
func TestACallThatLosesItsClaimToACeilingKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestSlots: 1, FlowShare: 1, Dims: []Dim{refilled(t, 60, 60)}})
	s.ask("stranger", Spec{Flow: "b", Costs: tokens(20)})
	s.ask("holder", Spec{Flow: "a", Request: "r", Costs: tokens(20)})
	s.ask("older", Spec{Flow: "a", Request: "r", Costs: tokens(20)})
	s.ask("claims", Spec{Flow: "a", Costs: tokens(30)})
	s.want("stranger", "holder")
	s.core.FreeSlot(s.now, s.id("holder"))
	s.core.Settle(s.now, s.id("holder"), tokens(60)) // much more than was held
	s.poll()
	s.want("stranger", "holder")
	s.pass(40 * time.Second) // 60 − 80 + 40: enough for the older one
	s.want("stranger", "holder", "older")
	s.pass(30 * time.Second)
	s.want("stranger", "holder", "older", "claims")
}

func TestAForgottenRequestDoesNotTakeItsSuccessorAlong(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, RequestShare: 0.5, Dims: []Dim{perMinute(t, 100)}})
	s.ask("first", Spec{Request: "r", Costs: tokens(50)})
	s.ask("second", Spec{Request: "r", Costs: tokens(50)}) // in a minute its share is whole
	s.want("first")
	s.done("first", 0) // it is whole now
	s.want("second")
	s.done("second", 0) // and the request is forgotten
	s.ask("third", Spec{Request: "r", Costs: tokens(50)})
	s.want("third")
	s.core.Settle(s.now, s.id("third"), tokens(600)) // over for ten minutes
	s.pass(2 * time.Minute)
	s.poll()
	s.ask("fourth", Spec{Request: "r", Costs: tokens(1)})
	s.want("third")
}

func TestAFlowOverItsCeilingIsLookedAtWhenItsNextCallChanges(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 8, FlowSlots: 2})
	s.ask("a", Spec{Flow: "f"})
	s.ask("wide", Spec{Flow: "f", Slots: 2})
	s.ask("b", Spec{Flow: "f"})
	s.want("a")
	s.done("wide") // gives up
	s.want("a", "b")
}

func TestTheEarliestEndOfAShareIsNotForgotten(t *testing.T) {
	t.Parallel()
	// The older call of the request, in another flow, may start sooner than the
	// younger one that stood aside first.
	s := newScene(t, Config{Slots: 8, RequestShare: 1, Dims: []Dim{refilled(t, 60, 60)}})
	s.ask("spender", Spec{Flow: "c", Request: "r", Costs: tokens(60)})
	s.core.Settle(s.now, s.id("spender"), tokens(60))
	s.core.SetLimit(s.now, 0, 6000) // only the request's share of before binds
	s.core.requests["r"].setLimit(s.now, 0, 60)
	s.poll()
	s.ask("older", Spec{Flow: "a", Request: "r", Costs: tokens(10)})
	s.ask("younger", Spec{Flow: "b", Request: "r", Costs: tokens(50)})
	s.wantNext(10 * time.Second)
	s.pass(10 * time.Second)
	s.want("spender", "older")
	s.wantNext(50 * time.Second)
}

func TestALargeCallIsNotStarvedBySmallOnesOfEverNewFlows(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 50, Dims: []Dim{refilled(t, 600, 100)}}) // 10 a second
	s.ask("spender", Spec{Flow: "spender", Costs: tokens(100)})
	s.ask("large", Spec{Flow: "large", Costs: tokens(95)})
	for i := range 9 {
		s.pass(time.Second)
		s.ask(fmt.Sprint("small", i), Spec{Flow: fmt.Sprint(i), Costs: tokens(1)})
	}
	s.want("spender")
	s.pass(time.Second)
	if s.id("large").running() == nil {
		t.Fatal("the large call does not start although it was there first")
	}
}
