package burst

import (
	"math"
	"testing"
	"time"
)

// made is a call of a schedule that was made by hand. Times are in seconds.
type made struct {
	flow             string
	tokens, estimate int64
	asked, sent, end float64
	refusedAt        []float64 // attempts before, each answered 429 at once
	lost             bool      // it was given up at end; where sent is below 0, it never was sent
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// schedule is a measure of calls that were made by hand.
func schedule(s *Shape, w Window, calls ...made) *measure {
	m := &measure{shape: s, window: w, mirror: w, guard: 1, slots: s.Slots, log: &log{}}
	for i, c := range calls {
		if c.estimate == 0 {
			c.estimate = c.tokens
		}
		holds := seconds(c.end - c.sent)
		cl := &call{id: i, flow: c.flow, group: "g", tokens: c.tokens, estimate: c.estimate, takes: holds}
		r := &record{call: cl, asked: seconds(c.asked), ended: seconds(c.end), done: !c.lost}
		for _, at := range c.refusedAt {
			a := r.begin(seconds(at))
			a.throttled = true
			a.over(seconds(at))
		}
		if c.sent >= 0 {
			a := r.begin(seconds(c.sent))
			a.admit(seconds(c.sent))
			a.over(seconds(c.end))
			a.served = !c.lost
		}
		m.log.records = append(m.log.records, r)
		m.calls = append(m.calls, release{seconds(c.asked), cl})
		m.path = max(m.path, seconds(c.asked)+holds)
	}
	m.end = m.log.end()
	return m
}

// plain is a shape with a quota of 6,000 tokens a minute: a call of 100 is a
// quota-second.
func plain(slots int) *Shape {
	return &Shape{Name: "made", TokensPerMinute: 6000, RequestsPerMinute: 6000, Slots: slots}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestOutcomesRefusalsAndWasteAreCounted(t *testing.T) {
	t.Parallel()
	s := plain(10)
	s.Stream = minute
	m := schedule(s, bucketWindow,
		made{flow: "a", tokens: 300, asked: 0, sent: 0, end: 5},
		made{flow: "a", tokens: 100, asked: 0, sent: 20, end: 25, refusedAt: []float64{1, 5}},
		made{flow: "b", tokens: 200, asked: 0, sent: 10, end: 12, lost: true}, // broken
		made{flow: "b", tokens: 400, asked: 0, sent: -1, end: 30, lost: true}, // given up
		made{flow: "b", tokens: 500, asked: 59, sent: 61, end: 65},            // after the stream
	)
	x := m.metrics()
	got := [...]int{x.Calls, x.Completed, x.Refused, x.Failed, x.Attempts, x.Throttled}
	if want := [...]int{5, 3, 1, 1, 6, 2}; got != want {
		t.Errorf("calls, completed, refused, failed, attempts, throttled are %v, want %v", got, want)
	}
	near(t, "429 per attempt", x.ThrottledPerAttempt, 2.0/6)
	near(t, "wasted", x.Wasted, (2*100+200)/(300+3*100+200+500.0))
	near(t, "share", x.Share, (300+100)/1500.0)     // all demand fits into the full bucket
	near(t, "p50 of the waits", x.WaitP50["g"], 12) // of 0, 2, 12, 20 and 30
	near(t, "p99 of the waits", x.WaitP99["g"], 30)
	if x.Makespan != 0 || x.LowerBound != 0 {
		t.Errorf("a stream has a makespan of %v and a bound of %v, want none", x.Makespan, x.LowerBound)
	}
}

// backlogged are calls of flows that wait all the time and get calls of one second of the quota.
func backlogged(n int, turn func(i int) string) (calls []made) {
	for i := range n {
		calls = append(calls, made{flow: turn(i), tokens: 100, asked: 0, sent: float64(i) + 0.5, end: float64(i) + 0.6})
	}
	return calls
}

func TestJainIsThatOfTheLeastFairMinute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		calls []made
		want  float64
	}{
		{"equal shares", backlogged(130, func(i int) string { return []string{"a", "b"}[i%2] }), 1},
		// 40 and 20 calls in a minute: 60²/(2·(40²+20²))
		{"twice the share", backlogged(130, func(i int) string { return []string{"a", "a", "b"}[i%3] }), 0.9},
		{"fewer than 20 calls", backlogged(130, func(i int) string { return []string{"a", "a", "a", "b"}[i%4] }), 0},
		{"one flow", backlogged(130, func(int) string { return "a" }), 0},
		{"less than a minute", backlogged(50, func(i int) string { return []string{"a", "b"}[i%2] }), 0},
		// 30 s of a, then 30 s of b: fair in this minute, and in no other.
		{"by turns of half a minute", backlogged(130, func(i int) string { return []string{"a", "b"}[i/30%2] }), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := schedule(plain(100), bucketWindow, c.calls...)
			near(t, "Jain", m.fairness().jain(), c.want)
		})
	}
}

func TestTheGapIsTheLargestDifferenceWhileBothWait(t *testing.T) {
	t.Parallel()
	order := func(s string) (calls []made) {
		return backlogged(len(s), func(i int) string { return s[i : i+1] })
	}
	for _, c := range []struct {
		name  string
		calls []made
		want  float64
	}{
		{"by turns", order("abababab"), 1},
		{"three in a row", order("abaaabab" + "b"), 3},
		{"five, then five", order("aaaaabbbbb"), 5},
		// From its last call on, a does not wait: what b gets then is no gap.
		{"one of them has nothing left", order("babbbbbb"), 1},
		{"alone", order("aaaa"), 0},
		// The others of that instant may have come after it.
		{"several at the instant of one's last call", []made{
			{flow: "b", tokens: 100, asked: 0, sent: 0.5, end: 9}, {flow: "a", tokens: 100, asked: 0, sent: 1, end: 9},
			{flow: "b", tokens: 100, asked: 0, sent: 1, end: 9}, {flow: "b", tokens: 100, asked: 0, sent: 1, end: 9},
			{flow: "b", tokens: 100, asked: 0, sent: 1, end: 9}, {flow: "b", tokens: 100, asked: 0, sent: 1, end: 9},
			{flow: "b", tokens: 100, asked: 0, sent: 5, end: 9},
		}, 1},
		{"but not the ones before", []made{
			{flow: "b", tokens: 100, asked: 0, sent: 0.5, end: 9}, {flow: "b", tokens: 100, asked: 0, sent: 0.7, end: 9},
			{flow: "b", tokens: 100, asked: 0, sent: 0.8, end: 9}, {flow: "a", tokens: 100, asked: 0, sent: 1, end: 9},
			{flow: "b", tokens: 100, asked: 0, sent: 1, end: 9}, {flow: "b", tokens: 100, asked: 0, sent: 5, end: 9},
		}, 3},
		// Who comes first is served at once, before anybody waits.
		{"what is let in before anybody waits", append([]made{
			{flow: "a", tokens: 900, asked: 0, sent: 0, end: 9},
		}, order("abab")...), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			near(t, "gap", schedule(plain(100), bucketWindow, c.calls...).fairness().gap(), c.want)
		})
	}
	m := schedule(plain(2), bucketWindow,
		made{flow: "a", tokens: 300, estimate: 100, asked: 0, sent: 0, end: 1}, made{flow: "b", tokens: 100, asked: 0, sent: 0, end: 1})
	near(t, "the bound: three of the largest cost, and the error for each slot", m.gapBound(), 3*3+2*2)
}

func TestTheCostOfACallIsItsDominantShare(t *testing.T) {
	t.Parallel()
	m := schedule(&Shape{TokensPerMinute: 6000, RequestsPerMinute: 60, Slots: 4}, bucketWindow)
	near(t, "tokens", m.cost(500, time.Second), 5)
	near(t, "requests", m.cost(1, time.Second), 1)
	near(t, "slots", m.cost(1, 20*time.Second), 5)
}

func TestIdleIsSlotTimeThatAWaitingCallCouldHaveHad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		window Window
		slots  int
		calls  []made
		want   float64
	}{
		// Two slots for 20 s. From 0 to 10 one of them is free while a call waits.
		{"one of two slots for half the time", bucketWindow, 2, []made{
			{flow: "a", tokens: 10, asked: 0, sent: 0, end: 20},
			{flow: "a", tokens: 10, asked: 0, sent: 10, end: 20},
		}, 0.25},
		{"no slot is free", bucketWindow, 1, []made{
			{flow: "a", tokens: 10, asked: 0, sent: 0, end: 10},
			{flow: "a", tokens: 10, asked: 0, sent: 10, end: 20},
		}, 0},
		{"nothing waits", bucketWindow, 2, []made{{flow: "a", tokens: 10, asked: 0, sent: 0, end: 20}}, 0},
		// The bucket has 6,000 and refills 100 a second: at 10 s there is room.
		{"no room until it is sent", bucketWindow, 2, []made{
			{flow: "a", tokens: 6000, asked: 0, sent: 0, end: 20},
			{flow: "a", tokens: 1000, asked: 0, sent: 10, end: 20},
		}, 0},
		{"room for five seconds", bucketWindow, 2, []made{
			{flow: "a", tokens: 6000, asked: 0, sent: 0, end: 20},
			{flow: "a", tokens: 1000, asked: 0, sent: 15, end: 20},
		}, 0.125},
		{"a window has room after a minute", slidingWindow, 2, []made{
			{flow: "a", tokens: 6000, asked: 0, sent: 0, end: 80},
			{flow: "a", tokens: 1000, asked: 0, sent: 70, end: 80},
		}, 10.0 / 160},
		// The largest of the calls that wait does not fit: it may have a claim.
		{"a large call waits, too", slidingWindow, 3, []made{
			{flow: "a", tokens: 100, asked: 0, sent: 0, end: 60},
			{flow: "a", tokens: 6000, asked: 0, sent: 60, end: 100},
			{flow: "a", tokens: 100, asked: 0, sent: 60, end: 100},
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := schedule(plain(c.slots), c.window, c.calls...).idle(); math.Abs(got-c.want) > 0.003 {
				t.Errorf("idle is %v, want %v", got, c.want)
			}
		})
	}
}

func TestTheLargestUseIsThatOfTheProvidersWindow(t *testing.T) {
	t.Parallel()
	calls := []made{
		{flow: "a", tokens: 3000, asked: 0, sent: 50, end: 51},
		{flow: "a", tokens: 3000, asked: 0, sent: 65, end: 66},
		{flow: "a", tokens: 1500, asked: 0, sent: 80, end: 81},
	}
	for _, c := range []struct {
		window Window
		want   float64
	}{
		{fixedWindow, 0.75},                    // from 60 to 120
		{slidingWindow, 1.25},                  // from 50 to 110
		{bucketWindow, (7500 - 3000.0) / 6000}, // refilled by 100 a second for 30 s
	} {
		t.Run(c.window.String(), func(t *testing.T) {
			t.Parallel()
			near(t, "largest use", schedule(plain(9), c.window, calls...).maxUse(), c.want)
		})
	}
}

func TestTheSeriesSaysWhatHappenedUpToEverySecond(t *testing.T) {
	t.Parallel()
	m := schedule(plain(9), slidingWindow,
		made{flow: "a", tokens: 3000, asked: 0.5, sent: 2, end: 4, refusedAt: []float64{0.6, 1.2}},
		made{flow: "a", tokens: 600, asked: 0, sent: 3, end: 5})
	want := []Sample{
		{At: 0, Waiting: 1},
		{At: 1, Waiting: 2, Throttled: 1},
		{At: 2, InFlight: 1, Waiting: 1, Throttled: 1, Use: 0.5},
		{At: 3, InFlight: 2, Use: 0.6},
		{At: 4, InFlight: 1, Use: 0.6},
		{At: 5, Use: 0.6},
	}
	got := m.series()
	if len(got) != len(want) {
		t.Fatalf("%d samples, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("sample %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	long := schedule(plain(9), slidingWindow, made{flow: "a", tokens: 1, asked: 0, sent: 0, end: 5000}).series()
	if len(long) > MaxSamples || long[len(long)-1].At < 5000 {
		t.Errorf("5,000 s have %d samples up to %v s, want at most %d to the end", len(long), long[len(long)-1].At, MaxSamples)
	}
}
