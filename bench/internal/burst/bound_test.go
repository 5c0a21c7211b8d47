package burst

import (
	"testing"
	"time"
)

// burst200 are 200 calls at once of 2,500 tokens and 10 s, before a quota of 600
// requests and 200,000 tokens a minute and 50 slots.
func burst200() (*Shape, []release) {
	s := &Shape{Name: "made", TokensPerMinute: 200_000, RequestsPerMinute: 600, Slots: 50}
	var calls []release
	for range 200 {
		calls = append(calls, release{0, &call{tokens: 2500, estimate: 2500, takes: 10 * time.Second}})
	}
	return s, calls
}

func TestABurstTakesAtLeastUntilItsLastCallIsLetInAndServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window Window
		want   time.Duration
	}{
		{bucketWindow, 100 * time.Second},  // (500,000 − 200,000)/3,333 a second, and 10 s
		{slidingWindow, 130 * time.Second}, // 80 calls at 0, 60 and 120 s
		{fixedWindow, 130 * time.Second},
	} {
		t.Run(c.window.String(), func(t *testing.T) {
			t.Parallel()
			s, calls := burst200()
			got, quota := s.lowerBound(c.window, calls, 10*time.Second, s.Slots)
			if got != c.want || !quota {
				t.Errorf("the bound is %v, by the quota: %t; want %v and true", got, quota, c.want)
			}
		})
	}
}

func TestTheLowerBoundIsTheLargestOfItsReasons(t *testing.T) {
	t.Parallel()
	calls := func(n int, tokens int64, at, takes time.Duration) (list []release) {
		for range n {
			list = append(list, release{at, &call{tokens: tokens, takes: takes}})
		}
		return list
	}
	for _, c := range []struct {
		name   string
		shape  Shape
		window Window
		calls  []release
		path   time.Duration
		slots  int
		want   time.Duration
		quota  bool
	}{
		{"slots", Shape{TokensPerMinute: 1e6, RequestsPerMinute: 1e6}, bucketWindow, calls(100, 1, 0, 10*time.Second), 10 * time.Second, 10,
			100 * time.Second, false},
		{"no slots", Shape{TokensPerMinute: 1e6, RequestsPerMinute: 1e6}, bucketWindow, calls(100, 1, 0, 10*time.Second), 10 * time.Second, 0,
			10 * time.Second, false},
		{"critical path", Shape{TokensPerMinute: 1e6, RequestsPerMinute: 1e6}, bucketWindow, calls(4, 1, 0, 10*time.Second), 40 * time.Second, 0,
			40 * time.Second, false},
		{"requests", Shape{TokensPerMinute: 1e6, RequestsPerMinute: 60}, slidingWindow, calls(121, 1, 0, time.Second), time.Second, 0,
			121 * time.Second, true},
		// 40 calls are left at a minute, of 1 s each on 4 slots.
		{"slots after the quota", Shape{TokensPerMinute: 100, RequestsPerMinute: 1e6}, slidingWindow, calls(140, 1, 0, time.Second), time.Second, 4,
			70 * time.Second, true},
		// Released at 59 s: a fixed minute begins a second later, a sliding one a minute later.
		{"the edge of a fixed minute", Shape{TokensPerMinute: 100, RequestsPerMinute: 1e6}, fixedWindow, calls(150, 1, 59*time.Second, 5*time.Second),
			64 * time.Second, 0, 6 * time.Second, true},
		{"no edge in a sliding minute", Shape{TokensPerMinute: 100, RequestsPerMinute: 1e6}, slidingWindow, calls(150, 1, 59*time.Second, 5*time.Second),
			64 * time.Second, 0, 65 * time.Second, true},
		// A second checks 10 of the 600 a minute: 21 calls need three seconds.
		{"quantum", Shape{TokensPerMinute: 600, RequestsPerMinute: 6000, Quantum: time.Second}, slidingWindow, calls(21, 1, 0, time.Second), time.Second, 0,
			3 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, quota := c.shape.lowerBound(c.window, c.calls, c.path, c.slots)
			if got != c.want || quota != c.quota {
				t.Errorf("the bound is %v, by the quota: %t; want %v and %t", got, quota, c.want, c.quota)
			}
		})
	}
}

func TestTheFluidBoundIsTheLeastOfDemandThenSupply(t *testing.T) {
	t.Parallel()
	at := func(second float64, tokens int64) release {
		return release{seconds(second), &call{group: "g", tokens: tokens, takes: 10 * time.Second}}
	}
	shape := func(change func(*Shape)) *Shape {
		s := &Shape{TokensPerMinute: 600, RequestsPerMinute: 1000, Stream: 2 * minute}
		change(s)
		return s
	}
	same := func(*Shape) {}
	for _, c := range []struct {
		name   string
		shape  *Shape
		window Window
		guard  float64
		calls  []release
		want   float64
	}{
		{"demand", shape(same), slidingWindow, 1, []release{at(0, 100), at(90, 200)}, 300},
		{"two windows", shape(same), slidingWindow, 1, []release{at(0, 5000)}, 1200},
		{"two windows under a guard", shape(same), slidingWindow, 0.9, []release{at(0, 5000)}, 1080},
		{"a full bucket and two minutes", shape(same), bucketWindow, 1, []release{at(0, 5000)}, 1800},
		// 100 were asked for before 90 s; from then on a full bucket and 30 s.
		{"late demand at a bucket", shape(same), bucketWindow, 1, []release{at(0, 100), at(90, 5000)}, 100 + 600 + 300},
		{"late demand at a fixed window", shape(same), fixedWindow, 1, []release{at(0, 100), at(90, 5000)}, 700},
		{"demand before an edge", shape(same), fixedWindow, 1, []release{at(59, 5000)}, 1200},
		{"a provider that grants half", shape(func(s *Shape) { s.Granted = 0.5 }), slidingWindow, 1, []release{at(0, 5000)}, 600},
		// Of the bucket's 1,800, an outage from 60 to 120 s leaves a full one and a minute.
		{"an outage at the end", shape(func(s *Shape) { s.OutageFrom, s.OutageTo = minute, 2*minute }), bucketWindow, 1, []release{at(0, 5000)}, 1200},
		{"requests", shape(func(s *Shape) { s.RequestsPerMinute = 1 }), slidingWindow, 1,
			[]release{at(0, 10), at(0, 300), at(0, 200)}, 500},
		{"a quantum", shape(func(s *Shape) { s.Quantum = time.Second }), bucketWindow, 1, []release{at(0, 5000)}, 10 + 1200},
		// Two places for 120 s are 24 calls of 10 s.
		{"places", shape(func(s *Shape) { s.Concurrency = 2 }), slidingWindow, 1, repeat(at(0, 10), 100), 240},
		{"a burst", shape(func(s *Shape) { s.Stream = 0 }), slidingWindow, 1, []release{at(0, 5000)}, 5000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.shape.fluid(c.window, c.calls, c.guard)
			if diff := got - c.want; diff > 1e-3*c.want || diff < -1e-3*c.want {
				t.Errorf("G* is %v, want %v", got, c.want)
			}
		})
	}
}

func repeat(r release, n int) (list []release) {
	for range n {
		list = append(list, r)
	}
	return list
}
