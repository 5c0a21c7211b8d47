package gate

import (
	"math"
	"testing"
	"time"
)

func TestStatsTellWhatIsHeldAndWhoWaits(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 3, Classes: []Class{{Weight: 1}, {Weight: 1}}, Dims: []Dim{perMinute(t, 100), refilled(t, 60, 10)}})
	s.ask("a", Spec{Flow: "x", Slots: 2, Costs: tokens(70, 4)})
	s.ask("b", Spec{Class: 1, Flow: "x", Costs: tokens(40, 5)})
	s.ask("c", Spec{Class: 1, Flow: "y", Costs: tokens(50, 0)})
	got := s.core.Stats(s.now)
	if got.Slots != 3 || got.SlotLimit != 3 || got.InUse != 2 || got.Running != 1 || got.Waiting != 2 || got.Flows != 3 {
		t.Errorf("%+v; want 2 of 3 slots in use by 1 call, 2 waiting, 3 flows", got)
	}
	for i, want := range []ClassStats{{InUse: 2, Waiting: 0, Flows: 1}, {InUse: 0, Waiting: 2, Flows: 2}} {
		if got.Classes[i] != want {
			t.Errorf("class %d: %+v, want %+v", i, got.Classes[i], want)
		}
	}
	for i, want := range []DimStats{{Limit: 100, Share: 1, Level: 30, Queued: 90}, {Limit: 60, Share: 1, Level: 6, Queued: 5}} {
		if got.Dims[i] != want {
			t.Errorf("limit %d: %+v, want %+v", i, got.Dims[i], want)
		}
	}
	if n := s.core.Waiting(); n != 2 {
		t.Errorf("%d calls wait, want 2", n)
	}
}

func TestTheExpectedWaitIsThatOfTheScarcestResource(t *testing.T) {
	t.Parallel()
	empty := func(t *testing.T) *scene {
		return newScene(t, Config{Slots: 2, Dims: []Dim{refilled(t, 60, 60), refilled(t, 6000, 6000)}})
	}
	for _, c := range []struct {
		name   string
		before func(s *scene)
		slots  int32
		costs  []int64
		want   time.Duration
	}{
		{"nothing is scarce", func(s *scene) {}, 1, tokens(1, 1), 0},
		{"units of the first limit", func(s *scene) { s.ask("a", Spec{Costs: tokens(60, 0)}) }, 1, tokens(10, 10), 10 * time.Second},
		{"units for the line, too", func(s *scene) {
			s.ask("a", Spec{Costs: tokens(60, 0)})
			s.ask("b", Spec{Costs: tokens(20, 0)})
		}, 1, tokens(10, 0), 30 * time.Second},
		{"a call that needs none of them", func(s *scene) { s.ask("a", Spec{Costs: tokens(60, 0)}) }, 1, tokens(0, 10), 0},
		{"slots: half a call's time for each in line", func(s *scene) {
			s.ask("a", Spec{Slots: 2, Costs: tokens(0, 0)})
			s.ask("b", Spec{Costs: tokens(0, 0)})
		}, 1, tokens(0, 0), time.Second}, // a call is taken to last a second until more is known
		{"a closed limit", func(s *scene) { s.core.CloseBudget(s.now, 1, s.now.Add(time.Minute)) }, 1, tokens(1, 1), time.Minute},
		{"a limit that waits for its probe: a call's time from when that was sent", func(s *scene) {
			s.core.CloseBudget(s.now, 1, s.now.Add(time.Minute))
			s.pass(time.Minute)
			s.ask("a", Spec{Costs: tokens(0, 1)})
			s.pass(300 * time.Millisecond)
		}, 1, tokens(1, 1), 700 * time.Millisecond},
		{"a limit whose probe takes longer than others did: half as long again", func(s *scene) {
			s.core.CloseBudget(s.now, 1, s.now.Add(time.Minute))
			s.pass(time.Minute)
			s.ask("a", Spec{Costs: tokens(0, 1)})
			s.pass(5 * time.Second)
		}, 1, tokens(1, 1), 2500 * time.Millisecond},
		{"a cut limit", func(s *scene) {
			s.ask("a", Spec{Costs: tokens(60, 0)})
			s.pass(1)
			s.core.Cut(s.now, s.id("a"), 0)
		}, 1, tokens(7, 0), 10 * time.Second},
		{"more than there will ever be", func(s *scene) { s.core.SetLimit(s.now, 0, 1) }, 1, tokens(math.MaxInt64, 1), horizon},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := empty(t)
			c.before(s)
			got := s.core.ExpectedWait(s.now, c.slots, c.costs)
			if diff := got - c.want; diff < -time.Millisecond || diff > time.Millisecond {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// What holds for every call is told apart from what depends on the line.
func TestShutForLeavesTheLineOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(s *scene)
		costs  []int64
		want   time.Duration
	}{
		{"a long line", func(s *scene) {
			s.ask("a", Spec{Costs: tokens(60, 0)})
			s.ask("b", Spec{Costs: tokens(60, 0)})
			s.ask("c", Spec{Costs: tokens(60, 0)})
		}, tokens(10, 0), 0},
		{"a closed limit", func(s *scene) { s.core.CloseBudget(s.now, 1, s.now.Add(time.Minute)) }, tokens(0, 1), time.Minute},
		{"a closed limit that the call does not need", func(s *scene) {
			s.core.CloseBudget(s.now, 1, s.now.Add(time.Minute))
		}, tokens(1, 0), 0},
		{"a provider that is down", func(s *scene) { s.core.Pause(s.now, s.now.Add(8*time.Second)) }, tokens(0, 0), 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, Config{Slots: 1, Dims: []Dim{refilled(t, 60, 60), refilled(t, 6000, 6000)}})
			c.before(s)
			if got := s.core.ShutFor(s.now, c.costs); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// However many slots there are, and however short calls: who must wait is not told
// that it need not.
func TestAForecastOfAWaitIsNever0(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1 << 20})
	s.ask("short", Spec{})
	s.done("short")
	for range 1000 {
		s.ask("call", Spec{})
		s.pass(time.Nanosecond)
		s.done("call")
	}
	s.ask("wide", Spec{Slots: 1 << 20})
	if got := s.core.ExpectedWait(s.now, 1, nil); got <= 0 {
		t.Errorf("a call that must wait for slots is told %v", got)
	}
}

// A forecast may be asked for before every call, so it leaves everything as it is:
// even the call that is alone stays one that ends without being booked.
func TestAForecastChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{refilled(t, 60, 60)}})
	id, ok := s.core.Start(s.now, 0, "", 1, tokens(10))
	if !ok {
		t.Fatal("the first call must wait")
	}
	if got := s.core.ExpectedWait(s.now, 1, tokens(1)); got != time.Second {
		t.Errorf("with the only slot in use a call would wait %v, want a call's time of 1s", got)
	}
	if got := s.core.ShutFor(s.now, tokens(1)); got != 0 {
		t.Errorf("shut for %v, want 0", got)
	}
	if !s.core.FinishLast(id, nil) {
		t.Error("a call that was alone has been booked")
	}
}

func TestTheHoldTimeFollowsWhatCallsTake(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1})
	for range 200 {
		s.ask("call", Spec{})
		s.pass(8 * time.Second)
		s.done("call")
	}
	if got := s.core.HoldTime(); got < 7900*time.Millisecond || got > 8*time.Second {
		t.Errorf("after 200 calls of 8 s the average is %v", got)
	}
}

func TestAbsurdCostsAndWeightsDoNotOverturnTheOrder(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Classes: []Class{{Weight: 1e-300}, {Weight: 1e300}}, Dims: []Dim{refilled(t, 1, 1)}})
	for i := range 3000 {
		spec := Spec{Class: i % 2, Flow: "absurd", FlowWeight: 1e-300, Costs: tokens(0)}
		s.ask("call", spec)
		if i%3 == 0 {
			s.core.Settle(s.now, s.id("call"), tokens(math.MaxInt64))
			s.core.Adjust(s.now, s.id("call"), tokens(math.MaxInt64))
		}
		s.done("call")
		for _, cl := range s.core.classes {
			if cl.vt < 0 || cl.order.now < 0 || cl.vt > maxTag || s.core.order.now < 0 {
				t.Fatalf("after %d calls a counter is %d, virtual time %d", i+1, cl.vt, cl.order.now)
			}
		}
	}
	s.wantEmpty()
}

func TestWhatTheShellKeepsWithACallEndsWithIt(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{perMinute(t, 10)}})
	first, second := make(chan struct{}), make(chan struct{})
	s.ask("runs", Spec{Costs: tokens(3)})
	s.core.SetReady(s.id("runs"), first)
	s.ask("waits", Spec{Costs: tokens(4)})
	s.core.SetReady(s.id("waits"), second)
	if s.id("runs").Ready() != first || s.id("waits").Ready() != second {
		t.Error("a call has another channel than it was given")
	}
	if cost := s.core.Cost(s.id("waits"), 0); cost != 4 {
		t.Errorf("the call takes %d units, want 4", cost)
	}
	if s.core.Leave(s.id("waits")) || !s.core.Leave(s.id("runs")) || s.core.Leave(s.id("runs")) {
		t.Error("a running call can be left once, a waiting one not at all")
	}
	s.done("runs")
	s.core.SetReady(s.id("runs"), second)
	if s.id("runs").Ready() != nil || s.core.Cost(s.id("runs"), 0) != 0 || s.core.Cost(s.id("waits"), -1) != 0 {
		t.Error("something of an ended call, or of no limit, is told")
	}
	if !s.core.Leave(s.id("waits")) {
		t.Error("the record of a call that was left is still left with the next one")
	}
	if most := s.core.Max(0); most != 10 {
		t.Errorf("at most %d units ever fit, want 10", most)
	}
}

func TestEveryWaitCanBeEndedAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 2, RequestSlots: 1, FlowSlots: 1, Dims: []Dim{perMinute(t, 100)}})
	s.ask("runs", Spec{Flow: "a", Request: "r", Costs: tokens(50)})
	waits := []string{"over its request's ceiling", "over its flow's ceiling", "claims", "is behind", "backs off"}
	s.ask(waits[0], Spec{Flow: "a", Request: "r", Costs: tokens(1)})
	s.ask(waits[1], Spec{Flow: "a", Costs: tokens(1)})
	s.ask(waits[2], Spec{Flow: "b", Costs: tokens(60)})
	s.ask(waits[3], Spec{Flow: "b", Costs: tokens(1)})
	s.ask(waits[4], Spec{Flow: "c", Costs: tokens(0)})
	s.core.Requeue(s.now, s.id(waits[4]), tokens(0), s.now.Add(time.Hour))
	s.want("runs")
	if n := len(s.core.FailWaiting()); n != len(waits) {
		t.Fatalf("%d waits were ended, want %d", n, len(waits))
	}
	for _, name := range waits {
		if s.core.Cancel(s.now, s.id(name)) {
			t.Errorf("%s: it still waits", name)
		}
		s.done(name)
	}
	s.want("runs")
	s.done("runs")
	s.wantEmpty()
}
