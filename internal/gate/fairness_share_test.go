package gate

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// served is the service of some flows in the minutes [from, to).
func served(from, to int, flows ...*simFlow) (sum float64) {
	for _, f := range flows {
		for m := from; m < min(to, len(f.minutes)); m++ {
			sum += f.minutes[m]
		}
	}
	return sum
}

func TestFlowsAreServedByWeight(t *testing.T) {
	t.Parallel()
	for _, o := range overloads {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			var flows []*simFlow
			for i, weight := range []float64{1, 2, 4} {
				f := backlogged(fmt.Sprint("weight ", weight), 80)
				f.weight, f.from = weight, time.Duration(i)*time.Second
				flows = append(flows, f)
			}
			s := newSim(o.config(), 3, flows...)
			s.run(t, time.Hour)
			if gap := s.largestGap(); gap > s.bound() {
				t.Errorf("%.2f quota-seconds over the weight apart, bound %.2f", gap, s.bound())
			}
			least := served(1, 60, flows[0])
			for _, f := range flows {
				if got := served(1, 60, f) / least; math.Abs(got-f.weight) > 0.05*f.weight {
					t.Errorf("weight %v is served %.3f times as much as weight 1", f.weight, got)
				}
			}
		})
	}
}

func TestClassesAreServedByWeightWhateverTheirFlows(t *testing.T) {
	t.Parallel()
	for _, o := range overloads {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			cfg := o.config()
			cfg.Classes = []Class{{Weight: 4}, {Weight: 2}, {Weight: 1}} // interactive, normal, batch
			var flows []*simFlow
			for class, parties := range []int{1, 3, 9} { // the least class is the most crowded
				for i := range parties {
					f := backlogged(fmt.Sprint(i), 80/parties+8)
					f.class, f.from = class, time.Duration(class)*time.Second
					flows = append(flows, f)
				}
			}
			s := newSim(cfg, 4, flows...)
			s.run(t, time.Hour)
			interactive, normal, batch := flows[:1], flows[1:4], flows[4:]
			for to := 2; to <= 60; to++ {
				i, n, b := served(1, to, interactive...)/4, served(1, to, normal...)/2, served(1, to, batch...)
				if gap := max(i, n, b) - min(i, n, b); gap > s.bound() {
					t.Fatalf("after %d minutes the classes are %.2f quota-seconds over their weight apart, bound %.2f", to, gap, s.bound())
				}
			}
			for i, f := range batch {
				if share := served(1, 60, f) / served(1, 60, batch...); math.Abs(share-1.0/9) > 0.02 {
					t.Errorf("flow %d of the batch class gets %.1f %% of it, want a ninth", i, 100*share)
				}
			}
		})
	}
}

func TestWhoIsAloneGetsEverything(t *testing.T) {
	t.Parallel()
	for _, o := range overloads {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			cfg := o.config()
			cfg.Classes = []Class{{Weight: 4}, {Weight: 1}}
			lone := backlogged("lone", 100)
			lone.class = 1
			visitor := backlogged("visitor", 100)
			visitor.from = 20 * time.Minute
			s := newSim(cfg, 5, lone, visitor)
			s.run(t, 20*time.Minute)
			before := served(5, 20, lone)
			s.run(t, 20*time.Minute)
			both := served(25, 40, lone, visitor)
			// All that the gate has: with the slots or the limit that binds in use
			// all the time, which a call's dominant share cannot understate by much.
			if before < 0.97*both {
				t.Errorf("alone it is served %.0f quota-seconds in 15 minutes, beside another one both %.0f", before, both)
			}
			if before < 0.9*15*60 {
				t.Errorf("alone it is served %.0f of %d quota-seconds", before, 15*60)
			}
			if share := served(25, 40, lone) / both; math.Abs(share-0.2) > 0.02 {
				t.Errorf("beside a class of weight 4 it gets %.1f %%, want 20 %%", 100*share)
			}
		})
	}
}

// The first minutes of a flow that floods, beside four that are backlogged: it
// must not have saved up the hour before.
func TestAFloodGetsNoCreditForTheHourBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before *simFlow
	}{
		{"it was idle", &simFlow{}},
		{"it kept tiny calls in flight", &simFlow{workers: 3, draw: work(5, 15, time.Second, 2*time.Second, 1)}},
		// Refunds are due, but they are not a share that was not used.
		{"it kept tiny calls with large estimates in flight", &simFlow{workers: 3, draw: work(5, 15, time.Second, 2*time.Second, 500)}},
	} {
		for _, o := range overloads {
			t.Run(c.name+", "+o.name, func(t *testing.T) {
				t.Parallel()
				flood := *c.before
				flood.name = "flood"
				flows := []*simFlow{&flood}
				for i := range 4 {
					flows = append(flows, backlogged(fmt.Sprint(i), 24))
				}
				s := newSim(o.config(), 6, flows...)
				s.at(time.Hour, func() {
					flood.draw = work(8000, 9000, 6*time.Second, 12*time.Second, 1)
					for range 40 {
						s.ask(&flood, true)
					}
				})
				s.run(t, time.Hour+5*time.Minute)
				for to := 61; to <= 65; to++ {
					share := served(60, to, &flood) / served(60, to, flows...)
					if share > 0.3 {
						t.Errorf("it takes %.1f %% of its first %d minutes, want at most 30 %%", 100*share, to-60)
					}
					if to == 65 && share < 0.15 {
						t.Errorf("it gets %.1f %% of its first 5 minutes, want about a fifth", 100*share)
					}
				}
			})
		}
	}
}

// What a flow was served too much it owes, even if it has nothing to ask for a
// moment while others have.
func TestADebtIsNotForgivenByAShortIdleMoment(t *testing.T) {
	t.Parallel()
	s := newScene(t, Config{Slots: 1, Dims: []Dim{refilled(t, 1_000_000, 100_000_000)}})
	s.ask("first", Spec{Flow: "other", Costs: tokens(50_000)})
	s.ask("hog", Spec{Flow: "hog", Costs: tokens(500_000)})
	for i := range 30 {
		s.ask(fmt.Sprint("other", i), Spec{Flow: "other", Costs: tokens(50_000)})
	}
	s.done("first")
	s.want("hog")
	s.done("hog") // its flow has no call now
	s.ask("again", Spec{Flow: "hog", Costs: tokens(500_000)})
	for i := range 10 {
		s.want(fmt.Sprint("other", i))
		s.done(fmt.Sprint("other", i))
	}
	s.want("again")
	s.done("again")
	// The debt is remembered as long as there is one, and no longer.
	for i := 10; i < 19; i++ {
		if s.core.Stats(s.now).Flows != 2 {
			t.Fatalf("the hog is forgotten while it still owes for %d calls", 19-i)
		}
		s.done(fmt.Sprint("other", i))
	}
	if n := s.core.Stats(s.now).Flows; n != 1 {
		t.Fatalf("%d flows are remembered, want the active one", n)
	}
}

func TestAnEstimateIsOnlyAnAdvance(t *testing.T) {
	t.Parallel()
	// A call of one flow turns out to have used nothing: it is due before the
	// other flow's second, though that one came first.
	s := newScene(t, Config{Slots: 1, Dims: []Dim{refilled(t, 1_000_000, 100_000_000)}})
	s.ask("nothing", Spec{Flow: "frugal", Costs: tokens(50_000)})
	s.ask("other", Spec{Flow: "other", Costs: tokens(50_000)})
	s.ask("other again", Spec{Flow: "other", Costs: tokens(50_000)})
	s.ask("frugal", Spec{Flow: "frugal", Costs: tokens(50_000)})
	s.done("nothing", 0)
	s.want("other")
	s.done("other")
	s.want("frugal")
	s.ask("frugal again", Spec{Flow: "frugal", Costs: tokens(50_000)})
	s.done("frugal", 120_000) // and now more than the other
	s.want("other again")
}
