package gate

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheClockFollowsTimeThatPasses(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name string
		now  []time.Duration // as the caller sees it, from the first instant on
		want []time.Duration // the reading
	}{
		{"forwards", []time.Duration{0, 5 * time.Second, 5 * time.Second, time.Minute}, []time.Duration{0, 5 * time.Second, 5 * time.Second, time.Minute}},
		{"two callers that came in the wrong order", []time.Duration{0, 5 * time.Second, 4500 * time.Millisecond, 5100 * time.Millisecond},
			[]time.Duration{0, 5 * time.Second, 5 * time.Second, 5100 * time.Millisecond}},
		{"an hour back: time goes on", []time.Duration{0, 2 * time.Hour, time.Hour, time.Hour + time.Second},
			[]time.Duration{0, 2 * time.Hour, 2 * time.Hour, 2*time.Hour + time.Second}},
		{"an hour back and forth again: no hour is made of it", []time.Duration{0, 2 * time.Hour, time.Hour, time.Hour + 3*time.Second, 2*time.Hour + 5*time.Second},
			[]time.Duration{0, 2 * time.Hour, 2 * time.Hour, 2*time.Hour + 3*time.Second, 2*time.Hour + 5*time.Second}},
		{"a caller that lags behind the others", []time.Duration{0, time.Minute, 50 * time.Second, time.Minute + time.Second, 51 * time.Second, time.Minute + 2*time.Second},
			[]time.Duration{0, time.Minute, time.Minute, time.Minute + time.Second, time.Minute + time.Second, time.Minute + 2*time.Second}},
		{"back and back again", []time.Duration{0, time.Hour, 50 * time.Minute, 40 * time.Minute, 41 * time.Minute},
			[]time.Duration{0, time.Hour, time.Hour, time.Hour, time.Hour + time.Minute}},
		{"beyond what a reading can hold", []time.Duration{0, 1<<63 - 1, 1<<63 - 1}, []time.Duration{0, horizon, horizon}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var k clock
			for i, now := range c.now {
				if got := time.Duration(k.at(start.Add(now))); got != c.want[i] {
					t.Errorf("instant %d, %v: the reading is %v, want %v", i, now, got, c.want[i])
				}
			}
		})
	}
}

func TestTheClockNeverRunsBackwardsNorAheadOfAllCallers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var k clock
		start := time.Unix(1_000_000, 0)
		now, latest, ahead := start, start, time.Duration(0)
		last := k.at(now)
		for _, ms := range rapid.SliceOf(rapid.Int64Range(-5000, 5000)).Draw(t, "steps in ms") {
			step := time.Duration(ms) * time.Millisecond
			now = now.Add(step)
			if now.After(latest) {
				latest = now
			}
			ahead += max(step, 0)
			got := k.at(now)
			switch {
			case got < last:
				t.Fatalf("the reading falls from %d to %d", last, got)
			case got > int64(ahead):
				t.Fatalf("the reading is %d, but only %v have passed in sum", got, ahead)
			}
			if at := k.time(got); at.Before(now) || at.Sub(now) > time.Duration(inversion) {
				t.Fatalf("the reading stands for %v, while it is %v", at, now)
			}
			last = got
		}
	})
}

// A deadline and a closed budget last as long as their caller meant, though the
// clock is stepped back in between. Where it passes the instant of the step once
// more they may last longer, once, by no more than the step: the clock cannot
// tell that from one that is set right again.
func TestAStepOfTheClockNeitherExpiresNorExtendsAWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ step, late time.Duration }{{-time.Hour, 0}, {-25 * time.Second, 0}, {-5 * time.Second, 5 * time.Second}} {
		s := newScene(t, Config{Slots: 1, Dims: []Dim{perMinute(t, 10)}})
		s.ask("runs", Spec{Costs: tokens(0)})
		s.pass(time.Minute)
		s.ask("waits", Spec{Costs: tokens(0), Deadline: s.now.Add(10 * time.Second)})
		s.core.CloseBudget(s.now, 0, s.now.Add(20*time.Second))
		s.now = s.now.Add(c.step)
		s.poll()
		s.pass(10*time.Second - 1)
		if len(s.fails) > 0 {
			t.Fatalf("stepped by %v, a wait of 10 s ends too early", c.step)
		}
		s.pass(c.late + 1)
		if len(s.fails) == 0 {
			t.Fatalf("stepped by %v, a wait of 10 s goes on", c.step)
		}
		s.done("runs")
		s.ask("closed out", Spec{Costs: tokens(1)})
		s.pass(10*time.Second - 1)
		s.want()
		s.pass(1)
		s.want("closed out")
	}
}
