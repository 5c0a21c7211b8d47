package gate

import (
	"fmt"
	"testing"
	"time"
)

// outages drives calls one after the other, a second apart.
type outages struct {
	*scene
	n int
}

func (o *outages) send() string {
	o.n++
	name := fmt.Sprint("call ", o.n)
	o.now = o.now.Add(time.Second)
	o.ask(name, Spec{})
	o.now = o.now.Add(time.Millisecond)
	return name
}

// refuse has the provider refuse a call as overloaded, and tells how often it was
// found to be down.
func (o *outages) refuse(name string) int {
	n := o.core.Overloaded(o.now, o.ids[name])
	o.core.CutSlots(o.now, o.ids[name])
	if n > 0 {
		o.core.Pause(o.now, o.now.Add(time.Second))
	}
	o.core.End(o.now, o.ids[name])
	o.poll()
	return n
}

func (o *outages) answer(name string) {
	o.core.Succeeded(o.now, o.ids[name])
	o.core.End(o.now, o.ids[name])
	o.poll()
}

// down lets the provider be down, and come back.
func (o *outages) down() {
	for range outageAfter {
		o.refuse(o.send())
	}
	if !o.core.outage.shut {
		o.t.Fatalf("the provider does not count as down after %d refusals", outageAfter)
	}
	o.pass(10 * time.Second)
	o.answer(o.send())
}

func TestAfterAnOutageEveryAnswerGivesASlotBack(t *testing.T) {
	t.Parallel()
	o := &outages{scene: newScene(t, Config{Slots: 100})}
	o.down()
	before := o.core.eff
	for range 10 {
		o.answer(o.send())
	}
	if got := o.core.eff - before; got != 10 {
		t.Errorf("ten answers gave %d slots back, want 10", got)
	}
	for range 100 {
		o.answer(o.send())
	}
	if o.core.eff != 100 {
		t.Errorf("%d slots in the end, want 100", o.core.eff)
	}
}

// What an outage has taken says nothing about later cuts.
func TestACutLongAfterAnOutageRecoversAsSlowlyAsEver(t *testing.T) {
	t.Parallel()
	slots := func(outage bool) int64 {
		o := &outages{scene: newScene(t, Config{Slots: 100})}
		if outage {
			o.down()
			for range 300 {
				o.answer(o.send())
			}
		}
		o.refuse(o.send())
		for range 35 {
			o.answer(o.send())
		}
		return o.core.eff
	}
	if a, b := slots(false), slots(true); a != b {
		t.Errorf("35 answers after a cut to 70 slots: %d slots, but %d after an earlier outage", a, b)
	}
}

func TestWhatWasInForceBeforeAnOutageIsRegainedHoweverItBegan(t *testing.T) {
	t.Parallel()
	o := &outages{scene: newScene(t, Config{Slots: 100})}
	old := o.send()
	o.refuse(o.send())
	o.answer(o.send())
	o.now = o.now.Add(time.Second)
	o.refuse(old) // sent before the last cut, so it is none of its own
	for range outageAfter - 1 {
		o.refuse(o.send())
	}
	if !o.core.outage.shut {
		t.Fatal("the provider does not count as down")
	}
	o.pass(5 * time.Second)
	for range 80 {
		o.answer(o.send())
	}
	if o.core.eff < 70 {
		t.Errorf("%d slots after 80 answers, want the 70 of before at least", o.core.eff)
	}
}

// Answers that end the last call in passing count, too.
func TestAProviderThatAnswersInBetweenIsNotDown(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{refilled(t, 60, 60)}})
	start := func() ID {
		s.now = s.now.Add(time.Second)
		id, ok := s.core.Start(s.now, 0, "", 1, []int64{1})
		if !ok {
			t.Fatal("a call cannot start")
		}
		s.now = s.now.Add(time.Second)
		return id
	}
	for i := range 2 * outageAfter {
		id := start()
		if n := s.core.Overloaded(s.now, id); n > 0 {
			t.Fatalf("refusal %d: the provider counts as down, though it has answered since the last one", i)
		}
		s.core.CutSlots(s.now, id)
		s.core.Finish(s.now, id, nil)
		if id = start(); !s.core.FinishLast(id, nil) { // as a shell ends a call that was answered
			s.core.Succeeded(s.now, id)
			s.core.Finish(s.now, id, nil)
		}
	}
}

func TestAnAnswerOfAnotherKindEndsAnOutage(t *testing.T) {
	t.Parallel()
	o := &outages{scene: newScene(t, Config{Slots: 100})}
	for range outageAfter {
		o.refuse(o.send())
	}
	o.pass(10 * time.Second)
	probe := o.send()
	o.core.Answered(o.ids[probe])
	if o.core.outage.shut {
		t.Error("the gate stays paused, though the provider has answered")
	}
}

func TestAPauseIsInTheForecast(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 10})
	s.core.Pause(s.now, s.now.Add(30*time.Second))
	if w := s.core.ExpectedWait(s.now, 1, nil); w != 30*time.Second {
		t.Errorf("paused for 30 s, and the forecast is %v", w)
	}
	if at := s.core.Stats(s.now).Paused; !at.Equal(s.now.Add(30 * time.Second)) {
		t.Errorf("paused until %v, want in 30 s", at)
	}
}

// A call that was sent after cuts cannot be their cause, nor can one that takes a
// little more than was thought.
func TestOnlyWhatExplainsCutsTakesThemBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		early bool
		cost  int64
		back  bool
	}{
		{"sent before, and takes twice as much", true, 200, true},
		{"sent before, and takes a little more", true, 110, false},
		{"sent before, and takes less", true, 50, false},
		{"sent after the first cut", false, 200, false},
	} {
		s := newScene(t, Config{Slots: 100, Dims: []Dim{refilled(t, 100_000, 100_000)}})
		s.ask("early", Spec{Costs: tokens(100)})
		for i := range 4 {
			s.now = s.now.Add(5 * time.Second)
			name := fmt.Sprint("refused ", i)
			s.ask(name, Spec{Costs: tokens(100)})
			if i == 2 {
				s.ask("late", Spec{Costs: tokens(100)})
			}
			s.now = s.now.Add(time.Second)
			s.core.Cut(s.now, s.ids[name], 0)
			s.core.End(s.now, s.ids[name])
			s.poll()
		}
		before, name := s.core.dims[0].share, "late"
		if c.early {
			name = "early"
		}
		s.core.Revise(s.now, s.ids[name], tokens(c.cost))
		if got := s.core.dims[0].share; (got == 1) != c.back || !c.back && got != before {
			t.Errorf("%s: the share goes from %v to %v", c.name, before, got)
		}
	}
}
