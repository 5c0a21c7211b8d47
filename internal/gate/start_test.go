package gate

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget"
)

func TestStartPassesNobodyAndNoBound(t *testing.T) {
	t.Parallel()
	one := []Class{{Weight: 1}}
	for _, c := range []struct {
		name   string
		cfg    Config
		before func(s *scene)
		ok     bool
	}{
		{"nothing in the way", Config{Slots: 2, Classes: one}, func(s *scene) {}, true},
		{"a call in flight, and room beside it", Config{Slots: 2, Classes: one}, func(s *scene) { s.ask("a", Spec{Costs: tokens(5)}) }, true},
		{"no slot", Config{Slots: 1, Classes: one}, func(s *scene) { s.ask("a", Spec{Costs: tokens(0)}) }, false},
		{"no units", Config{Slots: 2, Classes: one}, func(s *scene) { s.ask("a", Spec{Costs: tokens(6)}) }, false},
		{"somebody waits", Config{Slots: 3, Classes: one}, func(s *scene) {
			s.ask("a", Spec{Costs: tokens(1)})
			s.ask("b", Spec{Costs: tokens(10)})
		}, false},
		{"somebody backs off", Config{Slots: 2, Classes: one}, func(s *scene) {
			s.ask("a", Spec{Costs: tokens(0)})
			s.core.Requeue(s.now, s.id("a"), tokens(0), s.now.Add(time.Hour))
		}, false},
		{"the cap of the class", Config{Slots: 3, Classes: []Class{{Weight: 1, MaxSlots: 1}}}, func(s *scene) { s.ask("a", Spec{Costs: tokens(0)}) }, false},
		{"the minimum of another class", Config{Slots: 2, Classes: []Class{{Weight: 1}, {Weight: 1, MinSlots: 1}}},
			func(s *scene) { s.ask("a", Spec{Costs: tokens(0)}) }, false},
		{"a closed limit", Config{Slots: 2, Classes: one}, func(s *scene) { s.core.CloseBudget(s.now, 0, s.now.Add(time.Second)) }, false},
		{"a limit that wants a probe", Config{Slots: 2, Classes: one}, func(s *scene) { s.core.CloseBudget(s.now, 0, s.now) }, false},
		{"a ceiling is configured", Config{Slots: 2, FlowSlots: 2, Classes: one}, func(s *scene) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Dims = []Dim{refilled(t, 600, 10)}
			s := newScene(t, c.cfg)
			c.before(s)
			before := s.core.Stats(s.now)
			id, ok := s.core.Start(s.now, 0, "flow", 1, tokens(5))
			if ok != c.ok {
				t.Fatalf("Start answered %v, want %v", ok, c.ok)
			}
			after := s.core.Stats(s.now)
			if !ok {
				if before.InUse != after.InUse || before.Running != after.Running || before.Flows != after.Flows || before.Dims[0].Level != after.Dims[0].Level {
					t.Errorf("it changed something: %+v, before %+v", after, before)
				}
				return
			}
			if after.InUse != before.InUse+1 || after.Running != before.Running+1 || after.Dims[0].Level != before.Dims[0].Level-5 {
				t.Errorf("%+v, before %+v; want a slot and 5 units more in use", after, before)
			}
			if !s.core.Finish(s.now, id, tokens(2)) || s.core.Finish(s.now, id, nil) {
				t.Error("the call does not end once")
			}
			if after = s.core.Stats(s.now); after.InUse != before.InUse || after.Dims[0].Level != before.Dims[0].Level-2 {
				t.Errorf("in the end %+v, before %+v; want 2 units more used", after, before)
			}
		})
	}
}

func TestStartLeavesALimitThatRecoversToEnqueue(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 2, Dims: []Dim{perMinute(t, 100)}})
	s.ask("cut", Spec{Costs: tokens(1)})
	s.pass(1)
	s.core.Cut(s.now, s.id("cut"), 0)
	s.pass(10 * time.Minute)
	if _, ok := s.core.Start(s.now, 0, "", 1, tokens(1)); ok {
		t.Fatal("Start overlooks that the limit is due to recover")
	}
	s.ask("call", Spec{Costs: tokens(90)})
	s.want("cut", "call")
}

func TestTheOnlyCallOfAllCanEndWithoutATrace(t *testing.T) {
	t.Parallel()
	// A limiter that is a bucket itself, as it is in a gate: no spy before it.
	b, err := budget.NewTokenBudget(budget.TokenBudgetConfig{Limit: 60})
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, Config{Slots: 2, Dims: []Dim{{Limiter: b, Window: time.Minute}}})
	ended := 0
	for range 2 * holdSample {
		id, ok := s.core.Start(s.now, 0, "", 1, tokens(10))
		if !ok {
			t.Fatal("a lone call is not started")
		}
		s.now = s.now.Add(30 * time.Second)
		if s.core.FinishLast(id, tokens(11)) {
			t.Fatal("a call that used more than it held ends without the time")
		}
		if s.core.FinishLast(id, nil) {
			ended++
			if s.core.FinishLast(id, nil) || s.core.End(s.now, id) {
				t.Fatal("it ends twice")
			}
		} else if !s.core.Finish(s.now, id, nil) {
			t.Fatal("it does not end")
		}
		if level := b.Level(s.now); level != 60 {
			t.Fatalf("after half a minute %d units are free, want all 60", level)
		}
		s.wantEmpty()
	}
	if timed := 2*holdSample - ended; timed != 2 {
		t.Errorf("of %d calls %d were timed, want one in %d", 2*holdSample, timed, holdSample)
	}
	if s.core.HoldTime() <= time.Second {
		t.Error("those that are timed do not tell how long calls take")
	}

	id, _ := s.core.Start(s.now, 0, "", 1, tokens(10))
	other, _ := s.core.Start(s.now, 0, "other", 1, tokens(10))
	if s.core.FinishLast(id, nil) || s.core.FinishLast(other, nil) {
		t.Error("a call that has company ends without its charge")
	}
	if stats := s.core.Stats(s.now); stats.InUse != 2 || stats.Classes[0].Flows != 2 {
		t.Errorf("%+v; want 2 slots in use by 2 flows", stats)
	}
}

func TestWhoIsStuckNeedsNoPoll(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{refilled(t, 60, 10)}})
	s.ask("runs", Spec{Costs: tokens(1)})
	if s.core.Stuck() {
		t.Error("nobody waits, but the next one would be stuck")
	}
	s.ask("claims the slot", Spec{Flow: "a", Costs: tokens(1)})
	if !s.core.Stuck() {
		t.Error("a slot is claimed, but the next one would not be stuck")
	}
	s.core.SetLimit(s.now, 0, 0)
	if s.core.Stuck() {
		t.Error("what can no longer fit must fail, but nobody would look")
	}
}
