package burst

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"pgregory.net/rapid"
)

func TestBoundIsTheLeastOfWhatIsAskedForAndWhatCanBeLetIn(t *testing.T) {
	t.Parallel()
	const s = time.Second
	list := func(from time.Duration, n int, tokens int64) (l []Demand) {
		for range n {
			l = append(l, Demand{from, tokens})
		}
		return l
	}
	for _, c := range []struct {
		name             string
		window           Window
		tokens, requests int64
		calls            []Demand
		end              time.Duration
		want             float64
	}{
		{"all fits", engine.Sliding, 100, 0, list(0, 9, 10), 60 * s, 90},
		{"one window", engine.Sliding, 100, 0, list(0, 30, 10), 60 * s, 100},
		{"the second has begun", engine.Sliding, 100, 0, list(0, 30, 10), 61 * s, 200},
		{"late demand", engine.Sliding, 100, 0, list(90*s, 30, 10), 120 * s, 100},
		{"a fixed border between", engine.Fixed, 100, 0, list(50*s, 30, 10), 61 * s, 200},
		{"a bucket refills", engine.Bucket, 100, 0, list(0, 30, 10), 60*s + 1, 200},
		{"requests bind: the largest count", engine.Sliding, 1000, 3, append(list(0, 2, 50), list(s, 9, 10)...), 60 * s, 110},
		{"nothing is asked for", engine.Sliding, 100, 3, nil, 60 * s, 0},
	} {
		if got := Bound(c.window, c.tokens, c.requests, c.calls, c.end); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestBoundIsThatOfAShapeWithTheSameQuota(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(Windows()).Draw(t, "window")
		s := Shape{
			TokensPerMinute: rapid.Int64Range(1, 300).Draw(t, "tokens"), RequestsPerMinute: rapid.Int64Range(1, 20).Draw(t, "requests"),
			Stream: time.Duration(rapid.IntRange(1, 300).Draw(t, "end")) * time.Second,
		}
		var calls []release
		var list []Demand
		at := time.Duration(0)
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			at = min(at+time.Duration(rapid.IntRange(0, 20).Draw(t, "pause"))*time.Second, s.Stream-1)
			n := rapid.Int64Range(1, 50).Draw(t, "size")
			calls = append(calls, release{at, &call{tokens: n}})
			list = append(list, Demand{at, n})
		}
		want := s.fluid(w, calls, 1)
		if got := Bound(w, s.TokensPerMinute, s.RequestsPerMinute, list, s.Stream); got-want > 1e-6 || want-got > 1e-6 {
			t.Fatalf("%v, and %v as a shape", got, want)
		}
	})
}
