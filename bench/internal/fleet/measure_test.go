package fleet

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

const sec = time.Second

// written is a log that was written by hand: two homes with a user each, and a quota of
// 6000 tokens a minute.
func written(t *testing.T, length time.Duration, calls ...Record) *Log {
	t.Helper()
	c, err := (Config{Replicas: 2, Users: 2, Rate: 1, Load: 2, Tokens: 100, Length: length}).WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.TokensPerMinute() != 6000 {
		t.Fatalf("the quota is %d", c.TokensPerMinute())
	}
	return &Log{Config: c, Calls: calls, Trips: make([]int32, c.seconds()), Refusals: make([]int32, c.seconds())}
}

// served is a call of a user that waits for a time, is let in a second later, and ends
// one after that.
func served(user int32, asked, wait time.Duration, tokens int64) Record {
	return Record{Asked: asked, Started: asked + wait, Counted: asked + wait + sec, Ended: asked + wait + 2*sec,
		Tokens: tokens, User: user, Replica: user, Outcome: Served, Attempts: 1}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestFiguresOfALogThatWasWrittenByHand(t *testing.T) {
	t.Parallel()
	l := written(t, 30*sec,
		served(0, 0, 0, 1000),
		served(0, 1*sec, 2*sec, 2000),
		served(1, 2*sec, 0, 1000),
		Record{Asked: 3 * sec, Started: -1, Counted: -1, Ended: -1, Tokens: 5000, User: 1, Replica: 1, Outcome: Waiting},
		Record{Asked: 4 * sec, Started: -1, Counted: -1, Ended: 9 * sec, Tokens: 700, User: 1, Replica: 1, Outcome: Expired},
		Record{Asked: 5 * sec, Started: 6 * sec, Counted: -1, Ended: 8 * sec, Tokens: 300, User: 0, Replica: 0, Outcome: Failed, Attempts: 3},
		Record{Asked: 6 * sec, Started: 7 * sec, Counted: 8 * sec, Ended: 9 * sec, Tokens: 400, User: 0, Replica: 0, Outcome: Lost, Attempts: 1},
		Record{Asked: 29 * sec, Started: 29 * sec, Counted: -1, Ended: -1, Tokens: 100, User: 0, Replica: 0, Outcome: Flying, Attempts: 1},
	)
	l.Trips[3], l.Trips[20], l.Refusals[7] = 3, 1, 3
	l.Attempts, l.Use = 12, 1.25
	m := Measure(l)
	if m.Calls != 8 || m.Served != 3 || m.Waiting != 1 || m.Expired != 1 || m.Failed != 1 || m.Lost != 1 || m.Flying != 1 {
		t.Errorf("the outcomes are %+v", m)
	}
	// All that was asked for, 10500 tokens, is more than the quota of the one window
	// that has begun: G* is 6000.
	if !near(m.Goodput, 4000./6000) {
		t.Errorf("goodput is %v, want 4000/6000", m.Goodput)
	}
	if m.Throttled != 0.25 || m.TripsPerCall != 0.5 || m.MaxUse != 1.25 || m.Overshoot != 0.25 {
		t.Errorf("429s %v, trips %v, use %v, overshoot %v", m.Throttled, m.TripsPerCall, m.MaxUse, m.Overshoot)
	}
	// 0, 2, 0, 27 so far, 5, 3 until it failed, 1 and 0.
	if !near(m.WaitMean, 38./8) || m.WaitP50 != 1 || m.WaitP99 != 27 {
		t.Errorf("waits of %v, %v, %v; want 4.75, 1, 27", m.WaitMean, m.WaitP50, m.WaitP99)
	}
	// 4000 tokens were got, and a fair share is 2000 each: 3000 and 1000 are 1.5 and 0.5.
	if want := 4. / (2 * 2.5); !near(m.JainUsers, want) || !near(m.JainReplicas, want) {
		t.Errorf("Jain is %v over users and %v over replicas, want %v", m.JainUsers, m.JainReplicas, want)
	}
	if m.Settled != nil {
		t.Errorf("settled after %v without a change", m.Settled)
	}
}

func TestAnEmptyLogHasFiguresThatAreNumbers(t *testing.T) {
	t.Parallel()
	m := Measure(written(t, 30*sec))
	if m.Goodput != 0 || m.WaitMean != 0 || m.TripsPerCall != 0 || m.JainUsers != 1 || m.JainReplicas != 1 || m.JainWaiting != 1 {
		t.Errorf("%+v", m)
	}
}

func TestWhatWasGotIsDividedMaxMinFairly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, got, fair []float64 }{
		{[]float64{10, 10}, []float64{5, 1}, []float64{3, 3}},
		{[]float64{1, 10, 10}, []float64{0, 9, 0}, []float64{1, 4, 4}},
		{[]float64{1, 2, 30}, []float64{1, 2, 12}, []float64{1, 2, 12}},
		{[]float64{0, 4}, []float64{0, 4}, []float64{0, 4}},
		{[]float64{3, 3}, []float64{0, 0}, []float64{0, 0}},
	} {
		if fair := maxMin(c.asked, c.got); !slices.Equal(fair, c.fair) {
			t.Errorf("%v of those that asked for %v is %v, want %v", c.got, c.asked, fair, c.fair)
		}
	}
}

func TestUsersThatWaitThroughoutAMinuteAreCompared(t *testing.T) {
	t.Parallel()
	waits := func(user int32, asked, until time.Duration) Record {
		return Record{Asked: asked, Started: -1, Counted: -1, Ended: until, Tokens: 1, User: user, Replica: user, Outcome: Expired}
	}
	// User 0 waits from 10 s to 200 s, in calls that overlap, user 1 from 50 s to 190 s, in
	// calls that touch: both throughout the second and the third minute.
	calls := []Record{
		waits(0, 10*sec, 100*sec), waits(1, 50*sec, 130*sec), waits(0, 90*sec, 200*sec), waits(1, 130*sec, 190*sec),
		served(0, 20*sec, 0, 5000),                             // in the first minute
		served(0, 70*sec, 0, 3000), served(1, 70*sec, 0, 1000), // in the second: 16/(2·10) is 0.8
		served(0, 130*sec, 0, 500), served(1, 140*sec, 0, 500), // in the third: 1
	}
	slices.SortFunc(calls, func(a, b Record) int { return int(a.Asked - b.Asked) })
	if got := Measure(written(t, 210*sec, calls...)).JainWaiting; !near(got, 0.9) {
		t.Errorf("the index is %v, want 0.9", got)
	}
	// With a pause of one second nobody is left to compare with in the third minute.
	for i := range calls {
		if calls[i].Asked == 130*sec && calls[i].User == 1 {
			calls[i].Asked += sec
		}
	}
	if got := Measure(written(t, 210*sec, calls...)).JainWaiting; !near(got, 0.8) {
		t.Errorf("the index is %v, want 0.8", got)
	}
}

func TestAReplicaThatServesMoreUsersHasALargerFairShare(t *testing.T) {
	t.Parallel()
	l := written(t, 30*sec)
	for user := range int32(3) { // two users at replica 0, one at replica 1; each gets half of what it asks for
		for k := range time.Duration(10) {
			r := served(user, k*sec, 0, 100)
			if r.Replica = user / 2; k%2 == 1 {
				r.Outcome, r.Counted, r.Started = Expired, -1, -1
			}
			l.Calls = append(l.Calls, r)
		}
	}
	if users, replicas := jains(l.Calls, 0, math.MaxInt64); !near(users, 1) || !near(replicas, 1) {
		t.Errorf("Jain is %v over users and %v over replicas, want 1", users, replicas)
	}
}

func TestAFleetHasConvergedWhenHomesGetTheirSharesAndNothingIsLeftUnused(t *testing.T) {
	t.Parallel()
	// Each home asks for 100 tokens a second, twice the quota in all. From the change at
	// 60 s on one of them gets nothing, or nobody does, for 15 seconds.
	scene := func(during func(k int) (a, b bool)) []float64 {
		l := written(t, 120*sec)
		l.Config.Window = engine.Bucket
		l.Config.Changes = []Change{{At: 60 * sec, Kill: 1}}
		for k := range 119 {
			a, b := k%2 == 0, k%2 == 1
			if k >= 60 && k < 75 {
				a, b = during(k)
			}
			for user, got := range []bool{a, b} {
				r := served(int32(user), time.Duration(k)*sec, -sec, 100) // let in as it was asked for
				if !got {
					r.Outcome, r.Counted = Expired, -1
				}
				l.Calls = append(l.Calls, r)
			}
		}
		return Measure(l).Settled
	}
	for _, c := range []struct {
		name   string
		during func(k int) (a, b bool)
		least  float64
		most   float64
	}{
		{"nothing changes", func(k int) (a, b bool) { return k%2 == 0, k%2 == 1 }, 0, 0},
		// From 67 s to 77 s there are 8 seconds of one home alone, and 2 of both: 9 and 1
		// of 10, which is an index of 0.61. At 0.95 it is at most 1.23 to 0.77.
		{"one home gets all", func(k int) (a, b bool) { return true, false }, 10, 13},
		{"nobody gets anything", func(k int) (a, b bool) { return false, false }, 13, 15},
	} {
		if got := scene(c.during); len(got) != 1 || got[0] < c.least || got[0] > c.most {
			t.Errorf("%s: settled after %v, want %v to %v", c.name, got, c.least, c.most)
		}
	}
	if got := scene(func(k int) (a, b bool) { return true, false }); got[0] < 0 {
		t.Errorf("not settled: %v", got)
	}
}

func TestAFleetThatDoesNotConvergeIsSaidNotTo(t *testing.T) {
	t.Parallel()
	l := written(t, 120*sec)
	l.Config.Window = engine.Bucket
	l.Config.Changes = []Change{{At: 60 * sec, Kill: 1}, {At: 90 * sec, Join: 1}}
	for k := range 119 {
		r := served(int32(k%2), time.Duration(k)*sec, -sec, 100)
		if k >= 60 && k < 90 {
			r.Outcome, r.Counted = Expired, -1
		}
		l.Calls = append(l.Calls, r)
	}
	if got := Measure(l).Settled; !slices.Equal(got, []float64{-1, 0}) {
		t.Errorf("settled after %v, want -1 and 0", got)
	}
}

func TestTheSeriesShowsWhatHappenedInEverySecond(t *testing.T) {
	t.Parallel()
	l := written(t, 6*sec,
		served(0, 0, 2*sec, 1000), // waits 0 to 2, flies 2 to 4, is let in at 3
		Record{Asked: 1 * sec, Started: -1, Counted: -1, Ended: -1, Tokens: 5000, User: 1, Replica: 1, Outcome: Waiting},
	)
	l.Trips[4], l.Refusals[5] = 7, 2
	want := []Sample{
		{At: 1, Waiting: 1}, {At: 2, Waiting: 2}, {At: 3, Waiting: 1, Flying: 1, WaitP50: 2, WaitP99: 2}, {At: 4, Waiting: 1, Flying: 1, Let: 10},
		{At: 5, Waiting: 1, Trips: 7, Jain: 1}, {At: 6, Waiting: 1, Refused: 2, Jain: 1},
	}
	for i := range 4 { // one of two homes that want something has got all
		want[i].Jain = 0.5
	}
	if got := Series(l); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestTheSeriesHasTheWaitsOfTheCallsThatWereSent(t *testing.T) {
	t.Parallel()
	gaveUp := served(1, 0, 4*sec, 100)
	gaveUp.Outcome, gaveUp.Counted = Failed, -1
	l := written(t, 10*sec, served(0, 3*sec, 1*sec, 100), served(0, 2*sec, 2*sec, 100), served(1, 1*sec, 3*sec, 100), gaveUp)
	for i, s := range Series(l) {
		p50, p99 := 0.0, 0.0
		if i == 4 {
			p50, p99 = 2, 3
		}
		if s.WaitP50 != p50 || s.WaitP99 != p99 {
			t.Errorf("second %d: p50 %v and p99 %v, want %v and %v", i, s.WaitP50, s.WaitP99, p50, p99)
		}
	}
}
