package gate

import (
	"testing"
	"time"
)

func TestARequeuedCallComesBackAtItsFirstPlace(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1})
	for _, name := range []string{"first", "second", "third"} {
		s.ask(name, Spec{})
	}
	s.core.Requeue(s.now, s.id("first"), nil, s.now.Add(time.Second))
	s.poll()
	s.want("second") // the slot is free during backoff
	s.wantNext(time.Second)
	s.pass(time.Second)
	s.want("second")
	s.done("second")
	s.want("first") // before the third, which came later
}

func TestABackoffThatIsOverAlreadyOnlyNeedsAPoll(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1})
	s.ask("call", Spec{})
	s.core.Requeue(s.now, s.id("call"), nil, s.now.Add(-time.Hour))
	s.want()
	s.poll()
	s.want("call")
}

func TestARequeuedCallKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		waitFirst bool // whether it was granted by Poll instead of at once
		notBefore time.Duration
		fails     bool
	}{
		{"backoff ends before", false, 9 * time.Second, false},
		{"backoff ends before, waited", true, 9 * time.Second, false},
		{"backoff ends with it", false, 10 * time.Second, true},
		{"backoff ends after it", true, 11 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, Config{Slots: 1})
			if c.waitFirst {
				s.ask("before", Spec{})
			}
			s.ask("call", Spec{Deadline: s.now.Add(10 * time.Second)})
			if c.waitFirst {
				s.done("before")
			}
			s.want("call")
			s.core.Requeue(s.now, s.id("call"), nil, s.now.Add(c.notBefore))
			s.poll()
			s.ask("other", Spec{})
			s.pass(10*time.Second - 1)
			if len(s.fails) > 0 {
				t.Fatal("it fails before its deadline")
			}
			s.pass(1)
			// Where its backoff is over it could still start now, but the slot is taken.
			if _, failed := s.fails["call"]; !failed {
				t.Fatal("it waits beyond its deadline")
			}
			s.done("call")
			s.done("other")
			s.wantEmpty()
		})
	}
}

func TestABackoffThatEndsWithAnothersDeadlineIsNotLost(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 2, Dims: []Dim{perMinute(t, 10)}})
	s.ask("spender", Spec{Costs: tokens(10)})
	s.ask("waits", Spec{Flow: "a", Costs: tokens(1), Deadline: s.now.Add(10 * time.Second)})
	s.ask("back", Spec{Flow: "b", Costs: tokens(0)})
	s.core.Requeue(s.now, s.id("back"), tokens(0), s.now.Add(10*time.Second))
	s.poll()
	s.pass(10 * time.Second)
	s.want("spender", "back")
	if len(s.fails) != 1 || s.fails["waits"].ID != s.id("waits") {
		t.Errorf("the waits of %v have failed, want the one whose deadline has come", s.fails)
	}
}

func TestACancelDuringBackoffLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, FlowSlots: 1, RequestSlots: 1, Dims: []Dim{perMinute(t, 10)}})
	s.ask("call", Spec{Flow: "a", Request: "r", Costs: tokens(4), Deadline: s.now.Add(time.Hour)})
	s.core.Requeue(s.now, s.id("call"), tokens(0), s.now.Add(time.Minute))
	s.poll()
	if !s.core.Cancel(s.now, s.id("call")) {
		t.Fatal("a call in backoff cannot be cancelled")
	}
	s.poll()
	s.wantNext(0)
	s.wantEmpty()
	if level := s.core.Stats(s.now).Dims[0].Level; level != 10 {
		t.Errorf("%d units are free, want 10", level)
	}
}

func TestARequeuedCallStaysPartOfItsFlow(t *testing.T) {
	t.Parallel()
	// Were its flow taken for idle it would be forgotten, and come back even.
	s := newScene(t, Config{Slots: 2})
	s.ask("hog", Spec{Flow: "hog"})
	s.ask("other", Spec{Flow: "other"})
	s.core.Requeue(s.now, s.id("hog"), nil, s.now.Add(time.Minute))
	s.poll()
	if flows := s.core.Stats(s.now).Classes[0].Flows; flows != 2 {
		t.Fatalf("%d flows are active, want 2: one is in backoff", flows)
	}
	s.pass(time.Minute)
	s.want("hog", "other")
	for range 3 { // again and again, as with a provider that refuses
		s.core.Requeue(s.now, s.id("hog"), nil, s.now)
		s.poll()
	}
	s.want("hog", "other")
	s.done("hog")
	s.done("other")
	s.wantEmpty()
}

func TestACallIsRequeuedWhateverIsBackAlready(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		free, settl bool
	}{{"nothing", false, false}, {"its slots", true, false}, {"its units", false, true}, {"both", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, Config{Slots: 2, RequestSlots: 1, FlowSlots: 2, Dims: []Dim{perMinute(t, 10)}})
			s.ask("call", Spec{Flow: "a", Request: "r", Slots: 2, Costs: tokens(5)})
			if c.free && !s.core.FreeSlot(s.now, s.id("call")) || c.settl && !s.core.Settle(s.now, s.id("call"), tokens(1)) {
				t.Fatal("it has ended")
			}
			s.poll()
			if !s.core.Requeue(s.now, s.id("call"), tokens(1), s.now.Add(time.Second)) {
				t.Fatal("a running call cannot be requeued")
			}
			s.poll()
			stats := s.core.Stats(s.now)
			if stats.InUse != 0 || stats.Running != 0 || stats.Waiting != 1 || stats.Dims[0].Level != 9 {
				t.Errorf("in backoff: %+v; want no slot, 1 unit used, 1 call waiting", stats)
			}
			s.pass(time.Second)
			s.want("call")
			stats = s.core.Stats(s.now)
			if stats.InUse != 2 || stats.Running != 1 || stats.Waiting != 0 || stats.Dims[0].Level != 4 {
				t.Errorf("running again: %+v; want 2 slots, 1 + 5 units used", stats)
			}
			s.done("call")
			s.wantEmpty()
			if s.core.Requeue(s.now, s.id("call"), nil, s.now) {
				t.Error("an ended call was requeued")
			}
		})
	}
}

func TestEveryPartOfACallEndsOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{perMinute(t, 10)}})
	s.ask("call", Spec{Costs: tokens(5)})
	id := s.id("call")
	first := []bool{s.core.FreeSlot(s.now, id), s.core.Settle(s.now, id, tokens(3)), s.core.End(s.now, id)}
	s.ask("next", Spec{Costs: tokens(5)}) // takes the record of the first one
	again := []bool{s.core.FreeSlot(s.now, id), s.core.Settle(s.now, id, tokens(0)), s.core.End(s.now, id), s.core.Cancel(s.now, id)}
	for i := range first {
		if !first[i] {
			t.Errorf("operation %d did nothing", i)
		}
	}
	for i := range again {
		if again[i] {
			t.Errorf("operation %d was done again", i)
		}
	}
	s.want("next")
	if stats := s.core.Stats(s.now); stats.InUse != 1 || stats.Dims[0].Level != 2 {
		t.Errorf("%d slots, %d units free; want 1 and 2", stats.InUse, stats.Dims[0].Level)
	}
	if (ID{}).Ready() != nil || s.core.End(s.now, ID{}) {
		t.Error("the zero ID names a call")
	}
}

func TestUsageThatIsReportedLateIsBookedOnTop(t *testing.T) {
	t.Parallel()
	for _, freed := range []bool{false, true} {
		s := newScene(t, Config{Slots: 4, FlowShare: 0.5, Dims: []Dim{perMinute(t, 100)}})
		s.ask("call", Spec{Flow: "a", Costs: tokens(10)})
		s.core.Adjust(s.now, s.id("call"), tokens(7)) // before it is settled there is nothing to adjust
		s.core.Settle(s.now, s.id("call"), tokens(10))
		if freed {
			s.core.FreeSlot(s.now, s.id("call"))
		}
		s.core.Adjust(s.now, s.id("call"), tokens(30))
		if level := s.core.Stats(s.now).Dims[0].Level; level != 60 {
			t.Errorf("%d units are free, want 60", level)
		}
		s.ask("more", Spec{Flow: "a", Costs: tokens(11)}) // 40 of its 50 are used
		if freed {
			s.want("call")
		}
		if !freed {
			s.want("call") // its own first call still runs; the second is over the share
		}
		s.core.End(s.now, s.id("call"))
		s.ask("other", Spec{Flow: "b", Costs: tokens(11)})
		s.want("other")
	}
}
