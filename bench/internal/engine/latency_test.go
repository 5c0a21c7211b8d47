package engine

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestACallTakesItsFirstTokenAndThenItsTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		latency      Latency
		tokens       int
		first, total time.Duration
	}{
		{"nothing set", Latency{}, 800, 0, 0},
		{"first token only", Latency{First: time.Second}, 800, time.Second, time.Second},
		{"tokens only", Latency{PerSecond: 100}, 800, 0, 8 * time.Second},
		{"both", Latency{First: 400 * time.Millisecond, PerSecond: 160}, 800, 400 * time.Millisecond, 5400 * time.Millisecond},
		{"no tokens", Latency{First: time.Second, PerSecond: 160}, 0, time.Second, time.Second},
		{"total", Latency{Total: 8 * time.Second, FirstShare: 0.25}, 800, 2 * time.Second, 8 * time.Second},
		{"total of a short answer", Latency{Total: 8 * time.Second, FirstShare: 0.25}, 1, 2 * time.Second, 8 * time.Second},
		{"total, all before the first token", Latency{Total: 8 * time.Second, FirstShare: 1}, 800, 8 * time.Second, 8 * time.Second},
		{"slower than time", Latency{PerSecond: 1e-300}, 800, 0, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.latency.plan(Draw{}, tt.tokens)
			if p.First != tt.first || p.Total != tt.total {
				t.Errorf("first token after %v, last after %v; want %v and %v", p.First, p.Total, tt.first, tt.total)
			}
		})
	}
}

func TestTokensComeEvenlyBetweenTheFirstAndTheLast(t *testing.T) {
	t.Parallel()
	p := Latency{First: time.Second, PerSecond: 100}.plan(Draw{}, 800)
	for n, want := range map[int]time.Duration{
		0: time.Second, 100: 2 * time.Second, 400: 5 * time.Second, 800: 9 * time.Second, 900: 9 * time.Second,
	} {
		if got := p.At(n); got != want {
			t.Errorf("%d tokens after %v, want %v", n, got, want)
		}
	}
	for after, want := range map[time.Duration]int{
		0: 0, time.Second: 0, 2 * time.Second: 100, 2*time.Second - 1: 99, 9 * time.Second: 800, time.Hour: 800,
	} {
		if got := p.By(after); got != want {
			t.Errorf("after %v %d tokens, want %d", after, got, want)
		}
	}
}

func TestWhatWasGeneratedByAnInstantIsThereAtIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := Latency{
			First:     time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "first")),
			PerSecond: rapid.Float64Range(0.1, 10000).Draw(t, "per second"),
			Sigma:     rapid.Float64Range(0, 1).Draw(t, "sigma"),
		}
		tokens := rapid.IntRange(0, 5000).Draw(t, "tokens")
		p := l.plan(newDraw(rapid.Uint64().Draw(t, "seed"), Digest{}, "serve", 0), tokens)
		p = p.stretch(rapid.Float64Range(0.01, 10).Draw(t, "factor"))
		if p.First < 0 || p.First > p.Total {
			t.Fatalf("first %v, total %v", p.First, p.Total)
		}
		d := time.Duration(rapid.Int64Range(0, int64(p.Total)+1).Draw(t, "after"))
		n := p.By(d)
		if n > 0 && p.At(n) > d {
			t.Fatalf("%d tokens by %v, but they come at %v", n, d, p.At(n))
		}
		// One more may be late by the rounding of a division, not by a token.
		if n < tokens && p.At(min(n+2, tokens)) < d {
			t.Fatalf("%d tokens by %v, but %d are there at %v", n, d, n+2, p.At(n+2))
		}
	})
}

func TestImpossibleLatenciesAreRefusedByNameAndValue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		latency Latency
		want    []string
	}{
		{Latency{First: -time.Second}, []string{"first token", "-1s"}},
		{Latency{Total: -time.Second}, []string{"latency", "-1s"}},
		{Latency{Sigma: -0.5}, []string{"sigma", "-0.5"}},
		{Latency{Sigma: 3.5}, []string{"sigma", "3.5"}},
		{Latency{Sigma: math.NaN()}, []string{"sigma", "NaN"}},
		{Latency{FirstShare: 1.5}, []string{"share", "1.5"}},
		{Latency{FirstShare: math.NaN()}, []string{"share", "NaN"}},
		{Latency{PerSecond: -1}, []string{"tokens per second", "-1"}},
		{Latency{PerSecond: math.NaN()}, []string{"tokens per second", "NaN"}},
		{Latency{PerSecond: math.Inf(1)}, []string{"tokens per second", "+Inf"}},
		{Latency{Total: 8 * time.Second, First: time.Second}, []string{"8s", "1s"}},
		{Latency{Total: 8 * time.Second, PerSecond: 50}, []string{"8s", "50"}},
	}
	for _, tt := range tests {
		_, err := New(Config{Latency: tt.latency})
		if err == nil {
			t.Errorf("%+v was accepted", tt.latency)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %q does not say %q", tt.latency, err, want)
			}
		}
	}
}
