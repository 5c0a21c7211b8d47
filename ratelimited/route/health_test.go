package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A step of a story about one route: "fail", "refuse", "exhaust" and "serve" are
// what came of a call that began at the second given, at the second of the step.
type step struct {
	at, began int
	what      string
	open      bool // a call may take the route after it
}

func second(n int) time.Duration { return time.Duration(n) * time.Second }

func TestARouteIsLeftOutWhenItsCallsFailInARow(t *testing.T) {
	t.Parallel()
	fails := func(n int) (steps []step) {
		for i := range n {
			steps = append(steps, step{i, i, "fail", i < mostStrikes-1})
		}
		return steps
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"five failures", fails(5)},
		{"four, a call that is served, and four more", append(append(fails(4), step{4, 4, "serve", true}),
			step{5, 5, "fail", true}, step{6, 6, "fail", true}, step{7, 7, "fail", true}, step{8, 8, "fail", true})},
		{"five at once, of calls that began together", []step{
			{1, 0, "fail", true}, {1, 0, "fail", true}, {1, 0, "fail", true}, {1, 0, "fail", true}, {1, 0, "fail", false},
		}},
		{"any number of refusals at once are one", []step{
			{1, 0, "refuse", true}, {1, 0, "refuse", true}, {1, 0, "refuse", true}, {1, 1, "refuse", true},
			{1, 0, "refuse", true}, {1, 0, "refuse", true}, {1, 0, "refuse", true},
		}},
		{"five refusals, each of a call that was sent after the last", []step{
			{1, 0, "refuse", true}, {3, 2, "refuse", true}, {5, 4, "refuse", true}, {7, 6, "refuse", true}, {9, 8, "refuse", false},
		}},
		{"a quota that is used up, at once", []step{{0, 0, "exhaust", false}}},
		{"served meanwhile, but sent before", append(fails(5), step{4, 3, "serve", false})},
		{"served, and sent since", append(fails(5), step{7, 6, "serve", true})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var h health
			for i, s := range c.steps {
				now, began := second(s.at), second(s.began)
				switch s.what {
				case "fail":
					h.hit(now, began, failed, 0)
				case "refuse":
					h.hit(now, began, refused, 0)
				case "exhaust":
					h.hit(now, began, exhausted, 0)
				case "serve":
					h.served(began)
				}
				if h.open(now) != s.open {
					t.Fatalf("after step %d (%s at %ds) open is %v, want %v", i, s.what, s.at, !s.open, s.open)
				}
			}
		})
	}
}

// down is a route that was left out at 0, and the time from which it may be tried.
func down(t *testing.T) (h health, from time.Duration) {
	t.Helper()
	if !h.hit(0, 0, exhausted, 0) || h.open(0) {
		t.Fatal("the route is not left out")
	}
	return h, h.until
}

func TestOneCallAtATimeTriesARouteThatIsLeftOut(t *testing.T) {
	t.Parallel()
	h, from := down(t)
	if h.open(from-1) || !h.open(from) {
		t.Fatal("it must be open from the end of the pause, and not before")
	}
	h.try(from, 7)
	if h.open(from) {
		t.Error("a second call may try it, too")
	}
	h.untried(8) // not the one that tries
	if h.open(from) {
		t.Error("a call that does not try it has let the next one in")
	}
	h.untried(7)
	if !h.open(from) {
		t.Error("a probe that has found out nothing keeps the next one back")
	}
	h.try(from, 9)
	if h.open(from+probePatience-1) || !h.open(from+probePatience) {
		t.Error("a probe that is not answered must keep others back for 30s, not longer")
	}
	if !h.served(from) || !h.open(from) || h.out {
		t.Error("an answer has not brought the route back")
	}
}

// The pauses of gRPC's connection backoff: 1 s, growing by 1.6, at most 120 s, each
// a fifth more or less.
func TestPausesGrowWithEachProbeThatFails(t *testing.T) {
	t.Parallel()
	h, now := down(t)
	want := time.Second
	for n := range 20 {
		pause := h.until - h.since
		if low, high := want*8/10, want*12/10; pause < low || pause > high {
			t.Errorf("pause %d is %v, want %v to %v", n, pause, low, high)
		}
		now = h.until
		h.try(now, uint64(n+1))
		if n%2 == 0 {
			h.hit(now, now, failed, 0)
		} else {
			h.hit(now, now, refused, 0)
		}
		if h.open(now) {
			t.Fatal("a probe that fails must leave the route out again")
		}
		want = min(want*16/10, 2*time.Minute)
	}
	if !h.served(now) {
		t.Fatal("it is not back")
	}
	if h.hit(now, now, exhausted, 0); h.until-now > 1200*time.Millisecond {
		t.Errorf("after it was back the first pause is %v, want a second", h.until-now)
	}
}

// Only a call that began after the last pause was decided, and is heard of after
// it, says anything new about a route that is left out.
func TestOldNewsDoNotLengthenAPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		at, began time.Duration // after the route was left out
		longer    bool
	}{
		{"of a call that began before, during the pause", second(0), -1, false},
		{"of a call that began before, after the pause", second(5), -1, false},
		{"of a call that was sent all the same, during the pause", second(0) + 2, 1, false},
		{"of a call that was sent all the same, after the pause", second(5), 1, true},
	} {
		var h health
		const out = time.Hour
		h.hit(out, out, exhausted, 0)
		until := h.until
		h.hit(out+c.at, out+c.began, failed, 0)
		if longer := h.until > until; longer != c.longer {
			t.Errorf("a failure %s: the pause is longer is %v, want %v", c.name, longer, c.longer)
		}
	}
}

func TestAHintLengthensAPauseAndIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hint, low, high time.Duration }{
		{0, 800 * time.Millisecond, 1200 * time.Millisecond},
		{20 * time.Second, 20 * time.Second, 22 * time.Second},
		{24 * time.Hour, 2 * time.Minute, 132 * time.Second},
	} {
		var h health
		h.hit(0, 0, exhausted, c.hint)
		if h.until < c.low || h.until > c.high {
			t.Errorf("with a hint of %v the pause is %v, want %v to %v", c.hint, h.until, c.low, c.high)
		}
	}
}

// Whatever happens in whatever order, what is promised of routes holds: seen from
// the story alone, without the state.
func TestWhatIsPromisedOfRoutesHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var h health
		var story []string
		now, inARow := time.Duration(0), 0
		var outSince time.Duration
		out := false
		probes := map[uint64]time.Duration{} // that may be under way
		next := uint64(1)
		fatal := func(format string, args ...any) {
			rt.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(story, "\n"))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"pass": func(rt *rapid.T) {
				now += time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(rt, "d"))
				story = append(story, fmt.Sprintf("%v", now))
			},
			"fail": func(rt *rapid.T) {
				began := time.Duration(rapid.Int64Range(0, int64(now)).Draw(rt, "began"))
				left := h.hit(now, began, failed, 0)
				story = append(story, fmt.Sprintf("fail of %v: left out %v", began, left))
				if inARow++; !out && left != (inARow >= mostStrikes) {
					fatal("left out is %v after %d failures in a row", left, inARow)
				}
				if out && left {
					fatal("left out twice")
				}
				if left {
					out, outSince = true, now
					clear(probes)
				}
			},
			"serve": func(rt *rapid.T) {
				began := time.Duration(rapid.Int64Range(0, int64(now)).Draw(rt, "began"))
				back := h.served(began)
				story = append(story, fmt.Sprintf("serve of %v: back %v", began, back))
				if back && (!out || began < outSince) {
					fatal("a call of %v has brought back a route that was left out at %v (%v)", began, outSince, out)
				}
				if back {
					out = false
					clear(probes)
				}
				if !out {
					inARow = 0
				}
			},
			"try": func(rt *rapid.T) {
				if !out || !h.open(now) {
					return
				}
				if now < outSince+firstPause*8/10 {
					fatal("tried %v after it was left out", now-outSince)
				}
				for _, began := range probes {
					if now-began < probePatience && h.probe != 0 {
						fatal("two probes at once")
					}
				}
				h.try(now, next)
				story = append(story, fmt.Sprintf("try %d", next))
				probes[next] = now
				next++
				if h.open(now) {
					fatal("a probe keeps nobody back")
				}
			},
			"end of a probe": func(rt *rapid.T) {
				for n := range probes {
					h.untried(n)
					delete(probes, n)
					story = append(story, fmt.Sprintf("end %d", n))
					return
				}
			},
			"": func(rt *rapid.T) {
				if !out && !h.open(now) {
					fatal("closed, though it is not left out")
				}
				if out && !h.open(now+longPause*12/10+probePatience) {
					fatal("closed for longer than the longest pause and a probe")
				}
			},
		})
	})
}
