package gate

import (
	"errors"
	"testing"
	"time"
)

func TestWhatCanNeverFitIsRefusedAtOnceAndBlocksNobody(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Dims: []Dim{perMinute(t, 10), perMinute(t, 100)}})
	s.ask("whole limit", Spec{Flow: "a", Costs: tokens(1, 100)})
	s.ask("waits", Spec{Flow: "a", Costs: tokens(1, 50)})
	refused := s.try("too large", Spec{Flow: "a", Costs: tokens(1, 101)})
	if !errors.Is(refused.Err, ErrNever) || refused.Dim != 1 {
		t.Errorf("101 of 100 units: refused with %v by limit %d, want ErrNever by limit 1", refused.Err, refused.Dim)
	}
	s.ask("small", Spec{Flow: "b", Costs: tokens(1, 0)})
	s.want("whole limit", "small")
	if n := s.core.Stats(s.now).Waiting; n != 1 {
		t.Errorf("%d calls wait, want 1: a refusal leaves no trace", n)
	}
}

func TestALimitOfNothingLetsNothingPass(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Dims: []Dim{refilled(t, 0, 0)}})
	if refused := s.try("one", Spec{Costs: tokens(1)}); !errors.Is(refused.Err, ErrNever) {
		t.Errorf("a unit of a limit of 0: refused with %v, want ErrNever", refused.Err)
	}
	s.ask("none", Spec{Costs: tokens(0)})
	s.want("none")
}

func TestADeadlineIsTooEarlyOnlyIfRefundsCannotHelp(t *testing.T) {
	t.Parallel()
	// A window of 100 units of which 60 are used up for the next minute and 40
	// are held by a call in flight, which may turn out to have used none.
	used := func(t *testing.T) *scene {
		s := newScene(t, Config{Slots: 4, Dims: []Dim{perMinute(t, 100)}})
		s.ask("spent", Spec{Costs: tokens(60)})
		s.done("spent", 60)
		s.ask("held", Spec{Costs: tokens(40)})
		return s
	}
	const leaves = 61 * time.Second // cells of a second: the one that began at 0 ends at 1 s
	for _, c := range []struct {
		name     string
		cost     int64
		deadline time.Duration
		err      error
	}{
		{"a refund of all that is held makes room now", 40, 0, nil},
		{"more than that must wait for the window", 41, leaves - 1, ErrTooLate},
		{"and may start at the very instant of its deadline", 41, leaves, nil},
		{"a deadline in the past", 1, -1, ErrDeadline},
		{"even if there is room", 0, -1, ErrDeadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := used(t)
			refused := s.try("call", Spec{Costs: tokens(c.cost), Deadline: s.now.Add(c.deadline)})
			if !errors.Is(refused.Err, c.err) {
				t.Fatalf("refused with %v, want %v", refused.Err, c.err)
			}
			if c.err == ErrTooLate && (refused.Dim != 0 || !refused.At.Equal(s.start.Add(leaves))) {
				t.Errorf("limit %d allows it after %v, want limit 0 after %v", refused.Dim, refused.At.Sub(s.start), leaves)
			}
			if c.cost == 41 && c.err == nil {
				s.core.Counted(s.now, s.id("held"))
				s.done("held", 0)
				s.pass(leaves)
				s.want("call")
			}
		})
	}
}

func TestADeadlineIsNotTooEarlyIfACutMayRecover(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Dims: []Dim{refilled(t, 60, 60)}})
	s.ask("cut", Spec{Costs: tokens(60)})
	s.now = s.now.Add(time.Nanosecond)
	s.core.Cut(s.now, s.id("cut"), 0)
	s.done("cut", 60)
	// At the rate in force 30 units take 30 s / 0.7; at the full one 30 s.
	if refused := s.try("early", Spec{Costs: tokens(30), Deadline: s.now.Add(29 * time.Second)}); !errors.Is(refused.Err, ErrTooLate) {
		t.Errorf("refused with %v, want ErrTooLate", refused.Err)
	}
	s.ask("late", Spec{Costs: tokens(30), Deadline: s.now.Add(30 * time.Second)})
	if share := s.core.Stats(s.now).Dims[0].Share; share != cutFactor {
		t.Errorf("a look at the deadline has changed the share in force to %v, want %v", share, cutFactor)
	}
	s.ask("patient", Spec{Costs: tokens(30)})
	s.pass(38 * time.Second)
	if s.id("patient").running() != nil {
		t.Error("a look at the deadline has taken the cut back")
	}
}

func TestADeadlineBeforeTheBudgetReopensIsTooEarly(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Dims: []Dim{perMinute(t, 100)}})
	s.core.CloseBudget(s.now, 0, s.now.Add(20*time.Second))
	if refused := s.try("early", Spec{Costs: tokens(1), Deadline: s.now.Add(19 * time.Second)}); !errors.Is(refused.Err, ErrTooLate) || !refused.At.Equal(s.now.Add(20*time.Second)) {
		t.Errorf("refused with %v, allowed after %v; want ErrTooLate, 20s", refused.Err, refused.At.Sub(s.now))
	}
	s.ask("in time", Spec{Costs: tokens(1), Deadline: s.now.Add(20 * time.Second)})
	s.pass(20 * time.Second)
	s.want("in time")
}

func TestAFullLineRefusesAndHoldsNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, MaxWaiting: 2})
	for _, name := range []string{"runs", "first", "second"} {
		s.ask(name, Spec{Flow: name})
	}
	if refused := s.try("third", Spec{Flow: "third"}); !errors.Is(refused.Err, ErrFull) {
		t.Fatalf("refused with %v, want ErrFull", refused.Err)
	}
	s.done("first")
	s.ask("third", Spec{Flow: "third"})
	for _, name := range []string{"runs", "second", "third"} {
		s.done(name)
	}
	s.wantEmpty()
}

func TestADeadlineOfNowIsACallThatDoesNotWait(t *testing.T) {
	t.Parallel()
	// With ceilings a call is never started by Enqueue itself, without them it is.
	for _, cfg := range []Config{{Slots: 2}, {Slots: 2, FlowSlots: 2}} {
		s := newScene(t, cfg)
		s.ask("first", Spec{Deadline: s.now})
		s.ask("second", Spec{Deadline: s.now})
		s.want("first", "second")
		s.ask("third", Spec{Deadline: s.now})
		if _, failed := s.fails["third"]; !failed {
			t.Error("a call that does not wait waits")
		}
		for _, name := range []string{"first", "second", "third"} {
			s.done(name)
		}
		s.wantEmpty()
	}
}

func TestAWaitThatEndsWithItsDeadlineFreesWhatItClaimed(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 4, Dims: []Dim{perMinute(t, 100)}})
	s.ask("spent", Spec{Flow: "a", Costs: tokens(50)})
	s.ask("large", Spec{Flow: "b", Costs: tokens(80), Deadline: s.now.Add(5 * time.Second)})
	s.ask("small", Spec{Flow: "c", Costs: tokens(10)})
	s.want("spent")
	s.wantNext(5 * time.Second)
	s.pass(5 * time.Second)
	s.want("spent", "small")
	if f := s.fails["large"]; f.Never || f.Dim != 0 {
		t.Errorf("the failure is %+v, want the deadline, waiting for limit 0", f)
	}
}

func TestALimitThatIsLoweredEndsTheWaitOfWhatNoLongerFits(t *testing.T) {
	t.Parallel()
	// Wherever in line they are: chosen, behind another one, over a ceiling, or
	// in backoff.
	s := newScene(t, Config{Slots: 3, RequestSlots: 1, Dims: []Dim{perMinute(t, 100)}})
	s.ask("runs", Spec{Flow: "a", Request: "r", Costs: tokens(70)})
	s.ask("backs off", Spec{Flow: "b", Costs: tokens(30)})
	s.core.Requeue(s.now, s.id("backs off"), tokens(0), s.now.Add(time.Hour))
	s.poll()
	s.ask("over its ceiling", Spec{Flow: "a", Request: "r", Costs: tokens(31)})
	s.ask("claims", Spec{Flow: "c", Costs: tokens(90)})
	s.ask("is behind", Spec{Flow: "c", Costs: tokens(40)})
	s.ask("fits", Spec{Flow: "d", Costs: tokens(20)})
	s.want("runs")
	s.core.SetLimit(s.now, 0, 29)
	s.poll()
	for _, name := range []string{"backs off", "over its ceiling", "claims", "is behind"} {
		if f, failed := s.fails[name]; !failed || !f.Never || f.Dim != 0 {
			t.Errorf("%s: failed %v, %+v; want that it can never fit in limit 0", name, failed, f)
		}
	}
	if _, failed := s.fails["fits"]; failed {
		t.Error("a call that fits has failed")
	}
	s.done("runs", 0)
	s.want("fits")
	for _, name := range []string{"backs off", "over its ceiling", "claims", "is behind", "fits"} {
		s.done(name)
	}
	s.wantEmpty()
}

func TestALimitThatIsRaisedLetsWaitingCallsStart(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 3, FlowShare: 0.5, Dims: []Dim{perMinute(t, 100)}})
	s.ask("runs", Spec{Flow: "a", Costs: tokens(45)})
	s.ask("over its flow's share", Spec{Flow: "a", Costs: tokens(45)})
	s.want("runs")
	s.core.SetLimit(s.now, 0, 400)
	s.poll()
	s.pass(20 * time.Second) // the share refills 200 a minute
	s.want("runs", "over its flow's share")
}
